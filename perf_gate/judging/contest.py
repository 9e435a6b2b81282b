"""One sampled metric on both sides, and how contests of one kind lend each other strength."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perf_gate.judging import estimate
from perf_gate.judging.estimate import Contrast, Floats, Spread
from perf_gate.judging.policy import Policy
from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Sampled

POOLED = "(all)"
POOLED_PREFIX = "(all"


@dataclass(frozen=True)
class Contest:
    """One sampled metric of one scenario (or of all of a kind, pooled), ready to be judged.

    now, reference: worker name -> log of the metric's value in that worker.
    allowance, resolution: log scale; a floor is already in them. floor: what the floor alone allows, log
    scale.
    against: name of the record where it is not the one asked for, else "". paired: both sides were measured in one
    run, and equal names on them are two workers that took turns.
    """

    scenario: str
    metric: Sampled
    now: Mapping[str, float]
    reference: Mapping[str, float]
    allowance: float
    resolution: float
    floor: float = 0.0
    against: str = ""
    paired: bool = False

    @property
    def kind(self) -> tuple[str, ...]:
        """Contests of one kind share a prior for their spread, and a pooled row."""
        metric = self.metric
        arms = (metric.numerator, metric.denominator or "")
        return (self.against, metric.name, metric.unit, metric.better.value, *arms)

    @property
    def sign(self) -> float:
        """1 where a larger value is worse, -1 where a smaller one is."""
        return 1.0 if self.metric.better is Better.LOWER else -1.0

    @property
    def workers(self) -> tuple[int, int]:
        """Number of workers now and in the reference."""
        return len(self.now), len(self.reference)


def beside(metric: Sampled, now: Measurement, base: Measurement, policy: Policy) -> Contest:
    """Set one metric of `now` against a base that was measured in the same run, pair by pair.

    Allowed is Policy.paired_share of the metric's allowance, unless the metric names one of its own for this
    (Sampled.beside).
    """
    allowance, apart = bounds_beside(metric, policy)
    ours, theirs = values(metric, now), values(metric, base)
    names = [name for name in ours if name in theirs]
    ours, theirs = ({name: side[name] for name in names} for side in (ours, theirs))
    floor = _floor(metric, math.exp(mean(theirs.values()))) if theirs else 0.0
    allowed = max(allowance, floor)
    return Contest(now.scenario, metric, ours, theirs, allowed, allowed + apart, floor, paired=True)


def bounds_beside(metric: Sampled, policy: Policy) -> tuple[float, float]:
    """What `beside` grants before any floor, and how far the resolution lies from that; on the log scale."""
    own = metric.beside
    allowance = policy.paired_share * math.log1p(metric.allowance) if own is None else math.log1p(own)
    return allowance, policy.paired_reach * max(math.log1p(metric.resolution) - allowance, distance(metric))


def distance(metric: Sampled) -> float:
    """How far the resolution of a metric lies from its allowance, on the log scale."""
    return math.log1p(metric.resolution) - math.log1p(metric.allowance)


def contest(
    scenario: str,
    metric: Sampled,
    now: Measurement,
    reference: Measurement,
    *,
    allowance: float,
    against: str = "",
) -> Contest:
    """Set one metric of `now` against `reference`.

    allowance: relative (0.01 = 1 %), in place of the metric's own; the resolution keeps its distance from
    it. A floor raises the allowance where it is the larger one.
    """
    ours, theirs = values(metric, now), values(metric, reference)
    before = math.exp(mean(theirs.values())) if theirs else math.inf
    floor = _floor(metric, before)
    allowed = max(math.log1p(allowance), floor)
    return Contest(scenario, metric, ours, theirs, allowed, allowed + distance(metric), floor, against)


def _floor(metric: Sampled, before: float) -> float:
    share = metric.floor / before
    if metric.better is Better.LOWER:
        return math.log1p(share)
    return -math.log1p(-share) if share < 1 else math.inf


def mean(logs: Iterable[float]) -> float:
    """Mean that does not depend on the order, not even in the last bit."""
    ordered = list(logs)
    return math.fsum(ordered) / len(ordered)


def values(metric: Sampled, measurement: Measurement) -> dict[str, float]:
    """Log of the metric's value in each worker, by worker name."""
    above = measurement.seconds[metric.numerator]
    if metric.denominator is None:
        logs = [math.log(estimate.location(visits)) for visits in above]
    else:
        logs = list(map(float, map(estimate.log_ratio, above, measurement.seconds[metric.denominator])))
    return dict(zip(measurement.names, logs, strict=True))


def kinds(contests: Iterable[Contest]) -> list[list[Contest]]:
    """Group contests by kind, in order of first appearance."""
    grouped: dict[tuple[str, ...], list[Contest]] = {}
    for each in contests:
        grouped.setdefault(each.kind, []).append(each)
    return list(grouped.values())


def pool(kind: Sequence[Contest], policy: Policy) -> list[Contest]:
    """The pooled contests of one kind: per worker the mean over the scenarios, from workers that visited all.

    Usually one, "(all)". Scenarios whose workers have nothing in common (another model, another crew) are
    pooled apart, "(all 4 from ID)". Its `now` or `reference` may be left with too few workers; the judge
    says so.
    """
    parts = [part for part in _crews(kind) if len(part) > 1]
    alone = len(parts) == 1 and len(parts[0]) == len(kind)
    return [_pooled(part, policy, POOLED if alone else f"(all {len(part)} from {part[0].scenario})") for part in parts]


def _crews(kind: Sequence[Contest]) -> list[list[Contest]]:
    parts: list[tuple[set[str], list[Contest]]] = []
    for each in kind:
        crew, members = set(each.now), [each]
        apart = []
        for other_crew, others in parts:
            if crew & other_crew:
                crew, members = crew | other_crew, others + members
            else:
                apart.append((other_crew, others))
        parts = [*apart, (crew, members)]
    return [members for _, members in parts]


def _pooled(part: Sequence[Contest], policy: Policy, scenario: str) -> Contest:
    first = part[0]
    floor = mean(each.floor for each in part)
    allowance = max(policy.pooled_share * mean(each.allowance for each in part), floor)
    distance = policy.pooled_reach(paired=first.paired) * mean(each.resolution - each.allowance for each in part)
    return Contest(
        scenario,
        first.metric,
        _mean_by_worker([each.now for each in part]),
        _mean_by_worker([each.reference for each in part]),
        allowance,
        allowance + distance,
        floor,
        first.against,
        first.paired,
    )


def _mean_by_worker(scenarios: Sequence[Mapping[str, float]]) -> dict[str, float]:
    common = set(scenarios[0]).intersection(*scenarios[1:])
    return {name: mean(each[name] for each in scenarios) for name in scenarios[0] if name in common}


def contrasts(kind: Sequence[Contest]) -> Contrast:
    """Contrast of each contest of a kind, their spread moderated. Needs 2 workers everywhere.

    Paired contests are judged by what each pair differs by: what two workers that took turns have in common (the drift
    of the machine, the state it was in) is no error of the comparison.
    """
    signs = [each.sign for each in kind]
    if kind[0].paired:
        apart = [{name: each.now[name] - each.reference[name] for name in each.now} for each in kind]
        return estimate.paired(_side(apart), signs)
    now = _side([each.now for each in kind])
    reference = _side([each.reference for each in kind])
    return estimate.contrast(now, reference, signs)


def _side(scenarios: Sequence[Mapping[str, float]]) -> Spread:
    plain = estimate.spread([list(each.values()) for each in scenarios])
    return estimate.moderate(plain, estimate.coupling(_common(scenarios)))


def _common(scenarios: Sequence[Mapping[str, float]]) -> Floats:
    # Sorted by value, so that renaming or reordering the workers changes nothing, not even in the last bit.
    shared = set(scenarios[0]).intersection(*scenarios[1:])
    columns = sorted(tuple(each[name] for each in scenarios) for name in shared)
    return np.array(columns, dtype=np.float64).reshape(len(columns), len(scenarios)).T


def shares(pooled: Sequence[bool], metrics: Sequence[Sampled], policy: Policy) -> Floats | None:
    """What each row of a paired run starts with of the promised alarms, all together 1; None: every row alike.

    pooled: which rows are; metrics: of each row. A base is seen by few pairs, and what few pairs have to show for a
    small level is much. A change of the hit path is expected in the pooled rows, and there in the one first of which
    least is allowed: they share Policy.pooled_alarms in inverse proportion to their allowances, the others the rest.
    """
    if all(pooled) or not any(pooled):
        return None
    among = np.array([1 / metric.allowance if own else 0.0 for own, metric in zip(pooled, metrics, strict=True)])
    alone = (1 - policy.pooled_alarms) / pooled.count(False)
    return np.where(pooled, policy.pooled_alarms * among / among.sum(), alone)
