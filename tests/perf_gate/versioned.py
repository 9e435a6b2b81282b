"""A project under git, for tests of what compares its revisions."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.perf_gate.engines import write_engine

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CANNOT_JUDGE = 10
USAGE = 4

INI = """
[pytest]
addopts = --import-mode=importlib
pythonpath = .
gate_subject = engine
"""
CONFTEST = """
import cpuinfo
pytest_plugins = ["perf_gate.plugin"]
cpuinfo.get_cpu_info = lambda: {"brand_raw": "Imaginary 1", "family": 1, "model": 2}
"""
SUITE = """
import pytest
from hits import Hit

@pytest.mark.scenarios(lambda config: [Hit(1), Hit(2)])
def test_hit(scenario, gate):
    gate.judge(scenario)
"""
IGNORED = "__pycache__\n.pytest_cache\n.benchmarks\nseen\nvisits\nstdout\nstderr\nrunpytest-*\ntmp\n*.json\n*.md\n"
QUIET = ("-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:cacheprovider")


class Project:
    """A project under git: `engine` is its subject."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        shutil.copy(HERE / "hits.py", self.path)
        for name, text in {"pytest.ini": INI, "conftest.py": CONFTEST, "perf_tests/test_hit.py": SUITE}.items():
            self.write(name, text)
        self.write(".gitignore", IGNORED)
        write_engine(self.path)
        self.git("init", "-q", "-b", "main")
        self.commit("first")
        (self.path / "tmp").mkdir()

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
        return subprocess.run(command, cwd=self.path, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, text: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", text, "--allow-empty")
        return self.git("rev-parse", "HEAD")

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_subprocess(*QUIET, "perf_tests", "--gate-workers=4", *arguments)

    def against(self, *arguments: str, base: str = "HEAD") -> pytest.RunResult:
        return self.run(f"--gate-against={base}", *arguments)

    def try_here(self, *arguments: str) -> pytest.RunResult:
        """Like `run`, within this process: for what ends before anything is measured."""
        return self.pytester.runpytest_inprocess(*QUIET, "perf_tests", "--gate-workers=4", *arguments)


def says(result: pytest.RunResult, *parts: str) -> None:
    text = result.stdout.str() + result.stderr.str()
    for part in parts:
        assert part in text, f"{part!r} is not in\n{text}"
