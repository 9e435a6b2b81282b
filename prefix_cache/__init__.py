"""A minimal, correct, fast prefix cache for Hugging Face causal LMs."""

from prefix_cache.abstract import Generation, Hit, Prefill, PromptCache
from prefix_cache.cache import PrefixCache
from prefix_cache.counters import Counters
from prefix_cache.errors import (
    BatchError,
    EditedError,
    KeyLengthError,
    LayoutError,
    ModelChangedError,
    OptionError,
    PaddingError,
    PositionsError,
    PrefixCacheError,
    PromptError,
    ReleasedError,
    UnsupportedCacheError,
    UnsupportedModelError,
)
from prefix_cache.null import NullPrefixCache

__all__ = [
    "BatchError",
    "Counters",
    "EditedError",
    "Generation",
    "Hit",
    "KeyLengthError",
    "LayoutError",
    "ModelChangedError",
    "NullPrefixCache",
    "OptionError",
    "PaddingError",
    "PositionsError",
    "Prefill",
    "PrefixCache",
    "PrefixCacheError",
    "PromptCache",
    "PromptError",
    "ReleasedError",
    "UnsupportedCacheError",
    "UnsupportedModelError",
]
