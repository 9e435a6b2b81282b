"""The split of a pool of workers into a record and a candidate run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perf_gate.calibration.pool import CalibrationError
from perf_gate.judging.policy import Policy


@dataclass(frozen=True)
class Split:
    """A record of `reference` workers, and a candidate run that is judged after `looks` workers, ascending."""

    reference: int
    looks: tuple[int, ...]

    def draw(self, random: np.random.Generator, workers: int, runs: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return indices of the workers of `runs` records (runs, reference) and candidates (runs, last look).

        Workers are drawn without replacement. With replacement, both sides could have workers in common, which hides
        the difference between them, and the same worker twice, which makes the spread look smaller than it is.
        """
        order = random.permuted(np.tile(np.arange(workers), (runs, 1)), axis=1)
        return order[:, : self.reference], order[:, self.reference : self.reference + self.looks[-1]]


def split(workers: int, reference: int, looks: Sequence[int], policy: Policy) -> Split:
    """Return the split that was asked for, or the nearest one if there are not enough workers.

    In that case the record gets at most half of the workers, and looks that need more than the rest are left out: a
    run that would continue to them ends undecided. Raises CalibrationError if the first look needs more than the rest.
    """
    candidates = workers - reference
    if candidates < looks[-1]:
        reference = min(reference, workers // 2)
        candidates = workers - reference
    filled = tuple(look for look in looks if look <= candidates)
    if not filled or reference < policy.min_workers:
        raise CalibrationError(
            f"{workers} distinct workers are too few to split into a record and a first look of {looks[0]} workers: "
            f"record with at least {2 * looks[0]}, or add runs of the same code with --against"
        )
    return Split(reference, filled)
