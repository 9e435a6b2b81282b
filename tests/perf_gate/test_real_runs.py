"""Real runs: made, kept, and gone on with after an interruption."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perf_gate.calibration import real_runs
from perf_gate.calibration.pool import CalibrationError
from perf_gate.calibration.real_runs import BURN, RealRuns
from perf_gate.measuring.slowdown import InjectedSlowdown
from perf_gate.records.runfile import load_run

ROOT = Path(__file__).parents[2]
# Stands in for pytest: writes samples as it would, and notes what it was called with.
COMMAND = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
options = dict(each.lstrip("-").split("=", 1) for each in sys.argv[1:] if "=" in each)
with open("calls", "a") as calls:
    print(*sorted(options.items()), file=calls)
if Path("fails").exists():
    sys.exit("no such suite")
from perf_gate.records.runfile import run_of, save_run
from tests.perf_gate.samples import measurement, provenance
seed = int(options["gate-seed"])
run = run_of([measurement("a", seed=seed)], provenance(), injected=options.get("gate-inject", ""))
save_run(run, Path(options["gate-samples"]))
sys.exit(1)
"""


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealRuns:
    monkeypatch.chdir(tmp_path)
    Path("command.py").write_text(COMMAND)
    return RealRuns((sys.executable, "command.py"), Path("kept"), 3)


def calls() -> list[str]:
    return Path("calls").read_text().splitlines()


def test_every_run_gets_a_file_and_a_seed_of_its_own(loop: RealRuns) -> None:
    said: list[str] = []
    files = loop.run(said.append)
    assert [file.name for file in files] == ["run-001.json", "run-002.json", "run-003.json"]
    seeds = {load_run(file).section.measurements[0].seconds["warm"][0] for file in files}
    assert len(seeds) == len(calls()) == 3
    assert said[0].startswith("run 1 of 3 starts: ")
    assert "min left" in said[1]


def test_finished_runs_are_kept_and_broken_ones_made_again(loop: RealRuns) -> None:
    files = loop.run(print)
    before = [file.read_bytes() for file in files]
    files[1].write_text('{"perf')
    said: list[str] = []
    assert loop.run(said.append) == files
    assert len(calls()) == 4
    assert "exists" in said[0]
    assert files[0].read_bytes() == before[0]
    assert load_run(files[1]).section.measurements == load_run(files[1]).section.measurements
    assert len(replace(loop, count=5).run(print)) == 5
    assert len(calls()) == 6


def test_planted_runs_are_apart_and_take_turns(loop: RealRuns) -> None:
    injected = replace(loop, injected=InjectedSlowdown("warm", 1.05, "each"), scenarios=("p50", "p200"))
    files = injected.run(print)
    assert [file.name for file in files] == [f"injected-warm-1.05-each-{number:03}.json" for number in (1, 2, 3)]
    assert [load_run(file).injected for file in files] == ["warm=1.05@p50", "warm=1.05@p200", "warm=1.05@p50"]
    everywhere = replace(loop, injected=InjectedSlowdown("warm", 1.05)).run(print)
    assert {load_run(file).injected for file in everywhere} == {"warm=1.05"}
    assert not {*files, *everywhere} & set(loop.run(print))


def test_samples_of_another_slowdown_are_not_taken_for_these(loop: RealRuns) -> None:
    one = replace(loop, count=1, injected=InjectedSlowdown("warm", 1.05, "each"), scenarios=("p50",))
    (file,) = one.run(print)
    replace(one, scenarios=("p200",)).run(print)
    assert load_run(file).injected == "warm=1.05@p200"


def test_a_run_without_samples_ends_the_loop_with_what_it_said(loop: RealRuns) -> None:
    loop.run(print)
    Path("fails").touch()
    with pytest.raises(
        CalibrationError, match=r"(?s)run 4 of .*wrote no samples.*finished runs are kept.*no such suite"
    ):
        replace(loop, count=6).run(print)
    assert len(calls()) == 4


def test_a_run_of_the_wrong_kind_ends_the_loop_at_once(loop: RealRuns) -> None:
    """A forgotten --gate-against is found after one run, not after twenty."""
    with pytest.raises(CalibrationError, match=r"run 1 of .* wrote no samples with a base"):
        replace(loop, paired=True).run(print)
    assert len(calls()) == 1


def test_a_command_that_does_not_exist_is_named(loop: RealRuns) -> None:
    with pytest.raises(CalibrationError, match="'no-such-command' cannot be run"):
        replace(loop, command=("no-such-command",)).run(print)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended, but that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


WAITS = """
import sys, time
from pathlib import Path
end = time.monotonic() + 60
while not Path(sys.argv[1]).exists() and time.monotonic() < end:
    time.sleep(0.01)
"""


def test_a_neighbour_comes_after_a_quarter_and_stays_for_a_half(
    loop: RealRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The neighbour is a stand-in; the command goes on until two seconds after it has left."""
    seen: list[tuple[bool, float]] = []

    def burn(process: subprocess.Popen[bytes], seconds: float) -> None:
        seen.append((process.poll() is None, seconds))
        threading.Timer(2.0, Path("go").touch).start()

    monkeypatch.setattr(real_runs, "_burn", burn)
    Path("command.py").write_text(WAITS.replace("sys.argv[1]", "'go'") + COMMAND)
    (file,) = replace(loop, count=1, neighbour=0.4).run(print)
    assert file.name == "run-neighbour-001.json"
    assert seen == [(True, 0.2)]
    assert load_run(file).section.measurements


def test_a_neighbour_burns_until_the_command_is_over_at_most(loop: RealRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends when it sees that somebody burns; without a neighbour it would take a minute and fail here."""
    noted = "import os\nfrom pathlib import Path\nPath('burning').write_text(str(os.getpid()))\n"
    monkeypatch.setattr(real_runs, "BURN", noted + BURN)
    with subprocess.Popen([sys.executable, "-c", WAITS, "burning"]) as process:
        real_runs._burn(process, 120)
        assert Path("burning").exists()
    assert not alive(int(Path("burning").read_text() or 0))


def test_a_run_that_is_over_before_its_neighbour_does_not_count(loop: RealRuns) -> None:
    with pytest.raises(CalibrationError, match="ended before three quarters"):
        replace(loop, count=1, neighbour=600.0).run(print)
    assert not list(Path("kept").glob("*.json"))


def test_a_neighbour_does_not_outlive_a_killed_loop(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        f"burner = subprocess.Popen([sys.executable, '-c', {BURN!r}, str(os.getpid())])\n"
        "print(burner.pid, flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        burner = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while alive(burner) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(burner)
