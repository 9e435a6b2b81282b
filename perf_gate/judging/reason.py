"""Why a row is what it is, in a sentence that ends with what to do next."""

from __future__ import annotations

import math
from statistics import NormalDist, variance

from perf_gate.judging.comparison import POOLED_PREFIX, Comparison
from perf_gate.judging.matching import RECORD_ANEW
from perf_gate.judging.policy import Policy
from perf_gate.metric import Exact
from perf_gate.quantity import change, percent

SLACK = "or the slack hides the next regression"


def count_rose(metric: Exact, then: float, now: float, *, paired: bool = False) -> str:
    """An exact metric is worse. paired: than in the base of the same run."""
    return (
        f"{metric.name} went {change(then, now, metric.unit)}; it is counted, so this is no noise. "
        f"{find(paired=paired)}"
    )


def find(*, paired: bool = False) -> str:
    """What to do about what is worse. paired: than in the base of the same run."""
    # Against a base there is nothing to record: what is meant is merged, and is the next base.
    other = " (perf-gate bisect)" if paired else f", or {RECORD_ANEW} if it is meant"
    return f"Find the change that did it{other}."


def count_fell(metric: Exact, then: float, now: float, *, paired: bool = False) -> str:
    """An exact metric is better. paired: than in the base of the same run."""
    if paired:
        return f"improved {change(then, now, metric.unit)}."
    return f"improved {change(then, now, metric.unit)}: {RECORD_ANEW}, {SLACK}."


def regressed(each: Comparison, worse: float) -> str:
    """A sampled metric is worse by the share `worse`."""
    text = f"{percent(worse)} worse, clear of the allowed {percent(math.expm1(float(each.threshold)))}. "
    if each.against:
        text = f"against the oldest comparable record {each.against}: {text}"
        return text + "Small steps have added up; retire that record if the whole of it is meant."
    return text + find(paired=each.paired)


def improved(each: Comparison, worse: float) -> str:
    """A sampled metric is better; `worse` is negative."""
    if each.paired:
        return f"improved by {percent(-worse)}."
    where = f"since the oldest comparable record {each.against}" if each.against else ""
    return f"improved by {percent(-worse)} {where}".rstrip() + f": {RECORD_ANEW}, {SLACK}."


def inconclusive(each: Comparison, ceiling: float, policy: Policy) -> str:
    """A sampled metric may or may not be worse; up to `ceiling` cannot be ruled out."""
    text = (
        f"not shown to be worse, but a change of up to {percent(ceiling)} cannot be ruled out (needed: "
        f"{percent(math.expm1(float(each.resolution)))}) from {_workers(each)}: "
    )
    if each.against:
        text = f"against the oldest comparable record {each.against}: {text}"
    if not each.paired and reference_too_noisy(each, policy):
        return text + f"the record alone scatters too widely for that; {RECORD_ANEW} with more workers."
    return text + "measure with more workers or a larger budget, or on a quieter machine."


def _workers(each: Comparison) -> str:
    now, then = each.workers
    return f"{now} pairs of workers" if each.paired else f"{now} workers now and {then} in the record"


def reference_too_noisy(each: Comparison, policy: Policy) -> bool:
    """Whether no number of workers now could give a `pass`, since the reference's own error is too large."""
    error = math.sqrt(variance(each.reference.logs.tolist()) / len(each.reference.workers))
    return bool(NormalDist().inv_cdf(1 - policy.beta) * error >= each.resolution)


def too_few(each: Comparison, policy: Policy) -> str:
    """A sampled metric has too few workers on a side to have a spread."""
    then = math.inf if each.paired else each.workers[1]
    crew = "visited all of its scenarios" if each.scenario.startswith(POOLED_PREFIX) else "timed it"
    remedy = (
        f"{RECORD_ANEW} with more workers"
        if then < policy.min_workers
        else "measure with more workers or a larger budget"
    )
    text = (
        f"{_workers(each)} {crew}; each side needs at least {policy.min_workers} before "
        f"any slowdown could be told from noise: {remedy}."
    )
    return f"against the oldest comparable record {each.against}: {text}" if each.against else text
