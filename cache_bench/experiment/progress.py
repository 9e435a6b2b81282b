"""How far an experiment is, and how long it will still take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_INTERVAL = 10.0  # seconds between two lines where there is no terminal


class Bar:
    """A bar on a terminal, a line now and then elsewhere; drawn between steps only, lest it disturb what is timed."""

    def __init__(
        self, console: Console, total: float, done: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """total, done: weights of all steps and of those that an earlier run has made."""
        self._console = console
        self._total, self._before, self._done = total, done, done
        self._clock = clock
        self._start = clock()
        self._latest = -math.inf
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %, {task.fields[left]}"),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total, left="")
        self._progress.update(self._task, completed=done)

    def __enter__(self) -> Bar:
        """Begin to show."""
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""
        if self._console.is_terminal:
            self._progress.stop()

    @property
    def left(self) -> str:
        """The time left, from the pace of this run."""
        made = self._done - self._before
        if not made:
            return "time left unknown"
        seconds = round((self._clock() - self._start) * (self._total - self._done) / made)
        return f"{seconds // 60}:{seconds % 60:02d} left"

    def advance(self, weight: float, what: str) -> None:
        """Take in that a step of this weight is made and kept."""
        self._done += weight
        if self._console.is_terminal:
            self._progress.update(self._task, completed=self._done, description=what, left=self.left, refresh=True)
        elif self._clock() - self._latest >= _INTERVAL:
            self._latest = self._clock()
            self._console.print(f"{what}: {100 * self._done / self._total:.0f} %, {self.left}", highlight=False)
