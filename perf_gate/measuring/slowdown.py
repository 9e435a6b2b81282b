"""A slowdown that is injected to see whether the gate detects it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from perf_gate.scenario import Scenario


@dataclass(frozen=True)
class InjectedSlowdown:
    """Makes an arm slower by waiting after each of its visits.

    factor: 1.05 = 5 % slower, >= 1. scenario: id of the only scenario that is slowed down; "": every one with
    this arm.
    """

    arm: str
    factor: float
    scenario: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a slowdown that cannot be waited for."""
        if not self.arm:
            raise ValueError("an injected slowdown needs the name of an arm, e.g. warm=1.05")
        if not (math.isfinite(self.factor) and 1 <= self.factor <= 10):
            raise ValueError(f"an injected slowdown is a factor from 1 to 10 (1.05 = 5 % slower), not {self.factor}")

    def shares(self, scenario: Scenario) -> Mapping[str, float]:
        """Return arm -> share of its typical seconds that a worker waits after each visit; empty: no arm of it."""
        concerned = self.arm in scenario.arms and self.scenario in ("", scenario.id)
        return {self.arm: self.factor - 1} if concerned else {}

    def __str__(self) -> str:
        """Return the text that `parse_slowdown` reads, e.g. "warm=1.05@prefix200"."""
        return f"{self.arm}={self.factor:g}" + (f"@{self.scenario}" if self.scenario else "")


def parse_slowdown(text: str) -> InjectedSlowdown:
    """Read ARM=FACTOR or ARM=FACTOR@SCENARIO-ID. Raises ValueError."""
    arm, _, rest = text.partition("=")
    number, _, scenario = rest.partition("@")
    try:
        factor = float(number)
    except ValueError:
        raise ValueError("give ARM=FACTOR, e.g. warm=1.05, or warm=1.05@SCENARIO for one scenario") from None
    return InjectedSlowdown(arm.strip(), factor, scenario.strip())
