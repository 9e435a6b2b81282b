"""What the caller can put right."""

from __future__ import annotations


class ExperimentError(Exception):
    """The experiment cannot go on; the message says what was wrong, where, and what to do next."""
