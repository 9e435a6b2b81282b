"""Where a run comes from, and how it is stored."""
