"""What a suite may ask of anything that serves prompts with a prefix cache, in process or over a network.

Nothing here assumes tensors, a process of its own, or hits that are exact to the token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Prompt = Sequence[int] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Completion:
    """tokens: new ones. seconds: from handing over the prompt until each was there, increasing.

    total: seconds until the engine was done with the request, what it stores after the last token included.

    reused: prompt tokens not computed again, None where the engine does not tell. logits: [vocabulary], those that
    chose the first new token, None where the engine does not tell.
    """

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    total: float
    reused: int | None
    logits: npt.NDArray[np.float32] | None = None

    @property
    def ttft(self) -> float:
        """Time to first token, seconds."""
        return self.seconds[0]

    @property
    def tpot(self) -> float:
        """Time per further token, seconds; needs at least two tokens."""
        return (self.seconds[-1] - self.seconds[0]) / (len(self.seconds) - 1)


class Engine(ABC):
    """Serves one model, greedily."""

    @abstractmethod
    def complete(self, prompt: Prompt, *, new_tokens: int = 1, reuse: bool = True) -> Completion:
        """Continue `prompt`. reuse=False: compute all of it and neither read nor fill the cache."""

    @abstractmethod
    def floor(self, prompt: Prompt, prefix: int) -> Completion | None:
        """First token computed from prompt[prefix:] alone, over KV of prompt[:prefix] that lies in place already.

        What a cache with zero overhead would take. None where the engine has no such arm.
        """

    @abstractmethod
    def cool(self) -> None:
        """Give back what makes a hot prefix cheaper than a stored one; the next hit is a first hit."""

    @abstractmethod
    def start_over(self) -> None:
        """Forget every prompt."""
