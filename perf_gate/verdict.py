"""Verdicts, the rows of the verdict table, and the exit status of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from perf_gate.metric import Metric


class Verdict(StrEnum):
    """What is concluded about one metric of one scenario."""

    PASS = "pass"  # noqa: S105  # a verdict
    REGRESSED = "regressed"
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    UNRECORDED = "unrecorded"
    INVALID = "invalid"
    NOT_COMPARABLE = "not comparable"


class Exit(IntEnum):
    """Exit status of the gate. 2, 3, 4, 5 and 6 are pytest's own (4: usage)."""

    PASS = 0
    REGRESSED = 1
    CANNOT_JUDGE = 10


@dataclass(frozen=True)
class Row:
    """One line of the verdict table.

    reference, now: values in the metric's unit; None where there is none.
    change: relative change for the worse (0.05 = 5 % worse, negative = better), with its interval [low, high]; for an
        exact metric low = high = change. None if nothing could be compared.
    threshold: largest change that was accepted. minimum_detectable_change: smallest measured change that would have
        been `regressed`; None for exact metrics, of which any is.
    why: for every verdict but `pass`, what happened and what to do next.
    against: name of the older record that it was compared with; "" for the baseline that was asked for.
    optional: a `not comparable` row that does not turn the run red, e.g. times on another machine class.
    """

    scenario: str
    metric: Metric | None
    verdict: Verdict
    reference: float | None = None
    now: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    threshold: float | None = None
    minimum_detectable_change: float | None = None
    why: str = ""
    optional: bool = False
    against: str = ""


def exit_status(rows: Iterable[Row]) -> Exit:
    """Return REGRESSED if any row regressed, PASS if all were judged and there is one, else CANNOT_JUDGE."""
    rows = list(rows)
    if any(row.verdict is Verdict.REGRESSED for row in rows):
        return Exit.REGRESSED
    judged = [row for row in rows if row.verdict in (Verdict.PASS, Verdict.IMPROVED)]
    unjudged = [row for row in rows if row not in judged and not row.optional]
    return Exit.PASS if judged and not unjudged else Exit.CANNOT_JUDGE
