"""What needs no clock: bytes of a stored prefix, and the FLOPs of the arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cache_bench.engines.transformers_prefix_cache import PrefixCacheEngine
from cache_bench.experiment.options import Options
from cache_bench.ledger import allocations_of, calls_of
from cache_bench.model import kv_bytes_per_token, load
from cache_bench.prompts import Prompts


@dataclass(frozen=True)
class Count:
    """Of a prefix of `prefix_tokens` and, for the FLOPs, a suffix of `suffix_tokens` behind it.

    formula_bytes: 2 x layers x KV heads x head dim x bytes per element x tokens. stored_bytes: what the cache says.
    kept_bytes: what the allocator says is alive because of it. cold_flops, hit_flops: of a forward pass over
    everything, and over the suffix alone.
    """

    prefix_tokens: int
    suffix_tokens: int
    formula_bytes: int
    stored_bytes: int
    kept_bytes: int
    cold_flops: int
    hit_flops: int


def count(options: Options, prefix: int) -> Count:
    """Count one prefix; the suffix is half-way between the shortest and the longest."""
    engine, prompts = PrefixCacheEngine(load(options.model)), Prompts(options.model, options.seed)
    suffix = sum(options.suffixes) // 2
    shared = prompts.prefix(prefix)
    prompt = np.concatenate([shared, prompts.fresh(suffix)])

    def store() -> None:
        engine.complete(shared)
        engine.cache.drop_idle_buffers()  # memory that may be taken back at any time is not what a prefix takes

    store()  # what is built once in a process
    stored = engine.cache.counters().stored_bytes_live
    engine.start_over()
    kept = allocations_of(store).kept
    engine.floor(prompt, prefix)  # computes the prefix, which is nobody's hit
    return Count(
        prefix,
        suffix,
        prefix * kv_bytes_per_token(options.model),
        stored,
        kept,
        calls_of(engine.model, lambda: engine.complete(prompt, reuse=False)).flops,
        calls_of(engine.model, lambda: engine.floor(prompt, prefix)).flops,
    )
