"""Results that did not pass, grouped by metric and verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perf_gate.judging.matching import RECORD_ANEW
from perf_gate.judging.reason import SLACK, find
from perf_gate.metric import Exact
from perf_gate.verdict import Row, Verdict


def _advice(verdict: Verdict, *, paired: bool) -> str | None:
    """Return what to do about many rows with this verdict; None: each row has its own text."""
    slack = "Better than the base." if paired else f"Better than recorded: {RECORD_ANEW}, {SLACK}."
    return {
        Verdict.REGRESSED: f"The whole interval of each is above its threshold. {find(paired=paired)}",
        Verdict.IMPROVED: slack,
        Verdict.INCONCLUSIVE: "Not shown to be worse, but a change that matters cannot be ruled out yet.",
    }.get(verdict)


@dataclass(frozen=True)
class Result:
    """Rows of one metric with one verdict, at least one. paired: compared with a base in the same run."""

    rows: tuple[Row, ...]
    paired: bool = False

    @property
    def verdict(self) -> str:
        """The verdict on each."""
        return self.rows[0].verdict.value

    @property
    def metric(self) -> str:
        """The name of the metric, or "whole scenario"."""
        metric = self.rows[0].metric
        return "whole scenario" if metric is None else metric.name

    @property
    def against(self) -> str:
        """Name of the older record, or ""."""
        return self.rows[0].against

    @property
    def advice(self) -> str:
        """What it means and what to do, for all rows together."""
        first = self.rows[0]
        advice = _advice(first.verdict, paired=self.paired)
        if len(self.reasons) == 1 or advice is None:
            return first.why
        if first.against:
            return f"Compared with the oldest comparable record, {first.against}: small steps may have added up."
        if isinstance(first.metric, Exact) and first.verdict is Verdict.REGRESSED:
            return f"It is counted, so this is no noise. {find(paired=self.paired)}"
        return advice

    @property
    def reasons(self) -> list[str]:
        """The different texts of the rows."""
        return list(dict.fromkeys(row.why for row in self.rows))


def results(rows: Iterable[Row], *, paired: bool = False) -> list[Result]:
    """Group rows of the same metric and verdict, in order of first appearance."""
    grouped: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        name = "" if row.metric is None else row.metric.name
        # Rows without numbers are grouped by their reason.
        why = row.why if row.change is None else ""
        grouped.setdefault((row.verdict.value, name, row.against, why), []).append(row)
    return [Result(tuple(each), paired) for each in grouped.values()]
