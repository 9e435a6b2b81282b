"""Time per output token behind a hit, against transformers' own DynamicCache at the same length of context."""

from __future__ import annotations

from collections.abc import Mapping
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
from perf_gate import Better, Comparable, Exact, InvalidPremise, Metric, Sampled

_SUFFIX = 8
# Timed. A token takes 3 ms, and what disturbs a machine lasts longer than a few of them; a visit pays for its prefill
# anyway.
NEW_TOKENS = 16


COUNTS: tuple[Metric, ...] = (
    Exact("operator calls per output token", "calls", comparable=Comparable.SOFTWARE),
    Exact("bytes allocated per output token", "B", comparable=Comparable.SOFTWARE),
)


@dataclass(frozen=True)
class DecodeCost(BenchScenario):
    """What a token behind `context` tokens of prompt costs, counted; nothing is timed."""

    context: int

    @property
    def id(self) -> str:
        """See Scenario.id."""
        return f"{self.model}-context{self.context}"

    @property
    def group(self) -> str:
        """See Scenario.group."""
        return f"TPOT {self.id}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See Scenario.metrics."""
        return COUNTS

    def build(self) -> TpotBench:
        """See BenchScenario.build."""
        return TpotBench(self.model, self.context)


@dataclass(frozen=True)
class Tpot(DecodeCost):
    """The same, and timed over some tokens."""

    arms: ClassVar[Mapping[str, int]] = {"warm": 1, "cold": 1}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """See Scenario.metrics."""
        return (
            *COUNTS,
            Sampled(
                "TPOT warm / cold",
                "",
                Better.LOWER,
                "warm",
                "cold",
                threshold=0.03,
                resolution=0.1,
                other_machine_threshold=0.06,
            ),
        )


class TpotBench:
    """An engine with the context stored but for its last tokens, which never repeat."""

    def __init__(self, model: str, context: int) -> None:
        self.stored = context - _SUFFIX
        self.engine = PrefixCacheEngine(load(model))
        self.prompts = Prompts(model, seed=context)
        self.prefix_ids = self.prompts.prefix(self.stored)
        self.engine.complete(self.prefix_ids)
        self._asked: Tokens | None = None
        self._answers: dict[str, Completion] = {}

    def count(self) -> Mapping[str, int | float]:
        """Costs of the third token: what a hit and three tokens take beyond a hit and two."""
        prompt = self._prompt()
        warm, cold = self._ask(prompt, "warm"), self._ask(prompt, "cold")
        require_agreement("warm", warm, cold)
        three, two = (self._costs(new_tokens) for new_tokens in (3, 2))
        return {
            "operator calls per output token": three[0] - two[0],
            "bytes allocated per output token": three[1] - two[1],
        }

    def _costs(self, new_tokens: int) -> tuple[int, int]:
        """(operator calls, bytes allocated) of a hit and so many tokens."""

        def work() -> None:
            self.engine.complete(self._prompt(), new_tokens=new_tokens)

        return calls_of(self.engine.model, work).operators, allocations_of(work).total

    def visit(self, arm: str) -> float:
        """Seconds per output token; both arms of a round decode behind the same prompt and must agree.

        On the first token: later ones may part ways at a near tie.
        """
        if arm not in ("warm", "cold"):
            raise LookupError(f"there is no arm {arm!r}")
        if self._asked is None or arm in self._answers:
            self._asked, self._answers = self._prompt(), {}
        completion = self._ask(self._asked, arm)
        for other, answer in self._answers.items():
            require_agreement(f"{arm} against {other}", completion, answer)
        self._answers[arm] = completion
        return completion.tpot

    def _prompt(self) -> Tokens:
        return np.concatenate([self.prefix_ids, self.prompts.fresh(_SUFFIX)])

    def _ask(self, prompt: Tokens, arm: str) -> Completion:
        completion = self.engine.complete(prompt, new_tokens=NEW_TOKENS, reuse=arm == "warm")
        require_reused(arm, completion, self.stored if arm == "warm" else 0, len(prompt))
        if len(completion.tokens) != NEW_TOKENS:
            raise InvalidPremise(f"{arm} gave {len(completion.tokens)} of {NEW_TOKENS} tokens")
        return completion
