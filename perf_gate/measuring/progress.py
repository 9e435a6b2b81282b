"""Shows the progress of a run: one live line on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from perf_gate.measurement import Measurement
from perf_gate.metric import Sampled


@dataclass(frozen=True)
class Status:
    """The progress of a run. workers, budget: the maximum of both. seconds: spent so far."""

    workers: int = 0
    budget: float = 0.0
    phase: str = ""
    worker: int = 0
    scenario: str = ""
    rounds: int = 0
    seconds: float = 0.0
    estimate: Measurement | None = None

    def __str__(self) -> str:
        """Return one line, the most important first."""
        parts = [self.phase + (f", worker {self.worker} of at most {self.workers}" if self.worker else "")]
        if self.scenario:
            parts.append(self.scenario.rpartition("::")[2])
        if self.rounds:
            parts.append(f"{self.rounds} rounds")
        if self.estimate is not None and (seen := first_estimate(self.estimate)):
            parts.append(seen)
        parts.append(f"{max(0.0, self.budget - self.seconds):.0f} s left at most")
        return " · ".join(parts)


def first_estimate(measurement: Measurement) -> str:
    """Return the first sampled metric so far, with two standard errors between workers; empty before there is one.

    For display only: the verdict comes from perf_gate.judging.judge.
    """
    for metric in measurement.metrics:
        if isinstance(metric, Sampled):
            return estimate(metric, measurement)
    return ""


def estimate(metric: Sampled, measurement: Measurement) -> str:
    """Return the metric's name and its value so far, with two standard errors if there are several workers."""
    logs = _logs(measurement, metric.numerator)
    if metric.denominator is not None:
        logs = [above - below for above, below in zip(logs, _logs(measurement, metric.denominator), strict=False)]
    if not logs:
        return ""
    centre = math.exp(statistics.fmean(logs))
    if len(logs) < 2:
        return f"{metric.name} {centre:.4g}"
    return f"{metric.name} {centre:.4g} ± {200 * statistics.stdev(logs) / math.sqrt(len(logs)):.1f} %"


def _logs(measurement: Measurement, arm: str) -> list[float]:
    return [math.log(statistics.median(worker)) for worker in measurement.seconds.get(arm, ()) if worker]


class Progress:
    """Shows nothing; the base class of those that do."""

    def __init__(self) -> None:
        """Begin with an empty status."""
        self.status = Status()

    def expect(self, workers: int, budget: float) -> None:
        """Set how many workers and seconds the run takes at most."""
        self.status = replace(self.status, workers=workers, budget=budget)

    def __enter__(self) -> Progress:
        """Begin to show."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""

    def update(
        self,
        *,
        phase: str,
        seconds: float,
        worker: int | None = None,
        scenario: str | None = None,
        rounds: int | None = None,
        estimate: Measurement | None = None,
    ) -> None:
        """Update the status and show it; None leaves a value as it was."""
        self.status = replace(
            self.status,
            phase=phase,
            seconds=seconds,
            worker=self.status.worker if worker is None else worker,
            scenario=self.status.scenario if scenario is None else scenario,
            rounds=self.status.rounds if rounds is None else rounds,
            estimate=self.status.estimate if estimate is None else estimate,
        )
        self.show()

    def show(self) -> None:
        """Show the status."""


class LiveLine(Progress):
    """One line on a terminal, rewritten in place and gone at the end.

    It is drawn between requests and not by a thread, which would disturb the timing.
    """

    def __init__(self, file: TextIO) -> None:
        """Draw on the terminal behind `file`."""
        super().__init__()
        self._live = Live(console=Console(file=file), auto_refresh=False, transient=True)

    def __enter__(self) -> Progress:
        """Start drawing."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the line."""
        self._live.stop()

    def show(self) -> None:
        """Redraw the line."""
        self._live.update(Text(str(self.status), no_wrap=True, overflow="ellipsis"), refresh=True)


class PlainLines(Progress):
    """A line of text every `interval` seconds."""

    def __init__(
        self,
        write_line: Callable[[str], None],
        interval: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write with `write_line`, e.g. a terminal reporter's."""
        super().__init__()
        self._write_line = write_line
        self._interval = interval
        self._clock = clock
        self._last = -math.inf

    def show(self) -> None:
        """Write a line if the interval has passed."""
        now = self._clock()
        if now - self._last >= self._interval:
            self._last = now
            self._write_line(f"perf gate: {self.status}")
