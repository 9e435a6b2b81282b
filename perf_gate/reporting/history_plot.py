"""How a metric went from record to record, up to now."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perf_gate.judging.comparison import Values, common, values
from perf_gate.judging.decision import quantile
from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Exact, Metric, Sampled
from perf_gate.quantity import percent, quantity
from perf_gate.reporting.canvas import Canvas
from perf_gate.reporting.data_table import DataTable, data_table
from perf_gate.reporting.palette import light
from perf_gate.reporting.plot import Plot, tick
from perf_gate.reporting.report_data import ReportData, short
from perf_gate.showing.plain import shortened

NOW = "now"
LEFT, RIGHT = 52.0, 16.0
TOP, TALL = 14.0, 150.0


@dataclass(frozen=True)
class HistoryPoint:
    """One record, or the run itself.

    counted: its measurements with the same definition as in the run. timed: the same, but of the run's machine class
    only, because times of other machines cannot be compared.
    """

    name: str
    commit: str
    date: str
    counted: Mapping[str, Measurement]
    timed: Mapping[str, Measurement]

    @property
    def heading(self) -> str:
        """Name and commit, as a column head."""
        return f"{self.name} ({self.commit})"


def history_points(data: ReportData) -> list[HistoryPoint]:
    """Return the records, oldest first, and the run, each with the scenarios that are defined as in the run."""
    asked = {each.scenario: each.fingerprint for each in data.now.measurements if each.invalid is None}

    def held(measurements: Iterable[Measurement]) -> dict[str, Measurement]:
        return {each.scenario: each for each in measurements if asked.get(each.scenario) == each.fingerprint}

    found = []
    for record in data.history:
        ours = record.sections.get(data.now.provenance.machine)
        section = record.section(data.now.provenance.machine)
        name = record.path.stem if record.path else record.name
        found.append(
            HistoryPoint(
                name.partition("_")[0], section.provenance.commit[:7] or "no commit", day(section.created),
                held(section.measurements), held(ours.measurements if ours else ()),
            )
        )  # fmt: skip
    mine = held(data.now.measurements)
    commit = data.now.provenance.commit[:7] or "no commit"
    return [*found, HistoryPoint(NOW, commit, day(data.now.created), mine, mine)]


def day(created: str) -> str:
    """Return the date of an ISO 8601 time, or the beginning of the text if it is none."""
    try:
        return datetime.fromisoformat(created).date().isoformat()
    except ValueError:
        return created[:10]


@dataclass(frozen=True)
class Series:
    """The values of a metric in a scenario, a value or None for each point."""

    scenario: str
    metric: Metric
    values: tuple[float | None, ...]

    @property
    def known(self) -> list[float]:
        """The values that are not None."""
        return [value for value in self.values if value is not None]

    @property
    def moved(self) -> bool:
        """Whether they differ."""
        return len(set(self.known)) > 1

    def worse(self) -> list[float | None]:
        """Return the change for the worse since the first known value, as a share."""
        first = math.log(self.known[0])
        sign = 1.0 if self.metric.better is Better.LOWER else -1.0
        return [None if value is None else math.expm1(sign * (math.log(value) - first)) for value in self.values]


def series_by_metric(found: Sequence[HistoryPoint], kind: type[Metric]) -> dict[str, list[Series]]:
    """Return metric name -> a series per scenario of the run."""
    grouped: dict[str, list[Series]] = {}
    for measurement in found[-1].counted.values():
        for metric in measurement.metrics:
            if isinstance(metric, kind):
                series = Series(
                    measurement.scenario, metric, tuple(_value(each, measurement.scenario, metric) for each in found)
                )
                if series.known:
                    grouped.setdefault(metric.name, []).append(series)
    return grouped


def _value(point: HistoryPoint, scenario: str, metric: Metric) -> float | None:
    if isinstance(metric, Exact):
        measurement = point.counted.get(scenario)
        return None if measurement is None else measurement.exact.get(metric.name)
    found = _values(point, scenario, metric)
    return None if found is None else math.exp(found.mean)


def _values(point: HistoryPoint, scenario: str, metric: Sampled) -> Values | None:
    measurement = point.timed.get(scenario)
    if measurement is None or not measurement.seconds:
        return None
    return values(metric, measurement) if any(_same(metric, each) for each in measurement.metrics) else None


def _same(one: Sampled, other: Metric) -> bool:
    """Whether both are the same ratio; how much of a change is allowed may differ."""
    parts = ("name", "unit", "better", "numerator", "denominator")
    return all(getattr(one, part) == getattr(other, part, None) for part in parts)


@dataclass(frozen=True)
class HistoryPlot(Plot):
    """One metric over all records: a line per scenario.

    Timed: the change for the worse since each scenario's first record, and their mean. Counted: the values themselves.
    """

    history_points: tuple[HistoryPoint, ...]
    series_by_metric: tuple[Series, ...]

    @property
    def metric(self) -> Metric:
        """The metric that all of them are of."""
        return self.series_by_metric[0].metric

    @property
    def timed(self) -> bool:
        """Whether its values scatter."""
        return isinstance(self.metric, Sampled)

    @property
    def title(self) -> str:
        """What it shows."""
        name, span = self.metric.name, over(len(self.history_points) - 1)
        if self.timed:
            last = self.pooled[-1]
            first = next(
                point.name for point, value in zip(self.history_points, self.pooled, strict=True) if value is not None
            )
            if first == NOW or last is None:
                return f"{name}: no record to go back to on this machine class"
            word = "worse" if last > 0 else "better"
            return f"{name} over {span}: {percent(abs(last))} {word} than in {first}"
        moved = sum(series.moved for series in self.series_by_metric)
        return f"{name} over {span}: changed in {moved} of {len(self.series_by_metric)} scenarios"

    @property
    def description(self) -> str:
        """How to read it."""
        if not self.timed:
            return "The counted value at each record; one line per scenario that changed. A count has no noise."
        return (
            "Change for the worse since the oldest comparable record of this machine class. Thin: each scenario; bold: "
            "their mean, with the 95 % interval that comes from the spread between the workers of that record."
        )

    @property
    def data_table(self) -> DataTable:
        """The values themselves, a column per record."""
        unit = self.metric.unit or ("ratio" if self.timed else "")
        return data_table(
            f"{self.metric.name} by record and commit",
            ("Scenario", *(f"#{point.heading}" for point in self.history_points)),
            [
                (short(series.scenario), *(quantity(value, unit) for value in series.values))
                for series in self.series_by_metric
            ],
        )

    @property
    def pooled(self) -> list[float | None]:
        """Mean change for the worse over the scenarios that have a value, as a share, for each stage."""
        columns = zip(*(series.worse() for series in self.series_by_metric), strict=True)
        return [_mean_share([value for value in column if value is not None]) for column in columns]

    def _error(self, point: HistoryPoint) -> float:
        """Half of the 95 % interval of the mean over scenarios at one stage, on the log scale."""
        metric = self.metric
        assert isinstance(metric, Sampled)
        found = [
            value for series in self.series_by_metric if (value := _values(point, series.scenario, metric)) is not None
        ]
        shared = common(found) if found else ()
        if len(shared) < 3:
            return 0.0
        by_worker = [
            statistics.fmean(column) for column in zip(*(each.only(shared).logs for each in found), strict=True)
        ]
        error = statistics.stdev(by_worker) / math.sqrt(len(by_worker))
        return float(quantile(0.025, len(by_worker) - 1)) * error

    def height(self, width: int) -> float:  # noqa: ARG002 - the same at any
        """The same for all."""
        return TOP + TALL + 62

    def paint(self, canvas: Canvas) -> None:
        """Draw it."""
        axes = canvas.axes(LEFT, TOP, canvas.width - LEFT - RIGHT, TALL)
        axes.spines["left"].set_visible(True)
        axes.spines["left"].set_color(light("line"))
        axes.yaxis.set_major_locator(_locator())
        axes.grid(axis="y", color=light("line"), linewidth=0.6)
        axes.set_axisbelow(True)
        places = list(range(len(self.history_points)))
        if self.timed:
            axes.axhline(0, color=light("muted"), linewidth=1)
            axes.yaxis.set_major_formatter(tick)
            for series in self.series_by_metric:
                _line(axes, [None if share is None else 100 * share for share in series.worse()], "reference", 1.0)
            self._paint_mean(axes)
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, -3), max(high, 3))
            unit = "% for the worse since the oldest record"
        else:
            for series in self.series_by_metric:
                if series.moved:
                    _line(axes, list(series.values), "now", 1.8)
            axes.margins(y=0.15)
            axes.ticklabel_format(axis="y", useOffset=False, style="plain" if self._largest < 1e6 else "sci")
            unit = self.metric.unit or "ratio, no unit"
        axes.set_xlim(-0.4, len(self.history_points) - 0.6)
        shown = _spaced(places, 5)
        axes.set_xticks(shown, [""] * len(shown))
        canvas.text(LEFT, 4, shortened(unit, 48), color="muted", size=10)
        for place in shown:
            x = LEFT + (canvas.width - LEFT - RIGHT) * (place + 0.4) / (len(self.history_points) - 0.2)
            point = self.history_points[place]
            for line, (text, weight) in enumerate(
                ((point.name, "bold"), (point.commit, "normal"), (point.date, "normal"))
            ):
                canvas.text(x, TOP + TALL + 14 + 14 * line, text, align="center", size=10, weight=weight,
                            color="ink" if weight == "bold" else "muted")  # fmt: skip

    @property
    def _largest(self) -> float:
        return max(abs(value) for series in self.series_by_metric for value in series.known)

    def _paint_mean(self, axes: Any) -> None:
        pooled = self.pooled
        _line(axes, [None if share is None else 100 * share for share in pooled], "now", 2.4)
        for place, (point, share) in enumerate(zip(self.history_points, pooled, strict=True)):
            if share is not None:
                half = self._error(point)
                ends = [100 * math.expm1(math.log1p(share) + sign * half) for sign in (-1, 1)]
                axes.plot([place, place], ends, color=light("now"), linewidth=1.6, zorder=4)


def over(records: int) -> str:
    """What a history spans, e.g. "2 records and now"."""
    return f"{records} record{'' if records == 1 else 's'} and now"


def _line(axes: Any, found: Sequence[float | None], color: str, width: float) -> None:
    places = [place for place, value in enumerate(found) if value is not None]
    axes.plot(
        places, [value for value in found if value is not None], marker="o", markersize=2.5 + 1.5 * width,
        linewidth=width, color=light(color), alpha=0.6 if color == "reference" else 1, zorder=3, clip_on=False,
    )  # fmt: skip


def _mean_share(shares: Sequence[float]) -> float | None:
    return math.expm1(statistics.fmean(map(math.log1p, shares))) if shares else None


def _spaced(places: Sequence[int], most: int) -> list[int]:
    """At most `most` of the places, the first and the last among them."""
    if len(places) <= most:
        return list(places)
    step = (len(places) - 1) / (most - 1)
    return sorted({round(index * step) for index in range(most)})


def _locator() -> Any:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - loaded with the canvas

    return MaxNLocator(nbins=5)
