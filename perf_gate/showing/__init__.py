"""Verdicts and records for human eyes."""
