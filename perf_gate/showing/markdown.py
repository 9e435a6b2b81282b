"""A run as Markdown, for the summary of a job and next to the plots of a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from perf_gate.metric import Exact
from perf_gate.showing.plain import plain
from perf_gate.showing.run_report import RunReport
from perf_gate.showing.table import HEADS, LEGEND, cells, ordered, red, title
from perf_gate.verdict import Exit, Row, Verdict

# GitHub cuts a job summary off at 1 MiB.
MOST_WORDS = 1500
MOST_ROWS = 100
MARKS = {0: "✅", 1: "❌"}
HEADING = re.compile(r"^## \S+ perf gate: ", re.MULTILINE)
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#|<>~$&@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)


def as_markdown(report: RunReport, pictures: Iterable[tuple[str, str]] = ()) -> str:
    """Return the verdict, then the rows that did not pass and the table, then what was not judged.

    pictures: title and file of each plot in the same folder.
    """
    return "\n".join(_lines(report, list(pictures))) + "\n"


def heading(status: int, text: str) -> str:
    """Return the heading with the verdict; HEADING matches it. status: exit status of the run."""
    return f"## {MARKS.get(status, '⚠️')} perf gate: {escaped(text)}"


def unfinished() -> str:
    """Return the heading of a run that ended before its verdict."""
    return heading(Exit.CANNOT_JUDGE, "no verdict, because the run ended early: see its output") + "\n"


def escaped(text: str) -> str:
    """Return text that Markdown shows unchanged, on one line; a name may look like a link, a tag or a mention."""
    short = text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]} …"
    lines = (_SPECIAL.sub(lambda match: f"&#{ord(match[1])};", plain(line)) for line in short.splitlines())
    return "<br>".join(lines)


def _lines(report: RunReport, pictures: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield heading(report.status, report.verdict)
    yield ""
    against = [f"Compared with {report.against}."] if report.against else []
    yield "<br>".join(map(escaped, [*against, *report.facts]))
    yield ""
    rows = ordered(report.rows)
    yield from _wrong(report.failed, [row for row in rows if red(row)])
    equal = [row for row in rows if row.verdict is Verdict.PASS and (row.against or isinstance(row.metric, Exact))]
    yield from _table([row for row in rows if row.metric is not None and not row.optional and row not in equal])
    if equal:
        yield f"{len(equal)} more metrics pass: counted ones that are equal, and those compared with an older record."
        yield ""
    yield from _unjudged(rows)
    yield from _values(report.values)
    yield from _pictures(pictures)


def _wrong(failed: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    said = [f"- **failed** {escaped(name)}" for name in failed]
    said += [f"- **{row.verdict.value}** {escaped(title(row))} – {escaped(row.why)}" for row in rows]
    yield from said[:MOST_ROWS]
    yield from _rest(said)
    yield ""


def _table(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield f"| {' | '.join(map(escaped, HEADS))} |"
    yield "|---|---|--:|--:|--:|--:|--:|---|"
    for row in rows[:MOST_ROWS]:
        yield f"| {' | '.join(map(escaped, cells(row)))} |"
    yield from _rest(rows)
    yield ""
    yield escaped(LEGEND)
    yield ""


def _rest(lines: Sequence[object]) -> Iterator[str]:
    if len(lines) > MOST_ROWS:
        yield ""
        yield f"{len(lines) - MOST_ROWS} more are not shown here."


def _unjudged(rows: Sequence[Row]) -> Iterator[str]:
    reasons = Counter(row.why for row in rows if row.optional)
    if reasons:
        yield "### Not judged"
        yield ""
        yield from (f"- {count} metrics: {escaped(why)}" for why, count in reasons.items())
        yield ""


def _values(values: Sequence[str]) -> Iterator[str]:
    if values:
        yield "<details><summary>What was measured</summary>"
        yield ""
        yield "<pre>"
        yield from map(escaped, values)
        yield "</pre>"
        yield ""
        yield "</details>"
        yield ""


def _pictures(pictures: Sequence[tuple[str, str]]) -> Iterator[str]:
    if pictures:
        yield "<details><summary>Plots, in the artifact</summary>"
        yield ""
        yield from (f"- `{file}`: {escaped(name)}" for name, file in pictures)
        yield ""
        yield "</details>"
