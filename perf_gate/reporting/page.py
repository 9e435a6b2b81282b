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
from perf_gate.reporting.dossier import Dossier, Outcome, Side, metric_names, short
from perf_gate.reporting.finding import findings
from perf_gate.reporting.forest import Forest, label
from perf_gate.reporting.library import library
from perf_gate.reporting.past import Past, Stage, Trace, day, over, stages, traces
from perf_gate.reporting.plot import DESK, Plot
from perf_gate.reporting.sheet import Sheet, sheet
from perf_gate.reporting.times import Times
from perf_gate.reporting.workers import Workers
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
class Sight:
    """A timed scenario on the page. rows: its rows that were judged. plots: of its visits and of its workers."""

    name: str
    rows: tuple[Row, ...]
    plots: tuple[Shown, ...]
    quantiles: Sheet

    @property
    def urgency(self) -> int:
        """How early it is shown: the place of its most urgent verdict among all."""
        judged = [URGENCY.index(row.verdict) for row in self.rows if not row.optional]
        return min(judged, default=len(URGENCY))


@dataclass(frozen=True)
class Gap:
    """Rows that were not judged for one reason."""

    why: str
    rows: Sheet
    number: int


@dataclass(frozen=True)
class Plots:
    """All plots of a report by what they show."""

    forest: Forest | None
    past: tuple[Past, ...]
    visits: Mapping[str, tuple[Times, Workers]]

    def all(self) -> Iterator[tuple[str, Plot]]:
        """Each with a name that is unique among them and fit for a file."""
        if self.forest is not None:
            yield "changes", self.forest
        for number, past in enumerate(self.past, 1):
            yield f"history-{number:02}", past
        for number, (times, workers) in enumerate(self.visits.values(), 1):
            yield f"scenario-{number:02}-times", times
            yield f"scenario-{number:02}-workers", workers


def plots(dossier: Dossier) -> Plots:
    """Everything that is drawn of a dossier."""
    return Plots(_forest(dossier), tuple(_pasts(dossier)), dict(_visits(dossier)))


def _forest(dossier: Dossier) -> Forest | None:
    changed = [row for row in dossier.exact if row.worse]
    rows = (*dossier.sampled, *changed)
    against = dossier.reference.name if dossier.reference else ""
    return Forest(rows, against, len(dossier.exact) - len(changed)) if rows else None


def _pasts(dossier: Dossier) -> Iterator[Past]:
    """A plot of every timed metric, and of every counted one that ever changed."""
    if not dossier.history:
        return
    found = tuple(stages(dossier))
    for kind in (Sampled, Exact):
        for group in traces(found, kind).values():
            past = Past(found, tuple(group))
            measured = any(trace.values[-1] is not None for trace in past.traces)
            if measured and (past.timed or any(trace.moved for trace in past.traces)):
                yield past


def _visits(dossier: Dossier) -> Iterator[tuple[str, tuple[Times, Workers]]]:
    known = {each.scenario: each for each in dossier.reference.measurements} if dossier.reference else {}
    against = dossier.reference.name if dossier.reference else ""
    for each in dossier.now.measurements:
        if each.invalid is None and each.seconds:
            reference = _usable(each, known.get(each.scenario))
            rows = tuple(row for row in dossier.rows if row.scenario == each.scenario)
            yield each.scenario, (Times(each, reference, against), Workers(each, reference, rows, against))


def _usable(now: Measurement, reference: Measurement | None) -> Measurement | None:
    comparable = reference is not None and reference.fingerprint == now.fingerprint and reference.seconds
    return reference if comparable else None


def render(dossier: Dossier) -> str:
    """The page. Raises ReportError where a library is missing."""
    drawn = plots(dossier)
    keys = {id(plot): name for name, plot in drawn.all()}

    def shown(plot: Plot) -> Shown:
        return Shown(plot, tuple(plot.inline(keys[id(plot)])))

    return str(
        _template().render(
            dossier=dossier,
            outcome=dossier.outcome.value,
            title=f"{dossier.outcome.value}: {dossier.now.name}",
            forest=shown(drawn.forest) if drawn.forest else None,
            sights=_sights(dossier, drawn, shown),
            calm=URGENCY.index(Verdict.PASS),
            pasts=[shown(past) for past in drawn.past],
            records=_records(dossier),
            constant=_constant(dossier),
            findings=findings(dossier.notable, paired=dossier.paired),
            differences=_differences(dossier),
            counted=_counted(dossier),
            gaps=_gaps(dossier),
            provenance=_provenance(dossier),
            measured=_measured(dossier),
            workers=max((each.workers for each in dossier.now.measurements), default=0),
            commit=dossier.now.provenance.commit[:12] or "no commit",
        )
    )


def save(dossier: Dossier, path: Path) -> None:
    """Write the page under `path`, whole or not at all. Raises RecordError where it cannot be written, ReportError."""
    write(render(dossier), path, overwrite=True)


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
    if row.worse is None or row.low == row.high:
        return percent(row.worse, signed=True)
    low, high = (percent(end, signed=True).removesuffix(" %") for end in (row.low, row.high))
    return f"{percent(row.worse, signed=True)} [{low}, {high}]"


def difference(row: Row) -> str:
    """Now less the baseline as a number with its unit, e.g. "+1 token"."""
    if row.now is None or row.reference is None or row.metric is None:
        return "-"
    by = row.now - row.reference
    sign = "+" if by > 0 else "−" if by < 0 else ""
    unit = row.metric.unit.removesuffix("s") if abs(by) == 1 else row.metric.unit
    return sign + quantity(abs(by), unit)


def _differences(dossier: Dossier) -> Sheet | None:
    rows = [
        (short(row.scenario), row.metric.name, quantity(row.reference, row.metric.unit),
         quantity(row.now, row.metric.unit), difference(row), percent(row.worse, signed=True), row.verdict.value)
        for row in dossier.exact if row.metric and row.worse
    ]  # fmt: skip
    columns = ("Scenario", "Metric", "#Baseline", "#Now", "#Difference", "#For the worse", "Verdict")
    return sheet("Counted metrics that differ from the baseline", columns, rows) if rows else None


def _counted(dossier: Dossier) -> Sheet | None:
    rows = [
        (short(row.scenario), row.metric.name, quantity(row.now, row.metric.unit))
        for row in dossier.exact
        if row.metric and not row.worse
    ]
    columns = ("Scenario", "Metric", "#Baseline and now")
    return sheet("Counted metrics that are equal to the baseline's", columns, rows) if rows else None


def _measured(dossier: Dossier) -> Sheet | None:
    """Every counted value, where nothing was compared."""
    if dossier.reference is not None:
        return None
    rows = [
        (short(each.scenario), metric.name, quantity(each.exact.get(metric.name), metric.unit))
        for each in dossier.now.measurements
        for metric in each.metrics
        if isinstance(metric, Exact)
    ]
    return sheet("Counted metrics", ("Scenario", "Metric", "#Value"), rows) if rows else None


def _sights(dossier: Dossier, drawn: Plots, shown: Any) -> list[Sight]:
    found = []
    for name, (times, workers) in drawn.visits.items():
        rows = tuple(row for row in dossier.rows if row.scenario == name and isinstance(row.metric, Sampled))
        found.append(Sight(name, rows, (shown(workers), shown(times)), times.quantiles))
    return sorted(found, key=lambda sight: sight.urgency)


def _gaps(dossier: Dossier) -> list[Gap]:
    grouped: dict[str, list[Row]] = {}
    for row in dossier.unjudged:
        grouped.setdefault(row.why, []).append(row)
    columns = ("Scenario", "Metric")
    return [
        Gap(
            why,
            sheet("Not judged", columns, [(label(row), row.metric.name if row.metric else "all") for row in rows]),
            len(rows),
        )
        for why, rows in grouped.items()
    ]


def _records(dossier: Dossier) -> Sheet | None:
    if not dossier.history:
        return None
    rows = []
    for record in dossier.history:
        for section in record.sections.values():
            provenance = section.provenance
            commit = f"{provenance.commit[:12] or 'no commit'}{' (dirty)' if provenance.dirty else ''}"
            name = record.path.stem if record.path else record.name
            rows.append(
                (name, commit, provenance.branch or "-", day(section.created), section.machine, provenance.software)
            )
    return sheet(
        "Records of this profile, oldest first",
        ("Record", "Commit", "Branch", "Recorded", "Machine class", "Software"),
        rows,
    )


def _constant(dossier: Dossier) -> Sheet | None:
    """The history of the counted metrics that never changed."""
    if not dossier.history:
        return None
    found: list[Stage] = stages(dossier)
    rows = []
    for name, group in traces(found, Exact).items():
        still: list[Trace] = [trace for trace in group if not trace.moved]
        if still and len(still) == len(group):
            rows.append((name, str(len(group)), still[0].metric.unit or "-"))
    caption = f"Counted metrics that never changed over {over(len(dossier.history))}"
    return sheet(caption, ("Metric", "#Scenarios", "Unit"), rows) if rows else None


def _provenance(dossier: Dossier) -> Sheet:
    sides = [dossier.now] if dossier.reference is None else [dossier.now, dossier.reference]
    facts = [_facts(side) for side in sides]
    names = list(dict.fromkeys(name for each in facts for name in each))
    rows = []
    for name in names:
        cells = [each.get(name, "-") for each in facts]
        differs = len(set(cells)) > 1 and name.startswith(CONDITIONS)
        rows.append((name, *cells, *(["differs" if differs else ""] if len(cells) > 1 else [])))
    heads = [side.name for side in sides] + (["Conditions"] if len(sides) > 1 else [])
    return sheet("Where both sides come from", ("Fact", *heads), rows)


def _facts(side: Side) -> dict[str, str]:
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
