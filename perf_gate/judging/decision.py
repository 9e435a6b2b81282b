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
    """What follows from the contrasts of a family; every field (..., rows), on the log scale.

    low, high: the ends that decided. `regressed` exactly where low > allowance, `improved` exactly where
        high < -allowance; both hold for all rows of the family at once.
    ceiling: upper end at the confidence with which a `pass` rules out a regression; `passed` where it lies
        below the resolution and nothing is regressed.
    detectable: the smallest measured change that would have been `regressed`.
    """

    regressed: Flags
    improved: Flags
    passed: Flags
    low: Floats
    high: Floats
    ceiling: Floats
    detectable: Floats


def holm_levels(p: ArrayLike, alpha: float, weights: ArrayLike | None = None) -> Any:
    """Level at which each hypothesis is tested by Holm's step-down procedure (Holm 1979).

    p: (..., rows). A hypothesis is rejected exactly where p <= its level: those that fall before the first
    one that stands are tested at alpha / (m - rank), all others at the level of the one that stands first.
    weights: (rows,), > 0: which share of alpha each hypothesis starts with (his weighted procedure: ordered by
    p / weight, each tested at alpha * weight / weights still standing); None: all alike.
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
    # Not scipy.stats.t, which computes the same: scipy.stats is far slower to import, and every run waits for it.
    return special.stdtr(df, -np.asarray(t, dtype=np.float64))


def quantile(chance: ArrayLike, df: ArrayLike) -> Any:
    """The t that is exceeded with `chance`, > 0 and < 1: the inverse of `tail`."""
    return -special.stdtrit(np.asarray(df, dtype=np.float64), np.asarray(chance, dtype=np.float64))


def decide(
    contrast: Contrast,
    allowance: ArrayLike,
    resolution: ArrayLike,
    *,
    alpha: float,
    doubt: float,
    weights: ArrayLike | None = None,
) -> Decision:
    """Judge a family of rows.

    allowance, resolution: (rows,), log scale. alpha: chance of any false alarm in the family when no change
    exceeds its allowance. doubt: chance that a row passes although its change is as large as the
    resolution. weights: see holm_levels.
    """
    limit = np.asarray(allowance, dtype=np.float64)
    worse = holm_levels(tail((contrast.change - limit) / contrast.error, contrast.df), alpha, weights)
    better = holm_levels(tail((-contrast.change - limit) / contrast.error, contrast.df), alpha, weights)
    reach = quantile(worse, contrast.df) * contrast.error
    low = contrast.change - reach
    high = contrast.change + quantile(better, contrast.df) * contrast.error
    ceiling = contrast.change + quantile(doubt, contrast.df) * contrast.error
    regressed = low > limit
    return Decision(
        regressed=regressed,
        improved=high < -limit,
        passed=~regressed & (ceiling < np.asarray(resolution, dtype=np.float64)),
        low=low,
        high=high,
        ceiling=ceiling,
        detectable=limit + reach,
    )
