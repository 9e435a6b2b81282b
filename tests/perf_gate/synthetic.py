"""Scenarios without a model: numbers from a seeded generator, and every way to misbehave."""

from __future__ import annotations

import math
import os
import random
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from perf_gate import Better, Exact, InvalidPremise, Metric, Sampled, Scenario

STEP = {"cold": 0.03, "warm": 0.0105, "floor": 0.01}


def first_here(name: str) -> bool:
    """True for the first process that asks, in this directory."""
    try:
        os.close(os.open(f"{name}.taken", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class Synthetic(Scenario):
    size: int = 1
    how: str = ""

    arms: ClassVar[Mapping[str, int]] = {"cold": 2, "warm": 1, "floor": 1}

    @property
    def id(self) -> str:
        return f"size{self.size}"

    @property
    def group(self) -> str:
        return "synthetic"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Exact("tokens", "tokens"),
            Sampled("reuse efficiency", "x", Better.HIGHER, numerator="floor", denominator="warm"),
        )

    def open(self) -> None:
        with Path("pids").open("a") as pids:
            pids.write(f"{os.getpid()}\n")
        sys.stdout.write(f"opening {self.size}\n")
        if self.how == "import":
            import there_is_no_such_module  # type: ignore[import-not-found] # noqa: F401
        object.__setattr__(self, "_random", random.Random(self.size))

    def count(self) -> Mapping[str, Any]:
        tokens = 10 * self.size
        grown = Path("regress").exists()
        if self.how == "varies" and first_here("varies"):
            tokens += 1
        if self.how == "undeclared":
            return {"tokens": tokens, "calls": 3}
        if self.how == "uncounted":
            return {}
        if self.how == "nan count":
            return {"tokens": math.nan}
        return {"tokens": tokens + grown}

    def visit(self, arm: str) -> Any:
        match self.how:
            case "dies" if arm == "warm" and first_here("dies"):
                os.write(1, b"about to die\n")
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs" if first_here("hangs"):
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
                while True:
                    signal.pause()
            case "leaves" if first_here("leaves"):
                raise SystemExit(3)
            case "raises":
                raise RuntimeError("out of luck")
            case "premise" if arm == "warm":
                raise InvalidPremise(f"warm reused 0 of {self.size} tokens")
            case "nan":
                return math.nan
            case "zero":
                return 0.0
            case "word":
                return "fast"
        step = STEP[arm] * (1.25 if arm == "warm" and Path("slow").exists() else 1)
        return step * self._random.lognormvariate(0, 0.02)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Counted(Scenario):
    size: int = 1

    @property
    def id(self) -> str:
        return f"counted{self.size}"

    @property
    def group(self) -> str:
        return "counted"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (Exact("bytes", "B"),)

    def open(self) -> None:
        with Path("pids").open("a") as pids:
            pids.write(f"{os.getpid()}\n")

    def count(self) -> Mapping[str, int]:
        return {"bytes": 1024 * self.size}
