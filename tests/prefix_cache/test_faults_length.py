"""Faults of hit length that other prefix caches shipped; each comment names where."""

from __future__ import annotations

import pytest
import torch

from prefix_cache import PrefixCache, PromptError


# mlx-lm #1215, nano-vllm #144, llama.cpp #4902, vLLM #9972: nothing left to run.
@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_the_same_prompt_twice_leaves_one_token_to_run(zoo, tokens, cold, n: int) -> None:
    for kind in ("llama", "gpt2"):
        model = zoo.shared(kind)
        prompt = tokens(1, n)
        cache = PrefixCache(model)
        cache.prefill(prompt)
        with cache.lookup(prompt) as hit:
            assert (hit.length, hit.matched, hit.suffix.shape) == (n - 1, n, (1, 1))
            logits = cache.run(hit.suffix, hit.kv)[0]
            assert hit.store() == 0
        assert (logits - cold(model, prompt)[-1]).abs().max() < 1e-4
        cache.check()


# transformers #36151, #38727, #40536: the stored entry is longer than the prompt.
@pytest.mark.parametrize("asked", [1, 2, 15, 29, 30])
def test_a_stored_entry_longer_than_the_prompt_is_trimmed(zoo, tokens, cold, asked: int) -> None:
    for kind in ("llama", "gpt2", "mistral"):
        model = zoo.shared(kind)
        stored = tokens(2, 30)
        cache = PrefixCache(model)
        cache.prefill(stored)
        for _ in range(2):
            result = cache.prefill(stored[:asked])
            assert result.reused_tokens == asked - 1
            assert result.stored_tokens == 0
            assert (result.logits[0] - cold(model, stored[:asked])[-1]).abs().max() < 1e-4
            cache.check()
        assert cache.counters().tokens_live == 30


# vLLM #53749, mlx-lm #1495: short prefixes silently never hit; here no block size b exists, so every b is tried.
@pytest.mark.parametrize("b", [1, 2, 16, 256])
def test_short_prefixes_hit_to_the_token(llama, tokens, b: int) -> None:
    for n in {1, 2, b - 1, b, b + 1} - {0}:
        cache = PrefixCache(llama)
        stored = tokens(3, n)
        cache.prefill(stored)
        with cache.lookup([*stored, 5]) as hit:
            assert hit.length == n
        with cache.lookup(stored) as hit:
            assert hit.length == n - 1
    with pytest.raises(PromptError, match="empty"), PrefixCache(llama).lookup([]):
        pass


# sglang #16521: generated tokens were left out of the key.
def test_the_second_turn_of_a_chat_hits_the_answer_of_the_first(llama, tokens) -> None:
    cache = PrefixCache(llama)
    first = cache.generate(tokens(4, 20), max_new_tokens=8, do_sample=False)
    assert first.stored_tokens == 27  # all but the last token, which was never run
    history = [*first.sequences[0].tolist(), *tokens(5, 6)]
    second = cache.generate(history, max_new_tokens=8, do_sample=False)
    assert second.reused_tokens == 27
    third = cache.prefill([*second.sequences[0].tolist(), 1])
    assert third.reused_tokens == 20 + 8 + 6 + 7
    assert cache.counters().reused_tokens == 27 + 41
    cache.check()


def test_random_tokens_of_the_whole_vocabulary(llama, cold) -> None:
    cache = PrefixCache(llama)
    prompt = [96, 0, 96, 0, 0, 96]
    cache.prefill(prompt)
    result = cache.prefill([*prompt[:4], 96, 0])
    assert result.reused_tokens == 4
    assert (result.logits[0] - cold(llama, [*prompt[:4], 96, 0])[-1]).abs().max() < 1e-4


# SmolLM2 and GPT-2 end prompts in the same token that begins them; TGI PR #3067, sglang PR #10637: partial edges.
def test_storing_a_prefix_an_extension_and_a_fork_in_every_order(llama, tokens) -> None:
    base = tokens(7, 12)
    forms = [base, base[:5], [*base, 1, 2], [*base[:5], (base[5] + 1) % 97], base[:1]]
    orders = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(s)) for s in range(12)]).tolist()
    for order in orders:
        cache = PrefixCache(llama)
        for index in order:
            cache.prefill(forms[index])
            cache.check()
        assert cache.counters().tokens_live == 12 + 2 + 1
        for form in forms:
            with cache.lookup(form) as hit:
                assert hit.matched == len(form)
