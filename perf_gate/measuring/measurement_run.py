"""Measures all scenarios in fresh workers until every verdict is clear or the budget is spent.

Workers come in batches of two, which boot side by side. The first two only count, also side by side: counting is
free of noise, takes long, and would leave its process in another state than those that are timed. For a record both
count everything, and must agree; a run that is compared with one counts everything once, shared between the two.

Timing is one visit at a time, so that nothing of ours disturbs what is measured. The workers of a batch take turns over
the scenarios in random order and in several passes, which spreads the rounds of a scenario over the life of its worker.

Every timed worker times every scenario that is still valid, also if only one of them is undecided. The pooled row of a
metric needs the same workers in all its scenarios, and a worker for one scenario alone would take as long to start.

With a base, each batch is one worker of the candidate and one of the base. They take turns every round or few, in
balanced random order, over the same prompts in the same orders, so that drift affects both alike. The pair is the unit
of the statistics.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from perf_gate.measurement import Measurement
from perf_gate.measuring.batch import Batch
from perf_gate.measuring.order import balanced_orders
from perf_gate.measuring.progress import Progress
from perf_gate.measuring.samples import SideSamples, Task, TaskSamples
from perf_gate.measuring.slowdown import InjectedSlowdown
from perf_gate.measuring.worker_pool import BOOTSTRAP, Conditions, LostWorkerError, Side, Worker, WorkerPool

Thing = TypeVar("Thing")

BATCH = 2
# Share of the budget that is planned for; the rest is for what a busy machine adds.
PLANNED = 0.9
# The two sides take turns at least this often. Short rounds come in blocks, because a change of process disturbs the
# first round after it.
BLOCK_SECONDS = 0.25
NOTHING_LEFT = "no valid scenario is left"


class MeasurementError(Exception):
    """Nothing could be measured: no worker started, or a slowdown could not be injected."""


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    budget: seconds for the whole run. looks: numbers of workers on each side, ascending, after which verdicts are
    computed; the first is the minimum and the last the maximum. passes: parts into which a worker's rounds of a
    scenario are split. rounds: minimum and maximum of recorded rounds of a scenario in one worker. exact: count only.
    counts: workers that count each scenario. warmups: unrecorded rounds after opening. injected: a slowdown for which
    the workers really wait; for calibration only.
    """

    budget: float = 150.0
    looks: tuple[int, ...] = (8, 10)
    seed: int = 0
    exact: bool = False
    counts: int = BATCH
    passes: int = 2
    rounds: tuple[int, int] = (6, 150)
    warmups: int = 2
    injected: InjectedSlowdown | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for impossible values."""
        if self.budget <= 0:
            raise ValueError(f"a run needs a budget of seconds > 0, not {self.budget}")
        if (
            not self.looks
            or list(self.looks) != sorted(set(self.looks))
            or any(n < BATCH or n % BATCH for n in self.looks)
        ):
            raise ValueError(f"workers start in pairs: looks are even, ascending numbers of workers, not {self.looks}")
        if not 1 <= self.counts <= BATCH:
            raise ValueError(f"a scenario is counted by 1 to {BATCH} workers, not {self.counts}")
        least, most = self.rounds
        if not 1 <= self.passes <= least <= most:
            raise ValueError(f"needs 1 <= passes <= least rounds <= most rounds, not {self.passes}, {self.rounds}")


@dataclass(frozen=True)
class Log:
    """How a run went.

    boot: wall seconds from the start to all scenarios opened, per timed batch. counting: scenario -> wall seconds of
    opening and counting it. rounds: scenario -> recorded rounds in each worker. workers: timed workers on each side.
    lost: one text per worker that was lost. look: the look that ended the run, 1-based. stopped: why it ended. seconds:
    wall time of the run.
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
    """The result of a run: one measurement per task, in their order, and as many of the base if there is one."""

    measurements: tuple[Measurement, ...]
    log: Log
    base: tuple[Measurement, ...] = ()


Undecided = Callable[[Sequence[Measurement], int], AbstractSet[str]]


class MeasurementRun:
    """Measures `tasks` on one side, or on two that take turns. `run` may be called once."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        side: Side,
        base: Side | None = None,
        plan: Plan | None = None,
        conditions: Conditions | None = None,
        progress: Progress | None = None,
        bootstrap: str = BOOTSTRAP,
    ) -> None:
        """Start nothing yet. Raises ValueError if there are no tasks, or two tasks or sides have one name."""
        names = [task.name for task in tasks]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"a run needs tasks with different names, not {names}")
        self._sides = (side,) if base is None else (side, base)
        if len({each.name for each in self._sides}) != len(self._sides):
            raise ValueError(f"the two sides of a run need different names, not {side.name!r} twice")
        self._tasks = {
            task.name: TaskSamples(task, {each.name: SideSamples(task) for each in self._sides}) for task in tasks
        }
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
        self._places = self._turns()
        self._turns_of: dict[str, Iterator[str]] = {}

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The candidate's measurements so far, one per task."""
        return self._shown(self._sides[0])

    @property
    def base(self) -> tuple[Measurement, ...]:
        """The base's measurements so far, one per task; empty without a base."""
        return tuple(chain.from_iterable(map(self._shown, self._sides[1:])))

    def run(self, undecided: Undecided | None = None) -> Outcome:
        """Measure until nothing is undecided, the maximum of workers is reached, or the budget is spent.

        undecided: called with the measurements and the number of the look, returns the scenarios that more workers
        could still decide; None: measure with all workers (a record). Raises MeasurementError if no worker starts. An
        interrupt (KeyboardInterrupt) is raised after every worker has ended.
        """
        self._require_slowed_arm()
        began = time.perf_counter()
        self._progress.expect(BATCH if self._plan.exact else self._plan.looks[-1], self._plan.budget)
        with self._progress, WorkerPool(self._conditions, self._bootstrap) as pool:
            look, stopped = self._measure(pool, undecided, began)
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
        return Outcome(self.measurements, log, self.base)

    def _require_slowed_arm(self) -> None:
        # A slowdown that applies to nothing would look like one that the gate has not detected.
        injected = self._plan.injected
        scenarios = [task_samples.task.scenario for task_samples in self._tasks.values()]
        if injected is not None and (self._plan.exact or not any(map(injected.shares, scenarios))):
            arms = sorted({arm for scenario in scenarios for arm in scenario.arms})
            raise MeasurementError(
                f"the slowdown {injected} cannot be injected: no timed scenario has it; the arms are {arms}"
            )

    def _shares(self, task_samples: TaskSamples) -> Mapping[str, float]:
        return {} if self._plan.injected is None else self._plan.injected.shares(task_samples.task.scenario)

    def _measure(self, pool: WorkerPool, undecided: Undecided | None, began: float) -> tuple[int, str]:
        self._count(pool, began)
        if self._plan.exact or not self._timed():
            return 1, "nothing is timed" if self._valid() else NOTHING_LEFT
        longest = 0.0
        looks = self._plan.looks
        for look, target in enumerate(looks, start=1):
            while len(self._complete) < target:
                spent = time.perf_counter() - began
                if len(self._complete) >= looks[0] and spent + longest > self._plan.budget:
                    return look, f"the budget of {self._plan.budget:g} s was spent"
                batch_began = time.perf_counter()
                self._time(pool, began)
                longest = max(longest, time.perf_counter() - batch_began)
                if not self._timed():
                    return look, NOTHING_LEFT
            if undecided is not None and look < len(looks) and not undecided(self.measurements, look):
                return look, "every verdict is clear"
        return len(looks), "the maximum of workers was measured"

    def _valid(self) -> list[TaskSamples]:
        return [task_samples for task_samples in self._tasks.values() if task_samples.valid]

    def _timed(self) -> list[TaskSamples]:
        return [task_samples for task_samples in self._valid() if task_samples.task.scenario.arms]

    def _uncounted(self) -> list[TaskSamples]:
        times = BATCH if self._paired else self._plan.counts
        return [task_samples for task_samples in self._tasks.values() if not task_samples.counted(times)]

    def _shown(self, side: Side) -> tuple[Measurement, ...]:
        return tuple(task_samples.of(side).measurement(self._complete) for task_samples in self._tasks.values())

    @property
    def _paired(self) -> bool:
        return len(self._sides) == BATCH

    def _turns(self) -> Iterator[str]:
        """Yield the names of the sides in balanced random order, without end."""
        orders = balanced_orders(dict.fromkeys((each.name for each in self._sides), 1), self._seed())
        return chain.from_iterable(orders)

    def _start_workers(self, pool: WorkerPool) -> Batch:
        # The first process may get other memory, so the sides take turns in starting first.
        named = {each.name: each for each in self._sides}
        sides = [named[next(self._places)] for _ in range(BATCH)]
        try:
            workers = pool.start(sides)
        except LostWorkerError as error:
            raise MeasurementError(f"no worker could be started: {error}") from error
        return Batch(pool, workers, sample_key=workers[0].number if self._paired else None)

    def _count(self, pool: WorkerPool, began: float) -> None:
        """Let two workers count everything, and two more if one of them was lost or the sides differ."""
        while self._uncounted():
            self._progress.update(phase="starting to count", seconds=time.perf_counter() - began)
            batch = self._start_workers(pool)
            waiting = (
                self._uncounted()
            )  # in order: neighbours take about as long, so no worker waits long for the other
            while waiting and batch.workers:
                name = waiting[0].task.name
                turns = self._next_counts(batch, waiting)
                start = time.perf_counter()
                self._progress.update(phase="counting", scenario=name, seconds=start - began)
                batch.count(turns, self._seeds(batch)[: len(turns)])
                for _, samples in turns:
                    self._counting[samples.task.name] = time.perf_counter() - start
            self._stop_workers(pool, batch)
        self._counted_at = time.perf_counter() - began

    def _next_counts(self, batch: Batch, waiting: list[TaskSamples]) -> list[tuple[Worker, SideSamples]]:
        """Take from `waiting` what to count next: the same scenario for both workers, or one for each."""
        if self._paired or self._plan.counts == BATCH:
            return waiting.pop(0).turns(batch.workers)
        return [(worker, waiting.pop(0).of(worker.side)) for worker in batch.workers if waiting]

    def _time(self, pool: WorkerPool, began: float) -> None:
        """Start two workers, let them open everything in parallel, then measure in turns."""
        start = time.perf_counter()
        self._progress.update(phase="starting", worker=len(self._complete) + 1, seconds=start - began)
        batch = self._start_workers(pool)
        for task_samples in self._shuffled(self._timed()):
            self._progress.update(phase="opening", scenario=task_samples.task.name, seconds=time.perf_counter() - began)
            batch.open(task_samples, self._seeds(batch), self._plan.warmups, self._shares(task_samples))
        self._boot.append(time.perf_counter() - start)
        if not self._rounds:
            self._plan_rounds(self._boot[0])
        for turn in range(self._plan.passes):
            for task_samples in self._shuffled(self._timed()):
                if self._whole(batch):
                    self._visit(batch, task_samples, turn, began)
        for task_samples in self._timed():
            batch.close(task_samples)
        self._stop_workers(pool, batch)
        if self._whole(batch):
            sample_keys = (
                [worker.number for worker in batch.workers] if batch.sample_key is None else [batch.sample_key]
            )
            self._complete.extend(sample_keys)

    def _whole(self, batch: Batch) -> bool:
        """Return whether the samples of the batch can be used: a pair needs both of its workers."""
        return not self._paired or len(batch.workers) == BATCH

    def _seed(self) -> int:
        return self._random.randrange(2**32)

    def _seeds(self, batch: Batch) -> list[int]:
        """Return a seed per worker for its orders; the workers of a pair visit the arms in the same order."""
        if self._paired:
            return [self._seed()] * len(batch.workers)
        return [self._seed() for _ in batch.workers]

    def _stop_workers(self, pool: WorkerPool, batch: Batch) -> None:
        """Stop the batch. A lost worker never counts as complete, so its samples are left out."""
        self._lost.extend(batch.lost)
        pool.stop(batch.workers)

    def _visit(self, batch: Batch, task_samples: TaskSamples, turn: int, began: float) -> None:
        """Let each worker in turn run its share of the scenario's rounds."""
        total, passes = self._rounds[task_samples.task.name], self._plan.passes
        rounds = total * (turn + 1) // passes - total * turn // passes
        # Computed once a pass and not between two blocks, where it would disturb the timing.
        estimate = task_samples.of(self._sides[0]).measurement(self._complete)
        for worker, block in self._blocks(batch, task_samples, rounds):
            place = 0 if self._paired else batch.workers.index(worker)
            self._progress.update(
                phase="measuring",
                worker=len(self._complete) + 1 + place,
                scenario=task_samples.task.name,
                rounds=total,
                estimate=estimate,
                seconds=time.perf_counter() - began,
            )
            batch.rounds(worker, task_samples, block, warm_up=not self._paired or warms_up(task_samples))

    def _blocks(self, batch: Batch, task_samples: TaskSamples, rounds: int) -> Iterator[tuple[Worker, int]]:
        """Yield which worker measures next and for how many rounds, until each has run `rounds`."""
        if not self._paired:
            yield from ((worker, rounds) for worker in self._shuffled(batch.workers))
            return
        block = block_rounds(task_samples)
        turns = self._turns_of.setdefault(task_samples.task.name, self._turns())
        for start in range(0, rounds, block):
            for _ in self._sides:
                side = next(turns)
                yield from (
                    (worker, min(block, rounds - start)) for worker in batch.workers if worker.side.name == side
                )

    def _plan_rounds(self, boot: float) -> None:
        """Set once, after the first batch has started, how many rounds each scenario gets in every worker.

        Each scenario gets the same time; what short ones cannot use (the maximum of rounds) goes to the others. The
        number is the same for all workers, so that their values are equally precise.
        """
        least, most = self._plan.rounds
        workers = self._plan.looks[-1] * len(self._sides)
        left = (self._plan.budget * PLANNED - self._counted_at) / workers - boot / BATCH
        waiting = sorted(self._timed(), key=lambda task_samples: task_samples.round_seconds)
        # Each pass, and each block of a pair of several rounds, begins with one that is not recorded.
        if not self._paired:
            left -= self._plan.passes * sum(task_samples.round_seconds for task_samples in waiting)
        for position, task_samples in enumerate(waiting):
            share = left / (len(waiting) - position)
            cost = max(task_samples.round_seconds, 1e-6)
            if self._paired and warms_up(task_samples):
                cost *= 1 + 1 / block_rounds(task_samples)
            rounds = min(most, max(least, int(share / cost)))
            self._rounds[task_samples.task.name] = rounds
            left -= rounds * cost

    def _shuffled(self, items: Iterable[Thing]) -> list[Thing]:
        shuffled = list(items)
        self._random.shuffle(shuffled)
        return shuffled


def block_rounds(task_samples: TaskSamples) -> int:
    """Return how many rounds one side of a pair runs before the other one's turn."""
    return max(1, math.ceil(BLOCK_SECONDS / max(task_samples.round_seconds, 1e-6)))


def warms_up(task_samples: TaskSamples) -> bool:
    """Return whether a block begins with an unrecorded round. It does not if a block is one round, whose cost it would
    double."""
    return block_rounds(task_samples) > 1
