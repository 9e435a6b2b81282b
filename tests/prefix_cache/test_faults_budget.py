"""Faults of budget and eviction order; each comment names where it was seen."""

from __future__ import annotations

import random

import pytest
import torch

from prefix_cache import PrefixCache


def of_tokens(model, n: int, **settings: int) -> PrefixCache:
    """A cache whose budget holds n tokens."""
    return PrefixCache(model, budget_bytes=n * PrefixCache(model).nbytes_per_token, **settings)


def matched(cache: PrefixCache, ids: list[int]) -> int:
    """Longest stored prefix, asked without touching anything."""
    import numpy as np

    namespace = next(iter(cache._tree.namespaces()))
    return cache._tree.match(namespace, np.array(ids, np.int64)).length


# mlx-lm PR #1496, LMCache #460: "LRU" was FIFO.
@pytest.mark.parametrize("by", ["lookup", "prefill", "generate", "longer prompt", "shorter prompt"])
def test_a_hit_refreshes_the_order(llama, tokens, by: str) -> None:
    cache = of_tokens(llama, 50, idle_buffers=0)
    a, b, c = ([i, *tokens(i, 19)] for i in range(3))
    cache.prefill(a)
    cache.prefill(b)
    if by == "lookup":
        with cache.lookup(a):
            pass
    elif by == "prefill":
        cache.prefill(a)
    elif by == "generate":
        cache.generate(a, max_new_tokens=1, do_sample=False)
    else:
        with cache.lookup([*a, 1] if by == "longer prompt" else a[:5]):
            pass
    cache.prefill(c)
    assert (matched(cache, a), matched(cache, b), matched(cache, c)) == (20, 0, 20)
    cache.check()


def test_a_refused_or_missed_request_refreshes_nothing(llama, tokens) -> None:
    cache = of_tokens(llama, 50, idle_buffers=0)
    a, b, c = ([i, *tokens(i, 19)] for i in range(3))
    cache.prefill(a)
    cache.prefill(b)
    with cache.lookup([9, *a]):
        pass
    cache.prefill(c)
    assert (matched(cache, a), matched(cache, b)) == (0, 20)


# sglang #35270, #24153, mllm PR #656: negative or double accounting.
@pytest.mark.parametrize("idle", [0, 3])
def test_totals_after_each_of_a_thousand_operations(zoo, idle: int) -> None:
    model = zoo.fresh("llama", num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=16)
    cache = of_tokens(model, 60, idle_buffers=idle)
    dice = random.Random(1)
    held = []
    for _ in range(1000):
        ids = [dice.randrange(2) for _ in range(dice.randint(1, 30))]
        what = dice.randrange(4)
        if what == 0 and len(held) < 3:
            manager = cache.lookup(ids)
            held.append((manager, manager.__enter__()))
        elif what == 1 and held:
            manager, hit = held.pop(dice.randrange(len(held)))
            if dice.random() < 0.5:
                cache.run(hit.suffix, hit.kv)
                hit.store()
            manager.__exit__(None, None, None)
        else:
            cache.prefill(ids)
        counters = cache.counters()
        assert min(vars(counters).values()) >= 0
        assert counters.tokens_live == sum(len(node.tokens) for node in cache._tree.nodes())
        assert counters.stored_bytes_live == sum(node.stored().nbytes for node in cache._tree.nodes())
        assert 0 <= cache._tree.evictable_nbytes() <= counters.stored_bytes_live
        assert counters.stored_bytes_live + counters.idle_bytes_live <= 60 * cache.nbytes_per_token
        cache.check()
    assert cache.counters().evicted_tokens > 0
    for manager, _ in held:
        manager.__exit__(None, None, None)
    assert cache._tree.evictable_nbytes() == cache.counters().stored_bytes_live


@pytest.mark.parametrize("idle", [0, 4])
def test_an_entry_larger_than_the_budget_is_refused_and_nothing_is_lost(llama, tokens, cold, idle: int) -> None:
    cache = of_tokens(llama, 50, idle_buffers=idle)
    small = [0, *tokens(1, 19)]
    cache.prefill(small)
    for large in ([1, *tokens(2, 59)], [*small, *tokens(3, 40)]):
        result = cache.prefill(large)
        assert (result.logits[0] - cold(llama, large)[-1]).abs().max() < 1e-4
        assert result.stored_tokens == 0
        assert matched(cache, small) == 20
        cache.check()
    assert cache.counters().refused_tokens == 60 + 40
    assert (cache.counters().evicted_tokens, cache.counters().tokens_live) == (0, 20)
    assert cache.prefill(small).reused_tokens == 19


def test_exactly_the_budget_fits(llama, tokens) -> None:
    cache = of_tokens(llama, 50)
    assert cache.prefill([0, *tokens(1, 49)]).stored_tokens == 50
    assert cache.prefill([1, *tokens(1, 49)]).stored_tokens == 50
    assert (cache.counters().evicted_tokens, cache.counters().refused_tokens) == (50, 0)
    assert cache.prefill([2, *tokens(1, 50)]).stored_tokens == 0
    assert cache.counters().tokens_live == 50
    cache.check()


# The first tokens of all prompts are often the same (a BOS token, a system prompt).
@pytest.mark.parametrize("shared", [0, 1, 5])
@pytest.mark.parametrize("way", ["prefill", "insert"])
def test_one_long_entry_does_not_block_the_cache_for_ever(llama, tokens, shared: int, way: str) -> None:
    cache = of_tokens(llama, 100, idle_buffers=0)
    bos = [7] * shared
    cache.prefill([*bos, 1, *tokens(1, 94 - shared)])
    short = [*bos, 2, *tokens(2, 39 - shared)]
    if way == "prefill":
        assert cache.prefill(short).stored_tokens == 40 - shared
    else:
        from transformers import DynamicCache

        kv = DynamicCache()
        with torch.no_grad():
            llama(torch.tensor([short]), cache=kv, use_cache=True)
        assert cache.insert(short, kv) == 40 - shared
    cache.check()
    assert matched(cache, short) == 40
    assert cache.counters().refused_tokens == 0
    assert cache.counters().tokens_live == 40
    assert cache.prefill(short).reused_tokens == 39


def test_the_tail_that_another_request_uses_is_not_given_up(llama, tokens) -> None:
    cache = of_tokens(llama, 100, idle_buffers=0)
    long = [7, 1, *tokens(1, 93)]
    cache.prefill(long)
    with cache.lookup([*long, 1]) as other:
        assert other.length == 95
        assert cache.prefill([7, 2, *tokens(2, 38)]).stored_tokens == 0
        cache.check()
        assert matched(cache, long) == 95
    cache.check()
    assert cache.prefill([7, 2, *tokens(2, 38)]).stored_tokens == 39
    cache.check()


# mini-sglang PR #52: the pin counted the ancestors but not the node itself.
@pytest.mark.parametrize("pinned", [5, 12, 20])
def test_what_is_pinned_stays_until_it_is_released(llama, tokens, fingerprints, pinned: int) -> None:
    cache = of_tokens(llama, 60, idle_buffers=0)
    base = [0, *tokens(1, 19)]
    cache.prefill(base[:12])
    cache.prefill(base)
    before = fingerprints(cache)
    with cache.lookup([*base[:pinned], 1, 1]) as hit:
        needed = hit.node.path()
        for seed in range(6):
            cache.prefill([1 + seed, *tokens(9 + seed, 34)])
            cache.check()
        assert matched(cache, base) >= pinned
        assert (
            fingerprints(cache).items()
            >= {key: value for key, value in before.items() if any(key[1] == node.start for node in needed)}.items()
        )
    for seed in range(6):
        cache.prefill([10 + seed, *tokens(19 + seed, 54)])
    assert matched(cache, base) == 0
    cache.check()


def test_clear_keeps_only_what_is_pinned(llama, tokens) -> None:
    cache = PrefixCache(llama)
    base = [0, *tokens(1, 19)]
    cache.prefill(base[:12])
    cache.prefill(base)
    cache.prefill([1, 2, 3])
    with cache.lookup([*base[:12], 5]) as hit:
        cache.clear()
        cache.check()
        assert cache.counters().tokens_live == 12
        cache.run(hit.suffix, hit.kv)
        assert hit.store() == 1
    cache.clear()
    assert cache.counters().tokens_live == 0
    assert cache.counters().evicted_tokens == cache.counters().stored_tokens
    cache.check()


def test_idle_buffers_live_within_the_budget(llama, tokens) -> None:
    # A buffer takes 256 positions: three of them fit beside the stored KV, never more than a quarter of the budget.
    cache = of_tokens(llama, 4 * 256 * 2, idle_buffers=8)
    for i in range(8):
        cache.prefill([i, *tokens(i, 30)])
        counters = cache.counters()
        assert counters.idle_bytes_live <= cache._budget // 4
        assert counters.stored_bytes_live + counters.idle_bytes_live <= cache._budget
    assert cache.counters().idle_bytes_live == 2 * 256 * cache.nbytes_per_token
    cache.prefill([9, *tokens(9, 1600)])
    cache.prefill([10, *tokens(10, 300)])
    cache.check()
    assert cache.counters().stored_bytes_live + cache.counters().idle_bytes_live <= cache._budget


def test_an_insertion_gives_up_idle_memory_before_stored_kv(llama, tokens) -> None:
    cache = of_tokens(llama, 1200)
    cache.prefill([0, *tokens(0, 199)])
    assert cache.counters().idle_bytes_live == 256 * cache.nbytes_per_token
    from transformers import DynamicCache

    kv = DynamicCache()
    ids = [1, *tokens(1, 899)]
    with torch.no_grad():
        llama(torch.tensor([ids]), cache=kv, use_cache=True)
    assert cache.insert(ids, kv) == 900
    assert cache.counters().evicted_tokens == 0
    assert cache.counters().idle_bytes_live == 0
    cache.check()


def test_no_idle_buffers_and_room_for_none(llama, tokens) -> None:
    for cache in (PrefixCache(llama, idle_buffers=0), of_tokens(llama, 40)):
        for _ in range(3):
            cache.prefill([0, *tokens(0, 19)])
        assert cache.counters().idle_bytes_live == 0
        assert cache.counters().recycled_hits == 0
        cache.check()


def test_peak_stays_within_the_budget_where_nothing_is_split(llama, tokens) -> None:
    cache = of_tokens(llama, 100, idle_buffers=0)
    for i in range(9):
        cache.prefill([i, *tokens(i, 39)])
    assert cache.counters().peak_bytes == 80 * cache.nbytes_per_token


def test_a_store_that_runs_out_of_memory_changes_nothing(llama, tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    import prefix_cache.cache as module

    cache = of_tokens(llama, 100)
    cache.prefill([0, *tokens(0, 19)])

    def explode(*_: object) -> None:
        raise MemoryError

    with cache.lookup([0, *tokens(0, 29)]) as hit:
        cache.run(hit.suffix, hit.kv)
        with monkeypatch.context() as patch:
            patch.setattr(module, "copy_of", explode)
            with pytest.raises(MemoryError):
                hit.store()
        cache.check()
        assert cache.counters().tokens_live == 20
        assert hit.store() == 10
    cache.check()


def test_a_request_buffer_is_no_larger_than_its_prompt_asks_for(llama, tokens) -> None:
    cache = PrefixCache(llama)
    for seed in range(6):
        cache.prefill(tokens(seed, 100))
    live = cache.counters()
    assert live.in_use_bytes_live == 0
    assert live.idle_bytes_live == 4 * 256 * cache.nbytes_per_token  # four buffers, each the next multiple of 256
    with cache.lookup(tokens(0, 100), room=200):
        assert cache.counters().in_use_bytes_live == 512 * cache.nbytes_per_token
