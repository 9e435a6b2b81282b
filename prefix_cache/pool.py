"""Idle request buffers, kept because what they hold is still the KV of their tokens.

A request that begins like an earlier one takes that one's buffer and copies only what is missing, usually nothing.
"""

from __future__ import annotations

from prefix_cache.buffer import KVBuffer
from prefix_cache.layout import Layout
from prefix_cache.run import KVRun
from prefix_cache.tree import Node

_GRANULE = 256  # capacities are multiples of this, so that similar requests can take each other's buffers


class BufferPool:
    """At most `limit` idle buffers, least recently returned first. Not thread-safe: its owner holds a lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._idle: list[KVBuffer] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all idle buffers."""
        return sum(buffer.nbytes for buffer in self._idle)

    def idle(self) -> tuple[KVBuffer, ...]:
        """The buffers, least recently returned first."""
        return tuple(self._idle)

    def take(self, layout: Layout, path: list[Node[KVRun]], length: int, capacity: int) -> KVBuffer:
        """The buffer with room that agrees furthest with the hit, of several the one that loses least; or a new one."""
        fitting = [
            (min(buffer.agreement(path), length), not buffer.recycled, -buffer.known, -index)
            for index, buffer in enumerate(self._idle)
            if buffer.capacity >= capacity and buffer.layout is layout
        ]
        agree, _, _, index = max(fitting, default=(0, True, 0, 1))
        # What somebody may profit from is not worth overwriting while there is room for one more: two prefixes that
        # take turns would overwrite each other for ever, and neither would get hot.
        if not fitting or (not agree and self._idle[-index].known and len(self._idle) < self._limit):
            return KVBuffer(layout, -(-capacity // _GRANULE) * _GRANULE)
        best = self._idle.pop(-index)
        best.settle()  # somebody may have kept a view past the end of its request, and written through it
        # Only what was put to use is worth keeping from an insertion that needs room.
        best.recycled = agree > 0 and best.known > 0
        return best

    def give(self, buffer: KVBuffer, room: int | None) -> None:
        """Take a buffer back; `room`: bytes that idle buffers may hold, None for no bound. Drops the oldest to fit."""
        buffer.settle()
        self._idle.append(buffer)
        while self._idle and (len(self._idle) > self._limit or (room is not None and self.nbytes > room)):
            self._idle.pop(0)

    def drop(self, *, recycled: bool) -> bool:
        """Drop the oldest buffer that was (or was not) recycled; False where there is none."""
        for index, buffer in enumerate(self._idle):
            if buffer.recycled is recycled:
                del self._idle[index]
                return True
        return False

    def forget(self) -> None:
        """Keep the memory, forget the content."""
        for buffer in self._idle:
            buffer.forget()

    def clear(self) -> None:
        """Drop all."""
        self._idle.clear()
