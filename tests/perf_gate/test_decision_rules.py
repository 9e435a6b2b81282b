from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from perf_gate.calibration.decision_rules import (
    RULES,
    DecisionRule,
    MannWhitney,
    PercentRule,
    Samples,
    StudentT,
    WelchInterval,
    evaluate_rules,
)
from perf_gate.calibration.disturbance import Drift, OddProcess
from perf_gate.calibration.pool import CalibrationError, gather
from perf_gate.calibration.split import Split
from tests.perf_gate.samples import EFFICIENCY, measurement

RUNS, WORKERS, VISITS = 40, 6, 9


def sides(seed=1, scatter=0.03):
    rng = np.random.default_rng(seed)

    def one(visits):
        level = 0.007 * np.exp(rng.normal(0, scatter, (RUNS, WORKERS, 1)))
        return level * np.exp(rng.normal(0, 0.05, (RUNS, WORKERS, visits)))

    return tuple(Samples.of([one(VISITS), one(2 * VISITS)]) for _ in range(2))


def by_hand(rule, then, now, factor):
    """The rule, one row at a time: (alarms, undecided)."""
    found = np.zeros((2, RUNS, 2), dtype=bool)
    for run in range(RUNS):
        for scenario in range(2):
            found[:, run, scenario] = rule(then.seconds[scenario][run], factor * now.seconds[scenario][run])
    return found


def mann_whitney(then, now):
    p = stats.mannwhitneyu(now.ravel(), then.ravel(), alternative="two-sided", method="asymptotic").pvalue
    return p < 0.002 and np.median(now) > 1.1 * np.median(then), False


def student(then, now):
    return stats.ttest_ind(now.ravel(), then.ravel()).pvalue < 0.05 and now.mean() > then.mean(), False


def welch(unit):
    def rule(then, now):
        ours, theirs = np.log(now), np.log(then)
        if unit == "processes":
            ours, theirs = np.median(ours, axis=-1), np.median(theirs, axis=-1)
        tested = stats.ttest_ind(ours.ravel(), theirs.ravel(), equal_var=False).confidence_interval(0.95)
        alarm = tested.low > np.log(1.01)
        return alarm, not alarm and tested.high >= np.log(1.03)

    return rule


def threshold(figure, limit):
    return lambda then, now: (figure(now) > (1 + limit) * figure(then), False)


@pytest.mark.parametrize("factor", [1.0, 1.02, 1.12])
@pytest.mark.parametrize(
    ("decision_rule", "rule"),
    [
        (PercentRule("mean", 0.05, None), threshold(np.mean, 0.05)),
        (PercentRule("median", 0.10, None), threshold(np.median, 0.10)),
        (PercentRule("min", 0.05, None), threshold(np.min, 0.05)),
        (MannWhitney(None), mann_whitney),
        (StudentT(None), student),
        (WelchInterval("visits", None), welch("visits")),
        (WelchInterval("processes", None), welch("processes")),
    ],
    ids=lambda value: str(value) if isinstance(value, DecisionRule) else "rule",
)
def test_a_rule_for_many_runs_is_the_rule_for_one(decision_rule, rule, factor):
    then, now = sides()
    alarms, undecided = decision_rule.judge(then, now, factor)
    wanted = by_hand(rule, then, now, factor)
    assert np.array_equal(alarms, wanted[0])
    assert np.array_equal(undecided, wanted[1])
    assert factor < 1.1 or wanted[0].any()


def test_few_samples_are_ranked_exactly_as_asv_does():
    """Five against five: the exact p of a clean separation is 2 / 252 = 0.008, so that asv cannot alarm."""
    slow, fast = np.full((1, 1, 5), 2.0) + np.arange(5) / 100, np.ones((1, 1, 5)) + np.arange(5) / 100
    alarms, _ = MannWhitney(None).judge(Samples.of([fast]), Samples.of([slow]), 1.0)
    assert not alarms.any()
    seven = (np.concatenate([side, side[..., :2] + 0.001], axis=-1) for side in (fast, slow))
    alarms, _ = MannWhitney(None).judge(*map(Samples.of, ([side] for side in seven)), 1.0)
    assert alarms.all()


class First(DecisionRule):
    """Alarms in the first scenario always, in the others where they are slowed down."""

    name = "first"

    def judge(self, then, now, factor):
        alarms = np.full(then.mean.shape, factor > 1.0)
        alarms[:, 0] = self.processes is None
        assert then.seconds[0].shape[1] == (self.processes or 8)
        return alarms, ~alarms


def pool():
    return gather(
        {"r": [measurement(short, workers=16, metrics=[EFFICIENCY], visits=5) for short in ("a", "b", "c", "d")]}
    )


def test_what_is_counted():
    loud, deaf = First(None), First(1)
    found = evaluate_rules(pool(), Split(8, (4, 8)), [0, 1, 2, 3], [0.1], arm="warm", runs=200, rules=[loud, deaf])
    assert found[loud].alarms.share == found[loud].one[0.1].share == 1
    assert found[loud].per_row.share == 0.25
    assert found[loud].per_row.n == 800
    assert found[loud].unjudged.hits == 0
    assert found[deaf].alarms.hits == 0
    assert found[deaf].unjudged.share == 1
    assert found[deaf].one[0.1].share == 0.75
    assert found[deaf].everywhere[0.1].share == 1


def test_all_rules_compete_and_the_seed_decides():
    def once(seed):
        return evaluate_rules(pool(), Split(8, (8,)), [0, 2], [0.05, 0.5], arm="warm", runs=150, seed=seed)

    first = once(1)
    assert list(first) == list(RULES)
    assert {str(decision_rule): rates for decision_rule, rates in first.items()} == {
        str(decision_rule): rates for decision_rule, rates in once(1).items()
    }
    assert list(first.values()) != list(once(2).values())
    for rates in first.values():
        assert rates.one[0.5].share == 1
    assert len({str(decision_rule) for decision_rule in RULES}) == len(RULES)


def test_one_visit_has_no_spread():
    few = gather({"r": [measurement("a", workers=16, metrics=[EFFICIENCY], visits=1)]})
    with pytest.raises(CalibrationError, match="only once"):
        evaluate_rules(few, Split(8, (8,)), [0], [0.1], arm="warm", runs=10)


class Ratio(DecisionRule):
    """Notes by how much each scenario's mean went up, and never alarms before 10 %."""

    name = "ratio"

    def __init__(self, processes):
        super().__init__(processes)
        self.seen = []

    def judge(self, then, now, factor):
        self.seen.append(now.mean / then.mean)
        return self.seen[-1] > 1.1, np.zeros(then.mean.shape, dtype=bool)


def test_troubles_are_put_onto_what_a_rule_sees():
    still = gather(
        {"r": [measurement(s, workers=16, metrics=[EFFICIENCY], visits=8, noise=1e-9, offset=1e-9) for s in "ab"]}
    )
    rule = Ratio(None)
    found = evaluate_rules(
        still, Split(8, (8,)), [0, 1], [], arm="warm", runs=50, rules=[rule], disturbances=[Drift(), OddProcess()]
    )
    calm, drifting, odd = rule.seen
    assert np.allclose(calm, 1)
    assert np.allclose(drifting, 1.15)  # half of the 30 % on average
    assert np.allclose(odd[:, 0], odd[:, 1])
    assert 0.001 < odd[:, 0].std() < 0.05
    assert [rate.hits for rate in found[rule].disturbances.values()] == [50, 0]
    assert found[rule].alarms.hits == 0
