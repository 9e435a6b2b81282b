"""Time to match a prompt, by its length and by how much is stored. The tree alone: no model, no tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import ClassVar

import numpy as np

from cache_bench.prompts import Tokens
from perf_gate import Better, Comparable, Exact, InvalidPremise, Metric, Sampled, Scenario
from prefix_cache.namespace import Namespace
from prefix_cache.tree import RadixTree

_REPEATS = 25  # of a match within one visit: a single one takes microseconds
_TOKENS = 50_000
_NAMESPACE = Namespace("lookup")


class _Weightless:
    """A payload that takes no bytes."""

    nbytes = 0

    def split(self, at: int) -> tuple[_Weightless, _Weightless]:
        del at
        return self, self


@dataclass(frozen=True)
class Lookup(Scenario):
    """`prompt` stored tokens and a new one, in a tree that holds them alone or among `entries` others.

    Half of the others go on from the same tokens, as requests with one system prompt do, and half have nothing in
    common with them: both trees are walked along as many nodes, and what differs is how many lie beside the way.
    """

    prompt: int
    entries: int

    arms: ClassVar[Mapping[str, int]] = {"alone": 1, "among many": 1}

    @property
    def id(self) -> str:
        """See Scenario.id."""
        return f"prompt{self.prompt}-entries{self.entries}"

    @property
    def group(self) -> str:
        """See Scenario.group."""
        return f"lookup {self.id}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See Scenario.metrics."""
        # Wide, because a match is a thousandth of a hit: what matters is that it does not grow with what is stored.
        return (
            Exact("tree nodes visited", "nodes"),
            Exact("tokens matched", "tokens", better=Better.HIGHER),
            Sampled(
                "match time",
                "s",
                Better.LOWER,
                "among many",
                threshold=0.25,
                resolution=1.0,
                absolute_threshold=20e-6,
                comparable=Comparable.MACHINE,
            ),
            Sampled(
                "match time, many / one",
                "",
                Better.LOWER,
                "among many",
                "alone",
                threshold=0.25,
                resolution=1.0,
                other_machine_threshold=0.5,
            ),
        )

    def open(self) -> None:
        """See Scenario.open."""
        random = np.random.default_rng(self.entries)
        stored = random.integers(0, _TOKENS, self.prompt)
        others = [random.integers(0, _TOKENS, 64) for _ in range(self.entries)]
        longer = (np.concatenate([stored, other]) for other in others[::2])
        alone, many = _tree([stored]), _tree(chain([stored], longer, others[1::2]))
        asked = np.append(stored, _TOKENS)
        object.__setattr__(self, "_state", (asked, {"alone": alone, "among many": many}))

    def close(self) -> None:
        """See Scenario.close."""
        object.__setattr__(self, "_state", None)

    def count(self) -> Mapping[str, int | float]:
        """See Scenario.count."""
        asked, trees = self._opened()
        found = trees["among many"].match(_NAMESPACE, asked)
        return {"tree nodes visited": found.visited, "tokens matched": found.length}

    def visit(self, arm: str) -> float:
        """See Scenario.visit."""
        asked, trees = self._opened()
        if arm not in trees:
            raise LookupError(f"there is no arm {arm!r}")
        match: Callable[[Namespace, Tokens], object] = trees[arm].match
        start = perf_counter()
        for _ in range(_REPEATS):
            match(_NAMESPACE, asked)
        seconds = (perf_counter() - start) / _REPEATS
        found = trees[arm].match(_NAMESPACE, asked)
        if found.length != self.prompt:
            raise InvalidPremise(f"{arm}: matched {found.length} of {self.prompt} stored tokens")
        return seconds

    def _opened(self) -> tuple[Tokens, dict[str, RadixTree[_Weightless]]]:
        state: tuple[Tokens, dict[str, RadixTree[_Weightless]]] | None = getattr(self, "_state", None)
        if state is None:
            raise RuntimeError(f"Lookup {self.id} was not opened")
        return state


def _tree(entries: Iterable[Tokens]) -> RadixTree[_Weightless]:
    tree: RadixTree[_Weightless] = RadixTree()
    for entry in entries:
        tree.insert(_NAMESPACE, entry, lambda _start, _stop: _Weightless())
    return tree
