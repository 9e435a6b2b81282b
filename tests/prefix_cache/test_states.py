"""One model in several states: what one state has stored is found again when the model is back in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedModel

from prefix_cache import ModelChangedError, PrefixCache, UnsupportedModelError

PROMPT = 20


def lora(zoo, **options: object) -> peft.PeftModel:
    """Llama with the LoRA adapters A (active) and B, whose weights are not zero."""
    config = peft.LoraConfig(
        **({"r": 4, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False} | options)  # type: ignore[arg-type]
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = peft.get_peft_model(zoo.fresh("llama"), config, adapter_name="A")
        model.add_adapter("B", config)
    return model.eval()


def layers(model: torch.nn.Module) -> list[peft.tuners.lora.LoraLayer]:
    return [module for module in model.modules() if isinstance(module, peft.tuners.lora.LoraLayer)]


def scale(model: torch.nn.Module, factor: float) -> None:
    for layer in layers(model):
        layer.scale_layer(factor)


def unscale(model: torch.nn.Module, factor: float) -> None:
    for layer in layers(model):
        layer.unscale_layer(factor)


def is_right(cache: PrefixCache, prompt: list[int], cold: Callable[..., torch.Tensor], reused: int) -> None:
    result = cache.prefill(prompt)
    assert result.reused_tokens == reused
    assert (result.logits[0].float() - cold(cache.model, prompt)[-1].float()).abs().max() < 1e-4
    cache.check()


# LMCache #2961, llama.cpp #26207, vLLM #42125: several adapters, requests in turns.
def test_adapters_that_take_turns_keep_what_each_has_stored(zoo, tokens, cold) -> None:
    model = lora(zoo)
    cache = PrefixCache(model)
    prompt = tokens(1, PROMPT)
    logits = {}
    for reused in (0, PROMPT - 1, PROMPT - 1):
        for name in ("A", "B"):
            model.set_adapter(name)
            result = cache.prefill(prompt, adapter=name)
            assert result.reused_tokens == reused
            assert (result.logits[0] - cold(model, prompt)[-1]).abs().max() < 1e-4
            logits[name] = result.logits
    assert (logits["A"] - logits["B"]).abs().max() > 1e-2
    assert cache.counters().tokens_live == 2 * PROMPT


@contextlib.contextmanager
def switched(model: torch.nn.Module, there: Callable[[], object], back: Callable[[], object]) -> Iterator[None]:
    there()
    yield
    back()


EXCURSIONS: dict[str, Callable[[peft.PeftModel], contextlib.AbstractContextManager[object]]] = {
    "disabled": lambda model: model.disable_adapter(),
    "scaled": lambda model: switched(model, lambda: scale(model, 0.5), lambda: unscale(model, 0.5)),
    "another adapter": lambda model: switched(model, lambda: model.set_adapter("B"), lambda: model.set_adapter("A")),
    "another attention": lambda model: switched(
        model,
        lambda: model.get_base_model().set_attn_implementation("eager"),
        lambda: model.get_base_model().set_attn_implementation("sdpa"),
    ),
    "autocast": lambda _: torch.autocast("cpu", torch.bfloat16),
}


@pytest.mark.parametrize("excursion", EXCURSIONS)
def test_there_and_back(zoo, tokens, cold, excursion: str) -> None:
    model = lora(zoo)
    cache = PrefixCache(model)
    prompt = tokens(1, PROMPT)
    is_right(cache, prompt, cold, reused=0)
    for reused in (0, PROMPT - 1):
        with EXCURSIONS[excursion](model):
            result = cache.prefill(prompt)
            assert result.reused_tokens == reused
            difference = (result.logits[0].float() - cold(model, prompt)[-1].float()).abs().max()
            assert difference < (0.2 if excursion == "autocast" else 1e-4)
            cache.check()
        is_right(cache, prompt, cold, reused=PROMPT - 1)


@given(visits=st.lists(st.sampled_from(["A", "B", "disabled", "scaled", "changed"]), max_size=12))
def test_any_order_of_states(zoo, tokens, cold, visits: list[str]) -> None:
    model = lora(zoo)
    cache = PrefixCache(model)
    prompt = tokens(1, PROMPT)
    seen: set[str] = set()
    for visit in visits:
        model.set_adapter("B" if visit == "B" else "A")
        if visit == "changed":
            with torch.no_grad():
                model.get_base_model().lm_head.weight.mul_(1.01)
            seen.clear()
        there = EXCURSIONS[visit] if visit in EXCURSIONS else lambda _: contextlib.nullcontext()
        state = "A" if visit == "changed" else visit
        with there(model):
            is_right(cache, prompt, cold, reused=PROMPT - 1 if state in seen else 0)
        seen.add(state)
        assert cache.counters().tokens_live == PROMPT * len(seen), "states that cannot come back are freed"


WEIGHTS: dict[str, Callable[[peft.PeftModel], object]] = {
    "merged and unmerged": lambda model: (model.merge_adapter(), model.unmerge_adapter()),
    "cast and back": lambda model: (model.bfloat16(), model.float()),
    "reloaded in place": lambda model: model.load_state_dict(
        {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ),
    "adapter reloaded": lambda model: peft.set_peft_model_state_dict(
        model, {k: v.clone() for k, v in peft.get_peft_model_state_dict(model, adapter_name="A").items()}, "A"
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", WEIGHTS)
def test_weights_that_were_written_to_are_a_miss(zoo, tokens, cold, change: str) -> None:
    model = lora(zoo)
    cache = PrefixCache(model)
    prompt = tokens(1, PROMPT)
    cache.prefill(prompt)
    model.set_adapter("B")
    cache.prefill(prompt)
    model.set_adapter("A")
    WEIGHTS[change](model)
    is_right(cache, prompt, cold, reused=0)
    assert cache.counters().tokens_live == PROMPT, "what both adapters had stored is freed"


def test_merged_is_a_state_of_its_own(zoo, tokens, cold) -> None:
    model = lora(zoo)
    cache = PrefixCache(model)
    prompt = tokens(1, PROMPT)
    cache.prefill(prompt)
    model.merge_adapter()
    is_right(cache, prompt, cold, reused=0)
    is_right(cache, prompt, cold, reused=PROMPT - 1)


def test_two_caches_over_one_model(zoo, tokens) -> None:
    model = lora(zoo)
    prompt = tokens(1, PROMPT)
    caches = [PrefixCache(model), PrefixCache(model)]
    for reused in (0, PROMPT - 1):
        for cache, name in zip(caches, ("A", "B"), strict=True):
            model.set_adapter(name)
            assert cache.prefill(prompt).reused_tokens == reused


def test_a_switch_during_a_hit_stores_nothing(zoo, tokens) -> None:
    model = lora(zoo)
    cache = PrefixCache(model)
    with cache.lookup(tokens(1, PROMPT)) as hit:
        model.set_adapter("B")
        cache.run(hit.suffix, hit.kv)
        with pytest.raises(ModelChangedError, match="adapters"):
            hit.store()
    assert cache.counters().tokens_live == 0


@pytest.mark.parametrize("made_inside", [False, True])
def test_autocast_is_served_in_both_modes(llama: PreTrainedModel, tokens, made_inside: bool) -> None:
    prompt = tokens(1, PROMPT)
    autocast = torch.autocast("cpu", torch.bfloat16)
    with autocast if made_inside else contextlib.nullcontext():
        cache = PrefixCache(llama)
    plain = 2 * 2 * 4 * 8 * 4
    cast = plain * 3 // 4  # only the values: rotary embeddings are computed in float32, and so are the keys
    for reused in (0, PROMPT - 1):
        assert cache.prefill(prompt).reused_tokens == reused
        assert cache.nbytes_per_token == plain
        with autocast:
            assert cache.prefill(prompt).reused_tokens == reused
            assert cache.nbytes_per_token == cast
        cache.check()
    assert cache.counters().stored_bytes_live == PROMPT * (plain + cast)
    with torch.autocast("cpu", torch.float16):
        assert cache.prefill(prompt).reused_tokens == 0


# ---- what is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    "virtual tokens": peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "PrefixTuningConfig": peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "aLoRA": peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], alora_invocation_tokens=[5, 6]),
}


@pytest.mark.parametrize("said", REFUSED)
def test_adapters_whose_kv_is_not_that_of_the_tokens_are_refused(zoo, said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"adapter 'default'.*{said}"):
        PrefixCache(peft.get_peft_model(zoo.fresh("llama"), REFUSED[said]).eval())


def test_an_adapter_injected_into_a_model_that_is_no_peft_model(zoo, tokens, cold) -> None:
    model = zoo.fresh("llama")
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    peft.inject_adapter_in_model(config, model, adapter_name="A")
    model.eval()
    cache = PrefixCache(model)
    prompt = tokens(1, PROMPT)
    for reused in (0, PROMPT - 1):
        for enabled in (True, False):
            for layer in layers(model):
                layer.enable_adapters(enabled)
            is_right(cache, prompt, cold, reused)


def test_dynamic_quantisation_is_refused_for_what_it_does(zoo) -> None:
    model = torch.ao.quantization.quantize_dynamic(zoo.fresh("llama"), {torch.nn.Linear}, dtype=torch.qint8)
    with pytest.raises(UnsupportedModelError, match=r"quantised dynamically.*scales its input"):
        PrefixCache(model)


def test_generate_refuses_adapters_of_its_own(zoo, tokens) -> None:
    cache = PrefixCache(lora(zoo))
    with pytest.raises(ValueError, match=r"adapter_names.*set_adapter"):
        cache.generate(tokens(1, PROMPT), max_new_tokens=2, adapter_names=["B"])


# ---- counters --------------------------------------------------------------------------------------------------------


def test_tokens_count_as_reused_when_the_model_has_run_over_them(llama: PreTrainedModel, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, PROMPT)
    cache.prefill(prompt)
    with contextlib.suppress(KeyError), cache.lookup(prompt):
        raise KeyError
    assert cache.counters().reused_tokens == 0
    assert cache.counters().matched_tokens == PROMPT
    with contextlib.suppress(KeyError), cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        raise KeyError
    assert cache.counters().reused_tokens == PROMPT - 1
    with cache.lookup(prompt) as hit:
        llama(torch.tensor([tokens(2, 400)]), cache=hit.kv)  # outgrows its buffer
    assert cache.counters().reused_tokens == 2 * (PROMPT - 1)
