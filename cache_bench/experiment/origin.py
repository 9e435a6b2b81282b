"""What results were made with. Results of two origins are never mixed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cache_bench.experiment.options import Options, Value
from perf_gate.records.provenance import provenance

ROOT = Path(__file__).parents[2]
# What refuses, speaks, stores, answers or draws cannot change what is measured: it may be improved without measuring
# anew. Options are compared one by one.
_NOT_MEASURING = (
    "__init__.py", "__main__.py", "answers.py", "cli.py", "fault.py", "figures.py", "file.py", "kv_size.py",
    "notebook.py", "options.py", "origin.py", "page.py", "progress.py", "reading.py", "results.py", "room.py",
    "spread.py", "table.py",
)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """made_with: what has to be the same for two readings to stand in one table. commit: for the reader only."""

    made_with: Mapping[str, Value]
    commit: str
    dirty: bool


def origin(options: Options) -> Origin:
    """Of a run that begins here and now."""
    found = provenance(ROOT, threads=options.threads, besides=("baselines", "docs"))
    return Origin(
        made_with={
            **options.described(),
            "code": digest(measuring()),
            "software": f"Python {found.versions['python']}, {found.software}",
            "machine": found.machine,
        },
        commit=found.commit,
        dirty=found.dirty,
    )


def measuring() -> list[Path]:
    """Every file that a measurement goes through, and some more."""
    here = Path(__file__).parent
    files = [*(ROOT / "prefix_cache").rglob("*.py"), *(ROOT / "cache_bench").rglob("*.py")]
    files += (ROOT / "cache_bench").rglob("*.txt")
    return sorted(
        file
        for file in files
        if not file.name.startswith("test_") and not (file.parent == here and file.name in _NOT_MEASURING)
    )


def digest(files: Iterable[Path]) -> str:
    """Short name of what stands in `files` and what they are called."""
    sums = hashlib.sha256()
    for file in files:
        sums.update(f"{file.relative_to(ROOT).as_posix()}\n".encode())
        sums.update(hashlib.sha256(file.read_bytes()).digest())
    return sums.hexdigest()[:16]
