"""The first engine: `prefix_cache` on transformers, in this process."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from cache_bench.engine import Completion, Engine, Prompt
from cache_bench.floor import Floor
from prefix_cache import NullPrefixCache, PrefixCache, PromptCache

FLOOR_ROOM = 64  # tokens that the floor's buffer holds behind its prefix


class PrefixCacheEngine(Engine):
    """Warm through `cache`, cold through `none`; both open to suites that are about the cache itself."""

    def __init__(self, model: PreTrainedModel, cache: PrefixCache | None = None) -> None:
        self.model = model
        self.cache = cache if cache is not None else PrefixCache(model)
        self.none = NullPrefixCache(model)
        self._floors: dict[bytes, Floor] = {}

    def complete(self, prompt: Prompt, *, new_tokens: int = 1, reuse: bool = True) -> Completion:
        """See Engine.complete. A token counts as there when its number is known; what was computed is stored after."""
        cache: PromptCache = self.cache if reuse else self.none
        tokens: list[int] = []
        seconds: list[float] = []
        start = perf_counter()
        with cache.lookup(prompt, room=new_tokens - 1) as hit:
            first = logits = cache.run(hit.suffix, hit.kv)
            while True:
                tokens.append(int(logits.argmax()))
                seconds.append(perf_counter() - start)
                if len(tokens) == new_tokens:
                    break
                logits = cache.run(torch.tensor([tokens[-1:]]), hit.kv)
            hit.store([*hit.prompt.tolist(), *tokens[:-1]] if new_tokens > 1 else None)
        total = perf_counter() - start
        return _completion(tokens, seconds, total, hit.length, first)

    def floor(self, prompt: Prompt, prefix: int) -> Completion:
        """See Engine.floor. The prefix is computed on the first call for it, outside the time."""
        ids = np.asarray(prompt, dtype=np.int64)
        key = ids[:prefix].tobytes()
        if key not in self._floors:
            self._floors[key] = Floor(self.model, self.none.kv_argument, self._row(ids[:prefix]), FLOOR_ROOM)
        kv = self._floors[key].rewind()
        start = perf_counter()
        logits = self.none.run(self._row(ids[prefix:]), kv)
        token = int(logits.argmax())
        seconds = perf_counter() - start
        return _completion([token], [seconds], seconds, prefix, logits)

    def cool(self) -> None:
        """See Engine.cool."""
        self.cache.forget_idle_buffers()

    def start_over(self) -> None:
        """See Engine.start_over."""
        self.cache.clear()
        self._floors.clear()

    def _row(self, ids: npt.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(ids).unsqueeze(0)


def _completion(tokens: list[int], seconds: list[float], total: float, reused: int, logits: torch.Tensor) -> Completion:
    return Completion(tuple(tokens), tuple(seconds), total, reused, logits[0].float().numpy())
