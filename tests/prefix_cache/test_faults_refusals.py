"""What cannot be served correctly is refused by name: models, caches, batches, options. Comments name the origin."""

from __future__ import annotations

import copy
import re

import pytest
import torch
import transformers
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    MistralConfig,
    PreTrainedModel,
    QuantizedCache,
    StaticCache,
)
from transformers.cache_utils import QuantizedLayer

from prefix_cache import (
    BatchError,
    KeyLengthError,
    LayoutError,
    NullPrefixCache,
    OptionError,
    PaddingError,
    PrefixCache,
    PrefixCacheError,
    UnsupportedCacheError,
    UnsupportedModelError,
)
from prefix_cache.layout import probe

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
HEADS = {"num_key_value_heads": 2, "head_dim": 8}

# mlx-lm #1494, transformers #46629, llama.cpp #17118: cutting such state is silently wrong.
REFUSED = {
    "Mamba": ("MambaForCausalLM", "MambaConfig", SHAPE, "LinearAttentionLayer"),
    "Mamba 2": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        SHAPE | {"num_heads": 8, "head_dim": 8, "state_size": 16},
        "LinearAttentionLayer",
    ),
    "Qwen3-Next": (
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        SHAPE | HEADS | {"layer_types": ["linear_attention", "full_attention"], "num_experts": 2},
        "LinearAttentionLayer",
    ),
    "recurrent after attention": (
        "Lfm2ForCausalLM",
        "Lfm2Config",
        SHAPE | {"num_key_value_heads": 2, "layer_types": ["full_attention", "conv"]},
        "layer 1",
    ),
    "RecurrentGemma": (
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        SHAPE | {"num_key_value_heads": 1},
        "LinearAttentionLayer",
    ),
    "RWKV": ("RwkvForCausalLM", "RwkvConfig", SHAPE, "NullPrefixCache"),
    "T5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "encoder-decoder",
    ),
    "dynamic RoPE": (
        "LlamaForCausalLM",
        "LlamaConfig",
        SHAPE | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        "dynamic",
    ),
    "dynamic RoPE, old spelling": (
        "LlamaForCausalLM",
        "LlamaConfig",
        SHAPE | {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "dynamic",
    ),
    "LongRoPE": (
        "Phi3ForCausalLM",
        "Phi3Config",
        SHAPE
        | {
            "max_position_embeddings": 64,
            "original_max_position_embeddings": 32,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
        },
        "longrope",
    ),
    "attention in both directions": ("BertLMHeadModel", "BertConfig", SHAPE, "both directions"),
    "bidirectional Gemma 3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        SHAPE | HEADS | {"use_bidirectional_attention": True},
        "both directions",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_that_would_answer_wrongly(case: str) -> None:
    name, config, shape, says = REFUSED[case]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**shape)).eval()
    with pytest.raises(UnsupportedModelError, match=says):
        PrefixCache(model)


def test_a_causal_bert_is_served(tokens, cold) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**SHAPE, is_decoder=True)
    model = transformers.BertLMHeadModel(config).eval()
    cache = PrefixCache(model)
    prompt = tokens(1, 20)
    cache.prefill(prompt[:12])
    result = cache.prefill(prompt)
    assert result.reused_tokens == 12
    assert (result.logits[0] - cold(model, prompt)[-1]).abs().max() < 1e-4


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("family", ["Roberta", "Camembert", "Data2VecText"])
def test_a_model_that_counts_positions_in_a_way_of_its_own(tokens, family: str, pad: int) -> None:
    """Alone it begins behind the number of its padding token, for `generate` at 0: two different KV of one prefix."""
    config = getattr(transformers, f"{family}Config")(**SHAPE | {"pad_token_id": pad}, is_decoder=True)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with pytest.raises(UnsupportedModelError, match=r"ForCausalLM: model\(ids\) does not count positions from 0"):
        PrefixCache(model)
    prompt = tokens(1, 12)
    ids = torch.tensor([prompt])
    plain = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False)
    assert torch.equal(NullPrefixCache(model).generate(prompt, max_new_tokens=3, do_sample=False).sequences, plain)


def filled(model: PreTrainedModel, kv: object, prompt: list[int], rows: int = 1) -> object:
    with torch.no_grad():
        model(torch.tensor([prompt] * rows), cache=kv, use_cache=True)
    return kv


class Int8Layer(QuantizedLayer):
    """Rounds to int8: the backends transformers has are no dependencies of this project."""

    def _quantize(self, tensor: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
        scale = tensor.abs().amax() / 127
        return (tensor / scale).round().to(torch.int8), scale

    def _dequantize(self, q_tensor: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return q_tensor[0] * q_tensor[1]


def quantised(model: PreTrainedModel) -> DynamicCache:
    kv = DynamicCache()
    kv.layers = [Int8Layer(axis_key=0, axis_value=0, residual_length=4) for _ in range(2)]
    return kv


# transformers #39106, PR #45510: wrong length, crop touches only a part.
def test_a_quantised_cache_is_refused(llama, tokens) -> None:
    assert issubclass(QuantizedCache, transformers.Cache)
    kv = filled(llama, quantised(llama), tokens(1, 20))
    cache = PrefixCache(llama)
    with pytest.raises(UnsupportedCacheError, match="Int8Layer"):
        cache.insert(tokens(1, 20), kv)
    assert cache.counters().tokens_live == 0


@pytest.mark.parametrize("n", [8, 20])  # shorter and longer than the window of 12
def test_sliding_window_layers_are_refused_before_and_past_their_window(zoo, tokens, n: int) -> None:
    model = zoo.shared("mistral")
    assert isinstance(model.config, MistralConfig)
    kv = filled(model, DynamicCache(config=model.config), tokens(1, n))
    cache = PrefixCache(model)
    with pytest.raises(UnsupportedCacheError, match="DynamicSlidingWindowLayer"):
        cache.insert(tokens(1, n), kv)
    assert cache.counters().tokens_live == 0


def test_a_static_cache_is_refused(llama, tokens) -> None:
    kv = filled(llama, StaticCache(config=llama.config, max_cache_len=32), tokens(1, 20))
    with pytest.raises(UnsupportedCacheError, match="StaticLayer"):
        PrefixCache(llama).insert(tokens(1, 20), kv)


def test_a_model_that_fills_other_layers_than_its_config_promises(llama, tokens) -> None:
    for kv, name in (
        (StaticCache(config=llama.config, max_cache_len=32), "StaticLayer"),
        (quantised(llama), "Int8Layer"),
    ):
        with pytest.raises(UnsupportedModelError, match=f"OddModel: layer 0 keeps its state in a {name}"):
            probe(filled(llama, kv, tokens(1, 1)), "OddModel")
    with pytest.raises(UnsupportedModelError, match="no KV of its own"):
        probe(DynamicCache(config=llama.config), "OddModel")
    with pytest.raises(UnsupportedModelError, match="filled no KV cache"):
        probe(DynamicCache(), "OddModel")


def test_caches_that_hold_nothing_or_something_else(llama, tokens) -> None:
    cache = PrefixCache(llama)
    for kv in (DynamicCache(), DynamicCache(config=llama.config), None, (), object()):
        with pytest.raises(UnsupportedCacheError):
            cache.insert(tokens(1, 4), kv)
    pair = EncoderDecoderCache(filled(llama, DynamicCache(), tokens(1, 4)), DynamicCache())
    with pytest.raises(UnsupportedCacheError):
        cache.insert(tokens(1, 4), pair)
    assert cache.counters().tokens_live == 0
    cache.check()


def test_kv_of_another_length_shape_dtype_or_model(zoo, llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, 12)
    good = filled(llama, DynamicCache(), prompt)
    for ids in (prompt[:11], [*prompt, 1]):
        with pytest.raises(KeyLengthError, match="layer 0 holds 12"):
            cache.insert(ids, good)
    uneven = copy.deepcopy(good)
    uneven.layers[1].crop(-1)
    with pytest.raises(KeyLengthError, match="layer 1 holds 11"):
        cache.insert(prompt, uneven)
    short_values = copy.deepcopy(good)
    short_values.layers[1].values = short_values.layers[1].values[:, :, :5]
    with pytest.raises(LayoutError, match="layer 1 holds keys of 12 positions, but values of 5"):
        cache.insert(prompt, short_values)
    with pytest.raises(LayoutError, match="2 sequences"):
        cache.insert(prompt, filled(llama, DynamicCache(), prompt, rows=2))
    with pytest.raises(LayoutError, match="differs"):
        cache.insert(prompt, filled(zoo.shared("grouped"), DynamicCache(), prompt))
    with pytest.raises(LayoutError, match="differs"):
        cache.insert(prompt, filled(zoo.fresh("llama").bfloat16(), DynamicCache(), prompt))
    fewer = copy.deepcopy(good)
    del fewer.layers[1]
    with pytest.raises(LayoutError, match="differs"):
        cache.insert(prompt, fewer)
    assert cache.counters().tokens_live == 0
    assert cache.insert(prompt, good) == 12
    cache.check()


def test_the_callers_cache_is_neither_kept_nor_changed(llama, tokens) -> None:
    prompt = tokens(1, 12)
    kv = filled(llama, DynamicCache(), prompt)
    before = [layer.keys.clone() for layer in kv.layers]
    cache = PrefixCache(llama)
    cache.insert(prompt, kv)
    cache.generate([*prompt, 1], max_new_tokens=4, do_sample=False)
    assert all(torch.equal(a, layer.keys) for a, layer in zip(before, kv.layers, strict=True))
    assert kv.get_seq_length() == 12
    held = {s.untyped_storage().data_ptr() for node in cache._tree.nodes() for s in node.stored().slabs}
    assert not held & {layer.keys.untyped_storage().data_ptr() for layer in kv.layers}


# transformers #18104, #22707, unsloth #3699: worse with left padding.
def test_left_padding_is_refused(llama) -> None:
    cache = PrefixCache(llama)
    mask = torch.tensor([[0, 0, 1, 1]])
    for call in (cache.prefill, lambda ids, **k: cache.generate(ids, max_new_tokens=1, **k)):
        with pytest.raises(PaddingError):
            call([0, 0, 5, 6], attention_mask=mask)
    with pytest.raises(BatchError):
        cache.prefill(torch.tensor([[0, 5, 6], [1, 5, 6]]))
    assert cache.counters().requests == 0


def test_a_batch_over_the_kv_of_one_sequence_is_refused(llama, tokens, pins) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 10))
    with pytest.raises(BatchError, match="2 rows"), cache.lookup(tokens(1, 12)) as hit:
        llama(hit.suffix.repeat(2, 1), cache=hit.kv)
    with cache.lookup(tokens(1, 12)) as hit:
        for refused in (
            lambda: hit.kv.reorder_cache(torch.tensor([0, 0])),
            lambda: hit.kv.batch_repeat_interleave(2),
            lambda: hit.kv.batch_select_indices(torch.tensor([0])),
        ):
            with pytest.raises(BatchError):
                refused()
    assert pins(cache) == 0


@pytest.mark.parametrize(
    "options", [{"num_beams": 2}, {"num_return_sequences": 2}, {"num_beams": 3, "do_sample": True}]
)
def test_options_that_make_several_sequences_of_one(llama, tokens, options: dict) -> None:
    cache = PrefixCache(llama)
    with pytest.raises(BatchError):
        cache.generate(tokens(1, 10), max_new_tokens=2, **options)
    assert cache.counters().requests == 0


@pytest.mark.parametrize("kind", [PrefixCache, NullPrefixCache])
def test_options_that_run_the_prompt_over_its_own_kv(llama, tokens, kind: type) -> None:
    cache = kind(llama)
    cache.prefill(tokens(1, 10))
    for options in ({"use_cache": False}, {"prompt_lookup_num_tokens": 3}, {"assistant_model": llama}):
        with pytest.raises(OptionError):
            cache.generate(tokens(1, 12), max_new_tokens=2, **options)
    # The same, hidden in a configuration: refused once it is seen, never stored and never returned.
    hidden = transformers.GenerationConfig(prompt_lookup_num_tokens=3, max_new_tokens=6, do_sample=False)
    if kind is PrefixCache:
        with pytest.raises(PrefixCacheError):
            cache.generate(tokens(1, 12), max_new_tokens=6, generation_config=hidden)
    cache.check()


def test_a_model_that_was_saved_with_its_cache_switched_off(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    model.config.use_cache = model.generation_config.use_cache = False
    prompt = tokens(1, 20)
    plain = model.generate(torch.tensor([prompt]), max_new_tokens=4, do_sample=False)
    cache = PrefixCache(model)
    for reused in (0, 19):
        result = cache.generate(prompt, max_new_tokens=4, do_sample=False)
        assert torch.equal(result.sequences, plain)
        assert result.reused_tokens == reused
    cache.check()


def test_a_model_in_training_mode(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    cache.prefill(tokens(1, 10))
    model.train()
    with pytest.raises(UnsupportedModelError, match=r"model\.eval"):
        cache.prefill(tokens(1, 10))
    model.eval()
    assert cache.prefill(tokens(1, 10)).reused_tokens == 9
    cache.check()


@pytest.mark.parametrize(("name", "value"), [("budget_bytes", 0), ("budget_bytes", -1), ("idle_buffers", -1)])
def test_impossible_settings(llama, name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name}={value}"):
        PrefixCache(llama, **{name: value})


@pytest.mark.parametrize("name", ["budget_bytes", "idle_buffers"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5, 2.0, "2GB", True, [1]])
def test_settings_that_are_no_whole_numbers(llama, name: str, value: object) -> None:
    says = {"budget_bytes": "2 << 30 for 2 GiB", "idle_buffers": "0 .every hit copies. or more"}[name]
    with pytest.raises(TypeError, match=f"{re.escape(f'{name}={value!r}')} is no whole number: .*{says}"):
        PrefixCache(llama, **{name: value})


def test_an_inserted_key_that_is_no_name(llama, tokens) -> None:
    cache = PrefixCache(llama)
    kv = filled(llama, DynamicCache(), tokens(1, 4))
    with pytest.raises(TypeError, match="salt may be a str"):
        cache.insert(tokens(1, 4), kv, salt=["x"])
    assert cache.counters().tokens_live == 0


@pytest.mark.parametrize("what", ["keys", "values"])
def test_kv_of_another_dtype_is_named_after_what_differs(llama, tokens, what: str) -> None:
    made = {"keys": torch.float32, "values": torch.float32, what: torch.float16}
    with PrefixCache(llama).lookup(tokens(1, 4)) as hit:
        with pytest.raises(LayoutError, match=f"layer 1 produced torch.float16 {what}, but holds torch.float32 ones"):
            hit.kv.update(*(torch.ones((1, 4, 1, 8), dtype=dtype) for dtype in made.values()), 1)
        assert hit.kv.get_seq_length(1) == 0


def test_every_refusal_has_one_base() -> None:
    import prefix_cache

    errors = [value for name, value in vars(prefix_cache).items() if name.endswith("Error")]
    assert len(errors) >= 11
    assert all(issubclass(error, PrefixCacheError) for error in errors)


@pytest.mark.parametrize(
    ("hidden", "error"),
    [
        ({"use_cache": False}, OptionError),
        ({"prompt_lookup_num_tokens": 3}, OptionError),
        ({"num_beams": 2}, BatchError),
        ({"num_return_sequences": 2, "do_sample": True}, BatchError),
    ],
)
def test_an_option_hidden_in_a_config_is_refused_before_anything_runs(llama, tokens, hidden, error) -> None:
    cache = PrefixCache(llama)
    config = transformers.GenerationConfig(**hidden)
    with pytest.raises(error):
        cache.generate(tokens(1, 20), max_new_tokens=4, generation_config=config)
    assert cache.counters().requests == 0


@pytest.mark.parametrize("name", ["inputs", "past_key_values", "cache"])
def test_a_prompt_or_kv_handed_in_beside_the_prompt_is_refused(llama, tokens, name) -> None:
    with pytest.raises(OptionError, match=name):
        PrefixCache(llama).generate(tokens(1, 20), max_new_tokens=4, **{name: None})
