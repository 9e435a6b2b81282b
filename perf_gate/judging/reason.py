"""The reason of each verdict, which ends with what to do next."""

from __future__ import annotations

import math
from statistics import NormalDist, variance

from perf_gate.judging.comparison import POOLED_PREFIX, Comparison
from perf_gate.judging.matching import RECORD_ANEW
from perf_gate.judging.policy import Policy
from perf_gate.metric import Exact
from perf_gate.quantity import change, percent

SLACK = "or the next regression can hide in the gain"


def count_rose(metric: Exact, then: float, now: float, *, paired: bool = False) -> str:
    """Return the reason of an exact metric that is worse. paired: than in the base of the same run."""
    return (
        f"{metric.name} went {change(then, now, metric.unit)}; it is counted, so this is not noise. "
        f"{find(paired=paired)}"
    )


def find(*, paired: bool = False) -> str:
    """Return what to do about a metric that is worse. paired: than in the base of the same run."""
    # There is nothing to record in a paired run: a change that is accepted is merged and becomes the next base.
    other = " (perf-gate bisect)" if paired else f", or {RECORD_ANEW} if it is intended"
    return f"Find the change that caused it{other}."


def count_fell(metric: Exact, then: float, now: float, *, paired: bool = False) -> str:
    """Return the reason of an exact metric that is better. paired: than in the base of the same run."""
    if paired:
        return f"improved {change(then, now, metric.unit)}."
    return f"improved {change(then, now, metric.unit)}: {RECORD_ANEW}, {SLACK}."


def regressed(each: Comparison, worse: float) -> str:
    """Return the reason of a sampled metric that is worse by the share `worse`."""
    threshold = percent(math.expm1(float(each.threshold)))
    text = f"{percent(worse)} worse; the whole interval is above the threshold of {threshold}. "
    if each.against:
        text = f"compared with the oldest comparable record {each.against}: {text}"
        return text + "Small steps have added up; delete that record if all of them are intended."
    return text + find(paired=each.paired)


def improved(each: Comparison, worse: float) -> str:
    """Return the reason of a sampled metric that is better; `worse` is negative."""
    if each.paired:
        return f"improved by {percent(-worse)}."
    where = f"since the oldest comparable record {each.against}" if each.against else ""
    return f"improved by {percent(-worse)} {where}".rstrip() + f": {RECORD_ANEW}, {SLACK}."


def inconclusive(each: Comparison, ceiling: float, policy: Policy) -> str:
    """Return the reason of a sampled metric of which a change of up to `ceiling` cannot be ruled out."""
    text = (
        f"not shown to be worse, but a change of up to {percent(ceiling)} cannot be ruled out (needed: "
        f"{percent(math.expm1(float(each.resolution)))}) from {_workers(each)}: "
    )
    if each.against:
        text = f"compared with the oldest comparable record {each.against}: {text}"
    if not each.paired and reference_too_noisy(each, policy):
        return text + f"the record alone varies too much for that; {RECORD_ANEW} with more workers."
    return text + "measure with more workers or a larger budget, or on a quieter machine."


def _workers(each: Comparison) -> str:
    now, then = each.workers
    return f"{now} pairs of workers" if each.paired else f"{now} workers now and {then} in the record"


def reference_too_noisy(each: Comparison, policy: Policy) -> bool:
    """Return whether no number of workers now could give a `pass`, because the reference's own error is too large."""
    error = math.sqrt(variance(each.reference.logs.tolist()) / len(each.reference.workers))
    return bool(NormalDist().inv_cdf(1 - policy.beta) * error >= each.resolution)


def too_few(each: Comparison, policy: Policy) -> str:
    """Return the reason of a sampled metric that has too few workers on a side."""
    then = math.inf if each.paired else each.workers[1]
    timed = "timed all of its scenarios" if each.scenario.startswith(POOLED_PREFIX) else "timed it"
    remedy = (
        f"{RECORD_ANEW} with more workers"
        if then < policy.min_workers
        else "measure with more workers or a larger budget"
    )
    text = (
        f"{_workers(each)} {timed}; each side needs at least {policy.min_workers} to tell a slowdown from "
        f"noise: {remedy}."
    )
    return f"compared with the oldest comparable record {each.against}: {text}" if each.against else text
