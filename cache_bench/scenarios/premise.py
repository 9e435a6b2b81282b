"""What must hold before a time means anything."""

from __future__ import annotations

import numpy as np

from cache_bench.engine import Completion
from perf_gate import InvalidPremise

# Largest difference between logits that two correct paths may show, by dtype; the sums run in another order.
# Measured for float32: up to 2.5e-5 on real weights.
TOLERANCE = {"float32": 2e-4, "bfloat16": 0.25}


def require_reused(what: str, completion: Completion, expected: int, of: int) -> None:
    """Raise InvalidPremise unless exactly `expected` prompt tokens were reused (where the engine tells)."""
    if completion.reused is not None and completion.reused != expected:
        raise InvalidPremise(f"{what} reused {completion.reused} of {of} prompt tokens, expected {expected}")


def require_agreement(what: str, ours: Completion, reference: Completion, dtype: str = "float32") -> None:
    """Raise InvalidPremise unless both computed the same logits and so the same first token.

    The token is compared only where the reference's best two logits are further apart than the tolerance.
    """
    if ours.logits is None or reference.logits is None:
        if ours.tokens[0] != reference.tokens[0]:
            raise InvalidPremise(f"{what}: first token {ours.tokens[0]}, but {reference.tokens[0]} without the cache")
        return
    tolerance = TOLERANCE[dtype]
    difference = float(np.abs(ours.logits - reference.logits).max())
    if not difference <= tolerance:
        raise InvalidPremise(
            f"{what}: logits differ by {difference:.2g}, more than {tolerance:.2g}: the answer is wrong"
        )
    second, best = np.partition(reference.logits, -2)[-2:]
    if best - second > 2 * tolerance and ours.tokens[0] != reference.tokens[0]:
        raise InvalidPremise(f"{what}: first token {ours.tokens[0]}, but {reference.tokens[0]} without the cache")
