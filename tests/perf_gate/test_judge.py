from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perf_gate.judging import estimate
from perf_gate.judging.decision import decide
from perf_gate.judging.judge import Policy, judge, undecided
from perf_gate.metric import Better, Comparable, Exact, Sampled
from perf_gate.verdict import Exit, Row, Verdict, exit_status
from tests.perf_gate.samples import (
    CALLS,
    COPIED,
    EFFICIENCY,
    ELSEWHERE,
    MACHINE,
    SPEEDUP,
    WARM,
    measurement,
    name,
)

SHORT = ("p50", "p200", "p500")


def side(seed, *, shorts=SHORT, workers=16, **changes):
    return [measurement(short, seed=seed, workers=workers, visits=20, **changes) for short in shorts]


def judged(now, then, **options):
    return judge(now, then, machine=MACHINE, **options)


def row(rows, short, metric, against=""):
    wanted = short if short.startswith("(all") else name(short)
    (found,) = [
        each
        for each in rows
        if each.scenario == wanted
        and each.metric is not None
        and each.metric.name == metric
        and each.against == against
    ]
    return found


def test_nothing_changed_passes_with_a_row_for_everything():
    rows = judged(side(1), side(2, workers=24))
    assert {each.verdict for each in rows} == {Verdict.PASS}
    assert exit_status(rows) is Exit.PASS
    wanted = {(name(short), metric) for short in SHORT for metric in ("bytes copied", "reuse efficiency")}
    assert {(each.scenario, each.metric.name) for each in rows} == wanted | {("(all)", "reuse efficiency")}
    timed = row(rows, "p200", "reuse efficiency")
    assert timed.low < timed.change < timed.high
    assert timed.threshold == pytest.approx(0.01)
    assert 0.01 < timed.minimum_detectable_change < 0.06
    assert timed.why == ""


def test_one_slower_scenario_is_red_whatever_the_others_do():
    now = [*side(1, shorts=("p50", "p200"), slower=0.97), measurement("p500", seed=1, workers=16, slower=1.08)]
    rows = judged(now, side(2, workers=24))
    found = row(rows, "p500", "reuse efficiency")
    assert found.verdict is Verdict.REGRESSED
    assert found.low > found.threshold
    assert found.change == pytest.approx(0.08, abs=0.03)
    assert found.change > found.minimum_detectable_change
    assert "Find the change" in found.why
    assert exit_status(rows) is Exit.REGRESSED


def test_a_gain_is_told_so_that_its_slack_hides_nothing():
    rows = judged(side(1, slower=0.5), side(2))
    found = row(rows, "p200", "reuse efficiency")
    assert found.verdict is Verdict.IMPROVED
    assert found.high < -found.threshold
    assert "--gate-record" in found.why
    assert exit_status(rows) is Exit.PASS


def test_a_metric_that_is_better_when_lower_is_judged_the_other_way_round():
    slower, faster = side(1, metrics=[WARM], slower=1.2), side(1, metrics=[WARM], slower=0.8)
    then = side(2, metrics=[WARM])
    assert row(judged(slower, then), "p50", "warm ttft").verdict is Verdict.REGRESSED
    assert row(judged(faster, then), "p50", "warm ttft").verdict is Verdict.IMPROVED
    assert row(judged(slower, then), "p50", "warm ttft").change == pytest.approx(0.2, abs=0.05)


def test_too_much_noise_is_inconclusive_and_says_what_it_could_not_rule_out():
    rows = judged(side(1, offset=0.2), side(2, offset=0.2))
    found = row(rows, "p200", "reuse efficiency")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "cannot be ruled out" in found.why
    assert exit_status(rows) is Exit.CANNOT_JUDGE
    assert undecided(rows) == {name(short) for short in SHORT}


@pytest.mark.parametrize(("now", "then", "mended"), [(2, 16, True), (16, 2, False), (1, 1, False)])
def test_too_few_workers_are_never_a_verdict(now, then, mended):
    rows = judged(side(1, workers=now, slower=2.0), side(2, workers=then))
    timed = [each for each in rows if isinstance(each.metric, Sampled)]
    assert {each.verdict for each in timed} == {Verdict.INCONCLUSIVE}
    assert all(f"{now} workers now and {then} in the record" in each.why for each in timed)
    assert (undecided(rows) == {name(short) for short in SHORT}) is mended
    assert undecided(rows) in (set(), {name(short) for short in SHORT})


@pytest.mark.parametrize(
    ("better", "then", "now", "verdict", "worse"),
    [
        (Better.LOWER, 200, 200, Verdict.PASS, 0.0),
        (Better.LOWER, 200, 201, Verdict.REGRESSED, 0.005),
        (Better.LOWER, 200, 199, Verdict.IMPROVED, -0.005),
        (Better.HIGHER, 0.5, 0.4, Verdict.REGRESSED, 0.2),
        (Better.HIGHER, 0.5, 0.6, Verdict.IMPROVED, -0.2),
        (Better.LOWER, 0, 1, Verdict.REGRESSED, math.inf),
        (Better.LOWER, 0, 0, Verdict.PASS, 0.0),
        (Better.LOWER, 10**17, 10**17 + 1, Verdict.REGRESSED, 1e-17),
    ],
)
def test_counts_are_compared_by_equality(better, then, now, verdict, worse):
    metric = Exact("count", "B", better)
    before, after = (measurement("a", metrics=[metric], exact={"count": value}) for value in (then, now))
    (found,) = judged([after], [before])
    assert found.verdict is verdict
    assert found.change == pytest.approx(worse)
    assert (found.reference, found.now) == (then, now)
    assert (found.why == "") is (verdict is Verdict.PASS)


def test_a_metric_on_one_side_only_is_never_passed_over():
    with_calls, without = (COPIED, CALLS, EFFICIENCY), (COPIED, EFFICIENCY)
    gone = judged(side(1, metrics=without), side(2, metrics=with_calls))
    come = judged(side(1, metrics=with_calls), side(2, metrics=without))
    assert row(gone, "p50", "operator calls").verdict is Verdict.MISSING
    assert row(come, "p50", "operator calls").verdict is Verdict.UNRECORDED
    assert exit_status(gone) is exit_status(come) is Exit.CANNOT_JUDGE


@pytest.mark.parametrize(
    "changed",
    [
        replace(EFFICIENCY, unit="x"),
        replace(EFFICIENCY, better=Better.LOWER),
        replace(EFFICIENCY, numerator="cold"),
        Exact("reuse efficiency", "ratio", Better.HIGHER),
    ],
)
def test_a_metric_that_means_something_else_now_is_not_compared(changed):
    exact = {"reuse efficiency": 1} if isinstance(changed, Exact) else {}
    now = [measurement("a", metrics=[COPIED, changed], exact=exact, workers=16)]
    found = row(judged(now, [measurement("a", workers=16)]), "a", "reuse efficiency")
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert not found.optional


def test_a_reference_without_times_is_told_apart_from_a_damaged_one():
    then = [replace(each, seconds={}) for each in side(2)]
    rows = judged(side(1), then)
    assert row(rows, "p50", "reuse efficiency").verdict is Verdict.UNRECORDED
    assert row(rows, "p50", "bytes copied").verdict is Verdict.PASS


def test_exact_only_judges_counts_and_shows_what_it_left_out():
    now = [replace(each, seconds={}) for each in side(1)]
    rows = judged(now, side(2), sampled=False)
    left = row(rows, "p50", "reuse efficiency")
    assert left.verdict is Verdict.NOT_COMPARABLE
    assert left.optional
    assert exit_status(rows) is Exit.PASS
    worse = [replace(now[0], exact={"bytes copied": 1}), *now[1:]]
    assert exit_status(judged(worse, side(2), sampled=False)) is Exit.REGRESSED


def test_other_software_leaves_only_what_depends_on_it_unjudged():
    metrics = (COPIED, CALLS, EFFICIENCY)
    now, then = side(1, metrics=metrics, exact={"operator calls": 9}), side(2, metrics=metrics)
    rows = judged(now, then, software="torch 2.14", reference_software="torch 2.13")
    found = row(rows, "p50", "operator calls")
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.optional
    assert "torch 2.13" in found.why
    assert exit_status(rows) is Exit.PASS
    same = judged(now, then, software="torch 2.13", reference_software="torch 2.13")
    assert row(same, "p50", "operator calls").verdict is Verdict.REGRESSED


def test_an_unknown_machine_class_gets_a_real_verdict_where_it_can():
    metrics = (COPIED, EFFICIENCY, SPEEDUP)
    now = side(1, metrics=metrics, slower=1.03)
    then = side(2, metrics=metrics, workers=24, machine=ELSEWHERE)
    rows = judged(now, then)
    assert row(rows, "p50", "bytes copied").verdict is Verdict.PASS
    assert row(rows, "p50", "reuse efficiency").threshold == pytest.approx(0.05)
    assert row(rows, "p50", "reuse efficiency").verdict is Verdict.PASS
    assert row(rows, "p50", "speedup").verdict is Verdict.NOT_COMPARABLE
    assert row(rows, "p50", "speedup").optional
    assert ELSEWHERE in row(rows, "p50", "speedup").why
    assert exit_status(rows) is Exit.PASS
    slow = judged(side(1, metrics=metrics, slower=1.15), then)
    assert row(slow, "p50", "reuse efficiency").verdict is Verdict.REGRESSED


def test_an_absolute_floor_raises_the_allowance():
    tolerant = replace(WARM, absolute_threshold=0.0035)
    now, then = side(1, metrics=[tolerant], slower=1.3), side(2, metrics=[tolerant])
    found = row(judged(now, then), "p50", "warm ttft")
    assert found.threshold == pytest.approx(0.5, abs=0.02)
    assert found.verdict is Verdict.PASS
    slow = side(1, metrics=[tolerant], slower=1.9)
    assert row(judged(slow, then), "p50", "warm ttft").verdict is Verdict.REGRESSED
    assert row(judged(slow, then), "(all)", "warm ttft").verdict is Verdict.REGRESSED
    assert row(judged(now, then), "(all)", "warm ttft").verdict is Verdict.PASS
    nearly = judged(side(1, metrics=[tolerant], slower=1.42), side(2, metrics=[tolerant]))
    assert row(nearly, "(all)", "warm ttft").verdict is Verdict.PASS
    huge = replace(EFFICIENCY, absolute_threshold=2.0)
    rows = judged(side(1, metrics=[huge], slower=3.0), side(2, metrics=[huge]))
    assert row(rows, "p50", "reuse efficiency").verdict is Verdict.PASS


def test_the_pooled_row_needs_the_same_workers_everywhere():
    sides = (range(10), range(8, 18), range(2, 12))
    now = [
        measurement(short, seed=1, workers=10, worker_names=[f"w{index}" for index in per_worker])
        for short, per_worker in zip(SHORT, sides, strict=True)
    ]
    found = row(judged(now, side(2)), "(all)", "reuse efficiency")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "2 workers now and 16 in the record timed all" in found.why


def test_workers_that_never_meet_are_pooled_apart():
    shorts = ("small-a", "small-b", "big-a", "big-b")
    now = [
        measurement(short, seed=1, workers=12, worker_names=[f"{short[:3]}{index}" for index in range(12)])
        for short in shorts
    ]
    then = [
        replace(each, seconds=other.seconds)
        for each, other in zip(now, side(2, shorts=shorts, workers=12), strict=True)
    ]
    pooled = {each.scenario for each in judged(now, then) if each.scenario.startswith("(all")}
    assert pooled == {f"(all 2 from {name('small-a')})", f"(all 2 from {name('big-a')})"}


def test_a_slowdown_of_all_scenarios_shows_in_the_pooled_row_first():
    shorts = [f"p{index}" for index in range(12)]
    rows = judged(side(1, shorts=shorts, slower=1.02), side(2, shorts=shorts, workers=24))
    pooled = row(rows, "(all)", "reuse efficiency")
    single = row(rows, "p3", "reuse efficiency")
    assert pooled.verdict is Verdict.REGRESSED
    assert pooled.minimum_detectable_change < single.minimum_detectable_change
    assert pooled.threshold < single.threshold


def from_record(measurements, record):
    return [replace(each, record=record) for each in measurements]


def test_small_steps_add_up_against_the_oldest_record():
    now = side(1, slower=1.06)
    newest, oldest = from_record(side(2, slower=1.06), "0007_x"), from_record(side(3), "0001_x")
    rows = judged(now, newest, oldest=oldest)
    assert row(rows, "p200", "reuse efficiency").verdict is Verdict.PASS
    found = row(rows, "p200", "reuse efficiency", against="0001_x")
    assert found.verdict is Verdict.REGRESSED
    assert "compared with the oldest comparable record 0001_x" in found.why
    assert exit_status(rows) is Exit.REGRESSED


def test_the_oldest_record_counts_only_where_it_can_be_compared():
    newest = from_record(side(2), "0007_x")
    foreign = from_record(side(3, machine=ELSEWHERE, metrics=[SPEEDUP]), "0001_x")
    renamed = from_record(side(3, fingerprint="beef"), "0001_x")
    for oldest in (newest, foreign, renamed, []):
        assert not [each for each in judged(side(1), newest, oldest=oldest) if each.against]
    metrics = [SPEEDUP]
    assert not [
        each
        for each in judged(side(1, metrics=metrics), from_record(side(2, metrics=metrics), "7"), oldest=foreign)
        if each.against
    ]


def test_a_timed_metric_that_depends_on_software_is_not_held_against_unknown_software():
    metrics = [replace(SPEEDUP, comparable=Comparable.SOFTWARE)]
    oldest = from_record(side(3, metrics=metrics), "0001_x")
    rows = judged(side(1, metrics=metrics), from_record(side(2, metrics=metrics), "7"), oldest=oldest)
    assert {each.verdict for each in rows} == {Verdict.PASS}
    assert not [each for each in rows if each.against]


def test_a_pooled_row_is_decided_by_its_own_scenarios_only():
    known = Row(name("a"), EFFICIENCY, Verdict.PASS, low=-0.01)
    old = Row(name("b"), EFFICIENCY, Verdict.PASS, low=-0.01, against="0001_x")
    other = Row(name("c"), SPEEDUP, Verdict.PASS, low=-0.01)
    unclear = Row("(all)", EFFICIENCY, Verdict.INCONCLUSIVE, low=-0.01)
    assert undecided([known, old, other, unclear]) == {name("a")}
    assert undecided([known, old, other, replace(unclear, against="0001_x")]) == {name("b")}
    assert undecided([known, old, other]) == set()


def test_rows_come_in_the_order_of_the_run():
    now = [measurement("z", invalid="dead"), *side(1)]
    rows = judged(now, [*side(2), measurement("old")], oldest=from_record(side(3), "0001_x"))
    scenarios = list(dict.fromkeys(each.scenario for each in rows if not each.against))
    assert scenarios == [*map(name, SHORT), "(all)", name("z"), name("old")]


def permuted(measurements, order, names):
    return [
        replace(
            each,
            seconds={arm: tuple(per_worker[index] for index in order) for arm, per_worker in each.seconds.items()},
            worker_names=tuple(names[index] for index in order),
        )
        for each in measurements
    ]


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(8)), st.permutations([f"w{index}" for index in range(8)]))
def test_the_same_samples_give_the_same_rows_whatever_the_order_of_the_workers(order, names):
    now, then = side(1, workers=8, slower=1.04), side(2, workers=8)
    plain = judged(now, then, oldest=from_record(side(3, workers=8), "0001_x"))
    again = judged(
        permuted(now, order, names),
        permuted(then, order, names),
        oldest=permuted(from_record(side(3, workers=8), "0001_x"), order, names),
    )
    assert again == plain


def test_a_record_that_scatters_too_widely_is_named_as_the_cause():
    noisy, calm_side = side(2, offset=0.2), side(1, workers=24)
    against_noisy = row(judged(calm_side, noisy), "p200", "reuse efficiency")
    noisy_now = row(judged(noisy, calm_side), "p200", "reuse efficiency")
    assert against_noisy.verdict is noisy_now.verdict is Verdict.INCONCLUSIVE
    assert "the record alone varies too much" in against_noisy.why
    assert "measure with more workers" in noisy_now.why


def test_an_end_beyond_what_a_float_holds_is_infinite_and_no_error():
    rows = judged(side(1, workers=3, offset=40.0), side(2, workers=3, offset=40.0))
    found = row(rows, "p200", "reuse efficiency")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert math.inf in (found.high, row(rows, "(all)", "reuse efficiency").high)
    assert undecided(rows) == {name(short) for short in SHORT}


def test_workers_that_agree_to_the_last_bit_are_judged_by_their_values():
    def steady(slower):
        one = {"warm": ((0.007 * slower, 0.007 * slower),) * 8, "floor": ((0.0067, 0.0067),) * 8}
        return [replace(each, seconds=one) for each in side(1)]

    assert row(judged(steady(1.0), steady(1.0)), "p50", "reuse efficiency").verdict is Verdict.PASS
    assert row(judged(steady(1.02), steady(1.0)), "p50", "reuse efficiency").verdict is Verdict.REGRESSED
    assert row(judged(steady(0.98), steady(1.0)), "p50", "reuse efficiency").verdict is Verdict.IMPROVED


def test_an_empty_comparison_is_not_green():
    assert judged([], []) == []
    assert exit_status([]) is Exit.CANNOT_JUDGE
    assert exit_status(judged([], side(2))) is Exit.CANNOT_JUDGE
    assert exit_status(judged(side(1), [])) is Exit.CANNOT_JUDGE


def test_looks_are_paid_for_and_none_is_free():
    policy = Policy(alpha=0.001, looks=4)
    levels = [policy.level(look) for look in (1, 2, 3, 4)]
    assert sum(levels) == pytest.approx(0.001)
    assert levels == sorted(levels)
    for look in (0, 5):
        with pytest.raises(ValueError, match="looks are fixed before the run"):
            judged(side(1), side(2), policy=policy, look=look)
    early = row(judged(side(1), side(2), policy=policy, look=1), "p50", "reuse efficiency")
    late = row(judged(side(1), side(2), policy=policy, look=4), "p50", "reuse efficiency")
    assert early.minimum_detectable_change > late.minimum_detectable_change


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": 0},
        {"alpha": math.nan},
        {"alpha": 1},
        {"beta": 0.7},
        {"looks": 0},
        {"looks": True},
        {"min_workers": 2},
        {"pooled_threshold_share": 0},
        {"pooled_threshold_share": 1.1},
        {"pooled_alpha_share": 0},
        {"pooled_alpha_share": 1},
        {"paired_resolution_factor": 0.9},
        {"paired_resolution_factor": math.nan},
    ],
)
def test_a_policy_that_promises_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match=f"policy: {next(iter(wrong))}"):
        Policy(**wrong)


def raw_runs(rng, runs, workers, visits, disturb):
    """Log efficiency (runs, 6 scenarios, workers) from raw seconds, spoilt by `disturb` (log scale, one per arm)."""
    shape = (runs, 6, workers, visits)
    floor, warm = disturb(rng, shape)
    floor = 0.0067 * np.exp(floor + rng.normal(0, 0.03, shape))
    warm = 0.0070 * np.exp(warm + rng.normal(0, 0.03, shape))
    return estimate.log_ratio(floor, warm)


def calm(rng, shape):
    return np.zeros(shape), np.zeros(shape)


def drifting(rng, shape):
    """30 % slower from the first to the last worker of the run, and within each in step."""
    position = np.arange(shape[2] * shape[3]).reshape(shape[2:]) / (shape[2] * shape[3])
    drift = np.broadcast_to(np.log1p(0.3 * position), shape)
    return drift, drift


def shifted(rng, shape):
    """Every process by a constant of its own, up to 5 % either way, all arms alike."""
    offset = np.log1p(rng.uniform(-0.05, 0.05, (shape[0], 1, shape[2], 1)))
    return offset, offset


def disturbed(rng, shape):
    """Heavy-tailed: one visit in ten, of either arm, takes many times as long."""

    def arm():
        return np.where(rng.uniform(size=shape) < 0.1, np.log1p(rng.pareto(1.0, shape)), 0.0)

    return arm(), arm()


def half_disturbed(rng, shape):
    """A neighbour burns a core during the second half of the run."""
    late = np.arange(shape[2]) >= shape[2] // 2

    def arm():
        return np.where(late[:, None], np.log1p(0.4) + 0.05 * rng.normal(size=shape), 0.0)

    return arm(), arm()


@pytest.mark.parametrize("disturb", [drifting, shifted, disturbed, half_disturbed])
def test_what_befalls_both_arms_raises_no_alarm(disturb):
    """400 runs with the disturbance now and a calm reference. 4 or more red at 0.1 %: p < 1e-3."""
    rng = np.random.default_rng(21)
    now = raw_runs(rng, 400, 12, 20, disturb)
    then = raw_runs(rng, 400, 16, 20, calm)

    def described(values):
        plain = estimate.spread([values[:, index] for index in range(6)])
        return estimate.moderate(plain, estimate.coupling(values))

    contrast = estimate.contrast(described(now), described(then), [-1.0] * 6)
    policy = Policy()
    made = decide(contrast, np.log1p(0.01), np.log1p(0.03), alpha=policy.level(3), beta=policy.beta)
    red = made.regressed.any(axis=-1).sum()
    assert red < 4, f"{red} of 400 red; a false alarm of this test has p < 1e-3"


def test_travels_and_limits_are_those_of_the_code_and_not_of_the_record():
    """A record must not be able to loosen the gate."""
    loose = replace(EFFICIENCY, threshold=0.5, resolution=0.9, comparable=Comparable.ANYWHERE)
    rows = judged(side(1, slower=1.2), side(2, metrics=(COPIED, loose)))
    assert row(rows, "p50", "reuse efficiency").verdict is Verdict.REGRESSED
    assert row(rows, "p50", "reuse efficiency").threshold == pytest.approx(0.01)
