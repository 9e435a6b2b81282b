"""Every refusal has a name. All derive from PrefixCacheError and say what to do next."""

from __future__ import annotations


class PrefixCacheError(Exception):
    """Base of all errors that this package raises on purpose."""


class PromptError(PrefixCacheError, ValueError):
    """The token ids are not a prompt: empty, negative, not integers, or outside the vocabulary."""


class BatchError(PrefixCacheError, ValueError):
    """More than one different row: a prefix cache serves one sequence at a time."""


class OptionError(PrefixCacheError, ValueError):
    """A generation option under which the KV of a hit would be bypassed or written twice."""


class PaddingError(PrefixCacheError, ValueError):
    """The attention mask hides tokens (positions would differ from those of the stored KV) or is of another prompt."""


class PositionsError(PrefixCacheError, ValueError):
    """Prompt and answer need more positions than the model has."""


class UnsupportedModelError(PrefixCacheError, TypeError):
    """The model keeps state that cannot be cut at an arbitrary length."""


class UnsupportedCacheError(PrefixCacheError, TypeError):
    """The KV cache handed over is of a kind that cannot be cut: quantised, static, sliding-window, recurrent."""


class KeyLengthError(PrefixCacheError, ValueError):
    """The number of token ids differs from the number of positions held by a layer."""


class LayoutError(PrefixCacheError, ValueError):
    """KV of another shape, dtype or device than the model produces."""


class ModelChangedError(PrefixCacheError, RuntimeError):
    """Weights, adapter or mode of the model changed while a hit was in use."""


class EditedError(PrefixCacheError, RuntimeError):
    """Something but the model has written to a request's KV: it is no longer the KV of its tokens."""


class ReleasedError(PrefixCacheError, RuntimeError):
    """A request's KV was used after its `with` block had ended."""
