"""The plots of a report as files in a folder, with a summary that lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perf_gate.records.record import write
from perf_gate.showing.markdown import HEADING, as_markdown, unfinished

if TYPE_CHECKING:
    from perf_gate.reporting.report_data import ReportData

FILE = "summary.md"
_OURS = re.compile(r"(changes|history-\d+|scenario-\d+-(times|workers))\.(svg|png)")


def save(data: ReportData, folder: Path) -> Path:
    """Write every plot as SVG and PNG into `folder`, and summary.md that lists them. Returns the path of the latter.

    Raises RecordError where something cannot be written, ReportError where a library is missing.
    """
    from perf_gate.reporting.page import plots  # noqa: PLC0415 - takes long to load, and few runs want it

    drawn = list(plots(data).all())
    path = folder / FILE
    # First: without it the next run would take what a killed one has left for somebody else's.
    write(unfinished(), path, overwrite=True)
    for name, plot in drawn:
        for ending, content in plot.files().items():
            write(content, folder / f"{name}{ending}", overwrite=True)
    pictures = [(plot.title, f"{name}.png") for name, plot in drawn]
    write(as_markdown(data.run_report, pictures), path, overwrite=True)
    return path


def ours(folder: Path) -> bool:
    """Whether `save` wrote there before. Raises OSError."""
    path = folder / FILE
    return path.is_file() and HEADING.match(path.read_text(encoding="utf-8", errors="replace")) is not None


def clear(folder: Path) -> None:
    """Take away what `save` wrote there before; nothing else. Raises OSError, RecordError."""
    if not ours(folder):
        return
    for path in list(_plots(folder)):
        path.unlink()
    if list(folder.iterdir()) == [folder / FILE]:
        (folder / FILE).unlink()
    else:
        # Without it the next run would take the folder for somebody else's.
        write(unfinished(), folder / FILE, overwrite=True)


def _plots(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if _OURS.fullmatch(path.name))
