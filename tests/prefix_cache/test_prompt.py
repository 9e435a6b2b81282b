"""Token ids in every form a caller may have them, and every form that is no prompt."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prefix_cache import BatchError, NullPrefixCache, PaddingError, PrefixCache, PromptError
from prefix_cache.prompt import as_tokens

IDS = [5, 6, 7]
FORMS = {
    "list": IDS,
    "tuple": tuple(IDS),
    "range": range(5, 8),
    "int32 array": np.array(IDS, np.int32),
    "uint8 array": np.array(IDS, np.uint8),
    "uint64 array": np.array(IDS, np.uint64),
    "strided array": np.array([5, 0, 6, 0, 7, 0])[::2],
    "int64 tensor": torch.tensor(IDS),
    "int16 tensor": torch.tensor(IDS, dtype=torch.int16),
    "row": torch.tensor([IDS]),
    "list of a row": [IDS],
    "equal rows": torch.tensor([IDS, IDS]),
    "strided tensor": torch.tensor([[5, 0], [6, 0], [7, 0]])[:, 0],
    "numpy integers": [np.int64(5), np.int32(6), 7],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_token_ids(form: str) -> None:
    tokens = as_tokens(FORMS[form], vocab_size=8)
    assert tokens.dtype == np.int64
    assert tokens.tolist() == IDS


@pytest.mark.parametrize("form", ["int64 tensor", "int32 array", "strided array"])
def test_own_copy(form: str) -> None:
    source = FORMS[form]
    source = source.clone() if isinstance(source, torch.Tensor) else source.copy()
    tokens = as_tokens(source)
    source[0] = 99
    assert tokens.tolist() == IDS


NO_PROMPT = {
    "empty list": ([], "empty"),
    "empty tensor": (torch.empty(0, dtype=torch.long), "empty"),
    "empty row": (torch.empty((1, 0), dtype=torch.long), "empty"),
    "no rows": (torch.empty((0, 3), dtype=torch.long), "empty"),
    "NaN": ([1.0, float("nan")], "NaN"),
    "NaN tensor": (torch.tensor([1.0, float("nan")]), "NaN"),
    "half NaN tensor": (torch.tensor([1.0, float("nan")], dtype=torch.bfloat16), "NaN"),
    "whole floats": ([1.0, 2.0], "float64"),
    "bfloat16": (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), "integers"),
    "booleans": ([True, False], "bool"),
    "boolean tensor": (torch.tensor([True]), "bool"),
    "complex": (torch.tensor([1j]), "integers"),
    "text": ("hello", "integers"),
    "words": (["a", "b"], "integers"),
    "None": (None, "integers"),
    "None inside": ([1, None], "integers"),
    "negative": ([3, -100, 4], "-100 at position 1 is negative"),
    "outside": ([3, 8], "8 at position 1 is outside the model's vocabulary of 8"),
    "just beyond int64": ([3, 2**63], "9223372036854775808 at position 1 is outside any vocabulary"),
    "beyond uint64": ([3, 2**64 + 1], "18446744073709551617 at position 1 is outside any vocabulary"),
    "beyond int64 beside a negative one": ([2**63, -1], "9223372036854775808 at position 0 is outside"),
    "far below": ([-(2**70)], "-1180591620717411303424 at position 0 is negative"),
    "wraps around": (np.array([2**64 - 5], np.uint64), "18446744073709551611 at position 0 is outside"),
    "ragged": ([[1, 2], [3]], "ragged"),
    "scalar": (torch.tensor(3), "shape"),
    "cube": (torch.zeros((1, 1, 3), dtype=torch.long), "shape"),
    "mapping without ids": ({"ids": [1]}, "no 'input_ids', but .'ids'."),
    "mapping with more": ({"input_ids": [1], "token_type_ids": [0]}, "has 'token_type_ids' besides token ids"),
}


@pytest.mark.parametrize("case", NO_PROMPT)
def test_what_is_no_prompt(case: str) -> None:
    ids, says = NO_PROMPT[case]
    with pytest.raises(PromptError, match=says):
        as_tokens(ids, vocab_size=8)


def test_a_huge_id_without_a_vocabulary() -> None:
    with pytest.raises(PromptError, match="9223372036854775808 at position 1 is outside any vocabulary"):
        as_tokens([3, 2**63])
    assert as_tokens([2**63 - 1]).tolist() == [2**63 - 1]


def test_rows_that_differ() -> None:
    with pytest.raises(BatchError, match="once per row"):
        as_tokens(torch.tensor([IDS, [5, 6, 6]]))


@pytest.mark.parametrize("mask", [[[0, 1, 1]], [[1, 1, 0]], [0, 0, 0]])
def test_padding(mask: list) -> None:
    with pytest.raises(PaddingError, match="without its padding"):
        as_tokens(IDS, attention_mask=torch.tensor(mask))
    assert as_tokens(IDS, attention_mask=torch.ones(1, 3)).tolist() == IDS


@pytest.mark.parametrize("shape", [(2,), (4,), (1, 2), (1, 4), (2, 3), (3, 1), (1, 1, 3), (1, 1, 3, 3), ()])
def test_a_mask_of_another_prompt(shape: tuple[int, ...]) -> None:
    with pytest.raises(PaddingError, match=r"attention_mask has shape \(.*3 tokens"):
        as_tokens(IDS, attention_mask=torch.ones(shape))


@pytest.mark.parametrize("mask", [torch.ones(3), torch.ones(1, 3), [1, 1, 1], np.ones((1, 3), bool)])
def test_a_mask_that_hides_nothing(mask: object) -> None:
    assert as_tokens(IDS, attention_mask=mask).tolist() == IDS
    assert as_tokens([IDS], attention_mask=mask).tolist() == IDS
    assert as_tokens([IDS, IDS], attention_mask=torch.ones(2, 3)).tolist() == IDS


@pytest.mark.parametrize("kind", [PrefixCache, NullPrefixCache])
def test_refusals_change_nothing(llama, kind: type) -> None:
    cache = kind(llama)
    cache.prefill([1, 2, 3])
    before = cache.counters()
    for ids, error in (([], PromptError), ([97], PromptError), ([-1], PromptError), ([[1], [2]], BatchError)):
        with pytest.raises(error):
            cache.prefill(ids)
        with pytest.raises(error):
            cache.generate(ids, max_new_tokens=1)
    with pytest.raises(PaddingError):
        cache.prefill([1, 2], attention_mask=torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match="room=-1"), cache.lookup([1], room=-1):
        pass
    for room, error in ((1.0, TypeError), (True, TypeError), ("4", TypeError), (np.int64(-1), ValueError)):
        with pytest.raises(error, match=r"room=.*0 or more"), cache.lookup([1], room=room):
            pass
    for new, error in ((-1, ValueError), (0, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match=rf"max_new_tokens={new}.*1 or more"):
            cache.generate([1], max_new_tokens=new)
    for name in ("salt", "adapter"):
        for label in (["x"], {}, 1, 1.0, True, object()):
            with pytest.raises(TypeError, match=f"{name} may be a str, bytes or None"):
                cache.prefill([1, 2, 3], **{name: label})
            with pytest.raises(TypeError, match=f"{name} of type {type(label).__name__}"):
                cache.generate([1, 2, 3], max_new_tokens=1, **{name: label})
    assert cache.counters() == before
    cache.check()


def test_numbers_of_numpy_and_torch_are_numbers(llama, tokens) -> None:
    cache = PrefixCache(llama, budget_bytes=np.int64(1 << 20), idle_buffers=np.int8(1))
    assert cache.generate(tokens(1, 5), max_new_tokens=np.int32(2), do_sample=False).sequences.shape == (1, 7)
    with cache.lookup(tokens(1, 5), room=torch.tensor(300)) as hit:
        assert hit.kv.held().capacity >= 305
    cache.check()


def test_salts_of_bytes_and_text_are_different(llama, tokens) -> None:
    cache = PrefixCache(llama)
    cache.prefill(tokens(1, 5), salt=b"x")
    assert cache.prefill(tokens(1, 5), salt="x").reused_tokens == 0
    assert cache.prefill(tokens(1, 5), salt=b"x").reused_tokens == 4


def test_a_grown_vocabulary(zoo) -> None:
    model = zoo.fresh("llama")
    cache = PrefixCache(model)
    with pytest.raises(PromptError, match="97"):
        cache.prefill([97])
    model.resize_token_embeddings(100)
    assert cache.prefill([97, 98]).computed_tokens == 2
    with pytest.raises(PromptError, match="100"):
        cache.prefill([100])


def test_writing_to_the_suffix_does_not_change_the_key(llama, tokens) -> None:
    prompt = tokens(1, 12)
    cache = PrefixCache(llama)
    with cache.lookup(prompt) as hit:
        cache.run(hit.suffix, hit.kv)
        hit.suffix.zero_()
        hit.store()
    with cache.lookup(prompt) as hit:
        assert hit.matched == 12


def test_the_prompt_of_a_hit_is_read_only(llama, tokens) -> None:
    cache = PrefixCache(llama)
    mine = np.array(tokens(1, 12))
    with cache.lookup(mine) as hit:
        with pytest.raises(ValueError, match="read-only"):
            hit.prompt[0] = 1
        cache.run(hit.suffix, hit.kv)
        hit.store()
    mine[:] = 0  # the caller's own array stays writable, and is not the key
    assert cache.prefill(tokens(1, 12)).reused_tokens == 11
