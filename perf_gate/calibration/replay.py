"""Judge real runs again: as they were, and with their seconds multiplied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perf_gate.calibration.simulation import Condition, Tally
from perf_gate.judging.judge import judge, judge_paired, undecided
from perf_gate.judging.policy import Policy
from perf_gate.measurement import Measurement
from perf_gate.records.runfile import Run
from perf_gate.records.section import Section
from perf_gate.verdict import Exit, Row, Verdict, exit_status


@dataclass(frozen=True)
class ReplayedRun:
    """How a run ended. look: the last one that it reached, from 1."""

    rows: tuple[Row, ...]
    look: int

    @property
    def red(self) -> bool:
        """Whether any row regressed."""
        return exit_status(self.rows) is Exit.REGRESSED

    @property
    def undecided(self) -> bool:
        """Whether it ended without a verdict."""
        return exit_status(self.rows) is Exit.CANNOT_JUDGE


@dataclass(frozen=True)
class Replayer(ABC):
    """Judges real runs again.

    looks: numbers of workers (or of pairs), ascending, after which to judge a run whose file does not have them.
    """

    policy: Policy
    looks: tuple[int, ...]

    @abstractmethod
    def rows(self, run: Run, workers: int, policy: Policy, look: int) -> list[Row]:
        """Return the verdicts on the first `workers` workers of a run. look: its number, from 1."""

    def replay(self, run: Run) -> ReplayedRun:
        """Judge a run look by look until nothing is undecided.

        If a run has fewer workers than a look needs, it is judged with those at the level of this look, and ends
        there, as a run whose budget is used up.
        """
        have = max((each.workers for each in run.measurements), default=0)
        looks = self.looks if run.terms is None else run.terms.looks
        rows: list[Row] = []
        look = 0
        for look, workers in enumerate(looks, 1):
            rows = self.rows(run, workers, replace(self.policy, looks=len(looks)), look)
            if workers > have or not undecided(rows):
                break
        return ReplayedRun(tuple(rows), look)

    def tally(
        self, runs: Sequence[Run], condition: Condition, *, arm: str, slow: Sequence[str]
    ) -> tuple[Tally, list[str]]:
        """Return how runs end under a condition, and what did not pass, e.g. "run 2: SCENARIO: METRIC: regressed".

        slow: names of the scenarios to slow down, all or one per run in turn, as in
        `perf_gate.calibration.simulation.simulate`.
        """
        ends = []
        for number, run in enumerate(runs):
            chosen = slow if condition.everywhere else [slow[number % len(slow)]]
            ends.append(self.replay(injected(run, arm, dict.fromkeys(chosen, 1 + condition.slowdown))))
        improved = sum(any(row.verdict is Verdict.IMPROVED for row in end.rows) for end in ends)
        found = Tally(sum(end.red for end in ends), sum(end.undecided for end in ends), improved, len(ends))
        return found, [f"run {number}: {text}" for number, end in enumerate(ends, 1) for text in _what(end.rows)]


@dataclass(frozen=True)
class RecordReplayer(Replayer):
    """Runs that are compared with a record."""

    record: Section

    def rows(self, run: Run, workers: int, policy: Policy, look: int) -> list[Row]:
        """See Replayer.rows."""
        return judge(
            [_first(each, workers) for each in run.measurements],
            self.record.measurements,
            policy=policy,
            look=look,
            machine=run.section.machine,
            software=run.section.provenance.software,
            reference_software=self.record.provenance.software,
        )


@dataclass(frozen=True)
class PairedReplayer(Replayer):
    """Runs that are compared with their base."""

    def rows(self, run: Run, workers: int, policy: Policy, look: int) -> list[Row]:
        """See Replayer.rows."""
        return judge_paired(
            [_first(each, workers) for each in run.measurements],
            [_first(each, workers) for each in run.base_measurements],
            policy=policy,
            look=look,
        )


def injected(run: Run, arm: str, factors: Mapping[str, float]) -> Run:
    """Return the run with the arm's seconds multiplied. factors: by scenario."""
    changed = tuple(_slower(each, arm, factors.get(each.scenario, 1.0)) for each in run.section.measurements)
    return replace(run, section=replace(run.section, measurements=changed))


def _slower(measurement: Measurement, arm: str, factor: float) -> Measurement:
    if arm not in measurement.seconds or factor == 1.0:
        return measurement
    slower = tuple(tuple(factor * value for value in visits) for visits in measurement.seconds[arm])
    return replace(measurement, seconds={**measurement.seconds, arm: slower})


def _first(measurement: Measurement, workers: int) -> Measurement:
    return replace(
        measurement,
        seconds={arm: per_worker[:workers] for arm, per_worker in measurement.seconds.items()},
        worker_names=measurement.names[:workers],
    )


def _what(rows: Iterable[Row]) -> list[str]:
    wrong = [row for row in rows if row.verdict not in (Verdict.PASS, Verdict.IMPROVED) and not row.optional]
    return [f"{row.scenario}: {row.metric.name if row.metric else '-'}: {row.verdict.value}" for row in wrong]
