"""Prompts and answers that are longer than the model's positions."""

from __future__ import annotations

import warnings

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedModel

from prefix_cache import NullPrefixCache, PositionsError, PrefixCache

LIMIT = 64
_SHAPE = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_GPT = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": LIMIT}
_QUIET = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}

# Each looks its positions up in a way of its own: by a table that begins at 0 or at 2, for its sines, for its ALiBi.
LEARNED = {
    "GPT2LMHeadModel": _GPT,
    "GPTBigCodeForCausalLM": _GPT,
    "GPTJForCausalLM": _GPT | {"rotary_dim": 4},
    "CodeGenForCausalLM": _GPT | {"n_ctx": LIMIT, "rotary_dim": 4},
    "CTRLLMHeadModel": _GPT | {"dff": 48},
    "GPTNeoForCausalLM": {
        "vocab_size": 97,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 16,
        "max_position_embeddings": LIMIT,
    },
    "OPTForCausalLM": _SHAPE | {"ffn_dim": 48, "max_position_embeddings": LIMIT, "word_embed_proj_dim": 32},
    "BioGptForCausalLM": _SHAPE | {"intermediate_size": 48, "max_position_embeddings": LIMIT},
    "MptForCausalLM": {"vocab_size": 97, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": LIMIT},
}
_ROPE = _SHAPE | {"intermediate_size": 48, "max_position_embeddings": LIMIT}
COMPUTED = {
    "LlamaForCausalLM": _ROPE,
    "MistralForCausalLM": _ROPE | {"num_key_value_heads": 2, "sliding_window": 12},
    "MixtralForCausalLM": _ROPE | {"num_key_value_heads": 2, "num_local_experts": 4},
    "GPTNeoXForCausalLM": _ROPE,
    "FalconForCausalLM": _SHAPE | {"max_position_embeddings": LIMIT},
}
WITHOUT_A_LENGTH = {
    "BloomForCausalLM": {"vocab_size": 97, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "FalconForCausalLM": _SHAPE | {"alibi": True, "max_position_embeddings": LIMIT},
    "XGLMForCausalLM": {
        "vocab_size": 97,
        "d_model": 32,
        "ffn_dim": 48,
        "num_layers": 2,
        "attention_heads": 4,
        "max_position_embeddings": LIMIT,
    },
}


def build(kind: str, shape: dict[str, object]) -> PreTrainedModel:
    model = getattr(transformers, kind)
    torch.manual_seed(0)
    return model(model.config_class(**(shape | _QUIET))).eval()


@pytest.mark.parametrize("cache_type", [PrefixCache, NullPrefixCache])
@pytest.mark.parametrize("kind", LEARNED)
def test_one_token_too_many_is_refused_before_anything_runs(tokens, kind: str, cache_type: type) -> None:
    model = build(kind, LEARNED[kind])
    cache = cache_type(model)
    cache.prefill(tokens(1, 40))
    before = cache.counters().tokens_live
    ran: list[object] = []
    hook = model.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(PositionsError, match=rf"has 65 tokens, but {kind} has 64 positions; shorten"):
        cache.prefill(tokens(1, LIMIT + 1))  # its beginning would be a hit
    with pytest.raises(PositionsError, match=r"60 tokens and up to 6 more .* 65 positions.*max_new_tokens=5 or less"):
        cache.generate(tokens(1, 60), max_new_tokens=6)
    hook.remove()
    assert not ran
    assert cache.counters().tokens_live == before
    cache.check()
    assert cache.generate(tokens(1, 60), max_new_tokens=5, do_sample=False).sequences.shape == (1, 65)
    cache.prefill(tokens(1, LIMIT))


@pytest.mark.parametrize("kind", COMPUTED)
def test_computed_positions_run_on_and_warn_once(tokens, cold, kind: str) -> None:
    model = build(kind, COMPUTED[kind])
    cache = PrefixCache(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.prefill(tokens(1, LIMIT))
    with pytest.warns(UserWarning, match=f"70 tokens are more than the 64 that {kind} was trained for"):
        result = cache.prefill(tokens(1, 70))
    assert result.reused_tokens == LIMIT
    assert (result.logits[0] - cold(model, tokens(1, 70))[-1]).abs().max() < 1e-4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.prefill(tokens(1, 80))


@pytest.mark.parametrize("kind", WITHOUT_A_LENGTH)
def test_positions_that_have_no_length_say_nothing(tokens, kind: str) -> None:
    cache = PrefixCache(build(kind, WITHOUT_A_LENGTH[kind]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.prefill(tokens(1, 80)).computed_tokens == 80


def test_an_answer_that_may_grow_past_what_was_trained_warns(tokens) -> None:
    cache = PrefixCache(build("LlamaForCausalLM", COMPUTED["LlamaForCausalLM"]))
    with pytest.warns(UserWarning, match="69 tokens are more than the 64"):
        cache.generate(tokens(1, 60), max_new_tokens=10, do_sample=False)


@given(prompt=st.integers(1, LIMIT + 3), room=st.integers(0, 100), new=st.integers(1, LIMIT))
def test_whatever_fits_runs_and_nothing_else(zoo, tokens, pins, prompt: int, room: int, new: int) -> None:
    cache = PrefixCache(zoo.fresh("gpt2", n_positions=LIMIT))
    ids = tokens(1, prompt)
    if prompt > LIMIT:
        with pytest.raises(PositionsError), cache.lookup(ids, room=room):
            pass
    else:
        with cache.lookup(ids, room=room) as hit:  # more room than there are positions only costs memory
            cache.run(hit.suffix, hit.kv)
            hit.store()
    if prompt + new - 1 > LIMIT:
        with pytest.raises(PositionsError):
            cache.generate(ids, max_new_tokens=new)
    else:
        cache.generate(ids, max_new_tokens=new, do_sample=False)
    assert pins(cache) == 0
    assert cache.counters().in_use_bytes_live == 0
    cache.check()


def test_a_table_that_is_exchanged_for_a_longer_one_counts_at_once(zoo, tokens) -> None:
    model = zoo.fresh("gpt2", n_positions=LIMIT)
    cache = PrefixCache(model)
    with pytest.raises(PositionsError):
        cache.prefill(tokens(1, 70))
    model.transformer.wpe = torch.nn.Embedding(2 * LIMIT, 32)
    assert cache.prefill(tokens(1, 70)).computed_tokens == 70
