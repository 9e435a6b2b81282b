"""The interface between suites and gate: what a scenario is and what a worker does with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from perf_gate.metric import Metric


class InvalidPremise(Exception):
    """A visit did not measure what it should, e.g. "warm reused 0 of 200 tokens". The scenario becomes `invalid`."""


@dataclass(frozen=True)
class Scenario(ABC):
    """One thing to measure. A frozen dataclass whose fields are str, int, float, bool or None.

    The pytest process creates it and reads only `id`, `group`, `arms` and `metrics`, which have to be cheap: no model
    is loaded there. Every worker process creates it again from the same fields, opens it and visits its arms. Put what
    scenarios share (a model) into cached functions of a module, so that a worker loads it once.

    arms: name of each timed arm -> k, to visit it in every k-th round (1: in every round). Empty: exact metrics only.
    """

    arms: ClassVar[Mapping[str, int]] = {}

    @property
    @abstractmethod
    def id(self) -> str:
        """Short unique name without spaces or '::'; the pytest parameter id."""

    @property
    @abstractmethod
    def group(self) -> str:
        """Heading in pytest-benchmark's table, e.g. "ttft"."""

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics of this scenario, exact and sampled, with unique names."""

    @abstractmethod
    def open(self) -> None:
        """Build everything that a visit needs. Called once per worker, before `count` and `visit`; never timed."""

    @abstractmethod
    def count(self) -> Mapping[str, int | float]:
        """Return all exact metrics by name. Raises InvalidPremise."""

    def visit(self, arm: str) -> float:
        """Run `arm` once and return its seconds (> 0). Raises InvalidPremise if the premise does not hold."""
        raise LookupError(f"{type(self).__name__} has no arm {arm!r}")

    def close(self) -> None:  # noqa: B027  # most scenarios leave it to the garbage collector
        """Drop what `open` built."""

    def fields(self) -> dict[str, Any]:
        """Return the fields as plain values, to create the same scenario in another process."""
        return asdict(self)
