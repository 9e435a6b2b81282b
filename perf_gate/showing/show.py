"""`perf-gate show FILE`: print a record."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perf_gate.judging.comparison import values
from perf_gate.measurement import Measurement
from perf_gate.metric import Exact, Metric
from perf_gate.quantity import quantity
from perf_gate.records.record import load
from perf_gate.records.section import Section


class _Pipe(Console):
    """A console that does not exit with 1 when its reader goes away, which would look like a regression."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError for the caller."""
        raise BrokenPipeError


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    verb = verbs.add_parser("show", help="print a record", description=__doc__)
    verb.add_argument("file", metavar="FILE")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the record. Returns 0."""
    record = load(options.file)
    console = _Pipe(file=sys.stdout, width=shutil.get_terminal_size((120, 24)).columns, highlight=False)
    console.print(Text(f"{record.name}, profile {record.profile}, {len(record.sections)} machine class(es)"))
    for section in record.sections.values():
        _show(section, console)
    return 0


def _show(section: Section, console: Console) -> None:
    provenance = section.provenance
    commit = provenance.commit[:12] or "no commit"
    facts = {
        "created": section.created,
        "commit": f"{commit} on {provenance.branch or '(detached head)'}" + (", dirty" if provenance.dirty else ""),
        "versions": ", ".join(f"{name} {version}" for name, version in provenance.versions.items()),
        "options": ", ".join(f"{name}={value}" for name, value in provenance.options.items()) or "-",
        "command": " ".join(provenance.command) or "-",
    }
    console.print(Text(f"\n{section.machine}", style="bold"))
    for name, fact in facts.items():
        console.print(Text(f"  {name}: {fact}"))
    table = Table(box=box.ASCII2, pad_edge=False, show_edge=False)
    for name in ("scenario", "metric", "value", "workers", "visits", "comparable"):
        table.add_column(name, overflow="fold", justify="right" if name in ("value", "workers", "visits") else "left")
    for measurement in section.measurements:
        for metric in measurement.metrics:
            table.add_row(*(Text(cell) for cell in _cells(measurement, metric)))
    console.print(table)


def _cells(measurement: Measurement, metric: Metric) -> tuple[str, ...]:
    name = measurement.scenario.rsplit("::", 1)[-1]
    if isinstance(metric, Exact):
        value = quantity(measurement.exact[metric.name], metric.unit)
        return (name, metric.name, value, "-", "-", metric.comparable.value)
    if not measurement.seconds:
        return (name, metric.name, "not timed", "-", "-", metric.comparable.value)
    value = quantity(math.exp(values(metric, measurement).mean), metric.unit)
    visits = sum(map(len, measurement.seconds[metric.numerator]))
    return (name, metric.name, value, str(measurement.workers), str(visits), metric.comparable.value)
