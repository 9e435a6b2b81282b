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


def holm_levels(p: ArrayLike, alpha: float) -> Any:
    """Level at which each hypothesis is tested by Holm's step-down procedure (Holm 1979).

    p: (..., rows). A hypothesis is rejected exactly where p <= its level: those that fall before the first
    one that stands are tested at alpha / (m - rank), all others at the level of the one that stands first.
    """
    p = np.asarray(p, dtype=np.float64)
    rows = p.shape[-1]
    order = np.argsort(p, axis=-1, kind="stable")
    steps = alpha / (rows - np.arange(rows))
    fell = np.logical_and.accumulate(np.take_along_axis(p, order, axis=-1) <= steps, axis=-1)
    fallen = fell.sum(axis=-1, keepdims=True)
    stands = steps[np.minimum(fallen, rows - 1)]
    levels = np.empty_like(p)
    np.put_along_axis(levels, order, np.where(fell, steps, stands), axis=-1)
    return levels


def tail(t: ArrayLike, df: Floats) -> Any:
    """Chance that Student's t on `df` degrees of freedom exceeds `t`; the two broadcast."""
    # Not scipy.stats.t, which computes the same: scipy.stats is far slower to import, and every run waits for it.
    return special.stdtr(df, -np.asarray(t, dtype=np.float64))


def quantile(chance: ArrayLike, df: Floats) -> Any:
    """The t that is exceeded with `chance`, > 0 and < 1: the inverse of `tail`."""
    return -special.stdtrit(df, np.asarray(chance, dtype=np.float64))


def decide(contrast: Contrast, allowance: ArrayLike, resolution: ArrayLike, *, alpha: float, doubt: float) -> Decision:
    """Judge a family of rows.

    allowance, resolution: (rows,), log scale. alpha: chance of any false alarm in the family when no change
    exceeds its allowance. doubt: chance that a row passes although its change is as large as the
    resolution.
    """
    limit = np.asarray(allowance, dtype=np.float64)
    worse = holm_levels(tail((contrast.change - limit) / contrast.error, contrast.df), alpha)
    better = holm_levels(tail((-contrast.change - limit) / contrast.error, contrast.df), alpha)
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
