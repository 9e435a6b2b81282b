"""A scenario is a description; its bench is what it has built in a worker: model, engine, prompts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from perf_gate import Scenario


class Bench(Protocol):
    """What stands ready between `open` and `close`."""

    def count(self) -> Mapping[str, int | float]:
        """See Scenario.count."""

    def visit(self, arm: str) -> float:
        """See Scenario.visit."""


@dataclass(frozen=True)
class BenchScenario(Scenario):
    """Hands everything over to the bench that `build` makes."""

    model: str

    @abstractmethod
    def build(self) -> Bench:
        """Everything that a visit needs."""

    def open(self) -> None:
        """See Scenario.open."""
        object.__setattr__(self, "_bench", self.build())  # not a field: two equal descriptions stay equal

    def close(self) -> None:
        """See Scenario.close."""
        object.__setattr__(self, "_bench", None)

    def count(self) -> Mapping[str, int | float]:
        """See Scenario.count."""
        return self._opened().count()

    def visit(self, arm: str) -> float:
        """See Scenario.visit."""
        return self._opened().visit(arm)

    def _opened(self) -> Bench:
        bench: Bench | None = getattr(self, "_bench", None)
        if bench is None:
            raise RuntimeError(f"{type(self).__name__} {self.id} was not opened")
        return bench
