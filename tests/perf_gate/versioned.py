"""A project for tests of what compares its revisions."""

from __future__ import annotations

import shutil

import pytest

from tests.perf_gate.checkout import CONFTEST, HERE, Checkout
from tests.perf_gate.engines import write_engine

INI = """
[pytest]
addopts = --import-mode=importlib
pythonpath = .
gate_subject = engine
"""
SUITE = """
import pytest
from hits import Hit

@pytest.mark.scenarios(lambda config: [Hit(1), Hit(2)])
def test_hit(scenario, gate):
    gate.judge(scenario)
"""
IGNORED = "__pycache__\n.pytest_cache\n.benchmarks\nseen\nvisits\nstdout\nstderr\nrunpytest-*\ntmp\n*.json\n*.md\n"


class Project(Checkout):
    """A project whose subject is the package `engine`."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        super().__init__(pytester)
        shutil.copy(HERE / "hits.py", self.path)
        for name, text in {"pytest.ini": INI, "conftest.py": CONFTEST, "perf_tests/test_hit.py": SUITE}.items():
            self.write(name, text)
        self.write(".gitignore", IGNORED)
        write_engine(self.path)
        self.commit("first")
        (self.path / "tmp").mkdir()

    def measure(self, *arguments: str) -> pytest.RunResult:
        return self.run("perf_tests", "-p", "no:cacheprovider", *arguments)

    def against(self, *arguments: str, base: str = "HEAD") -> pytest.RunResult:
        return self.measure(f"--gate-against={base}", *arguments)
