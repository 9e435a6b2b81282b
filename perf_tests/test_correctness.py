"""What is timed is right: the answer through the cache is the answer without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cache_bench.engine import Completion
from cache_bench.engines.transformers_prefix_cache import PrefixCacheEngine
from cache_bench.model import load, load_tokenizer
from cache_bench.prompts import SYSTEM_PROMPT, Prompts
from prefix_cache import PrefixCache

FAMILIES = {"tiny-rope": 40, "tiny-grouped": 40, "tiny-learned": 40, "tinystories-1m-shape": 280}
TIGHT = 1e-4


def difference(ours: Completion, reference: Completion) -> float:
    assert ours.logits is not None
    assert reference.logits is not None
    return float(np.abs(ours.logits - reference.logits).max())


def same_where_clear(ours: list[int], reference: list[int], margins: list[float], tolerance: float) -> None:
    """Greedy tokens agree up to the first one that the reference itself was undecided about."""
    for position, (mine, theirs, margin) in enumerate(zip(ours, reference, margins, strict=True)):
        if margin <= tolerance:
            return
        assert mine == theirs, (
            f"token {position}: {mine} through the cache, {theirs} without, top-2 margin {margin:.3g}"
        )


@pytest.mark.parametrize("model", FAMILIES)
def test_every_hit_length_gives_the_logits_of_the_full_prompt(model: str) -> None:
    engine = PrefixCacheEngine(load(model))
    n = FAMILIES[model]
    prompt = Prompts(model, seed=1).fresh(n)
    full = engine.complete(prompt, reuse=False)
    for hit in range(n):
        if hit:
            engine.complete(prompt[:hit])  # one token longer than what is stored
        with engine.cache.lookup(prompt) as found:  # not stored, or the next hit would be longer
            assert found.length == hit
            logits = engine.cache.run(found.suffix, found.kv)
        assert np.abs(logits[0].numpy() - full.logits).max() < TIGHT, f"hit length {hit}"


def test_hits_of_the_measured_models_give_the_logits_of_the_full_prompt(profile_model: str) -> None:
    engine = PrefixCacheEngine(load(profile_model))
    prompt = Prompts(profile_model, seed=2).prefix(64)
    full = engine.complete(prompt, reuse=False)
    for hit in (0, 1, 31, 62, 63):
        engine.start_over()
        if hit:
            engine.complete(prompt[:hit])
        through = engine.complete(prompt)
        assert through.reused == hit
        assert difference(through, full) < 2 * TIGHT, f"hit length {hit}"


@pytest.mark.parametrize("model", FAMILIES)
def test_bfloat16_hits_are_as_near_the_truth_as_cold_ones(model: str) -> None:
    engine = PrefixCacheEngine(load(model, "bfloat16"))
    prompt = Prompts(model, seed=3).fresh(32)
    truth = PrefixCacheEngine(load(model)).complete(prompt, reuse=False)
    cold = difference(engine.complete(prompt, reuse=False), truth)
    for hit in range(1, 32):
        engine.start_over()
        engine.complete(prompt[:hit])
        through = engine.complete(prompt)
        assert through.reused == hit
        # The resolution of bfloat16 near the largest logit, for the case that cold happens to be almost exact.
        grain = 2.0**-8 * float(np.abs(truth.logits).max())  # type: ignore[arg-type]
        assert difference(through, truth) <= 2 * cold + grain, f"hit length {hit}"


@pytest.mark.parametrize("model", FAMILIES)
def test_the_stored_kv_is_what_answers(model: str) -> None:
    """Poison it, and the answer must change: a cache that computed everything anew would not notice."""
    engine = PrefixCacheEngine(load(model))
    prompt = Prompts(model, seed=4).fresh(32)
    engine.complete(prompt[:31])
    engine.cool()  # a recycled buffer holds a copy that the poison does not reach
    for node in engine.cache._tree.nodes():
        for slab in node.stored().slabs:
            slab.mul_(-1.0)
    full = engine.complete(prompt, reuse=False)
    assert difference(engine.complete(prompt), full) > TIGHT


def test_a_chat_of_several_turns_reads_the_same(profile_model: str) -> None:
    """Greedy text with and without the cache, each turn hitting all that came before it."""
    model, tokenizer = load(profile_model), load_tokenizer(profile_model)
    if tokenizer is None:
        prompts = Prompts(profile_model, seed=5)
        turns = [prompts.fresh(n).tolist() for n in (120, 12, 9)]
    else:
        texts = ["How late may I bring the boat back?", "And if there is thunder?", "My display shows 713. What now?"]
        turns = [tokenizer(f"{SYSTEM_PROMPT[:1200] if not i else ''}\nCustomer: {text}\nAssistant:")["input_ids"]
                 for i, text in enumerate(texts)]  # fmt: skip
    cache = PrefixCache(model)
    talk: list[int] = []
    for turn, ids in enumerate(turns):
        asked = talk + ids
        answer = cache.generate(asked, max_new_tokens=16, do_sample=False)
        row = torch.tensor([asked])
        generate: Any = model.generate
        plain = generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=16,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        margins = [float(top[0, 0] - top[0, 1]) for top in (logits.topk(2).values for logits in plain.logits)]
        new, reference = answer.sequences[0, len(asked) :].tolist(), plain.sequences[0, len(asked) :].tolist()
        assert len(new) == len(reference)
        same_where_clear(new, reference, margins, tolerance=4 * TIGHT)
        # All but the last token of the turn before: it was chosen, but never run.
        assert answer.reused_tokens == max(0, len(talk) - 1), f"turn {turn + 1}"
        talk = answer.sequences[0].tolist()
