"""The radix tree against a brute-force oracle that knows only lists of sequences."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from prefix_cache.namespace import Namespace
from prefix_cache.tokens import common_prefix
from prefix_cache.tree import Node, RadixTree, Root

Prefix = tuple[int, ...]
# The same text as adapter and as salt, and neither.
NAMESPACES = [Namespace("m"), Namespace("m", "x"), Namespace("m", None, "x"), Namespace("n")]


@dataclass(frozen=True)
class Values:
    """A payload without torch: one number per token."""

    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def split(self, at: int) -> tuple[Values, Values]:
        return Values(self.values[:at].copy()), Values(self.values[at:].copy())


def value_of(prefix: Prefix, birth: int) -> int:
    return hash((prefix, birth))


class Oracle:
    """What ought to be stored: the ends of runs, each a whole sequence. Everything is found by looking at all of them.

    stamp: last use of an end. pins: of an end. birth: insertion that stored the last token of each stored prefix.
    """

    def __init__(self) -> None:
        self.stamp: dict[tuple[Namespace, Prefix], int] = {}
        self.pins: dict[tuple[Namespace, Prefix], int] = {}
        self.birth: dict[tuple[Namespace, Prefix], int] = {}
        self.clock = 0
        self.births = 0

    def ends(self, namespace: Namespace) -> list[Prefix]:
        return [prefix for space, prefix in self.stamp if space == namespace]

    def match(self, namespace: Namespace, tokens: Prefix) -> int:
        return max((agreement(end, tokens) for end in self.ends(namespace)), default=0)

    def end_of(self, namespace: Namespace, prefix: Prefix) -> Prefix:
        """End of the run in which `prefix` ends."""
        if not prefix:
            return ()
        return min((e for e in self.ends(namespace) if e[: len(prefix)] == prefix), key=len)

    def touch(self, namespace: Namespace, end: Prefix) -> None:
        self.clock += 1
        for other in self.ends(namespace):
            if end[: len(other)] == other:
                self.stamp[namespace, other] = self.clock

    def cut(self, namespace: Namespace, prefix: Prefix) -> None:
        if prefix and (namespace, prefix) not in self.stamp:
            self.stamp[namespace, prefix] = self.stamp[namespace, self.end_of(namespace, prefix)]
            self.pins[namespace, prefix] = 0

    def insert(self, namespace: Namespace, tokens: Prefix) -> int:
        length = self.match(namespace, tokens)
        if length < len(tokens):
            self.births += 1
            self.cut(namespace, tokens[:length])
            self.stamp[namespace, tokens] = self.clock
            self.pins[namespace, tokens] = 0
            for i in range(length, len(tokens)):
                self.birth[namespace, tokens[: i + 1]] = self.births
        self.touch(namespace, self.end_of(namespace, tokens))
        return length

    def leaves(self) -> list[tuple[Namespace, Prefix]]:
        return [
            (space, end)
            for space, end in self.stamp
            if not any(s == space and len(e) > len(end) and e[: len(end)] == end for s, e in self.stamp)
        ]

    def next_out(self) -> tuple[Namespace, Prefix] | None:
        free = [leaf for leaf in self.leaves() if not self.pins[leaf]]
        stamps = [self.stamp[leaf] for leaf in free]
        assert len(stamps) == len(set(stamps)), "the order would be a matter of chance"
        return min(free, key=lambda leaf: self.stamp[leaf], default=None)

    def remove(self, leaf: tuple[Namespace, Prefix]) -> int:
        space, end = leaf
        del self.stamp[leaf], self.pins[leaf]
        above = max((len(e) for e in self.ends(space) if end[: len(e)] == e), default=0)
        for i in range(above, len(end)):
            del self.birth[space, end[: i + 1]]
        return len(end) - above

    def drop(self, refused: Namespace) -> int:
        removed = 0
        while leaf := next((x for x in self.leaves() if x[0] == refused and not self.pins[x]), None):
            removed += self.remove(leaf)
        return removed

    def held(self) -> int:
        """Tokens that pinned ends and what lies above them keep."""
        return len({(s, e[: i + 1]) for (s, e), pins in self.pins.items() if pins for i in range(len(e))})


def agreement(a: Prefix, b: Prefix) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def array(tokens: Prefix) -> np.ndarray:
    return np.array(tokens, np.int64)


def prefix_of(node: Node[Values]) -> Prefix:
    return tuple(int(t) for part in node.path() for t in part.tokens)


def build(tree: RadixTree[Values], namespace: Namespace, tokens: Prefix) -> tuple[Node[Values], int]:
    birth = tree._births + 1

    def make(start: int, stop: int) -> Values:
        return Values(np.array([value_of(tokens[: i + 1], birth) for i in range(start, stop)], np.int64))

    return tree.insert(namespace, array(tokens), make)


class TreeMachine(RuleBasedStateMachine):
    """Random operations on tree and oracle; everything observable is compared after each."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.tree: RadixTree[Values] = RadixTree()
        self.oracle = Oracle()
        self.pinned: list[tuple[Node[Values], Namespace, Prefix]] = []

    spaces = st.sampled_from(NAMESPACES)
    fresh = st.lists(st.integers(0, 2), max_size=9).map(tuple)

    def ask(self, namespace: Namespace, cut: int, more: Prefix) -> Prefix:
        """A sequence that begins like a stored one, so that deep trees arise."""
        ends = self.oracle.ends(namespace)
        if not ends or cut % 4 == 0:
            return more
        base = ends[cut % len(ends)]
        return base[: 1 + cut % len(base)] + more[:4]

    @rule(namespace=spaces, cut=st.integers(0, 999), more=fresh)
    def insert(self, namespace: Namespace, cut: int, more: Prefix) -> None:
        tokens = self.ask(namespace, cut, more)
        before = self.oracle.insert(namespace, tokens)
        node, found = build(self.tree, namespace, tokens)
        assert found == before
        assert prefix_of(node) == self.oracle.end_of(namespace, tokens)

    @rule(namespace=spaces, cut=st.integers(0, 999), more=fresh)
    def insert_that_fails(self, namespace: Namespace, cut: int, more: Prefix) -> None:
        tokens = self.ask(namespace, cut, more)
        if self.oracle.match(namespace, tokens) == len(tokens):
            return

        def make(start: int, stop: int) -> Values:
            raise MemoryError

        with pytest.raises(MemoryError):
            self.tree.insert(namespace, array(tokens), make)

    @rule(namespace=spaces, cut=st.integers(0, 999), more=fresh, touch=st.booleans(), pin=st.booleans())
    def hit(self, namespace: Namespace, cut: int, more: Prefix, touch: bool, pin: bool) -> None:
        tokens = self.ask(namespace, cut, more)
        length = self.oracle.match(namespace, tokens)
        match = self.tree.match(namespace, array(tokens))
        assert match.length == length
        end = self.oracle.end_of(namespace, tokens[:length])
        assert prefix_of(match.node) == end
        assert match.visited == len(match.node.path())
        if touch:
            self.tree.touch(match.node)
            self.oracle.touch(namespace, end)
        if pin and len(self.pinned) < 4:
            self.tree.pin(match.node)
            self.pinned.append((match.node, namespace, end))
            if end:
                self.oracle.pins[namespace, end] += 1
            else:
                assert isinstance(match.node, Root)

    @rule(which=st.integers(0, 9))
    def unpin(self, which: int) -> None:
        if self.pinned:
            node, namespace, end = self.pinned.pop(which % len(self.pinned))
            if end:
                assert prefix_of(node) == end, "a pinned node was moved or removed"
                self.oracle.pins[namespace, end] -= 1
            self.tree.unpin(node)

    @rule()
    def pop_lru(self) -> None:
        expected = self.oracle.next_out()
        before = {id(node): (prefix_of(node)) for node in self.tree.nodes()}
        node = self.tree.pop_lru()
        if expected is None:
            assert node is None
        else:
            assert node is not None
            assert before[id(node)] == expected[1]
            assert node.payload is None, "an evicted node holds on to its payload"
            assert len(node.tokens) == self.oracle.remove(expected)

    @rule(namespace=spaces, rare=st.integers(0, 5))
    def drop(self, namespace: Namespace, rare: int) -> None:
        if not rare:
            assert self.tree.drop(lambda n: n != namespace) == self.oracle.drop(namespace)

    @rule(namespace=spaces, which=st.integers(0, 999))
    def cut(self, namespace: Namespace, which: int) -> None:
        if ends := self.oracle.ends(namespace):
            end = ends[which % len(ends)]
            prefix = end[: 1 + which % len(end)]
            owner = self.oracle.end_of(namespace, prefix)
            node = self.tree.match(namespace, array(prefix)).node
            assert prefix_of(node) == owner
            self.oracle.cut(namespace, prefix)
            assert prefix_of(self.tree.cut(node, len(prefix))) == prefix

    @invariant()
    def agrees(self) -> None:
        type(self).steps += 1
        self.tree.check()
        oracle = self.oracle
        assert self.tree.tokens == len(oracle.birth)
        assert self.tree.nbytes == 8 * len(oracle.birth)
        assert self.tree.evictable_nbytes() == 8 * (len(oracle.birth) - oracle.held())
        assert set(self.tree.namespaces()) == {space for space, _ in oracle.stamp}
        for root in self.tree._roots.values():
            space = root.namespace
            pending = list(root.children.values())
            ends = []
            while pending:
                node = pending.pop()
                pending.extend(node.children.values())
                end = prefix_of(node)
                ends.append(end)
                assert node.pins == oracle.pins[space, end]
                births = {oracle.birth[space, end[: i + 1]] for i in range(node.start, node.end)}
                assert births == {node.birth}, "equal births must mean bits of one insertion"
                values = [value_of(end[: i + 1], node.birth) for i in range(node.start, node.end)]
                assert node.stored().values.tolist() == values, "a payload lies under other tokens than its own"
            assert sorted(ends) == sorted(oracle.ends(space))


def test_any_sequence_of_operations_agrees_with_the_oracle() -> None:
    TreeMachine.steps = 0
    run_state_machine_as_test(TreeMachine, settings=settings(max_examples=250, stateful_step_count=50))
    assert TreeMachine.steps >= 10_000


def test_whole_lru_order_after_a_long_history() -> None:
    tree: RadixTree[Values] = RadixTree()
    oracle = Oracle()
    dice = random.Random(0)
    for _ in range(400):
        tokens = tuple(dice.choices(range(3), k=dice.randint(1, 7)))
        space = dice.choice(NAMESPACES)
        oracle.insert(space, tokens)
        build(tree, space, tokens)
    evicted = 0
    while (node := tree.pop_lru()) is not None:
        expected = oracle.next_out()
        assert expected is not None
        assert int(node.tokens[-1]) == expected[1][-1]
        assert len(node.tokens) == oracle.remove(expected)
        tree.check()
        evicted += 1
    assert evicted > 100
    assert (tree.tokens, tree.nbytes, tree.namespaces()) == (0, 0, ())


def test_an_empty_key() -> None:
    tree: RadixTree[Values] = RadixTree()
    node, found = build(tree, NAMESPACES[0], ())
    assert (isinstance(node, Root), found, tree.tokens) == (True, 0, 0)
    build(tree, NAMESPACES[0], (1, 2))
    assert tree.match(NAMESPACES[0], array(())).length == 0
    assert build(tree, NAMESPACES[0], ())[1] == 0
    tree.check()
    assert tree.tokens == 2


def test_the_key_is_not_a_view_of_the_callers_array() -> None:
    tree: RadixTree[Values] = RadixTree()
    mine = array((1, 2, 3, 4))
    tree.insert(NAMESPACES[0], mine, lambda a, b: Values(np.zeros(b - a)))
    mine[:] = 9
    assert tree.match(NAMESPACES[0], array((1, 2, 3, 4))).length == 4
    assert tree.match(NAMESPACES[0], array((9,))).length == 0


def test_large_token_ids() -> None:
    tree: RadixTree[Values] = RadixTree()
    big = (2**63 - 1, 2**40, 2**33 + 1, 1)
    build(tree, NAMESPACES[0], big)
    assert tree.match(NAMESPACES[0], array(big)).length == 4
    assert tree.match(NAMESPACES[0], array((2**63 - 1, 2**40, 1, 1))).length == 2
    tree.check()


def test_matching_looks_at_runs_not_at_entries() -> None:
    tree: RadixTree[Values] = RadixTree()
    shared = tuple(range(50))
    for i in range(300):
        build(tree, NAMESPACES[0], (*shared, 100 + i, 7))
    match = tree.match(NAMESPACES[0], array((*shared, 100, 7, 8)))
    assert (match.length, match.visited) == (52, 2)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [((), (), 0), ((1,), (), 0), ((1,), (1,), 1), ((1, 2), (1, 3), 1), ((2,), (1,), 0), ((1, 2, 3), (1, 2), 2)],
)
def test_common_prefix(a: Prefix, b: Prefix, expected: int) -> None:
    assert common_prefix(array(a), array(b)) == expected
