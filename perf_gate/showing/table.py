"""The rows of a run as text: the verdict, then the rows that did not pass with their reasons, then the table."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perf_gate.metric import Exact
from perf_gate.quantity import percent, quantity
from perf_gate.verdict import Exit, Row, Verdict, exit_status

STYLE = {
    Verdict.PASS: "green",
    Verdict.IMPROVED: "cyan",
    Verdict.REGRESSED: "bold red",
    Verdict.INVALID: "bold red",
    Verdict.MISSING: "bold yellow",
    Verdict.UNRECORDED: "bold yellow",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_COMPARABLE: "yellow",
}
URGENCY = (
    Verdict.REGRESSED,
    Verdict.INVALID,
    Verdict.MISSING,
    Verdict.UNRECORDED,
    Verdict.INCONCLUSIVE,
    Verdict.NOT_COMPARABLE,
    Verdict.IMPROVED,
    Verdict.PASS,
)
WORD = {Exit.PASS: "pass", Exit.REGRESSED: "regressed", Exit.CANNOT_JUDGE: "cannot judge"}
HEADS = ("scenario", "metric", "baseline", "now", "change [interval]", "threshold", "detectable", "verdict")
LEGEND = (
    "change: how much worse, as a share of the baseline, with an interval that is valid for all rows at once. A row is "
    "regressed if the whole interval is above its threshold. detectable: the smallest change that this run would have "
    "called regressed."
)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, the most urgent first."""
    return sorted(rows, key=lambda row: URGENCY.index(row.verdict))


def red(row: Row) -> bool:
    """Return whether this row keeps the run from passing."""
    return row.verdict not in (Verdict.PASS, Verdict.IMPROVED) and not row.optional


def headline(rows: Sequence[Row]) -> str:
    """Return the verdict of the run with its counts, e.g. "regressed: 2 of 48 metrics; 46 pass, 0 not judged"."""
    status = exit_status(rows)
    if not rows:
        return f"{WORD[status]}: 0 metrics were compared"
    counts = Counter(row.verdict for row in rows if not row.optional)
    unjudged = sum(row.optional for row in rows)
    leading = {
        Exit.PASS: counts[Verdict.PASS] + counts[Verdict.IMPROVED],
        Exit.REGRESSED: counts[Verdict.REGRESSED],
        Exit.CANNOT_JUDGE: sum(map(red, rows)),
    }[status]
    shown = [f"{counts[each]} {each.value}" for each in URGENCY if counts[each] and each.value != WORD[status]]
    if status is Exit.PASS and not counts[Verdict.IMPROVED]:
        shown = []
    return f"{WORD[status]}: {leading} of {len(rows)} metrics; " + ", ".join([*shown, f"{unjudged} not judged"])


def render(
    rows: Sequence[Row], *, width: int = 120, color: bool = False, equal: bool = True, than: str = "record"
) -> str:
    """The whole report as text of at most `width` columns, without a trailing newline.

    color: with ANSI colours. equal: with a row for each exact metric that passed and each metric that need not be
    judged; else lines count them. than: what the run was compared with, in a word.
    Rows against an older record appear only where they did not pass; the headline counts them all. The same text
    on any terminal: nothing is taken from the environment.
    """
    found = ordered(rows)
    same = [row for row in found if row.verdict is Verdict.PASS and isinstance(row.metric, Exact)]
    unjudged = Counter(row.why for row in found if row.optional)
    shown = [
        row
        for row in found
        if not (row.optional and not equal)
        and (row.verdict is not Verdict.PASS or (not row.against and (equal or not isinstance(row.metric, Exact))))
    ]
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(width, 40),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        legacy_windows=False,
    )
    console.print(Text(headline(rows), style=_headline_style(rows)))
    for row in shown:
        if row.why:
            console.print(Text.assemble((row.verdict.value, STYLE[row.verdict]), f" {title(row)}"), soft_wrap=True)
            console.print(Padding(Text(row.why), (0, 0, 0, 2)))
    if not equal:
        for why, count in unjudged.items():
            console.print(f"{count} metrics not judged (-v shows each): {why}")
        if same:
            console.print(f"{len(same)} exact metrics are equal to the {than}'s (-v shows each)")
    if shown:
        console.print(_table(shown, width))
        console.print(Text(LEGEND, style="dim" if color else ""))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _headline_style(rows: Sequence[Row]) -> str:
    return {Exit.PASS: "bold green", Exit.REGRESSED: "bold red", Exit.CANNOT_JUDGE: "bold yellow"}[exit_status(rows)]


def title(row: Row) -> str:
    """Return scenario and metric of a row, not shortened."""
    return row.scenario if row.metric is None else f"{row.scenario}: {row.metric.name}"


def _table(rows: Sequence[Row], width: int) -> Table:
    table = Table(box=box.ASCII2, pad_edge=False, show_edge=False)
    scenario, metric, *numbers, verdict = HEADS
    table.add_column(scenario, overflow="fold", min_width=min(width // 4, max(len(cells(row)[0]) for row in rows)))
    table.add_column(metric, overflow="fold", min_width=8)
    for name in numbers:
        table.add_column(name, justify="right", overflow="fold")
    table.add_column(verdict, overflow="fold", min_width=9)
    for row in rows:
        *others, word = cells(row)
        table.add_row(*map(Text, others), Text(word, style=STYLE[row.verdict]))
    return table


def cells(row: Row) -> tuple[str, ...]:
    """Return a row of the table: a cell for each of HEADS."""
    name = row.scenario.rsplit("::", 1)[-1]
    unit = "" if row.metric is None else row.metric.unit
    return (
        f"{name} against {row.against}" if row.against else name,
        "-" if row.metric is None else row.metric.name,
        quantity(row.reference, unit),
        quantity(row.now, unit),
        _change(row),
        percent(row.threshold),
        _minimum_detectable(row),
        row.verdict.value,
    )


def _change(row: Row) -> str:
    found = percent(row.change, signed=True)
    if row.low is None or row.high is None or row.low == row.high:
        return found
    return f"{found} [{100 * row.low:+.2f}, {100 * row.high:+.2f}]"


def _minimum_detectable(row: Row) -> str:
    return (
        "any"
        if row.minimum_detectable_change is None and row.change is not None
        else percent(row.minimum_detectable_change)
    )


def failure_text(rows: Sequence[Row]) -> str:
    """Return the failure message of one scenario's test: each row that did not pass, and what to do; "" if all did."""
    return "\n".join(_failure(row) for row in ordered(rows) if red(row))


def _failure(row: Row) -> str:
    name = row.scenario if row.metric is None else row.metric.name
    lines = [f"{name}: {row.verdict.value}"]
    if row.metric is not None and row.now is not None and row.reference is not None:
        values = f"baseline {quantity(row.reference, row.metric.unit)}, now {quantity(row.now, row.metric.unit)}"
        lines.append(values if row.change is None else f"{values}, change for the worse {_change(row)}")
    if row.threshold is not None:
        lines.append(f"threshold {percent(row.threshold)}, minimum detectable change {_minimum_detectable(row)}")
    return "\n  ".join([*lines, row.why])
