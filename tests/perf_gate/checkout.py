"""A project under git in a temporary folder, and runs of pytest in it."""

from __future__ import annotations

import subprocess
import textwrap
import warnings
from pathlib import Path

import pytest
from pytest_benchmark.logger import PytestBenchmarkWarning

# A run within this process forgets every module that it was the first to import, and numpy and scipy cannot be loaded
# a second time: so all that the gate loads late is loaded here.
from perf_gate.records import provenance

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Plugins that only cost time here.
QUIET = ("-p", "no:hypothesispytest", "-p", "no:anyio")
CONFTEST = """
import cpuinfo
pytest_plugins = ["perf_gate.plugin"]
# Asking the processor for its name takes a second.
cpuinfo.get_cpu_info = lambda: {"brand_raw": "Imaginary 1", "family": 1, "model": 2}
"""
CANNOT_JUDGE = 10
USAGE = 4


class Checkout:
    """A folder under git."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
        return subprocess.run(command, cwd=self.path, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, text: str = "as it is") -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", text, "--allow-empty")
        return self.git("rev-parse", "HEAD")

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest within this process, which spares its start; whatever is measured has processes of its own."""
        provenance._cpu.cache_clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PytestBenchmarkWarning)
            return self.pytester.runpytest_inprocess(*QUIET, "--gate-workers=4", *arguments, no_reraise_ctrlc=True)


def says(result: pytest.RunResult, *parts: str) -> None:
    text = result.stdout.str() + result.stderr.str()
    for part in parts:
        assert part in text, f"{part!r} is not in\n{text}"
