"""No cache: the same interface, nothing reused. The cold arm of every comparison, and `off` in production."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from prefix_cache.abstract import Hit, PromptCache
from prefix_cache.counters import Counters
from prefix_cache.namespace import Label
from prefix_cache.positions import learned_positions
from prefix_cache.prompt import TokenIds, refuse_strange
from prefix_cache.tokens import TokenArray


class _Miss(Hit):
    def __init__(self, cache: NullPrefixCache, tokens: TokenArray) -> None:
        self.length = self.matched = 0
        self.kv = DynamicCache(config=cache.model.config)
        self.prompt = tokens
        self.suffix = cache.suffix_of(tokens, 0, cache.model.device)

    def store(self, token_ids: TokenIds | None = None) -> int:
        del token_ids
        return 0


class NullPrefixCache(PromptCache):
    """Every lookup misses and nothing is ever stored."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self._requests = 0
        self._prompt_tokens = 0
        two = torch.zeros((1, 2), dtype=torch.long, device=model.device)
        with torch.no_grad():
            self.positions.learned = learned_positions(model, lambda: model(two))

    def _lookup(self, tokens: TokenArray, adapter: Label, salt: Label, room: int) -> Hit:
        del adapter, salt, room
        self.positions.require(len(tokens))
        refuse_strange(tokens, self._vocab_size)
        self._requests += 1
        self._prompt_tokens += len(tokens)
        return _Miss(self, tokens)

    def _release(self, hit: Hit) -> None:
        """Nothing is held."""

    def counters(self) -> Counters:
        """Requests and prompt tokens; all else stays 0."""
        return Counters(requests=self._requests, prompt_tokens=self._prompt_tokens)

    def clear(self) -> None:
        """Nothing to forget."""

    def check(self) -> None:
        """Nothing to check."""
