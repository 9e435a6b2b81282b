"""The outcome of a run, as JSON and as GitHub's workflow commands."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perf_gate.showing.table import WORD, headline, ordered, red, title
from perf_gate.verdict import Exit, Row, exit_status

SCHEMA = 2
# GitHub shows ten annotations of a kind per step.
MOST_ANNOTATIONS = 10


@dataclass(frozen=True)
class Place:
    """File and line of a scenario's test. file: from the top of the repository. line: 1-based."""

    file: str
    line: int


@dataclass(frozen=True)
class RunReport:
    """The outcome of one run.

    against: what it was compared with, as text; "" if nothing was compared. status: exit status of the run. fault: why
    nothing could be judged, or None. failed: tests that failed for another reason than a verdict. facts: lines about
    the measurement. values: lines with the values, if nothing was compared. places: by scenario.
    """

    rows: Sequence[Row]
    status: int
    against: str = ""
    fault: str | None = None
    failed: Sequence[str] = ()
    facts: Sequence[str] = ()
    values: Sequence[str] = ()
    places: Mapping[str, Place] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The verdict on the run in one line; never better than the exit status."""
        if self.fault is not None:
            return f"{WORD[Exit.CANNOT_JUDGE]}: {self.fault}"
        said = headline(self.rows) if self.against else "nothing was compared"
        if self.status == (exit_status(self.rows) if self.against else Exit.PASS):
            return said
        return f"{'failed' if self.status == Exit.REGRESSED else WORD[Exit.CANNOT_JUDGE]} ({said})"


def as_json(report: RunReport) -> str:
    """Return the verdict and all rows as JSON; see docs/ci.md. Infinite numbers are text ("inf")."""
    document = {
        "schema": SCHEMA,
        "status": report.status,
        "headline": report.verdict,
        "against": report.against,
        "fault": report.fault,
        "failed": list(report.failed),
        "rows": [_plain(row, report.places) for row in report.rows],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _plain(row: Row, places: Mapping[str, Place]) -> dict[str, object]:
    metric, place = row.metric, places.get(row.scenario)
    numbers = {
        name: getattr(row, name)
        for name in ("reference", "now", "change", "low", "high", "threshold", "minimum_detectable_change")
    }
    return {
        "scenario": row.scenario,
        "metric": None if metric is None else metric.name,
        "class": None if metric is None else type(metric).__name__.lower(),
        "unit": None if metric is None else metric.unit,
        "verdict": row.verdict.value,
        **{name: value if value is None or math.isfinite(value) else str(value) for name, value in numbers.items()},
        "why": row.why,
        "optional": row.optional,
        "against": row.against,
        "file": None if place is None else place.file,
        "line": None if place is None else place.line,
    }


def commands(report: RunReport) -> list[str]:
    """Return GitHub's workflow commands: an error at the test of each scenario that is not green, one for the rest."""
    found: dict[str, list[Row]] = {}
    for row in ordered(report.rows):
        if red(row):
            found.setdefault(row.scenario, []).append(row)
    lines = []
    for scenario, rows in list(found.items())[:MOST_ANNOTATIONS]:
        place = report.places.get(scenario)
        where = {"title": f"perf gate: {rows[0].verdict.value}"}
        if place is not None:
            where = {"file": place.file, "line": str(place.line), **where}
        text = "\n".join(f"{title(row)}: {row.why}" for row in rows)
        lines.append(_command(where, text))
    if len(found) > MOST_ANNOTATIONS:
        rest = len(found) - MOST_ANNOTATIONS
        lines.append(_command({"title": "perf gate"}, f"{rest} more scenarios are not green: see the job summary"))
    if report.fault is not None:
        lines.append(_command({"title": f"perf gate: {WORD[Exit.CANNOT_JUDGE]}"}, report.fault))
    return lines


def _command(properties: Mapping[str, str], text: str) -> str:
    # https://docs.github.com/actions/reference/workflow-commands-for-github-actions: what is escaped, and how.
    said = ",".join(f"{name}={_escaped(value, ',:')}" for name, value in properties.items())
    return f"::error {said}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
