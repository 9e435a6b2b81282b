"""The code that runs in a worker process: opens scenarios, counts and visits them, and answers with plain data.

It knows nothing of pytest, statistics or records. Each request comes over the channel as a dict of builtins and is
answered by one dict. What a scenario raises is returned as data, so that the parent has to notice only a worker that
died or hangs.
"""

from __future__ import annotations

import bisect
import ctypes
import gc
import importlib
import importlib.util
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import ModuleType
from typing import Any, Protocol

from perf_gate.measuring.order import balanced_orders
from perf_gate.measuring.subject_finder import install_finder, require_own
from perf_gate.scenario import InvalidPremise, Scenario

PR_SET_PDEATHSIG = 1  # linux/prctl.h
CLOCK_DIGITS = 10  # of a second; no clock is finer, and a record need not store the noise of a subtraction


class Channel(Protocol):
    """The part of an execnet channel that a worker uses."""

    def send(self, item: object, /) -> None:
        """Send `item`, made of builtins only, to the parent."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the parent's requests until it closes the channel."""


class BadValueError(Exception):
    """A scenario returned something that is not a valid number (not finite, a time of zero)."""


@dataclass
class OpenScenario:
    """A scenario that is open, with the orders in which to visit its arms.

    injected: arm -> share of its typical seconds to wait after each visit. clean: arm -> seconds of its visits so far
    without that wait, sorted; only for arms in `injected`.
    """

    scenario: Scenario
    orders: Iterator[tuple[str, ...]]
    rounds: int = 0
    where: str = ""
    injected: Mapping[str, float] = field(default_factory=dict)
    clean: dict[str, list[float]] = field(default_factory=dict)

    @property
    def frequent(self) -> list[str]:
        """The arms that are visited most often."""
        arms = self.scenario.arms
        return [arm for arm, every in arms.items() if every == min(arms.values())]

    def visit(self, arm: str) -> float:
        """Visit an arm and return its seconds, an injected wait included. Raises BadValueError and what it raises."""
        seconds = checked_seconds(self.scenario.visit(arm))
        if arm not in self.injected:
            return seconds
        clean = self.clean.setdefault(arm, [])
        bisect.insort(clean, seconds)
        # A share of the median, so that one disturbed visit does not wait longer than the others.
        return seconds + spin(self.injected[arm] * clean[len(clean) // 2])


@dataclass
class ScenarioHost:
    """All scenarios that are open in this process, by full name. homes: see Side.homes."""

    opened: dict[str, OpenScenario] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run `request["ask"]` and return {"ok": True, ...} or {"ok": False, "kind", "message", "traceback"}.

        kind is "premise" (InvalidPremise), "value" (an invalid number), "import" or "error" (anything else); message
        names arm and round if there is one; traceback is text.
        """
        asks: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "hello": self.hello,
            "open": self.open,
            "count": self.count,
            "rounds": self.rounds,
            "close": self.close,
        }
        try:
            return {"ok": True, **asks[request["ask"]](request)}
        except Exception as error:  # noqa: BLE001 - whatever a scenario raises belongs to the parent, as data
            return self._failure(request, error)

    def _failure(self, request: Mapping[str, Any], error: Exception) -> dict[str, Any]:
        kinds: dict[type[Exception], str] = {
            InvalidPremise: "premise",
            BadValueError: "value",
            ImportError: "import",
        }
        kind = next((word for type_, word in kinds.items() if isinstance(error, type_)), "error")
        name = type(error).__name__
        message = str(error) if kind in ("premise", "value") else f"{name}: {error}" if str(error) else name
        opened = self.opened.get(request.get("name", ""))
        return {
            "ok": False,
            "kind": kind,
            "message": message + (opened.where if opened else ""),
            "traceback": "".join(traceback.format_exception(error)),
        }

    def hello(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return pid, Python version and the environment variables asked for. homes: see Side.homes."""
        self.homes = request.get("homes", {})
        install_finder(self.homes)
        return {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "environment": {name: os.environ.get(name) for name in request["environment"]},
        }

    def open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Create the scenario from its fields, open it, and visit it unrecorded for `warmups` rounds, rare arms once.

        Returns the seconds that the last warm-up visit of each arm took, all of it (not what the arm
        reports): what a visit costs of the budget.
        """
        name = request["name"]
        kind = find(request["module"], request["qualname"], request["file"])
        scenario = kind(**request["fields"])
        opened = self.opened[name] = OpenScenario(scenario, balanced_orders(scenario.arms, request["seed"]))
        opened.injected = request.get("slowdown", {})
        opened.where = " (while opening)"
        scenario.open()
        require_own(self.homes)
        cost = {}
        for warmup in range(request["warmups"]):
            for arm in opened.frequent if warmup else scenario.arms:
                began = time.perf_counter()
                opened.where = f" (arm {arm}, warm-up {warmup + 1})"
                opened.visit(arm)
                cost[arm] = time.perf_counter() - began
        opened.where = ""
        # What is alive now lives to the end. Frozen, it does not slow down the collections between rounds.
        gc.collect()
        gc.freeze()
        return {"cost": cost}

    def count(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return all exact metrics of the scenario as plain numbers."""
        opened = self.opened[request["name"]]
        opened.where = " (while counting)"
        counted = opened.scenario.count()
        exact = {str(metric): checked_number(metric, value) for metric, value in counted.items()}
        opened.where = ""
        return {"exact": exact}

    def rounds(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Visit the arms for `rounds` rounds and return the seconds of each visit by arm, in order of
        time.

        If request["warm_up"] is true, an unrecorded visit of each frequent arm comes first. Other work has evicted code
        and data from the processor's caches, which would slow down the arm that runs more code.
        """
        opened = self.opened[request["name"]]
        seconds: dict[str, list[float]] = {arm: [] for arm in opened.scenario.arms}
        gc.collect()
        gc.disable()
        try:
            for arm in opened.frequent if request["warm_up"] else ():
                opened.where = f" (arm {arm}, before round {opened.rounds + 1})"
                opened.visit(arm)
            for _ in range(request["rounds"]):
                opened.rounds += 1
                for arm in next(opened.orders):
                    opened.where = f" (arm {arm}, round {opened.rounds})"
                    seconds[arm].append(opened.visit(arm))
        finally:
            gc.enable()
        opened.where = ""
        return {"seconds": seconds}

    def close(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Close the scenario and drop it."""
        opened = self.opened.pop(request["name"], None)
        if opened is not None:
            opened.scenario.close()
        return {}


def spin(seconds: float) -> float:
    """Keep the processor busy for `seconds` (>= 0) and return how long it took.

    Sleeping would give up the core and take as long as the scheduler decides.
    """
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        pass
    return spent


def checked_seconds(seconds: object) -> float:
    """Return `seconds` as a float. Raises BadValueError unless it is a finite number greater than zero."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        raise BadValueError(f"visit returned {seconds!r}, which is not a number of seconds")
    plain = round(float(seconds), CLOCK_DIGITS)
    if not math.isfinite(plain) or plain <= 0:
        raise BadValueError(f"visit returned {plain!r} seconds, which is not a finite time greater than zero")
    return plain


def checked_number(metric: object, value: object) -> int | float:
    """Return `value` as an int or float. Raises BadValueError if it is neither or not finite."""
    if not isinstance(value, bool):
        if isinstance(value, Integral):
            return int(value)
        if isinstance(value, Real) and math.isfinite(float(value)):
            return float(value)
    raise BadValueError(f"count returned {value!r} for {str(metric)!r}, which is not a finite number")


def find(module: str, qualname: str, file: str) -> type[Scenario]:
    """Return the scenario class `qualname` of `module`.

    A test module that pytest imported in importlib mode cannot be imported by its name. It is loaded from `file` under
    the same name then. Raises ImportError.
    """
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        found = _load(module, file)
    for part in qualname.split("."):
        if not hasattr(found, part):
            raise ImportError(f"{module} ({file}) has no {qualname!r}: define the scenario's class at module level")
        found = getattr(found, part)
    if not (isinstance(found, type) and issubclass(found, Scenario)):
        raise ImportError(f"{module}.{qualname} is not a perf_gate.Scenario")
    return found


def _load(module: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {module} from {file}")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[module]
        raise
    return loaded


def die_with(parent: int) -> None:
    """Make sure that this process does not outlive `parent`, also if that is killed with SIGKILL.

    The kernel's signal also reaches a worker in native code, which would not notice the closed channel for long. On
    other systems than Linux only the closed channel ends the worker.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)


def answers(requests: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the answer to each request."""
    host = ScenarioHost()
    for request in requests:
        yield host.answer(request)


def serve(channel: Channel, parent: int) -> None:
    """Answer requests until the channel closes."""
    die_with(parent)
    # Ctrl-C reaches the whole foreground process group; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # what a scenario prints goes to the log with its errors, not to the terminal
    for answer in answers(channel):
        channel.send(answer)
