"""What a run measures: quick for every day, full for real weights, floor for how near a hit comes to the attainable."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from cache_bench.model import SMOLLM2
from cache_bench.scenarios.lookup import Lookup
from cache_bench.scenarios.memory import PrefixMemory, SharedMemory
from cache_bench.scenarios.tpot import NEW_TOKENS, DecodeCost, Tpot
from cache_bench.scenarios.ttft import FirstHit, HitCost, Ttft
from perf_gate import Scenario

PREFIXES = (50, 100, 200, 350, 500)
SUFFIXES = (20, 50)
_SPARSE = ((200, 50), (500, 20))
_LOOKUPS = tuple(Lookup(prompt, entries) for prompt in (100, 1_000, 10_000) for entries in (10_000,))


@dataclass(frozen=True)
class Profile:
    """All models are counted at every prefix x suffix. timed: those timed at every one, too; sparsely: at two.

    first: prefix and suffix of the hits on a prefix that is not hot.
    """

    name: str
    timed: tuple[str, ...] = ()
    sparsely: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    prefixes: tuple[int, ...] = PREFIXES
    suffixes: tuple[int, ...] = SUFFIXES
    first: tuple[tuple[int, int], ...] = ((500, 20),)

    @property
    def models(self) -> tuple[str, ...]:
        """Every model of the profile."""
        return (*self.timed, *self.sparsely, *self.counted)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, its answer included."""
        ttft = max(self.prefixes) + max(self.suffixes)
        return max(ttft, *(scenario.context + NEW_TOKENS for scenario in self.tpot()))

    def ttft(self) -> Iterable[Scenario]:
        """Time to first token."""
        for model, prefix, suffix in itertools.product(self.models, self.prefixes, self.suffixes):
            sparsely = model in self.sparsely and (prefix, suffix) in _SPARSE
            yield (Ttft if model in self.timed or sparsely else HitCost)(model, prefix, suffix)

    def first_hit(self) -> Iterable[Scenario]:
        """Time to first token where one copy has to be paid."""
        for model, (prefix, suffix) in itertools.product((*self.timed, *self.sparsely), self.first):
            yield FirstHit(model, prefix, suffix)

    def tpot(self) -> Iterable[DecodeCost]:
        """Time per output token."""
        for model in self.models:
            # Learned positions end at 1024; real text is a little over 700 tokens long.
            context = 500 if model == SMOLLM2 else 1000
            yield (Tpot if model in self.timed else DecodeCost)(model, context)

    def memory(self) -> Iterable[Scenario]:
        """Bytes."""
        for model in self.models:
            yield from (PrefixMemory(model, prefix) for prefix in self.prefixes)
        for model in self.timed:
            yield SharedMemory(model, prefix=200, requests=100)

    def lookup(self) -> Iterable[Scenario]:
        """Matching."""
        return _LOOKUPS


# A hit on the small Llama takes a tenth of the time of one on distilgpt2's shape, so that a minute holds ten times the
# rounds: timing it alone makes the sharper gate. What the larger one costs is counted.
QUICK = Profile("quick", timed=("llama-4m",), counted=("distilgpt2-shape",))
FULL = Profile("full", timed=("llama-4m", "distilgpt2-shape"), sparsely=(SMOLLM2,), counted=("tinystories-1m-shape",))
# How near a hit comes to the floor: both models alike, where one more copy of the prefix would show.
_LONG = (200, 500, 1000)
FLOOR = Profile(
    "floor",
    timed=("llama-4m", "distilgpt2-shape"),
    prefixes=_LONG,
    suffixes=(32,),
    first=tuple((prefix, 32) for prefix in _LONG),
)
PROFILES = {profile.name: profile for profile in (QUICK, FULL, FLOOR)}


def profile_of(name: str, models: tuple[str, ...]) -> Profile:
    """The named profile, or all of its scenarios on `models` where any are given."""
    if models:
        return Profile("+".join(models), timed=models)
    return PROFILES[name]
