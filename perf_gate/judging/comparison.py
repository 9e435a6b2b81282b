"""Compares one sampled metric on two sides, in one run or in thousands at once, and pools comparisons of one kind.

Every array has leading axes for runs, written `...`: none for the run of a session, one for simulated runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perf_gate.judging import estimate
from perf_gate.judging.estimate import Contrast, Floats, Spread
from perf_gate.judging.policy import Policy
from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Sampled

POOLED = "(all)"
POOLED_PREFIX = "(all"


@dataclass(frozen=True)
class Values:
    """A metric's value in every worker of one side, on the log scale.

    workers: the name of each. logs: (..., workers). Equal names in two scenarios of one side are the same worker.
    """

    workers: tuple[str, ...]
    logs: Floats

    @property
    def mean(self) -> Floats:
        """The mean over the workers, (...); independent of their order to the last bit."""
        found: Floats = np.sort(self.logs, axis=-1).mean(axis=-1)
        return found

    def only(self, workers: Sequence[str]) -> Values:
        """Return the values of these workers, in this order."""
        place = {name: index for index, name in enumerate(self.workers)}
        return Values(tuple(workers), self.logs[..., [place[name] for name in workers]])

    def drawn(self, chosen: NDArray[np.intp]) -> Values:
        """Return the values of runs that consist of the workers with these indices: (runs, workers)."""
        return Values(tuple(map(str, range(chosen.shape[-1]))), self.logs[..., chosen])


def values(metric: Sampled, measurement: Measurement) -> Values:
    """Return the metric's value in each worker of a measurement."""
    above = measurement.seconds[metric.numerator]
    if metric.denominator is None:
        logs = [math.log(estimate.location(visits)) for visits in above]
    else:
        logs = list(map(float, map(estimate.log_ratio, above, measurement.seconds[metric.denominator])))
    return Values(measurement.names, np.array(logs, dtype=np.float64))


@dataclass(frozen=True)
class Comparison:
    """One sampled metric of one scenario (or of all of a kind, pooled), ready to be judged.

    threshold, resolution: log scale, (...), the absolute threshold included. absolute_threshold: it alone, log scale,
    (...). against: name of an older record, or "" for the baseline that was asked for. paired: both sides were measured
    in one run, and workers of equal names took turns.
    """

    scenario: str
    metric: Sampled
    now: Values
    reference: Values
    threshold: Floats
    resolution: Floats
    absolute_threshold: Floats
    against: str = ""
    paired: bool = False

    @property
    def kind(self) -> tuple[str, ...]:
        """Comparisons of one kind share a prior for their spread, and a pooled row."""
        metric = self.metric
        arms = (metric.numerator, metric.denominator or "")
        return (self.against, metric.name, metric.unit, metric.better.value, *arms)

    @property
    def workers(self) -> tuple[int, int]:
        """Number of workers now and in the reference."""
        return len(self.now.workers), len(self.reference.workers)


def compare_paired(scenario: str, metric: Sampled, now: Values, base: Values, policy: Policy) -> Comparison:
    """Compare a metric with a base that was measured in the same run, pair by pair.

    The threshold is Sampled.paired_threshold, or else Policy.paired_threshold_share of the metric's threshold.
    """
    own = metric.paired_threshold
    threshold = policy.paired_threshold_share * math.log1p(metric.threshold) if own is None else math.log1p(own)
    apart = policy.paired_resolution_factor * max(math.log1p(metric.resolution) - threshold, _distance(metric))
    both = [name for name in now.workers if name in set(base.workers)]
    return _compare(scenario, metric, now.only(both), base.only(both), threshold=threshold, distance=apart, paired=True)


def compare_to_record(
    scenario: str,
    metric: Sampled,
    now: Values,
    reference: Values,
    *,
    threshold: float,
    against: str = "",
) -> Comparison:
    """Compare a metric with a record.

    threshold: relative (0.01 = 1 %), in place of the metric's own; the resolution keeps its distance from it. The
    absolute threshold applies if it is larger.
    """
    log_threshold = math.log1p(threshold)
    return _compare(
        scenario, metric, now, reference, threshold=log_threshold, distance=_distance(metric), against=against
    )


def _distance(metric: Sampled) -> float:
    """Return the distance from a metric's threshold to its resolution, on the log scale."""
    return math.log1p(metric.resolution) - math.log1p(metric.threshold)


def _compare(
    scenario: str,
    metric: Sampled,
    now: Values,
    reference: Values,
    *,
    threshold: float,
    distance: float,
    against: str = "",
    paired: bool = False,
) -> Comparison:
    absolute_threshold = _absolute_threshold(metric, reference)
    log_threshold = np.maximum(threshold, absolute_threshold)
    return Comparison(
        scenario, metric, now, reference, log_threshold, log_threshold + distance, absolute_threshold, against, paired
    )


def _absolute_threshold(metric: Sampled, reference: Values) -> Floats:
    """Return the absolute threshold as a share of the reference's mean, on the log scale, (...)."""
    if not reference.workers or not metric.absolute_threshold:
        return np.zeros(reference.logs.shape[:-1])
    share = metric.absolute_threshold / np.exp(reference.mean)
    if metric.better is Better.LOWER:
        return np.asarray(np.log1p(share))
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log1p(-np.minimum(share, 1.0)))


def kinds(comparisons: Iterable[Comparison]) -> list[list[Comparison]]:
    """Group comparisons by kind, in order of first appearance."""
    grouped: dict[tuple[str, ...], list[Comparison]] = {}
    for each in comparisons:
        grouped.setdefault(each.kind, []).append(each)
    return list(grouped.values())


def pool(kind: Sequence[Comparison], policy: Policy) -> list[Comparison]:
    """Return the pooled comparisons of one kind: for each worker the mean over the scenarios that it timed.

    Usually there is one, "(all)". Scenarios that have no worker in common are pooled separately, "(all 4 from ID)". A
    side may have too few workers left; the judge says so.
    """
    parts = [part for part in _by_workers(kind) if len(part) > 1]
    alone = len(parts) == 1 and len(parts[0]) == len(kind)
    return [_pooled(part, policy, POOLED if alone else f"(all {len(part)} from {part[0].scenario})") for part in parts]


def _by_workers(kind: Sequence[Comparison]) -> list[list[Comparison]]:
    parts: list[tuple[set[str], list[Comparison]]] = []
    for each in kind:
        workers, members = set(each.now.workers), [each]
        apart = []
        for others_workers, others in parts:
            if workers & others_workers:
                workers, members = workers | others_workers, others + members
            else:
                apart.append((others_workers, others))
        parts = [*apart, (workers, members)]
    return [members for _, members in parts]


def _pooled(part: Sequence[Comparison], policy: Policy, scenario: str) -> Comparison:
    first = part[0]
    absolute_threshold = _mean([each.absolute_threshold for each in part])
    threshold = np.maximum(policy.pooled_threshold_share * _mean([each.threshold for each in part]), absolute_threshold)
    with np.errstate(invalid="ignore"):  # an absolute threshold may be infinite on the log scale
        distance = policy.pooled_resolution_share(paired=first.paired) * _mean(
            [each.resolution - each.threshold for each in part]
        )
    return replace(
        first,
        scenario=scenario,
        now=_mean_by_worker([each.now for each in part]),
        reference=_mean_by_worker([each.reference for each in part]),
        threshold=threshold,
        resolution=threshold + distance,
        absolute_threshold=absolute_threshold,
    )


def _mean(scenarios: Sequence[Floats]) -> Floats:
    """Return the mean over scenarios; independent of their order to the last bit."""
    found: Floats = np.sort(np.stack(scenarios, axis=-1), axis=-1).mean(axis=-1)
    return found


def _mean_by_worker(scenarios: Sequence[Values]) -> Values:
    shared = common(scenarios)
    return Values(shared, _mean([each.only(shared).logs for each in scenarios]))


def common(sides: Sequence[Values]) -> tuple[str, ...]:
    """Return the workers that all of them have, in the order of the first."""
    shared = set(sides[0].workers).intersection(*(each.workers for each in sides[1:]))
    return tuple(name for name in sides[0].workers if name in shared)


@dataclass(frozen=True)
class Evidence:
    """The contrasts of every row of a run, or of many runs at one look.

    comparisons: one per row, kind by kind, with the pooled ones after each kind. contrast, threshold, resolution:
    (..., rows), log scale. weights: see perf_gate.judging.decision.holm_levels.
    """

    comparisons: tuple[Comparison, ...]
    contrast: Contrast
    threshold: Floats
    resolution: Floats
    weights: Floats | None

    def of(self, runs: NDArray[np.bool_]) -> Evidence:
        """Return the same for some of the runs."""
        contrast = Contrast(self.contrast.change[runs], self.contrast.error[runs], self.contrast.df[runs])
        return replace(self, contrast=contrast, threshold=self.threshold[runs], resolution=self.resolution[runs])

    def shifted(self, shift: Floats) -> Evidence:
        """Return the same with a candidate that is worse by `shift` (..., rows); exact for a constant factor."""
        return replace(self, contrast=replace(self.contrast, change=self.contrast.change + shift))


def gather_evidence(comparisons: Iterable[Comparison], policy: Policy) -> tuple[Evidence | None, list[Comparison]]:
    """Make one family of all comparisons of a run and their pooled ones.

    Returns the evidence, or None if there is none, and the comparisons with too few workers to be judged.
    """
    able: list[Comparison] = []
    unable: list[Comparison] = []
    parts = []
    for kind in kinds(comparisons):
        for group in (kind, *([each] for each in pool(kind, policy))):
            enough = [each for each in group if min(each.workers) >= policy.min_workers]
            unable += [each for each in group if min(each.workers) < policy.min_workers]
            if enough:
                able += enough
                parts.append(_contrasts(enough))
    if not able:
        return None, unable
    return (
        Evidence(
            tuple(able),
            estimate.join(parts),
            np.stack([each.threshold for each in able], axis=-1),
            np.stack([each.resolution for each in able], axis=-1),
            shares(able, policy),
        ),
        unable,
    )


def _contrasts(kind: Sequence[Comparison]) -> Contrast:
    """Return the contrast of each comparison of a kind, with moderated variances. Needs 2 workers everywhere.

    Paired comparisons use the difference within each pair, so that what both workers of a pair have in common (e.g. the
    drift of the machine) does not count as error.
    """
    signs = [1.0 if each.metric.better is Better.LOWER else -1.0 for each in kind]
    if kind[0].paired:
        return estimate.paired(
            _side([replace(each.now, logs=each.now.logs - each.reference.logs) for each in kind]), signs
        )
    return estimate.contrast(_side([each.now for each in kind]), _side([each.reference for each in kind]), signs)


def _side(scenarios: Sequence[Values]) -> Spread:
    plain = estimate.spread([each.logs for each in scenarios])
    if len(scenarios) < 3:  # moderate changes nothing then
        return plain
    shared = common(scenarios)
    matrix = np.stack([each.only(shared).logs for each in scenarios], axis=-2)
    # By value, so that the names and the order of the workers do not matter, to the last bit.
    order = np.lexsort(np.moveaxis(matrix, -2, 0)[::-1], axis=-1)
    return estimate.moderate(plain, estimate.coupling(np.take_along_axis(matrix, order[..., None, :], axis=-1)))


def shares(rows: Sequence[Comparison], policy: Policy) -> Floats | None:
    """Return the share of alpha with which each row of a paired run starts, summing to 1; None: equal shares.

    With few pairs, a small level needs a large difference. A change of the hit path is expected in the pooled rows,
    first in the one with the smallest threshold, so these share Policy.pooled_alpha_share in inverse proportion to
    their thresholds. The other rows share the rest.
    """
    pooled = [each.scenario.startswith(POOLED_PREFIX) for each in rows]
    if not rows[0].paired or all(pooled) or not any(pooled):
        return None
    among = np.array([1 / each.metric.threshold if own else 0.0 for own, each in zip(pooled, rows, strict=True)])
    alone = (1 - policy.pooled_alpha_share) / pooled.count(False)
    return np.where(pooled, policy.pooled_alpha_share * among / among.sum(), alone)
