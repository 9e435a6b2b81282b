"""The order of the arms is random, fair and repeatable."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_gate.measuring.order import balanced_orders

SEEDS = st.integers(0, 2**32 - 1)


@given(arms=st.integers(1, 5), blocks=st.integers(1, 4), seed=SEEDS)
def test_each_arm_stands_in_each_place_equally_often(arms: int, blocks: int, seed: int) -> None:
    names = {f"arm{i}": 1 for i in range(arms)}
    rounds = list(islice(balanced_orders(names, seed), arms * blocks))
    places = Counter((arm, place) for order in rounds for place, arm in enumerate(order))
    assert len(places) == arms * arms
    assert set(places.values()) == {blocks}


@given(every=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4), min_size=1), seed=SEEDS)
def test_an_arm_is_due_in_every_kth_round(every: dict[str, int], seed: int) -> None:
    rounds = list(islice(balanced_orders(every, seed), 24))
    for arm, k in every.items():
        assert [number for number, order in enumerate(rounds) if arm in order] == list(range(0, 24, k))
    assert all(len(order) == len(set(order)) for order in rounds)


def test_the_seed_decides() -> None:
    arms = {"cold": 1, "warm": 1, "floor": 1}
    first, again, other = (list(islice(balanced_orders(arms, seed), 60)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_never_is_no_frequency() -> None:
    with pytest.raises(ValueError, match="arm 'cold'"):
        next(balanced_orders({"cold": 0}, 1))
