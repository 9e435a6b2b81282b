"""A figure, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

_RESAMPLES = 2000
# The smallest and the largest of n values enclose the median in all but 2^(1-n) of the cases: five do not reach 95 %.
LEAST = 6

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """value, and its 95 % interval over the prompts; `median` and `resampled` say how often it holds the truth."""

    value: float
    low: float
    high: float


def median(values: Sequence[float]) -> Spread:
    """The median of `values`, between the closest two of them that enclose the true one with 95 % or more.

    However the values are distributed, the number of them below their true median is binomial with one half; so the
    k-th smallest and the k-th largest do it (Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2).
    Raises ValueError for fewer than LEAST.
    """
    n = len(values)
    if n < LEAST:
        raise ValueError(f"a 95 % interval of a median takes {LEAST} values; there are {n}")
    ordered = sorted(values)
    k = int(stats.binom.ppf(0.025, n, 0.5))
    return Spread(float(np.median(ordered)), ordered[k - 1], ordered[n - k])


def resampled(figure: Callable[[Values], float], values: Values) -> Spread:
    """`figure` of `values` [n, ...], resampled along the first axis; a resample it is not defined for gives NaN.

    A percentile bootstrap, seeded: the same values give the same interval. Its 95 % are nominal: with few values it
    holds the truth less often. For a median there is `median`. Raises ValueError for n = 0.
    """
    n = len(values)
    if not n:
        raise ValueError("there is nothing to take a figure of")
    choices = np.random.default_rng(0).integers(0, n, (_RESAMPLES, n))
    low, high = np.nanquantile([figure(values[rows]) for rows in choices], [0.025, 0.975])
    return Spread(figure(values), float(low), float(high))
