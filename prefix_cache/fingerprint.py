"""Names the state that a model is in, so that KV is reused only in the state that computed it.

Hashing the weights would take longer than a hit. Every lookup looks at these instead:

Weights. A change makes a new generation, and an earlier generation never returns:
- which parameters, buffers and submodules there are (identity): swapped, added, removed;
- their version counters and addresses: changed in place, cast, moved;
- a few elements in the middle of each tensor, read through memory: writes that no version counter sees
  (`param.data.add_(...)`, NumPy views), as an adapter merge or a weight reload makes them.

Modes. They can be switched back, and then the state is the earlier one again:
- which adapters of an adapter library are active, disabled or merged, and their scaling;
- the attention implementation;
- autocast and its dtype.

A write past the version counter that touches none of the sampled elements is not seen, nor are plain attributes of
modules, patched methods and hooks: call `PrefixCache.clear()` after changing those. Tensors off the CPU are not
sampled, because reading them would wait for the device. Tensors without a version counter (made in inference mode) are
hashed whole.
"""

from __future__ import annotations

import itertools
import operator
import zlib
from typing import Any

import torch

_LINE = 64  # bytes; reading all of a cache line costs no more than reading one element of it
_ADAPTER_STATE = ("_active_adapter", "_disable_adapters", "active_adapter", "merged_adapters", "scaling")
_ADAPTER_LAYER = ("_active_adapter", "active_adapter")  # a module with one of these belongs to an adapter library
_models = itertools.count(1)
_version = operator.attrgetter("_version")


class ModelFingerprint:
    """Names the states of `model`. Equal names: the same weights in the same modes.

    generation: number of changes to the weights that were noticed.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._name = f"{type(model).__name__}#{next(_models)}"
        self.generation = 0
        self._config = vars(getattr(model, "config", self))  # its properties are slow, and read for every request
        self._watch()

    def current(self) -> str:
        """Name of the model's state now, in this thread."""
        if not self._unchanged():
            self.generation += 1
            self._watch()
        return self._state()

    def still(self, state: str) -> bool:
        """Whether the model is in `state`, as far as a cheap look tells: version counters and modes."""
        return self._read_versions() == self._versions and self._state() == state

    # ---- within ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        modules = list(self._model.modules())
        tables = [table for module in modules for table in (module._modules, module._parameters, module._buffers)]
        self._tables: list[dict[str, Any]] = [table for table in tables if table]
        self._empty: list[dict[str, Any]] = [table for table in tables if not table]
        self._members = [member for table in self._tables for member in table.values()]
        tensors = [member for member in self._members if isinstance(member, torch.Tensor)]
        self._tensors = tensors
        self._counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self._hashed = [(tensor, _content(tensor)) for tensor in tensors if tensor.is_inference()]
        self._versions = self._read_versions()
        self._addresses = self._read_addresses()
        self._views = [view for tensor in self._counted if (view := _sample(tensor)) is not None]
        self._sampled = self._read_samples()
        self._adapters = [
            (vars(module), name)
            for module in modules
            if any(mark in vars(module) for mark in _ADAPTER_LAYER)
            for name in _ADAPTER_STATE
        ]
        self._device_type = tensors[0].device.type if tensors else "cpu"
        self._modes: dict[tuple[Any, ...], int] = {}

    def _unchanged(self) -> bool:
        # Each line is one pass in C over all members; together they cost a lookup some tens of microseconds.
        return (
            self._has_its_members()
            and self._read_versions() == self._versions
            and self._read_addresses() == self._addresses
            and self._read_samples() == self._sampled
            and all(_content(tensor) == content for tensor, content in self._hashed)
        )

    def _has_its_members(self) -> bool:
        present = itertools.chain.from_iterable(map(dict.values, self._tables))
        return (
            all(map(operator.is_, present, self._members))
            and sum(map(len, self._tables)) == len(self._members)
            and not any(self._empty)
        )

    def _read_versions(self) -> list[int]:
        return list(map(_version, self._counted))

    def _read_addresses(self) -> list[int]:
        return list(map(torch.Tensor.data_ptr, self._tensors))

    def _read_samples(self) -> bytes:
        return b"".join(self._views)

    def _state(self) -> str:
        found = [state.get(name) for state, name in self._adapters]
        # One active adapter may be a name, or a list of one name, by how it was set.
        adapters = [repr([each] if isinstance(each, str) else each) for each in found]
        device = self._device_type
        autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        modes = (self._config.get("_attn_implementation_internal"), autocast, *adapters)
        return f"{self._name}.{self.generation}.{self._modes.setdefault(modes, len(self._modes))}"


def _sample(tensor: torch.Tensor) -> memoryview | None:
    """The line of memory in the middle of a CPU tensor, as a view that sees later writes."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return None
    dense = tensor.detach()
    if not dense.is_contiguous():  # transposed: its elements in the order in which they lie in memory
        dense = dense.permute(sorted(range(dense.dim()), key=dense.stride, reverse=True))
    if not dense.is_contiguous():
        return None
    raw = dense.view(-1).view(torch.uint8).numpy()
    start = raw.size // 2 // _LINE * _LINE
    return memoryview(raw[start : start + _LINE].data)


def _content(tensor: torch.Tensor) -> int:
    raw = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return zlib.crc32(raw.data)
