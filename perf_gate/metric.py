"""What is measured: a named number with a unit, a direction and a class, and how far its reference travels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """The direction in which a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


class Comparable(StrEnum):
    """How far a reference value remains comparable."""

    ANYWHERE = "anywhere"
    SOFTWARE = "same software"
    MACHINE = "same machine class"


@dataclass(frozen=True)
class Exact:
    """A counted metric without noise, compared by equality.

    name: unique within its scenario. unit: e.g. "tokens", "B", "calls", "FLOP".
    """

    name: str
    unit: str
    better: Better = Better.LOWER
    comparable: Comparable = Comparable.ANYWHERE


@dataclass(frozen=True)
class Sampled:
    """A timed metric, judged by a confidence interval on its logarithm.

    Its value is `seconds(numerator)`, or `seconds(numerator) / seconds(denominator)` where a denominator is given;
    both are names of arms.

    allowance: relative change for the worse that is nobody's business (0.01 = 1 %); an alarm needs the interval to
        lie clear of it.
    resolution: relative change for the worse that a run must be able to rule out before it may say `pass`.
    floor: absolute change, in `unit`, below which nothing is an alarm.
    elsewhere: the allowance to use where the reference comes from another machine class; None: not comparable there.
    beside: the allowance to use against a base that is measured in the same run; None: a share of `allowance`, see
        perf_gate.judging.policy.Policy.paired_share.
    """

    name: str
    unit: str
    better: Better
    numerator: str
    denominator: str | None = None
    threshold: float = 0.01
    resolution: float = 0.03
    absolute_threshold: float = 0.0
    comparable: Comparable = Comparable.MACHINE
    other_machine_threshold: float | None = None
    paired_threshold: float | None = None

    def __post_init__(self) -> None:
        """Refuse impossible limits."""
        if not 0 < self.threshold < self.resolution:
            raise ValueError(
                f"metric {self.name!r}: needs 0 < threshold < resolution, not {self.threshold} and {self.resolution}"
            )
        if self.paired_threshold is not None and not self.paired_threshold > 0:
            raise ValueError(f"metric {self.name!r}: paired_threshold is > 0, not {self.paired_threshold}")
        if self.absolute_threshold < 0:
            raise ValueError(f"metric {self.name!r}: absolute_threshold is >= 0, not {self.absolute_threshold}")


Metric = Exact | Sampled
