"""KV bytes by model, from the numbers of their published configurations."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20
FLOAT32, FLOAT16 = 4, 2  # bytes per element; bfloat16 takes as many as float16


@dataclass(frozen=True)
class Attention:
    """What a model keeps of a token. kv_heads: fewer than heads where heads are grouped.

    latent: numbers per token and layer instead of keys and values (multi-head latent attention), 0 elsewhere.
    source: where the numbers stand.
    """

    model: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    source: str
    latent: int = 0

    @property
    def numbers(self) -> int:
        """Per token: 2 x layers x KV heads x head dim, or layers x latent."""
        return self.layers * (self.latent or 2 * self.kv_heads * self.head_dim)

    @property
    def kind(self) -> str:
        """In the words of the field."""
        if self.latent:
            return "latent"
        return "one KV head per head" if self.kv_heads == self.heads else "grouped"

    @property
    def formula(self) -> str:
        """As it is multiplied out."""
        if self.latent:
            return f"{self.layers} × {self.latent}"
        return f"2 × {self.layers} × {self.kv_heads} × {self.head_dim}"

    def nbytes(self, tokens: int, element: int) -> int:
        """Of so many tokens in numbers of `element` bytes."""
        return tokens * self.numbers * element


_CONFIG = "config.json of"
MODELS = (
    Attention("distilgpt2", 6, 12, 12, 64, f"{_CONFIG} distilbert/distilgpt2"),
    Attention("SmolLM2-135M", 30, 9, 3, 64, f"{_CONFIG} HuggingFaceTB/SmolLM2-135M"),
    Attention("Qwen2.5-0.5B", 24, 14, 2, 64, f"{_CONFIG} Qwen/Qwen2.5-0.5B"),
    Attention("Qwen2.5-7B", 28, 28, 4, 128, f"{_CONFIG} Qwen/Qwen2.5-7B"),
    Attention("Mistral-7B-v0.1", 32, 32, 8, 128, f"{_CONFIG} mistralai/Mistral-7B-v0.1"),
    Attention("Llama-3-8B", 32, 32, 8, 128, f"{_CONFIG} meta-llama/Meta-Llama-3-8B"),
    Attention("Llama-2-7B", 32, 32, 32, 128, f"{_CONFIG} meta-llama/Llama-2-7b-hf"),
    # kv_lora_rank 512, and 64 numbers of the rotated key that all heads share.
    Attention("DeepSeek-V3", 61, 128, 128, 128, f"{_CONFIG} deepseek-ai/DeepSeek-V3", latent=512 + 64),
)


def named(model: str) -> Attention:
    """The entry of a model. Raises LookupError."""
    for entry in MODELS:
        if entry.model == model:
            return entry
    raise LookupError(f"no entry for {model}; there are {', '.join(entry.model for entry in MODELS)}")
