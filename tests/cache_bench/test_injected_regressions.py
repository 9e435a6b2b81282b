"""Regressions injected into the cache, seen by what the suites count. None of them changes an answer."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
import torch

import prefix_cache.cache as cache_module
import prefix_cache.pool as pool_module
from cache_bench.scenarios.memory import PrefixMemory, SharedMemory
from cache_bench.scenarios.tpot import DecodeCost
from cache_bench.scenarios.ttft import HitCost
from perf_gate import InvalidPremise, Scenario
from prefix_cache import PrefixCache
from prefix_cache.buffer import BufferLayer, KVBuffer
from prefix_cache.run import KVRun
from prefix_cache.tree import Match, RadixTree

MODEL = "tiny-grouped"
HIT = HitCost(MODEL, prefix=48, suffix=8)
MEMORY = PrefixMemory(MODEL, prefix=48)


def counted(scenario: Scenario) -> Mapping[str, int | float]:
    scenario.open()
    try:
        return scenario.count()
    finally:
        scenario.close()


@pytest.fixture(scope="module")
def sound() -> dict[str, Mapping[str, int | float]]:
    return {type(scenario).__name__: counted(scenario) for scenario in (HIT, MEMORY)}


def worse(scenario: Scenario, sound: dict[str, Mapping[str, int | float]]) -> set[str]:
    before = sound[type(scenario).__name__]
    return {name for name, value in counted(scenario).items() if value > before[name]}


def test_counting_twice_gives_the_same(sound: dict[str, Mapping[str, int | float]]) -> None:
    assert counted(HIT) == sound["HitCost"]
    assert counted(MEMORY) == sound["PrefixMemory"]


def test_what_a_sound_cache_costs(sound: dict[str, Mapping[str, int | float]]) -> None:
    per_token = 2 * 2 * 2 * 16 * 4  # keys and values, layers, KV heads, head dim, float32
    hit, memory = sound["HitCost"], sound["PrefixMemory"]
    assert hit["prompt tokens run"] == 8
    assert hit["forward passes"] == 1
    assert hit["KV bytes copied, hot hit"] == 0
    assert hit["KV bytes copied, first hit"] == 48 * per_token
    assert hit["bytes kept by a hit"] == 8 * per_token
    assert memory["KV bytes stored"] == memory["bytes kept alive"] == 48 * per_token
    assert memory["KV bytes stored / theoretical"] == 1
    assert memory["bytes kept alive after evicting half"] == 24 * per_token
    assert memory["bytes kept alive after evicting all"] == 0


def test_a_deep_copy_on_every_hit(monkeypatch: pytest.MonkeyPatch, sound: dict[str, Mapping[str, int | float]]) -> None:
    fill = KVBuffer.fill

    def copying(self, path, length):  # type: ignore[no-untyped-def]
        copy.deepcopy([node.stored() for node in path])
        return fill(self, path, length)

    monkeypatch.setattr(KVBuffer, "fill", copying)
    assert {
        "bytes allocated beyond the floor, hot hit",
        "bytes allocated beyond the floor, first hit",
    } <= worse(HIT, sound)


def test_a_hot_prefix_that_is_copied_all_the_same(
    monkeypatch: pytest.MonkeyPatch, sound: dict[str, Mapping[str, int | float]]
) -> None:
    monkeypatch.setattr(KVBuffer, "agreement", lambda _self, _path: 0)
    assert "KV bytes copied, hot hit" in worse(HIT, sound)


def test_a_lookup_that_always_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    match = RadixTree.match

    def missing(self, namespace, tokens):  # type: ignore[no-untyped-def]
        found = match(self, namespace, tokens)
        return Match(0, self._roots[namespace], found.visited) if found.length else found

    monkeypatch.setattr(RadixTree, "match", missing)
    monkeypatch.setattr(RadixTree, "insert", lambda self, *_: (next(iter(self._roots.values()), None), 0))
    monkeypatch.setattr(PrefixCache, "_store", lambda *_: 0)
    with pytest.raises(InvalidPremise, match="reused 0 of 56 prompt tokens, expected 48"):
        counted(HIT)


def test_one_prompt_token_too_many_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    match = RadixTree.match
    monkeypatch.setattr(
        RadixTree,
        "match",
        lambda self, namespace, tokens: (
            found := match(self, namespace, tokens),
            found._replace(length=found.length - 1) if found.length == 48 < len(tokens) else found,
        )[1],
    )
    with pytest.raises(InvalidPremise, match="reused 47 of 56"):
        counted(HIT)


def test_a_view_of_the_whole_parent_is_stored(
    monkeypatch: pytest.MonkeyPatch, sound: dict[str, Mapping[str, int | float]]
) -> None:
    monkeypatch.setattr(
        KVRun,
        "_part",
        lambda self, start, stop: KVRun(tuple(slab[:, :, start:stop] for slab in self.slabs)),
    )
    assert "bytes kept alive after evicting half" in worse(MEMORY, sound)


def test_a_second_copy_of_the_prefix(
    monkeypatch: pytest.MonkeyPatch, sound: dict[str, Mapping[str, int | float]]
) -> None:
    copy_of = cache_module.copy_of
    hoard: list[KVRun] = []

    def hoarding(slabs, start, stop):  # type: ignore[no-untyped-def]
        hoard.append(copy_of(slabs, start, stop))
        return copy_of(slabs, start, stop)

    monkeypatch.setattr(cache_module, "copy_of", hoarding)
    # The cache's own counter does not know of it; the allocator does.
    assert {"bytes kept alive", "bytes kept alive after evicting all"} <= worse(MEMORY, sound)
    assert "bytes kept by a hit" in worse(HIT, sound)


def test_shared_prefixes_that_are_stored_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedMemory(MODEL, prefix=40, requests=6)
    before = counted(shared)
    assert before["KV bytes stored / every shared run once"] == 1
    lookup = PrefixCache._lookup
    calls = iter(range(1000))

    def apart(self, tokens, adapter, salt, room):  # type: ignore[no-untyped-def]
        return lookup(self, tokens, adapter, str(next(calls)), room)

    monkeypatch.setattr(PrefixCache, "_lookup", apart)
    after = counted(shared)
    assert after["KV bytes stored / every shared run once"] > 1.5
    assert after["prompt tokens computed"] > before["prompt tokens computed"]
    assert after["share of prompt tokens reused"] == 0


def test_idle_buffers_that_are_larger_than_need_be(
    monkeypatch: pytest.MonkeyPatch, sound: dict[str, Mapping[str, int | float]]
) -> None:
    shared = SharedMemory(MODEL, prefix=40, requests=6)
    before = counted(shared)
    monkeypatch.setattr(pool_module, "_GRANULE", 2 * pool_module._GRANULE)
    assert worse(MEMORY, sound) == {"bytes kept alive with an idle buffer"}
    after = counted(shared)
    assert {name for name, value in after.items() if value > before[name]} == {"idle buffer bytes"}
    assert after["idle buffer bytes"] == 2 * before["idle buffer bytes"] > 0


def test_decoding_that_concatenates_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = DecodeCost(MODEL, context=64)
    before = counted(scenario)
    update = BufferLayer.update

    def concatenating(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        keys, values = update(self, key_states, value_states, *args, **kwargs)
        return torch.cat([keys[:, :, :-1], keys[:, :, -1:]], 2), torch.cat([values[:, :, :-1], values[:, :, -1:]], 2)

    monkeypatch.setattr(BufferLayer, "update", concatenating)
    after = counted(scenario)
    assert after["bytes allocated per output token"] > before["bytes allocated per output token"]
    assert after["operator calls per output token"] > before["operator calls per output token"]
