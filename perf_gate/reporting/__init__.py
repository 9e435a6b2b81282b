"""A judgement as one HTML page, and its plots as files; knows nothing of pytest."""
