"""What is measured: one file per kind of scenario."""
