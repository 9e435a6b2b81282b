"""Random histories of requests against one cache: several in flight, errors in the middle, a budget that binds."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from transformers import DynamicCache, PreTrainedModel

from prefix_cache import KeyLengthError, PrefixCache
from prefix_cache.abstract import Hit

Space = tuple[str | None, str | None]
SPACES: list[Space] = [(None, None), ("x", None), (None, "x")]


class Cancelled(BaseException):
    """Like KeyboardInterrupt and CancelledError: no Exception."""


def shared(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class RequestMachine(RuleBasedStateMachine):
    """The oracle is the list of what was stored; it is exact as long as nothing was evicted, else an upper bound."""

    steps = 0
    model: PreTrainedModel

    @initialize(budget=st.sampled_from([None, 8, 20, 40, 3000]), idle=st.integers(0, 3))
    def begin(self, budget: int | None, idle: int) -> None:
        probe = PrefixCache(self.model)
        self.cache = PrefixCache(
            self.model,
            budget_bytes=None if budget is None else budget * probe.nbytes_per_token,
            idle_buffers=idle,
        )
        self.stored: dict[Space, list[list[int]]] = {space: [] for space in SPACES}
        self.open: list[tuple[AbstractContextManager[Hit], Hit, Space]] = []
        self.requests = self.prompt_tokens = 0

    spaces = st.sampled_from(SPACES)
    prompts = st.lists(st.integers(0, 2), min_size=1, max_size=12)

    def lost(self) -> bool:
        counters = self.cache.counters()
        return bool(counters.evicted_tokens or counters.refused_tokens)

    def expect(self, hit: Hit, ids: list[int], space: Space) -> None:
        self.requests += 1
        self.prompt_tokens += len(ids)
        best = max((shared(ids, other) for other in self.stored[space]), default=0)
        assert hit.matched <= best
        assert hit.length == min(hit.matched, len(ids) - 1)
        if not self.lost():
            assert hit.matched == best

    def run_and_compare(self, hit: Hit, ids: list[int]) -> None:
        logits = self.cache.run(hit.suffix, hit.kv)
        with torch.no_grad():
            expected = self.model(torch.tensor([ids]), use_cache=False).logits[:, -1]
        assert (logits - expected).abs().max() < 1e-4

    @rule(ids=prompts, space=spaces)
    def request(self, ids: list[int], space: Space) -> None:
        with self.cache.lookup(ids, adapter=space[0], salt=space[1]) as hit:
            self.expect(hit, ids, space)
            self.run_and_compare(hit, ids)
            assert 0 <= hit.store() <= len(ids) - hit.length
            self.stored[space].append(ids)
            assert hit.store() in (0, len(ids) - hit.matched), "stored twice, or refused again"

    @rule(ids=prompts, space=spaces, new=st.integers(1, 5))
    def generate(self, ids: list[int], space: Space, new: int) -> None:
        result = self.cache.generate(ids, max_new_tokens=new, do_sample=False, adapter=space[0], salt=space[1])
        self.requests += 1
        self.prompt_tokens += len(ids)
        self.stored[space].append(result.sequences[0, :-1].tolist())

    @rule(ids=prompts, space=spaces, room=st.integers(0, 300))
    def enter(self, ids: list[int], space: Space, room: int) -> None:
        if len(self.open) < 3:
            manager = self.cache.lookup(ids, adapter=space[0], salt=space[1], room=room)
            hit = manager.__enter__()
            self.expect(hit, ids, space)
            self.open.append((manager, hit, space))

    @rule(which=st.integers(0, 9), more=st.lists(st.integers(0, 2), max_size=4))
    def finish(self, which: int, more: list[int]) -> None:
        if self.open:
            manager, hit, space = self.open.pop(which % len(self.open))
            ids = hit.prompt.tolist()
            self.run_and_compare(hit, ids)
            if more:
                self.cache.run(torch.tensor([more]), hit.kv)
            hit.store(ids + more)
            self.stored[space].append(ids + more)
            manager.__exit__(None, None, None)

    @rule(which=st.integers(0, 9), error=st.sampled_from([ValueError, Cancelled]))
    def fail(self, which: int, error: type[BaseException]) -> None:
        if self.open:
            manager, hit, _ = self.open.pop(which % len(self.open))
            with pytest.raises(KeyLengthError):
                hit.store([*hit.prompt.tolist(), 1])
            assert not manager.__exit__(error, error(), None), "the error was swallowed"

    @rule(ids=prompts, space=spaces)
    def insert(self, ids: list[int], space: Space) -> None:
        kv = DynamicCache()
        with torch.no_grad():
            self.model(torch.tensor([ids]), cache=kv, use_cache=True)
        before = self.lost()
        stored = self.cache.insert(ids, kv, adapter=space[0], salt=space[1])
        best = max((shared(ids, other) for other in self.stored[space]), default=0)
        if not before and not self.lost():
            assert stored == len(ids) - best
        self.stored[space].append(ids)

    @rule(rare=st.integers(0, 7))
    def clear(self, rare: int) -> None:
        if not rare:
            self.cache.clear()
            if not self.open:
                assert self.cache.counters().tokens_live == 0
                assert self.cache.counters().idle_bytes_live == 0

    @rule()
    def drop_idle_buffers(self) -> None:
        self.cache.drop_idle_buffers()
        assert self.cache.counters().idle_bytes_live == 0

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "cache"):
            return
        type(self).steps += 1
        cache = self.cache
        cache.check()
        counters = cache.counters()
        assert all(value >= 0 for value in vars(counters).values())
        assert (counters.requests, counters.prompt_tokens) == (self.requests, self.prompt_tokens)
        assert counters.stored_tokens - counters.evicted_tokens == counters.tokens_live
        assert counters.stored_bytes_live == counters.tokens_live * cache.nbytes_per_token
        assert counters.reused_tokens <= counters.matched_tokens <= counters.prompt_tokens
        assert counters.peak_bytes >= counters.stored_bytes_live + counters.idle_bytes_live
        pins = sum(node.pins for node in cache._tree.nodes())
        assert pins <= len(self.open)
        assert pins == sum(hit.matched > 0 for _, hit, _ in self.open)
        assert bool(counters.in_use_bytes_live) == bool(self.open)

    def teardown(self) -> None:
        for manager, _, _ in getattr(self, "open", ()):
            manager.__exit__(None, None, None)
        if hasattr(self, "cache"):
            self.cache.check()
            self.cache.clear()
            assert self.cache.counters().tokens_live == 0, "something stayed pinned"


def test_any_history_of_requests(zoo) -> None:
    model = zoo.fresh("llama", num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=16)
    machine = type("Machine", (RequestMachine,), {"model": model.requires_grad_(False), "steps": 0})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=40))
    assert machine.steps >= 1_000
