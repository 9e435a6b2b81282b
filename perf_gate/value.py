"""Parsers for the values of options and ini lines. Each raises ValueError with what to give instead."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from perf_gate.measuring.measurement_run import BATCH

Value = TypeVar("Value")


def checked(check: Callable[[str], Value], name: str) -> Callable[[str], Value]:
    """Turn a parser of this module into one for argparse. name: what argparse calls the value."""

    def parse(text: str) -> Value:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    parse.__name__ = name
    return parse


def number(text: str) -> float:
    """Return `text` as a number; NaN if it is none, so that every comparison with it is false."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_budget(text: str) -> float:
    """Seconds, finite and > 0."""
    seconds = number(text)
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError("give a number of seconds > 0")
    return seconds


def parse_workers(text: str) -> tuple[int, int]:
    """MIN:MAX, or one number for both; even numbers, because workers start in pairs."""
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise ValueError("give MIN:MAX, e.g. 8:10")
    least, most = int(parts[0]), int(parts[-1])
    if least % BATCH or most % BATCH or not 0 < least <= most:
        raise ValueError("workers start in pairs: give even numbers with 0 < MIN <= MAX, e.g. 8:10")
    return least, most


def parse_count(text: str) -> int:
    """A whole number >= 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("give a whole number >= 1")
    return int(text)


def parse_seed(text: str) -> int:
    """A whole number >= 0."""
    if not text.isdecimal():
        raise ValueError("give a whole number >= 0")
    return int(text)


def parse_name(text: str) -> str:
    """Letters, digits, dash, dot and underscore, since it becomes part of a file name."""
    if not text or not all(c.isalnum() or c in "-._" for c in text) or text.startswith("."):
        raise ValueError("give a name of letters, digits, '-', '_' and '.', e.g. --gate-record tree-of-nodes")
    return text


def parse_chance(text: str) -> float:
    """A chance, > 0 and < 0.5."""
    chance = number(text)
    if not 0 < chance < 0.5:
        raise ValueError("give a chance > 0 and < 0.5, e.g. 0.001")
    return chance


def parse_python(text: str) -> str:
    """The path of an interpreter that can be run."""
    path = Path(text).expanduser()
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ValueError("give the path of a Python interpreter, e.g. other/.venv/bin/python")
    # Not resolved: Python finds its virtual environment by the path of the link.
    return str(path.absolute())
