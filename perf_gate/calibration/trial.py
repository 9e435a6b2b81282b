"""Thousands of runs of the gate over recorded workers: drawn, planted with a slowdown, judged look by look."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perf_gate.calibration.family import Family, Found, Stand, effect_of
from perf_gate.calibration.pool import CalibrationError, Pool
from perf_gate.calibration.rate import Rate
from perf_gate.calibration.split import Split
from perf_gate.calibration.trouble import Trouble, troubled
from perf_gate.judging.decision import Flags
from perf_gate.judging.estimate import Floats

CHUNK = 1000
Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Case:
    """What is done to the candidate of a simulated run.

    slowdown: share by which the arm is slower (0.05 = 5 %). everywhere: in all scenarios, else in one per run, all
    taking turns. trouble: what the machine does meanwhile.
    """

    slowdown: float = 0.0
    everywhere: bool = False
    trouble: Trouble | None = None

    def __str__(self) -> str:
        """In words."""
        if self.trouble is not None:
            return self.trouble.name
        if not self.slowdown:
            return "nothing changed"
        return f"{100 * self.slowdown:g} % slower in {'all scenarios' if self.everywhere else 'one scenario'}"


@dataclass(frozen=True)
class Tally:
    """How runs of one case ended. red: at least one row regressed. undecided: none did, but a row is inconclusive."""

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
class _Ends:
    """How each run of a chunk stands; what is closed does not change any more."""

    red: Flags
    undecided: Flags
    improved: Flags
    open: Flags

    @classmethod
    def none(cls, runs: int) -> _Ends:
        red, undecided, improved = np.zeros((3, runs), dtype=bool)
        return cls(red, undecided, improved, np.ones(runs, dtype=bool))

    def take(self, found: Found) -> None:
        """Take in the verdicts of the runs that are open; those that have nothing undecided end."""
        red, undecided = found.regressed.any(axis=-1), found.undecided.any(axis=-1)
        self.red[self.open] = red
        self.undecided[self.open] = undecided & ~red
        self.improved[self.open] = found.improved.any(axis=-1)
        self.open[self.open] = undecided


def slowable(family: Family, arm: str, within: str = "") -> list[int]:
    """The scenarios with a metric that the arm's seconds make worse, and `within` in their names.

    Raises CalibrationError where there is none.
    """
    worse = sorted({line.scenario for line in family.lines if effect_of(arm, line.metric) > 0})
    found = [index for index in worse if within in family.scenarios[index]]
    if worse and not found:
        raise CalibrationError(f"no scenario that {arm!r} slows down has {within!r} in its name: {family.scenarios}")
    if not found:
        arms = sorted({arm for line in family.lines for arm in (line.metric.numerator, line.metric.denominator) if arm})
        raise CalibrationError(f"no metric gets worse with the seconds of an arm {arm!r}; the arms are {arms}")
    return found


class Draws(ABC):
    """Where runs come from. family: the rows that they are judged by. troubles: what the machine can be made to do."""

    family: Family
    troubles: tuple[Trouble, ...] = ()

    @abstractmethod
    def draw(self, random: np.random.Generator, runs: int) -> Callable[[Trouble | None], Iterator[Stand]]:
        """Draw `runs` runs; what comes back gives their evidence look by look, under a trouble or none."""


class AgainstRecord(Draws):
    """Records with a candidate each, drawn from one pool of workers."""

    def __init__(self, pool: Pool, family: Family, split: Split, cases: Sequence[Case], seed: int = 0) -> None:
        """Disturb the pool's samples for the cases that want it. Deterministic for a seed."""
        self.family, self._pool, self._split = family, pool, split
        self.troubles = tuple(dict.fromkeys(case.trouble for case in cases if case.trouble is not None))
        self._tables = {
            trouble: troubled(trouble, pool, family, split.looks[-1], np.random.default_rng([seed, 1, number]))
            for number, trouble in enumerate(self.troubles)
        }

    def draw(self, random: np.random.Generator, runs: int) -> Callable[[Trouble | None], Iterator[Stand]]:
        """See Draws.draw."""
        reference, now = self._split.draw(random, self._pool.workers, runs)
        return lambda trouble: self._stands(reference, now, trouble)

    def _stands(self, reference: np.ndarray, now: np.ndarray, trouble: Trouble | None) -> Iterator[Stand]:
        if trouble is None:
            ours, theirs = self.family.now[:, now], self.family.reference[:, reference]
        else:
            slowed, apart = self._tables[trouble]
            ours, theirs = slowed[:, now, np.arange(now.shape[1])], apart[:, reference]
        yield from _by_look(self.family, self._split.looks, ours, theirs, whole_reference=True)


class BesideBase(Draws):
    """Paired runs, drawn from one pool of pairs."""

    def __init__(self, family: Family, looks: Sequence[int]) -> None:
        """looks: numbers of pairs, ascending; each run holds different ones."""
        self.family, self._looks = family, tuple(looks)

    def draw(self, random: np.random.Generator, runs: int) -> Callable[[Trouble | None], Iterator[Stand]]:
        """See Draws.draw."""
        pairs = self.family.now.shape[1]
        chosen = random.permuted(np.tile(np.arange(pairs), (runs, 1)), axis=1)[:, : self._looks[-1]]
        ours, theirs = self.family.now[:, chosen], self.family.reference[:, chosen]
        return lambda _: _by_look(self.family, self._looks, ours, theirs, whole_reference=False)


def _by_look(
    family: Family, looks: Sequence[int], now: Floats, reference: Floats, *, whole_reference: bool
) -> Iterator[Stand]:
    """The evidence at each look; values are (lines, runs, workers). A record is whole from the first look on."""
    ours, theirs = np.swapaxes(now, 0, 1), np.swapaxes(reference, 0, 1)
    for look in looks:
        yield family.stand(ours[:, :, :look], theirs if whole_reference else theirs[:, :, :look])


def simulate(
    draws: Draws,
    cases: Sequence[Case],
    *,
    arm: str,
    within: str = "",
    runs: int,
    seed: int = 0,
    tell: Tell = lambda _done, _all: None,
) -> Mapping[Case, Tally]:
    """Draw `runs` runs and judge every case on the same draws.

    A run goes through the looks as a campaign does: it stops where no row is undecided, and what counts is the
    verdict at the last look that it reached. Deterministic for a seed. tell: told the runs done and all runs.
    """
    if unknown := {case.trouble for case in cases} - {None, *draws.troubles}:
        raise ValueError(f"runs cannot be drawn under {', '.join(each.name for each in unknown if each)}")
    family = draws.family
    slow = slowable(family, arm, within)
    random = np.random.default_rng([seed, 0])
    counts = {case: np.zeros(3, dtype=int) for case in cases}
    for start in range(0, runs, CHUNK):
        size = min(CHUNK, runs - start)
        drawn = draws.draw(random, size)
        turn = np.array(slow)[np.arange(start, start + size) % len(slow)]
        one = turn[:, None] == np.arange(len(family.scenarios))
        for trouble in (None, *draws.troubles):
            looks = list(drawn(trouble))
            for case in cases:
                if case.trouble is trouble:
                    slowed = one | np.isin(np.arange(one.shape[1]), slow) if case.everywhere else one
                    shift = family.shift(arm, 1 + case.slowdown, slowed)
                    ends = _ended(family, looks, shift, size)
                    counts[case] += [ends.red.sum(), ends.undecided.sum(), ends.improved.sum()]
        tell(start + size, runs)
    return {case: Tally(int(red), int(undecided), int(up), runs) for case, (red, undecided, up) in counts.items()}


def _ended(family: Family, looks: Sequence[Stand], shift: Floats, runs: int) -> _Ends:
    ends = _Ends.none(runs)
    for look, stand in enumerate(looks, 1):
        if ends.open.any():
            ends.take(family.verdicts(stand.of(ends.open).shifted(shift[ends.open]), look))
    return ends
