"""Turns samples of two sides into verdicts; knows nothing of processes, files or pytest."""
