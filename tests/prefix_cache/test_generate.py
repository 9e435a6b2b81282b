"""Called as transformers is called: what `generate` takes and what a tokenizer returns."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MaxLengthCriteria,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    StoppingCriteriaList,
    TextStreamer,
)

from prefix_cache import OptionError, PaddingError, PrefixCache, PromptError

GREEDY = {"do_sample": False}


def plain(model: PreTrainedModel, ids: list[int], **options: Any) -> Any:
    row = torch.tensor([ids])
    return model.generate(row, attention_mask=torch.ones_like(row), **options)


def same_cold_and_warm(model: PreTrainedModel, ids: list[int], **options: Any) -> None:
    wanted = plain(model, ids, **options)
    cache = PrefixCache(model)
    for reused in (0, len(ids) - 1):
        found = cache.generate(ids, **options)
        assert torch.equal(found.sequences, wanted)
        assert found.reused_tokens == reused
    cache.check()


class Forbid(LogitsProcessor):
    """Never the token that was chosen last."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill(1, input_ids[0, -1:], -torch.inf)


LENGTHS: dict[str, dict[str, Any]] = {
    "a config": {"generation_config": GenerationConfig(max_new_tokens=4, do_sample=False)},
    "a config of a length": {"generation_config": GenerationConfig(max_length=15, do_sample=False)},
    "a length": {"max_length": 16, **GREEDY},
    "no length": GREEDY,
    "nothing": {},
    "both": {"max_new_tokens": 3, "max_length": 30, **GREEDY},
    "a processor": {"max_new_tokens": 4, "logits_processor": LogitsProcessorList([Forbid()]), **GREEDY},
    "a criterion": {"stopping_criteria": StoppingCriteriaList([MaxLengthCriteria(13)]), **GREEDY},
    "guidance": {"max_new_tokens": 4, "guidance_scale": 1.5, **GREEDY},
    "a penalty": {"max_new_tokens": 4, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, **GREEDY},
    "chunks": {"max_new_tokens": 4, "prefill_chunk_size": 4, **GREEDY},
    "allowed tokens": {"max_new_tokens": 4, "prefix_allowed_tokens_fn": lambda _, ids: [int(ids[-1]) ^ 1, 3], **GREEDY},
    "an end": {"max_new_tokens": 30, "eos_token_id": list(range(0, 97, 3)), "pad_token_id": 0, **GREEDY},
    "a time": {"max_new_tokens": 4, "max_time": 1000.0, **GREEDY},
}


@pytest.mark.parametrize("how", LENGTHS)
def test_what_generate_takes_is_taken(llama: PreTrainedModel, tokens, how: str) -> None:
    same_cold_and_warm(llama, tokens(1, 10), **LENGTHS[how])


@pytest.mark.parametrize("field", [{"max_new_tokens": 5}, {"max_length": 17}])
def test_the_models_own_config_counts(zoo, tokens, field: dict[str, int]) -> None:
    model = zoo.fresh("llama")
    for name, value in field.items():
        setattr(model.generation_config, name, value)
    same_cold_and_warm(model, tokens(1, 10))
    same_cold_and_warm(model, tokens(1, 10), max_new_tokens=2)


@given(
    own=st.dictionaries(st.sampled_from(["max_new_tokens", "max_length"]), st.integers(15, 30)),
    given_=st.dictionaries(st.sampled_from(["max_new_tokens", "max_length"]), st.integers(15, 30)),
    called=st.dictionaries(st.sampled_from(["max_new_tokens", "max_length"]), st.integers(15, 30)),
)
def test_the_answer_is_foreseen_as_long_as_transformers_makes_it(zoo, tokens, own, given_, called) -> None:
    model = zoo.fresh("llama")
    for name, value in own.items():
        setattr(model.generation_config, name, value)
    options = {"generation_config": GenerationConfig(**given_), **called} if given_ else called
    answer = plain(model, tokens(1, 10), **options)
    assert PrefixCache(model)._new_tokens(options, 10) == answer.shape[1] - 10


def test_a_length_that_is_used_up_is_refused_by_transformers_own_sentence(llama: PreTrainedModel, tokens, pins) -> None:
    cache = PrefixCache(llama)
    with pytest.raises(ValueError, match="`max_length` is set to 5"):
        cache.generate(tokens(1, 10), max_length=5)
    assert pins(cache) == 0


def test_scores_of_a_warm_prompt_are_those_of_a_cold_one(llama: PreTrainedModel, tokens) -> None:
    options = {
        "max_new_tokens": 4,
        "return_dict_in_generate": True,
        "output_scores": True,
        "output_logits": True,
        **GREEDY,
    }
    wanted = plain(llama, tokens(1, 10), **options)
    cache = PrefixCache(llama)
    for _ in range(2):
        found = cache.generate(tokens(1, 10), **options)
        assert torch.equal(found.sequences, wanted.sequences)
        assert found.output is not None
        for name in ("scores", "logits"):
            assert len(found.output[name]) == len(wanted[name])
            for mine, theirs in zip(found.output[name], wanted[name], strict=True):
                assert (mine - theirs).abs().max() < 1e-4
    assert cache.generate(tokens(1, 10), max_new_tokens=2).output is None


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "static": ({"cache_implementation": "static"}, "cache_implementation: the KV lies in this cache"),
    "positions": ({"position_ids": torch.arange(10)[None]}, "position_ids: model.generate would hand it to the model"),
    "token types": ({"token_type_ids": torch.zeros(1, 10)}, "token_type_ids"),
    "embeddings": ({"inputs_embeds": torch.zeros(1, 10, 32)}, "inputs_embeds: the prompt and its KV come from this"),
    "healing": ({"token_healing": True}, "token_healing: it changes the prompt"),
    "of one's own": ({"custom_generate": lambda *_: None}, "custom_generate"),
    "misspelt": ({"max_new_token": 3}, "max_new_token"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_be_right_is_refused_by_name(llama: PreTrainedModel, tokens, case: str) -> None:
    options, says = REFUSED[case]
    cache = PrefixCache(llama)
    with pytest.raises(OptionError, match=says):
        cache.generate(tokens(1, 10), **options)
    assert cache.counters().requests == 0


@pytest.mark.parametrize(
    "field", [{"cache_implementation": "static"}, {"prompt_lookup_num_tokens": 2}, {"token_healing": True}]
)
@pytest.mark.parametrize("models_own", [False, True])
def test_a_config_hides_nothing(zoo, tokens, field: dict[str, Any], models_own: bool) -> None:
    model = zoo.fresh("llama")
    options: dict[str, Any] = {}
    if models_own:
        model.generation_config.update(**field)
    else:
        options = {"generation_config": GenerationConfig(max_new_tokens=2, **field)}
    with pytest.raises(OptionError, match=next(iter(field))):
        PrefixCache(model).generate(tokens(1, 10), **options)


# ---- what a tokenizer returns ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    words = {word: index for index, word in enumerate(["<pad>", "<unk>", *(f"w{number}" for number in range(90))])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        pad_token="<pad>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        chat_template="{% for message in messages %}{{ message.content }} {% endfor %}",
    )


TEXT = "w1 w2 w3 w4 w5 w6"
ENCODINGS = {
    "lists": lambda tokenizer: tokenizer(TEXT),
    "tensors": lambda tokenizer: tokenizer(TEXT, return_tensors="pt"),
    "arrays": lambda tokenizer: tokenizer([TEXT], return_tensors="np"),
    "chat": lambda tokenizer: tokenizer.apply_chat_template(
        [{"role": "user", "content": TEXT}], return_dict=True, return_tensors="pt"
    ),
    "a dictionary": lambda tokenizer: {"input_ids": tokenizer(TEXT)["input_ids"]},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_a_tokenizer_returns_is_a_prompt(llama: PreTrainedModel, tokenizer, cold, encoding: str) -> None:
    encoded = ENCODINGS[encoding](tokenizer)
    cache = PrefixCache(llama)
    result = cache.prefill(encoded)
    assert result.prompt_tokens == 6
    assert (result.logits[0] - cold(llama, tokenizer(TEXT)["input_ids"])[-1]).abs().max() < 1e-4
    with cache.lookup(encoded) as hit:
        assert hit.length == 5
        cache.run(hit.suffix, hit.kv)
        assert hit.store(encoded) == 0
    answer = cache.generate(encoded, max_new_tokens=3, **GREEDY)
    assert torch.equal(answer.sequences, plain(llama, tokenizer(TEXT)["input_ids"], max_new_tokens=3, **GREEDY))


def test_its_attention_mask_is_honoured(llama: PreTrainedModel, tokenizer) -> None:
    padded = tokenizer(TEXT, padding="max_length", max_length=9, return_tensors="pt")
    with pytest.raises(PaddingError, match="without its padding"):
        PrefixCache(llama).prefill(padded)


def test_what_it_says_besides_is_refused(llama: PreTrainedModel, tokenizer) -> None:
    with pytest.raises(PromptError, match=r"'token_type_ids'.*return_token_type_ids=False"):
        PrefixCache(llama).prefill(tokenizer(TEXT, return_token_type_ids=True))


def test_stop_strings_and_a_streamer(zoo, capsys: pytest.CaptureFixture[str]) -> None:
    # Transformers looks for stop strings in the text of every token, which wants a vocabulary of letters.
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({each: index for index, each in enumerate(letters)}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    model = zoo.fresh("llama", vocab_size=len(letters))
    ids = [*range(40, 50)]
    # Bytes that are no letter by themselves decode to nothing.
    model.generation_config.suppress_tokens = [index for index, each in enumerate(letters) if not each.isascii()]
    free = plain(model, ids, max_new_tokens=12, **GREEDY)[0, len(ids) :].tolist()
    options = {"max_new_tokens": 12, "stop_strings": tokenizer.decode(free[3]), "tokenizer": tokenizer, **GREEDY}
    assert plain(model, ids, **options).shape[1] < len(ids) + 12
    same_cold_and_warm(model, ids, **options)
    for generate in (plain, lambda _, ids, **more: PrefixCache(model).generate(ids, **more)):
        generate(model, ids, streamer=TextStreamer(tokenizer, skip_prompt=True), **options)
    one, other = capsys.readouterr().out.splitlines()
    assert one == other != ""
