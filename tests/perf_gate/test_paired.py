"""The verdict against a base of the same run uses that its workers come in pairs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from perf_gate.judging.comparison import compare_paired, pool, shares, values
from perf_gate.judging.judge import Policy, judge, judge_paired, undecided
from perf_gate.metric import Exact, Sampled
from perf_gate.verdict import Exit, Verdict, exit_status
from tests.perf_gate.samples import COPIED, EFFICIENCY, WARM, measurement, name

SHORT = ("p50", "p200", "p500")
PAIRS = 8
ROUGH = replace(EFFICIENCY, threshold=0.02, resolution=0.06)


def sides(seed=0, *, slower=1.0, drift=0.0, noise=0.01, pairs=PAIRS, shorts=SHORT, metrics=(COPIED, ROUGH), **changes):
    """Candidate and base; drift: spread (of the logarithm) of what the two workers of a pair have in common."""
    rng = np.random.default_rng(seed)
    common = rng.normal(0, drift, pairs) if drift else np.zeros(pairs)
    both = []
    for side, factor in enumerate((slower, 1.0)):
        each = []
        for short in shorts:
            plain = measurement(
                short, seed=10 * seed + side, workers=pairs, metrics=metrics, noise=0.002, offset=noise, slower=factor
            )
            seconds = {
                arm: tuple(
                    tuple(value * (math.exp(common[pair]) if arm == "warm" else 1.0) for value in visits)
                    for pair, visits in enumerate(workers)
                )
                for arm, workers in plain.seconds.items()
            }
            each.append(replace(plain, seconds=seconds, **changes))
        both.append(each)
    return both


def scaled(workers, factor):
    return tuple(tuple(value * factor for value in visits) for visits in workers)


def rows_of(rows, metric="reuse efficiency"):
    return {each.scenario: each for each in rows if each.metric is not None and each.metric.name == metric}


def test_the_same_code_passes():
    rows = judge_paired(*sides(1, noise=0.003))
    assert {each.verdict for each in rows} == {Verdict.PASS}
    assert set(rows_of(rows)) == {*map(name, SHORT), "(all)"}
    assert exit_status(rows) is Exit.PASS


def test_what_a_pair_has_in_common_is_no_error():
    now, base = sides(2, drift=0.2, slower=1.08, noise=0.005)
    assert rows_of(judge_paired(now, base))["(all)"].verdict is Verdict.REGRESSED
    # The same samples with the pairs torn apart show nothing.
    assert rows_of(judge(now, base))["(all)"].verdict is not Verdict.REGRESSED
    shuffled = [replace(each, worker_names=tuple(map(str, range(PAIRS)[::-1]))) for each in base]
    assert rows_of(judge_paired(now, shuffled))["(all)"].verdict is not Verdict.REGRESSED


def test_the_interval_is_students_on_the_differences_of_the_pairs():
    now, base = sides(3, shorts=("p50",), noise=0.01)
    found = rows_of(judge_paired(now, base, policy=Policy(looks=1)))[name("p50")]
    from scipy import stats

    apart = values(ROUGH, base[0]).logs - values(ROUGH, now[0]).logs
    half = stats.t(PAIRS - 1).isf(0.001) * apart.std(ddof=1) / math.sqrt(PAIRS)
    assert math.log1p(found.change) == pytest.approx(apart.mean())
    assert math.log1p(found.low) == pytest.approx(apart.mean() - half)
    assert math.log1p(found.high) == pytest.approx(apart.mean() + half)


def test_names_pair_the_workers_and_not_their_places():
    now, base = sides(4, drift=0.2, shorts=("p50",))
    turned = [
        replace(each, worker_names=each.names[::-1], seconds={arm: by[::-1] for arm, by in each.seconds.items()})
        for each in base
    ]
    assert judge_paired(now, turned) == judge_paired(now, base)


def test_less_is_allowed_than_against_a_record():
    now, base = sides(5, noise=0.001, slower=1.015, pairs=16)
    assert rows_of(judge(now, base))[name("p50")].verdict is Verdict.PASS
    found = rows_of(judge_paired(now, base))[name("p50")]
    assert found.verdict is Verdict.REGRESSED
    assert found.threshold == pytest.approx(0.01, rel=0.02)


def test_a_metric_may_say_what_is_allowed_beside():
    now, base = sides(5, noise=0.001, slower=1.015, pairs=16, metrics=(COPIED, replace(ROUGH, paired_threshold=0.015)))
    found = rows_of(judge_paired(now, base))[name("p50")]
    assert found.verdict is Verdict.PASS
    assert found.threshold == pytest.approx(0.015)


def test_a_floor_allows_more_beside_too():
    metrics = (replace(WARM, absolute_threshold=0.001),)
    now, base = sides(6, slower=1.1, noise=0.001, metrics=metrics)
    assert rows_of(judge_paired(now, base), "warm ttft")[name("p50")].verdict is Verdict.PASS


@pytest.mark.parametrize(("now", "verdict"), [(4, Verdict.REGRESSED), (3, Verdict.PASS), (2, Verdict.IMPROVED)])
def test_counts_are_compared_by_equality(now, verdict):
    metric = Exact("count", "copies")
    ours, theirs = (measurement("a", metrics=[metric], exact={"count": value}) for value in (now, 3))
    (found,) = judge_paired([ours], [theirs])
    assert (found.verdict, found.now, found.reference) == (verdict, now, 3)
    assert "record" not in found.why


def test_a_base_that_cannot_be_measured_is_no_regression_and_no_pass():
    now, base = sides(7, slower=3.0, shorts=("p50",))
    (found,) = judge_paired(now, [replace(base[0], invalid="ModuleNotFoundError: no engine", seconds={}, exact={})])
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert not found.optional
    assert "the base cannot be measured: ModuleNotFoundError: no engine" in found.why
    assert exit_status([found]) is Exit.CANNOT_JUDGE


def test_a_candidate_that_cannot_be_measured_is_invalid_whatever_the_base():
    now, base = sides(8, shorts=("p50",))
    broken = replace(now[0], invalid="warm reused 0 of 8 tokens")
    for theirs in (base[0], replace(base[0], invalid="broken")):
        (found,) = judge_paired([broken], [theirs])
        assert found.verdict is Verdict.INVALID


def test_a_regression_elsewhere_outweighs_what_cannot_be_compared():
    now, base = sides(9, slower=1.5)
    rows = judge_paired(now, [replace(base[0], invalid="broken"), *base[1:]])
    assert exit_status(rows) is Exit.REGRESSED


def test_exact_only_judges_no_times():
    rows = judge_paired(*sides(10, slower=3.0), sampled=False)
    timed = rows_of(rows)
    assert {each.verdict for each in timed.values()} == {Verdict.NOT_COMPARABLE}
    assert all(each.optional for each in timed.values())
    assert exit_status(rows) is Exit.PASS


@pytest.mark.parametrize("pairs", [1, 2])
def test_too_few_pairs_are_never_a_verdict_and_more_can_mend_it(pairs):
    rows = judge_paired(*sides(11, slower=3.0, pairs=pairs))
    timed = [each for each in rows if isinstance(each.metric, Sampled)]
    assert {each.verdict for each in timed} == {Verdict.INCONCLUSIVE}
    assert all(f"{pairs} pairs of workers" in each.why for each in timed)
    assert undecided(rows) == set(map(name, SHORT))


def test_noise_is_inconclusive_and_asks_for_no_record():
    rows = judge_paired(*sides(12, noise=0.1))
    found = rows_of(rows)["(all)"]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "record" not in found.why
    assert undecided(rows) == set(map(name, SHORT))


def test_one_scenario_is_resolved_as_far_as_the_policy_reaches_and_their_mean_as_sharply_as_against_a_record():
    now, base = sides(14, noise=0.001)
    bounds = {}
    for reach in (1.0, 2.0, 3.0):
        policy = Policy(paired_resolution_factor=reach)
        pair = [
            compare_paired(ours.scenario, ROUGH, values(ROUGH, ours), values(ROUGH, theirs), policy)
            for ours, theirs in zip(now, base, strict=True)
        ]
        (pooled,) = pool(pair, policy)
        bounds[reach] = (pair[0].resolution - pair[0].threshold, pooled.resolution, pair[0].threshold)
    apart, pooled, threshold = bounds[1.0]
    assert threshold == pytest.approx(0.5 * math.log1p(0.02))
    assert apart == pytest.approx(math.log1p(0.06) - threshold)
    assert pooled == pytest.approx(0.75 * math.log1p(0.06))
    for reach in (2.0, 3.0):
        assert bounds[reach] == pytest.approx((reach * apart, pooled, threshold))


@pytest.mark.parametrize("slower", [1.06, 1.15])
def test_a_pass_rules_out_what_lies_beyond_the_resolution_only(slower):
    """6 % and 15 % in one scenario, with noise in which nothing is red: the resolution is 6 %, reached out to 11 %."""
    now, base = sides(16, noise=0.012, pairs=6, shorts=("p50",))
    slowed = [replace(each, seconds={**each.seconds, "warm": scaled(each.seconds["warm"], slower)}) for each in now]
    found = rows_of(judge_paired(slowed, base, policy=Policy(alpha=1e-9, paired_resolution_factor=2)))[name("p50")]
    assert found.verdict is (Verdict.PASS if slower < 1.1 else Verdict.INCONCLUSIVE)


def test_a_scenario_on_one_side_only_is_a_mistake():
    now, base = sides(13)
    with pytest.raises(ValueError, match="on one side only"):
        judge_paired(now, base[:-1])


def test_the_same_code_alarms_at_most_as_often_as_promised():
    # With an alarm promised in 1 of 20 runs, 60 in 400 would happen less than once in 10^12 suites.
    policy = Policy(alpha=0.05, looks=1)
    alarms = 0
    for seed in range(400):
        rows = judge_paired(*sides(100 + seed, drift=0.05, noise=0.01, shorts=SHORT[:2]), policy=policy)
        alarms += exit_status(rows) is Exit.REGRESSED
    assert alarms <= 60


def test_the_pooled_row_gets_its_share_of_the_alarms_that_are_promised():
    now, base = sides(14, noise=0.004, shorts=tuple(f"p{index}" for index in range(20)))
    found = rows_of(judge_paired(now, base, policy=Policy(looks=1)))
    from scipy import stats

    each = [values(ROUGH, theirs).logs - values(ROUGH, ours).logs for ours, theirs in zip(now, base, strict=True)]
    apart = np.mean(each, axis=0)
    # Nothing falls, so each row stands at its first level: the pooled one, one among 21, at four fifths of alpha.
    half = stats.t(PAIRS - 1).isf(0.001 * 0.8) * apart.std(ddof=1) / math.sqrt(PAIRS)
    pooled = found["(all)"]
    assert math.log1p(pooled.change) - math.log1p(pooled.low) == pytest.approx(half)


def test_the_pooled_rows_share_by_what_is_allowed_and_the_others_alike():
    loose = replace(ROUGH, threshold=0.06, resolution=0.2)
    side = values(ROUGH, sides(1)[0][0])

    def found(pooled, metrics, policy):
        rows = [
            compare_paired("(all)" if all_of_them else f"s{index}", metric, side, side, policy)
            for index, (all_of_them, metric) in enumerate(zip(pooled, metrics, strict=True))
        ]
        return shares(rows, policy)

    shared = found(
        [False, True, False, False, True], [loose, ROUGH, ROUGH, loose, loose], Policy(pooled_alpha_share=0.6)
    )
    assert shared == pytest.approx([0.4 / 3, 0.6 * 3 / 4, 0.4 / 3, 0.4 / 3, 0.6 / 4])
    assert found([True, True], [ROUGH, loose], Policy()) is None
    assert found([False, False], [ROUGH, loose], Policy()) is None
