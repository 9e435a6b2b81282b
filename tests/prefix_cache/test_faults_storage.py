"""Faults of stored KV that other prefix caches shipped; each comment names where."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from transformers import DynamicCache

from prefix_cache import KeyLengthError, PrefixCache, PromptError


def storages(cache: PrefixCache) -> int:
    """Bytes of the distinct storages behind everything stored."""
    seen = {}
    for node in cache._tree.nodes():
        for slab in node.stored().slabs:
            seen[slab.untyped_storage().data_ptr()] = slab.untyped_storage().nbytes()
    return sum(seen.values())


# transformers #24841, vllm-mlx PR #642: a later generate changed the stored KV in place.
@pytest.mark.parametrize("idle", [0, 2])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
def test_generating_never_changes_what_is_stored(zoo, tokens, fingerprints, kind: str, idle: int) -> None:
    model = zoo.shared(kind)
    cache = PrefixCache(model, idle_buffers=idle)
    prompt = tokens(1, 24)
    cache.prefill(prompt)
    before = fingerprints(cache)
    for _ in range(2):
        with cache.lookup(prompt) as hit:
            ids = torch.tensor([prompt])
            model.generate(ids, attention_mask=torch.ones_like(ids), cache=hit.kv, max_new_tokens=20, do_sample=False)
    assert fingerprints(cache) == before
    cache.generate(prompt, max_new_tokens=20, do_sample=False)
    after = fingerprints(cache)
    assert before.items() <= after.items()
    cache.check()


def test_writing_into_a_hit_never_reaches_the_store(llama, tokens, fingerprints) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(2, 24)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        hit.store()
        before = fingerprints(cache)
        for layer in hit.kv.layers:
            layer.keys.fill_(7.0)
            layer.values.fill_(7.0)
    assert fingerprints(cache) == before


# vllm-mlx #380, sglang #39120: a slice keeps its parent's whole storage.
def test_evicting_a_tail_frees_its_bytes(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=0)
    prompt = tokens(3, 2048)
    cache.prefill(prompt)
    assert storages(cache) == cache.counters().stored_bytes_live == 2048 * cache.nbytes_per_token
    cache.prefill([*prompt[:16], (prompt[16] + 1) % 97])  # splits at 16
    assert storages(cache) == cache.counters().stored_bytes_live == 2049 * cache.nbytes_per_token
    assert cache._tree.pop_lru() is not None
    assert storages(cache) == cache.counters().stored_bytes_live == 17 * cache.nbytes_per_token
    cache.check()


# llama-recipes #33, transformers #32681: KV stored with its autograd graph.
@pytest.mark.parametrize("outside", [False, True])
def test_kv_is_stored_without_its_graph(zoo, tokens, outside: bool) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    prompt = tokens(4, 12)
    if outside:
        kv = DynamicCache()
        model(torch.tensor([prompt]), cache=kv, use_cache=True)
        assert kv.layers[0].keys.requires_grad
        cache.insert(prompt, kv)
    else:
        with cache.lookup(prompt) as hit:
            assert model(hit.suffix, cache=hit.kv).logits.requires_grad
            hit.store()
    slabs = [slab for node in cache._tree.nodes() for slab in node.stored().slabs]
    slabs += [slab for buffer in cache._pool.idle() for slab in buffer.slabs]
    assert slabs
    for slab in slabs:
        assert not slab.requires_grad
        assert slab.grad_fn is None
        assert not slab.is_inference()


# mini-sglang PR #142, vLLM PR #17305: between match and insert the state went stale.
def test_two_requests_that_miss_on_the_same_prompt(llama, tokens, cold) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(5, 20)
    with cache.lookup(prompt) as a, cache.lookup(prompt) as b:
        assert (a.length, b.length) == (0, 0)
        for hit in (a, b):
            cache.run(hit.suffix, hit.kv)
        assert (a.store(), b.store()) == (20, 0)
        assert cache.counters().stored_bytes_live == 20 * cache.nbytes_per_token
        for hit in (a, b):
            logits = cache.run(torch.tensor([[1, 2]]), hit.kv)[0]
            assert (logits - cold(llama, [*prompt, 1, 2])[-1]).abs().max() < 1e-4
            cache.check()
    cache.check()


def test_a_longer_one_is_stored_while_a_shorter_one_is_in_flight(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(6, 30)
    with cache.lookup(prompt[:20]) as short:
        cache.run(short.suffix, short.kv)
        cache.prefill(prompt)
        assert short.store() == 0
        cache.prefill([*prompt[:7], 1, 1, 1])  # splits what the hit now depends on
        assert short.store() == 0
        cache.check()
    cache.check()
    assert cache.counters().tokens_live == 33


# nano-vllm #163, vLLM PR #4761: the index points at memory that was reused for other tokens.
def test_evicted_and_overwritten_is_a_miss(llama, tokens, cold) -> None:
    per_token = PrefixCache(llama).nbytes_per_token
    for idle in (0, 1):
        cache = PrefixCache(llama, budget_bytes=30 * per_token, idle_buffers=idle)
        old, new = [0, *tokens(7, 19)], [1, *tokens(8, 19)]
        cache.prefill(old)
        cache.prefill(new)
        with cache.lookup(old) as hit:
            assert (hit.matched, hit.length) == (0, 0)
            logits = cache.run(hit.suffix, hit.kv)[0]
        assert (logits - cold(llama, old)[-1]).abs().max() < 1e-4
        cache.check()


def test_a_recycled_buffer_of_evicted_tokens_is_not_trusted(llama, tokens, cold) -> None:
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(9, 20)
    cache.prefill(prompt)
    assert cache._tree.pop_lru() is not None  # the buffer still holds what was stored here
    other = zero_kv(llama, prompt)
    cache.insert(prompt, other)  # the same tokens, other bits
    with cache.lookup(prompt) as hit:
        assert cache.counters().copied_bytes == 19 * cache.nbytes_per_token
        assert not hit.kv.layers[0].keys.any()
    cache.check()


def zero_kv(model, prompt: list[int]) -> DynamicCache:
    kv = DynamicCache()
    with torch.no_grad():
        model(torch.tensor([prompt]), cache=kv, use_cache=True)
    for layer in kv.layers:
        layer.keys.zero_()
        layer.values.zero_()
    return kv


def test_what_another_stored_first_is_not_taken_for_ones_own(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(10, 20)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        cache.insert(prompt, zero_kv(llama, prompt))
        assert hit.store() == 0
        assert hit.store() == 0
    cache.check()  # the returned buffer holds other bits than the store, and must not claim them
    with cache.lookup([*prompt, 1]) as hit:
        assert hit.length == 20
        assert not hit.kv.layers[0].keys.any()


# vllm-mlx #793, vllm-metal PR #82: evicted memory is not returned.
def test_evicting_everything_kills_every_tensor(llama, tokens) -> None:
    cache = PrefixCache(llama)
    for seed in range(4):
        cache.generate(tokens(seed, 20), max_new_tokens=4, do_sample=False)
        cache.prefill([*tokens(seed, 9), 1, 2])
    slabs = [weakref.ref(slab) for node in cache._tree.nodes() for slab in node.stored().slabs]
    slabs += [weakref.ref(slab) for buffer in cache._pool.idle() for slab in buffer.slabs]
    assert len(slabs) > 8
    gc.disable()  # reference counts alone must do it: nobody knows when the collector runs
    try:
        cache.clear()
        assert [ref for ref in slabs if ref() is not None] == []
    finally:
        gc.enable()
    counters = cache.counters()
    assert (counters.tokens_live, counters.stored_bytes_live, counters.idle_bytes_live) == (0, 0, 0)


def test_evicting_by_budget_kills_the_tensors(llama, tokens) -> None:
    per_token = PrefixCache(llama).nbytes_per_token
    cache = PrefixCache(llama, budget_bytes=40 * per_token, idle_buffers=0)
    cache.prefill([0, *tokens(1, 29)])
    slabs = [weakref.ref(slab) for node in cache._tree.nodes() for slab in node.stored().slabs]
    cache.prefill([1, *tokens(2, 29)])
    assert [ref for ref in slabs if ref() is not None] == []


def test_the_cache_is_freed_with_its_last_reference(llama, tokens) -> None:
    cache = PrefixCache(llama)
    cache.generate(tokens(1, 20), max_new_tokens=4, do_sample=False)
    with cache.lookup(tokens(1, 20)) as hit:
        request = weakref.ref(hit.kv)
        buffer = weakref.ref(hit.kv.buffer.slabs[0])
    slabs = [weakref.ref(slab) for node in cache._tree.nodes() for slab in node.stored().slabs]
    gc.disable()
    try:
        del hit
        assert request() is None, "a request's KV lives on after its block"
        del cache
        alive = [ref() for ref in [*slabs, buffer]]
        assert alive == [None] * len(slabs) + [None]
    finally:
        gc.enable()


def test_a_hit_survives_its_cache(llama, tokens, cold) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 20))
    manager = cache.lookup(tokens(1, 24))
    hit = manager.__enter__()
    run = cache.run
    del cache
    gc.collect()
    assert (run(hit.suffix, hit.kv)[0] - cold(llama, tokens(1, 24))[-1]).abs().max() < 1e-4
    assert hit.store() == 4
    manager.__exit__(None, None, None)


# ---- bytes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "grouped", "gpt2", "gpt_neo", "gemma2", "bloom"])
def test_stored_bytes_are_the_theoretical_ones(zoo, tokens, kind: str) -> None:
    model = zoo.shared(kind)
    layers, heads, head_dim = {
        "llama": (2, 4, 8),
        "grouped": (2, 2, 8),
        "gpt2": (2, 4, 8),
        "gpt_neo": (8, 16, 4),
        "gemma2": (2, 2, 8),
        "bloom": (2, 4, 8),
    }[kind]
    cache = PrefixCache(model)
    assert cache.nbytes_per_token == 2 * layers * heads * head_dim * 4
    for n in (1, 7, 50):
        cache.clear()
        cache.prefill(tokens(11, n))
        assert cache.counters().stored_bytes_live / (n * cache.nbytes_per_token) == 1.0
        assert storages(cache) == n * cache.nbytes_per_token


def test_half_precision_takes_half_the_bytes(zoo) -> None:
    assert PrefixCache(zoo.fresh("llama").bfloat16()).nbytes_per_token == 2 * 2 * 4 * 8 * 2


def test_a_shared_beginning_is_stored_once(llama, tokens) -> None:
    cache = PrefixCache(llama)
    shared = tokens(12, 200)
    expected = set()
    for i in range(100):
        prompt = [*shared, i % 97, i // 97, *tokens(1000 + i, 20 + i % 30)]
        expected |= {tuple(prompt[: k + 1]) for k in range(200, len(prompt))}
        assert cache.prefill(prompt).stored_tokens <= len(prompt) - (200 if i else 0)
    assert cache.counters().tokens_live == 200 + len(expected)
    assert cache.counters().stored_bytes_live == (200 + len(expected)) * cache.nbytes_per_token
    cache.check()


@pytest.mark.parametrize("idle", [0, 4])
def test_bytes_copied_by_a_hit(llama, tokens, idle: int) -> None:
    cache = PrefixCache(llama, idle_buffers=idle)
    shared = tokens(13, 200)
    cache.prefill(shared)
    cache.drop_idle_buffers()
    for i in range(4):
        before = cache.counters()
        with cache.lookup([*shared, i, i]) as hit:
            assert hit.length == 200
            cache.run(hit.suffix, hit.kv)
            hit.store()
        copied = cache.counters().copied_bytes - before.copied_bytes
        assert copied == (0 if idle and i else 200 * cache.nbytes_per_token)
        cache.check()
    assert cache.counters().recycled_hits == (3 if idle else 0)


def test_a_hot_hit_after_other_traffic(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=2)
    hot = tokens(14, 100)
    for i in range(6):
        before = cache.counters().copied_bytes
        cache.prefill([*hot, i])
        assert cache.counters().copied_bytes == before, "other traffic took the buffer of the hot prefix"
        cache.prefill([(hot[0] + 1 + i) % 97, *tokens(15 + i, 40 + 40 * i)])  # shorter and longer than the hot one
        cache.check()


def test_prefixes_that_take_turns_are_all_hot(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=4)
    prompts = [[i, *tokens(30 + i, 40)] for i in range(4)]
    for i in range(4):
        before = cache.counters().copied_bytes
        for prompt in prompts:
            cache.prefill([*prompt, i])
        assert cache.counters().copied_bytes == before
    assert cache.counters().recycled_hits == 12
    cache.check()


def test_a_hit_copies_only_what_its_buffer_lacks(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(21, 60)
    cache.prefill(prompt)
    cache.prefill([*prompt[:40], (prompt[40] + 1) % 97])
    before = cache.counters().copied_bytes
    with cache.lookup([*prompt, 1]) as hit:
        assert hit.length == 60
        stored = torch.cat([node.stored().slabs[0] for node in hit.node.path()], dim=2)
        assert torch.equal(hit.kv.buffer.slabs[0][:, :, :60], stored)
    assert cache.counters().copied_bytes - before == 20 * cache.nbytes_per_token


@pytest.mark.parametrize("idle", [0, 1, 3])
def test_a_hits_buffer_is_bit_equal_to_the_store(llama, tokens, idle: int) -> None:
    cache = PrefixCache(llama, idle_buffers=idle)
    base = tokens(22, 40)
    for at in (40, 10, 25, 33, 3, 40, 25, 11):
        prompt = base[:at] + [(t + at) % 97 for t in base[at:]] + [at % 97]
        with cache.lookup(prompt) as hit:
            path = hit.node.path()
            if path:
                stored = torch.cat([node.stored().slabs[0] for node in path], dim=2)[:, :, : hit.length]
                assert torch.equal(hit.kv.buffer.slabs[0][:, :, : hit.length], stored)
            cache.run(hit.suffix, hit.kv)
            hit.store()
        cache.check()


def test_peak_bytes_count_the_moment_of_a_split(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=0)
    prompt = tokens(23, 100)
    cache.prefill(prompt)
    assert cache.counters().peak_bytes == 100 * cache.nbytes_per_token
    cache.prefill([*prompt[:50], (prompt[50] + 1) % 97])
    assert cache.counters().peak_bytes == 200 * cache.nbytes_per_token  # both halves are copied before the whole goes
    assert cache.counters().stored_bytes_live == 101 * cache.nbytes_per_token


# ---- what may be stored --------------------------------------------------------------------------------------------


def test_only_the_tokens_that_were_run_may_be_stored(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(24, 20)
    cache.prefill(prompt[:10])
    with cache.lookup(prompt) as hit:
        with pytest.raises(KeyLengthError, match="holds 10 positions, but 20"):
            hit.store()  # before the suffix was run
        cache.run(hit.suffix, hit.kv)
        for wrong in (prompt[:19], [*prompt, 1], prompt[:5]):
            with pytest.raises(KeyLengthError):
                hit.store(wrong)
        with pytest.raises(PromptError, match="first 10 tokens"):
            hit.store([(prompt[0] + 1) % 97, *prompt[1:]])
        with pytest.raises(PromptError):
            hit.store([])
        assert cache.counters().tokens_live == 10
        assert hit.store() == 10
    cache.check()


def test_a_forward_pass_that_fails_half_way_cannot_be_stored(zoo, tokens, pins) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    prompt = tokens(25, 20)

    def explode(*_: object) -> None:
        raise RuntimeError("out of memory")

    with cache.lookup(prompt) as hit:
        handle = model.model.layers[1].self_attn.register_forward_pre_hook(explode)
        with pytest.raises(RuntimeError, match="out of memory"):
            cache.run(hit.suffix, hit.kv)
        handle.remove()
        assert [layer.get_seq_length() for layer in hit.kv.layers] == [20, 0]
        with pytest.raises(KeyLengthError, match="layer 1"):
            hit.store()
    assert (cache.counters().tokens_live, pins(cache)) == (0, 0)
    cache.check()
    assert cache.prefill(prompt).reused_tokens == 0
