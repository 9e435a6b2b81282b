"""Faults of the key: stale weights, adapters, tenants. Each comment names where it was seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from prefix_cache import LayoutError, ModelChangedError, PrefixCache
from prefix_cache.fingerprint import ModelFingerprint


def in_place(model: PreTrainedModel) -> None:
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 4] += 1.0


def through_data(model: PreTrainedModel) -> None:
    model.model.layers[0].self_attn.k_proj.weight.data.mul_(1.5)


def through_numpy(model: PreTrainedModel) -> None:
    model.model.layers[0].self_attn.v_proj.weight.detach().numpy()[:] += 1.0


def data_replaced(model: PreTrainedModel) -> None:
    weight = model.model.layers[0].self_attn.q_proj.weight
    weight.data = weight.data * 2


def data_transposed(model: PreTrainedModel) -> None:
    weight = model.model.layers[0].self_attn.q_proj.weight
    weight.data = weight.data.t().contiguous().t()


def state_loaded(model: PreTrainedModel) -> None:
    state = {name: tensor * 1.25 for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)


def state_assigned(model: PreTrainedModel) -> None:
    model.load_state_dict({name: tensor * 1.25 for name, tensor in model.state_dict().items()}, assign=True)


def optimiser_step(model: PreTrainedModel) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.tensor([[1, 2, 3]])).logits.logsumexp(-1).sum().backward()
    optimiser.step()
    model.zero_grad()


def module_swapped(model: PreTrainedModel) -> None:
    old = model.model.layers[0].mlp.up_proj
    model.model.layers[0].mlp.up_proj = torch.nn.Linear(old.in_features, old.out_features, bias=False)


def layers_exchanged(model: PreTrainedModel) -> None:
    layers = model.model.layers
    layers[0].mlp, layers[1].mlp = layers[1].mlp, layers[0].mlp


def parameter_swapped(model: PreTrainedModel) -> None:
    norm = model.model.layers[0].input_layernorm
    norm.weight = torch.nn.Parameter(norm.weight.detach() * 2)


def parameter_added(model: PreTrainedModel) -> None:
    model.model.layers[0].self_attn.q_proj.bias = torch.nn.Parameter(torch.ones(32))


def parameter_removed(model: PreTrainedModel) -> None:
    model.model.layers[0].self_attn.o_proj.register_parameter("bias", None)
    model.model.layers[0].input_layernorm.register_buffer("note", torch.ones(1))
    del model.model.layers[0].input_layernorm.note
    model.model.layers[0].mlp.act_fn = torch.nn.Identity()


def buffer_changed(model: PreTrainedModel) -> None:
    model.model.rotary_emb.inv_freq.mul_(0.5)


def parametrised(model: PreTrainedModel) -> None:
    torch.nn.utils.parametrizations.weight_norm(model.model.layers[0].mlp.down_proj)


CHANGES: list[Callable[[PreTrainedModel], None]] = [
    in_place,
    through_data,
    through_numpy,
    data_replaced,
    data_transposed,
    state_loaded,
    state_assigned,
    optimiser_step,
    module_swapped,
    layers_exchanged,
    parameter_swapped,
    parameter_added,
    parameter_removed,
    buffer_changed,
    parametrised,
]


# vLLM #9744, lmdeploy #4917: stale KV after the weights changed.
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_weights_are_a_miss(zoo, tokens, cold, change: Callable[[PreTrainedModel], None]) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    prompt = tokens(1, 20)
    cache.prefill(prompt)
    assert cache.prefill(prompt).reused_tokens == 19
    change(model)
    result = cache.prefill(prompt)
    assert result.reused_tokens == 0
    assert (result.logits[0] - cold(model, prompt)[-1]).abs().max() < 1e-4
    assert cache.counters().evicted_tokens == 20, "stale KV can never be reached again, and must not be kept"
    assert cache.counters().tokens_live == 20
    assert cache.prefill(prompt).reused_tokens == 19
    cache.check()


def test_through_data_of_a_transposed_weight(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    data_transposed(model)
    cache = PrefixCache(model)
    cache.prefill(tokens(1, 20))
    model.model.layers[0].self_attn.q_proj.weight.data.mul_(1.5)
    assert cache.prefill(tokens(1, 20)).reused_tokens == 0


def test_weights_made_in_inference_mode(zoo, tokens) -> None:
    # They have no version counter; every element is watched.
    with torch.inference_mode():
        model = zoo.fresh("llama")
    cache = PrefixCache(model)
    prompt = tokens(1, 20)
    cache.prefill(prompt)
    assert cache.prefill(prompt).reused_tokens == 19
    with torch.inference_mode():
        model.model.layers[1].mlp.up_proj.weight[3, 4] += 1.0
    assert cache.prefill(prompt).reused_tokens == 0


@pytest.mark.parametrize("change", [in_place, through_data, module_swapped, state_loaded], ids=lambda c: c.__name__)
def test_changed_during_a_hit(zoo, tokens, pins, change: Callable[[PreTrainedModel], None]) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    prompt = tokens(1, 20)
    cache.prefill(prompt[:10])
    with cache.lookup(prompt) as hit:
        assert hit.length == 10
        change(model)
        cache.run(hit.suffix, hit.kv)
        # Refused at once; or stored under the old name, which the next lookup drops.
        with contextlib.suppress(ModelChangedError):
            hit.store()
    with cache.lookup(prompt) as hit:
        assert hit.matched == 0, "KV of two different models was mixed"
        assert cache.counters().tokens_live == 0
    assert pins(cache) == 0
    cache.check()


def test_in_place_change_during_a_hit_is_an_error_at_once(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    with cache.lookup(tokens(1, 20)) as hit:
        cache.run(hit.suffix, hit.kv)
        in_place(model)
        with pytest.raises(ModelChangedError, match="nothing was stored"):
            hit.store()
    assert cache.counters().tokens_live == 0


def test_training_during_a_hit(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    with cache.lookup(tokens(1, 20)) as hit:
        model.train()
        cache.run(hit.suffix, hit.kv)
        with pytest.raises(ModelChangedError):
            hit.store()
    assert cache.counters().tokens_live == 0


def test_kv_pinned_through_a_change_goes_with_its_hit(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)  # without a budget nothing else would ever evict it
    cache.prefill(tokens(1, 20))
    with cache.lookup(tokens(1, 20)):
        in_place(model)
        cache.prefill(tokens(2, 5))
        assert cache.counters().tokens_live == 25
        cache.check()
    assert cache.counters().tokens_live == 5
    cache.check()


def test_changed_back_is_a_miss_all_the_same(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    cache.prefill(tokens(1, 20))
    with torch.no_grad():
        model.lm_head.weight.add_(1)
        assert cache.prefill(tokens(1, 20)).reused_tokens == 0
        model.lm_head.weight.sub_(1)
    assert cache.prefill(tokens(1, 20)).reused_tokens == 0


def test_nothing_changed_is_a_hit(zoo, tokens) -> None:
    # The fingerprint must not cry wolf: reading, running, training mode and back, and gradients change nothing.
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    prompt = tokens(1, 20)
    cache.prefill(prompt)
    model(torch.tensor([prompt])).logits.sum().backward()
    model.zero_grad()
    model.state_dict()
    model.train()
    model.eval()
    model.requires_grad_(False)
    str(model)
    assert cache.prefill(prompt).reused_tokens == 19


# transformers #30593, #33147: cached tensors of another dtype than the model.
def test_a_cast_model_is_a_miss(zoo, tokens, cold) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    prompt = tokens(1, 20)
    for cast in (torch.bfloat16, torch.float32, torch.float64, torch.float16):
        cache.prefill(prompt)
        assert cache.prefill(prompt).reused_tokens == 19
        model.to(cast)
        result = cache.prefill(prompt)
        assert result.reused_tokens == 0
        assert result.logits.dtype == cast
        stored = {slab.dtype for node in cache._tree.nodes() for slab in node.stored().slabs}
        assert stored == {cast}
        assert cache.counters().stored_bytes_live == 20 * 2 * 2 * 4 * 8 * cast.itemsize
        cache.check()


def test_cast_during_a_hit(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    cache.prefill(tokens(1, 10))
    with cache.lookup(tokens(1, 20)) as hit:
        model.bfloat16()
        with pytest.raises(LayoutError, match="bfloat16"):
            cache.run(hit.suffix, hit.kv)
    assert cache.prefill(tokens(1, 20)).reused_tokens == 0
    cache.check()


def test_autocast_switched_within_a_block_is_never_a_silent_cast(llama, tokens) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 10))
    with (
        cache.lookup(tokens(1, 20)) as hit,
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(LayoutError, match="autocast"),
    ):
        cache.run(hit.suffix, hit.kv)
    assert cache.prefill(tokens(1, 20)).reused_tokens == 10
    cache.check()


# ---- adapters --------------------------------------------------------------------------------------------------------


class LoraLinear(torch.nn.Module):
    """What an adapter library puts in place of a linear layer, as far as the fingerprint looks."""

    def __init__(self, base: torch.nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.a = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.full((32, 32), 0.1)) for n in ("x", "y")})
        self._active_adapter = ["x"]
        self._disable_adapters = False
        self.merged_adapters: list[str] = []
        self.scaling = {"x": 1.0, "y": 2.0}

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result = self.base(hidden)
        if not self._disable_adapters:
            for name in self._active_adapter:
                result = result + self.scaling[name] * hidden @ self.a[name]
        return result


ADAPTER_CHANGES = {
    "another adapter": lambda layer: setattr(layer, "_active_adapter", ["y"]),
    "changed in place": lambda layer: layer._active_adapter.append("y"),
    "disabled": lambda layer: setattr(layer, "_disable_adapters", True),
    "scaled": lambda layer: layer.scaling.update(x=3.0),
    "trained": lambda layer: layer.a["x"].data.add_(1.0),
    "added": lambda layer: layer.a.update({"z": torch.nn.Parameter(torch.ones(32, 32))}),
}


@pytest.mark.parametrize("change", ADAPTER_CHANGES)
@pytest.mark.parametrize("flagged", [True, False])
def test_a_switched_adapter_is_a_miss(zoo, tokens, cold, change: str, flagged: bool) -> None:
    model = zoo.fresh("llama")
    model._hf_peft_config_loaded = flagged  # unset where a library injects into a model it does not own
    attention = model.model.layers[0].self_attn
    prompt = tokens(1, 20)
    cache = PrefixCache(model)
    cache.prefill(prompt)
    attention.k_proj = LoraLinear(attention.k_proj)
    assert cache.prefill(prompt).reused_tokens == 0
    assert cache.prefill(prompt).reused_tokens == 19
    ADAPTER_CHANGES[change](attention.k_proj)
    result = cache.prefill(prompt)
    assert result.reused_tokens == 0
    assert (result.logits[0] - cold(model, prompt)[-1]).abs().max() < 1e-4
    cache.check()


# vLLM #3264, #30931, #44701, llama.cpp #26207: adapter or salt missing from the key, or colliding with each other.
def test_adapter_salt_and_neither_are_three_entries(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, 20)
    keys = [
        {},
        {"adapter": "x"},
        {"salt": "x"},
        {"adapter": "x", "salt": "x"},
        {"adapter": ""},
        {"salt": ""},
        {"adapter": "x\0x"},
        {"adapter": "None"},
        {"adapter": "x", "salt": ""},
    ]
    for round_, reused in ((0, 0), (1, 19)):
        for key in keys:
            assert cache.prefill(prompt, **key).reused_tokens == reused, (round_, key)
            cache.check()
    assert cache.counters().tokens_live == 20 * len(keys)
    assert len(cache._tree.namespaces()) == len(keys)


# vLLM PR #17045 (CVE-2025-46570), sglang #9163: another tenant's timing shows what was cached.
def test_a_tenant_reuses_nothing_of_anothers(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, 40)
    cache.prefill(prompt, salt="tenant 1")
    before = cache.counters()
    with cache.lookup(prompt, salt="tenant 2") as hit:
        assert (hit.length, hit.matched) == (0, 0)
        assert hit.kv.get_seq_length() == 0
    after = cache.counters()
    assert after.matched_tokens == before.matched_tokens
    assert after.visited_nodes == before.visited_nodes
    assert after.copied_bytes == before.copied_bytes


def test_kv_inserted_or_generated_lies_under_its_own_key(llama, tokens) -> None:
    cache = PrefixCache(llama)
    prompt = tokens(1, 10)
    answer = cache.generate(prompt, max_new_tokens=4, do_sample=False, adapter="x").sequences[0].tolist()
    with cache.lookup(answer, adapter="x") as hit:
        cache.run(hit.suffix, hit.kv)
        assert cache.insert(answer, hit.kv, salt="x") == 14
    assert cache.prefill(answer, salt="x").reused_tokens == 13
    assert cache.prefill(answer).reused_tokens == 0
    cache.check()


def test_fingerprints_of_two_models_never_agree(zoo) -> None:
    one, two = zoo.fresh("llama"), zoo.fresh("llama")
    names = {ModelFingerprint(model).current() for model in (one, two, one)}
    assert len(names) == 3


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool, torch.float8_e4m3fn, torch.int8])
def test_buffers_of_every_dtype_are_watched(dtype: torch.dtype) -> None:
    module = torch.nn.Linear(2, 2)
    module.register_buffer("table", torch.zeros(3, 2).to(dtype))
    module.register_buffer("nothing", torch.zeros(0))
    module.register_buffer("scalar", torch.zeros(()))
    fingerprint = ModelFingerprint(module)
    before = fingerprint.current()
    assert fingerprint.current() == before
    module.table.data.view(torch.uint8).fill_(1)
    changed = fingerprint.current()
    assert changed != before
    module.scalar.data.add_(1)
    assert fingerprint.current() != changed


def test_a_model_that_cannot_run_is_looked_at_again(zoo, tokens) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    prompt = tokens(1, 20)
    cache.prefill(prompt)
    good = model.model.layers[1].mlp.up_proj
    model.bfloat16()
    model.model.layers[1].mlp.up_proj = torch.nn.Linear(3, 5)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            cache.prefill(prompt)
    model.model.layers[1].mlp.up_proj = good
    assert cache.prefill(prompt).reused_tokens == 0
    assert cache.prefill(prompt).reused_tokens == 19
    cache.check()
