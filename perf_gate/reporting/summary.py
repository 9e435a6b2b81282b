"""The report for a job summary: a page of Markdown and the plots as files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from perf_gate.records.record import write
from perf_gate.reporting.dossier import Dossier
from perf_gate.reporting.forest import label
from perf_gate.reporting.page import plots
from perf_gate.reporting.plain import plain
from perf_gate.showing.quantity import percent, quantity
from perf_gate.verdict import Row

SHOWN = 20
FILE = "summary.md"
_OURS = re.compile(r"changes|history-\d+|scenario-\d+-(times|workers)")
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#|<>~$&@:]|(?<=www)\.)", re.IGNORECASE)


def save(dossier: Dossier, folder: Path) -> Path:
    """Write every plot as SVG and PNG into `folder`, and summary.md that says which is which; returns the latter.

    Raises RecordError where something cannot be written, ReportError where a library is missing.
    """
    if folder.is_dir():
        clear(folder)
    drawn = list(plots(dossier).all())
    for name, plot in drawn:
        for ending, content in plot.files().items():
            write(content, folder / f"{name}{ending}", overwrite=True)
    path = folder / FILE
    write(markdown(dossier, [(plot.title, f"{name}.png") for name, plot in drawn]), path, overwrite=True)
    return path


def clear(folder: Path) -> None:
    """Take away what `save` wrote there before; nothing else. Raises OSError."""
    for path in (*folder.glob("*.svg"), *folder.glob("*.png"), folder / FILE):
        if path.name == FILE or _OURS.fullmatch(path.stem):
            path.unlink(missing_ok=True)


def markdown(dossier: Dossier, pictures: list[tuple[str, str]]) -> str:
    """The verdict first, then what changed, then the list of plots. pictures: title and file of each."""
    return "\n".join([*_lines(dossier, pictures), ""])


def _lines(dossier: Dossier, pictures: list[tuple[str, str]]) -> Iterator[str]:
    yield f"## Performance gate: {dossier.outcome.value}"
    yield ""
    yield escaped(dossier.sentence)
    yield ""
    if dossier.rows:
        yield ", ".join(f"{number} {word}" for word, number in dossier.counts)
        yield ""
    for line in (*dossier.faults, *dossier.notes):
        if line != dossier.sentence:
            yield f"> {escaped(line)}"
            yield ""
    if dossier.notable:
        yield "| verdict | metric | scenario | recorded | now | change for the worse | allowed |"
        yield "|---|---|---|--:|--:|--:|--:|"
        for row in dossier.notable[:SHOWN]:
            yield f"| {' | '.join(_cells(row))} |"
        if len(dossier.notable) > SHOWN:
            yield ""
            yield f"{len(dossier.notable) - SHOWN} more are in the report."
        yield ""
    if pictures:
        yield "<details><summary>Plots, in the artifact</summary>"
        yield ""
        for title, file in pictures:
            yield f"- `{file}`: {escaped(title)}"
        yield ""
        yield "</details>"


def _cells(row: Row) -> list[str]:
    unit = row.metric.unit if row.metric else ""
    change = percent(row.worse, signed=True)
    if row.low != row.high:
        change += f" [{percent(row.low, signed=True)}, {percent(row.high, signed=True)}]"
    cells = [
        row.verdict.value,
        row.metric.name if row.metric else "-",
        label(row),
        quantity(row.reference, unit),
        quantity(row.now, unit),
        change,
        percent(row.allowed),
    ]
    return [escaped(cell) for cell in cells]


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: names are not ours, and might be links, tags or mentions."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[1])};", plain(text))
