"""Turns what a caller calls a prompt into token ids that can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prefix_cache.errors import BatchError, PaddingError, PromptError
from prefix_cache.tokens import TokenArray

_NO_TOKEN = 1 << 63  # beyond int64

TokenIds = Sequence[int] | npt.NDArray[np.integer] | torch.Tensor | Mapping[str, Any]


def as_tokens(
    ids: TokenIds, *, vocab_size: int | None = None, attention_mask: torch.Tensor | None = None
) -> TokenArray:
    """`row_of` whose every token is in the vocabulary. Raises what it raises, and PromptError."""
    tokens = row_of(ids, attention_mask)
    refuse_strange(tokens, vocab_size)
    return tokens


def row_of(ids: TokenIds, attention_mask: torch.Tensor | None = None) -> TokenArray:
    """Own, read-only copy of `ids` as int64 [n], n >= 1. What the numbers are is left to `refuse_strange`.

    ids: [n], or [batch, n] where all rows are equal (they share one computation); or what a tokenizer returns, a
    mapping with "input_ids" and perhaps "attention_mask".
    Raises PromptError, BatchError, PaddingError.
    """
    if isinstance(ids, Mapping):
        ids, attention_mask = _unpacked(ids, attention_mask)
    if attention_mask is not None:
        attention_mask = torch.as_tensor(attention_mask)
        if not bool(attention_mask.bool().all()):
            raise PaddingError(
                "attention_mask hides some tokens (padding): stored KV belongs to absolute positions, which padding "
                "moves. Pass the prompt without its padding, one prompt per call."
            )
    if isinstance(ids, torch.Tensor) and ids.is_floating_point():
        ids = ids.detach().to(torch.float64)  # NumPy lacks bfloat16; refused by name below
    source = ids.detach().cpu().numpy() if isinstance(ids, torch.Tensor) else ids
    try:
        array = np.asarray(source)
    except ValueError as error:
        raise PromptError(f"token ids are ragged ({error}); pass one prompt as a flat list of integers") from None
    if array.size == 0:
        raise PromptError("the prompt is empty: there is no token to compute logits for; pass at least one token id")
    if array.dtype.kind not in "iu":
        _refuse_huge(source)
        what = "NaN among them" if array.dtype.kind == "f" and np.isnan(array).any() else f"dtype {array.dtype}"
        raise PromptError(f"token ids must be integers, not {what}; convert them with .long() once they are whole")
    row = _single_row(array)
    if row.dtype == np.uint64:
        _refuse_wrapping(row)
    # Over memory of its own: a caller may reuse its array. Read-only, because it is the key of what will be stored.
    tokens = np.frombuffer(row.astype(np.int64, copy=False).tobytes(), np.int64)
    if attention_mask is not None and tuple(attention_mask.shape) not in ((len(row),), (1, len(row)), array.shape):
        raise PaddingError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, but the prompt has {len(row)} tokens; pass the "
            "mask that belongs to this prompt, or none"
        )
    return tokens


def _unpacked(encoded: Mapping[str, Any], attention_mask: torch.Tensor | None) -> tuple[Any, Any]:
    if "input_ids" not in encoded:
        raise PromptError(f"the mapping has no 'input_ids', but {sorted(encoded)}; pass what a tokenizer returns")
    if strange := sorted(encoded.keys() - {"input_ids", "attention_mask"}):
        raise PromptError(
            f"the mapping has {strange[0]!r} besides token ids, and stored KV is keyed by token ids alone; leave it "
            "out (tokenizer(..., return_token_type_ids=False))"
        )
    return encoded["input_ids"], encoded.get("attention_mask") if attention_mask is None else attention_mask


def _single_row(array: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    if array.ndim == 1:
        return array
    if array.ndim != 2:
        raise PromptError(f"token ids have shape {array.shape}; expected [n] or [batch, n]")
    if len(array) > 1 and (array != array[0]).any():
        raise BatchError(
            f"the {len(array)} rows of the batch differ; a prefix cache serves one sequence at a time: "
            "call it once per row"
        )
    row: npt.NDArray[np.integer] = array[0]
    return row


def refuse_strange(tokens: TokenArray, vocab_size: int | None, start: int = 0) -> None:
    """Raise PromptError for a negative token or one outside the vocabulary, from `start` on."""
    part = tokens[start:].tolist()  # a hit has little left to look at, for which a loop over an array starts too slowly
    if part and (min(part) < 0 or (vocab_size is not None and max(part) >= vocab_size)):
        bound = _NO_TOKEN if vocab_size is None else vocab_size
        at = next(at for at, token in enumerate(part) if not 0 <= token < bound)
        raise _out_of_range(part[at], start + at, vocab_size)


def _refuse_wrapping(row: npt.NDArray[np.integer]) -> None:
    """Unsigned numbers beyond int64, which would become negative ones."""
    if int(row.max()) >= _NO_TOKEN:
        at = int((row >= _NO_TOKEN).argmax())
        raise _out_of_range(int(row[at]), at, None)


def _refuse_huge(source: object) -> None:
    """NumPy makes floats or objects of integers beyond its own; named by what the caller has written."""
    if isinstance(source, Sequence):
        for at, token in enumerate(np.asarray(source, dtype=object).ravel()):
            if type(token) is int and not -_NO_TOKEN <= token < _NO_TOKEN:
                raise _out_of_range(token, at, None)


def _out_of_range(token: int, at: int, vocab_size: int | None) -> PromptError:
    if token < 0:
        return PromptError(f"token id {token} at position {at} is negative; -100 and the like are labels, not tokens")
    vocabulary = "any vocabulary" if vocab_size is None else f"the model's vocabulary of {vocab_size}"
    return PromptError(
        f"token id {token} at position {at} is outside {vocabulary}; use the tokenizer that belongs to this model"
    )
