"""What a run came to, for machines and for the places where a pull request is read."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perf_gate.metric import Exact
from perf_gate.showing.quantity import percent, quantity
from perf_gate.showing.table import URGENCY, WORD, change, detectable, headline, red
from perf_gate.verdict import Exit, Row, Verdict

SCHEMA = 1
# GitHub shows ten annotations of a kind per step and cuts a job summary off at 1 MiB.
MOST_ANNOTATIONS = 10
MOST_WORDS = 1500


@dataclass(frozen=True)
class Place:
    """Where a scenario's test is written. file: from the top of the repository. line: 1-based."""

    file: str
    line: int


@dataclass(frozen=True)
class Report:
    """One run.

    against: what it was held against, in words; "" where nothing was compared. status: exit status of the run. fault:
    why nothing could be judged, or None. failed: tests that failed for a reason of their own. facts: lines about how it
    was measured. values: lines with what was measured, where nothing was compared. places: by scenario.
    """

    rows: Sequence[Row]
    status: int
    against: str = ""
    fault: str | None = None
    failed: Sequence[str] = ()
    facts: Sequence[str] = ()
    values: Sequence[str] = ()
    places: Mapping[str, Place] = field(default_factory=dict)


def as_json(report: Report) -> str:
    """The verdict and all rows; see docs/ci.md. Numbers that JSON does not know are text ("inf")."""
    document = {
        "schema": SCHEMA,
        "status": report.status,
        "headline": _verdict(report),
        "against": report.against,
        "fault": report.fault,
        "failed": list(report.failed),
        "rows": [_plain(row, report.places) for row in report.rows],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _plain(row: Row, places: Mapping[str, Place]) -> dict[str, object]:
    metric, place = row.metric, places.get(row.scenario)
    numbers = {
        name: getattr(row, name) for name in ("reference", "now", "worse", "low", "high", "allowed", "detectable")
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


def _verdict(report: Report) -> str:
    if report.fault is not None:
        return f"cannot judge: {report.fault}"
    if not report.against:
        return "nothing was compared"
    return headline(report.rows)


def as_markdown(report: Report) -> str:
    """The verdict first, then what is not in order and the table, then what was not judged."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: Report) -> Iterator[str]:
    mark = {0: "✅", 1: "❌"}.get(report.status, "⚠️")
    yield f"## {mark} perf gate: {_cell(_verdict(report))}"
    yield ""
    if report.against:
        yield f"Held against {_cell(report.against)}. " + " ".join(map(_cell, report.facts))
    else:
        yield " ".join(map(_cell, report.facts))
    yield ""
    for name in report.failed:
        yield f"- **failed** `{name}`"
    ordered = sorted(report.rows, key=lambda row: URGENCY.index(row.verdict))
    for row in ordered:
        if red(row):
            name = row.scenario if row.metric is None else f"{row.scenario}: {row.metric.name}"
            yield f"- **{row.verdict.value}** `{name}` – {_cell(row.why)}"
    yield ""
    equal = [row for row in ordered if row.verdict is Verdict.PASS and (row.against or isinstance(row.metric, Exact))]
    shown = [row for row in ordered if row.metric is not None and not row.optional and row not in equal]
    if shown:
        yield from _table(shown)
        yield ""
    if equal:
        yield f"{len(equal)} more metrics pass: counted ones that are equal, and those held against an older record."
        yield ""
    unjudged = Counter(row.why for row in report.rows if row.optional)
    if unjudged:
        yield "### Not judged"
        yield ""
        yield from (f"- {count} metrics: {_cell(why)}" for why, count in unjudged.items())
        yield ""
    if report.values:
        yield "<details><summary>What was measured</summary>\n\n```"
        yield from report.values
        yield "```\n\n</details>\n"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| scenario | metric | baseline | now | change for the worse | allowed | caught from | verdict |"
    yield "|---|---|--:|--:|--:|--:|--:|---|"
    for row in rows:
        assert row.metric is not None
        name = row.scenario.rsplit("::", 1)[-1] + (f" against {row.against}" if row.against else "")
        values = [quantity(row.reference, row.metric.unit), quantity(row.now, row.metric.unit), change(row)]
        cells = [name, row.metric.name, *values, percent(row.allowed), detectable(row), row.verdict.value]
        yield f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that stays on one line and in its cell, and in which no scenario's words become markup."""
    short = text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]} …"
    for character in "\\`*_<>[]|":
        short = short.replace(character, f"\\{character}")
    return "<br>".join(short.splitlines())


def commands(report: Report) -> list[str]:
    """GitHub's workflow commands: an error at the test of each scenario that is not in order, one for the rest."""
    found: dict[str, list[Row]] = {}
    for row in sorted(report.rows, key=lambda row: URGENCY.index(row.verdict)):
        if red(row):
            found.setdefault(row.scenario, []).append(row)
    lines = []
    for scenario, rows in list(found.items())[:MOST_ANNOTATIONS]:
        place = report.places.get(scenario)
        where = {"title": f"perf gate: {rows[0].verdict.value}"}
        if place is not None:
            where = {"file": place.file, "line": str(place.line), **where}
        text = "\n".join(f"{scenario}{'' if row.metric is None else f': {row.metric.name}'}: {row.why}" for row in rows)
        lines.append(_command(where, text))
    if len(found) > MOST_ANNOTATIONS:
        rest = len(found) - MOST_ANNOTATIONS
        lines.append(_command({"title": "perf gate"}, f"{rest} more scenarios are not in order: see the job summary"))
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
