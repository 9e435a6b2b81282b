"""What a model has room for: positions, shared text, and tokens to go on with behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cache_bench.engines.transformers_prefix_cache import FLOOR_ROOM
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.options import Options
from cache_bench.experiment.plan import Part, Step
from cache_bench.experiment.spread import LEAST
from cache_bench.model import load
from cache_bench.prompts import Prompts, Tokens


def require_lengths(options: Options, steps: Sequence[Step], prompts: Prompts) -> None:
    """Raise ExperimentError where a prompt is longer than the model, the shared text or the floor allows."""
    model = options.model
    positions = getattr(load(model).config.get_text_config(), "max_position_embeddings", None) or math.inf
    text = math.inf if prompts.longest is None else prompts.longest
    text_ends = f"the text that all prompts share has {text} tokens for {model}"
    _require(options, "suffixes", options.suffixes[1], FLOOR_ROOM, f"the floor has room for {FLOOR_ROOM} tokens")
    for name, parts in (("prefixes", (Part.PROMPT, Part.OUTPUT)), ("sharing_prefix", (Part.SHARING,))):
        asked = [step for step in steps if step.part in parts]
        behind = max(step.suffix + step.reads[-1] for step in asked)
        if behind >= positions:
            raise ExperimentError(
                f"{model} has {positions} positions, and suffix and answer take {behind}, which leaves none for a "
                f"prefix; give less with --suffixes, --output-tokens or --long-output, together at most {positions - 1}"
            )
        model_ends = f"{model} has {positions} positions, {behind} of which suffix and answer take"
        reason = model_ends if positions - behind < text else text_ends
        _require(options, name, max(step.prefix for step in asked), min(positions - behind, text), reason)
    _require(options, "share_tokens", options.share_tokens, positions - 1, f"{model} has {positions} positions")
    _require(options, "shares", options.shares[-1], text, text_ends)


def require_beginnings(options: Options, steps: Sequence[Step], text: Tokens, vocabulary: int) -> None:
    """Raise ExperimentError where not every prompt can go on behind `text` with a token that nothing else has."""
    needed = len(steps) + 1  # and the prompt that makes a prefix hot
    firsts = np.sort(np.unique(text, return_index=True)[1])  # where each token of the text stands first
    excess = needed + len(firsts) - vocabulary
    if excess <= 0:
        return
    ways = []
    if options.prompts - excess >= LEAST * len(options.prefixes):
        ways.append(f"at most {options.prompts - excess} with --prompts")
    others = max(options.sharing_prefix, options.shares[-1])
    if vocabulary > needed and firsts[vocabulary - needed] >= others:
        ways.append(f"at most {firsts[vocabulary - needed]} with --prefixes")
    raise ExperimentError(
        f"{options.given('prompts')}, {options.given('prefixes')}: {options.model} knows {vocabulary} tokens, "
        f"{len(firsts)} of them stand in the text that all prompts share, and each of the {needed} prompts of all "
        "parts has to go on with another one; give "
        f"{' or '.join(ways) or 'less with --sharing, --series, --shares or --share-repeats'}"
    )


def _require(options: Options, name: str, needed: int, most: float, reason: str) -> None:
    if needed > most:
        raise ExperimentError(f"{options.given(name)}: {reason}; give at most {most}")
