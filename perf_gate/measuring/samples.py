"""The samples of one scenario while a run gathers them, and when they are invalid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perf_gate.measurement import Measurement
from perf_gate.measuring.worker_pool import Side, Worker
from perf_gate.metric import Exact, Metric
from perf_gate.scenario import Scenario


@dataclass(frozen=True)
class Task:
    """A scenario with its full name, and its metrics with the thresholds that apply."""

    name: str
    scenario: Scenario
    metrics: tuple[Metric, ...]

    @property
    def fingerprint(self) -> str:
        """Digest of the scenario's class and fields, but not of the file that defines them."""
        asked = [type(self.scenario).__qualname__, self.scenario.fields()]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class SideSamples:
    """Counts and seconds of one task on one side; seconds by number of the worker."""

    task: Task
    counted: list[Mapping[str, int | float]] = field(default_factory=list)
    seconds: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    invalid: str | None = None

    @property
    def round_seconds(self) -> float:
        """Seconds that a round takes on average, each arm weighted by how often it is visited."""
        arms = self.task.scenario.arms
        return sum(self.cost.get(arm, 0.0) / every for arm, every in arms.items())

    def costs(self, cost: Mapping[str, float]) -> None:
        """Add the wall seconds of one visit by arm; the slowest worker counts."""
        for arm, seconds in cost.items():
            self.cost[arm] = max(float(seconds), self.cost.get(arm, 0.0))

    def count(self, counted: Mapping[str, int | float]) -> None:
        """Add the exact metrics of one worker; they have to be the declared ones and equal those of other workers."""
        declared = {metric.name for metric in self.task.metrics if isinstance(metric, Exact)}
        for missing in sorted(declared - counted.keys()):
            self.invalidate(f"exact metric {missing!r} is declared, but count() did not return it")
        for foreign in sorted(counted.keys() - declared):
            self.invalidate(f"count() returned {foreign!r}, which the scenario does not declare in `metrics`")
        for earlier in self.counted[:1]:
            for name in sorted(declared & counted.keys() & earlier.keys()):
                if earlier[name] != counted[name]:
                    self.invalidate(
                        f"exact metric {name!r} varies between workers: {earlier[name]}, {counted[name]};"
                        " make it deterministic or declare it as sampled"
                    )
        self.counted.append(counted)

    def visited(self, worker: int, seconds: Mapping[str, Sequence[float]]) -> None:
        """Add the seconds of more rounds of `worker`. Raises KeyError for an unknown arm."""
        mine = self.seconds.setdefault(worker, {arm: [] for arm in self.task.scenario.arms})
        for arm, values in seconds.items():
            mine[arm].extend(values)

    def invalidate(self, why: str) -> None:
        """Mark the samples as invalid; the first reason is kept."""
        if self.invalid is None:
            self.invalid = why

    def measurement(self, complete: Iterable[int]) -> Measurement:
        """Return the measurement of the workers in `complete`."""
        workers = [number for number in complete if number in self.seconds]
        return Measurement(
            scenario=self.task.name,
            group=self.task.scenario.group,
            metrics=self.task.metrics,
            fingerprint=self.task.fingerprint,
            exact=dict(self.counted[0]) if self.counted else {},
            seconds={
                arm: tuple(tuple(self.seconds[number][arm]) for number in workers)
                for arm in self.task.scenario.arms
                if workers
            },
            invalid=self.invalid,
            worker_names=tuple(str(number) for number in workers),
        )


@dataclass(frozen=True)
class TaskSamples:
    """One task and what each side has shown of it. sides: name of the side -> its evidence."""

    task: Task
    sides: Mapping[str, SideSamples]

    def of(self, side: Side) -> SideSamples:
        """Return the samples of `side`."""
        return self.sides[side.name]

    def turns(self, workers: Sequence[Worker]) -> list[tuple[Worker, SideSamples]]:
        """Return each worker with the samples of its side."""
        return [(worker, self.of(worker.side)) for worker in workers]

    @property
    def valid(self) -> bool:
        """Whether all sides are still valid; a comparison needs both."""
        return all(each.invalid is None for each in self.sides.values())

    @property
    def round_seconds(self) -> float:
        """Seconds that a round takes on the slowest side."""
        return max(each.round_seconds for each in self.sides.values())

    def counted(self, times: int) -> bool:
        """Return whether it was counted often enough to know that its counts do not vary.

        One side alone is counted `times` times. For two sides one count each is enough if they agree, because two
        processes have the same counts then. If they differ, each is counted `times` times, to tell a change from counts
        that vary. An invalid side is not counted again, and neither is the other one.
        """
        able = [each for each in self.sides.values() if each.invalid is None]
        least = min((len(each.counted) for each in able), default=times)
        if len(self.sides) == 1 or least in (0, times):
            return least >= times
        counts = [each.counted[0] for each in able]
        return least >= times or all(count == counts[0] for count in counts)
