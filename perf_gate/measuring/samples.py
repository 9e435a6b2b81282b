"""What a run gathers about one scenario, and when that is worth nothing."""

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
    """A scenario under its full name, with the metrics as they are to be judged."""

    name: str
    scenario: Scenario
    metrics: tuple[Metric, ...]

    @property
    def fingerprint(self) -> str:
        """Digest of what is asked for: class and fields, but not where they are written."""
        asked = [type(self.scenario).__qualname__, self.scenario.fields()]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class SideSamples:
    """Everything known of one task so far; samples by number of the worker."""

    task: Task
    counted: list[Mapping[str, int | float]] = field(default_factory=list)
    seconds: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    invalid: str | None = None

    @property
    def round_seconds(self) -> float:
        """What a round costs on average, each arm weighted by how often it is visited."""
        arms = self.task.scenario.arms
        return sum(self.cost.get(arm, 0.0) / every for arm, every in arms.items())

    def costs(self, cost: Mapping[str, float]) -> None:
        """Take in the wall seconds of one visit by arm; the dearest worker counts."""
        for arm, seconds in cost.items():
            self.cost[arm] = max(float(seconds), self.cost.get(arm, 0.0))

    def count(self, counted: Mapping[str, int | float]) -> None:
        """Take in the exact metrics of one worker; they must be the declared ones, and those of the
        others."""
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
        """Take in the seconds of further rounds of `worker`. Raises KeyError for an arm that there is none
        of."""
        mine = self.seconds.setdefault(worker, {arm: [] for arm in self.task.scenario.arms})
        for arm, values in seconds.items():
            mine[arm].extend(values)

    def invalidate(self, why: str) -> None:
        """Nothing may be concluded any more; the first reason is kept."""
        if self.invalid is None:
            self.invalid = why

    def measurement(self, complete: Iterable[int]) -> Measurement:
        """Return what the `complete` workers have seen."""
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
        """What `side` has shown."""
        return self.sides[side.name]

    def turns(self, workers: Sequence[Worker]) -> list[tuple[Worker, SideSamples]]:
        """Each worker with the evidence of its side."""
        return [(worker, self.of(worker.side)) for worker in workers]

    @property
    def valid(self) -> bool:
        """Whether something may still be concluded; a comparison needs both of its sides."""
        return all(each.invalid is None for each in self.sides.values())

    @property
    def round_seconds(self) -> float:
        """What a round costs on the dearest side."""
        return max(each.round_seconds for each in self.sides.values())

    def counted(self, times: int) -> bool:
        """Whether it was counted often enough to know that its counts do not vary.

        One side alone is counted `times` times. Of two sides one count each is enough where they agree: they are two
        processes that came to the same. Where they differ, each is counted `times` times, to tell a change from counts
        that vary. Nothing is wanted of a side that is invalid, and no second count where the other one is.
        """
        able = [each for each in self.sides.values() if each.invalid is None]
        least = min((len(each.counted) for each in able), default=times)
        if len(self.sides) == 1 or least in (0, times):
            return least >= times
        counts = [each.counted[0] for each in able]
        return least >= times or all(count == counts[0] for count in counts)
