"""The contract between the suites and the gate: what a scenario is and what a worker does with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from perf_gate.metric import Metric


class InvalidPremise(Exception):
    """What a visit was to measure did not happen, e.g. "warm reused 0 of 200 tokens". The scenario is `invalid`."""


@dataclass(frozen=True)
class Scenario(ABC):
    """One thing to measure. A frozen dataclass whose fields are str, int, float, bool or None.

    It is created twice: in the pytest process, where only `id`, `group`, `arms` and `metrics` are asked for (all
    cheap: no model is loaded), and in every worker process, from the same fields, where it is opened and visited.
    Expensive things that scenarios share (a model) belong into cached functions of the suite's module, so that a
    worker loads them once.

    arms: name of each timed arm -> visit it in every k-th round (1 = in every round). Empty: exact metrics only.
    """

    arms: ClassVar[Mapping[str, int]] = {}

    @property
    @abstractmethod
    def id(self) -> str:
        """Short unique name without spaces or '::'; it is the pytest parameter id."""

    @property
    @abstractmethod
    def group(self) -> str:
        """The heading under which pytest-benchmark's table shows it, e.g. "ttft"."""

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics that this scenario yields, exact and sampled; names unique."""

    @abstractmethod
    def open(self) -> None:
        """Build everything that a visit needs; never timed. Called once per worker, before `count` and `visit`."""

    @abstractmethod
    def count(self) -> Mapping[str, int | float]:
        """All exact metrics by name. Raises InvalidPremise."""

    def visit(self, arm: str) -> float:
        """Do what `arm` does once and return its seconds (> 0). Raises InvalidPremise where the premise is broken."""
        raise LookupError(f"{type(self).__name__} has no arm {arm!r}")

    def close(self) -> None:  # noqa: B027  # most scenarios leave it to the collector
        """Drop what `open` built."""

    def fields(self) -> dict[str, Any]:
        """The fields as plain values, to create the same scenario in another process."""
        return asdict(self)
