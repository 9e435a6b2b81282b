"""The forest plot: the change of every metric with its interval and its threshold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from perf_gate.judging.comparison import POOLED, POOLED_PREFIX
from perf_gate.metric import Exact
from perf_gate.quantity import percent, quantity
from perf_gate.reporting.canvas import Canvas
from perf_gate.reporting.data_table import DataTable, data_table
from perf_gate.reporting.palette import BY_VERDICT, light
from perf_gate.reporting.plot import DESK, PHONE, Plot, tick
from perf_gate.reporting.report_data import short
from perf_gate.showing.plain import shortened
from perf_gate.verdict import Row, Verdict

MARKERS = {Verdict.PASS: "o", Verdict.REGRESSED: "D", Verdict.IMPROVED: "v", Verdict.INCONCLUSIVE: "s"}
LEAST, MOST = 0.05, 0.6
USUAL = 0.8
AXIS = 44.0
FOOT = 34.0
HEADING = 30.0


@dataclass(frozen=True)
class Line:
    """One line of the plot: the heading of a metric (row is None), or a row."""

    top: float
    height: float
    heading: str = ""
    row: Row | None = None


@dataclass(frozen=True)
class ForestPlot(Plot):
    """Rows with an interval, and counted rows that changed, grouped by metric.

    against: name of the baseline. equal: number of counted metrics that are equal to the baseline's.
    """

    rows: tuple[Row, ...]
    against: str
    equal: int = 0

    widths = (PHONE, DESK)

    @property
    def title(self) -> str:
        """The result in one line."""
        worse = sum(row.verdict is Verdict.REGRESSED for row in self.rows)
        number = len(self.rows)
        if worse:
            return f"Compared with {self.against}: {worse} of {number} changes exceed the threshold"
        said = f"Compared with {self.against}: none of {number} changes exceeds the threshold"
        undecided = sum(row.verdict is Verdict.INCONCLUSIVE for row in self.rows)
        return f"{said}; {undecided} undecided" if undecided else said

    @property
    def description(self) -> str:
        """How to read it."""
        equal = f" {self.equal} counted metrics are equal to the baseline's and not drawn." if self.equal else ""
        return (
            "Change of each metric for the worse, in % of the baseline. The mark is the estimate, the line its "
            "interval, which is valid for all rows at once, and the shaded band the threshold. Regressed (diamond): "
            f"the whole line is to the right of the band. A counted metric has no interval.{equal}"
        )

    @property
    def data_table(self) -> DataTable:
        """The rows as numbers."""
        return data_table(
            f"Change of each metric for the worse, compared with {self.against}",
            (
                "Scenario",
                "Metric",
                "#Baseline",
                "#Now",
                "#Change",
                "#From",
                "#To",
                "#Threshold",
                "#Minimum detectable change",
                "Verdict",
            ),
            [
                (
                    label(row),
                    row.metric.name if row.metric else "",
                    quantity(row.reference, _unit(row)),
                    quantity(row.now, _unit(row)),
                    percent(row.change, signed=True),
                    percent(row.low, signed=True),
                    percent(row.high, signed=True),
                    percent(row.threshold),
                    "any" if isinstance(row.metric, Exact) else percent(row.minimum_detectable_change),
                    row.verdict.value,
                )
                for _, rows in grouped(self.rows)
                for row in rows
            ],
        )

    def height(self, width: int) -> float:
        """Height of all lines with the axes above and below."""
        last = list(self._lines(width))[-1]
        return last.top + last.height + FOOT

    def _lines(self, width: int) -> Iterator[Line]:
        top, step = AXIS, 24.0 if width >= DESK else 42.0
        for heading, rows in grouped(self.rows):
            yield Line(top, HEADING, heading)
            top += HEADING
            for row in rows:
                yield Line(top, step, row=row)
                top += step

    def paint(self, canvas: Canvas) -> None:
        """Draw it: labels beside the lines where there is room, above them on a phone."""
        width = int(canvas.width)
        wide = width >= DESK
        left, right = (278.0, width - 268.0) if wide else (16.0, width - 16.0)
        lines = list(self._lines(width))
        bottom = lines[-1].top + lines[-1].height
        reach = self.reach
        axes = canvas.axes(left, AXIS, right - left, bottom - AXIS)
        axes.set_xlim(-100 * reach, 100 * reach)
        axes.set_ylim(bottom, AXIS)
        axes.axvline(0, color=light("muted"), linewidth=1, zorder=1)
        axes.grid(axis="x", color=light("line"), linewidth=0.6, zorder=0)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(_locator())
        axes.xaxis.set_major_formatter(tick)
        axes.tick_params(axis="x", top=True, labeltop=True, bottom=True)
        for line in lines:
            if line.row is None:
                canvas.text(12, line.top + 18, line.heading, weight="bold", size=12)
            else:
                self._paint_row(canvas, axes, line, line.row, (right, wide))
        middle = (left + right) / 2
        canvas.text(right, 8, "worse →", color="muted", align="right")
        canvas.text(left, 8, "← better", color="muted")
        canvas.text(middle, bottom + 27, "change for the worse (% of the baseline)", color="muted", align="center")

    @property
    def reach(self) -> float:
        """Half of the axis, as a share: most intervals and every regression; what goes beyond gets an arrow.

        One noisy metric with a wide threshold must not squeeze all others to a dot.
        """
        spans = sorted(max(abs(end or 0.0) for end in (row.low, row.high, row.change)) for row in self.rows)
        usual = spans[int(USUAL * (len(spans) - 1))]
        worse = [row.change for row in self.rows if row.change is not None and row.verdict is Verdict.REGRESSED]
        clear = [each * 1.2 for each in worse if math.isfinite(each)]
        return min(max([LEAST, usual * 1.1, *clear]), MOST)

    def _paint_row(self, canvas: Canvas, axes: Any, line: Line, row: Row, place: tuple[float, bool]) -> None:
        right, wide = place
        color = BY_VERDICT[row.verdict]
        weight = "bold" if row.scenario.startswith(POOLED_PREFIX) else "normal"
        y = line.top + line.height * (0.5 if wide else 0.6)
        said = change = _worded(row.change)
        if row.low != row.high:
            said += f" [{percent(row.low, signed=True)}, {percent(row.high, signed=True)}]".replace(" %", "")
        if wide:
            canvas.text(12, y, shortened(label(row), 36), weight=weight)
            canvas.text(right + 12, y, said, color="muted")
            canvas.text(
                right + 256,
                y,
                row.verdict.value,
                color=color,
                align="right",
                weight="bold" if row.verdict is Verdict.REGRESSED else weight,
            )
        else:
            above = line.top + line.height * 0.22
            canvas.text(12, above, shortened(label(row), 28), weight=weight)
            end = f"{change} {row.verdict.value}"
            canvas.text(right + 4, above, end, color=color, align="right", weight=weight)
        band = 100 * min(row.threshold or 0.0, self.reach)
        axes.barh(
            y, 2 * band, left=-band, height=line.height * (0.62 if wide else 0.32), color=light("soft"), zorder=0.5
        )
        self._paint_interval(axes, y, row, light(color))

    def _paint_interval(self, axes: Any, y: float, row: Row, color: str) -> None:
        edge = 100 * self.reach

        def inside(share: float | None) -> float:
            value = 100 * (share or 0.0)
            return edge if math.isnan(value) else min(max(value, -edge), edge)

        low, high, at = inside(row.low), inside(row.high), inside(row.change)
        axes.plot([low, high], [y, y], color=color, linewidth=2, solid_capstyle="butt", zorder=3)
        for end, mark in ((low, "<"), (high, ">")):
            if abs(end) >= edge:
                axes.plot([end], [y], marker=mark, markersize=7, color=color, clip_on=False, zorder=3)
        hollow = row.verdict is Verdict.INCONCLUSIVE
        axes.plot(
            [at], [y], marker=MARKERS.get(row.verdict, "o"), markersize=7, markeredgewidth=1.6, markeredgecolor=color,
            markerfacecolor=light("ground") if hollow else color, zorder=4, clip_on=False,
        )  # fmt: skip


def _locator() -> Any:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - loaded with the canvas

    return MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10])


def _worded(worse: float | None) -> str:
    """A change; from nothing there is no percentage."""
    return "from 0" if worse is None or math.isinf(worse) else percent(worse, signed=True)


def _unit(row: Row) -> str:
    return row.metric.unit if row.metric else ""


def label(row: Row) -> str:
    """The name of a row: its scenario's id, or what was pooled; and the older record, where it is compared with one."""
    if row.scenario == POOLED:
        name = "all scenarios, pooled"
    elif row.scenario.startswith(POOLED_PREFIX):
        name = f"pooled: {row.scenario[1:].split('::', 1)[0]}"
    else:
        name = short(row.scenario)
    return f"{name}, since {row.against}" if row.against else name


def grouped(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows by the name of their metric, in order of first appearance; pooled ones first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.metric.name if row.metric else "", []).append(row)
    return [
        (name, sorted(each, key=lambda row: not row.scenario.startswith(POOLED_PREFIX))) for name, each in found.items()
    ]
