"""Real runs for calibration: run a command many times and keep its samples. If interrupted, finished runs are kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from perf_gate.calibration.pool import CalibrationError
from perf_gate.measuring.slowdown import InjectedSlowdown
from perf_gate.records.runfile import load_run
from perf_gate.records.section import RecordError

EACH = "each"
# It ends with its parent, whose process id it is given, so that it never outlives a loop that was killed.
BURN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(10000))"


@dataclass(frozen=True)
class RealRuns:
    """A loop of real runs.

    command: e.g. ("pytest", "perf_tests"). folder: for their samples. count: number of runs. injected: the slowdown of
    every run; its scenario "each" means one of `scenarios` (ids) per run, in turn. neighbour: seconds that a run takes:
    one core is kept busy from a quarter to three quarters of that; None: never. paired: whether the runs have a base.
    """

    command: tuple[str, ...]
    folder: Path
    count: int
    injected: InjectedSlowdown | None = None
    scenarios: tuple[str, ...] = ()
    neighbour: float | None = None
    paired: bool = False

    def injected_into(self, number: int) -> InjectedSlowdown | None:
        """Return the slowdown of a run, which is given by its number from 0."""
        if self.injected is None or self.injected.scenario != EACH:
            return self.injected
        return replace(self.injected, scenario=self.scenarios[number % len(self.scenarios)])

    def file(self, number: int) -> Path:
        """Return the path of the samples of a run, which is given by its number from 0."""
        kind = "run" if self.injected is None else f"injected-{self.injected.arm}-{self.injected.factor:g}"
        where = f"-{self.injected.scenario}" if self.injected is not None and self.injected.scenario else ""
        return self.folder / f"{kind}{where}{'' if self.neighbour is None else '-neighbour'}-{number + 1:03}.json"

    def run(self, log: Callable[[str], None]) -> list[Path]:
        """Make the missing runs and return all files. log: called with one line per run.

        Raises CalibrationError if a run leaves no samples. Its exit status does not matter: with an injected slowdown
        it should be red.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        files, took = [], list[float]()
        for number in range(self.count):
            file = self.file(number)
            files.append(file)
            if self._kept(number):
                log(f"run {number + 1} of {self.count}: {file} exists")
                continue
            missing = sum(not self._kept(later) for later in range(number, self.count))
            left = f", about {median(took) * missing / 60:.0f} min left" if took else ""
            log(f"run {number + 1} of {self.count} starts{left}: {file}")
            began = time.monotonic()
            self._make(number, file)
            took.append(time.monotonic() - began)
        return files

    def _kept(self, number: int) -> bool:
        injected = self.injected_into(number)
        try:
            run = load_run(self.file(number))
        except RecordError:
            return False
        return run.paired is self.paired and run.injected == ("" if injected is None else str(injected))

    def _make(self, number: int, file: Path) -> None:
        injected = self.injected_into(number)
        options = [f"--gate-samples={file.absolute()}", f"--gate-seed={number}"]
        options += [] if injected is None else [f"--gate-inject={injected}"]
        log = file.with_suffix(".log")
        file.unlink(missing_ok=True)  # damaged, or of another slowdown
        try:
            with log.open("w", encoding="utf-8") as output:
                undisturbed = _spawn([*self.command, *options], output.fileno(), self.neighbour)
        except OSError as error:
            raise CalibrationError(f"{self.command[0]!r} cannot be run: {error}") from error
        if undisturbed:
            file.unlink(missing_ok=True)
            raise CalibrationError(
                f"run {number + 1} ended before three quarters of {self.neighbour:g} s were over, so one core was not "
                f"kept busy for the time asked for: give --neighbour the seconds that a run takes (its output: {log})"
            )
        if not self._kept(number):
            tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
            raise CalibrationError(
                f"run {number + 1} of {' '.join(self.command)} wrote no samples "
                f"{'with' if self.paired else 'without'} a base to {file}: fix what its output shows and start again "
                f"(finished runs are kept)\n{tail}"
            )


def _spawn(command: Sequence[str], output: int, neighbour: float | None) -> bool:
    """Run a command to its end, with another busy process in its middle half. Both have ended when this returns.

    Returns whether there should have been a busy process and the command ended before it did.
    """
    with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:  # noqa: S603 - the user's own
        try:
            if neighbour is not None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(neighbour / 4)
                    return True
                _burn(process, neighbour / 2)
            early = neighbour is not None and process.poll() is not None
            process.wait()
        except BaseException:
            process.terminate()
            raise
    return early


def _burn(process: subprocess.Popen[bytes], seconds: float) -> None:
    with subprocess.Popen([sys.executable, "-c", BURN, str(os.getpid())]) as burner:  # noqa: S603 - our own constant
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
        finally:
            burner.kill()
