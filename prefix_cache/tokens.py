"""Runs of token ids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

TokenArray = npt.NDArray[np.int64]


def common_prefix(a: TokenArray, b: TokenArray) -> int:
    """Number of leading tokens in which a and b agree; compared in bulk, not token by token."""
    n = min(len(a), len(b))
    if not n:
        return 0
    differs = a[:n] != b[:n]
    at = int(differs.argmax())
    return at if differs[at] else n
