"""KV bytes by formula, against configurations and models."""

from __future__ import annotations

import pytest
from transformers import DeepseekV3Config, LlamaConfig, MistralConfig

from cache_bench.experiment.kv_size import FLOAT16, FLOAT32, MIB, MODELS, Attention, named
from cache_bench.model import kv_bytes_per_token


@pytest.mark.parametrize(
    ("model", "numbers"),
    [
        ("distilgpt2", 9_216),
        ("SmolLM2-135M", 11_520),
        ("Qwen2.5-0.5B", 6_144),
        ("Qwen2.5-7B", 28_672),
        ("Mistral-7B-v0.1", 65_536),
        ("Llama-3-8B", 65_536),
        ("Llama-2-7B", 262_144),
        ("DeepSeek-V3", 35_136),
    ],
)
def test_numbers_a_token(model: str, numbers: int) -> None:
    assert named(model).numbers == numbers


def test_every_model_has_a_row_above() -> None:
    assert len({entry.model for entry in MODELS}) == len(MODELS) == 8
    assert all(entry.source for entry in MODELS)


def test_transformers_knows_the_same_of_the_models_that_its_configurations_are_of() -> None:
    for model, config in (("Llama-2-7B", LlamaConfig()), ("Mistral-7B-v0.1", MistralConfig())):
        head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
        entry = named(model)
        assert (entry.layers, entry.heads, entry.kv_heads, entry.head_dim) == (
            config.num_hidden_layers,
            config.num_attention_heads,
            config.num_key_value_heads,
            head_dim,
        )
    deepseek, entry = DeepseekV3Config(), named("DeepSeek-V3")
    assert entry.layers == deepseek.num_hidden_layers
    assert entry.latent == deepseek.kv_lora_rank + deepseek.qk_rope_head_dim


def test_the_stand_in_takes_as_much_as_the_table_says() -> None:
    assert named("distilgpt2").nbytes(1, FLOAT32) == kv_bytes_per_token("distilgpt2-shape")


def test_the_figures_that_are_copied_wrongly() -> None:
    assert named("distilgpt2").nbytes(200, FLOAT32) / MIB == 7.03125
    assert named("Llama-2-7B").nbytes(2000, FLOAT16) / MIB == 1000


def test_kinds_of_attention() -> None:
    assert [Attention("", 2, 4, heads, 8, "").kind for heads in (4, 2)] == ["one KV head per head", "grouped"]
    assert named("DeepSeek-V3").kind == "latent"
    with pytest.raises(LookupError, match="no entry for GPT-5; there are distilgpt2"):
        named("GPT-5")
