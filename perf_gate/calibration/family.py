"""What perf_gate.judging.judge does, for thousands of runs at once: the same formulas over arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perf_gate.calibration.pool import Pairs, Pool
from perf_gate.judging import estimate
from perf_gate.judging.contest import Contest, beside, bounds_beside, contest, distance, kinds, shares
from perf_gate.judging.decision import Flags, holm_levels
from perf_gate.judging.estimate import Contrast, Floats
from perf_gate.judging.policy import Policy
from perf_gate.metric import Better, Sampled


@dataclass(frozen=True)
class Line:
    """One sampled metric of one scenario, by their places in the pool."""

    scenario: int
    metric: Sampled


@dataclass(frozen=True)
class Stand:
    """What the evidence of many runs amounts to at one look; every field (runs, rows), on the log scale.

    limit, resolution: of each row, floors included. doubt: quantile of the row's t distribution that a `pass` needs.
    """

    contrast: Contrast
    limit: Floats
    resolution: Floats
    doubt: Floats

    def of(self, runs: Flags) -> Stand:
        """The same for some of the runs."""
        contrast = Contrast(self.contrast.change[runs], self.contrast.error[runs], self.contrast.df[runs])
        return Stand(contrast, self.limit[runs], self.resolution[runs], self.doubt[runs])

    def shifted(self, shift: Floats) -> Stand:
        """The same where the candidate is worse by `shift` (runs, rows). Exact for a constant factor on an arm."""
        contrast = Contrast(self.contrast.change + shift, self.contrast.error, self.contrast.df)
        return Stand(contrast, self.limit, self.resolution, self.doubt)


@dataclass(frozen=True)
class Found:
    """Verdicts of many runs; every field (runs, rows)."""

    regressed: Flags
    improved: Flags
    undecided: Flags


class Family:
    """All rows that a run is judged by: kind by kind its lines, then its pooled row.

    now, reference: log values (lines, workers), one worker per column on each side; of a paired run column i on both
    sides is one pair.
    """

    def __init__(self, scenarios: Sequence[str], contests: Sequence[Contest], policy: Policy) -> None:
        """Group the contests, a line each, as the judge does."""
        self.policy = policy
        self.scenarios = tuple(scenarios)
        place = {name: index for index, name in enumerate(self.scenarios)}
        self._kinds = kinds(contests)
        ordered = [each for kind in self._kinds for each in kind]
        self.lines = tuple(Line(place[each.scenario], each.metric) for each in ordered)
        self.now: Floats = np.array([list(each.now.values()) for each in ordered], dtype=np.float64)
        self.reference: Floats = np.array([list(each.reference.values()) for each in ordered], dtype=np.float64)
        self._paired = ordered[0].paired
        self._weights = self._shares() if self._paired else None

    @classmethod
    def against_record(cls, pool: Pool, policy: Policy) -> Family:
        """Both sides are drawn from the pool."""
        # Held against itself, every metric groups with the others exactly as in the judge.
        contests = [
            contest(each.scenario, metric, each, each, allowance=metric.allowance)
            for each in pool.measurements
            for metric in each.metrics
            if isinstance(metric, Sampled)
        ]
        return cls([each.scenario for each in pool.measurements], contests, policy)

    @classmethod
    def beside_base(cls, pairs: Pairs, policy: Policy) -> Family:
        """What is drawn is pairs."""
        contests = [
            beside(metric, now, base, policy)
            for now, base in zip(pairs.now.measurements, pairs.base.measurements, strict=True)
            for metric in now.metrics
            if isinstance(metric, Sampled)
        ]
        return cls([each.scenario for each in pairs.now.measurements], contests, policy)

    @property
    def rows(self) -> int:
        """Number of rows that are judged, the pooled ones included."""
        return len(self.lines) + sum(len(kind) > 1 for kind in self._kinds)

    def _shares(self) -> Floats | None:
        pooled: list[bool] = []
        metrics: list[Sampled] = []
        for kind in self._kinds:
            together = kind[:1] if len(kind) > 1 else []  # the pooled row is of the same metric
            pooled += [False] * len(kind) + [True] * len(together)
            metrics += [each.metric for each in (*kind, *together)]
        return shares(pooled, metrics, self.policy)

    def stand(self, now: Floats, reference: Floats) -> Stand:
        """Weigh runs. now, reference: (runs, lines, workers) log values."""
        contrasts, limits, resolutions = [], [], []
        start = 0
        for kind in self._kinds:
            part = slice(start, start + len(kind))
            ours, theirs = now[:, part], reference[:, part]
            start += len(kind)
            floor = _floors(kind, theirs.mean(axis=-1))
            limit, resolution = self._bounds(kind, floor)
            contrasts.append(self._contrast(ours, theirs, [each.sign for each in kind]))
            limits.append(limit)
            resolutions.append(resolution)
            if len(kind) > 1:
                contrasts.append(self._contrast(_mean(ours), _mean(theirs), [kind[0].sign]))
                pooled = np.maximum(self.policy.pooled_share * _mean(limit), _mean(floor))
                limits.append(pooled)
                reach = self.policy.pooled_reach(paired=self._paired)
                resolutions.append(pooled + reach * _mean(resolution - limit))
        joined = estimate.join(contrasts)
        doubt = np.asarray(-special.stdtrit(joined.df, self.policy.doubt), dtype=np.float64)
        return Stand(joined, np.concatenate(limits, axis=-1), np.concatenate(resolutions, axis=-1), doubt)

    def _bounds(self, kind: Sequence[Contest], floor: Floats) -> tuple[Floats, Floats]:
        """Allowance and resolution of each line, (runs, lines), as perf_gate.judging.contest grants them."""
        metrics = [each.metric for each in kind]
        if self._paired:
            granted, apart = np.transpose([bounds_beside(metric, self.policy) for metric in metrics])
        else:
            granted = np.log1p([metric.allowance for metric in metrics])
            apart = np.array(list(map(distance, metrics)))
        limit = np.maximum(granted, floor)
        return limit, limit + apart

    def _contrast(self, now: Floats, reference: Floats, signs: Sequence[float]) -> Contrast:
        if self._paired:
            return estimate.paired(_side(now - reference), signs)
        return estimate.contrast(_side(now), _side(reference), signs)

    def shift(self, arm: str, factor: float, slowed: NDArray[np.bool_]) -> Floats:
        """By how much rows get worse, on the log scale, where `arm` takes `factor` times its seconds.

        slowed: (runs, scenarios), which scenarios are slowed down. Returns (runs, rows).
        """
        parts = []
        start = 0
        for kind in self._kinds:
            lines = self.lines[start : start + len(kind)]
            start += len(kind)
            effect = np.array([effect_of(arm, line.metric) for line in lines]) * np.log(factor)
            own = slowed[:, [line.scenario for line in lines]] * effect
            parts.append(own)
            if len(kind) > 1:
                parts.append(_mean(own))
        return np.concatenate(parts, axis=-1)

    def verdicts(self, stand: Stand, look: int) -> Found:
        """Holm's step-down over all rows of each run, as in perf_gate.judging.decision.decide."""
        alpha = self.policy.level(look)
        regressed = _rejected(stand.contrast.change - stand.limit, stand.contrast, alpha, self._weights)
        improved = _rejected(-stand.contrast.change - stand.limit, stand.contrast, alpha, self._weights)
        passed = stand.contrast.change + stand.doubt * stand.contrast.error < stand.resolution
        return Found(regressed, improved, ~(regressed | improved | passed))


def effect_of(arm: str, metric: Sampled) -> float:
    """1 where the metric gets worse in proportion to the arm's seconds, -1 where it gets better, 0 without the arm."""
    sign = 1.0 if metric.better is Better.LOWER else -1.0
    return sign * ((metric.numerator == arm) - (metric.denominator == arm))


def _floors(kind: Sequence[Contest], before: Floats) -> Floats:
    """What the floors allow, given the mean log value of the reference; see perf_gate.judging.contest.contest."""
    share = np.array([each.metric.floor for each in kind]) / np.exp(before)
    if kind[0].metric.better is Better.LOWER:
        return np.log1p(share)
    inside = np.minimum(share, 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        deep = np.where(share < 1, -np.log1p(-np.minimum(share, 1.0)), np.inf)
    return np.where(share < 0.5, -np.log1p(-inside), deep)


def _mean(values: Floats) -> Floats:
    mean: Floats = values.mean(axis=1, keepdims=True)
    return mean


def _side(values: Floats) -> estimate.Spread:
    plain = estimate.spread([values[:, line] for line in range(values.shape[1])])
    return estimate.moderate(plain, estimate.coupling(values))


def _rejected(excess: Floats, contrast: Contrast, alpha: float, weights: Floats | None) -> Any:
    """Whether Holm's procedure rejects; p-values are computed only where they could be small enough to matter."""
    t = excess / contrast.error
    p = np.ones_like(t)
    # A t distribution leaves more above t > 0 than the normal one: below its quantile no p is as small as alpha.
    worth = t >= -special.ndtri(alpha)
    p[worth] = special.stdtr(contrast.df[worth], -t[worth])
    return p <= holm_levels(p, alpha, weights)
