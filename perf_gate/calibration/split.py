"""How a pool of workers is split into a record and a candidate run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perf_gate.calibration.pool import CalibrationError
from perf_gate.judging.policy import Policy


@dataclass(frozen=True)
class Split:
    """A candidate run that is judged after `looks` workers, ascending, against a record of `reference` workers."""

    reference: int
    looks: tuple[int, ...]

    def draw(self, random: np.random.Generator, workers: int, runs: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Indices of the workers of `runs` records (runs, reference) and candidates (runs, last look).

        Without replacement: no worker is on both sides. Drawing each side with replacement from one pool would let
        the sides share workers, which hides what tells them apart, and would count some twice, which makes a spread
        look smaller than it is.
        """
        order = random.permuted(np.tile(np.arange(workers), (runs, 1)), axis=1)
        return order[:, : self.reference], order[:, self.reference : self.reference + self.looks[-1]]


def split(workers: int, reference: int, looks: Sequence[int], policy: Policy) -> Split:
    """The split that was asked for where there are enough workers for it, else the nearest that there are.

    With too few, the record gets at most half of the workers, and looks that the rest cannot fill are left out: a run
    that would have gone on to them ends undecided. Raises CalibrationError where not even the first look can be filled.
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
