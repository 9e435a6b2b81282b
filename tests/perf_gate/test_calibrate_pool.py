from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_gate.calibration.pool import CalibrationError, gather
from perf_gate.calibration.split import Split, split
from perf_gate.judging.policy import Policy
from perf_gate.metric import Exact
from tests.perf_gate.samples import COPIED, ELSEWHERE, measurement


def side(seed, workers=8, **changes):
    return [measurement(short, seed=seed, workers=workers, **changes) for short in ("p50", "p200")]


def test_a_worker_keeps_all_of_its_samples():
    first, second = side(1), side(2, workers=4)
    pool = gather({"first": first, "second": second})
    assert pool.workers == 12
    drawn = pool.side([9, 0])
    for each, one, other in zip(drawn, first, second, strict=True):
        assert each.worker_names == ("second#1", "first#0")
        assert each.seconds == {arm: (other.seconds[arm][1], one.seconds[arm][0]) for arm in one.seconds}
        assert not any(isinstance(metric, Exact) for metric in each.metrics)


def test_a_worker_that_missed_a_scenario_is_left_out():
    one, other = side(1)
    part = replace(
        other, seconds={arm: per_worker[2:] for arm, per_worker in other.seconds.items()}, worker_names=tuple("234567")
    )
    pool = gather({"first": [one, part]})
    assert pool.workers == 6
    assert {each.worker_names for each in pool.measurements} == {tuple(f"first#{n}" for n in "234567")}
    assert pool.measurements[0].seconds["warm"] == one.seconds["warm"][2:]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda found: found[:1], "it has no "),
        (lambda found: [found[0], replace(found[1], fingerprint="other")], "another definition"),
        (lambda found: [found[0], replace(found[1], machine=ELSEWHERE)], "measured on"),
        (lambda found: [found[0], replace(found[1], invalid="broken")], "broken"),
    ],
)
def test_a_run_that_does_not_fit_is_named_and_not_drawn_from(change, word):
    pool = gather({"first": side(1), "second": change(side(2))})
    assert pool.workers == 8
    assert word in pool.left_out["second"]


def test_without_times_there_is_nothing_to_draw():
    with pytest.raises(CalibrationError, match="no timed scenario"):
        gather({"first": [measurement("a", metrics=[COPIED])]})


@given(st.integers(16, 60), st.integers(0, 5))
def test_no_worker_is_on_both_sides_or_twice_on_one(workers, seed):
    cut = split(workers, 24, (8, 12, 16), Policy())
    reference, now = cut.draw(np.random.default_rng(seed), workers, 20)
    assert reference.shape == (20, cut.reference)
    assert now.shape == (20, cut.looks[-1])
    for one, other in zip(reference, now, strict=True):
        assert len({*one, *other}) == len(one) + len(other)
    assert cut.looks == (8, 12, 16)[: len(cut.looks)]


def test_every_worker_is_drawn_as_often_as_any_other():
    """20 000 draws of 8 of 24: expected 6667 each, standard deviation 67; beyond 5 of them has p < 1e-5."""
    _, now = Split(12, (8,)).draw(np.random.default_rng(1), 24, 20_000)
    assert np.abs(np.bincount(now.ravel(), minlength=24) - 20_000 * 8 / 24).max() < 5 * 67


def test_enough_workers_give_what_was_asked_for_and_few_what_there_is():
    assert split(40, 24, (8, 12, 16), Policy()) == Split(24, (8, 12, 16))
    assert split(24, 24, (8, 12, 16), Policy()) == Split(12, (8, 12))
    with pytest.raises(CalibrationError, match="too few"):
        split(14, 24, (8, 12, 16), Policy())
