"""Metrics: named numbers with a unit and a direction, and what their baselines are comparable with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """The direction in which a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


class Comparable(StrEnum):
    """Between which runs the values of a metric are comparable."""

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

    threshold: largest relative change for the worse that is accepted (0.01 = 1 %). The metric is `regressed` if the
        whole interval lies above it.
    resolution: relative change for the worse that a run must rule out before it says `pass`.
    absolute_threshold: absolute change, in `unit`, that is accepted whatever it is as a share.
    other_machine_threshold: threshold against a record of another machine class; None: not comparable there.
    paired_threshold: threshold against a base that is measured in the same run; None: a share of `threshold`, see
        perf_gate.judging.policy.Policy.paired_threshold_share.
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
