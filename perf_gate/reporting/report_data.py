"""Everything that a report is made from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from perf_gate.measurement import Measurement
from perf_gate.metric import Exact, Metric, Sampled
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record
from perf_gate.showing.run_report import RunReport
from perf_gate.showing.table import URGENCY, ordered, red
from perf_gate.showing.values import values
from perf_gate.verdict import Exit, Row, Verdict, exit_status


class Outcome(StrEnum):
    """The verdict on the whole."""

    PASS = "pass"  # noqa: S105  # a verdict
    REGRESSED = "regressed"
    FAILED = "failed"
    CANNOT_JUDGE = "cannot judge"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True)
class ReportSide:
    """One side of the comparison.

    name: e.g. "0001_quick" or "this run". created: ISO 8601, UTC. profile: which set of scenarios it holds.
    """

    name: str
    created: str
    provenance: Provenance
    measurements: tuple[Measurement, ...]
    profile: str = ""


@dataclass(frozen=True)
class ReportData:
    """A judged run, or one that was only measured.

    reference: what it was compared with; None: nothing was compared. rows: as judged. status: exit status of the run.
    faults: what else went wrong (a record that cannot be read, a failed test), one sentence each.
    notes: what a reader must know first. history: the records of the profile, oldest first. alpha: promised chance
    of a false alarm. paired: `reference` is a base that was measured in turns with the run, and no record.
    """

    now: ReportSide
    reference: ReportSide | None = None
    rows: tuple[Row, ...] = ()
    status: int = 0
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    history: tuple[Record, ...] = ()
    alpha: float = 0.001
    paired: bool = False

    @property
    def outcome(self) -> Outcome:
        """The outcome of the run; never better than the exit status."""
        if self.status == Exit.REGRESSED:
            return Outcome.REGRESSED if exit_status(self.rows) is Exit.REGRESSED else Outcome.FAILED
        if self.status != Exit.PASS or self.faults:
            return Outcome.CANNOT_JUDGE
        return Outcome.NOT_COMPARED if self.reference is None else Outcome.PASS

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Verdict -> number of rows, the most urgent first, "not judged" last and always."""
        found = Counter(row.verdict for row in self.rows if not row.optional)
        counted = [(each.value, found[each]) for each in URGENCY if found[each]]
        return [*counted, ("not judged", len(self.unjudged))]

    @property
    def unjudged(self) -> list[Row]:
        """Rows that could not be compared, and do not have to be."""
        return [row for row in self.rows if row.optional]

    @property
    def notable(self) -> list[Row]:
        """Rows that did not simply pass, the most urgent first."""
        return ordered(row for row in self.rows if red(row) or row.verdict is Verdict.IMPROVED)

    @property
    def sampled(self) -> list[Row]:
        """Timed rows with an interval. Of those compared with an older record, only the ones that did not pass."""
        return [
            row
            for row in self.rows
            if isinstance(row.metric, Sampled)
            and row.change is not None
            and (not row.against or row.verdict is not Verdict.PASS)
        ]

    @property
    def exact(self) -> list[Row]:
        """Counted rows that were compared."""
        return [row for row in self.rows if isinstance(row.metric, Exact) and row.change is not None]

    @property
    def summary(self) -> str:
        """The outcome in a sentence."""
        judged = [row for row in self.rows if not row.optional]
        against = "" if self.reference is None else f" in {self.reference.name}"
        worse = sum(row.verdict is Verdict.REGRESSED for row in judged)
        better = sum(row.verdict is Verdict.IMPROVED for row in judged)
        if self.outcome is Outcome.REGRESSED:
            return f"{_metrics(worse, 'is', 'are')} worse than{against} by more than the threshold."
        if self.outcome is Outcome.PASS:
            anew = "" if self.paired else ": record anew"
            gain = f" {_metrics(better, 'is', 'are')} better{anew}." if better else ""
            return f"{_metrics(len(judged), 'was', 'were')} judged; none is worse than{against}.{gain}"
        if self.outcome is Outcome.NOT_COMPARED:
            return "The run was not compared with anything."
        if self.faults:
            return self.faults[0]
        open_rows = sum(red(row) for row in self.rows)
        if not open_rows:
            return f"The run ended with exit status {self.status} and without a verdict."
        return f"{_metrics(open_rows, 'has', 'have')} no verdict, so the run has none either."

    @property
    def run_report(self) -> RunReport:
        """The same as a RunReport."""
        unjudged = self.outcome is Outcome.CANNOT_JUDGE and bool(self.faults)
        return RunReport(
            self.rows,
            self.status,
            against="" if self.reference is None else self.reference.name,
            fault=self.faults[0] if unjudged else None,
            facts=[*self.faults[unjudged:], *self.notes],
            values=list(values(self.now.measurements)) if self.reference is None else [],
        )


def _metrics(number: int, one: str, many: str) -> str:
    return f"{number} metric {one}" if number == 1 else f"{number} metrics {many}"


def short(scenario: str) -> str:
    """Return the id in a scenario's name, e.g. "size1" of "a.py::test_ttft[size1]", or the name if it has none."""
    name = scenario.rsplit("::", 1)[-1]
    inner = name[name.find("[") + 1 : -1]
    return inner if name.endswith("]") and "[" in name and inner else name


def metric_names(measurements: tuple[Measurement, ...], kind: type[Metric]) -> list[str]:
    """Return the names of all metrics of a kind, in order of first appearance."""
    return list(dict.fromkeys(m.name for each in measurements for m in each.metrics if isinstance(m, kind)))
