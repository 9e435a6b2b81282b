"""One pytest session under the gate."""
