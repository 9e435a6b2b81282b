"""Which key and value tensors a model keeps per layer, and where each lies in the slabs that hold them.

All keys and values of equal shape, dtype and device share one slab [slots, heads, positions, head dim], so that a
run of tokens of all layers is stored, copied and freed by one operation. Almost every model needs one slab; layers on
several devices, or values of another width than the keys, need more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from prefix_cache.errors import UnsupportedModelError
from prefix_cache.mode import ordinary_tensors


class SlabSpec(NamedTuple):
    """What the tensors of one slab have in common."""

    heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device


class Slot(NamedTuple):
    """Place of one tensor: number of the slab, row within it."""

    slab: int
    row: int


@dataclass(frozen=True)
class Layout:
    """specs: one per slab. rows: slots of each slab. keys, values: where each layer's tensors lie."""

    specs: tuple[SlabSpec, ...]
    rows: tuple[int, ...]
    keys: tuple[Slot, ...]
    values: tuple[Slot, ...]

    @cached_property
    def nbytes_per_token(self) -> int:
        """2 x layers x KV heads x head dim x bytes per element, where all layers are alike."""
        return sum(
            rows * spec.heads * spec.head_dim * spec.dtype.itemsize
            for rows, spec in zip(self.rows, self.specs, strict=True)
        )

    def allocate(self, positions: int) -> tuple[torch.Tensor, ...]:
        """Uninitialised slabs for `positions` tokens, of exactly positions x nbytes_per_token bytes.

        Never inference tensors, whatever mode the caller is in: those could not be written to afterwards.
        """
        with ordinary_tensors():
            return tuple(
                torch.empty((rows, spec.heads, positions, spec.head_dim), dtype=spec.dtype, device=spec.device)
                for rows, spec in zip(self.rows, self.specs, strict=True)
            )


def layout_of(tensors: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Layout:
    """Layout of per-layer (keys, values), each [batch, heads, positions, head dim]."""
    specs: dict[SlabSpec, int] = {}
    rows: list[int] = []

    def place(tensor: torch.Tensor) -> Slot:
        spec = SlabSpec(tensor.shape[1], tensor.shape[3], tensor.dtype, tensor.device)
        slab = specs.setdefault(spec, len(specs))
        if slab == len(rows):
            rows.append(0)
        rows[slab] += 1
        return Slot(slab, rows[slab] - 1)

    keys, values = [], []
    for key, value in tensors:
        keys.append(place(key))
        values.append(place(value))
    return Layout(tuple(specs), tuple(rows), tuple(keys), tuple(values))


# A sliding-window layer forgets what has left the window; here it is replaced by a layer that keeps every position,
# and the model's own mask does the sliding. No other kind of layer may be replaced.
_KEEPS_ALL_POSITIONS = (DynamicLayer, DynamicSlidingWindowLayer)


def refuse_adapters(model: torch.nn.Module) -> None:
    """Raise UnsupportedModelError where an active PEFT adapter makes KV depend on more than the tokens before it."""
    configs: Mapping[str, Any] = getattr(model, "peft_config", None) or {}
    if not configs:
        return
    active: Any = getattr(model, "active_adapters", configs)
    # In a model that is no PeftModel it is a method of transformers, which wants a certain PEFT: take all there are.
    for name in configs if callable(active) else active:
        config = configs.get(name)
        if getattr(config, "is_prompt_learning", False):
            kind = f"{type(config).__name__} puts virtual tokens before the prompt, which no token id stands for"
        elif getattr(config, "alora_invocation_tokens", None):
            kind = "an activated LoRA (aLoRA) begins in the middle of the prompt, wherever its invocation tokens stand"
        else:
            continue
        raise UnsupportedModelError(
            f"adapter {name!r}: {kind}, so that equal token ids may have different KV. Use an adapter that changes the "
            "weights alone (LoRA), or serve this one through NullPrefixCache."
        )


def refuse_dynamic_quantisation(model: torch.nn.Module) -> None:
    """Raise UnsupportedModelError where a layer scales its input by all tokens of a forward pass."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith("torch.ao.nn.quantized.dynamic"):
            raise UnsupportedModelError(
                f"{type(model).__name__}: {name} is quantised dynamically (torch.ao.quantization.quantize_dynamic): it "
                "scales its input by the largest value of all tokens in a forward pass, so that the KV of a prefix "
                "depends on the tokens after it. Quantise the weights alone, or serve it through NullPrefixCache."
            )


def refuse_layers(cache: Cache, model_name: str) -> None:
    """Raise UnsupportedModelError, naming the layer, where its state cannot be cut at an arbitrary length."""
    for index, layer in enumerate(cache.layers):
        if not isinstance(layer, DynamicLayer) or type(layer) not in _KEEPS_ALL_POSITIONS:
            raise UnsupportedModelError(
                f"{model_name}: layer {index} keeps its state in a {type(layer).__name__}, which cannot be cut at an "
                "arbitrary length; a prefix cache would answer wrongly. Serve this model through NullPrefixCache."
            )


def probe(cache: Cache, model_name: str) -> Layout:
    """Layout of the cache that a model has just filled with one token.

    Raises UnsupportedModelError, naming the layer, where its state cannot be cut at an arbitrary length.
    """
    refuse_layers(cache, model_name)
    tensors = []
    for index, layer in enumerate(cache.layers):
        assert isinstance(layer, DynamicLayer)
        if not isinstance(layer.keys, torch.Tensor) or not isinstance(layer.values, torch.Tensor):
            raise UnsupportedModelError(
                f"{model_name}: layer {index} keeps no KV of its own (shared between layers); "
                "serve this model through NullPrefixCache."
            )
        tensors.append((layer.keys, layer.values))
    if not tensors:
        raise UnsupportedModelError(
            f"{model_name} filled no KV cache; a prefix cache needs a decoder with attention layers."
        )
    return layout_of(tensors)


def refuse_two_way(one: Cache, other: Cache, model_name: str) -> None:
    """Raise UnsupportedModelError where the KV of the first token depends on the second.

    one, other: filled with two tokens each, of which only the second differs.
    """
    index = _first_difference(one, other)
    if index is not None:
        raise UnsupportedModelError(
            f"{model_name}: in layer {index} the KV of a token depends on the tokens after it (attention in "
            "both directions), so that a prefix has no KV of its own. Serve this model through NullPrefixCache."
        )


def refuse_own_positions(told: Cache, untold: Cache, model_name: str) -> None:
    """Raise UnsupportedModelError where the model by itself does not count positions from 0, as `generate` has it do.

    told: filled with tokens whose positions 0, 1, ... were given; untold: with the same, without positions.
    """
    if _first_difference(told, untold) is not None:
        raise UnsupportedModelError(
            f"{model_name}: model(ids) does not count positions from 0, but model.generate does, so that the KV of a "
            "prefix depends on which of them computed it. Serve this model through NullPrefixCache."
        )


def _first_difference(one: Cache, other: Cache) -> int | None:
    """The first layer in which the KV of the first token differs; None where it is the same in all."""
    for index, (a, b) in enumerate(zip(one.layers, other.layers, strict=True)):
        assert isinstance(a, DynamicLayer)
        assert isinstance(b, DynamicLayer)
        for mine, theirs in ((a.keys, b.keys), (a.values, b.values)):
            assert mine is not None
            assert theirs is not None
            first, same = mine[:, :, 0].float(), theirs[:, :, 0].float()
            # Equal shapes give equal bits, but for experts, whose share of tokens (and so the rounding) may differ.
            rounding = 16 * torch.finfo(mine.dtype).eps * float(first.abs().max())
            if float((first - same).abs().max()) > rounding:
                return index
    return None
