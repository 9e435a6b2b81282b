"""How many positions a model has, and what is said where a prompt needs more."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from prefix_cache.errors import PositionsError


class Positions:
    """The positions of one model. learned: how many it has a vector for; None: it computes them, without a limit."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._name = type(model).__name__
        self.learned: int | None = None
        config = model.config.get_text_config()
        rotary = getattr(config, "rope_parameters", None) and not getattr(config, "alibi", False)
        self._trained: int | None = getattr(config, "max_position_embeddings", None) if rotary else None

    def require(self, prompt: int, new: int = 0) -> None:
        """Raise PositionsError unless the model can run a prompt of `prompt` tokens and generate `new` more.

        Warns once where it can, but was not trained on as many.
        """
        needed = prompt + max(new - 1, 0)  # the last new token is chosen, but not run
        if self.learned is not None and needed > self.learned:
            if prompt > self.learned:
                raise PositionsError(
                    f"the prompt has {prompt} tokens, but {self._name} has {self.learned} positions; shorten the "
                    "prompt, or use a model with more positions. Nothing was run."
                )
            raise PositionsError(
                f"the prompt has {prompt} tokens and up to {new} more were asked for, which takes {needed} positions, "
                f"but {self._name} has {self.learned}; give max_new_tokens={self.learned - prompt + 1} or less, or "
                "shorten the prompt. Nothing was run."
            )
        if self._trained is not None and needed > self._trained:
            trained, self._trained = self._trained, None
            warnings.warn(
                f"{needed} tokens are more than the {trained} that {self._name} was trained for "
                "(max_position_embeddings); its answers may become worse from there on",
                stacklevel=3,
            )


def learned_positions(model: PreTrainedModel, run: Callable[[], Any]) -> int | None:
    """How many positions `model` has a vector for, seen while `run` runs it; None where it computes them.

    run: runs the model over two equal tokens at positions 0 and 1. Whatever it looks up with two successive indices in
    one of its own tensors is looked up by position, and the rows from the first index on are the positions there are.
    """
    # MPT makes its ALiBi for exactly so many positions.
    limits = [model.config.max_seq_len] if getattr(model.config, "max_seq_len", None) else []
    own = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    with _Lookups() as lookups:
        run()
    for table, index in lookups.seen:
        indices = torch.unique(index).tolist()
        if table.data_ptr() in own and len(indices) == 2 and indices[1] == indices[0] + 1:
            limits.append(table.shape[0] - indices[0])
    return min(limits, default=None)


class _Lookups(TorchDispatchMode):
    """Keeps the table and the indices of every lookup of rows."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func is torch.ops.aten.embedding.default:
            self.seen.append((args[0], args[1]))
        elif func is torch.ops.aten.index.Tensor and len(args[1]) == 1:
            self.seen.append((args[0], args[1][0]))
        return func(*args, **(kwargs or {}))
