"""A project whose gate tests measure nothing real."""

from __future__ import annotations

import shutil

import pytest

from tests.perf_gate.checkout import CONFTEST, HERE, Checkout

INI = """
[pytest]
addopts = --strict-markers --import-mode=importlib
pythonpath = .
testpaths = unit
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
IGNORED = """
__pycache__
.pytest_cache
pids
*.taken
slow
regress
.benchmarks
*.xml
out.json
stdout
stderr
runpytest-*
"""


class Suite(Checkout):
    """A project under git with two gate test files and one of ordinary tests."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        super().__init__(pytester)
        shutil.copy(HERE / "synthetic.py", self.path)
        self.write("pytest.ini", INI)
        self.write("conftest.py", CONFTEST)
        self.write("perf_tests/test_ttft.py", SUITE)
        self.write("perf_tests/test_memory.py", MEMORY)
        self.write("unit/test_unit.py", "def test_unit(): pass\n")
        self.write(".gitignore", IGNORED)
        self.commit()

    def record(self, *arguments: str) -> pytest.RunResult:
        return self.run("perf_tests", "--gate-record=first", *arguments)

    def compare(self, *arguments: str) -> pytest.RunResult:
        return self.run("perf_tests", "--benchmark-compare", *arguments)

    @property
    def records(self) -> list[str]:
        return sorted(path.name for path in (self.path / "baselines").glob("*"))

    def measured(self) -> bool:
        return (self.path / "pids").exists()

    def discard(self) -> None:
        (self.path / "pids").unlink(missing_ok=True)
