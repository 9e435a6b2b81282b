"""Histograms of the times of a scenario's visits, for each arm and both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perf_gate.judging.estimate import Floats
from perf_gate.measurement import Measurement
from perf_gate.quantity import SECONDS
from perf_gate.reporting.canvas import Canvas
from perf_gate.reporting.data_table import DataTable, data_table
from perf_gate.reporting.palette import light
from perf_gate.reporting.plot import Plot
from perf_gate.reporting.report_data import short

FEWEST, MOST = 8, 28
# Disturbances have no upper limit; what is slower than nearly all of both sides is counted in the last bin.
UPPER = 0.985
BLOCK = 138.0
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Histogram:
    """One arm: its bins in `unit`, and the share of visits in each, now and in the baseline (empty: none).

    edges: (bins + 1,), the last bin holds everything beyond it too. now, reference: (bins,).
    """

    arm: str
    unit: str
    scale: float
    edges: Floats
    now: Floats
    reference: Floats


@dataclass(frozen=True)
class Histograms(Plot):
    """Histogram of the visits of every arm, the baseline's upwards and this run's downwards. against: its name."""

    now: Measurement
    reference: Measurement | None
    against: str = ""

    @cached_property
    def histograms(self) -> tuple[Histogram, ...]:
        """One per arm."""
        return tuple(self._histogram(arm) for arm in self.now.seconds)

    def _histogram(self, arm: str) -> Histogram:
        ours, theirs = _visits(self.now, arm), _visits(self.reference, arm)
        both = [each for each in (ours, theirs) if each.size]
        low = min(float(each.min()) for each in both)
        high = max(*(float(np.quantile(each, UPPER)) for each in both), low * 1.001)
        scale, unit = next((size, name) for size, name in (*SECONDS, (1e-9, "ns")) if high >= size or name == "ns")
        edges = np.linspace(low, high, _bins(min(each.size for each in both)) + 1)
        shares = [
            np.histogram(np.minimum(each, high), edges)[0] / each.size if each.size else np.zeros(0)
            for each in (ours, theirs)
        ]
        return Histogram(arm, unit, scale, edges / scale, *shares)

    @property
    def title(self) -> str:
        """What it shows."""
        if self.reference is None:
            return f"{short(self.now.scenario)}: a visit typically takes {', '.join(self._typical())}"
        return f"{short(self.now.scenario)}: a visit typically took → takes {', '.join(self._typical())}"

    def _typical(self) -> Iterator[str]:
        """Each arm with its median, in the baseline and now."""
        for each in self.histograms:
            medians = [_visits(side, each.arm) for side in (self.reference, self.now)]
            said = [f"{np.median(visits) / each.scale:.3g}" for visits in medians if visits.size]
            yield f"{each.arm} {' → '.join(said)} {each.unit}"

    @property
    def description(self) -> str:
        """How to read it."""
        sides = "this run" if self.reference is None else f"upwards {self.against}, downwards this run"
        return (
            f"Share of the visits by how long they took: {sides}. The last bar holds everything slower. Seconds move "
            "with the machine, so the gate judges ratios of arms that were timed alternately."
        )

    @property
    def data_table(self) -> DataTable:
        """Quantiles and bins of every arm."""
        rows = []
        for each in self.histograms:
            for number in range(len(each.edges) - 1):
                upper = f"{each.edges[number + 1]:.4g}" if number < len(each.edges) - 2 else "more"
                rows.append(
                    (
                        each.arm,
                        f"{each.edges[number]:.4g} {each.unit}",
                        f"{upper} {each.unit}" if upper != "more" else upper,
                        _share(each.reference, number),
                        _share(each.now, number),
                    )
                )
        return data_table(
            f"Visits of {short(self.now.scenario)} by time", ("Arm", "#From", "#To", "#Baseline", "#Now"), rows
        )

    @property
    def quantiles(self) -> DataTable:
        """Workers, visits and quantiles of every arm on both sides."""
        rows = []
        for each in self.histograms:
            for side, measurement in (("baseline", self.reference), ("now", self.now)):
                visits = _visits(measurement, each.arm)
                if visits.size and measurement is not None:
                    values = np.quantile(visits, SHARES) / each.scale
                    rows.append(
                        (
                            f"{each.arm} ({each.unit})", side, str(measurement.workers), f"{visits.size:,}",
                            *(f"{value:.3g}" for value in values),
                        )
                    )  # fmt: skip
        columns = ("Arm", "Side", "#Workers", "#Visits", *(f"#{100 * share:g} %" for share in SHARES))
        return data_table(f"Quantiles of the visits of {short(self.now.scenario)}", columns, rows)

    def height(self, width: int) -> float:  # noqa: ARG002 - the same at any
        """A block per arm."""
        return BLOCK * len(self.histograms) + 4

    def paint(self, canvas: Canvas) -> None:
        """Draw it."""
        for number, each in enumerate(self.histograms):
            top = number * BLOCK
            canvas.text(12, top + 12, each.arm, weight="bold", size=12)
            canvas.text(canvas.width - 12, top + 12, "↑ baseline   ↓ now" if each.reference.size else "now",
                        color="muted", align="right")  # fmt: skip
            axes = canvas.axes(12, top + 22, canvas.width - 24, 76)
            tallest = max([*each.now, *each.reference]) * 1.05
            axes.set_ylim(-tallest, tallest if each.reference.size else 0.0)
            axes.set_xlim(each.edges[0], each.edges[-1])
            axes.stairs(-each.now, each.edges, fill=True, color=light("now"), alpha=0.85)
            if each.reference.size:
                axes.stairs(each.reference, each.edges, fill=True, color=light("reference"), alpha=0.7)
            axes.axhline(0, color=light("ink"), linewidth=0.8)
            axes.locator_params(axis="x", nbins=6)
            canvas.text(canvas.width / 2, top + 126, f"time of a visit to {each.arm!r} ({each.unit})", color="muted",
                        align="center", size=10)  # fmt: skip


def _bins(visits: int) -> int:
    """Twice the cube root of the number of visits (Rice's rule), within reason."""
    return int(min(max(round(2 * visits ** (1 / 3)), FEWEST), MOST))


def _share(shares: Floats, number: int) -> str:
    return f"{100 * shares[number]:.1f} %" if shares.size else "-"


def _visits(measurement: Measurement | None, arm: str) -> Floats:
    per_worker = () if measurement is None else measurement.seconds.get(arm, ())
    return np.array([second for worker in per_worker for second in worker], dtype=np.float64)
