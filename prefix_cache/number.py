"""Whole numbers that a caller passes: tokens, bytes, buffers."""

from __future__ import annotations

import operator
from typing import Any


def whole_number(name: str, value: Any, least: int, advice: str) -> int:
    """`value` as an int of at least `least`; NumPy's and torch's integers count, True and 1.0 do not.

    Raises TypeError or ValueError with the caller's own `name`, the value, and `advice`: what to pass instead.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is no whole number: {advice}")
    if number < least:
        raise ValueError(f"{name}={value!r} is too small: {advice}")
    return number
