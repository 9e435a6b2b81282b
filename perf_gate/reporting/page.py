"""The report as one HTML file that needs nothing else: no script, no network, no other file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from perf_gate.measurement import Measurement
from perf_gate.metric import Exact, Sampled
from perf_gate.quantity import percent, quantity
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import write
from perf_gate.reporting import palette
from perf_gate.reporting.data_table import DataTable, data_table
from perf_gate.reporting.forest_plot import ForestPlot, label
from perf_gate.reporting.histograms import Histograms
from perf_gate.reporting.history_plot import (
    HistoryPlot,
    HistoryPoint,
    Series,
    day,
    history_points,
    over,
    series_by_metric,
)
from perf_gate.reporting.library import library
from perf_gate.reporting.plot import DESK, Plot
from perf_gate.reporting.report_data import Outcome, ReportData, ReportSide, metric_names, short
from perf_gate.reporting.result import results
from perf_gate.reporting.worker_plot import WorkerPlot
from perf_gate.showing.plain import plain
from perf_gate.showing.table import URGENCY
from perf_gate.verdict import Row, Verdict

GLYPHS = {
    "pass": "✓",
    "regressed": "▲",
    "failed": "✕",
    "cannot judge": "?",
    "not compared": "–",
    "improved": "▼",
    "inconclusive": "?",
    "missing": "∅",
    "unrecorded": "+",
    "invalid": "✕",
    "not comparable": "≠",
    "not judged": "–",
}
TONES = {
    **{each.value: tone for each, tone in palette.BY_VERDICT.items()},
    Outcome.FAILED.value: "regressed",
    Outcome.CANNOT_JUDGE.value: "doubt",
    Outcome.NOT_COMPARED.value: "muted",
    "not judged": "muted",
}


# What a reader of two sides has to know where it is not the same.
CONDITIONS = ("Machine", "Version", "Option", "Scenarios", "Timed")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*(?: [A-Z]+)?)")


@dataclass(frozen=True)
class Shown:
    """A plot on the page: its drawings, one per width, and its data."""

    plot: Plot
    svgs: tuple[str, ...]

    @property
    def wide(self) -> bool:
        """Whether it is as wide as the page."""
        return self.plot.widths[-1] >= DESK


@dataclass(frozen=True)
class ScenarioSection:
    """A timed scenario on the page. rows: its rows that were judged. plots: of its visits and of its workers."""

    name: str
    rows: tuple[Row, ...]
    plots: tuple[Shown, ...]
    quantiles: DataTable

    @property
    def urgency(self) -> int:
        """How early it is shown: the place of its most urgent verdict among all."""
        judged = [URGENCY.index(row.verdict) for row in self.rows if not row.optional]
        return min(judged, default=len(URGENCY))


@dataclass(frozen=True)
class NotJudged:
    """Rows that were not judged for one reason."""

    why: str
    rows: DataTable
    number: int


@dataclass(frozen=True)
class Plots:
    """All plots of a report by what they show."""

    forest_plot: ForestPlot | None
    history_plot: tuple[HistoryPlot, ...]
    visits: Mapping[str, tuple[Histograms, WorkerPlot]]

    def all(self) -> Iterator[tuple[str, Plot]]:
        """Each with a name that is unique among them and fit for a file."""
        if self.forest_plot is not None:
            yield "changes", self.forest_plot
        for number, history_plot in enumerate(self.history_plot, 1):
            yield f"history-{number:02}", history_plot
        for number, (histograms, workers) in enumerate(self.visits.values(), 1):
            yield f"scenario-{number:02}-times", histograms
            yield f"scenario-{number:02}-workers", workers


def plots(data: ReportData) -> Plots:
    """Everything that is drawn of a report."""
    return Plots(_forest_plot(data), tuple(_history_plots(data)), dict(_visits(data)))


def _forest_plot(data: ReportData) -> ForestPlot | None:
    changed = [row for row in data.exact if row.change]
    rows = (*data.sampled, *changed)
    against = data.reference.name if data.reference else ""
    return ForestPlot(rows, against, len(data.exact) - len(changed)) if rows else None


def _history_plots(data: ReportData) -> Iterator[HistoryPlot]:
    """A plot of every timed metric, and of every counted one that ever changed."""
    if not data.history:
        return
    found = tuple(history_points(data))
    for kind in (Sampled, Exact):
        for group in series_by_metric(found, kind).values():
            history_plot = HistoryPlot(found, tuple(group))
            measured = any(series.values[-1] is not None for series in history_plot.series_by_metric)
            if measured and (history_plot.timed or any(series.moved for series in history_plot.series_by_metric)):
                yield history_plot


def _visits(data: ReportData) -> Iterator[tuple[str, tuple[Histograms, WorkerPlot]]]:
    known = {each.scenario: each for each in data.reference.measurements} if data.reference else {}
    against = data.reference.name if data.reference else ""
    for each in data.now.measurements:
        if each.invalid is None and each.seconds:
            reference = _usable(each, known.get(each.scenario))
            rows = tuple(row for row in data.rows if row.scenario == each.scenario)
            yield each.scenario, (Histograms(each, reference, against), WorkerPlot(each, reference, rows, against))


def _usable(now: Measurement, reference: Measurement | None) -> Measurement | None:
    comparable = reference is not None and reference.fingerprint == now.fingerprint and reference.seconds
    return reference if comparable else None


def render(data: ReportData) -> str:
    """The page. Raises ReportError where a library is missing."""
    drawn = plots(data)
    keys = {id(plot): name for name, plot in drawn.all()}

    def shown(plot: Plot) -> Shown:
        return Shown(plot, tuple(plot.inline(keys[id(plot)])))

    return str(
        _template().render(
            data=data,
            outcome=data.outcome.value,
            title=f"{data.outcome.value}: {data.now.name}",
            forest_plot=shown(drawn.forest_plot) if drawn.forest_plot else None,
            sections=_scenario_sections(data, drawn, shown),
            calm=URGENCY.index(Verdict.PASS),
            history_plots=[shown(history_plot) for history_plot in drawn.history_plot],
            records=_records(data),
            constant=_constant(data),
            results=results(data.notable, paired=data.paired),
            differences=_differences(data),
            counted=_counted(data),
            not_judged=_not_judged(data),
            provenance=_provenance(data),
            measured=_measured(data),
            workers=max((each.workers for each in data.now.measurements), default=0),
            commit=data.now.provenance.commit[:12] or "no commit",
        )
    )


def save(data: ReportData, path: Path) -> None:
    """Write the page under `path`, whole or not at all. Raises RecordError where it cannot be written, ReportError."""
    write(render(data), path, overwrite=True)


@cache
def _template() -> Any:
    jinja2 = library("jinja2")
    markup = library("markupsafe").Markup
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if isinstance(value, str) and not isinstance(value, markup) else value,
    )
    environment.filters.update(
        quantity=quantity, percent=percent, short=short, label=label, drawn=markup, day=day, moment=moment,
        change=_change, difference=difference, options=_options,
    )  # fmt: skip
    environment.globals.update(glyphs=GLYPHS, tones=TONES, css=markup(_style()))
    return environment.from_string(_file("page.html"))


def _style() -> str:
    light, dark = (f":root {{ {palette.properties(scheme)} }}" for scheme in (0, 1))
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{_file('page.css')}"


def _file(name: str) -> str:
    return (resources.files("perf_gate.reporting") / name).read_text(encoding="utf-8")


def moment(created: str) -> str:
    """An ISO 8601 time to the minute; the text itself where it is none."""
    try:
        return datetime.fromisoformat(created).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return created


def _options(text: str) -> Any:
    """Text in which command-line options are not broken over two lines."""
    markup = library("markupsafe")
    return markup.Markup(_OPTION.sub(r"<code>\1</code>", str(markup.escape(plain(text)))))


def _change(row: Row) -> str:
    if row.change is None or row.low == row.high:
        return percent(row.change, signed=True)
    low, high = (percent(end, signed=True).removesuffix(" %") for end in (row.low, row.high))
    return f"{percent(row.change, signed=True)} [{low}, {high}]"


def difference(row: Row) -> str:
    """Now less the baseline as a number with its unit, e.g. "+1 token"."""
    if row.now is None or row.reference is None or row.metric is None:
        return "-"
    by = row.now - row.reference
    sign = "+" if by > 0 else "−" if by < 0 else ""
    unit = row.metric.unit.removesuffix("s") if abs(by) == 1 else row.metric.unit
    return sign + quantity(abs(by), unit)


def _differences(data: ReportData) -> DataTable | None:
    rows = [
        (short(row.scenario), row.metric.name, quantity(row.reference, row.metric.unit),
         quantity(row.now, row.metric.unit), difference(row), percent(row.change, signed=True), row.verdict.value)
        for row in data.exact if row.metric and row.change
    ]  # fmt: skip
    columns = ("Scenario", "Metric", "#Baseline", "#Now", "#Difference", "#For the worse", "Verdict")
    return data_table("Counted metrics that differ from the baseline", columns, rows) if rows else None


def _counted(data: ReportData) -> DataTable | None:
    rows = [
        (short(row.scenario), row.metric.name, quantity(row.now, row.metric.unit))
        for row in data.exact
        if row.metric and not row.change
    ]
    columns = ("Scenario", "Metric", "#Baseline and now")
    return data_table("Counted metrics that are equal to the baseline's", columns, rows) if rows else None


def _measured(data: ReportData) -> DataTable | None:
    """Every counted value, where nothing was compared."""
    if data.reference is not None:
        return None
    rows = [
        (short(each.scenario), metric.name, quantity(each.exact.get(metric.name), metric.unit))
        for each in data.now.measurements
        for metric in each.metrics
        if isinstance(metric, Exact)
    ]
    return data_table("Counted metrics", ("Scenario", "Metric", "#Value"), rows) if rows else None


def _scenario_sections(data: ReportData, drawn: Plots, shown: Any) -> list[ScenarioSection]:
    found = []
    for name, (histograms, workers) in drawn.visits.items():
        rows = tuple(row for row in data.rows if row.scenario == name and isinstance(row.metric, Sampled))
        found.append(ScenarioSection(name, rows, (shown(workers), shown(histograms)), histograms.quantiles))
    return sorted(found, key=lambda section: section.urgency)


def _not_judged(data: ReportData) -> list[NotJudged]:
    grouped: dict[str, list[Row]] = {}
    for row in data.unjudged:
        grouped.setdefault(row.why, []).append(row)
    columns = ("Scenario", "Metric")
    return [
        NotJudged(
            why,
            data_table("Not judged", columns, [(label(row), row.metric.name if row.metric else "all") for row in rows]),
            len(rows),
        )
        for why, rows in grouped.items()
    ]


def _records(data: ReportData) -> DataTable | None:
    if not data.history:
        return None
    rows = []
    for record in data.history:
        for section in record.sections.values():
            provenance = section.provenance
            commit = f"{provenance.commit[:12] or 'no commit'}{' (dirty)' if provenance.dirty else ''}"
            name = record.path.stem if record.path else record.name
            rows.append(
                (name, commit, provenance.branch or "-", day(section.created), section.machine, provenance.software)
            )
    return data_table(
        "Records of this profile, oldest first",
        ("Record", "Commit", "Branch", "Recorded", "Machine class", "Software"),
        rows,
    )


def _constant(data: ReportData) -> DataTable | None:
    """The history of the counted metrics that never changed."""
    if not data.history:
        return None
    found: list[HistoryPoint] = history_points(data)
    rows = []
    for name, group in series_by_metric(found, Exact).items():
        still: list[Series] = [series for series in group if not series.moved]
        if still and len(still) == len(group):
            rows.append((name, str(len(group)), still[0].metric.unit or "-"))
    caption = f"Counted metrics that never changed over {over(len(data.history))}"
    return data_table(caption, ("Metric", "#Scenarios", "Unit"), rows) if rows else None


def _provenance(data: ReportData) -> DataTable:
    sides = [data.now] if data.reference is None else [data.now, data.reference]
    facts = [_facts(side) for side in sides]
    names = list(dict.fromkeys(name for each in facts for name in each))
    rows = []
    for name in names:
        cells = [each.get(name, "-") for each in facts]
        differs = len(set(cells)) > 1 and name.startswith(CONDITIONS)
        rows.append((name, *cells, *(["differs" if differs else ""] if len(cells) > 1 else [])))
    heads = [side.name for side in sides] + (["Conditions"] if len(sides) > 1 else [])
    return data_table("Where both sides come from", ("Fact", *heads), rows)


def _facts(side: ReportSide) -> dict[str, str]:
    provenance: Provenance = side.provenance
    timed = max((each.workers for each in side.measurements), default=0)
    facts = {
        "Commit": (provenance.commit or "no commit") + (" (with uncommitted changes)" if provenance.dirty else ""),
        "Committed": moment(provenance.committed) if provenance.committed else "-",
        "Branch": provenance.branch or "-",
        "Measured": moment(side.created),
        "Machine class": provenance.machine or "-",
        "Worker processes": str(timed) if timed else "not timed",
        "Scenarios": str(len(side.measurements)),
        "Timed metrics": ", ".join(sorted(metric_names(side.measurements, Sampled))) if timed else "-",
        "Command": " ".join(provenance.command) or "-",
    }
    facts |= {f"Version of {name}": version for name, version in provenance.versions.items()}
    facts |= {f"Option {name}": str(value) for name, value in provenance.options.items()}
    memory = provenance.parts.get("memory")
    facts |= {f"Machine: {name}": str(value) for name, value in provenance.parts.items() if name != "memory"}
    if isinstance(memory, int):
        facts["Machine: memory"] = f"{memory / (1 << 30):.1f} GiB"
    return facts
