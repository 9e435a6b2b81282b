"""Somebody writes to the KV of a request by hand: nobody after them may get it, neither copied nor recycled."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from transformers import DynamicCache

from prefix_cache import EditedError, PrefixCache
from prefix_cache.buffer import RequestCache


def zero_a_key(kv: RequestCache) -> None:
    kv.layers[0].keys.zero_()


def assign_a_position(kv: RequestCache) -> None:
    kv.layers[1].values[:, :, 3] = 9.0


def through_detached(kv: RequestCache) -> None:
    kv.layers[0].keys.detach().mul_(-1)


def in_inference_mode(kv: RequestCache) -> None:
    with torch.inference_mode():
        kv.layers[1].keys.add_(1.0)


def as_an_output(kv: RequestCache) -> None:
    values = kv.layers[0].values
    torch.neg(values, out=values)


def of_a_row_of_a_slab(kv: RequestCache) -> None:
    kv.held().slabs[-1][0, 0].fill_(4.0)


EDITS = [zero_a_key, assign_a_position, through_detached, in_inference_mode, as_an_output, of_a_row_of_a_slab]
Edit = Callable[[RequestCache], None]


@pytest.mark.parametrize("when", ["before running", "after running", "after storing"])
@pytest.mark.parametrize("edit", EDITS)
def test_the_next_request_gets_what_is_stored(zoo, tokens, cold, fingerprints, edit: Edit, when: str) -> None:
    model = zoo.shared("deepseek")  # two slabs
    cache = PrefixCache(model, idle_buffers=1)
    prompt = tokens(1, 20)
    cache.prefill(prompt[:12])
    before = fingerprints(cache)
    with cache.lookup(prompt) as hit:
        if when == "before running":
            edit(hit.kv)
        cache.run(hit.suffix, hit.kv)
        if when == "after running":
            edit(hit.kv)
        if when == "after storing":
            assert hit.store() == 8
            edit(hit.kv)
        with pytest.raises(EditedError, match="by hand"):
            hit.store()
    cache.check()
    assert before.items() <= fingerprints(cache).items()
    assert cache.counters().tokens_live == (20 if when == "after storing" else 12)
    copied = cache.counters().copied_bytes
    result = cache.prefill(prompt)
    assert result.reused_tokens == (19 if when == "after storing" else 12)
    assert cache.counters().copied_bytes - copied == result.reused_tokens * cache.nbytes_per_token
    assert (result.logits[0] - cold(model, prompt)[-1]).abs().max() < 1e-4
    # The memory is as good as any other from there on.
    copied = cache.counters().copied_bytes
    assert cache.prefill(prompt).reused_tokens == 19
    assert cache.counters().copied_bytes == copied
    cache.check()


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_without_a_store_is_no_error(llama, tokens, cold, edit: Edit) -> None:
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(2, 20)
    cache.prefill(prompt)
    with cache.lookup(prompt) as hit:
        edit(hit.kv)
    cache.check()
    result = cache.prefill(prompt)
    assert result.reused_tokens == 19
    assert (result.logits[0] - cold(llama, prompt)[-1]).abs().max() < 1e-4


def test_what_update_returned_is_watched_as_well(llama, tokens, cold) -> None:
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(3, 20)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        hit.store()
        new = torch.ones(1, 4, 1, 8)
        _, values = hit.kv.update(new, new, 0)
        values[:, :, 7] = 5.0
    cache.check()
    result = cache.prefill(prompt)
    assert cache.counters().recycled_hits == 0
    assert (result.logits[0] - cold(llama, prompt)[-1]).abs().max() < 1e-4


@pytest.mark.parametrize("kept", ["while idle", "while in use"])
def test_a_view_kept_past_its_block(llama, tokens, cold, kept: str) -> None:
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(4, 20)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        hit.store()
        keys = hit.kv.layers[0].keys
    if kept == "while idle":
        keys.zero_()
        cache.check()
    else:
        with cache.lookup([*prompt, 1]) as hit:
            keys.zero_()
            cache.run(hit.suffix, hit.kv)
            with pytest.raises(EditedError):
                hit.store()
    recycled = cache.counters().recycled_hits
    with cache.lookup(prompt) as hit:
        assert not hit.kv.held().recycled, "an edited buffer counts as worth keeping"
        result = cache.run(hit.suffix, hit.kv)
    assert cache.counters().recycled_hits == recycled
    assert (result[0] - cold(llama, prompt)[-1]).abs().max() < 1e-4
    cache.check()


def test_an_edited_buffer_does_not_stand_in_the_way_of_a_hot_one(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=2)
    prompt = tokens(11, 20)
    cache.prefill(prompt)
    with cache.lookup(prompt), cache.lookup(prompt):
        pass
    one, two = cache.lookup(prompt), cache.lookup(prompt)  # both hot
    edited = one.__enter__()
    two.__enter__()
    zero_a_key(edited.kv)
    one.__exit__(None, None, None)
    two.__exit__(None, None, None)
    before = cache.counters().copied_bytes
    cache.prefill(prompt)
    assert cache.counters().copied_bytes == before


def test_a_buffer_that_grows_does_not_hide_an_edit(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(5, 20)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        hit.store()
        zero_a_key(hit.kv)
        cache.run(torch.tensor([tokens(6, 300)]), hit.kv)
        with pytest.raises(EditedError):
            hit.store([*prompt, *tokens(6, 300)])
    cache.check()
    cache.prefill(prompt)
    assert cache.counters().recycled_hits == 0


def test_a_deep_copy_may_be_edited_but_not_inserted(llama, tokens) -> None:
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(7, 20)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        twin = copy.deepcopy(hit.kv)
        assert cache.insert(prompt, twin, salt="sound") == 20
        zero_a_key(twin)
        for edited in (twin, copy.deepcopy(twin)):
            with pytest.raises(EditedError):
                cache.insert(prompt, edited, salt="edited")
        assert hit.store() == 20
    cache.check()
    cache.prefill(prompt)
    assert cache.counters().recycled_hits == 1


def test_the_cache_is_never_taken_for_somebody_else(llama, tokens) -> None:
    # Every way in which this package and the model write themselves; each of these hits must stay hot.
    cache = PrefixCache(llama, idle_buffers=1)
    prompt = tokens(8, 20)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        hit.store()
        copy.deepcopy(hit.kv)
        cache.run(torch.tensor([tokens(9, 300)]), hit.kv)  # grows
        hit.kv.crop(-300)
        llama(torch.tensor([[1, 2]]), cache=hit.kv)
        assert hit.store([*prompt, 1, 2]) == 2
        assert not hit.kv.held().foreign_writes
    cache.generate([*prompt, 1, 2, 3], max_new_tokens=8, do_sample=False)
    cache.insert(prompt, kv_of(llama, prompt), salt="other")
    cache.prefill([*prompt[:9], (prompt[9] + 1) % 97])  # splits
    cache.prefill([*prompt, 5])  # fills from two nodes
    with pytest.raises(RuntimeError), cache.lookup([*prompt, 5, 6]) as hit:
        hit.kv.update(torch.ones(1, 4, 1, 7), torch.ones(1, 4, 1, 7), 0)  # fails before anything is written
    cache.check()
    assert cache.counters().recycled_hits == 3
    cache.prefill([*prompt, 5, 6])
    assert cache.counters().recycled_hits == 4


def kv_of(model, prompt: list[int]) -> DynamicCache:
    kv = DynamicCache()
    with torch.no_grad():
        model(torch.tensor([prompt]), cache=kv, use_cache=True)
    return kv


def test_a_compiled_model_is_served_and_stays_hot(zoo, tokens, cold) -> None:
    # Compiled code moves the version counters by another number than it writes.
    model = zoo.fresh("llama", num_hidden_layers=1)
    prompt = tokens(10, 20)
    expected = cold(model, [*prompt, 1])[-1]
    cache = PrefixCache(model, idle_buffers=1)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.inference_mode():
        for asked in (prompt, [*prompt, 1], [*prompt, 1, 2]):
            with cache.lookup(asked) as hit:
                logits = compiled(hit.suffix, cache=hit.kv).logits[0, -1]
                assert hit.store() == len(asked) - hit.length
            if len(asked) == 21:
                assert (logits - expected).abs().max() < 1e-4
    assert cache.counters().recycled_hits == 2
    cache.check()
    with cache.lookup(prompt) as hit:  # what follows without compiled code is watched again
        zero_a_key(hit.kv)
        with pytest.raises(EditedError):
            cache.insert(prompt[:19], hit.kv, salt="edited")
    cache.prefill(prompt)
    assert cache.counters().recycled_hits == 3
