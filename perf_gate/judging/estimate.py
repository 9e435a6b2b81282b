"""Estimates a change and its standard error from the seconds of workers.

Arrays only: everything broadcasts over leading axes, so that thousands of simulated runs are judged in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]

LOWER_TRIM = 0.1
UPPER_TRIM = 0.25
PAIR_TRIM = 0.25
TINY = 1e-18


def location(seconds: ArrayLike) -> Any:
    """Return the typical seconds of an arm in one worker: the mean without the fastest 10 % and slowest 25 % of visits.

    seconds: (..., visits), all > 0, in any order. Returns (...). The trim is asymmetric because disturbances only add
    time. What is slow in fewer than one visit in four is not seen; exact metrics (bytes, calls) show such a regression.
    """
    ordered = np.sort(np.asarray(seconds, dtype=np.float64), axis=-1)
    visits = ordered.shape[-1]
    if visits == 0:
        raise ValueError("no visits: an arm that was never visited has no value")
    return ordered[..., int(visits * LOWER_TRIM) : visits - int(visits * UPPER_TRIM)].mean(axis=-1)


def log_ratio(numerator: ArrayLike, denominator: ArrayLike) -> Any:
    """Return the log of the typical ratio of two arms in one worker: the mean log ratio within a round, without the
    lowest and the highest quarter.

    numerator, denominator: (..., visits) seconds > 0 in order of time. Returns (...). A disturbance lasts longer than a
    round and affects both arms of it alike; the ratio of two typical times varies more between workers. If one arm is
    visited more often, its visits in the same part of the run count as one (their geometric mean). As in `location`,
    what is slow in fewer than one round in four is not seen.
    """
    above, below = np.log(np.asarray(numerator, np.float64)), np.log(np.asarray(denominator, np.float64))
    pairs = min(above.shape[-1], below.shape[-1])
    if pairs == 0:
        raise ValueError("no visits to compare: an arm that was never visited has no value")
    ordered = np.sort(_in_parts(above, pairs) - _in_parts(below, pairs), axis=-1)
    cut = int(pairs * PAIR_TRIM)
    return ordered[..., cut : pairs - cut].mean(axis=-1)


def _in_parts(values: Floats, parts: int) -> Floats:
    """Means over `parts` consecutive parts of the last axis, as equal in length as can be."""
    visits = values.shape[-1]
    edges = np.arange(parts + 1) * visits // parts
    means: Floats = np.add.reduceat(values, edges[:-1], axis=-1) / np.diff(edges)
    return means


@dataclass(frozen=True)
class Spread:
    """Mean and between-worker variance of the log values of G scenarios on one side.

    mean, variance, count: (..., G). count is the number of workers. df: degrees of freedom of `variance`.
    """

    mean: Floats
    variance: Floats
    count: Floats
    df: Floats

    def at(self, index: int) -> Spread:
        """The spread of one scenario alone, keeping the axis."""
        part = slice(index, index + 1)
        return Spread(self.mean[..., part], self.variance[..., part], self.count[..., part], self.df[..., part])


def spread(values: Sequence[ArrayLike]) -> Spread:
    """Return mean and variance between the workers of each scenario.

    values: one array (..., workers) of log values per scenario, at least two workers each. Independent of the order of
    the workers to the last bit.
    """
    ordered = [np.sort(np.asarray(each, dtype=np.float64), axis=-1) for each in values]
    if any(each.shape[-1] < 2 for each in ordered):
        raise ValueError("a spread between workers needs at least two workers in every scenario")
    mean = np.stack([each.mean(axis=-1) for each in ordered], axis=-1)
    variance = np.stack([each.var(axis=-1, ddof=1) for each in ordered], axis=-1)
    count = np.broadcast_to([float(each.shape[-1]) for each in ordered], mean.shape)
    return Spread(mean, np.maximum(variance, TINY), count, count - 1)


def coupling(values: ArrayLike) -> Any:
    """Return the mean squared correlation between scenarios over the workers that timed all of them, in [0, 1].

    values: (..., G, workers), column i of every scenario from the same worker. Returns (...); 1 if there are too few.
    The sample variances of two normal variables with correlation r correlate with r^2, so this is the share that one
    scenario's variance already tells about another's.
    """
    matrix = np.asarray(values, dtype=np.float64)
    scenarios, workers = matrix.shape[-2:]
    if scenarios < 2 or workers < 3:
        return np.ones(matrix.shape[:-2])
    centred = matrix - matrix.mean(axis=-1, keepdims=True)
    norm = np.sqrt((centred**2).sum(axis=-1, keepdims=True))
    unit = centred / np.maximum(norm, TINY)
    squares = (unit @ np.swapaxes(unit, -1, -2)) ** 2
    off_diagonal = squares.sum(axis=(-1, -2)) - np.trace(squares, axis1=-2, axis2=-1)
    return np.clip(off_diagonal / (scenarios * (scenarios - 1)), 0.0, 1.0)


def inverse_trigamma(y: ArrayLike) -> Any:
    """x with trigamma(x) = y > 0, by Newton's method on 1 / trigamma (Smyth 2004, appendix)."""
    target = np.asarray(y, dtype=np.float64)
    x = 0.5 + 1.0 / target
    for _ in range(50):
        trigamma = special.polygamma(1, x)
        step = trigamma * (1.0 - trigamma / target) / special.polygamma(2, x)
        x = x + step
        if np.all(np.abs(step) <= 1e-10 * x):
            break
    return x


def moderate(side: Spread, shared: ArrayLike) -> Spread:
    """Moderate each scenario's variance with those of its kind (Smyth 2004, "limma").

    s0^2 and d0 come from the moments of log s^2 (Smyth's equations for fitFDist); the posterior variance is
    (d0 s0^2 + d s^2) / (d0 + d) on d0 + d degrees of freedom. Smyth assumes independent scenarios. Here the same
    workers time all of them, so their variances err together and agree more than independent ones would. The total is
    therefore capped at sum(d) / (1 + (G - 1) * shared), the information that the run really has.

    Only variances that become larger are replaced. A variance that is too small by chance causes false alarms. A
    scenario that is noisier than its kind (a larger model) has to keep its own, or it would cause several times as many
    false alarms as promised.

    shared: (...), from `coupling`. Fewer than three scenarios are returned unchanged: they give no prior.
    """
    scenarios = side.mean.shape[-1]
    if scenarios < 3:
        return side
    half = side.df / 2
    log_variance = np.log(side.variance) - special.digamma(half) + np.log(half)
    centre = log_variance.mean(axis=-1, keepdims=True)
    excess = log_variance.var(axis=-1, ddof=1, keepdims=True)
    excess = excess - special.polygamma(1, half).mean(axis=-1, keepdims=True)
    heterogeneous = excess > 1e-6
    half_prior = inverse_trigamma(np.where(heterogeneous, excess, 1e-6))
    total = side.df.sum(axis=-1, keepdims=True)
    cap = total / (1 + (scenarios - 1) * np.expand_dims(np.asarray(shared, dtype=np.float64), -1))
    fitted = np.exp(centre + special.digamma(half_prior) - np.log(half_prior))
    pooled = (side.df * side.variance).sum(axis=-1, keepdims=True) / total
    prior = np.where(heterogeneous, fitted, pooled)
    prior_df = np.clip(2 * half_prior, 0.0, np.maximum(cap - side.df, 0.0))
    variance = (prior_df * prior + side.df * side.variance) / (prior_df + side.df)
    raised = variance > side.variance
    return Spread(
        side.mean,
        np.where(raised, variance, side.variance),
        side.count,
        np.where(raised, side.df + prior_df, side.df),
    )


@dataclass(frozen=True)
class Contrast:
    """A change on the log scale, positive = worse, its standard error and df; each (..., rows)."""

    change: Floats
    error: Floats
    df: Floats


def contrast(now: Spread, reference: Spread, sign: ArrayLike = 1.0) -> Contrast:
    """Return Welch's contrast of two sides, whose variances may differ (Welch 1947, Satterthwaite 1946).

    sign: (rows,): 1 where a larger value is worse, -1 where a smaller one is.
    """
    ours, theirs = now.variance / now.count, reference.variance / reference.count
    df = (ours + theirs) ** 2 / (ours**2 / now.df + theirs**2 / reference.df)
    change = np.asarray(sign, dtype=np.float64) * (now.mean - reference.mean)
    return Contrast(change, np.sqrt(ours + theirs), df)


def paired(apart: Spread, sign: ArrayLike = 1.0) -> Contrast:
    """Return the contrast of two sides that were measured in pairs: Student's, on the differences (Student 1908).

    apart: the spread between pairs of now - reference. sign: as in `contrast`.
    """
    change = np.asarray(sign, dtype=np.float64) * apart.mean
    return Contrast(change, np.sqrt(apart.variance / apart.count), apart.df)


def join(parts: Sequence[Contrast]) -> Contrast:
    """Concatenate the rows of several kinds, to be judged as one family."""
    return Contrast(
        np.concatenate([part.change for part in parts], axis=-1),
        np.concatenate([part.error for part in parts], axis=-1),
        np.concatenate([part.df for part in parts], axis=-1),
    )
