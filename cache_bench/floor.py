"""The yardstick: the suffix alone, over KV that lies in a preallocated buffer already.

Written apart from the subject on purpose: a slower buffer there must show as a lower reuse efficiency, not as a
slower floor.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer


class _FixedLayer(DynamicLayer):
    """Writes behind `length` into a buffer of [1, heads, capacity, head dim]; neither allocates nor copies the past."""

    is_sliding = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = keys.shape[2]
        self.buffers = tuple(
            torch.empty((1, past.shape[1], capacity, past.shape[3]), dtype=past.dtype) for past in (keys, values)
        )
        for buffer, past in zip(self.buffers, (keys, values), strict=True):
            buffer[:, :, : self.length] = past
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start, new = self.length, key_states.shape[2]
        self.length += new
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer.narrow(2, start, new).copy_(states)
        keys, values = self.buffers
        return keys.narrow(2, 0, self.length), values.narrow(2, 0, self.length)

    def get_seq_length(self) -> int:
        return self.length


class Floor:
    """KV of one prefix in place, with room for `room` more tokens."""

    @torch.inference_mode()
    def __init__(self, model: PreTrainedModel, kv_argument: str, prefix: torch.Tensor, room: int) -> None:
        self.prefix = prefix.shape[1]
        past = DynamicCache()
        model(prefix, use_cache=True, **{kv_argument: past})
        self._layers = []
        for layer in past.layers:
            assert isinstance(layer, DynamicLayer)
            assert layer.keys is not None
            assert layer.values is not None
            self._layers.append(_FixedLayer(layer.keys, layer.values, self.prefix + room))
        self.kv = Cache(layers=[*self._layers])

    def rewind(self) -> Cache:
        """The KV with nothing but the prefix in it."""
        for layer in self._layers:
            layer.length = self.prefix
        return self.kv
