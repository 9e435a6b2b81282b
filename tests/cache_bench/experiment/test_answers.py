"""Answers from readings whose truth is known."""

from __future__ import annotations

from math import comb
from pathlib import Path

import numpy as np
import pytest

from cache_bench.experiment.answers import Answers, answer
from cache_bench.experiment.count import Count
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.plan import Part
from cache_bench.experiment.reading import Reading
from cache_bench.experiment.results import Results
from cache_bench.experiment.spread import LEAST, Spread, Values, median, resampled

STORING = 0.004  # s, lost by a request that finds nothing
PER_TOKEN, PASS = 0.001, 0.01  # s
CALM = {"cold": 1.0, "warm": 1.0, "floor": 0.98}


def reading(part: Part, number: int, arm: str, prefix: int, suffix: int, *, turn: int = 0, tokens: int = 1,
            slower: float = 1.0) -> Reading:  # fmt: skip
    stored = 0 if turn == 1 else prefix
    computed = prefix + suffix if arm == "cold" else prefix + suffix - stored
    ttft = CALM[arm] * slower * (PASS + PER_TOKEN * computed)
    latency = ttft + (tokens - 1) * 0.05
    return Reading(
        model="synthetic",
        part=part.value,
        number=number,
        turn=turn,
        prefix_tokens=prefix,
        suffix_tokens=suffix,
        arm=arm,
        position=0,
        output_tokens=tokens,
        ttft_s=ttft,
        tpot_s=0.05 if tokens > 1 else None,
        latency_s=latency,
        total_s=latency + (STORING if arm == "warm" else 0.0),
        reused_tokens=None,
        stored_bytes=None,
        copied_bytes=0 if arm == "warm" else None,
    )


def synthetic(noise: float = 0.0) -> Results:
    random = np.random.default_rng(0)
    results = Results(Path("nowhere"), "synthetic")
    results.counts = [
        Count(prefix, 10, 100 * prefix, 100 * prefix, 100 * prefix, prefix + 10, 10) for prefix in (50, 100)
    ]
    for number in range(40):
        slower = 1 + noise * random.standard_normal()  # a slow moment hits all arms of a prompt
        results.readings += [
            reading(
                Part.PROMPT, number, arm, (50, 100)[number % 2], 10, tokens=1 if arm == "floor" else 5, slower=slower
            )
            for arm in CALM
        ]
    for number in range(30):
        share = (0, 10, 20, 40, 80)[number % 5]
        results.readings += [reading(Part.SHARE, number, arm, share, 100 - share) for arm in ("cold", "warm")]
    for number in range(10):
        results.readings += [
            reading(Part.SHARING, number, arm, 50, 10, turn=number % 5 + 1) for arm in ("cold", "warm")
        ]
    for tokens in (1, 10, 100):
        results.readings += [reading(Part.OUTPUT, 0, arm, 50, 10, tokens=tokens) for arm in ("cold", "warm")]
    return results


@pytest.fixture(scope="module")
def found() -> Answers:
    return answer(synthetic())


def test_ratios_are_those_of_the_synthetic_results(found: Answers) -> None:
    short, long = found.prefixes
    assert (short.prompts, long.prompts) == (20, 20)
    assert short.speedup.value == pytest.approx(0.07 / 0.02)
    assert long.speedup.value == pytest.approx(0.12 / 0.02)
    assert long.attainable.value == pytest.approx(0.12 / 0.02 / 0.98)
    assert long.efficiency.value == pytest.approx(0.98)
    assert long.saved.value == pytest.approx(1 - 0.02 / 0.12)
    assert long.theoretical == 11
    assert long.tpot.value == 1
    assert long.formula_bytes == 10_000


def test_a_slow_moment_moves_no_ratio() -> None:
    noisy = answer(synthetic(noise=0.2))
    assert noisy.prefixes[0].speedup.value == pytest.approx(0.07 / 0.02)
    assert noisy.prefixes[0].cold_s != pytest.approx(0.07, rel=1e-3)


def test_it_breaks_even_where_the_saving_equals_what_storing_costs(found: Answers) -> None:
    even = found.break_even
    assert even.prompt_tokens == 100
    assert even.storing_s.value == pytest.approx(STORING)
    assert even.share.value == pytest.approx(STORING / (100 * PER_TOKEN))
    assert [point.shared_tokens for point in even.points] == [0, 10, 20, 40, 80]
    assert even.points[2].saved_s.value == pytest.approx(20 * PER_TOKEN - STORING)
    assert even.repeats == (1, 1)


def test_a_costly_store_takes_several_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.STORING", 0.12)
    even = answer(synthetic()).break_even
    assert even.repeats == (3, 2)  # 0.12 s over 0.05 s and 0.1 s that a hit saves
    assert even.share.value == 1


def test_a_hit_that_gains_nothing_never_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALM, "warm", 10.0)
    assert answer(synthetic()).break_even.repeats == (None, None)


def test_the_gain_grows_with_the_requests_that_share(found: Answers) -> None:
    cold, miss, hit = 0.07, 0.07 + STORING, 0.02 + STORING
    assert [point.requests for point in found.sharing] == [1, 2, 3, 4, 5]
    for point in found.sharing:
        assert point.gain == pytest.approx(point.requests * cold / (miss + (point.requests - 1) * hit))


def test_the_longer_the_answer_the_less_is_saved(found: Answers) -> None:
    assert [point.output_tokens for point in found.outputs] == [1, 10, 100]
    assert found.outputs[0].saved == pytest.approx(0.05 / 0.07)
    assert found.outputs[2].saved == pytest.approx(0.05 / (0.07 + 99 * 0.05))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part.PROMPT, r"5 prompts of 100 shared tokens \(prompt\), .* takes 6; measure anew with more --prompts"),
        (Part.SHARE, r"5 prompts of 80 shared tokens \(share\), .* with more --share-repeats"),
    ],
)
def test_too_few_prompts_for_an_interval_are_refused(part: Part, words: str) -> None:
    results = synthetic()
    longest = max(each.prefix_tokens for each in results.of(part))
    of_longest = {each.number for each in results.of(part) if each.prefix_tokens == longest}
    left_out = sorted(of_longest)[5:]
    results.readings = [each for each in results.readings if each.part != part or each.number not in left_out]
    with pytest.raises(ExperimentError, match=words):
        answer(results)


def test_the_interval_of_a_median_is_the_shortest_that_keeps_its_promise() -> None:
    def enclosed(n: int, k: int) -> int:
        """In how many of 2^n equally likely cases k to n - k of n values lie below their true median."""
        return sum(comb(n, below) for below in range(k, n - k + 1))

    for n in range(LEAST, 101):
        found = median([float(value) for value in reversed(range(n))])
        k = round(found.low) + 1
        assert found == Spread((n - 1) / 2, k - 1, n - k)
        assert 100 * enclosed(n, k) >= 95 * 2**n > 100 * enclosed(n, k + 1)


# From tables of the binomial distribution with one half.
@pytest.mark.parametrize(("n", "ranks"), [(6, (1, 6)), (10, (2, 9)), (20, (6, 15)), (50, (18, 33)), (100, (40, 61))])
def test_the_interval_of_a_median_ends_where_tables_say(n: int, ranks: tuple[int, int]) -> None:
    found = median([float(value) for value in range(1, n + 1)])
    assert (found.low, found.high) == ranks


@pytest.mark.parametrize("n", [6, 20])
def test_the_interval_of_a_median_holds_the_truth_as_often_as_it_says(n: int) -> None:
    spreads = [median(values.tolist()) for values in np.random.default_rng(2).lognormal(0, 1, (4000, n))]
    assert sum(spread.low <= 1 <= spread.high for spread in spreads) >= 0.95 * len(spreads)


def test_too_few_values_have_no_interval_of_a_median() -> None:
    assert 2 ** (1 - LEAST) < 0.05 <= 2 ** (2 - LEAST)
    with pytest.raises(ValueError, match="takes 6 values; there are 5"):
        median([1.0] * (LEAST - 1))


def test_other_intervals_are_the_same_every_time_and_hold_the_value() -> None:
    values = np.random.default_rng(1).lognormal(0, 0.3, 30)

    def mean(chosen: Values) -> float:
        return float(np.mean(chosen))

    found = resampled(mean, values)
    assert found == resampled(mean, values)
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.std(values) / np.sqrt(30), rel=0.1)
    with pytest.raises(ValueError, match="nothing to take a figure of"):
        resampled(mean, values[:0])
