"""Worker processes are started under fixed conditions, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from perf_gate.measuring.worker_pool import Conditions, LostWorkerError, Side, WorkerPool

NONSENSE = "channel.receive(); channel.receive(); channel.send('banana'); channel.receive()"

PARENT = """
import sys
from pathlib import Path
from synthetic import Synthetic
from perf_gate.measuring.measurement_run import MeasurementRun, Plan
from perf_gate.measuring.worker_pool import Side
from perf_gate.measuring.samples import Task

task = Task("t", Synthetic(1, "hangs"), Synthetic().metrics)
MeasurementRun([task], side=Side(Path.cwd()), plan=Plan(looks=(2,))).run()
"""


HOLDER = """
import time
from perf_gate.measuring.worker_pool import Conditions, WorkerPool
with WorkerPool(Conditions()):
    print("in", flush=True)
    time.sleep(60)
"""


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.02)
    return False


def pids(project: Path) -> list[int]:
    file = project / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"deadline": 0.0}, {"deadline": float("nan")}, {"deadline": float("inf")}]
)
def test_impossible_conditions_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"thread|deadline"):
        Conditions(**wrong)  # type: ignore[arg-type]


def test_environment_is_fixed_before_the_interpreter_starts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with WorkerPool(Conditions(threads=2)) as pool:
        (worker,) = pool.start([Side(project)])
        hello = worker.request("hello", environment=["OMP_NUM_THREADS", "PYTHONHASHSEED", "MALLOC_ARENA_MAX"])
        assert worker.pid == hello["pid"] != os.getpid()
        assert hello["environment"] == {
            "OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": None,
        }  # fmt: skip
    assert is_gone(worker.pid)
    assert Conditions().environment["HF_HUB_OFFLINE"] == "1"


def test_ctrl_c_is_left_to_the_parent(project: Path) -> None:
    with WorkerPool(Conditions()) as pool:
        (worker,) = pool.start([Side(project)])
        os.kill(worker.pid, signal.SIGINT)
        assert worker.request("hello", environment=[])["pid"] == worker.pid


def test_nonsense_ends_the_worker(project: Path) -> None:
    with WorkerPool(Conditions(), bootstrap=NONSENSE) as pool:
        with pytest.raises(LostWorkerError, match="sent an invalid answer to 'hello': 'banana'"):
            pool.start([Side(project)])
        assert pool.running[0].kill() is not None


def test_an_interpreter_that_does_not_start_is_an_error(project: Path) -> None:
    with WorkerPool(Conditions()) as pool, pytest.raises(LostWorkerError, match=r"did not start \(/no/such/python\)"):
        pool.start([Side(project, python="/no/such/python")])


def test_a_worker_that_cannot_import_the_gate_says_so(project: Path) -> None:
    with (
        WorkerPool(Conditions(), bootstrap="channel.receive(); import there_is_no_such_module") as pool,
        pytest.raises(LostWorkerError, match="there_is_no_such_module"),
    ):
        pool.start([Side(project)])


def test_an_error_takes_all_workers_down(project: Path) -> None:
    workers = []

    def fail() -> None:
        with WorkerPool(Conditions()) as pool:
            workers.extend(pool.start([Side(project), Side(project)]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert len(workers) == 2
    assert all(is_gone(worker.pid) for worker in workers)


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_no_worker_outlives_its_parent(project: Path, death: signal.Signals) -> None:
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{project}{os.pathsep}{root}"},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert wait_until((project / "hangs.taken").exists), "the worker never hung"
        # Two have counted and are gone already, two are to be timed.
        assert wait_until(lambda: len(pids(project)) == 4)
        workers = pids(project)
        # Ctrl-C goes to the whole group, as from a terminal.
        (os.killpg if death is signal.SIGINT else os.kill)(parent.pid, death)
        _, errors = parent.communicate(timeout=20)
        # Without the kernel's help it takes execnet 15 s to end a worker that is stuck.
        assert wait_until(lambda: all(map(is_gone, workers)), seconds=8), f"orphans among {workers}"
        assert b"KeyboardInterrupt" in errors or death is signal.SIGKILL
    finally:
        parent.kill()


def test_what_a_killed_run_left_behind_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        (left,) = tmp_path.iterdir()
        with WorkerPool(Conditions()):
            assert left.is_dir(), "another run still lives in it"
        holder.kill()
        holder.wait()
        assert list(tmp_path.iterdir()) == [left]
        with WorkerPool(Conditions()):
            assert not left.exists()
        assert list(tmp_path.iterdir()) == []
    finally:
        holder.kill()
        holder.communicate()
