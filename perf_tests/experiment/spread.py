"""A figure, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_RESAMPLES = 2000

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """value, and its 95 % interval over the prompts (percentile bootstrap, seeded: same values, same interval)."""

    value: float
    low: float
    high: float


def median(values: Sequence[float]) -> Spread:
    """The median of `values`. Raises ValueError for none."""
    return resampled(lambda chosen: float(np.median(chosen)), np.asarray(values, dtype=np.float64))


def resampled(figure: Callable[[Values], float], values: Values) -> Spread:
    """`figure` of `values` [n, ...], resampled along the first axis; a resample it is not defined for gives NaN.

    Raises ValueError for n = 0.
    """
    if not len(values):
        raise ValueError("there is nothing to take a figure of")
    random = np.random.default_rng(0)
    chosen = random.integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.nanquantile([figure(values[rows]) for rows in chosen], [0.025, 0.975])
    return Spread(figure(values), float(low), float(high))
