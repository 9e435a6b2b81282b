"""The words a judgement can end in, one row of it, and the exit status of a whole run."""

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
    worse: relative change for the worse (0.05 = 5 % worse, negative = better), with its interval [low, high];
        for an exact metric low = high = worse. None where nothing could be compared.
    allowed: the allowance that was applied. detectable: smallest change for the worse that this run would have
        caught (None for exact metrics: any).
    why: one sentence for every verdict but `pass`: what happened and what to do next.
    against: name of the record that it was held against where that is not the one asked for, else "".
    optional: a `not comparable` row that is expected on a foreign machine class and does not turn the run red.
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
    """A regression outweighs everything; whatever is neither pass nor improved cannot be judged; no rows neither."""
    rows = list(rows)
    if any(row.verdict is Verdict.REGRESSED for row in rows):
        return Exit.REGRESSED
    judged = [row for row in rows if row.verdict in (Verdict.PASS, Verdict.IMPROVED)]
    unjudged = [row for row in rows if row not in judged and not row.optional]
    return Exit.PASS if judged and not unjudged else Exit.CANNOT_JUDGE
