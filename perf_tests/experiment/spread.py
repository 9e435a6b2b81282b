"""A figure, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_RESAMPLES = 2000
# The smallest and the largest of n values enclose the median in all but 2^(1-n) of the cases: five do not reach 95 %.
LEAST = 6

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """value, and its 95 % interval over the prompts (percentile bootstrap, seeded: same values, same interval)."""

    value: float
    low: float
    high: float


def median(values: Sequence[float]) -> Spread:
    """The median of `values`. Raises ValueError for none."""
    known = np.asarray(values, dtype=np.float64)
    choices = _choices(len(known))
    return _spread(float(np.median(known)), np.median(known[choices], axis=1))


def resampled(figure: Callable[[Values], float], values: Values) -> Spread:
    """`figure` of `values` [n, ...], resampled along the first axis; a resample it is not defined for gives NaN.

    Raises ValueError for n = 0.
    """
    choices = _choices(len(values))
    return _spread(figure(values), np.asarray([figure(values[rows]) for rows in choices]))


def _choices(n: int) -> npt.NDArray[np.int64]:
    """Indices [resamples, n]."""
    if not n:
        raise ValueError("there is nothing to take a figure of")
    return np.random.default_rng(0).integers(0, n, (_RESAMPLES, n))


def _spread(value: float, found: Values) -> Spread:
    low, high = np.nanquantile(found, [0.025, 0.975])
    return Spread(value, float(low), float(high))
