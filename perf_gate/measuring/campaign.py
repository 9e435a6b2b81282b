"""One run of the gate: measures all scenarios in fresh workers until it is decided or the budget is spent.

Workers come in batches of two, which boot side by side. The first two only count, also side by side: counting is
free of noise, takes long, and would leave its process in another state than those that are timed. For a record both
count everything, and must agree; a run that is compared with one counts everything once, shared between the two.

Timing is one visit at a time, so that nothing of ours disturbs what is measured. The workers of a batch take turns over
the scenarios in random order and in several passes, which spreads the rounds of a scenario over the life of its worker.

Every timed worker visits every scenario that is still valid, also where only one of them is undecided: the pooled
row of a metric needs the same workers in all its scenarios, and further workers for the undecided scenario
alone would boot at the full price for a fraction of the evidence.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from perf_gate.measurement import Measurement
from perf_gate.measuring.batch import Batch
from perf_gate.measuring.crew import BOOTSTRAP, Conditions, Crew, LostWorkerError, Side, Worker
from perf_gate.measuring.evidence import Evidence, Task
from perf_gate.measuring.plant import Plant
from perf_gate.measuring.progress import Progress

Thing = TypeVar("Thing")

BATCH = 2
# Part of the budget that is planned for; the rest absorbs what a busy machine adds.
PLANNED = 0.9
NOTHING_LEFT = "no scenario is left that could be measured"


class CampaignError(Exception):
    """Nothing is known about any scenario: no worker could be started, or a slowdown could not be planted."""


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    budget: seconds for the whole campaign. looks: numbers of workers, ascending, after which the verdict is
    asked for; the first is the least and the last the most that are measured. passes: parts into which a
    worker's rounds of a scenario are split. rounds: least and most recorded rounds of a scenario in one
    worker. exact: count only. counts: workers that count each scenario. warmups: unrecorded rounds after opening.
    plant: a slowdown that the workers really wait for; for calibration only.
    """

    budget: float = 150.0
    looks: tuple[int, ...] = (8, 10, 12)
    seed: int = 0
    exact: bool = False
    counts: int = BATCH
    passes: int = 2
    rounds: tuple[int, int] = (6, 150)
    warmups: int = 2
    plant: Plant | None = None

    def __post_init__(self) -> None:
        """Refuse impossible plans."""
        if self.budget <= 0:
            raise ValueError(f"a campaign needs a budget of seconds > 0, not {self.budget}")
        if (
            not self.looks
            or list(self.looks) != sorted(set(self.looks))
            or any(n < BATCH or n % BATCH for n in self.looks)
        ):
            raise ValueError(f"workers come in pairs: looks at even, ascending numbers of workers, not {self.looks}")
        if not 1 <= self.counts <= BATCH:
            raise ValueError(f"a scenario is counted by 1 to {BATCH} workers, not {self.counts}")
        least, most = self.rounds
        if not 1 <= self.passes <= least <= most:
            raise ValueError(f"needs 1 <= passes <= least rounds <= most rounds, not {self.passes}, {self.rounds}")


@dataclass(frozen=True)
class Log:
    """What a campaign did.

    counting: scenario -> wall seconds of opening and counting it, beside another worker.
    boot: wall seconds from start to opened, per timed batch. rounds: scenario -> recorded rounds in each worker.
    workers: timed ones. lost: one text per worker that was lost. look: number of the look that ended it
    (1 = the first). stopped: why it ended, in a few words. seconds: wall time of all.
    """

    boot: tuple[float, ...]
    counting: Mapping[str, float]
    rounds: Mapping[str, int]
    workers: int
    lost: tuple[str, ...]
    look: int
    stopped: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What a campaign has seen: one measurement per task, in their order."""

    measurements: tuple[Measurement, ...]
    log: Log


Undecided = Callable[[Sequence[Measurement], int], AbstractSet[str]]


class Campaign:
    """Measures `tasks` on one side. `run` may be called once."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        side: Side,
        plan: Plan | None = None,
        conditions: Conditions | None = None,
        progress: Progress | None = None,
        bootstrap: str = BOOTSTRAP,
    ) -> None:
        """Nothing is started yet. Raises ValueError for tasks without or with equal names."""
        names = [task.name for task in tasks]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"a campaign needs tasks with different names, not {names}")
        self._evidence = {task.name: Evidence(task) for task in tasks}
        self._side = side
        self._plan = plan or Plan()
        self._conditions = conditions or Conditions()
        self._progress = progress or Progress()
        self._bootstrap = bootstrap
        self._random = random.Random(self._plan.seed)  # noqa: S311 - not a secret
        self._rounds: dict[str, int] = {}
        self._complete: list[int] = []
        self._lost: list[str] = []
        self._boot: list[float] = []
        self._counting: dict[str, float] = {}
        self._counted_at = 0.0

    def run(self, undecided: Undecided | None = None) -> Outcome:
        """Measure until nothing is undecided, the most workers are reached, or the budget is spent.

        undecided: told the measurements and the number of the look, says which scenarios further workers
        could still decide; None: go on to the most workers (a record). Raises CampaignError where no worker
        starts, and whatever interrupts it (KeyboardInterrupt) after every worker is down.
        """
        self._refuse_barren_plant()
        began = time.perf_counter()
        self._progress.expect(BATCH if self._plan.exact else self._plan.looks[-1], self._plan.budget)
        with self._progress, Crew(self._conditions, self._bootstrap) as crew:
            look, stopped = self._measure(crew, undecided, began)
        log = Log(
            boot=tuple(self._boot),
            counting=dict(self._counting),
            rounds=dict(self._rounds),
            workers=len(self._complete),
            lost=tuple(self._lost),
            look=look,
            stopped=stopped,
            seconds=time.perf_counter() - began,
        )
        return Outcome(self._measurements(), log)

    def _refuse_barren_plant(self) -> None:
        # A slowdown that slows nothing down would look like one that the gate has missed.
        plant = self._plan.plant
        scenarios = [evidence.task.scenario for evidence in self._evidence.values()]
        if plant is not None and (self._plan.exact or not any(map(plant.shares, scenarios))):
            arms = sorted({arm for scenario in scenarios for arm in scenario.arms})
            raise CampaignError(
                f"the slowdown {plant} cannot be planted: no timed scenario has it; the arms are {arms}"
            )

    def _shares(self, evidence: Evidence) -> Mapping[str, float]:
        return {} if self._plan.plant is None else self._plan.plant.shares(evidence.task.scenario)

    def _measure(self, crew: Crew, undecided: Undecided | None, began: float) -> tuple[int, str]:
        self._count(crew, began)
        if self._plan.exact or not self._timed():
            return 1, "all was counted" if self._valid() else NOTHING_LEFT
        longest = 0.0
        looks = self._plan.looks
        for look, target in enumerate(looks, start=1):
            while len(self._complete) < target:
                spent = time.perf_counter() - began
                if len(self._complete) >= looks[0] and spent + longest > self._plan.budget:
                    return look, f"the budget of {self._plan.budget:g} s was spent"
                batch_began = time.perf_counter()
                self._time(crew, began)
                longest = max(longest, time.perf_counter() - batch_began)
                if not self._timed():
                    return look, NOTHING_LEFT
            if undecided is not None and look < len(looks) and not undecided(self._measurements(), look):
                return look, "all was decided"
        return len(looks), "all workers were measured"

    def _valid(self) -> list[Evidence]:
        return [evidence for evidence in self._evidence.values() if evidence.invalid is None]

    def _timed(self) -> list[Evidence]:
        return [evidence for evidence in self._valid() if evidence.task.scenario.arms]

    def _uncounted(self) -> list[Evidence]:
        return [evidence for evidence in self._valid() if len(evidence.counted) < self._plan.counts]

    def _measurements(self) -> tuple[Measurement, ...]:
        return tuple(evidence.measurement(self._complete) for evidence in self._evidence.values())

    def _hire(self, crew: Crew) -> Batch:
        try:
            return Batch(crew, crew.hire([self._side] * BATCH))
        except LostWorkerError as error:
            raise CampaignError(f"the workers do not start: {error}") from error

    def _count(self, crew: Crew, began: float) -> None:
        """Let two workers count everything; two more where one of them was lost on the way."""
        while self._uncounted():
            self._progress.update(phase="starting to count", seconds=time.perf_counter() - began)
            batch = self._hire(crew)
            waiting = self._uncounted()  # in order: neighbours take about as long, and no worker waits for the other
            while waiting and batch.workers:
                turns = self._turns(batch, waiting)
                start = time.perf_counter()
                self._progress.update(phase="counting", scenario=turns[0][1].task.name, seconds=start - began)
                batch.count(turns, self._seeds(batch)[: len(turns)])
                for _, evidence in turns:
                    self._counting[evidence.task.name] = time.perf_counter() - start
            self._dismiss(crew, batch)
        self._counted_at = time.perf_counter() - began

    def _turns(self, batch: Batch, waiting: list[Evidence]) -> list[tuple[Worker, Evidence]]:
        """Who counts what next: both the same scenario, or each one of its own; takes them off `waiting`."""
        if self._plan.counts == BATCH:
            evidence = waiting.pop(0)
            return [(worker, evidence) for worker in batch.workers]
        return [(worker, waiting.pop(0)) for worker in batch.workers if waiting]

    def _time(self, crew: Crew, began: float) -> None:
        """Boot two workers, let them open everything side by side, then measure in turns."""
        start = time.perf_counter()
        self._progress.update(phase="starting", worker=len(self._complete) + 1, seconds=start - began)
        batch = self._hire(crew)
        for evidence in self._shuffled(self._timed()):
            self._progress.update(phase="opening", scenario=evidence.task.name, seconds=time.perf_counter() - began)
            batch.open(evidence, self._seeds(batch), self._plan.warmups, self._shares(evidence))
        self._boot.append(time.perf_counter() - start)
        if not self._rounds:
            self._share_out(self._boot[0])
        for turn in range(self._plan.passes):
            for evidence in self._shuffled(self._timed()):
                self._visit(batch, evidence, turn, began)
        for evidence in self._timed():
            batch.close(evidence)
        self._dismiss(crew, batch)
        self._complete.extend(worker.number for worker in batch.workers)

    def _seeds(self, batch: Batch) -> list[int]:
        return [self._random.randrange(2**32) for _ in batch.workers]

    def _dismiss(self, crew: Crew, batch: Batch) -> None:
        """Let the batch go. A lost worker never counts as complete, so that what it has seen is left out."""
        self._lost.extend(batch.lost)
        crew.dismiss(batch.workers)

    def _visit(self, batch: Batch, evidence: Evidence, turn: int, began: float) -> None:
        """Let each worker in turn do its share of the scenario's rounds."""
        total, passes = self._rounds[evidence.task.name], self._plan.passes
        rounds = total * (turn + 1) // passes - total * turn // passes
        for worker in self._shuffled(batch.workers):
            self._progress.update(
                phase="measuring",
                worker=len(self._complete) + 1 + batch.workers.index(worker),
                scenario=evidence.task.name,
                rounds=total,
                estimate=evidence.measurement(self._complete),
                seconds=time.perf_counter() - began,
            )
            batch.rounds(worker, evidence, rounds)

    def _share_out(self, boot: float) -> None:
        """Decide once, after the first boot, how many rounds each scenario gets in every worker.

        Each scenario gets the same time; what the cheap ones cannot use (the most rounds) goes to the
        others. The number stays the same for all workers, so that their values are equally sharp.
        """
        least, most = self._plan.rounds
        workers = self._plan.looks[-1]
        left = (self._plan.budget * PLANNED - self._counted_at) / workers - boot / BATCH
        waiting = sorted(self._timed(), key=lambda evidence: evidence.round_seconds)
        # Each pass begins with a round that is not recorded.
        left -= self._plan.passes * sum(evidence.round_seconds for evidence in waiting)
        for position, evidence in enumerate(waiting):
            share = left / (len(waiting) - position)
            cost = max(evidence.round_seconds, 1e-6)
            rounds = min(most, max(least, int(share / cost)))
            self._rounds[evidence.task.name] = rounds
            left -= rounds * cost

    def _shuffled(self, items: Iterable[Thing]) -> list[Thing]:
        shuffled = list(items)
        self._random.shuffle(shuffled)
        return shuffled
