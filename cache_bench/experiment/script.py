"""The token ids of every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cache_bench.experiment.options import Options
from cache_bench.experiment.plan import Step
from cache_bench.experiment.room import require_beginnings, require_lengths
from cache_bench.prompts import Prompts, Tokens


class Script:
    """All prompts begin with the same system prompt; no two go on with the same token, nor as the system prompt does.

    So a hit is exactly the prefix of its step, whatever else is stored. Raises ExperimentError where the model has no
    room for them.
    """

    def __init__(self, options: Options, steps: Sequence[Step]) -> None:
        self._steps = {step.key: index for index, step in enumerate(steps)}
        prompts = Prompts(options.model, options.seed)
        require_lengths(options, steps, prompts)
        self._text = prompts.prefix(max(step.prefix for step in steps))
        require_beginnings(options, steps, self._text, prompts.vocabulary)
        self._suffixes = [self._fresh(prompts, step.suffix) for step in steps]
        self._heater = self._fresh(prompts, max(step.suffix + step.reads[-1] for step in steps))

    def prompt(self, step: Step) -> Tokens:
        """Prefix and suffix."""
        return np.concatenate([self._text[: step.prefix], self._suffixes[self._steps[step.key]]])

    def heating(self, prefix: int, further: int) -> Tokens:
        """A prompt that makes a prefix hot, with room for `further` tokens behind it."""
        return np.concatenate([self._text[:prefix], self._heater[:further]])

    def _fresh(self, prompts: Prompts, length: int) -> Tokens:
        # Not even with a token of the text: it might be the one that goes on there.
        while (tokens := prompts.fresh(length))[0] in self._text:
            pass
        return tokens
