"""Bytes that stored prefixes take: what the cache says, and what the allocator says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cache_bench.engines.transformers_prefix_cache import PrefixCacheEngine
from cache_bench.ledger import allocations_of
from cache_bench.model import kv_bytes_per_token, load
from cache_bench.prompts import Prompts, Tokens
from cache_bench.scenarios.bench import BenchScenario
from perf_gate import Better, Comparable, Exact, InvalidPremise, Metric


class _CountedOnly:
    def visit(self, arm: str) -> float:
        raise LookupError(f"memory is counted, not timed; there is no arm {arm!r}")


@dataclass(frozen=True)
class _Memory(BenchScenario):
    prefix: int

    @property
    def id(self) -> str:
        """See Scenario.id."""
        return f"{self.model}-prefix{self.prefix}"

    @property
    def group(self) -> str:
        """See Scenario.group."""
        return f"memory {self.id}"


@dataclass(frozen=True)
class PrefixMemory(_Memory):
    """One stored prefix of `prefix` tokens, and what is left when its second half is evicted."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See Scenario.metrics."""
        return (
            Exact("KV bytes stored", "B"),
            Exact("KV bytes stored / theoretical", ""),
            Exact("bytes kept alive", "B", comparable=Comparable.SOFTWARE),
            Exact("bytes kept alive with an idle buffer", "B", comparable=Comparable.SOFTWARE),
            Exact("bytes kept alive after evicting half", "B", comparable=Comparable.SOFTWARE),
            Exact("bytes kept alive after evicting all", "B", comparable=Comparable.SOFTWARE),
        )

    def build(self) -> PrefixMemoryBench:
        """See BenchScenario.build."""
        return PrefixMemoryBench(self.model, self.prefix)


class PrefixMemoryBench(_CountedOnly):
    """An empty engine."""

    def __init__(self, model: str, prefix: int) -> None:
        self.engine = PrefixCacheEngine(load(model))
        self.per_token = kv_bytes_per_token(model)
        self.prompts = Prompts(model, seed=prefix)
        self.prefix_ids = self.prompts.prefix(prefix)

    def count(self) -> Mapping[str, int | float]:
        """Each from an empty cache."""
        cache = self.engine.cache
        self._store_prefix()
        stored = cache.counters().stored_bytes_live
        kept = []
        for what in (self._store_prefix, self._ask, self._evict_half):
            cache.clear()
            kept.append(allocations_of(what).kept)
        alone, idle, half = kept
        nothing = half + allocations_of(cache.clear).kept
        return {
            "KV bytes stored": stored,
            "KV bytes stored / theoretical": stored / (len(self.prefix_ids) * self.per_token),
            "bytes kept alive": alone,
            "bytes kept alive with an idle buffer": idle,
            "bytes kept alive after evicting half": half,
            "bytes kept alive after evicting all": nothing,
        }

    def _ask(self) -> None:
        self.engine.complete(self.prefix_ids)

    def _store_prefix(self) -> None:
        self._store(self.prefix_ids)

    def _store(self, prompt: Tokens) -> None:
        self.engine.complete(prompt)
        # An idle buffer is memory that may be taken back at any time; what counts here is what is stored.
        self.engine.cache.drop_idle_buffers()

    def _evict_half(self) -> None:
        """Split the prefix in its middle, then evict everything but its first half, which a request has in use."""
        self._store_prefix()
        half = self.prefix_ids[: len(self.prefix_ids) // 2]
        other = np.concatenate([half, (self.prefix_ids[len(half) :] + 1) % int(self.engine.model.config.vocab_size)])
        self._store(other)
        with self.engine.cache.lookup(half):
            self.engine.cache.clear()
        self.engine.cache.drop_idle_buffers()


@dataclass(frozen=True)
class SharedMemory(_Memory):
    """`requests` prompts that begin with the same `prefix` tokens and end in 20 to 50 different ones."""

    requests: int

    @property
    def id(self) -> str:
        """See Scenario.id."""
        return f"{super().id}-requests{self.requests}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See Scenario.metrics."""
        return (
            Exact("KV bytes stored", "B"),
            Exact("KV bytes stored / every shared run once", ""),
            Exact("prompt tokens computed", "tokens"),
            Exact("share of prompt tokens reused", "", better=Better.HIGHER),
            Exact("KV bytes copied", "B"),
            Exact("bytes kept alive", "B", comparable=Comparable.SOFTWARE),
            Exact("idle buffer bytes", "B", comparable=Comparable.SOFTWARE),
            Exact("bytes kept alive after evicting all", "B", comparable=Comparable.SOFTWARE),
        )

    def build(self) -> SharedMemoryBench:
        """See BenchScenario.build."""
        return SharedMemoryBench(self.model, self.prefix, self.requests)


class SharedMemoryBench(_CountedOnly):
    """An empty engine and all prompts."""

    def __init__(self, model: str, prefix: int, requests: int) -> None:
        self.engine = PrefixCacheEngine(load(model))
        self.per_token = kv_bytes_per_token(model)
        prompts = Prompts(model, seed=requests)
        shared = prompts.prefix(prefix)
        lengths = np.random.default_rng(prefix).integers(20, 51, requests)
        self.asked = [np.concatenate([shared, prompts.fresh(int(length))]) for length in lengths]
        # Positions that differ in what comes before them or in themselves: what a trie of the prompts would hold.
        self.distinct = len({prompt[: end + 1].tobytes() for prompt in self.asked for end in range(len(prompt))})

    def count(self) -> Mapping[str, int | float]:
        """From an empty cache; the whole series is asked twice."""
        cache = self.engine.cache
        before = cache.counters()
        self._ask_all()
        after = cache.counters()
        prompt_tokens = sum(map(len, self.asked))
        computed = prompt_tokens - (after.reused_tokens - before.reused_tokens)
        if after.prompt_tokens - before.prompt_tokens != prompt_tokens:
            raise InvalidPremise("the cache has seen other prompts than were asked")
        cache.clear()
        kept = allocations_of(self._ask_all).kept
        stored = kept + allocations_of(cache.drop_idle_buffers).kept
        freed = -allocations_of(cache.clear).kept
        return {
            "KV bytes stored": after.stored_bytes_live,
            "KV bytes stored / every shared run once": after.stored_bytes_live / (self.distinct * self.per_token),
            "prompt tokens computed": computed,
            "share of prompt tokens reused": 1 - computed / prompt_tokens,
            "KV bytes copied": after.copied_bytes - before.copied_bytes,
            "bytes kept alive": stored,
            "idle buffer bytes": kept - stored,
            "bytes kept alive after evicting all": stored - freed,
        }

    def _ask_all(self) -> None:
        for prompt in self.asked:
            self.engine.complete(prompt)
