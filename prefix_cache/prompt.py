"""Turns what a caller calls a prompt into token ids that can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from prefix_cache.errors import BatchError, PaddingError, PromptError
from prefix_cache.tokens import TokenArray

TokenIds = Sequence[int] | npt.NDArray[np.integer] | torch.Tensor


def as_tokens(
    ids: TokenIds, *, vocab_size: int | None = None, attention_mask: torch.Tensor | None = None
) -> TokenArray:
    """Own copy of `ids` as int64 [n], n >= 1.

    ids: [n], or [batch, n] where all rows are equal (they share one computation).
    Raises PromptError, BatchError, PaddingError.
    """
    if attention_mask is not None and not bool(torch.as_tensor(attention_mask).bool().all()):
        raise PaddingError(
            "attention_mask hides some tokens (padding): stored KV belongs to absolute positions, which padding moves. "
            "Pass the prompt without its padding, one prompt per call."
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
        what = "NaN among them" if array.dtype.kind == "f" and np.isnan(array).any() else f"dtype {array.dtype}"
        raise PromptError(f"token ids must be integers, not {what}; convert them with .long() once they are whole")
    tokens = _single_row(array).astype(np.int64)  # astype copies: a caller may reuse its own array
    _check_range(tokens, vocab_size)
    return tokens


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


def _check_range(tokens: TokenArray, vocab_size: int | None) -> None:
    high = int(np.maximum.reduce(tokens.view(np.uint64)))  # negative ones are the largest of all
    if high >> 63:
        at = int((tokens < 0).argmax())
        raise PromptError(
            f"token id {int(tokens[at])} at position {at} is negative; -100 and the like are labels, not tokens"
        )
    if vocab_size is not None and high >= vocab_size:
        at = int((tokens >= vocab_size).argmax())
        raise PromptError(
            f"token id {int(tokens[at])} at position {at} is outside the model's vocabulary of {vocab_size}; "
            "use the tokenizer that belongs to this model"
        )
