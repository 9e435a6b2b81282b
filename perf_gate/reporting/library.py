"""The libraries that only a report needs, loaded when one is made."""

from __future__ import annotations

import importlib
from typing import Any

NEEDED = ("jinja2", "matplotlib")


class ReportError(Exception):
    """A report cannot be made: what is wrong and what to do next."""


def library(name: str) -> Any:
    """The module `name` of matplotlib or jinja2. Raises ReportError naming the extra where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ReportError(f"a report needs {package}: pip install 'prefix-cache-gate[report]'") from error


def require() -> None:
    """Load everything a report needs. Raises ReportError, so that nobody waits for a run and then gets none."""
    for name in NEEDED:
        library(name)
