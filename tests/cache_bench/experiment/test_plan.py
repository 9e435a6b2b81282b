"""What is asked, and in which order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.options import Options
from cache_bench.experiment.plan import Part, plan
from cache_bench.experiment.script import Script

DEFAULT = Options("tiny-rope")


def test_the_default_is_what_is_promised() -> None:
    prompts = [step for step in plan(DEFAULT) if step.part is Part.PROMPT]
    assert len(prompts) == 100
    assert Counter(step.prefix for step in prompts) == dict.fromkeys((50, 100, 200, 350, 500), 20)
    for prefix in DEFAULT.prefixes:
        suffixes = sorted(step.suffix for step in prompts if step.prefix == prefix)
        assert (suffixes[0], suffixes[-1]) == (20, 50)
        assert len(set(suffixes)) == 20
    assert max(step.reads[-1] for step in plan(DEFAULT)) == 200


@given(
    prompts=st.integers(18, 60),
    seed=st.integers(0, 1000),
    sharing=st.integers(2, 9),
    series=st.integers(1, 3),
)
def test_every_plan_is_whole_and_repeatable(prompts: int, seed: int, sharing: int, series: int) -> None:
    options = Options("tiny-rope", prompts=prompts, prefixes=(5, 7, 9), seed=seed, sharing=sharing, series=series)
    steps = plan(options)
    assert steps == plan(options)
    assert len({step.key for step in steps}) == len(steps)
    of = {part: [step for step in steps if step.part is part] for part in Part}
    assert len(of[Part.PROMPT]) == prompts
    assert all(sorted(step.arms) == ["cold", "floor", "warm"] for step in of[Part.PROMPT])
    assert Counter(step.prefix for step in of[Part.SHARE]) == dict.fromkeys(options.shares, options.share_repeats)
    assert {step.prefix + step.suffix for step in of[Part.SHARE]} == {options.share_tokens}
    assert [step.turn for step in of[Part.SHARING]] == list(range(1, sharing + 1)) * series
    assert all(step.stored == (0 if step.turn == 1 else step.prefix) for step in of[Part.SHARING])
    assert all(step.weight > 0 for step in steps)


def test_the_arms_take_turns_in_being_first() -> None:
    first = Counter(step.arms[0] for step in plan(DEFAULT) if step.part is Part.PROMPT)
    assert min(first[arm] for arm in ("cold", "warm", "floor")) > 20


def test_another_seed_asks_in_another_order() -> None:
    assert plan(DEFAULT) != plan(replace(DEFAULT, seed=1))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"prefixes": (50, 20)}, "--prefixes 50 20: give increasing lengths"),
        ({"prefixes": ()}, "give increasing lengths"),
        ({"prefixes": (0, 5)}, "--prefixes 0 5: nothing is shared; give 1 token or more"),
        ({"prompts": 29}, "--prompts 29 over 5 prefix lengths: that is 5 each, .* interval takes 6; give at least 30"),
        ({"suffixes": (30, 20)}, "--suffixes 30 20: give 1 <= low"),
        ({"shares": (4, 8)}, "--shares 4 8 of --share-tokens 256: begin with 0"),
        ({"shares": (0, 256)}, "end below the whole prompt"),
        ({"share_repeats": 5}, "--share-repeats 5: give at least 6"),
        ({"output_tokens": 1}, "--output-tokens 1: give at least 2"),
        ({"threads": 0}, "--threads 0: give at least 1"),
    ],
)
def test_what_makes_no_experiment_is_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        replace(DEFAULT, **wrong)  # type: ignore[arg-type]


def test_prompts_share_their_prefix_and_not_one_token_more(options: Options) -> None:
    steps = plan(options)
    script = Script(options, steps)
    prompts = [script.prompt(step) for step in steps]
    longest = max(steps, key=lambda step: step.prefix)
    text = script.prompt(longest)[: longest.prefix]
    for index, (step, prompt) in enumerate(zip(steps, prompts, strict=True)):
        assert len(prompt) == step.prefix + step.suffix
        assert (prompt[: step.prefix] == text[: step.prefix]).all()
        assert prompt[step.prefix] not in text
        others = [*prompts[:index], *prompts[index + 1 :], script.heating(step.prefix, 4)]
        for other in others:
            length = min(len(prompt), len(other))
            differ = np.flatnonzero(prompt[:length] != other[:length])
            assert len(differ)
            assert differ[0] <= step.prefix
