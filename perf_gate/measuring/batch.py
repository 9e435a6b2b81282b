"""The workers that are up at the same time, and what becomes of a scenario when one of them fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from perf_gate.measuring.crew import CANDIDATE, Crew, FailedScenarioError, LostWorkerError, Worker
from perf_gate.measuring.evidence import Case, Evidence

Take = Callable[[Worker, Mapping[str, Any]], None]


class Batch:
    """Hands requests about one scenario to workers and spoils the evidence of their side where they fail.

    workers: those still alive. lost: one text per worker that was lost. seat: the number under which what the
    workers see is kept, one for all of them; None: each under its own.
    """

    def __init__(self, crew: Crew, workers: Sequence[Worker], seat: int | None = None) -> None:
        """Take charge of `workers` of `crew`."""
        self.workers = list(workers)
        self.lost: list[str] = []
        self.seat = seat
        self._crew = crew

    def open(self, case: Case, seeds: Sequence[int], warmups: int, plant: Mapping[str, float] | None = None) -> None:
        """Let all workers open the scenario, side by side; one seed per worker.

        plant: see Plant.shares; the base is never slowed down.
        """
        turns = case.turns(self.workers)
        details = [
            opening_of(evidence, seed, warmups, plant if worker.side.name == CANDIDATE else None)
            for (worker, evidence), seed in zip(turns, seeds, strict=False)
        ]
        self._ask_all(turns, "open", details, take_costs)

    def count(self, turns: Sequence[tuple[Worker, Evidence]], seeds: Sequence[int]) -> None:
        """Let each worker open, count and close the scenario beside it, all at the same time."""
        opening = [opening_of(evidence, seed, 0) for (_, evidence), seed in zip(turns, seeds, strict=True)]
        nothing: list[Mapping[str, object]] = [{} for _ in turns]
        self._ask_all(turns, "open", opening, take_costs)
        self._ask_all(turns, "count", nothing, lambda evidence: lambda _, answer: evidence.count(answer["exact"]))
        self._ask_all(turns, "close", nothing, lambda _: lambda _, __: None)

    def rounds(self, worker: Worker, case: Case, rounds: int, *, settle: bool = True) -> None:
        """Let one worker do `rounds` rounds while the others wait. settle: see Stage.rounds."""
        seat = worker.number if self.seat is None else self.seat
        self._alone(
            worker,
            case.of(worker.side),
            partial(worker.ask, "rounds", name=case.task.name, rounds=rounds, settle=settle),
            lambda _, answer: case.of(worker.side).visited(seat, answer["seconds"]),
        )

    def close(self, case: Case) -> None:
        """Let all workers close the scenario."""
        for worker in list(self.workers):
            close = partial(worker.ask, "close", name=case.task.name)
            self._alone(worker, case.of(worker.side), close, lambda _, __: None)

    def _ask_all(
        self,
        turns: Sequence[tuple[Worker, Evidence]],
        ask: str,
        details: Sequence[Mapping[str, object]],
        take: Callable[[Evidence], Take],
    ) -> None:
        """Ask every worker about its scenario, then hear them all, also where one of them fails."""
        asked = []
        for (worker, evidence), detail in zip(turns, details, strict=False):
            if evidence.invalid is None and worker in self.workers:
                act = partial(worker.ask, ask, name=evidence.task.name, **detail)
                if self._guard(worker, evidence, act):
                    asked.append((worker, evidence))
        for worker, evidence in asked:
            self._guard(worker, evidence, partial(hear, worker, take(evidence)))

    def _alone(self, worker: Worker, evidence: Evidence, ask: Callable[[], None], take: Take) -> None:
        if evidence.invalid is None and worker in self.workers and self._guard(worker, evidence, ask):
            self._guard(worker, evidence, partial(hear, worker, take))

    def _guard(self, worker: Worker, evidence: Evidence, act: Callable[[], None]) -> bool:
        """Do `act`; True unless it failed."""
        try:
            act()
        except FailedScenarioError as error:
            # A premise speaks for itself; for everything else the place in the code is what one needs.
            detail = "" if error.kind in ("premise", "value") else f"\n{error.traceback}"
            evidence.spoil(f"{evidence.task.name}: {error}, in {worker}{detail}")
        except LostWorkerError as error:
            evidence.spoil(f"{evidence.task.name}: {error}")
            self.lost.append(str(error))
            self.workers.remove(worker)
            self._crew.forget(worker)
        else:
            return True
        return False


def take_costs(evidence: Evidence) -> Take:
    """What becomes of the answer to "open"."""
    return lambda _, answer: evidence.costs(answer["cost"])


def opening_of(
    evidence: Evidence, seed: int, warmups: int, plant: Mapping[str, float] | None = None
) -> dict[str, object]:
    """What a worker must know to open the scenario."""
    scenario = evidence.task.scenario
    kind = type(scenario)
    return {
        "module": kind.__module__,
        "qualname": kind.__qualname__,
        "file": inspect.getfile(kind),
        "fields": scenario.fields(),
        "warmups": warmups,
        "plant": dict(plant or {}),
        "seed": seed,
    }


def hear(worker: Worker, take: Take) -> None:
    """Wait for the answer of `worker` and take it in; an answer of the wrong shape loses the worker."""
    answer = worker.hear()
    try:
        take(worker, answer)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise worker.nonsense(answer) from error
