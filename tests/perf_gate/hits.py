"""A scenario whose figures come from a package `engine`, which differs between two revisions of a project."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from perf_gate import Better, Exact, InvalidPremise, Metric, Sampled, Scenario


@dataclass(frozen=True)
class Hit(Scenario):
    size: int = 1

    arms: ClassVar[Mapping[str, int]] = {"warm": 1, "floor": 1}

    @property
    def id(self) -> str:
        return f"size{self.size}"

    @property
    def group(self) -> str:
        return "hits"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Exact("copies", "copies"),
            Sampled("reuse efficiency", "", Better.HIGHER, "floor", "warm", threshold=0.02, resolution=0.06),
        )

    def open(self) -> None:
        import engine  # type: ignore[import-not-found]

        with Path("seen").open("a") as seen:
            seen.write(f"{engine.__file__}\n")
        object.__setattr__(self, "_engine", engine)
        object.__setattr__(self, "_random", random.Random(self.size))

    def count(self) -> Mapping[str, Any]:
        return {"copies": self._engine.copies(self.size)}  # type: ignore[attr-defined]

    def visit(self, arm: str) -> float:
        if arm == "warm" and not self._engine.REUSES:  # type: ignore[attr-defined]
            raise InvalidPremise("warm reused 0 of 8 tokens")
        with Path("visits").open("a") as visits:
            visits.write(f"{self._engine.NAME} {arm}\n")  # type: ignore[attr-defined]
        step = 0.010 * (self._engine.SLOWER if arm == "warm" else 1.0)  # type: ignore[attr-defined]
        return float(step * self._random.lognormvariate(0, 0.02))  # type: ignore[attr-defined]
