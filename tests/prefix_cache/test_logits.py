"""Logits through the cache equal logits of the whole prompt, at every hit length and on every way to a hit."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, PreTrainedModel

from prefix_cache import NullPrefixCache, PrefixCache

KINDS = ["llama", "grouped", "gpt2", "gpt_neo", "mistral", "gemma2", "deepseek", "bloom"]
WAYS = ["fresh", "recycled", "split", "tail evicted"]
TOLERANCE = 1e-4


def length_of(kind: str) -> int:
    # Longer than the window of the kinds that have one (GPT-Neo: 256; Mistral and Gemma 2 here: 12).
    return 264 if kind == "gpt_neo" else 30


def turns(prompt: list[int], vocabulary: int) -> list[list[int]]:
    """Row h agrees with `prompt` in exactly its first h tokens."""
    other = [(token + 1) % vocabulary for token in prompt]
    return [prompt[:h] + other[h:] for h in range(len(prompt))]


@torch.no_grad()
def cold_rows(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Logits [rows, n, vocabulary], a few rows at a time to bound memory."""
    return torch.cat([model(torch.tensor(rows[i : i + 32]), use_cache=False).logits for i in range(0, len(rows), 32)])


def prepare(cache: PrefixCache, prompt: list[int], way: str, vocabulary: int) -> None:
    """Store `prompt` in the manner of `way`."""
    n = len(prompt)
    other = [(token + 1) % vocabulary for token in prompt]
    if way == "tail evicted":
        cache.prefill(prompt + other[:16])
        cache.prefill(prompt + prompt[:16])  # splits at n: two tails, of which this one is younger
        for _ in range(2):
            assert cache._tree.pop_lru() is not None
        assert cache.counters().tokens_live == n
    elif way == "split":
        cache.prefill(prompt)
        third = [(token + 2) % vocabulary for token in prompt]
        for at in (1, n // 3, n // 2, n - 1):
            cache.prefill(prompt[:at] + third[at:])
        assert len(list(cache._tree.nodes())) > 8
    else:
        cache.prefill(prompt)
    cache.check()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_at_every_hit_length(zoo, tokens, kind: str, way: str) -> None:
    model = zoo.shared(kind)
    vocabulary = model.config.vocab_size
    prompt = tokens(1, length_of(kind))
    rows = turns(prompt, vocabulary)
    asked = range(len(prompt))
    if kind == "gpt_neo":  # every length of it: the next test
        asked = sorted({*range(3), *range(120, 264, 48), *range(254, 260), len(prompt) - 1})
    expected = cold_rows(model, [rows[h] for h in asked])
    cache = PrefixCache(model, idle_buffers=1)
    prepare(cache, prompt, way, vocabulary)
    if way == "recycled":
        cache.prefill(prompt)
    errors = []
    # Falling lengths, so that a recycled buffer always holds enough.
    for h, logits in reversed(list(zip(asked, expected, strict=True))):
        if way != "recycled":
            cache.drop_idle_buffers()
        before = cache.counters()
        with cache.lookup(rows[h]) as hit, torch.no_grad():
            assert hit.length == h
            assert hit.suffix.shape == (1, len(prompt) - hit.length)
            copied = cache.counters().copied_bytes - before.copied_bytes
            assert copied == (0 if way == "recycled" else hit.length * cache.nbytes_per_token)
            warm = model(hit.suffix, cache=hit.kv, use_cache=True).logits[0]
            errors.append((warm - logits[hit.length :]).abs().max())
    assert torch.stack(errors).max() < TOLERANCE  # NaN included, unlike with the built-in max
    cache.check()


def test_gpt_neo_at_every_hit_length(zoo, tokens, cold) -> None:
    model = zoo.shared("gpt_neo")
    prompt = tokens(1, length_of("gpt_neo"))
    expected = cold(model, prompt)
    whole = DynamicCache()
    with torch.no_grad():
        model(torch.tensor([prompt]), cache=whole, use_cache=True)
    cache = PrefixCache(model)
    errors = []
    for h in range(len(prompt)):
        cache.clear()
        if h:
            part = copy.deepcopy(whole)
            part.crop(h - len(prompt))
            assert cache.insert(prompt[:h], part) == h
        with cache.lookup(prompt) as hit, torch.no_grad():
            assert hit.length == h
            warm = model(hit.suffix, cache=hit.kv, use_cache=True).logits[0]
        errors.append((warm - expected[h:]).abs().max())
    assert torch.stack(errors).max() < TOLERANCE  # NaN included, unlike with the built-in max
    cache.check()


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_prompt_twice(zoo, tokens, cold, kind: str) -> None:
    model = zoo.shared(kind)
    prompt = tokens(2, length_of(kind))
    expected = cold(model, prompt)[-1]
    cache = PrefixCache(model)
    for round_, reused in enumerate((0, len(prompt) - 1, len(prompt) - 1)):
        result = cache.prefill(prompt)
        assert result.reused_tokens == reused, f"round {round_}"
        assert result.computed_tokens == len(prompt) - reused
        assert (result.logits[0] - expected).abs().max() < TOLERANCE
        cache.check()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_bfloat16_error_of_a_hit_is_at_most_twice_that_of_cold(zoo, tokens, kind: str) -> None:
    model = zoo.fresh(kind).to(torch.bfloat16)
    reference_model = zoo.fresh(kind).to(torch.bfloat16).to(torch.float32)
    prompt = tokens(3, 28)
    rows = turns(prompt, model.config.vocab_size)
    reference, plain = cold_rows(reference_model, rows), cold_rows(model, rows).float()
    cache = PrefixCache(model)
    cache.prefill(prompt)
    cold_errors, warm_errors = [], []
    sure = 0
    for h, row in enumerate(rows):
        with cache.lookup(row) as hit, torch.no_grad():
            assert hit.length == h
            warm = model(hit.suffix, cache=hit.kv).logits[0].float()
        cold_errors.append((plain[h, h:] - reference[h, h:]).abs().max())
        warm_errors.append((warm - reference[h, h:]).abs().max())
        if reference[h, -1].topk(2).values.diff().abs() > 4 * cold_errors[-1]:
            sure += 1
            assert warm[-1].argmax() == reference[h, -1].argmax()
    cold_error, warm_error = torch.stack(cold_errors).max(), torch.stack(warm_errors).max()
    assert sure, "every argmax was a near tie"
    assert cold_error > 0, "bfloat16 was not used"
    assert warm_error <= 2 * cold_error + torch.finfo(torch.bfloat16).eps


@settings(max_examples=60)
@given(data=st.data())
def test_shapes_of_prompts(zoo, data: st.DataObject) -> None:
    model = zoo.shared(data.draw(st.sampled_from(["grouped", "gpt2", "mistral"]), "kind"))
    short = st.lists(st.integers(0, 2), min_size=1, max_size=24)
    stored = data.draw(st.lists(short, max_size=5), "stored")
    prompt = data.draw(short, "prompt")
    if stored and data.draw(st.booleans(), "shares"):
        base = data.draw(st.sampled_from(stored), "base")
        prompt = base[: data.draw(st.integers(0, len(base)), "shared")] + prompt
    cache = PrefixCache(model, idle_buffers=data.draw(st.integers(0, 3), "idle"))
    for ids in stored:
        cache.prefill(ids)
    matched = max((shared(ids, prompt) for ids in stored), default=0)
    with cache.lookup(prompt) as hit, torch.no_grad():
        assert (hit.matched, hit.length) == (matched, min(matched, len(prompt) - 1))
        warm = model(hit.suffix, cache=hit.kv).logits[0]
        assert hit.store() == len(prompt) - matched
    expected = cold_rows(model, [prompt])[0, hit.length :]
    assert (warm - expected).abs().max() < TOLERANCE
    cache.check()


def shared(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


# ---- generation ------------------------------------------------------------------------------------------------------


def plain_generate(model: PreTrainedModel, ids: list[int], **options: object) -> torch.Tensor:
    prompt = torch.tensor([ids])
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_the_same_with_and_without(zoo, tokens, kind: str) -> None:
    model = zoo.shared(kind)
    prompt = tokens(4, length_of(kind))
    expected = plain_generate(model, prompt, max_new_tokens=12, do_sample=False)
    assert torch.equal(NullPrefixCache(model).generate(prompt, max_new_tokens=12, do_sample=False).sequences, expected)
    cache = PrefixCache(model)
    cache.prefill(prompt[:-7])
    for reused in (len(prompt) - 7, len(prompt) - 1):
        result = cache.generate(prompt, max_new_tokens=12, do_sample=False)
        assert result.reused_tokens == reused
        assert torch.equal(result.sequences, expected)
        cache.check()


def test_generate_by_hand(llama, tokens) -> None:
    prompt = tokens(5, 20)
    expected = plain_generate(llama, prompt, max_new_tokens=10, do_sample=False)
    cache = PrefixCache(llama)
    cache.prefill(prompt[:11])
    with cache.lookup(prompt, room=10) as hit:
        ids = torch.tensor([prompt])
        output = llama.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            cache=hit.kv,
            max_new_tokens=10,
            do_sample=False,
        )
        assert torch.equal(output, expected)
        assert hit.store(output[0, :-1]) == 20 + 9 - 11
    cache.check()


def test_sampled_generate_draws_the_same_with_a_seed(llama, tokens) -> None:
    prompt = tokens(6, 16)
    cache = PrefixCache(llama)
    cache.prefill(prompt)
    drawn = []
    for generate in (lambda **o: plain_generate(llama, prompt, **o), lambda **o: cache.generate(prompt, **o).sequences):
        torch.manual_seed(7)
        drawn.append(generate(max_new_tokens=24, do_sample=True, temperature=1.5, top_k=0))
    assert torch.equal(*drawn)


def test_generation_stops_at_eos(llama, tokens) -> None:
    prompt = tokens(7, 16)
    free = plain_generate(llama, prompt, max_new_tokens=12, do_sample=False)
    eos = int(free[0, 16 + 4])
    stop = 16 + 1 + free[0, 16:].tolist().index(eos)
    cache = PrefixCache(llama)
    for _ in range(2):
        result = cache.generate(prompt, max_new_tokens=12, do_sample=False, eos_token_id=eos, pad_token_id=0)
        assert result.sequences.shape[1] == stop
        assert torch.equal(result.sequences, free[:, :stop])
    assert cache.counters().tokens_live == stop - 1  # the last token was never run
    cache.check()


def test_one_new_token(llama, tokens) -> None:
    prompt = tokens(8, 9)
    cache = PrefixCache(llama)
    first = cache.generate(prompt, max_new_tokens=1, do_sample=False)
    assert (first.reused_tokens, first.stored_tokens) == (0, 9)
    again = cache.generate(prompt, max_new_tokens=1, do_sample=False)
    assert (again.reused_tokens, again.stored_tokens) == (8, 0)
    assert torch.equal(first.sequences, again.sequences)
    one = cache.generate(prompt[:1], max_new_tokens=1, do_sample=False)
    assert one.reused_tokens == 0
    cache.check()


def test_generation_may_outgrow_the_buffer(llama, tokens) -> None:
    # Buffers come in granules of 256 positions; by hand nobody says how much room will be needed.
    prompt = tokens(9, 250)
    expected = plain_generate(llama, prompt, max_new_tokens=20, do_sample=False)
    cache = PrefixCache(llama)
    cache.prefill(prompt[:200])
    with cache.lookup(prompt) as hit:
        ids = torch.tensor([prompt])
        output = llama.generate(
            ids, attention_mask=torch.ones_like(ids), cache=hit.kv, max_new_tokens=20, do_sample=False
        )
        assert hit.kv.grown_nbytes >= 256 * cache.nbytes_per_token
        hit.store(output[0, :-1])
    assert torch.equal(output, expected)
    assert cache.counters().grown_bytes >= 256 * cache.nbytes_per_token
    cache.check()
    assert cache.generate(prompt, max_new_tokens=20, do_sample=False).reused_tokens == 249
    cache.check()


def test_prefill_in_chunks(llama, tokens) -> None:
    prompt = tokens(10, 40)
    expected = plain_generate(llama, prompt, max_new_tokens=8, do_sample=False)
    cache = PrefixCache(llama)
    cache.prefill(prompt[:9])
    result = cache.generate(prompt, max_new_tokens=8, do_sample=False, prefill_chunk_size=8)
    assert torch.equal(result.sequences, expected)


def test_dictionary_output(llama, tokens) -> None:
    result = PrefixCache(llama).generate(
        tokens(11, 12), max_new_tokens=4, do_sample=False, return_dict_in_generate=True, output_scores=True
    )
    assert result.sequences.shape == (1, 16)


# ---- the KV of a hit, used as assisted decoding and chat loops use a cache -------------------------------------------


def step(model: PreTrainedModel, ids: list[int], kv: object) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids]), cache=kv, use_cache=True).logits[0]


def test_crop_and_go_on_differently(llama, tokens, cold) -> None:
    prompt = tokens(12, 24)
    draft, truth = [5, 6, 7, 8], [5, 6, 40, 41]
    cache = PrefixCache(llama)
    cache.prefill(prompt[:20])
    with cache.lookup(prompt) as hit:
        step(llama, prompt[20:] + draft, hit.kv)
        hit.kv.crop(-2)
        logits = step(llama, truth[2:], hit.kv)
        assert (logits[-1] - cold(llama, prompt + truth)[-1]).abs().max() < TOLERANCE
        assert hit.store(prompt + truth) == 8
        cache.check()
    cache.check()
    assert (cache.prefill(prompt + truth).logits[0] - cold(llama, prompt + truth)[-1]).abs().max() < TOLERANCE


def test_crop_into_what_was_reused_and_replace_it(llama, tokens, cold) -> None:
    prompt = tokens(13, 24)
    other = prompt[:10] + [(t + 1) % 97 for t in prompt[10:]]
    cache = PrefixCache(llama)
    cache.prefill(prompt)
    with cache.lookup(prompt) as hit:
        assert hit.length == 23
        hit.kv.crop(-13)
        logits = step(llama, other[10:], hit.kv)
        assert (logits[-1] - cold(llama, other)[-1]).abs().max() < TOLERANCE
        assert hit.store(other) == 14
    cache.check()
    for ids in (prompt, other):
        assert (cache.prefill(ids).logits[0] - cold(llama, ids)[-1]).abs().max() < TOLERANCE
        cache.check()


def test_crop_to_less_than_the_hit_and_store_that(llama, tokens) -> None:
    prompt = tokens(14, 24)
    cache = PrefixCache(llama)
    cache.prefill(prompt)
    with cache.lookup(prompt) as hit:
        hit.kv.crop(-(23 - 5))
        assert hit.store(prompt[:5]) == 0
        hit.kv.crop(-5)
        assert hit.kv.get_seq_length() == 0
        step(llama, [1, 2, 3], hit.kv)
        assert hit.store([1, 2, 3]) == 3
        cache.check()
    cache.check()
    with pytest.raises(ValueError, match="negative number"), cache.lookup(prompt) as hit:
        hit.kv.crop(3)


def test_crop_then_the_same_tokens_again_is_not_taken_for_stored_bits(llama, tokens) -> None:
    prompt = tokens(15, 24)
    cache = PrefixCache(llama)
    cache.prefill(prompt)
    with cache.lookup(prompt) as hit:
        hit.kv.crop(-10)
        step(llama, prompt[13:], hit.kv)
        hit.kv.layers[0].keys[..., 15, :] += 1.0  # scratch: the caller's own business
    cache.check()  # compares what the recycled buffer claims to hold with what is stored
    with cache.lookup(prompt) as hit:
        stored = next(cache._tree.nodes()).stored().slabs[0]
        assert torch.equal(hit.kv.buffer.slabs[0][:, :, :23], stored[:, :, :23])


def test_reset_forgets_every_position(llama, tokens, cold) -> None:
    prompt, other = tokens(30, 24), tokens(31, 9)
    cache = PrefixCache(llama)
    cache.prefill(prompt)
    with cache.lookup(prompt) as hit:
        hit.kv.reset()
        assert hit.kv.get_seq_length() == 0
        logits = step(llama, other, hit.kv)
        assert hit.store(other) == 9
    assert (logits[-1] - cold(llama, other)[-1]).abs().max() < TOLERANCE
    cache.check()


def test_several_turns_over_one_hit(llama, tokens, cold) -> None:
    prompt = tokens(16, 12)
    cache = PrefixCache(llama)
    ids = list(prompt)
    with cache.lookup(prompt, room=40) as hit:
        step(llama, prompt, hit.kv)
        assert hit.store() == 12
        for turn in range(4):
            more = tokens(100 + turn, 9)
            ids += more
            assert (step(llama, more, hit.kv)[-1] - cold(llama, ids)[-1]).abs().max() < TOLERANCE
            assert hit.store(ids) == 9
            cache.check()
    cache.check()
    with cache.lookup([*ids, 3]) as hit:
        assert hit.length == len(ids)
        assert cache.counters().recycled_hits == 1


def test_deep_copy_of_a_hit_is_an_independent_continuation(llama, tokens, cold) -> None:
    # transformers' own recipe for reusing a prompt is copy.deepcopy(past_key_values).
    prompt, left, right = tokens(17, 200), tokens(18, 20), tokens(19, 500)
    cache = PrefixCache(llama)
    cache.prefill(prompt)
    with cache.lookup([*prompt, 1]) as hit:
        twin = copy.deepcopy(hit.kv)
        two = step(llama, right, twin)  # outgrows its buffer
        one = step(llama, left, hit.kv)
        assert hit.kv.get_seq_length() == 220
        assert twin.get_seq_length() == 700
        cache.check()
    assert (one[-1] - cold(llama, prompt + left)[-1]).abs().max() < TOLERANCE
    assert (two[-1] - cold(llama, prompt + right)[-1]).abs().max() < TOLERANCE
    three = step(llama, left, twin)  # still usable: its memory is its own
    assert (three[-1] - cold(llama, prompt + right + left)[-1]).abs().max() < TOLERANCE
    cache.check()


# ---- modes of torch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_under_every_gradient_mode(zoo, tokens, cold, outer: Callable[[], object]) -> None:
    model = zoo.fresh("grouped")  # its weights require gradients
    prompt = tokens(20, 20)
    with outer():
        cache = PrefixCache(model)
        cache.generate(prompt, max_new_tokens=3, do_sample=False)
        with cache.lookup(prompt) as hit:
            inside = model(hit.suffix, cache=hit.kv).logits[0, -1]
            hit.store()
    assert (inside - cold(model, prompt)[-1]).abs().max() < TOLERANCE
    cache.check()
    outside = cache.prefill(prompt)
    assert outside.reused_tokens == 19
    assert (outside.logits[0] - cold(model, prompt)[-1]).abs().max() < TOLERANCE


def test_looked_up_in_inference_mode_and_run_outside(zoo, tokens, cold) -> None:
    model = zoo.fresh("llama")
    prompt = tokens(21, 20)
    cache = PrefixCache(model)
    cache.prefill(prompt[:12])
    with torch.inference_mode():
        manager = cache.lookup(prompt)
        hit = manager.__enter__()
    logits = model(hit.suffix, cache=hit.kv).logits[0, -1]
    hit.store()
    manager.__exit__(None, None, None)
    assert logits.requires_grad
    assert (logits - cold(model, prompt)[-1]).abs().max() < TOLERANCE
    cache.check()


def test_grown_in_inference_mode_and_run_outside(llama, tokens, cold) -> None:
    prompt = tokens(22, 300)
    cache = PrefixCache(llama)
    with cache.lookup(prompt[:10]) as hit:
        cache.run(torch.tensor([prompt[:290]]), hit.kv)
        logits = llama(torch.tensor([prompt[290:]]), cache=hit.kv).logits[0, -1]
        hit.store(prompt)
    assert (logits - cold(llama, prompt)[-1]).abs().max() < TOLERANCE
    cache.check()


def test_tied_weights(zoo, tokens, cold) -> None:
    model = zoo.fresh("llama", tie_word_embeddings=True)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    cache = PrefixCache(model)
    prompt = tokens(23, 20)
    cache.prefill(prompt[:15])
    result = cache.prefill(prompt)
    assert result.reused_tokens == 15
    assert (result.logits[0] - cold(model, prompt)[-1]).abs().max() < TOLERANCE


def test_a_model_whose_code_still_says_past_key_values(zoo, tokens, cold, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo.fresh("llama").requires_grad_(False)
    forward = model.forward

    def older(input_ids, past_key_values=None, use_cache=None):  # type: ignore[no-untyped-def]
        return forward(input_ids, cache=past_key_values, use_cache=use_cache)

    prompt = tokens(32, 20)
    expected = cold(model, prompt)[-1]
    monkeypatch.setattr(model, "forward", older)
    cache = PrefixCache(model)
    cache.prefill(prompt[:15])
    result = cache.prefill(prompt)
    assert result.reused_tokens == 15
    assert (result.logits[0] - expected).abs().max() < TOLERANCE
    cache.check()


def test_two_caches_on_one_model(llama, tokens, cold) -> None:
    one, two = PrefixCache(llama), PrefixCache(llama, idle_buffers=0)
    prompt = tokens(24, 20)
    one.prefill(prompt)
    assert two.prefill(prompt).reused_tokens == 0
    with one.lookup(prompt) as hit, two.lookup(prompt) as other:
        a, b = (llama(h.suffix, cache=h.kv).logits[0, -1] for h in (hit, other))
    for logits in (a, b):
        assert (logits - cold(llama, prompt)[-1]).abs().max() < TOLERANCE
    one.check()
    two.check()


def test_hits_within_hits_on_the_same_prefix(llama, tokens, cold) -> None:
    prompt = tokens(25, 30)
    cache = PrefixCache(llama, idle_buffers=2)
    cache.prefill(prompt)
    asked = [[*prompt[: 10 * i], 1, 2, 3] for i in (1, 2, 3)]
    with cache.lookup(asked[0]) as a, cache.lookup(asked[1]) as b, cache.lookup(asked[2]) as c:
        logits = [llama(h.suffix, cache=h.kv).logits[0, -1] for h in (c, a, b)]
        for hit in (b, c, a):
            hit.store()
            cache.check()
    cache.check()
    for got, ids in zip(logits, (asked[2], asked[0], asked[1]), strict=True):
        assert (got - cold(llama, ids)[-1]).abs().max() < TOLERANCE


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
def test_kv_inserted_from_outside(zoo, tokens, cold, kind: str) -> None:
    model = zoo.shared(kind)
    prompt = tokens(26, 30)
    kv = DynamicCache()
    with torch.no_grad():
        model(torch.tensor([prompt[:25]]), cache=kv, use_cache=True)
    cache = PrefixCache(model)
    assert cache.insert(prompt[:25], kv) == 25
    result = cache.prefill(prompt)
    assert result.reused_tokens == 25
    assert (result.logits[0] - cold(model, prompt)[-1]).abs().max() < TOLERANCE
    cache.check()
