from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from perf_gate.judging import estimate

TIMES = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=60)


@given(TIMES, st.randoms())
def test_location_depends_on_the_samples_and_not_on_their_order(times, random):
    shuffled = list(times)
    random.shuffle(shuffled)
    assert estimate.location(shuffled) == estimate.location(times)
    assert min(times) <= estimate.location(times) * (1 + 1e-12)
    assert estimate.location(times) <= max(times) * (1 + 1e-12)


def test_location_ignores_one_disturbed_visit_in_four_and_sees_one_in_three():
    quiet = [0.01] * 12
    assert estimate.location([*quiet[:9], 1.0, 1.0, 1.0]) == pytest.approx(0.01)
    assert estimate.location([*quiet[:8], 1.0, 1.0, 1.0, 1.0]) > 0.05
    assert estimate.location([*quiet[:11], 1e-9]) == pytest.approx(0.01)


def test_location_of_many_workers_at_once_is_that_of_each():
    times = np.random.default_rng(0).exponential(1.0, (3, 4, 15))
    assert estimate.location(times).shape == (3, 4)
    assert estimate.location(times)[2, 1] == estimate.location(times[2, 1])


def test_an_arm_that_was_never_visited_has_no_location():
    with pytest.raises(ValueError, match="never visited"):
        estimate.location([])


@given(st.lists(st.tuples(st.floats(1e-6, 10.0), st.floats(0.5, 2.0)), min_size=1, max_size=60), st.floats(0.1, 10.0))
def test_what_slows_a_whole_round_leaves_the_ratio_as_it_is(rounds, ratio):
    below = np.array([seconds for seconds, _ in rounds])
    weather = np.array([factor for _, factor in rounds])
    found = estimate.log_ratio(ratio * below * weather, below * weather)
    assert found == pytest.approx(np.log(ratio), abs=1e-9)
    assert estimate.log_ratio(below, ratio * below) == pytest.approx(-found, abs=1e-9)


def test_the_ratio_ignores_one_disturbed_round_in_four_and_sees_one_in_three():
    quiet = [0.01] * 12
    assert estimate.log_ratio([*quiet[:9], 1.0, 1.0, 1.0], quiet) == 0
    assert estimate.log_ratio(quiet, [1.0, 1.0, 1.0, *quiet[:9]]) == 0
    assert estimate.log_ratio([*quiet[:8], 1.0, 1.0, 1.0, 1.0], quiet) > 0.5


def test_an_arm_visited_less_often_stands_against_the_same_part_of_the_run():
    """The machine is twice as slow in the second half of the run, which 17 visits of one arm see and 3 of the other."""
    rare = np.array([5.0, 5.0, 10.0])
    often = np.where(np.arange(17) < 11, 1.0, 2.0)
    assert estimate.log_ratio(rare, often) == pytest.approx(np.log(5.0))
    assert estimate.log_ratio(often, rare) == pytest.approx(-np.log(5.0))


def test_ratios_of_many_workers_at_once_are_those_of_each():
    above, below = np.random.default_rng(0).exponential(1.0, (2, 3, 4, 15))
    found = estimate.log_ratio(above, below[..., :4])
    assert found.shape == (3, 4)
    assert found[2, 1] == estimate.log_ratio(above[2, 1], below[2, 1, :4])


@pytest.mark.parametrize("arms", [([], [1.0]), ([1.0], [])])
def test_an_arm_that_was_never_visited_has_no_ratio(arms):
    with pytest.raises(ValueError, match="never visited"):
        estimate.log_ratio(*arms)


@given(st.floats(1e-4, 1e4))
def test_inverse_trigamma_inverts(x):
    assert estimate.inverse_trigamma(special.polygamma(1, x)) == pytest.approx(x, rel=1e-6)


def test_spread_is_that_of_the_workers_in_any_order():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 9))
    described = estimate.spread(list(values))
    assert described.mean == pytest.approx(values.mean(axis=1))
    assert described.variance == pytest.approx(values.var(axis=1, ddof=1))
    assert list(described.count) == [9] * 3
    shuffled = estimate.spread(list(rng.permuted(values, axis=1)))
    assert (shuffled.mean == described.mean).all()
    assert (shuffled.variance == described.variance).all()


def test_one_worker_has_no_spread():
    with pytest.raises(ValueError, match="two workers"):
        estimate.spread([[1.0, 2.0], [1.0]])


def test_coupling_tells_shared_from_separate_disturbances():
    rng = np.random.default_rng(2)
    shared = rng.normal(size=(500, 1, 12)) + np.zeros((500, 6, 1))
    assert estimate.coupling(shared) == pytest.approx(1.0)
    separate = estimate.coupling(rng.normal(size=(500, 6, 12)))
    # E[r^2] = 1 / (n - 1) for independent normal values; 500 x 15 correlations pin the mean to about 0.002.
    assert separate.mean() == pytest.approx(1 / 11, abs=0.01)
    assert estimate.coupling(np.zeros((1, 12))) == 1.0


def test_moderation_recovers_the_prior_of_scaled_inverse_chi_squares():
    """Scenario variances s0^2 d0 / chi^2(d0): after moderation the total df of raised ones approaches d + d0."""
    rng = np.random.default_rng(3)
    prior_df, prior, workers, scenarios = 8.0, 4e-4, 10, 400
    variance = prior * prior_df / rng.chisquare(prior_df, (20, scenarios, 1))
    values = rng.normal(size=(20, scenarios, workers)) * np.sqrt(variance)
    plain = estimate.spread([values[:, index] for index in range(scenarios)])
    moderated = estimate.moderate(plain, 0.0)
    raised = moderated.variance > plain.variance
    borrowed = (moderated.df - plain.df)[raised]
    # 20 fits of d0 on 400 variances each: their mean scatters by about 0.25 around 8.
    assert borrowed.mean() == pytest.approx(prior_df, abs=1.5)
    weight = (moderated.variance - plain.variance)[raised] / (borrowed / (borrowed + 9))
    implied = weight + plain.variance[raised]
    assert implied.mean() == pytest.approx(prior, rel=0.1)


def test_moderation_only_ever_raises_a_variance():
    values = np.random.default_rng(4).normal(size=(200, 8, 6)) * np.linspace(0.5, 3, 8)[:, None]
    plain = estimate.spread([values[:, index] for index in range(8)])
    moderated = estimate.moderate(plain, estimate.coupling(values))
    assert (moderated.variance >= plain.variance).all()
    assert (moderated.variance > plain.variance).any()
    assert (moderated.df[moderated.variance == plain.variance] == 5).all()


def test_scenarios_that_are_disturbed_together_lend_each_other_nothing():
    """Ten copies of one scenario hold no more evidence on its spread than one."""
    one = np.random.default_rng(5).normal(size=(100, 1, 8))
    values = np.repeat(one, 10, axis=1)
    plain = estimate.spread([values[:, index] for index in range(10)])
    assert estimate.moderate(plain, estimate.coupling(values)).df == pytest.approx(plain.df)
    assert estimate.moderate(plain, 0.0).df.max() > 60


def test_two_scenarios_are_too_few_for_a_prior():
    plain = estimate.spread([[1.0, 2.0, 3.0], [1.0, 5.0, 9.0]])
    assert estimate.moderate(plain, 0.0) is plain


def test_contrast_is_welchs():
    rng = np.random.default_rng(6)
    now, reference = rng.normal(1.0, 1.0, 7), rng.normal(0.0, 3.0, 12)
    ours = estimate.contrast(estimate.spread([now]), estimate.spread([reference]))
    theirs = stats.ttest_ind(now, reference, equal_var=False)
    assert ours.change[0] / ours.error[0] == pytest.approx(theirs.statistic)
    assert ours.df[0] == pytest.approx(theirs.df)
    mirrored = estimate.contrast(estimate.spread([now]), estimate.spread([reference]), [-1.0])
    assert mirrored.change[0] == -ours.change[0]


@pytest.mark.parametrize("noisier", [1.0, 3.0])
@pytest.mark.parametrize("shared", [0.0, 0.6])
def test_a_one_sided_95_percent_end_covers_95_percent(noisier, shared):
    """Ten scenarios, 8 workers against 16; the reference side scatters `noisier` times as much.

    20 000 ends, in correlated tens: the standard error of the coverage is below 0.4 %, so the test alarms
    falsely with a probability below 1e-4 (4 standard errors).
    """
    rng = np.random.default_rng(7)

    def side(workers: int, scale: float) -> estimate.Spread:
        common = rng.normal(size=(2000, 1, workers))
        own = rng.normal(size=(2000, 10, workers))
        values = scale * (np.sqrt(shared) * common + np.sqrt(1 - shared) * own)
        plain = estimate.spread([values[:, index] for index in range(10)])
        return estimate.moderate(plain, estimate.coupling(values))

    contrast = estimate.contrast(side(8, 0.01), side(16, 0.01 * noisier))
    ceiling = contrast.change + stats.t.isf(0.05, contrast.df) * contrast.error
    coverage = (ceiling > 0).mean()
    assert 0.95 - 0.016 < coverage < 0.985, f"coverage {coverage:.4f}; a false alarm of this test has p < 1e-4"
