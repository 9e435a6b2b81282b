"""Files that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

from cache_bench.experiment.fault import ExperimentError
from perf_gate.records import record


def write(text: str, file: Path) -> None:
    """Replace `file`. Raises ExperimentError where it cannot be written; it is as it was then."""
    try:
        record.write(text, file, overwrite=True)
    except record.RecordError as error:
        raise ExperimentError(
            f"{file} {error.what}; it is as it was before. Put that right, and give the same command again: it goes on "
            "from there"
        ) from error
