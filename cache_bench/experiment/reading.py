"""One row of the results: one answer, read at one of its output tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from cache_bench.experiment.plan import Step

_TEXTS = ("model", "part", "arm")
_OPTIONAL = ("tpot_s", "total_s", "reused_tokens", "stored_bytes", "copied_bytes")
_SECONDS = ("ttft_s", "tpot_s", "latency_s", "total_s")


@dataclass(frozen=True)
class Reading:
    """What a client that wants `output_tokens` tokens has seen; None: there is no such value.

    number: of the prompt within its part. turn: place of the prompt in a series that starts with an empty cache, 0
    outside of one. position: 0 for the arm of the prompt that was visited first. Times are seconds from handing over
    the prompt: ttft_s to the first token, latency_s to the last that is wanted, tpot_s per further token, total_s
    until the engine was done, storing included. reused_tokens: of the prompt. stored_bytes, copied_bytes: KV that the
    cache stored anew for this answer, and KV that it copied to serve the hit; None for arms without a cache.
    """

    model: str
    part: str
    number: int
    turn: int
    prefix_tokens: int
    suffix_tokens: int
    arm: str
    position: int
    output_tokens: int
    ttft_s: float
    tpot_s: float | None
    latency_s: float
    total_s: float | None
    reused_tokens: int | None
    stored_bytes: int | None
    copied_bytes: int | None

    def belongs_to(self, step: Step) -> bool:
        """Whether `step` left it, as far as a reading tells."""
        return (self.part, self.number, self.turn, self.prefix_tokens, self.suffix_tokens) == (
            step.part.value,
            step.number,
            step.turn,
            step.prefix,
            step.suffix,
        ) and self.arm in step.arms

    def row(self) -> dict[str, str]:
        """As text; times to the nanosecond."""
        return {
            name: "" if value is None else f"{value:.9f}" if isinstance(value, float) else str(value)
            for name, value in ((name, getattr(self, name)) for name in COLUMNS)
        }

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Reading:
        """From a row as text. Raises ValueError, with the name of the value that cannot be."""
        values: dict[str, Any] = {name: _value(name, row[name]) for name in COLUMNS}
        return cls(**values)


COLUMNS = tuple(field.name for field in fields(Reading))


def _value(name: str, text: str) -> str | int | float | None:
    if name in _TEXTS:
        return text
    if text == "":
        if name in _OPTIONAL:
            return None
        raise ValueError(f"{name} is empty")
    if name in _SECONDS:
        return _number(name, text, float, "time", lambda value: 0 < value < float("inf"))
    return _number(name, text, int, "whole number of 0 or more", lambda value: value >= 0)


def _number(name: str, text: str, kind: type[float], called: str, possible: Callable[[float], bool]) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not possible(value):
        raise ValueError(f"{name} is {text!r}, which is no {called}")
    return value
