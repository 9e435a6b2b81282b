"""The rule that turns contrasts into verdicts: one family, Holm's step-down, one-sided in each direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from perf_gate.judging.estimate import Contrast, Floats

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Decision:
    """The verdicts that follow from the contrasts of a family; every field (..., rows).

    regressed, improved: worse, or better, by more than the threshold. The chance that any row of the family is wrong is
        `alpha` in each direction. passed: not regressed, and worse by the resolution only with a chance of `beta`.
    """

    regressed: Flags
    improved: Flags
    passed: Flags

    @property
    def undecided(self) -> Flags:
        """Neither of the three."""
        return ~(self.regressed | self.improved | self.passed)


@dataclass(frozen=True)
class Bounds:
    """The intervals of a family; every field (..., rows), on the log scale.

    low, high: the ends that decided: a row is regressed where low > threshold, improved where high < -threshold.
    ceiling: upper end at the confidence with which a `pass` rules out a regression.
    minimum_detectable_change: the smallest measured change that would have been `regressed`.
    """

    low: Floats
    high: Floats
    ceiling: Floats
    minimum_detectable_change: Floats


def holm_levels(p: ArrayLike, alpha: float, weights: ArrayLike | None = None) -> Any:
    """Level at which each hypothesis is tested by Holm's step-down procedure (Holm 1979).

    p: (..., rows). A hypothesis is rejected exactly if p <= its level: those that are rejected are tested at
    alpha / (m - rank), all others at the level of the first one that is not. weights: (rows,), > 0: the share of alpha
    with which each hypothesis starts (Holm's weighted procedure: ordered by p / weight, each tested at alpha * weight /
    sum of the weights that are left); None: equal shares.
    """
    p = np.asarray(p, dtype=np.float64)
    rows = p.shape[-1]
    weight = np.broadcast_to(np.ones(rows) if weights is None else np.asarray(weights, dtype=np.float64), p.shape)
    order = np.argsort(p / weight, axis=-1, kind="stable")
    ordered = np.take_along_axis(weight, order, axis=-1)
    steps = alpha / np.cumsum(ordered[..., ::-1], axis=-1)[..., ::-1]
    fell = np.logical_and.accumulate(np.take_along_axis(p, order, axis=-1) <= steps * ordered, axis=-1)
    fallen = fell.sum(axis=-1, keepdims=True)
    stands = np.take_along_axis(steps, np.minimum(fallen, rows - 1), axis=-1)
    levels = np.empty_like(p)
    np.put_along_axis(levels, order, np.where(fell, steps, stands) * ordered, axis=-1)
    return levels


def tail(t: ArrayLike, df: Floats) -> Any:
    """Chance that Student's t on `df` degrees of freedom exceeds `t`; the two broadcast."""
    # Not scipy.stats.t, which computes the same: every run would wait for the import of scipy.stats.
    return special.stdtr(df, -np.asarray(t, dtype=np.float64))


def quantile(chance: ArrayLike, df: ArrayLike) -> Any:
    """The t that is exceeded with `chance`, > 0 and < 1: the inverse of `tail`."""
    return -special.stdtrit(np.asarray(df, dtype=np.float64), np.asarray(chance, dtype=np.float64))


def decide(
    contrast: Contrast,
    threshold: ArrayLike,
    resolution: ArrayLike,
    *,
    alpha: float,
    beta: float,
    weights: ArrayLike | None = None,
) -> Decision:
    """Judge families of rows.

    threshold, resolution: (..., rows), log scale. alpha: chance of any false alarm in a family when no change
    exceeds its threshold. beta: chance that a row passes although its change is as large as the
    resolution. weights: see holm_levels.
    """
    limit = np.asarray(threshold, dtype=np.float64)
    regressed = _rejected(contrast.change - limit, contrast, alpha, weights)
    improved = _rejected(-contrast.change - limit, contrast, alpha, weights)
    ceiling = _ceiling(contrast, beta)
    return Decision(regressed, improved, ~regressed & (ceiling < np.asarray(resolution, dtype=np.float64)))


def bounds(
    contrast: Contrast, threshold: ArrayLike, *, alpha: float, beta: float, weights: ArrayLike | None = None
) -> Bounds:
    """Return the intervals from which `decide` decides, for the same arguments.

    A separate function, because they take far longer, and simulated runs do not need them.
    """
    limit = np.asarray(threshold, dtype=np.float64)
    worse = holm_levels(tail((contrast.change - limit) / contrast.error, contrast.df), alpha, weights)
    better = holm_levels(tail((-contrast.change - limit) / contrast.error, contrast.df), alpha, weights)
    reach = quantile(worse, contrast.df) * contrast.error
    return Bounds(
        low=contrast.change - reach,
        high=contrast.change + quantile(better, contrast.df) * contrast.error,
        ceiling=_ceiling(contrast, beta),
        minimum_detectable_change=limit + reach,
    )


def _ceiling(contrast: Contrast, beta: float) -> Floats:
    found: Floats = contrast.change + quantile(beta, contrast.df) * contrast.error
    return found


def _rejected(excess: Floats, contrast: Contrast, alpha: float, weights: ArrayLike | None) -> Flags:
    """Return whether Holm's procedure rejects. p-values are computed only where they can be small enough."""
    t = excess / contrast.error
    p = np.ones_like(t)
    # A t distribution leaves more above t > 0 than the normal one: below its quantile no p is as small as alpha.
    worth = t >= -special.ndtri(alpha)
    p[worth] = tail(t[worth], contrast.df[worth])
    return np.asarray(p <= holm_levels(p, alpha, weights))
