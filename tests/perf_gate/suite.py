"""A project under git whose gate tests measure nothing real, and what its runs print."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

INI = """
[pytest]
addopts = --strict-markers --import-mode=importlib
pythonpath = .
testpaths = unit
"""
CONFTEST = """
import cpuinfo
pytest_plugins = ["perf_gate.plugin"]
# Asking the processor for its name takes a second.
cpuinfo.get_cpu_info = lambda: {"brand_raw": "Imaginary 1", "family": 1, "model": 2}
"""
SUITE = """
import pytest
from synthetic import Counted, Synthetic

@pytest.mark.scenarios(lambda config: [Synthetic(1), Synthetic(2)])
def test_ttft(scenario, gate):
    gate.judge(scenario)
"""
MEMORY = """
import pytest
from synthetic import Counted, Synthetic

@pytest.mark.scenarios(lambda config: [Counted(1)])
def test_bytes(scenario, gate):
    gate.judge(scenario)

def test_correctness():
    pass
"""
# Plugins that only cost time here.
QUIET = ("-p", "no:hypothesispytest", "-p", "no:anyio")
CANNOT_JUDGE = 10
USAGE = 4


class Suite:
    """A project under git with two gate test files and one of ordinary tests."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        shutil.copy(HERE / "synthetic.py", self.path)
        self.write("pytest.ini", INI)
        self.write("conftest.py", CONFTEST)
        self.write("perf_tests/test_ttft.py", SUITE)
        self.write("perf_tests/test_memory.py", MEMORY)
        self.write("unit/test_unit.py", "def test_unit(): pass\n")
        self.write(
            ".gitignore",
            "__pycache__\n.pytest_cache\npids\n*.taken\nslow\nregress\n.benchmarks\n*.xml\nout.json\nstdout\nstderr\nrunpytest-*\n",
        )
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments], cwd=self.path, check=True
        )

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "as it is", "--allow-empty")

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_subprocess(*QUIET, "--gate-workers=4", *arguments)

    def try_here(self, *arguments: str) -> pytest.RunResult:
        """Like `run`, within this process: for what ends before anything is measured."""
        return self.pytester.runpytest_inprocess("--gate-workers=4", *arguments)

    def record(self, *arguments: str) -> pytest.RunResult:
        return self.run("perf_tests", "--gate-record=first", *arguments)

    def compare(self, *arguments: str) -> pytest.RunResult:
        return self.run("perf_tests", "--benchmark-compare", *arguments)

    @property
    def records(self) -> list[str]:
        return sorted(path.name for path in (self.path / "baselines").glob("*"))

    def measured(self) -> bool:
        return (self.path / "pids").exists()

    def forget(self) -> None:
        (self.path / "pids").unlink(missing_ok=True)


def says(result: pytest.RunResult, *parts: str) -> None:
    text = result.stdout.str() + result.stderr.str()
    for part in parts:
        assert part in text, f"{part!r} is not in\n{text}"
