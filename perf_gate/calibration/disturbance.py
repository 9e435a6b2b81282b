"""Disturbances of a machine, simulated on recorded samples: drift, slow processes, another busy process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from perf_gate.calibration.pool import Pool
from perf_gate.judging import estimate
from perf_gate.judging.comparison import values
from perf_gate.judging.estimate import Floats
from perf_gate.measurement import Measurement
from perf_gate.measuring.measurement_run import BATCH
from perf_gate.metric import Sampled

DRIFT = 0.3
OFFSET = 0.05
BURDEN = 0.15


class Disturbance(ABC):
    """Multiplies the seconds of visits, in all arms alike, depending on the time within the run."""

    name: str

    @abstractmethod
    def factors(self, time: Floats, random: np.random.Generator) -> Floats:
        """Return the factor of each visit of an arm in a worker. time: (places, visits), as a share of the run."""

    def of_process(self, places: int, random: np.random.Generator) -> Floats:
        """Return a factor for each process, the same for all its visits, (places,)."""
        del random
        return np.ones(places)


class Drift(Disturbance):
    """The machine becomes slower from the first to the last worker."""

    name = f"drift: everything becomes {100 * DRIFT:g} % slower over the run, linearly"

    def factors(self, time: Floats, random: np.random.Generator) -> Floats:
        """See Disturbance.factors."""
        del random
        return 1 + DRIFT * time


class OddProcess(Disturbance):
    """Every process, also of the record, is faster or slower as a whole."""

    name = f"processes: each is {100 * OFFSET:g} % slower or faster throughout, in record and run"

    def factors(self, time: Floats, random: np.random.Generator) -> Floats:
        """See Disturbance.factors."""
        del random
        return np.ones_like(time)

    def of_process(self, places: int, random: np.random.Generator) -> Floats:
        """See Disturbance.of_process."""
        return np.asarray(1 + OFFSET * random.choice([-1.0, 1.0], places))


class NoisyNeighbour(Disturbance):
    """Another process is busy during the middle half of the run and delays each visit by a random amount."""

    name = f"another busy process: in the middle half each visit takes 1 + {BURDEN:g} x Exp(1) times as long"

    def factors(self, time: Floats, random: np.random.Generator) -> Floats:
        """See Disturbance.factors."""
        there = (time >= 0.25) & (time < 0.75)
        return np.where(there, 1 + BURDEN * random.exponential(size=time.shape), 1.0)


DISTURBANCES: tuple[Disturbance, ...] = (Drift(), OddProcess(), NoisyNeighbour())


def disturbed_values(
    disturbance: Disturbance, pool: Pool, places: int, random: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """Return log values of candidate and record under a disturbance, for each sampled metric of each measurement.

    The candidate's are (workers, places): the value of each worker if it were the `place`-th of the run. Workers run
    in batches, and the time of a visit within its batch follows from its number. The record's are (workers,): only
    the factor of the process applies to them, because the record was made in another run.
    """
    of_now = np.stack([disturbance.of_process(places, random) for _ in range(pool.workers)])
    of_then = np.concatenate([disturbance.of_process(1, random) for _ in range(pool.workers)])
    found = []
    for each in pool.measurements:
        seconds = _seconds(disturbance, each, of_now, random)
        for metric in each.metrics:
            if isinstance(metric, Sampled):
                plain = values(metric, each).logs
                found.append(
                    (_values(metric, seconds), plain if metric.denominator is not None else plain + np.log(of_then))
                )
    return found


def times(places: int, visits: int) -> Floats:
    """Return the time of each visit of the `place`-th worker of a run, as a share of the run, (places, visits)."""
    batches = -(-places // BATCH)
    return np.asarray(((np.arange(places) // BATCH)[:, None] + (np.arange(visits) + 0.5) / visits) / batches)


def disturb(
    disturbance: Disturbance, seconds: Floats, places: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the seconds of an arm under a disturbance: run (workers, places, visits) and record (workers, visits).

    seconds: (workers, visits).
    """
    workers, visits = seconds.shape
    now = np.stack(
        [
            each * disturbance.factors(times(places, visits), random) * disturbance.of_process(places, random)[:, None]
            for each in seconds
        ]
    )
    return now, seconds * np.concatenate([disturbance.of_process(1, random) for _ in range(workers)])[:, None]


def _seconds(
    disturbance: Disturbance, measurement: Measurement, of_process: Floats, random: np.random.Generator
) -> Mapping[str, list[Floats]]:
    """Return for each arm one array (places, visits) per worker."""
    places = of_process.shape[1]
    return {
        arm: [
            np.array(visits) * disturbance.factors(times(places, len(visits)), random) * of_process[worker][:, None]
            for worker, visits in enumerate(per_worker)
        ]
        for arm, per_worker in measurement.seconds.items()
    }


def _values(metric: Sampled, seconds: Mapping[str, list[Floats]]) -> Floats:
    """Return the log values, (workers, places), as perf_gate.judging.comparison.values does."""
    above = seconds[metric.numerator]
    if metric.denominator is None:
        return np.stack([np.log(estimate.location(visits)) for visits in above])
    return np.stack(list(map(estimate.log_ratio, above, seconds[metric.denominator])))
