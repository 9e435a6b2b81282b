"""Worker processes seen from outside: started, asked, and never left behind.

The processes are execnet popen gateways. They must be started from a thread that lives as long as they do:
the kernel ties a worker to the thread that started it (PR_SET_PDEATHSIG, see perf_gate.measuring.worker.die_with).
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

# Hash seed and thread counts change what is measured, so they are fixed before the interpreter starts.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Settings of the allocator that a shell may carry: without them every worker runs with the C library's
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
# An interpreter of its own has a sys.path of its own; `None` in the path that is sent stands for it. The gate is
# imported ahead of it, or the gate's whole neighbourhood would have to be on it.
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
    """A worker died, hung or answered nonsense. It is dead by now; the text says what was seen of it."""


class FailedScenarioError(Exception):
    """The worker is well, but the scenario is not: the text says why, `kind` is that of
    perf_gate.measuring.worker.Stage.answer."""

    def __init__(self, message: str, kind: str, traceback: str) -> None:
        """Keep the kind and the traceback's text beside the message."""
        super().__init__(message)
        self.kind = kind
        self.traceback = traceback


@dataclass(frozen=True)
class Side:
    """Whose code runs in a worker.

    directory: project root; the worker runs in it and imports from it first.
    python: the interpreter. path: what follows the directory on sys.path (default: as in this process; None: what
    the interpreter has of its own).
    homes: import name -> folder, for packages that must come from there and from nowhere else: the subject.
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
        """What sys.path is to be; None stands for the interpreter's own entries."""
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
        """Refuse impossible conditions."""
        if self.threads < 1:
            raise ValueError(f"a worker runs with at least 1 thread, not {self.threads}")
        if not (math.isfinite(self.deadline) and self.deadline > 0):
            raise ValueError(f"the deadline of a request is a number of seconds > 0, not {self.deadline}")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a worker starts with, over those of this process."""
        fixed = dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        fixed |= {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
        if "HF_HUB_OFFLINE" in os.environ:
            fixed["HF_HUB_OFFLINE"] = os.environ["HF_HUB_OFFLINE"]
        return fixed


class Worker:
    """One worker process. `ask` and `hear` are apart so that several workers can be busy at once."""

    def __init__(self, number: int, side: Side, conditions: Conditions, log: Path, bootstrap: str = BOOTSTRAP) -> None:
        """Start the process; raises LostWorkerError where it does not come up. `log` takes all that it
        prints."""
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
        """Name it as in messages."""
        return f"worker {self.number} ({self.side.name})"

    def _spec(self) -> execnet.XSpec:
        unset = [part for name in ALLOCATOR_VARIABLES for part in ("-u", name)]
        fixed = [f"{name}={value}" for name, value in self._conditions.environment.items()]
        spec = execnet.XSpec("popen//execmodel=main_thread_only")
        shell = ["sh", "-c", SHELL, str(self.side.directory), str(self._log)]
        spec.python = shlex.join([*shell, "env", *unset, *fixed, self.side.python])
        return spec

    def ask(self, ask: str, **details: object) -> None:
        """Hand over a request; `hear` waits for its answer. Raises LostWorkerError."""
        self._pending = {"ask": ask, **details}
        try:
            self._channel.send(self._pending)
        except OSError as error:
            raise self._lost(f"died before it was asked to {ask}") from error

    def receive(self, deadline: float | None = None) -> dict[str, Any]:
        """Wait for the answer to the last request, at most `deadline` seconds (None: as the conditions say).

        Raises FailedScenarioError where the scenario failed, LostWorkerError where the worker did.
        """
        ask = self._pending["ask"]
        seconds = self._conditions.deadline if deadline is None else deadline
        try:
            answer = self._channel.receive(timeout=seconds)
        except self._channel.TimeoutError as error:
            raise self._lost(f"gave no answer to {ask!r} within {seconds:g} s and was killed") from error
        except EOFError as error:
            raise self._lost(f"died while busy with {ask!r}") from error
        except execnet.RemoteError as error:
            raise self._lost(f"broke down while busy with {ask!r}: {error}") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
            raise self._lost(f"answered {ask!r} with nonsense: {answer!r:.200}")
        if not answer["ok"]:
            raise FailedScenarioError(answer["message"], answer["kind"], answer["traceback"])
        return answer

    def request(self, ask: str, **details: object) -> dict[str, Any]:
        """Ask and hear."""
        self.ask(ask, **details)
        return self.receive()

    def send_hello(self) -> None:
        """Say where the subject comes from and ask for the worker's name, to `hear_greeting`; apart so that several
        interpreters start side by side."""
        environment = [*self._conditions.environment, *ALLOCATOR_VARIABLES]
        self.ask("hello", environment=environment, homes=dict(self.side.homes))

    def receive_hello(self) -> dict[str, Any]:
        """Return pid, Python version and environment of the worker. Raises LostWorkerError."""
        # The deadline is for scenarios; an interpreter on a busy machine may take longer to come up.
        try:
            hello = self.receive(max(BOOT_SECONDS, self._conditions.deadline))
        except FailedScenarioError as error:
            raise self._lost(f"cannot begin: {error}") from error
        self.pid = hello["pid"]
        return hello

    def bad_answer(self, answer: object) -> LostWorkerError:
        """Kill the worker that gave a well-formed but senseless answer; return what to raise."""
        return self._lost(f"answered {self._pending['ask']!r} with nonsense: {answer!r:.200}")

    def _lost(self, what: str) -> LostWorkerError:
        status = self.kill()
        if status is not None and status < 0:
            what += f" (signal {-status}: {signal.Signals(-status).name})"
        elif status:
            what += f" (exit status {status})"
        return LostWorkerError(f"{self} {what}{self.tail()}")

    def tail(self, lines: int = 8) -> str:
        """The last lines that the worker printed, to be appended to a message; empty where it was silent."""
        try:
            text = self._log.read_text(errors="replace").strip()
        except OSError:
            text = ""
        return f"\nlast lines of its output:\n{chr(10).join(text.splitlines()[-lines:])}" if text else ""

    def kill(self) -> int | None:
        """End the process at once, wait for it, and return its status as subprocess does."""
        io = self._gateway._io
        io.kill()
        status: int | None = io.wait()
        self._group.terminate(timeout=1.0)
        return status

    def close(self) -> None:
        """Let the process end; kill it where it has not ended after two seconds."""
        self._channel.close()
        self._group.terminate(timeout=2.0)


class WorkerPool:
    """Starts workers and, as a context manager, takes every one of them down on the way out, whatever the
    reason."""

    def __init__(self, conditions: Conditions, bootstrap: str = BOOTSTRAP) -> None:
        """Nothing is started before `hire`."""
        self.conditions = conditions
        self.started = 0
        self._bootstrap = bootstrap
        self._running: list[Worker] = []
        self._logs = TemporaryFolder(prefix=LOGS)

    def __enter__(self) -> WorkerPool:
        """Make room for what the workers print; nothing is started before `hire`."""
        self._logs.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take all down: gently after success, at once after an error or Ctrl-C."""
        for worker in list(self._running):
            self._running.remove(worker)
            if kind is None:
                worker.close()
            else:
                worker.kill()
        self._logs.__exit__(kind, error, trace)

    @property
    def running(self) -> Sequence[Worker]:
        """The workers that were hired and not dismissed."""
        return tuple(self._running)

    def start(self, sides: Sequence[Side]) -> list[Worker]:
        """Start one worker per side, all booting at the same time. Raises LostWorkerError where one does not
        come up."""
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
        """Drop a worker that is lost already."""
        if worker in self._running:
            self._running.remove(worker)
