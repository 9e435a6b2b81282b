"""Several threads look up, run, store, evict and clear at once; nothing is lost, leaked or mixed up."""

from __future__ import annotations

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from prefix_cache import PrefixCache

THREADS = 4
STEPS = 40


@pytest.fixture(autouse=True)
def _switch_often() -> object:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("budget", [None, 60])
@pytest.mark.parametrize("idle", [0, 3])
def test_threads(zoo, pins, budget: int | None, idle: int) -> None:
    model = zoo.fresh("llama", num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=16)
    model.requires_grad_(False)
    per_token = PrefixCache(model).nbytes_per_token
    cache = PrefixCache(model, budget_bytes=budget and budget * per_token, idle_buffers=idle)
    start = threading.Barrier(THREADS)

    def serve(seed: int) -> torch.Tensor:
        dice = random.Random(seed)
        errors = [torch.zeros(())]
        start.wait()
        for _ in range(STEPS):
            ids = [dice.randrange(2) for _ in range(dice.randint(1, 24))]
            with torch.no_grad():
                expected = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
            what = dice.randrange(12)
            if what == 0:
                cache.clear()
            elif what == 1:
                cache.drop_idle_buffers()
            elif what == 2:
                cache.check()
            elif what == 3:
                cache.counters()
            try:
                with cache.lookup(ids) as hit:
                    logits = cache.run(hit.suffix, hit.kv)[0]
                    if what == 4:
                        raise InterruptedError
                    hit.store()
                errors.append((logits - expected).abs().max())
            except InterruptedError:
                pass
        return torch.stack(errors).max()

    with ThreadPoolExecutor(THREADS) as pool:
        worst = torch.stack(list(pool.map(serve, range(THREADS))))
    assert worst.max() < 1e-4
    cache.check()
    counters = cache.counters()
    assert counters.requests == THREADS * STEPS
    assert (pins(cache), counters.in_use_bytes_live) == (0, 0)
    assert counters.stored_tokens - counters.evicted_tokens == counters.tokens_live
    cache.clear()
    assert cache.counters().tokens_live == 0


def test_threads_that_miss_on_the_same_prompt_store_it_once(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, 30)
    inside = threading.Barrier(THREADS)

    def serve(_: int) -> int:
        with cache.lookup(prompt) as hit:
            inside.wait()
            cache.run(hit.suffix, hit.kv)
            return hit.store()

    with ThreadPoolExecutor(THREADS) as pool:
        stored = sorted(pool.map(serve, range(THREADS)))
    assert stored == [0, 0, 0, 30]
    assert cache.counters().tokens_live == 30
    cache.check()


def test_a_hit_that_ends_in_another_thread(llama, tokens, pins) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 12))
    manager = cache.lookup(tokens(1, 20))
    hit = manager.__enter__()

    def finish() -> int:
        cache.run(hit.suffix, hit.kv)
        stored = hit.store()
        manager.__exit__(None, None, None)
        return stored

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(finish).result() == 8
    assert pins(cache) == 0
    cache.check()
