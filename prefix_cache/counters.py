"""What a cache has done so far, counted exactly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """What `counters()` returns is a copy: it stays what it was.

    Tokens unless a name says otherwise; all but the *_live ones only ever grow.

    requests: lookups. prompt: tokens asked for. matched: longest stored prefixes (up to whole prompts).
    reused: of these, those that the model has run on (at most prompt - 1 each), counted when the block ends.
    stored: newly stored. refused: not stored because no eviction could have made room. evicted: dropped, by budget, by
    `clear` or because the weights changed.
    copied_bytes: copied out of storage into request buffers (0 for a hit on a recycled buffer).
    recycled_hits: hits that copied nothing. grown_bytes: copied because a request outgrew its buffer.
    stored_bytes_live, idle_bytes_live: storage of stored KV, and of idle request buffers kept for recycling; their
    sum stays within the budget. peak_bytes: most of both alive at once, including the moment of a split.
    in_use_bytes_live: buffers of requests in flight, outside the budget.
    """

    requests: int = 0
    prompt_tokens: int = 0
    matched_tokens: int = 0
    reused_tokens: int = 0
    stored_tokens: int = 0
    refused_tokens: int = 0
    evicted_tokens: int = 0
    visited_nodes: int = 0
    copied_bytes: int = 0
    grown_bytes: int = 0
    recycled_hits: int = 0
    tokens_live: int = 0
    stored_bytes_live: int = 0
    idle_bytes_live: int = 0
    in_use_bytes_live: int = 0
    peak_bytes: int = 0
