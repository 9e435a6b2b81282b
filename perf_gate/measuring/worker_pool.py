"""Starts worker processes, sends them requests, and ends every one of them.

The processes are execnet popen gateways. They have to be started from a thread that lives as long as they do: the
kernel ties a worker to the thread that started it (PR_SET_PDEATHSIG, see perf_gate.measuring.worker.die_with).
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import execnet

from perf_gate.folder import LOGS, TemporaryFolder

# Hash seed and thread counts change what is measured, so they are set before the interpreter starts.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Settings of the allocator that a shell may have. They are removed, so that every worker runs with the C library's
# defaults.
ALLOCATOR_VARIABLES = (
    "GLIBC_TUNABLES",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_PERTURB_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
)

BOOT_SECONDS = 60.0

CANDIDATE = "candidate"
BASE = "base"

# Where the gate itself is imported from: the same one on both sides of a comparison.
GATE = str(Path(__file__).resolve().parents[2])
# Another interpreter has a sys.path of its own; `None` in the path that is sent means that one. The gate is imported
# before the path is set, so that its folder need not be on it.
BOOTSTRAP = """
import sys
path, parent, gate = channel.receive()
own = list(sys.path)
sys.path.insert(0, gate)
from perf_gate.measuring.worker import serve
sys.path[:] = [each for entry in path for each in (own if entry is None else [entry])]
serve(channel, parent)
"""

# Standard error is redirected and the directory entered before the interpreter starts, in the same process.
SHELL = 'cd "$0" && exec 2>>"$1" && shift && exec "$@"'


class LostWorkerError(Exception):
    """A worker died, hung or sent an invalid answer. It has ended by now; the message says what happened."""


class FailedScenarioError(Exception):
    """The scenario failed in a worker that is still alive. kind: see perf_gate.measuring.worker.ScenarioHost.answer."""

    def __init__(self, message: str, kind: str, traceback: str) -> None:
        """Keep message, kind and the text of the traceback."""
        super().__init__(message)
        self.kind = kind
        self.traceback = traceback


@dataclass(frozen=True)
class Side:
    """Which code a worker runs.

    directory: project root; the worker runs in it and imports from it first. python: the interpreter. path: what
    follows the directory on sys.path (default: as in this process; None: the interpreter's own). homes: import name ->
    folder, for the packages under test, which are imported from there and from nowhere else.
    """

    directory: Path
    name: str = CANDIDATE
    python: str = sys.executable
    path: tuple[str, ...] | None = field(
        default_factory=lambda: tuple(str(Path(entry).absolute()) for entry in sys.path)
    )
    homes: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole_path(self) -> list[str | None]:
        """The worker's sys.path; None means the interpreter's own entries."""
        first = str(self.directory)
        return [first, None] if self.path is None else [first, *(entry for entry in self.path if entry != first)]


@dataclass(frozen=True)
class Conditions:
    """What is fixed for every worker of a run.

    threads: of each numeric library. deadline: seconds that any single request may take.
    """

    threads: int = 1
    deadline: float = 300.0

    def __post_init__(self) -> None:
        """Raise ValueError for impossible values."""
        if self.threads < 1:
            raise ValueError(f"a worker runs with at least 1 thread, not {self.threads}")
        if not (math.isfinite(self.deadline) and self.deadline > 0):
            raise ValueError(f"the deadline of a request is a number of seconds > 0, not {self.deadline}")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a worker, in addition to those of this process."""
        fixed = dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        fixed |= {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
        if "HF_HUB_OFFLINE" in os.environ:
            fixed["HF_HUB_OFFLINE"] = os.environ["HF_HUB_OFFLINE"]
        return fixed


class Worker:
    """One worker process. `ask` and `receive` are separate, so that several workers can work in parallel."""

    def __init__(self, number: int, side: Side, conditions: Conditions, log: Path, bootstrap: str = BOOTSTRAP) -> None:
        """Start the process. Raises LostWorkerError if it does not start. log: file for everything that it prints."""
        self.number = number
        self.side = side
        self.pid = 0
        self._conditions = conditions
        self._log = log
        self._pending: Mapping[str, Any] = {"ask": "start"}
        self._group = execnet.Group()
        try:
            self._gateway = self._group.makegateway(self._spec())
            self._channel = self._gateway.remote_exec(bootstrap)
            self._channel.send((side.whole_path, os.getpid(), GATE))
        except (EOFError, OSError, execnet.HostNotFound) as error:
            self._group.terminate(timeout=1.0)
            raise LostWorkerError(f"{self} did not start ({side.python}): {error}{self.tail()}") from error
        except BaseException:
            self._group.terminate(timeout=1.0)
            raise

    def __str__(self) -> str:
        """Return its name for messages."""
        return f"worker {self.number} ({self.side.name})"

    def _spec(self) -> execnet.XSpec:
        unset = [part for name in ALLOCATOR_VARIABLES for part in ("-u", name)]
        fixed = [f"{name}={value}" for name, value in self._conditions.environment.items()]
        spec = execnet.XSpec("popen//execmodel=main_thread_only")
        shell = ["sh", "-c", SHELL, str(self.side.directory), str(self._log)]
        spec.python = shlex.join([*shell, "env", *unset, *fixed, self.side.python])
        return spec

    def ask(self, ask: str, **details: object) -> None:
        """Send a request; `receive` waits for its answer. Raises LostWorkerError."""
        self._pending = {"ask": ask, **details}
        try:
            self._channel.send(self._pending)
        except OSError as error:
            raise self._lost(f"died before it could be sent {ask!r}") from error

    def receive(self, deadline: float | None = None) -> dict[str, Any]:
        """Wait for the answer to the last request, at most `deadline` seconds (None: that of the conditions).

        Raises FailedScenarioError if the scenario failed, LostWorkerError if the worker did.
        """
        ask = self._pending["ask"]
        seconds = self._conditions.deadline if deadline is None else deadline
        try:
            answer = self._channel.receive(timeout=seconds)
        except self._channel.TimeoutError as error:
            raise self._lost(f"did not answer {ask!r} within {seconds:g} s and was killed") from error
        except EOFError as error:
            raise self._lost(f"died during {ask!r}") from error
        except execnet.RemoteError as error:
            raise self._lost(f"failed during {ask!r}: {error}") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
            raise self._lost(f"sent an invalid answer to {ask!r}: {answer!r:.200}")
        if not answer["ok"]:
            raise FailedScenarioError(answer["message"], answer["kind"], answer["traceback"])
        return answer

    def request(self, ask: str, **details: object) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.ask(ask, **details)
        return self.receive()

    def send_hello(self) -> None:
        """Send the first request, with the homes of the subject. `receive_hello` is separate, so that several
        interpreters start in parallel."""
        environment = [*self._conditions.environment, *ALLOCATOR_VARIABLES]
        self.ask("hello", environment=environment, homes=dict(self.side.homes))

    def receive_hello(self) -> dict[str, Any]:
        """Return pid, Python version and environment of the worker. Raises LostWorkerError."""
        # The deadline is for scenarios; an interpreter on a busy machine may take longer to start.
        try:
            hello = self.receive(max(BOOT_SECONDS, self._conditions.deadline))
        except FailedScenarioError as error:
            raise self._lost(f"cannot start: {error}") from error
        self.pid = hello["pid"]
        return hello

    def bad_answer(self, answer: object) -> LostWorkerError:
        """Kill a worker whose answer has the wrong content; return the error to raise."""
        return self._lost(f"sent an invalid answer to {self._pending['ask']!r}: {answer!r:.200}")

    def _lost(self, what: str) -> LostWorkerError:
        status = self.kill()
        if status is not None and status < 0:
            what += f" (signal {-status}: {signal.Signals(-status).name})"
        elif status:
            what += f" (exit status {status})"
        return LostWorkerError(f"{self} {what}{self.tail()}")

    def tail(self, lines: int = 8) -> str:
        """Return the last lines that the worker printed, for a message; empty if there are none."""
        try:
            text = self._log.read_text(errors="replace").strip()
        except OSError:
            text = ""
        return f"\nlast lines of its output:\n{chr(10).join(text.splitlines()[-lines:])}" if text else ""

    def kill(self) -> int | None:
        """Kill the process, wait for it, and return its status as subprocess does."""
        io = self._gateway._io
        io.kill()
        status: int | None = io.wait()
        self._group.terminate(timeout=1.0)
        return status

    def close(self) -> None:
        """Let the process end; kill it after two seconds."""
        self._channel.close()
        self._group.terminate(timeout=2.0)


class WorkerPool:
    """Starts workers. A context manager: all of them have ended when it is left, whatever the reason."""

    def __init__(self, conditions: Conditions, bootstrap: str = BOOTSTRAP) -> None:
        """Start nothing before `start`."""
        self.conditions = conditions
        self.started = 0
        self._bootstrap = bootstrap
        self._running: list[Worker] = []
        self._logs = TemporaryFolder(prefix=LOGS)

    def __enter__(self) -> WorkerPool:
        """Create the folder for what the workers print."""
        self._logs.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all workers: let them finish after success, kill them after an error or Ctrl-C."""
        for worker in list(self._running):
            self._running.remove(worker)
            if kind is None:
                worker.close()
            else:
                worker.kill()
        self._logs.__exit__(kind, error, trace)

    @property
    def running(self) -> Sequence[Worker]:
        """The workers that were started and not stopped."""
        return tuple(self._running)

    def start(self, sides: Sequence[Side]) -> list[Worker]:
        """Start one worker per side, all in parallel. Raises LostWorkerError if one does not start."""
        batch = []
        for side in sides:
            self.started += 1
            log = self._logs.path / f"worker{self.started}.log"
            worker = Worker(self.started, side, self.conditions, log, self._bootstrap)
            self._running.append(worker)
            batch.append(worker)
        for worker in batch:
            worker.send_hello()
        for worker in batch:
            worker.receive_hello()
        return batch

    def stop(self, workers: Sequence[Worker]) -> None:
        """Let `workers` end."""
        for worker in workers:
            if worker in self._running:
                self._running.remove(worker)
                worker.close()

    def discard(self, worker: Worker) -> None:
        """Remove a worker that is lost."""
        if worker in self._running:
            self._running.remove(worker)
