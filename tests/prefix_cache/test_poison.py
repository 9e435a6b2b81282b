"""What is stored is what is used: perturb it in place, and the logits of a hit must follow."""

from __future__ import annotations

import itertools

import pytest
import torch

from prefix_cache import PrefixCache

LAYERS = 2


def stored_rows(cache: PrefixCache, layer: int, part: str) -> torch.Tensor:
    """[heads, run, head dim] of one layer's keys or values in the only node."""
    (node,) = cache._tree.nodes()
    slot = getattr(next(iter(cache._layouts.values())), part)[layer]
    return node.stored().slabs[slot.slab][slot.row]


def idle_rows(cache: PrefixCache, layer: int, part: str) -> torch.Tensor:
    (buffer,) = cache._pool.idle()
    slot = getattr(next(iter(cache._layouts.values())), part)[layer]
    return buffer.slabs[slot.slab][slot.row]


@pytest.mark.parametrize(
    ("kind", "layer", "part"),
    [*itertools.product(["llama", "grouped", "gpt2", "deepseek"], range(LAYERS), ["keys", "values"])],
)
def test_poison_in_the_store_reaches_a_copied_hit(zoo, tokens, cold, kind: str, layer: int, part: str) -> None:
    model = zoo.shared(kind)
    prompt = tokens(1, 20)
    expected = cold(model, prompt)[-1]
    cache = PrefixCache(model, idle_buffers=0)
    cache.prefill(prompt[:16])
    assert (cache.prefill(prompt[:16] + prompt[16:]).logits[0] - expected).abs().max() < 1e-4
    cache.clear()
    cache.prefill(prompt[:16])
    rows = stored_rows(cache, layer, part)
    clean = rows.clone()
    for position in (0, 7, 15):
        rows[:, position] += 3.0
        with cache.lookup(prompt) as hit:
            moved = (cache.run(hit.suffix, hit.kv)[0] - expected).abs().max()
        assert moved > 1e-3, f"position {position} of the stored {part} is not used"
        rows.copy_(clean)
    with cache.lookup(prompt) as hit:
        assert (cache.run(hit.suffix, hit.kv)[0] - expected).abs().max() < 1e-4


@pytest.mark.parametrize(("layer", "part"), [*itertools.product(range(LAYERS), ["keys", "values"])])
def test_poison_in_a_recycled_buffer_reaches_the_hit_that_takes_it(llama, tokens, cold, layer: int, part: str) -> None:
    prompt = tokens(2, 20)
    expected = cold(llama, prompt)[-1]
    cache = PrefixCache(llama, idle_buffers=1)
    cache.prefill(prompt[:16])
    idle_rows(cache, layer, part).data[:, 5] += 3.0  # past the version counter, else it would be noticed
    with cache.lookup(prompt) as hit:
        assert cache.counters().copied_bytes == 0
        assert (cache.run(hit.suffix, hit.kv)[0] - expected).abs().max() > 1e-3
    with pytest.raises(AssertionError, match="differs from the stored KV"):
        cache.check()


def test_a_hot_hit_does_not_read_the_store(llama, tokens, cold) -> None:
    prompt = tokens(3, 20)
    expected = cold(llama, prompt)[-1]
    cache = PrefixCache(llama, idle_buffers=1)
    cache.prefill(prompt[:16])
    stored_rows(cache, 0, "keys")[:] += 3.0
    with cache.lookup(prompt) as hit:
        assert (cache.run(hit.suffix, hit.kv)[0] - expected).abs().max() < 1e-4
    cache.drop_idle_buffers()
    with cache.lookup(prompt) as hit:
        assert (cache.run(hit.suffix, hit.kv)[0] - expected).abs().max() > 1e-3


def test_scratch_behind_a_hit_is_never_read(llama, tokens, cold) -> None:
    prompt = tokens(4, 20)
    cache = PrefixCache(llama, idle_buffers=1)
    cache.prefill(prompt[:16])
    (buffer,) = cache._pool.idle()
    for slab in buffer.slabs:
        slab.data[:, :, 16:] = float("nan")
    result = cache.prefill(prompt)
    assert result.reused_tokens == 16
    assert cache.counters().recycled_hits == 1
    assert (result.logits[0] - cold(llama, prompt)[-1]).abs().max() < 1e-4


def test_check_sees_a_node_that_keeps_its_parents_storage(llama, tokens) -> None:
    # The check itself must be able to fail.
    cache = PrefixCache(llama)
    cache.prefill(tokens(5, 20))
    (node,) = cache._tree.nodes()
    run = node.stored()
    node.payload = type(run)(tuple(torch.cat([s, s], dim=2)[:, :, :20] for s in run.slabs))
    cache._tree.nbytes *= 2  # even where the totals admit it
    with pytest.raises(AssertionError, match="more alive than its run"):
        cache.check()


@pytest.mark.parametrize("part", ["tokens", "nbytes"])
def test_check_sees_totals_that_are_off(llama, tokens, part: str) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(6, 20))
    setattr(cache._tree, part, getattr(cache._tree, part) + 1)
    with pytest.raises(AssertionError, match="totals differ"):
        cache.check()
