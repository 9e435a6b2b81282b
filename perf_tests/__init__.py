"""The suites: the only room that knows both the subject and the gate."""
