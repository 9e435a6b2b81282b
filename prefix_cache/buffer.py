"""The request's own KV: preallocated slabs, and the transformers cache that writes into them.

`KVBuffer` is memory and outlives a request (recycled by pool.py); `RequestCache` is what one request hands to
`model(...)` or `model.generate(...)` and dies with it.
"""

from __future__ import annotations

import operator
import weakref
from typing import Any, NoReturn

import torch
from torch.compiler import is_dynamo_compiling
from transformers.cache_utils import Cache, CacheLayerMixin

from prefix_cache.errors import BatchError, EditedError, LayoutError, ReleasedError
from prefix_cache.layout import Layout
from prefix_cache.run import KVRun
from prefix_cache.tree import Node, Segment

_RELEASED = "this KV was handed back when its `with cache.lookup(...)` block ended; look up again"
_version = operator.attrgetter("_version")  # shared with every view; slabs are never inference tensors, which have none


class KVBuffer:
    """Slabs with room for `capacity` tokens.

    layers: views (keys, values) of the slabs, each [1, heads, capacity, head dim]; made once, not for every request.
    nbytes: of the storages.
    segments: which stored runs the first positions are bit-equal copies of. Everything behind them is scratch.
    recycled: a request has already profited from what an earlier one left here.
    writes: how often this package has written to the slabs. compiled: code compiled by torch has written to them too,
    which moves their version counters by another number.
    """

    def __init__(self, layout: Layout, capacity: int) -> None:
        self.layout = layout
        self.capacity = capacity
        self.slabs: tuple[torch.Tensor, ...] = ()
        self.layers: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()
        self._hold(layout.allocate(capacity))
        self.segments: tuple[Segment, ...] = ()
        self.recycled = False
        self.writes = self._versions()
        self.compiled = False

    @property
    def foreign_writes(self) -> int:
        """How often somebody else has written to the slabs, through a view of `keys`, `values` or `update`'s answer.

        Not seen: writes past the version counters (`.data`, NumPy), and what happens around compiled code.
        """
        return 0 if self.compiled else self._versions() - self.writes

    def forget(self) -> None:
        """Keep the memory, forget the content."""
        self.segments = ()
        self.recycled = False

    def settle(self) -> None:
        """Forget the content where somebody else wrote to it, and count from here."""
        versions = self._versions()
        if versions != self.writes and not self.compiled:
            self.forget()
        self.writes, self.compiled = versions, False

    @property
    def known(self) -> int:
        """Number of leading positions that equal stored KV."""
        return self.segments[-1].end if self.segments else 0

    def agreement(self, path: list[Node[KVRun]]) -> int:
        """Leading positions that hold the very bits stored along `path`."""
        agree = index = 0
        for node in path:
            while index < len(self.segments) and self.segments[index].end <= node.start:
                index += 1
            if index == len(self.segments) or self.segments[index].birth != node.birth:
                break
            agree = min(self.segments[index].end, node.end)
            if agree < node.end:
                break
        return agree

    def forget_from(self, position: int) -> None:
        """Positions from `position` on are about to be overwritten."""
        kept: list[Segment] = []
        for segment in self.segments:
            if kept and kept[-1].end >= position:
                break
            kept.append(Segment(segment.birth, min(segment.end, position)))
        self.segments = tuple(kept) if position else ()

    def fill(self, path: list[Node[KVRun]], length: int) -> int:
        """Make the first `length` positions equal what `path` stores; returns the bytes that had to be copied."""
        agree = min(self.agreement(path), length)
        copied = 0
        for node in path:
            start, stop = max(agree, node.start), min(length, node.end)
            if start >= stop:
                continue
            for mine, stored in zip(self.slabs, node.stored().slabs, strict=True):
                mine[:, :, start:stop].copy_(stored[:, :, start - node.start : stop - node.start])
            self.writes += len(self.slabs)
            copied += (stop - start) * self.layout.nbytes_per_token
        self.segments = segments_of(path, length)
        return copied

    def grow(self, needed: int, keep: int) -> None:
        """Room for `needed` tokens or more, keeping the first `keep` positions. Doubles: decoding pays O(1) a token."""
        capacity = max(needed, 2 * self.capacity)
        self._take_over(self.layout.allocate(capacity), self, keep)
        self.capacity = capacity

    def twin(self) -> KVBuffer:
        """Another buffer with the same content, which claims nothing of it."""
        twin = KVBuffer(self.layout, self.capacity)
        twin._take_over(twin.slabs, self, self.capacity)
        return twin

    def _take_over(self, slabs: tuple[torch.Tensor, ...], source: KVBuffer, keep: int) -> None:
        """Hold `slabs` with the first `keep` positions of `source`; what was edited there is edited here."""
        for mine, other in zip(slabs, source.slabs, strict=True):
            mine[:, :, :keep].copy_(other[:, :, :keep])
        edits = source.foreign_writes
        self._hold(slabs)
        self.writes = self._versions() - edits

    def _versions(self) -> int:
        return sum(map(_version, self.slabs))

    def _hold(self, slabs: tuple[torch.Tensor, ...]) -> None:
        self.slabs = slabs
        self.nbytes = sum(slab.untyped_storage().nbytes() for slab in slabs)
        self.layers = tuple(
            (slabs[key.slab][key.row].unsqueeze(0), slabs[value.slab][value.row].unsqueeze(0))
            for key, value in zip(self.layout.keys, self.layout.values, strict=True)
        )


def segments_of(path: list[Node[KVRun]], length: int) -> tuple[Segment, ...]:
    """The first `length` positions along `path` as segments; parts of one split run are one segment again."""
    segments: list[Segment] = []
    for node in path:
        if node.start >= length:
            break
        if segments and segments[-1].birth == node.birth:
            segments.pop()
        segments.append(Segment(node.birth, min(node.end, length)))
    return tuple(segments)


class BufferLayer(CacheLayerMixin):
    """One layer of a request's KV: `update` writes behind what is there, in place, and returns views."""

    is_sliding = False
    is_croppable = True

    def __init__(self, owner: weakref.ref[RequestCache], index: int) -> None:
        self.is_initialized = True
        self.length = 0
        self._owner = owner
        self._index = index
        self._buffer: KVBuffer | None = None
        self._all_keys: torch.Tensor | None = None
        self._all_values: torch.Tensor | None = None

    def attach(self, buffer: KVBuffer, length: int) -> None:
        """Point at this layer's rows of the buffer's slabs; the first `length` positions count as present."""
        self._buffer = buffer
        self._all_keys, self._all_values = buffer.layers[self._index]
        self.length = length

    def detach(self) -> None:
        """Let go of the buffer; any further use raises."""
        self._buffer = self._all_keys = self._all_values = None

    @property
    def keys(self) -> torch.Tensor | None:  # type: ignore[override]  # an attribute there; made when asked for here
        """[1, heads, length, head dim]; None after the request has ended."""
        return None if self._all_keys is None else self._all_keys.narrow(2, 0, self.length)

    @property
    def values(self) -> torch.Tensor | None:  # type: ignore[override]
        """See keys."""
        return None if self._all_values is None else self._all_values.narrow(2, 0, self.length)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the buffer was there first."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [1, heads, new, head dim] behind the present positions; returns views of [1, heads, all, head dim].

        Gradients do not flow into the buffer. Raises BatchError, LayoutError, ReleasedError.
        """
        buffer, all_keys, all_values = self._buffer, self._all_keys, self._all_values
        if buffer is None or all_keys is None or all_values is None:
            raise ReleasedError(_RELEASED)
        batch, _, new, _ = key_states.shape
        start, stop = self.length, self.length + new
        if batch != 1:
            raise BatchError(
                f"a batch of {batch} rows was run over the KV of one sequence; call the model once per row"
            )
        if key_states.dtype != all_keys.dtype or value_states.dtype != all_values.dtype:
            keys = f"{key_states.dtype} keys, but holds {all_keys.dtype} ones"
            values = f"{value_states.dtype} values, but holds {all_values.dtype} ones"
            raise LayoutError(
                f"layer {self._index} produced {keys if key_states.dtype != all_keys.dtype else values}; the "
                "model was cast, or autocast was switched on or off, after the lookup. Look up again, within the same "
                "`with torch.autocast(...)` as the model runs in."
            )
        if stop > all_keys.shape[2]:
            self._request().grow(stop)
            all_keys, all_values = buffer.layers[self._index]
        if key_states.requires_grad or value_states.requires_grad:
            key_states, value_states = key_states.detach(), value_states.detach()
        all_keys.narrow(2, start, new).copy_(key_states)
        all_values.narrow(2, start, new).copy_(value_states)
        if is_dynamo_compiling():
            buffer.compiled = True
        else:
            buffer.writes += 2
        self.length = stop
        return all_keys.narrow(2, 0, stop), all_values.narrow(2, 0, stop)

    def get_seq_length(self) -> int:
        """Positions present."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(positions to attend to, offset of the first)."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """-1: grows without bound."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last |tokens_to_remove| positions (transformers' convention: zero or negative)."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop({tokens_to_remove}): pass the negative number of positions to remove")
        if self._all_keys is None:
            raise ReleasedError(_RELEASED)
        length = max(0, self.length + tokens_to_remove)
        self._request().forget_from(length)
        self.length = length

    def reset(self) -> None:
        """Forget every position."""
        self.crop(-self.length)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:  # noqa: ARG002  # the base class names it
        """Beams are several sequences; refused."""
        self._refuse_rows("beam search")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refused unless it changes nothing."""
        if repeats != 1:
            self._refuse_rows(f"{repeats} sequences")

    def batch_select_indices(self, indices: torch.Tensor) -> None:  # noqa: ARG002
        """Refused."""
        self._refuse_rows("selecting rows")

    def offload(self) -> None:
        """Nothing to do: the buffer stays on the layer's device."""

    def prefetch(self) -> None:
        """Nothing to do, see offload."""

    def _request(self) -> RequestCache:
        owner = self._owner()
        assert owner is not None
        return owner

    def _refuse_rows(self, what: str) -> NoReturn:
        raise BatchError(
            f"{what}: the KV of a prefix-cache hit holds one sequence; use num_beams=1 and num_return_sequences=1"
        )


class RequestCache(Cache):
    """An ordinary transformers cache over a KVBuffer, for one request.

    Accepted by `model(..., cache=...)` and `model.generate(..., cache=...)`.
    """

    def __init__(self, buffer: KVBuffer, length: int) -> None:
        me = weakref.ref(self)  # no cycle: a request's KV is freed at once, not by the collector
        self._own = [BufferLayer(me, index) for index in range(len(buffer.layout.keys))]
        super().__init__(layers=[*self._own])
        self.buffer: KVBuffer | None = buffer
        self.grown_nbytes = 0
        for layer in self._own:
            layer.attach(buffer, length)

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestCache:
        """An independent continuation, as `copy.deepcopy(past_key_values)` is meant; it outlives the hit."""
        twin = self.held().twin()
        copied = RequestCache(twin, 0)
        memo[id(self)] = copied
        for mine_layer, other_layer in zip(copied._own, self._own, strict=True):
            mine_layer.attach(twin, other_layer.length)
        return copied

    def holds(self, length: int) -> bool:
        """Whether every layer has exactly `length` positions."""
        return all(layer.length == length for layer in self._own)

    def held(self) -> KVBuffer:
        """The buffer. Raises ReleasedError after `release`."""
        if self.buffer is None:
            raise ReleasedError(_RELEASED)
        return self.buffer

    def grow(self, needed: int) -> None:
        """Move every layer to a larger buffer, keeping what each holds."""
        buffer = self.held()
        keep = max(layer.length for layer in self._own)
        buffer.grow(needed, keep)
        self.grown_nbytes += keep * buffer.layout.nbytes_per_token
        for layer in self._own:
            layer.attach(buffer, layer.length)

    def forget_from(self, position: int) -> None:
        """What lies behind `position` will no longer equal stored KV."""
        self.held().forget_from(position)

    def refuse_edited(self) -> None:
        """Raise EditedError where somebody else has written to this KV."""
        if self.held().foreign_writes:
            raise EditedError(
                "the tensors of this KV were written to by hand (hit.kv's keys or values, or a view of them): what is "
                "there now, and what was computed from it, is not the KV of these tokens. Nothing was stored. Edit "
                "copies (copy.deepcopy(hit.kv), or .clone() of a tensor), and look up again to store."
            )

    def release(self) -> KVBuffer:
        """Give the buffer back; this cache is unusable afterwards."""
        buffer = self.held()
        for layer in self._own:
            layer.detach()
        self.buffer = None
        return buffer
