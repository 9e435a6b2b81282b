"""What is judged of a scenario: the value of each timed metric in each worker, on both sides."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perf_gate.judging.comparison import values
from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Sampled
from perf_gate.quantity import SECONDS, quantity
from perf_gate.reporting.canvas import Canvas
from perf_gate.reporting.data_table import DataTable, data_table
from perf_gate.reporting.palette import light
from perf_gate.reporting.plot import Plot
from perf_gate.reporting.report_data import short
from perf_gate.verdict import Row

BLOCK = 124.0


@dataclass(frozen=True)
class WorkerPlot(Plot):
    """A dot per worker. rows: the scenario's judged rows, for what was allowed. against: name of the baseline."""

    now: Measurement
    reference: Measurement | None
    rows: tuple[Row, ...] = ()
    against: str = ""

    @property
    def metrics(self) -> list[Sampled]:
        """The timed metrics."""
        return [metric for metric in self.now.metrics if isinstance(metric, Sampled)]

    def _values(self, metric: Sampled) -> tuple[dict[str, float], dict[str, float]]:
        """Worker -> value, in the baseline and now."""
        known = self.reference is not None and any(each.name == metric.name for each in self.reference.metrics)
        sides = (self.reference if known and self.reference and self.reference.seconds else None, self.now)
        found = [None if side is None else values(metric, side) for side in sides]
        baseline, now = ({} if v is None else dict(zip(v.workers, np.exp(v.logs).tolist(), strict=True)) for v in found)
        return baseline, now

    @property
    def title(self) -> str:
        """The result in one line."""
        if self.reference is None:
            said = [f"{m.name} {quantity(_typical(self._values(m)[1]), m.unit or 'ratio')}" for m in self.metrics]
            return f"{short(self.now.scenario)}, each worker: {', '.join(said)}"
        verdicts = {row.metric.name: row.verdict.value for row in self.rows if row.metric and not row.against}
        said = [f"{m.name} {verdicts.get(m.name, 'not judged')}" for m in self.metrics]
        return f"{short(self.now.scenario)}, each worker: {', '.join(said)}"

    @property
    def description(self) -> str:
        """How to read it."""
        if self.reference is None:
            return "One dot per worker process; the tall line is their mean."
        return (
            f"One dot per worker process: {self.against} above, this run below; tall lines are the means. The shaded "
            "band is the threshold around the mean of the baseline."
        )

    @property
    def data_table(self) -> DataTable:
        """Every worker's value."""
        rows = []
        for metric in self.metrics:
            baseline, now = self._values(metric)
            for side, found in (("baseline", baseline), ("now", now)):
                rows += [
                    (metric.name, side, name, quantity(value, metric.unit or "ratio")) for name, value in found.items()
                ]
        return data_table(
            f"Values of {short(self.now.scenario)} by worker", ("Metric", "Side", "Worker", "#Value"), rows
        )

    def height(self, width: int) -> float:  # noqa: ARG002 - the same at any
        """A block per metric."""
        return BLOCK * len(self.metrics) + 4

    def paint(self, canvas: Canvas) -> None:
        """Draw it."""
        for number, metric in enumerate(self.metrics):
            self._paint(canvas, number * BLOCK, metric)

    def _paint(self, canvas: Canvas, top: float, metric: Sampled) -> None:
        baseline, now = self._values(metric)
        scale, unit = _scale(metric, [*baseline.values(), *now.values()])
        canvas.text(12, top + 12, metric.name, weight="bold", size=12)
        better = "lower is better" if metric.better is Better.LOWER else "higher is better"
        canvas.text(canvas.width - 12, top + 12, better, color="muted", align="right")
        left = 76.0 if baseline else 48.0
        axes = canvas.axes(left, top + 24, canvas.width - left - 16, 58)
        axes.set_ylim(2, 0)
        if baseline:
            threshold = next((row.threshold for row in self.rows if row.metric == metric and not row.against), None)
            middle = _typical(baseline) * scale
            if threshold is not None:
                axes.axvspan(middle / (1 + threshold), middle * (1 + threshold), color=light("soft"), zorder=0)
            canvas.text(left - 6, top + 38, "baseline", color="muted", align="right")
        canvas.text(left - 6, top + 24 + (43.5 if baseline else 29), "now", color="muted", align="right")
        for y, found, color in ((0.5, baseline, "reference"), (1.5 if baseline else 1.0, now, "now")):
            if found:
                x = [value * scale for value in found.values()]
                axes.plot(x, [y] * len(x), "o", markersize=6, markeredgewidth=0, color=light(color), alpha=0.55)
                axes.plot([_typical(found) * scale] * 2, [y - 0.4, y + 0.4], color=light("ink"), linewidth=2)
        axes.margins(x=0.06)
        axes.locator_params(axis="x", nbins=5)
        canvas.text(left + (canvas.width - left - 16) / 2, top + 110, f"{metric.name} ({unit})", color="muted",
                    align="center", size=10)  # fmt: skip


def _typical(found: Mapping[str, float]) -> float:
    return statistics.geometric_mean(found.values())


def _scale(metric: Sampled, found: list[float]) -> tuple[float, str]:
    """What to multiply with, and the unit then."""
    if metric.unit == "s":
        size, name = next(((size, name) for size, name in SECONDS if max(found) >= size), SECONDS[-1])
        return 1 / size, name
    if metric.unit in ("", "ratio"):
        return 1.0, "a ratio, no unit"
    return 1.0, {"x": "times"}.get(metric.unit, metric.unit)
