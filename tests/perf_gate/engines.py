"""Writes revisions of the package `engine` that tests/perf_gate/hits.py measures."""

from __future__ import annotations

from pathlib import Path

ENGINE = """
NAME = "{name}"
REUSES = {reuses}
SLOWER = {slower}


def copies(size):
    return {copies}
"""


def write_engine(
    root: Path, *, name: str = "x", copies: object = 3, slower: float = 1.0, reuses: bool = True, text: str = ""
) -> None:
    """Put the package below `root`; text: another source for it altogether."""
    package = root / "engine"
    package.mkdir(parents=True, exist_ok=True)
    source = ENGINE.format(name=name, copies=copies, slower=slower, reuses=reuses)
    (package / "__init__.py").write_text(text or source)
