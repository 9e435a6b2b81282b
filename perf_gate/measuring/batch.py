"""The workers that run at the same time, and what happens to a scenario when one of them fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from perf_gate.measuring.samples import SideSamples, TaskSamples
from perf_gate.measuring.worker_pool import CANDIDATE, FailedScenarioError, LostWorkerError, Worker, WorkerPool

Take = Callable[[Worker, Mapping[str, Any]], None]


class Batch:
    """Sends requests about one scenario to workers, and invalidates the samples of their side if they fail.

    workers: those still alive. lost: one text per worker that was lost. sample_key: the number under which the samples
    of all workers are kept; None: each under its own.
    """

    def __init__(self, pool: WorkerPool, workers: Sequence[Worker], sample_key: int | None = None) -> None:
        """Keep `workers` of `pool`."""
        self.workers = list(workers)
        self.lost: list[str] = []
        self.sample_key = sample_key
        self._pool = pool

    def open(
        self, task_samples: TaskSamples, seeds: Sequence[int], warmups: int, injected: Mapping[str, float] | None = None
    ) -> None:
        """Let all workers open the scenario in parallel; one seed per worker.

        injected: see InjectedSlowdown.shares; the base is never slowed down.
        """
        turns = task_samples.turns(self.workers)
        details = [
            opening_of(samples, seed, warmups, injected if worker.side.name == CANDIDATE else None)
            for (worker, samples), seed in zip(turns, seeds, strict=False)
        ]
        self._ask_all(turns, "open", details, take_costs)

    def count(self, turns: Sequence[tuple[Worker, SideSamples]], seeds: Sequence[int]) -> None:
        """Let each worker open, count and close the scenario that it is paired with, all in parallel."""
        opening = [opening_of(samples, seed, 0) for (_, samples), seed in zip(turns, seeds, strict=True)]
        nothing: list[Mapping[str, object]] = [{} for _ in turns]
        self._ask_all(turns, "open", opening, take_costs)
        self._ask_all(turns, "count", nothing, lambda samples: lambda _, answer: samples.count(answer["exact"]))
        self._ask_all(turns, "close", nothing, lambda _: lambda _, __: None)

    def rounds(self, worker: Worker, task_samples: TaskSamples, rounds: int, *, warm_up: bool = True) -> None:
        """Let one worker run `rounds` rounds while the others wait. warm_up: see ScenarioHost.rounds."""
        sample_key = worker.number if self.sample_key is None else self.sample_key
        self._alone(
            worker,
            task_samples.of(worker.side),
            partial(worker.ask, "rounds", name=task_samples.task.name, rounds=rounds, warm_up=warm_up),
            lambda _, answer: task_samples.of(worker.side).visited(sample_key, answer["seconds"]),
        )

    def close(self, task_samples: TaskSamples) -> None:
        """Let all workers close the scenario."""
        for worker in list(self.workers):
            close = partial(worker.ask, "close", name=task_samples.task.name)
            self._alone(worker, task_samples.of(worker.side), close, lambda _, __: None)

    def _ask_all(
        self,
        turns: Sequence[tuple[Worker, SideSamples]],
        ask: str,
        details: Sequence[Mapping[str, object]],
        take: Callable[[SideSamples], Take],
    ) -> None:
        """Send a request to every worker, then receive all answers, also if one of them fails."""
        asked = []
        for (worker, samples), detail in zip(turns, details, strict=False):
            if samples.invalid is None and worker in self.workers:
                act = partial(worker.ask, ask, name=samples.task.name, **detail)
                if self._guard(worker, samples, act):
                    asked.append((worker, samples))
        for worker, samples in asked:
            self._guard(worker, samples, partial(receive, worker, take(samples)))

    def _alone(self, worker: Worker, samples: SideSamples, ask: Callable[[], None], take: Take) -> None:
        if samples.invalid is None and worker in self.workers and self._guard(worker, samples, ask):
            self._guard(worker, samples, partial(receive, worker, take))

    def _guard(self, worker: Worker, samples: SideSamples, act: Callable[[], None]) -> bool:
        """Run `act`. Returns False if it failed."""
        try:
            act()
        except FailedScenarioError as error:
            # A premise explains itself; anything else needs the traceback.
            detail = "" if error.kind in ("premise", "value") else f"\n{error.traceback}"
            samples.invalidate(f"{samples.task.name}: {error}, in {worker}{detail}")
        except LostWorkerError as error:
            samples.invalidate(f"{samples.task.name}: {error}")
            self.lost.append(str(error))
            self.workers.remove(worker)
            self._pool.discard(worker)
        else:
            return True
        return False


def take_costs(samples: SideSamples) -> Take:
    """Return what to do with the answer to "open"."""
    return lambda _, answer: samples.costs(answer["cost"])


def opening_of(
    samples: SideSamples, seed: int, warmups: int, injected: Mapping[str, float] | None = None
) -> dict[str, object]:
    """Return the request to open the scenario."""
    scenario = samples.task.scenario
    kind = type(scenario)
    return {
        "module": kind.__module__,
        "qualname": kind.__qualname__,
        "file": inspect.getfile(kind),
        "fields": scenario.fields(),
        "warmups": warmups,
        "slowdown": dict(injected or {}),
        "seed": seed,
    }


def receive(worker: Worker, take: Take) -> None:
    """Wait for the answer of `worker` and store it. Raises LostWorkerError if it has the wrong shape."""
    answer = worker.receive()
    try:
        take(worker, answer)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise worker.bad_answer(answer) from error
