"""The order in which the arms of a scenario are visited: random, but fair to every arm."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping


def balanced_orders(arms: Mapping[str, int], seed: int) -> Iterator[tuple[str, ...]]:
    """Yield for every round the arms to visit, in order, without end.

    arms: arm -> k; the arm is due in every k-th round, beginning with the first one.
    In every block of m rounds in which the same m arms are due, each arm stands in each place exactly once
    (a cyclic Latin square over a fresh random permutation, its rows shuffled), so that neither a drift within
    the round nor the state that a neighbour leaves behind favours an arm. Equal seeds give equal orders.
    """
    for arm, every in arms.items():
        if every < 1:
            raise ValueError(f"arm {arm!r} is to be visited in every {every}th round: give a whole number >= 1")
    shuffle = random.Random(seed).shuffle  # noqa: S311 - not a secret
    blocks: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    round_number = 0
    while True:
        due = tuple(arm for arm, every in arms.items() if round_number % every == 0)
        if not blocks.get(due):
            places = list(due)
            shuffle(places)
            block = [tuple(places[turn:] + places[:turn]) for turn in range(max(1, len(places)))]
            shuffle(block)
            blocks[due] = block
        yield blocks[due].pop()
        round_number += 1
