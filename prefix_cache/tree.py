"""A radix tree over token ids that stores opaque payloads by run of tokens. Knows nothing of tensors.

        root ── [system prompt] ──┬── [question A, answer A]
                 node: its run,   └── [question B]
                 its payload, its pins

Every node owns the payload of its own run only. A hit ends at a node, perhaps inside its run, and pins that node;
its ancestors are safe because only leaves are ever evicted. A split makes a new parent for the front part and leaves
the node object (and with it every pin) at the back part.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from prefix_cache.namespace import Namespace
from prefix_cache.tokens import TokenArray, common_prefix


class Payload(Protocol):
    """What a node stores for its run of tokens."""

    @property
    def nbytes(self) -> int:
        """Bytes of the storage behind it."""

    def split(self, at: int) -> tuple[Self, Self]:
        """Two payloads with storage of their own, for the first `at` tokens and for the rest."""


P = TypeVar("P", bound=Payload)


class Segment(NamedTuple):
    """Positions up to `end` (from the previous segment's end) hold what the insertion numbered `birth` stored."""

    birth: int
    end: int


class Node(Generic[P]):
    """A run of tokens below its parent. `start` is the position of the run's first token in the prompt.

    birth: number of the insertion that stored this run. Splitting keeps it, so equal births at equal positions mean
    the same stored bits, whatever has happened to the tree in between.
    """

    __slots__ = ("birth", "children", "parent", "payload", "pins", "queued", "raw", "stamp", "start", "tokens")

    def __init__(self, tokens: TokenArray, payload: P | None, parent: Node[P] | None, start: int, birth: int) -> None:
        self.hold(tokens)
        self.payload = payload
        self.parent = parent
        self.start = start
        self.birth = birth
        self.children: dict[int, Node[P]] = {}
        self.pins = 0
        self.stamp = 0
        self.queued = False

    def hold(self, tokens: TokenArray) -> None:
        """Make `tokens` the run."""
        self.tokens = tokens
        self.raw = tokens.tobytes()  # a whole run is compared as memory: it is most of what a match does

    @property
    def end(self) -> int:
        """Position behind the run's last token."""
        return self.start + len(self.tokens)

    def stored(self) -> P:
        """The payload of a node that is no root."""
        assert self.payload is not None
        return self.payload

    def path(self) -> list[Node[P]]:
        """Nodes from below the root down to this one."""
        nodes: list[Node[P]] = []
        node: Node[P] = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class Root(Node[P]):
    """Where a namespace begins: no tokens, no payload, never pinned."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(np.empty(0, np.int64), None, None, 0, 0)
        self.namespace = namespace


class Match(NamedTuple, Generic[P]):
    """Longest stored prefix of a prompt. `node` may reach further than `length` (a hit inside its run)."""

    length: int
    node: Node[P]
    visited: int


class RadixTree(Generic[P]):
    """Token-exact radix trees, one per namespace, with one LRU order over the leaves of all of them.

    Not thread-safe: its owner holds a lock.
    """

    def __init__(self) -> None:
        self._roots: dict[Namespace, Root[P]] = {}
        self._pinned: set[Node[P]] = set()
        self._clock = 0
        self._births = 0
        self._queue: list[tuple[int, int, Node[P]]] = []  # leaves by an outdated or current stamp, see pop_lru
        self._tie = 0
        self.tokens = 0
        self.nbytes = 0
        self.changes = 0  # a match holds as long as this stays the same
        self.transient_nbytes = 0  # most bytes alive at once during the latest insertion

    def __del__(self) -> None:
        """Nodes and their parents refer to each other: without this, payloads would wait for the collector."""
        for node in list(self.nodes()):
            node.parent = None
            node.children.clear()

    # ---- asking ------------------------------------------------------------------------------------------------

    def match(self, namespace: Namespace, tokens: TokenArray) -> Match[P]:
        """Longest stored prefix of `tokens`. Changes nothing: neither structure nor LRU order."""
        node: Node[P] | None = self._roots.get(namespace)
        if node is None:
            return Match(0, Root(namespace), 0)
        position = visited = 0
        n, raw, width = len(tokens), tokens.tobytes(), tokens.itemsize
        while position < n:
            child = node.children.get(int(tokens[position]))
            if child is None:
                break
            visited += 1
            node = child
            start = position * width
            if raw[start : start + len(child.raw)] != child.raw:
                position += common_prefix(child.tokens, tokens[position:])
                break
            position += len(child.tokens)
        return Match(position, node, visited)

    def nodes(self) -> Iterator[Node[P]]:
        """Every node but the roots, parents before children."""
        for root in self._roots.values():
            pending = list(root.children.values())
            while pending:
                node = pending.pop()
                yield node
                pending.extend(node.children.values())

    def namespaces(self) -> tuple[Namespace, ...]:
        """Namespaces that hold anything."""
        return tuple(self._roots)

    def evictable_nbytes(self) -> int:
        """Bytes that evicting leaves over and over could free while pinned nodes, and so their ancestors, stay."""
        held = {id(node): node for end in self._pinned for node in end.path()}
        return self.nbytes - sum(node.stored().nbytes for node in held.values())

    # ---- changing ----------------------------------------------------------------------------------------------

    def touch(self, node: Node[P]) -> None:
        """Make `node` and its ancestors the most recently used."""
        self._clock += 1
        cursor: Node[P] | None = node
        while cursor is not None:
            cursor.stamp = self._clock
            cursor = cursor.parent

    def pin(self, node: Node[P]) -> None:
        """Keep `node`, and with it its ancestors, from eviction until it is unpinned as often. A root needs no pin."""
        if node.parent is not None:
            node.pins += 1
            self._pinned.add(node)

    def unpin(self, node: Node[P]) -> None:
        """Undo one `pin`."""
        if node.parent is not None:
            assert node.pins > 0, "unpinned more often than pinned"
            node.pins -= 1
            if not node.pins:
                self._pinned.discard(node)

    def insert(
        self,
        namespace: Namespace,
        tokens: TokenArray,
        make: Callable[[int, int], P],
        match: Match[P] | None = None,
    ) -> tuple[Node[P], int]:
        """Store what is missing of `tokens`; `make(a, b)` builds the payload of positions a..b.

        match: of these tokens, where the caller has it already and nothing below it has changed since.

        Returns the node that ends exactly at len(tokens) or holds that position inside its run, and the number of
        tokens that were stored already. `make` is called at most once, before anything is changed.
        """
        length, node, _ = match if match is not None else self.match(namespace, tokens)
        self.transient_nbytes = self.nbytes
        if length < len(tokens):
            run = tokens[length:].copy()
            payload = make(length, len(tokens))
            if isinstance(node, Root):
                self._roots[namespace] = node
            if length < node.end:
                node = self._split(node, length - node.start)
            self._births += 1
            child = Node(run, payload, node, length, self._births)
            node.children[int(run[0])] = child
            self._account(+1, child)
            self.transient_nbytes = max(self.transient_nbytes, self.nbytes)
            node = child
            self._enqueue(child)
        self.touch(node)
        return node, length

    def cut(self, node: Node[P], end: int) -> Node[P]:
        """The node that ends at position `end` of `node`'s run; splits the run where that is inside it.

        Every pin stays with the back part, which is the same object as before.
        """
        if end == node.end:
            return node
        self.transient_nbytes = self.nbytes
        return self._split(node, end - node.start)

    def pop_lru(self) -> Node[P] | None:
        """Remove the least recently used leaf that is not pinned and return it, or None.

        The queue is lazy: an entry carries the stamp of when it was queued; a leaf used since goes back with its
        present one.
        """
        aside: list[Node[P]] = []
        found = None
        while self._queue and found is None:
            stamp, _, node = heapq.heappop(self._queue)
            node.queued = False
            if node.parent is None or node.children:
                continue  # removed, or no leaf any more; it is queued again when it becomes one
            if node.stamp != stamp:
                self._enqueue(node)
            elif node.pins:
                aside.append(node)
            else:
                found = node
        for node in aside:
            self._enqueue(node)
        if found is not None:
            self._remove(found)
        return found

    def drop(self, keep: Callable[[Namespace], bool]) -> int:
        """Remove everything that is not pinned from namespaces that `keep` refuses; returns tokens removed."""
        before = self.tokens
        for namespace, root in list(self._roots.items()):
            if keep(namespace):
                continue
            for node in reversed(_below(root)):  # children before parents
                if not node.children and not node.pins:
                    self._remove(node)
        self._queue = [entry for entry in self._queue if entry[2].parent is not None]
        heapq.heapify(self._queue)
        return before - self.tokens

    # ---- within ------------------------------------------------------------------------------------------------

    def _split(self, node: Node[P], at: int) -> Node[P]:
        assert node.parent is not None
        assert 0 < at < len(node.tokens)
        self.changes += 1
        whole = node.stored()
        front, back = whole.split(at)
        self.transient_nbytes = max(self.transient_nbytes, self.nbytes + front.nbytes + back.nbytes)
        self.nbytes += front.nbytes + back.nbytes - whole.nbytes
        upper = Node(node.tokens[:at].copy(), front, node.parent, node.start, node.birth)
        upper.stamp = node.stamp
        node.parent.children[int(upper.tokens[0])] = upper
        node.hold(node.tokens[at:].copy())
        node.payload = back
        node.parent = upper
        node.start += at
        upper.children[int(node.tokens[0])] = node
        return upper

    def _account(self, sign: int, node: Node[P]) -> None:
        self.changes += 1
        self.tokens += sign * len(node.tokens)
        self.nbytes += sign * node.stored().nbytes

    def _remove(self, node: Node[P]) -> None:
        parent = node.parent
        assert parent is not None
        assert not node.children
        assert not node.pins
        self._account(-1, node)
        del parent.children[int(node.tokens[0])]
        node.payload, node.parent = None, None
        if isinstance(parent, Root):
            if not parent.children:
                del self._roots[parent.namespace]
        elif not parent.children:
            self._enqueue(parent)

    def _enqueue(self, node: Node[P]) -> None:
        if not node.queued:
            node.queued = True
            self._tie += 1
            heapq.heappush(self._queue, (node.stamp, self._tie, node))

    def check(self) -> None:
        """Walk the whole tree and assert every invariant."""
        tokens = nbytes = 0
        queued = {id(node) for _, _, node in self._queue}
        for namespace, root in self._roots.items():
            assert root.children, f"empty namespace {namespace} was kept"
            assert root.namespace == namespace
            assert root.parent is None
            assert root.payload is None
            assert not root.pins, "a root was pinned"
        for node in self.nodes():
            assert len(node.tokens), "a node without tokens"
            assert node.pins >= 0, f"{node.pins} pins"
            assert bool(node.pins) == (node in self._pinned), "pinned nodes are not what the pins say"
            assert node.parent is not None
            assert node.parent.children.get(int(node.tokens[0])) is node, "parent and child disagree"
            assert node.start == node.parent.end, "a gap between parent and child"
            assert node.raw == node.tokens.tobytes(), "the run and its memory differ"
            assert node.tokens.base is None, "a run of tokens is a view of another array"
            assert node.parent.parent is None or node.parent.stamp >= node.stamp, "used later than its parent"
            assert node.children or (node.queued and id(node) in queued), "a leaf that eviction cannot find"
            tokens += len(node.tokens)
            nbytes += node.stored().nbytes
        assert all(node.parent is not None for node in self._pinned), "a pinned node was removed"
        assert (tokens, nbytes) == (self.tokens, self.nbytes), "totals differ from the sum over the nodes"


def _below(root: Node[P]) -> list[Node[P]]:
    order: list[Node[P]] = []
    pending = list(root.children.values())
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(node.children.values())
    return order
