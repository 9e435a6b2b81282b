"""Tiny seeded models, oracles and helpers that several test files share. Nothing here is timed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import transformers
from hypothesis import HealthCheck, settings
from transformers import PreTrainedModel

from prefix_cache import PrefixCache

_COMMON = {
    "deadline": None,  # a shared machine may pause at any moment; no test asserts a time
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("dev", **_COMMON)
settings.register_profile("ci", derandomize=True, database=None, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

VOCABULARY = 97
# Ten times the usual spread: with the default 0.02 a wrong key or position hardly moves a tiny model's logits.
_SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "initializer_range": 0.2}
_DENSE = _SHAPE | {"intermediate_size": 48, "num_attention_heads": 4, "max_position_embeddings": 4096}
_QUIET = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}  # generates as long as it is asked to


def _llama(**more: object) -> PreTrainedModel:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(_DENSE | _QUIET | more)))


def _gpt2(**more: object) -> PreTrainedModel:
    shape = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**(shape | {"initializer_range": 0.2} | _QUIET | more)))


def _gpt_neo(**more: object) -> PreTrainedModel:
    # The shape of TinyStories-1M, but for the vocabulary.
    config = transformers.GPTNeoConfig(
        **(
            {
                "vocab_size": VOCABULARY,
                "hidden_size": 64,
                "num_layers": 8,
                "num_heads": 16,
                "attention_types": [[["global", "local"], 4]],
                "window_size": 256,
                "max_position_embeddings": 512,
                "initializer_range": 0.2,
            }
            | _QUIET
            | more
        )
    )
    return transformers.GPTNeoForCausalLM(config)


def _mistral(**more: object) -> PreTrainedModel:
    shape = _DENSE | {"num_key_value_heads": 2, "sliding_window": 12}
    return transformers.MistralForCausalLM(transformers.MistralConfig(**(shape | _QUIET | more)))


def _gemma2(**more: object) -> PreTrainedModel:
    shape = _DENSE | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 12}
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**(shape | _QUIET | more)))


def _deepseek(**more: object) -> PreTrainedModel:
    # Keys and values of different width: two slabs.
    shape = _DENSE | {
        "moe_intermediate_size": 16,
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 12,
        "first_k_dense_replace": 1,
    }
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**(shape | _QUIET | more)))


def _bloom(**more: object) -> PreTrainedModel:
    shape = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2}
    return transformers.BloomForCausalLM(transformers.BloomConfig(**(shape | _QUIET | more)))


_BUILDERS: dict[str, Callable[..., PreTrainedModel]] = {
    "llama": _llama,
    "grouped": lambda **more: _llama(num_key_value_heads=2, **more),
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "mistral": _mistral,
    "gemma2": _gemma2,
    "deepseek": _deepseek,
    "bloom": _bloom,
}


class Zoo:
    """Seeded models of every supported kind."""

    def __init__(self) -> None:
        self._shared: dict[str, PreTrainedModel] = {}

    def fresh(self, kind: str, **config: object) -> PreTrainedModel:
        """A model of one's own, in eval mode, to be changed at will; equal arguments give equal weights."""
        with torch.random.fork_rng():
            torch.manual_seed(20)
            return _BUILDERS[kind](**config).eval()

    def shared(self, kind: str) -> PreTrainedModel:
        """A model that nobody may change."""
        if kind not in self._shared:
            self._shared[kind] = self.fresh(kind).requires_grad_(False)
        return self._shared[kind]


@pytest.fixture(scope="session")
def zoo() -> Zoo:
    return Zoo()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def llama(zoo: Zoo) -> PreTrainedModel:
    """A RoPE model that nobody may change."""
    return zoo.shared("llama")


def _tokens(seed: int, n: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (n,), generator=generator).tolist()


@pytest.fixture(scope="session")
def tokens() -> Callable[[int, int], list[int]]:
    """tokens(seed, n): n token ids; equal seeds give equal beginnings."""
    return _tokens


@torch.no_grad()
def _cold(model: PreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    return model(torch.tensor([list(ids)]), use_cache=False).logits[0]


@pytest.fixture(scope="session")
def cold() -> Callable[[PreTrainedModel, Sequence[int]], torch.Tensor]:
    """cold(model, ids): logits [n, vocabulary] of the whole prompt, nothing reused."""
    return _cold


def _fingerprints(cache: PrefixCache) -> dict[tuple[object, ...], str]:
    return {
        (tuple(node.tokens.tolist()), node.start, index): hashlib.sha256(
            slab.contiguous().view(torch.uint8).numpy().tobytes()
        ).hexdigest()
        for node in cache._tree.nodes()
        for index, slab in enumerate(node.stored().slabs)
    }


@pytest.fixture(scope="session")
def fingerprints() -> Callable[[PrefixCache], dict[tuple[object, ...], str]]:
    """Hash of every stored tensor, by the tokens it belongs to."""
    return _fingerprints


def _pins(cache: PrefixCache) -> int:
    return sum(node.pins for node in cache._tree.nodes())


@pytest.fixture(scope="session")
def pins() -> Callable[[PrefixCache], int]:
    """Pins that are held at the moment."""
    return _pins
