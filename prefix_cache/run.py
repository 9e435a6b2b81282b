"""Stored KV of a run of tokens: written once, never again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from prefix_cache.layout import Layout
from prefix_cache.mode import ordinary_tensors


@dataclass(frozen=True, slots=True)
class KVRun:
    """Keys and values of all layers for a run of tokens, in storage of their own.

    slabs: per slab [slots, heads, run length, head dim], without gradient. nbytes: of their storages, taken there.
    """

    slabs: tuple[torch.Tensor, ...]
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Asked for at every insertion and eviction; a storage never changes its size."""
        object.__setattr__(self, "nbytes", sum(slab.untyped_storage().nbytes() for slab in self.slabs))

    @property
    def tokens(self) -> int:
        """Length of the run."""
        return int(self.slabs[0].shape[2])

    def split(self, at: int) -> tuple[KVRun, KVRun]:
        """Both parts as copies: a view would keep the storage of the whole run alive after its other part is gone."""
        return self._part(0, at), self._part(at, self.tokens)

    def _part(self, start: int, stop: int) -> KVRun:
        return copy_of(self.slabs, start, stop)


def copy_of(slabs: Sequence[torch.Tensor], start: int, stop: int) -> KVRun:
    """Own copy of positions start..stop of `slabs`, which carry no gradient."""
    with ordinary_tensors():
        # Twice as fast as cloning a part, which goes through the layout of the whole.
        copies = [torch.empty((*slab.shape[:2], stop - start, slab.shape[3]), dtype=slab.dtype, device=slab.device)
                  for slab in slabs]  # fmt: skip
    for copy, slab in zip(copies, slabs, strict=True):
        copy.copy_(slab.narrow(2, start, stop - start))
    return KVRun(tuple(copies))


@torch.no_grad()
def gather(layout: Layout, tensors: Sequence[tuple[torch.Tensor, torch.Tensor]], start: int, stop: int) -> KVRun:
    """Own copy of positions start..stop of per-layer (keys, values), each [1, heads, positions, head dim]."""
    slabs = layout.allocate(stop - start)
    for slot, tensor in [
        *zip(layout.keys, (keys for keys, _ in tensors), strict=True),
        *zip(layout.values, (values for _, values in tensors), strict=True),
    ]:
        slabs[slot.slab][slot.row].copy_(tensor[0, :, start:stop])
    return KVRun(slabs)
