"""Notices that a model is no longer the one whose KV was stored, at a cost that a hit can bear.

Hashing the weights would take longer than the hit. What is watched instead, at every lookup:
- which parameters, buffers and submodules there are (identity): swapped, added, removed;
- their version counters and addresses: changed in place, cast, moved;
- a few elements of each tensor, read through memory: writes that no version counter sees (`param.data.add_(...)`,
  NumPy views), as an adapter merge or a weight reload makes them;
- which adapters of an adapter library are active, and the attention implementation.
A write past the version counter that touches none of the sampled elements is not seen: call `PrefixCache.clear()`
after poking single weights through `.data`. Tensors off the CPU are not sampled, because reading them would wait for
the device. Tensors without a version counter (made in inference mode) are hashed whole.
"""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_SAMPLES = 8  # elements per tensor; each is a cache miss on every lookup
_ADAPTER_STATE = ("_active_adapter", "_disable_adapters", "active_adapter", "merged_adapters", "scaling")
_ADAPTER_LAYER = ("_active_adapter", "active_adapter")  # a module with one of these belongs to an adapter library
_models = itertools.count(1)


class ModelFingerprint:
    """Names the present state of `model`; every noticed change gives a new name, and an old name never returns."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._name = f"{type(model).__name__}#{next(_models)}"
        self._generation = 0
        self._watch()

    def current(self) -> str:
        """Name of the model's state now. Constant while nothing changes."""
        if not self._unchanged():
            self._generation += 1
            self._watch()
        return f"{self._name}.{self._generation}"

    # ---- within ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._children: list[tuple[dict[str, Any], int, list[tuple[str, Any]]]] = []
        self._tensors: list[tuple[dict[str, Any], int, list[tuple[str, torch.Tensor, int, int]]]] = []
        self._hashed: list[tuple[torch.Tensor, int]] = []
        views: dict[int, list[npt.NDArray[np.uint8]]] = {}  # by element size, because rows of equal width join
        for module in self._model.modules():
            if module._modules:
                self._children.append((module._modules, len(module._modules), list(module._modules.items())))
            for table in (module._parameters, module._buffers):
                present = [(name, tensor) for name, tensor in table.items() if tensor is not None]
                if present:
                    watched = [(name, t, _version(t), t.data_ptr()) for name, t in present]
                    self._tensors.append((table, len(table), watched))
                for _, tensor in present:
                    if tensor.is_inference():
                        self._hashed.append((tensor, _content(tensor)))
                    elif (view := _sample(tensor)) is not None:
                        views.setdefault(view.shape[1], []).append(view)
        self._adapters = [
            (vars(module), name)
            for module in self._model.modules()
            if any(mark in vars(module) for mark in _ADAPTER_LAYER)
            for name in _ADAPTER_STATE
        ]
        self._views = tuple(views.values())
        self._sampled = self._read_samples()
        self._modes = self._read_modes()

    def _unchanged(self) -> bool:
        for children, count, items in self._children:
            if len(children) != count:
                return False
            for name, child in items:
                if children.get(name) is not child:
                    return False
        for tensors, count, watched in self._tensors:
            if len(tensors) != count:
                return False
            for name, tensor, version, address in watched:
                if tensors.get(name) is not tensor or _version(tensor) != version or tensor.data_ptr() != address:
                    return False
        return (
            self._read_samples() == self._sampled
            and self._read_modes() == self._modes
            and all(_content(tensor) == content for tensor, content in self._hashed)
        )

    def _read_samples(self) -> tuple[bytes, ...]:
        return tuple(np.concatenate(views).tobytes() for views in self._views)

    def _read_modes(self) -> tuple[Any, ...]:
        config = getattr(self._model, "config", None)
        adapters = [repr(state.get(name)) for state, name in self._adapters]
        return (getattr(config, "_attn_implementation", None), *adapters)


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _sample(tensor: torch.Tensor) -> npt.NDArray[np.uint8] | None:
    """Bytes of a few elements spread over a CPU tensor, as a view that sees later writes."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return None
    dense = tensor.detach()
    if not dense.is_contiguous():  # transposed: its elements in the order in which they lie in memory
        dense = dense.permute(sorted(range(dense.dim()), key=dense.stride, reverse=True))
    if not dense.is_contiguous():
        return None
    raw = dense.view(-1).view(torch.uint8).numpy()
    width = tensor.element_size()
    step = max(1, tensor.numel() // _SAMPLES)
    # Column 0..width-1 of every step-th element; a strided view, nothing is copied until it is read.
    grid = raw[: raw.size // (step * width) * (step * width)].reshape(-1, step * width)[:_SAMPLES, :width]
    return np.lib.stride_tricks.as_strided(grid, grid.shape, grid.strides, writeable=False)


def _content(tensor: torch.Tensor) -> int:
    raw = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return zlib.crc32(raw.data)
