from __future__ import annotations

import math
from dataclasses import replace

import pytest

from perf_gate.judging.matching import fault, match_record
from perf_gate.verdict import Verdict
from tests.perf_gate.samples import COPIED, EFFICIENCY, measurement, name


def verdicts(inventory):
    return {(row.scenario, row.verdict) for row in inventory.rows}


def test_a_renamed_scenario_is_told_twice_and_how_to_record_it():
    taken = match_record([measurement("new")], [measurement("old")])
    assert verdicts(taken) == {(name("new"), Verdict.UNRECORDED), (name("old"), Verdict.MISSING)}
    assert all("--gate-record" in row.why for row in taken.rows)
    assert taken.pairs == ()


def test_what_is_on_both_sides_is_paired_by_name_and_not_by_order():
    now, then = [measurement("a"), measurement("b")], [measurement("b"), measurement("a")]
    taken = match_record(now, then)
    assert [(pair.now.scenario, pair.reference.scenario) for pair in taken.pairs] == [
        (name("a"), name("a")),
        (name("b"), name("b")),
    ]
    assert taken.rows == ()


@pytest.mark.parametrize("side", ["now", "reference"])
def test_the_same_scenario_twice_is_an_error_that_names_it(side):
    twice, once = [measurement("a"), measurement("a", seed=1)], [measurement("a")]
    with pytest.raises(ValueError, match=r"test_ttft\[a\]' occurs twice"):
        match_record(*((twice, once) if side == "now" else (once, twice)))


def test_a_scenario_that_asks_for_something_else_is_not_compared():
    taken = match_record([measurement("a", fingerprint="beef")], [measurement("a", fingerprint="f00d")])
    assert verdicts(taken) == {(name("a"), Verdict.NOT_COMPARABLE)}
    assert "beef" in taken.rows[0].why
    assert "f00d" in taken.rows[0].why
    assert not taken.rows[0].optional


def test_swapped_ids_are_noticed_by_their_fingerprints():
    now = [measurement("a", fingerprint="1"), measurement("b", fingerprint="2")]
    then = [measurement("a", fingerprint="2"), measurement("b", fingerprint="1")]
    assert {row.verdict for row in match_record(now, then).rows} == {Verdict.NOT_COMPARABLE}


@pytest.mark.parametrize("side", ["this run", "the reference"])
def test_a_broken_premise_is_invalid_on_either_side(side):
    good, bad = measurement("a"), measurement("a", invalid="warm leg reused 0 of 200 tokens")
    taken = match_record([bad], [good]) if side == "this run" else match_record([good], [bad])
    assert verdicts(taken) == {(name("a"), Verdict.INVALID)}
    assert side in taken.rows[0].why
    assert "0 of 200" in taken.rows[0].why


def with_visit(value):
    good = measurement("a")
    per_worker = list(good.seconds["warm"])
    per_worker[3] = (*per_worker[3][:5], value, *per_worker[3][6:])
    return replace(good, seconds={**good.seconds, "warm": tuple(per_worker)})


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -0.001])
def test_a_time_that_is_none_is_invalid_and_located(value):
    assert fault(with_visit(value)) == f"worker 3, arm 'warm', visit 6 took {value!r} s: not a time"
    assert fault(with_visit(value), sampled=False) is None


def test_good_measurements_have_no_fault():
    assert fault(measurement("a")) is None
    assert fault(measurement("a", metrics=[COPIED])) is None
    assert fault(replace(measurement("a"), seconds={}), sampled=False) is None


GOOD = measurement("a", workers=4)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (replace(GOOD, exact={"bytes copied": math.nan}), "not a finite number"),
        (replace(GOOD, exact={"bytes copied": True}), "not a finite number"),
        (replace(GOOD, exact={"bytes copied": 10**400}), "not a finite number"),
        (replace(GOOD, exact={"bytes copied": -math.inf}), "not a finite number"),
        (replace(GOOD, exact={}), "'bytes copied' was not counted"),
        (replace(GOOD, exact={"bytes copied": 0, "other": 1}), "'other' was counted, but is not declared"),
        (replace(GOOD, metrics=()), "it has no metric"),
        (replace(GOOD, metrics=(COPIED, COPIED, EFFICIENCY)), "'bytes copied' twice"),
        (replace(GOOD, seconds={}), "arm 'floor' was not timed"),
        (replace(GOOD, seconds={"warm": (), "floor": ()}), "no worker timed it"),
        (replace(GOOD, seconds={"warm": ((1.0,), ()), "floor": ((1.0,), (1.0,))}), "worker 1 never visited arm 'warm'"),
        (replace(GOOD, seconds={"warm": ((1.0,),), "floor": ((1.0,), (1.0,))}), "different numbers of workers"),
        (replace(GOOD, worker_names=("x", "x", "y", "z")), "names its workers wrongly"),
        (replace(GOOD, worker_names=("x", "y")), "names its workers wrongly"),
    ],
)
def test_every_fault_is_named(broken, said):
    assert said in (fault(broken) or "")
    assert match_record([broken], [GOOD]).rows[0].verdict is Verdict.INVALID
