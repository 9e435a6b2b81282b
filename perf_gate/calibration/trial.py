"""Thousands of runs of the gate over recorded workers: drawn, planted with a slowdown, judged look by look."""

from __future__ import annotations

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


def simulate(
    pool: Pool,
    family: Family,
    split: Split,
    cases: Sequence[Case],
    *,
    arm: str,
    within: str = "",
    runs: int,
    seed: int = 0,
    tell: Tell = lambda _done, _all: None,
) -> Mapping[Case, Tally]:
    """Draw `runs` records with a candidate each and judge every case on the same draws.

    A run goes through the looks as a campaign does: it stops where no row is undecided, and what counts is the
    verdict at the last look that it reached. Deterministic for a seed. tell: told the runs done and all runs.
    """
    slow = slowable(family, arm, within)
    tables = {
        trouble: troubled(trouble, pool, family, split.looks[-1], np.random.default_rng([seed, 1, number]))
        for number, trouble in enumerate(dict.fromkeys(case.trouble for case in cases if case.trouble is not None))
    }
    random = np.random.default_rng([seed, 0])
    counts = {case: np.zeros(3, dtype=int) for case in cases}
    for start in range(0, runs, CHUNK):
        size = min(CHUNK, runs - start)
        reference, now = split.draw(random, pool.workers, size)
        turn = np.array(slow)[np.arange(start, start + size) % len(slow)]
        one = turn[:, None] == np.arange(len(family.scenarios))
        for trouble in (None, *tables):
            looks = list(_stands(family, split, reference, now, None if trouble is None else tables[trouble]))
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


def _stands(
    family: Family, split: Split, reference: np.ndarray, now: np.ndarray, table: tuple[Floats, Floats] | None
) -> Iterator[Stand]:
    """The evidence at each look; values are (runs, lines, workers)."""
    if table is None:
        ours, theirs = family.values[:, now], family.values[:, reference]
    else:
        ours, theirs = table[0][:, now, np.arange(now.shape[1])], table[1][:, reference]
    ours, theirs = np.swapaxes(ours, 0, 1), np.swapaxes(theirs, 0, 1)
    for look in split.looks:
        yield family.stand(ours[:, :, :look], theirs)
