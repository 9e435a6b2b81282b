"""Off is a class with the same interface, and is really off."""

from __future__ import annotations

import pytest
import torch

from prefix_cache import Counters, NullPrefixCache, PrefixCache


# LMBenchmark #35, vLLM #52884, #54227: the "cold" arm was warm.
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_the_cold_arm_is_cold_every_time(zoo, tokens, cold, kind: str) -> None:
    model = zoo.shared(kind)
    prompt = tokens(1, 20)
    null = NullPrefixCache(model)
    warm = PrefixCache(model)
    for round_ in range(3):
        result = null.prefill(prompt)
        assert (result.reused_tokens, result.computed_tokens, result.stored_tokens) == (0, 20, 0)
        assert (result.logits[0] - cold(model, prompt)[-1]).abs().max() < 1e-5
        assert warm.prefill(prompt).reused_tokens == (19 if round_ else 0)
        assert torch.allclose(result.logits, warm.prefill(prompt).logits, atol=1e-4)
    assert null.counters() == Counters(requests=3, prompt_tokens=60)
    generation = null.generate(prompt, max_new_tokens=3, do_sample=False)
    assert (generation.reused_tokens, generation.stored_tokens) == (0, 0)
    null.clear()
    null.check()


def test_two_hits_share_nothing(llama, tokens) -> None:
    null = NullPrefixCache(llama)
    with null.lookup(tokens(1, 9)) as a, null.lookup(tokens(1, 9)) as b:
        null.run(a.suffix, a.kv)
        assert (a.length, a.matched, a.kv.get_seq_length(), b.kv.get_seq_length()) == (0, 0, 9, 0)
        assert a.store() == 0
