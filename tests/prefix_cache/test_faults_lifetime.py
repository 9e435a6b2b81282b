"""Faults of a hit's lifetime: pins that leak, KV used too late. Each comment names where it was seen."""

from __future__ import annotations

import copy
import gc

import pytest
import torch

from prefix_cache import KeyLengthError, PrefixCache, ReleasedError


class Cancelled(BaseException):
    """Like KeyboardInterrupt."""


# LMCache #987, #1130, #3381: pins leak when an error or a cancel leaves the hit early.
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Cancelled, GeneratorExit, StopIteration, MemoryError])
@pytest.mark.parametrize("when", ["before", "after running", "after storing"])
def test_an_error_inside_the_block_leaves_nothing_pinned(llama, tokens, pins, error, when: str) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 12))

    def request() -> None:
        with cache.lookup(tokens(1, 20)) as hit:
            assert pins(cache) == 1
            if when != "before":
                cache.run(hit.suffix, hit.kv)
            if when == "after storing":
                hit.store()
            raise error

    with pytest.raises(error):
        request()
    assert pins(cache) == 0
    assert cache.counters().in_use_bytes_live == 0
    cache.check()
    cache.clear()
    assert cache.counters().tokens_live == 0


@pytest.mark.parametrize("call", ["prefill", "generate"])
def test_a_model_that_fails_leaves_nothing_pinned(zoo, tokens, pins, call: str) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    cache.prefill(tokens(1, 12))

    def explode(*_: object) -> None:
        raise RuntimeError("device lost")

    handle = model.model.layers[1].register_forward_pre_hook(explode)
    with pytest.raises(RuntimeError, match="device lost"):
        getattr(cache, call)(tokens(1, 20), **({"max_new_tokens": 3} if call == "generate" else {}))
    handle.remove()
    assert (pins(cache), cache.counters().in_use_bytes_live, cache.counters().tokens_live) == (0, 0, 12)
    cache.check()
    assert cache.prefill(tokens(1, 20)).reused_tokens == 12


def test_a_lookup_that_fails_half_way_leaves_nothing_pinned(llama, tokens, pins, monkeypatch) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 12))
    with monkeypatch.context() as patch:

        def explode(*_: object, **__: object) -> None:
            raise RuntimeError("device lost")

        patch.setattr(cache, "suffix_of", explode)
        with pytest.raises(RuntimeError, match="device lost"), cache.lookup(tokens(1, 20)):
            pass
    assert (pins(cache), cache.counters().in_use_bytes_live) == (0, 0)
    cache.check()


def test_an_abandoned_lookup_is_released(llama, tokens, pins) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 12))
    manager = cache.lookup(tokens(1, 20))
    manager.__enter__()
    assert pins(cache) == 1
    del manager
    gc.collect()
    assert (pins(cache), cache.counters().in_use_bytes_live) == (0, 0)
    cache.check()


def test_a_lookup_is_entered_once(llama, tokens, pins) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 12))
    lookup = cache.lookup(tokens(1, 20))
    with lookup:
        with pytest.raises(RuntimeError, match="entered already"):
            lookup.__enter__()
        assert pins(cache) == 1
    with pytest.raises(RuntimeError, match="look up again"), lookup:
        pass
    assert (pins(cache), cache.counters().requests) == (0, 2)


def test_a_lookup_that_is_never_entered_does_nothing(llama, tokens, pins) -> None:
    cache = PrefixCache(llama)
    cache.lookup(tokens(1, 20))
    assert (cache.counters().requests, pins(cache)) == (0, 0)


def test_use_after_the_block(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, 12)
    cache.prefill(prompt)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
    kept = hit.kv
    with pytest.raises(ReleasedError, match="look up again"):
        cache.run(hit.suffix, kept)
    with pytest.raises(ReleasedError, match="inside it"):
        hit.store()
    with pytest.raises(ReleasedError):
        kept.crop(-1)
    with pytest.raises(ReleasedError):
        copy.deepcopy(kept)
    ids = torch.tensor([prompt])
    with pytest.raises(ReleasedError):
        llama.generate(ids, attention_mask=torch.ones_like(ids), cache=kept, max_new_tokens=2)
    assert kept.layers[0].keys is None
    cache.check()
    assert cache.counters().tokens_live == 12


def test_views_kept_past_the_block_do_not_reach_the_store(llama, tokens, fingerprints) -> None:
    # The buffer is recycled, so a view of it may see the next request; what is stored must be out of reach.
    cache = PrefixCache(llama, idle_buffers=0)
    prompt = tokens(1, 12)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        hit.store()
        keys = hit.kv.layers[0].keys
    before = fingerprints(cache)
    keys.fill_(5.0)
    assert fingerprints(cache) == before
    with cache.lookup([*prompt, 1]) as hit:
        assert not (hit.kv.layers[0].keys == 5.0).any()


def test_two_requests_never_share_a_buffer(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=4)
    prompt = tokens(1, 12)
    for _ in range(3):
        cache.prefill(prompt)
    with cache.lookup(prompt) as a, cache.lookup(prompt) as b, cache.lookup(prompt) as c:
        addresses = {hit.kv.buffer.slabs[0].data_ptr() for hit in (a, b, c)}
        assert len(addresses) == 3
        assert cache.counters().in_use_bytes_live == sum(hit.kv.buffer.nbytes for hit in (a, b, c))
        cache.clear()
        cache.check()
    cache.check()
    assert cache.counters().in_use_bytes_live == 0


def test_released_in_another_order_than_entered(llama, tokens, pins) -> None:
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(1, 12)
    cache.prefill(prompt)
    managers = [cache.lookup([*prompt, i]) for i in range(3)]
    hits = [manager.__enter__() for manager in managers]
    for index in (1, 0, 2):
        cache.run(hits[index].suffix, hits[index].kv)
        hits[index].store()
        managers[index].__exit__(None, None, None)
        cache.check()
    assert pins(cache) == 0
    assert cache.counters().tokens_live == 15


def test_storing_twice_and_then_more(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, 12)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        assert (hit.store(), hit.store(), hit.store(prompt)) == (12, 0, 0)
        cache.run(torch.tensor([[4, 5]]), hit.kv)
        with pytest.raises(KeyLengthError):
            hit.store()
        assert hit.store([*prompt, 4, 5]) == 2
        cache.clear()  # nothing was pinned: the hit was a miss
        assert hit.store([*prompt, 4, 5]) == 14
        cache.check()
    cache.check()
    assert cache.prefill([*prompt, 4, 5, 6]).reused_tokens == 14


def test_the_store_is_cleared_and_refilled_during_a_hit(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, 12)
    cache.prefill(prompt[:8])
    with cache.lookup(prompt) as hit:
        cache.clear()
        cache.prefill(prompt)
        cache.run(hit.suffix, hit.kv)
        assert hit.store() == 0
    cache.check()


def test_a_cache_cannot_be_copied_by_accident(llama) -> None:
    # It holds a lock; a copy would double the KV and share the model.
    with pytest.raises(TypeError):
        copy.deepcopy(PrefixCache(llama))


def test_idle_buffers_that_forget_keep_their_memory_and_copy_again(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(31, 40)
    cache.prefill(prompt)
    before = cache.counters()
    cache.forget_idle_buffers()
    cache.check()
    result = cache.prefill(prompt)
    after = cache.counters()
    assert after.idle_bytes_live == before.idle_bytes_live
    assert after.copied_bytes - before.copied_bytes == result.reused_tokens * cache.nbytes_per_token
    cache.check()


def test_a_hot_prefix_stays_hot_at_a_full_budget(llama, tokens) -> None:
    # Stored KV grows into whatever is left; without a claim on the oldest of it, no buffer would ever be kept.
    per_token = PrefixCache(llama).nbytes_per_token
    cache = PrefixCache(llama, budget_bytes=4 * 256 * per_token)
    prefix = tokens(32, 100)
    cache.prefill(prefix)
    for seed in range(60):
        cache.prefill(prefix + tokens(100 + seed, 30))
        cache.check()
    before = cache.counters()
    assert before.evicted_tokens > 0, "the budget was never full"
    result = cache.prefill(prefix + tokens(99, 30))
    after = cache.counters()
    assert result.reused_tokens >= 100
    assert after.copied_bytes == before.copied_bytes
