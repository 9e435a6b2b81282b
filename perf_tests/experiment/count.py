"""What needs no clock: bytes of a stored prefix, and the FLOPs of the arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_tests.engines.transformers_prefix_cache import PrefixCacheEngine
from perf_tests.experiment.options import Options
from perf_tests.ledger import calls_of
from perf_tests.model import kv_bytes_per_token, load
from perf_tests.prompts import Prompts
from perf_tests.scenarios.memory import PrefixMemory


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
    memory = PrefixMemory(options.model, prefix)
    memory.open()
    bytes_of = memory.count()
    memory.close()
    engine, prompts = PrefixCacheEngine(load(options.model)), Prompts(options.model, options.seed)
    suffix = sum(options.suffixes) // 2
    prompt = np.concatenate([prompts.prefix(prefix), prompts.fresh(suffix)])
    engine.floor(prompt, prefix)  # computes the prefix, which is nobody's hit
    return Count(
        prefix,
        suffix,
        prefix * kv_bytes_per_token(options.model),
        int(bytes_of["KV bytes stored"]),
        int(bytes_of["bytes kept alive"]),
        calls_of(engine.model, lambda: engine.complete(prompt, reuse=False)).flops,
        calls_of(engine.model, lambda: engine.floor(prompt, prefix)).flops,
    )
