"""Where a step is made: model, engine, prompts, and the state of the cache that the step asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from cache_bench.engine import Completion
from cache_bench.engines.transformers_prefix_cache import PrefixCacheEngine
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.options import Options
from cache_bench.experiment.plan import Step
from cache_bench.experiment.reading import Reading
from cache_bench.experiment.script import Script
from cache_bench.model import load
from cache_bench.prompts import Tokens
from cache_bench.scenarios.premise import require_agreement, require_reused
from prefix_cache.errors import PrefixCacheError


class _Bytes(NamedTuple):
    """KV that an answer stored and copied; None for arms without a cache."""

    stored: int | None
    copied: int | None


class Laboratory:
    """Makes steps in any order, as after a stop. Times are the engine's own, as in the timed suites.

    Raises ExperimentError where the model has no room for the steps or its KV cannot be cached, ModelUnavailable.
    """

    def __init__(self, options: Options, steps: Sequence[Step]) -> None:
        torch.set_num_threads(options.threads)
        self._model = options.model
        try:
            self.engine = PrefixCacheEngine(load(options.model))
        except PrefixCacheError as error:
            raise ExperimentError(f"{options.model} cannot be cached: {error}") from error
        self._script = Script(options, steps)
        self._series = {step.number: step for step in steps if step.turn}
        self._room: dict[tuple[str, int], int] = {}  # tokens behind a prefix that the requests of a part need
        for step in steps:
            needed = step.suffix + step.reads[-1]
            self._room[step.part, step.prefix] = max(needed, self._room.get((step.part, step.prefix), 0))
        self._hot: tuple[str, int] | None = None  # part and prefix of the latest hit
        self._latest: Step | None = None
        self._warm_up(steps[0])

    def make(self, step: Step) -> list[Reading]:
        """Visit the arms of one step. Raises perf_gate.InvalidPremise where what was timed is not what was meant."""
        prompt = self._script.prompt(step)
        self._prepare(step)
        readings: list[Reading] = []
        answers: list[Completion] = []
        for position, arm in enumerate(step.arms):
            before = self.engine.cache.counters()
            answer = self._answer(step, arm, prompt)
            after = self.engine.cache.counters()
            if answers:
                require_agreement(f"{step.part} {step.number}: {arm} against {step.arms[0]}", answer, answers[0])
            answers.append(answer)
            cached = arm == "warm"
            kept = _Bytes(
                after.stored_bytes_live - before.stored_bytes_live if cached else None,
                after.copied_bytes - before.copied_bytes if cached else None,
            )
            readings += self._readings(step, position, answer, kept)
        self._latest = step
        return readings

    def _answer(self, step: Step, arm: str, prompt: Tokens) -> Completion:
        if arm == "floor":
            answer, reused = self.engine.floor(prompt, step.prefix), step.prefix
        else:
            answer = self.engine.complete(prompt, new_tokens=step.reads[-1], reuse=arm == "warm")
            reused = step.stored if arm == "warm" else 0
        require_reused(f"{step.part} {step.number}: {arm}", answer, reused, len(prompt))
        return answer

    def _readings(self, step: Step, position: int, answer: Completion, kept: _Bytes) -> list[Reading]:
        last = len(answer.tokens)
        return [
            Reading(
                model=self._model,
                part=step.part.value,
                number=step.number,
                turn=step.turn,
                prefix_tokens=step.prefix,
                suffix_tokens=step.suffix,
                arm=step.arms[position],
                position=position,
                output_tokens=read,
                ttft_s=_kept(answer.ttft),
                tpot_s=_kept((answer.seconds[read - 1] - answer.ttft) / (read - 1)) if read > 1 else None,
                latency_s=_kept(answer.seconds[read - 1]),
                total_s=_kept(answer.total) if read == last else None,
                reused_tokens=answer.reused,
                stored_bytes=kept.stored if read == last else None,
                copied_bytes=kept.copied if read == last else None,
            )
            for read in (*(read for read in step.reads if read < last), last)
        ]

    def _prepare(self, step: Step) -> None:
        """Bring the cache into the state that the step begins with, outside of all times."""
        if step.turn:
            self._hot = None
            if step.turn == 1:
                self.engine.start_over()
            elif self._latest is None or self._latest.key != (step.part, step.number - 1):
                self.engine.start_over()
                for turn in range(1, step.turn):  # what a stop has cut off
                    self.engine.complete(self._script.prompt(self._series[step.number - step.turn + turn]))
            return
        wanted = step.part, step.prefix
        if step.prefix and wanted != self._hot:
            # In a buffer that is large enough for all requests of the part: a larger one would begin cold.
            self.engine.complete(self._script.heating(step.prefix, self._room[wanted]))
        self._hot = wanted
        if "floor" in step.arms:
            self.engine.floor(self._script.heating(step.prefix, 1), step.prefix)

    def _warm_up(self, step: Step) -> None:
        """What is built once in a process is nobody's time to first token."""
        prompt = self._script.heating(step.prefix, step.suffix)
        self.engine.complete(prompt, new_tokens=2, reuse=False)
        self.engine.complete(prompt, new_tokens=2)
        self.engine.complete(prompt, new_tokens=2)
        self.engine.start_over()


def _kept(seconds: float) -> float:
    """As the file keeps it, so that it is the same before and after a stop."""
    return round(seconds, 9)
