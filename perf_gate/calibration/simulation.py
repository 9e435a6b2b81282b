"""Simulated runs: workers are drawn from recorded ones, slowed down, and judged look by look."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perf_gate.calibration.disturbance import Disturbance, disturbed_values
from perf_gate.calibration.pool import CalibrationError, Pairs, Pool
from perf_gate.calibration.rate import Rate
from perf_gate.calibration.split import Split
from perf_gate.judging.comparison import (
    POOLED_PREFIX,
    Comparison,
    Evidence,
    Values,
    compare_paired,
    compare_to_record,
    gather_evidence,
    values,
)
from perf_gate.judging.decision import Decision, Flags, decide
from perf_gate.judging.estimate import Floats
from perf_gate.judging.policy import Policy
from perf_gate.metric import Better, Sampled

CHUNK = 1000
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Condition:
    """What is changed in the candidate of a simulated run.

    slowdown: share by which the arm is slower (0.05 = 5 %). everywhere: in all scenarios; else in one per run, in
    turn. disturbance: what the machine does during the run.
    """

    slowdown: float = 0.0
    everywhere: bool = False
    disturbance: Disturbance | None = None

    def __str__(self) -> str:
        """Describe it, e.g. "5 % slower in one scenario"."""
        if self.disturbance is not None:
            return self.disturbance.name
        if not self.slowdown:
            return "nothing changed"
        return f"{100 * self.slowdown:g} % slower in {'all scenarios' if self.everywhere else 'one scenario'}"


@dataclass(frozen=True)
class Tally:
    """How the runs of one condition ended. red: a row regressed. undecided: none did, but a row is inconclusive."""

    red: int
    undecided: int
    improved: int
    runs: int

    @property
    def alarms(self) -> Rate:
        """Share of the runs that were red."""
        return Rate(self.red, self.runs)

    @property
    def unjudged(self) -> Rate:
        """Share of the runs that ended without a verdict."""
        return Rate(self.undecided, self.runs)


@dataclass
class _RunStates:
    """The state of each run of a chunk. A run that is not open does not change any more."""

    red: Flags
    undecided: Flags
    improved: Flags
    open: Flags

    @classmethod
    def none(cls, runs: int) -> _RunStates:
        red, undecided, improved = np.zeros((3, runs), dtype=bool)
        return cls(red, undecided, improved, np.ones(runs, dtype=bool))

    def take(self, found: Decision | None) -> None:
        """Update the open runs from their verdicts. A run with nothing undecided is closed.

        None: too few workers to judge anything.
        """
        if found is None:
            self.undecided[self.open] = True
            return
        red, undecided = found.regressed.any(axis=-1), found.undecided.any(axis=-1)
        self.red[self.open] = red
        self.undecided[self.open] = undecided & ~red
        self.improved[self.open] = found.improved.any(axis=-1)
        self.open[self.open] = undecided


def effect_of(arm: str, metric: Sampled) -> float:
    """Return 1 if the metric gets worse in proportion to the arm's seconds, -1 if better, 0 if it does not use them."""
    sign = 1.0 if metric.better is Better.LOWER else -1.0
    return sign * ((metric.numerator == arm) - (metric.denominator == arm))


def slowed_scenarios(pool: Pool, arm: str, within: str = "") -> list[int]:
    """Return the indices of the scenarios with `within` in their names and a metric that the arm's seconds make worse.

    Raises CalibrationError if there is none.
    """
    scenarios = [each.scenario for each in pool.measurements]
    sampled = [[metric for metric in each.metrics if isinstance(metric, Sampled)] for each in pool.measurements]
    worse = [index for index, metrics in enumerate(sampled) if any(effect_of(arm, metric) > 0 for metric in metrics)]
    found = [index for index in worse if within in scenarios[index]]
    if worse and not found:
        raise CalibrationError(f"no scenario that {arm!r} slows down has {within!r} in its name: {scenarios}")
    if not found:
        arms = sorted(
            {arm for metrics in sampled for each in metrics for arm in (each.numerator, each.denominator) if arm}
        )
        raise CalibrationError(f"no metric gets worse with the seconds of an arm {arm!r}; the arms are {arms}")
    return found


class Draws(ABC):
    """A source of simulated runs.

    pool: the workers of the candidate. policy: how a run is judged. disturbances: those that `draw` accepts.
    """

    pool: Pool
    policy: Policy
    disturbances: tuple[Disturbance, ...] = ()

    @abstractmethod
    def draw(self, random: np.random.Generator, runs: int) -> Callable[[Disturbance | None], Iterator[Evidence | None]]:
        """Draw `runs` runs. Returns a function that yields their evidence at each look, for a disturbance or None.

        It yields None if there are too few workers to judge anything.
        """

    @property
    def rows(self) -> int:
        """Number of sampled rows of a run, with the pooled ones."""
        own = _lines(self.pool)
        evidence, unable = gather_evidence(
            [compare_to_record(s, m, v, v, threshold=m.threshold) for s, m, v in own], self.policy
        )
        return len(unable) + (0 if evidence is None else len(evidence.comparisons))


def _lines(pool: Pool) -> list[tuple[str, Sampled, Values]]:
    """Return scenario, metric and values of every sampled metric."""
    return [
        (each.scenario, metric, values(metric, each))
        for each in pool.measurements
        for metric in each.metrics
        if isinstance(metric, Sampled)
    ]


class RecordDraws(Draws):
    """Records with a candidate each, drawn from one pool of workers."""

    def __init__(
        self, pool: Pool, policy: Policy, split: Split, conditions: Sequence[Condition], seed: int = 0
    ) -> None:
        """Compute the disturbed samples of the pool for `conditions`. Deterministic for a seed."""
        self.pool, self.policy, self._split = pool, policy, split
        self._lines = _lines(pool)
        self.disturbances = tuple(
            dict.fromkeys(condition.disturbance for condition in conditions if condition.disturbance is not None)
        )
        self._disturbed = {
            disturbance: disturbed_values(disturbance, pool, split.looks[-1], np.random.default_rng([seed, 1, number]))
            for number, disturbance in enumerate(self.disturbances)
        }

    def draw(self, random: np.random.Generator, runs: int) -> Callable[[Disturbance | None], Iterator[Evidence | None]]:
        """See Draws.draw."""
        reference, now = self._split.draw(random, self.pool.workers, runs)
        return lambda disturbance: self._looks(reference, now, disturbance)

    def _looks(
        self, reference: NDArray[np.intp], now: NDArray[np.intp], disturbance: Disturbance | None
    ) -> Iterator[Evidence | None]:
        sides = [self._sides(line, reference, now, disturbance) for line in range(len(self._lines))]
        for look in self._split.looks:
            found: list[Comparison] = []
            for (scenario, metric, _), (ours, theirs) in zip(self._lines, sides, strict=True):
                # All workers of a record are there at the first look.
                first = ours.only(ours.workers[:look])
                found.append(compare_to_record(scenario, metric, first, theirs, threshold=metric.threshold))
            yield gather_evidence(found, self.policy)[0]

    def _sides(
        self, line: int, reference: NDArray[np.intp], now: NDArray[np.intp], disturbance: Disturbance | None
    ) -> tuple[Values, Values]:
        recorded = self._lines[line][2]
        ours, theirs = recorded.drawn(now), recorded.drawn(reference)
        if disturbance is None:
            return ours, theirs
        run, record = self._disturbed[disturbance][line]
        return Values(ours.workers, run[now, np.arange(now.shape[1])]), Values(theirs.workers, record[reference])


class PairedDraws(Draws):
    """Paired runs, drawn from one pool of pairs."""

    def __init__(self, pairs: Pairs, policy: Policy, looks: Sequence[int]) -> None:
        """looks: numbers of pairs, ascending. No pair is twice in a run."""
        self.pool, self.policy, self._looks = pairs.now, policy, tuple(looks)
        self._sides = list(zip(_lines(pairs.now), _lines(pairs.base), strict=True))

    def draw(self, random: np.random.Generator, runs: int) -> Callable[[Disturbance | None], Iterator[Evidence | None]]:
        """See Draws.draw."""
        pairs = self.pool.workers
        chosen = random.permuted(np.tile(np.arange(pairs), (runs, 1)), axis=1)[:, : self._looks[-1]]
        return lambda _: (self._evidence(chosen[:, :look]) for look in self._looks)

    def _evidence(self, chosen: NDArray[np.intp]) -> Evidence | None:
        found = [
            compare_paired(scenario, metric, now.drawn(chosen), base.drawn(chosen), self.policy)
            for (scenario, metric, now), (_, _, base) in self._sides
        ]
        return gather_evidence(found, self.policy)[0]


def simulate(
    draws: Draws,
    conditions: Sequence[Condition],
    *,
    arm: str,
    within: str = "",
    runs: int,
    seed: int = 0,
    progress: Progress = lambda _done, _all: None,
) -> Mapping[Condition, Tally]:
    """Draw `runs` runs and judge them under every condition, each condition on the same draws.

    As a real run, a simulated one ends at the first look at which no row is undecided, and the verdict at its last
    look counts. Deterministic for a seed. progress: called with the number of finished runs and that of all runs.
    """
    if unknown := {condition.disturbance for condition in conditions} - {None, *draws.disturbances}:
        raise ValueError(f"runs cannot be drawn under {', '.join(each.name for each in unknown if each)}")
    slow = slowed_scenarios(draws.pool, arm, within)
    scenarios = [each.scenario for each in draws.pool.measurements]
    random = np.random.default_rng([seed, 0])
    counts = {condition: np.zeros(3, dtype=int) for condition in conditions}
    for start in range(0, runs, CHUNK):
        size = min(CHUNK, runs - start)
        drawn = draws.draw(random, size)
        turn = np.array(slow)[np.arange(start, start + size) % len(slow)]
        one = turn[:, None] == np.arange(len(scenarios))
        for disturbance in (None, *draws.disturbances):
            looks = list(drawn(disturbance))
            for condition in conditions:
                if condition.disturbance is disturbance:
                    slowed = one | np.isin(np.arange(one.shape[1]), slow) if condition.everywhere else one
                    effects = np.log1p(condition.slowdown) * slowed
                    states = _ended(looks, arm, dict(zip(scenarios, effects.T, strict=True)), draws.policy, size)
                    counts[condition] += [states.red.sum(), states.undecided.sum(), states.improved.sum()]
        progress(start + size, runs)
    return {
        condition: Tally(int(red), int(undecided), int(up), runs) for condition, (red, undecided, up) in counts.items()
    }


def _ended(
    looks: Sequence[Evidence | None], arm: str, slower: Mapping[str, Floats], policy: Policy, runs: int
) -> _RunStates:
    """slower: scenario -> how much slower the arm is, on the log scale, (runs,)."""
    states = _RunStates.none(runs)
    for look, evidence in enumerate(looks, 1):
        if evidence is None:
            states.take(None)
        elif states.open.any():
            shift = shift_of(evidence.comparisons, arm, slower)
            seen = evidence.of(states.open).shifted(shift[states.open])
            states.take(
                decide(
                    seen.contrast,
                    seen.threshold,
                    seen.resolution,
                    alpha=policy.level(look),
                    beta=policy.beta,
                    weights=seen.weights,
                )
            )
    return states


def shift_of(comparisons: Sequence[Comparison], arm: str, slower: Mapping[str, Floats]) -> Floats:
    """Return how much worse each row gets, on the log scale, (runs, rows).

    slower: scenario -> how much slower the arm is, on the log scale, (runs,).
    """
    columns: list[Floats] = []
    for each in comparisons:
        if each.scenario.startswith(POOLED_PREFIX):  # a pooled row follows those that it pools
            own = [c for other, c in zip(comparisons, columns, strict=False) if other.kind == each.kind]
            columns.append(np.mean(own, axis=0))
        else:
            columns.append(effect_of(arm, each.metric) * slower[each.scenario])
    return np.stack(columns, axis=-1)
