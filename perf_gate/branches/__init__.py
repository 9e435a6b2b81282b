"""Other revisions of the project under test: found, laid out apart, and left without a trace."""
