"""Time to first token of a hit, against computing everything and against the floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cache_bench.engine import Completion
from cache_bench.engines.transformers_prefix_cache import PrefixCacheEngine
from cache_bench.ledger import allocations_of, calls_of
from cache_bench.model import load
from cache_bench.prompts import Prompts, Tokens
from cache_bench.scenarios.bench import BenchScenario
from cache_bench.scenarios.premise import require_agreement, require_reused
from perf_gate import Better, Comparable, Exact, Metric, Sampled

COUNTS: tuple[Metric, ...] = (
    Exact("prompt tokens run", "tokens"),
    Exact("forward passes", "calls"),
    Exact("tree nodes visited", "nodes"),
    Exact("KV bytes copied, hot hit", "B"),
    Exact("KV bytes copied, first hit", "B"),
    Exact("bytes kept by a hit", "B", comparable=Comparable.SOFTWARE),
    Exact("bytes allocated beyond the floor, hot hit", "B", comparable=Comparable.SOFTWARE),
    Exact("bytes allocated beyond the floor, first hit", "B", comparable=Comparable.SOFTWARE),
    Exact("peak bytes of a hot hit", "B", comparable=Comparable.SOFTWARE),
    Exact("peak bytes of a first hit", "B", comparable=Comparable.SOFTWARE),
    Exact("operator calls", "calls", comparable=Comparable.SOFTWARE),
    Exact("FLOPs", "FLOP", comparable=Comparable.SOFTWARE),
)
# Two records of the same code on one machine, made on different days, differed by at most 0.5 % in any scenario and by
# 0.1 % in the mean over all: less than that is nobody's regression. The interval has to lie clear of it, too.
EFFICIENCY = Sampled(
    "reuse efficiency",
    "",
    Better.HIGHER,
    "floor",
    "warm",
    threshold=0.005,
    resolution=0.03,
    other_machine_threshold=0.03,
)
FIRST_HIT_EFFICIENCY = Sampled(
    "first-hit efficiency",
    "",
    Better.HIGHER,
    "floor",
    "first",
    threshold=0.02,
    resolution=0.06,
    other_machine_threshold=0.05,
)
REQUEST_EFFICIENCY = Sampled(
    "request efficiency",
    "",
    Better.HIGHER,
    "floor",
    "request",
    threshold=0.015,
    resolution=0.05,
    other_machine_threshold=0.04,
)
SPEEDUP = Sampled("speedup", "x", Better.HIGHER, "cold", "warm", threshold=0.05, resolution=0.15)


@dataclass(frozen=True)
class HitCost(BenchScenario):
    """What a hit of `prefix` stored tokens and `suffix` new ones costs, counted; nothing is timed."""

    prefix: int
    suffix: int

    @property
    def id(self) -> str:
        """See Scenario.id."""
        return f"{self.model}-prefix{self.prefix}-suffix{self.suffix}"

    @property
    def group(self) -> str:
        """See Scenario.group."""
        return f"TTFT {self.id}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See Scenario.metrics."""
        return COUNTS

    def build(self) -> HitBench:
        """See BenchScenario.build."""
        return HitBench(self.model, self.prefix, self.suffix)


@dataclass(frozen=True)
class Ttft(HitCost):
    """The same, and timed."""

    # Warm ends, as TTFT does, with the first token; request is the same hit up to where the engine is done, storing
    # included. The floor and the hit make the sensitive metrics and are cheap; cold is dear and visited less often.
    arms: ClassVar[Mapping[str, int]] = {"warm": 1, "request": 1, "floor": 1, "cold": 8}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See Scenario.metrics."""
        return (*COUNTS, EFFICIENCY, REQUEST_EFFICIENCY, SPEEDUP)


@dataclass(frozen=True)
class FirstHit(HitCost):
    """A hit on a prefix that is stored but not hot, timed: it pays one copy."""

    arms: ClassVar[Mapping[str, int]] = {"first": 1, "floor": 1}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See Scenario.metrics."""
        return (*COUNTS, FIRST_HIT_EFFICIENCY)


class HitBench:
    """An engine with one stored prefix. Suffixes never repeat, so that a hit is exactly the prefix."""

    def __init__(self, model: str, prefix: int, suffix: int) -> None:
        self.prefix, self.suffix = prefix, suffix
        self.engine = PrefixCacheEngine(load(model))
        self.prompts = Prompts(model, seed=prefix * 1000 + suffix)
        self.prefix_ids = self.prompts.prefix(prefix)
        self.engine.complete(self.prefix_ids)
        self._latest = self.prefix_ids
        self._asked = self.prefix_ids
        self._visited: set[str] | None = None
        self._answers: dict[str, Completion] = {}

    def count(self) -> Mapping[str, int | float]:
        """The premise, then the costs; three hits to see the difference that a hot prefix makes."""
        counters = self.engine.cache.counters
        warm = self._hit("warm")  # whatever came before, now the prefix is hot
        cold = self.engine.complete(self._latest, reuse=False)
        require_reused("cold", cold, 0, len(self._latest))
        require_agreement("warm against cold", warm, cold)
        at_start = counters()
        self._hit("hot hit")
        after_hot = counters()
        self.engine.cool()
        self._hit("first hit")
        after_first = counters()

        calls = calls_of(self.engine.model, lambda: self.engine.complete(self._prompt()))
        self.engine.cool()
        first = allocations_of(lambda: self.engine.complete(self._prompt()))
        hot = allocations_of(lambda: self.engine.complete(self._prompt()))
        floor = allocations_of(lambda: self.engine.floor(self._prompt(), self.prefix))
        return {
            "prompt tokens run": calls.tokens_run,
            "forward passes": calls.forward_passes,
            "tree nodes visited": after_hot.visited_nodes - at_start.visited_nodes,
            "KV bytes copied, hot hit": after_hot.copied_bytes - at_start.copied_bytes,
            "KV bytes copied, first hit": after_first.copied_bytes - after_hot.copied_bytes,
            "bytes kept by a hit": hot.kept,
            "bytes allocated beyond the floor, hot hit": hot.total - floor.total,
            "bytes allocated beyond the floor, first hit": first.total - floor.total,
            "peak bytes of a hot hit": hot.peak,
            "peak bytes of a first hit": first.peak,
            "operator calls": calls.operators,
            "FLOPs": calls.flops,
        }

    def visit(self, arm: str) -> float:
        """Seconds on one arm; the arms of a round answer the same prompt and must agree."""
        if self._visited is None or arm in self._visited:  # this arm has been visited: a new round has begun
            self._asked, self._visited, self._answers = self._prompt(), set(), {}
        self._visited.add(arm)
        if arm in ("warm", "request"):  # one hit, read at its first token and at its end
            hit = self._answer("warm", self.prefix, self.engine.complete)
            return hit.ttft if arm == "warm" else hit.total
        if arm == "first":
            self.engine.cool()
            return self._answer("first", self.prefix, self.engine.complete).ttft
        if arm == "floor":
            return self._answer("floor", self.prefix, lambda ids: self.engine.floor(ids, self.prefix)).ttft
        if arm == "cold":
            return self._answer("cold", 0, lambda ids: self.engine.complete(ids, reuse=False)).ttft
        raise LookupError(f"there is no arm {arm!r}")

    def _prompt(self) -> Tokens:
        return np.concatenate([self.prefix_ids, self.prompts.fresh(self.suffix)])

    def _hit(self, what: str) -> Completion:
        """A hit on a prompt of its own, since every warm answer stores its suffix; right as the floor is."""
        self._latest = self._prompt()
        completion = self.engine.complete(self._latest)
        require_reused(what, completion, self.prefix, len(self._latest))
        require_agreement(f"{what} against floor", completion, self.engine.floor(self._latest, self.prefix))
        return completion

    def _answer(self, arm: str, reused: int, ask: Callable[[Tokens], Completion]) -> Completion:
        """This round's answer of `arm`, which must agree with those of the others."""
        if arm in self._answers:
            return self._answers[arm]
        completion = ask(self._asked)
        require_reused(arm, completion, reused, len(self._asked))
        for other, answer in self._answers.items():
            require_agreement(f"{arm} against {other}", completion, answer)
        self._answers[arm] = completion
        return completion
