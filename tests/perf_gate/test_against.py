"""`--gate-against` as its user sees it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.perf_gate.engines import write_engine
from tests.perf_gate.test_branches import everything

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


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in list(os.environ):
        if name.startswith(("PYTEST_", "GIT_", "GITHUB_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(pytester.path / "tmp"))
    return Project(pytester)


def says(result: pytest.RunResult, *parts: str) -> None:
    text = result.stdout.str() + result.stderr.str()
    for part in parts:
        assert part in text, f"{part!r} is not in\n{text}"


def test_the_same_code_is_green_and_leaves_nothing_behind(project: Project) -> None:
    before = everything(project.path / ".git")
    result = project.against()
    assert result.ret == 0, result.stdout.str()
    says(
        result,
        "the candidate is the working tree at",
        f"the base is {project.git('rev-parse', '--short', 'HEAD')} (first), HEAD",
        "engine differs between them",
        "timed in 4 pairs of workers",
        "pass: 5 of 5 metrics",
        "2 exact metrics are equal to the base's",
    )
    assert "uncommitted" not in result.stdout.str()
    assert "nothing was compared" not in result.stdout.str()
    assert everything(project.path / ".git") == before
    assert list((project.path / "tmp").glob("perf-gate-base-*")) == []


def test_a_slower_hit_and_one_copy_more_are_regressions(project: Project) -> None:
    write_engine(project.path, copies=4, slower=1.2)
    result = project.against()
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    says(result, "with uncommitted changes", "copies went from 3 to 4", "20.0", "perf-gate bisect")
    # The other way round it is an improvement.
    project.commit("slower")
    write_engine(project.path)
    result = project.against()
    assert result.ret == 0, result.stdout.str()
    says(result, "5 improved")


def test_without_a_value_it_is_the_merge_base(project: Project) -> None:
    project.git("switch", "-qc", "work")
    write_engine(project.path, copies=4)
    project.commit("worse")
    project.git("switch", "-q", "main")
    write_engine(project.path, copies=9)
    project.commit("main went on")
    project.git("switch", "-q", "work")
    result = project.run("--gate-exact", "--gate-against")
    assert result.ret == 1
    says(result, "(first), the merge base with main", "copies went from 3 to 4")


def test_a_directory_can_be_the_base(project: Project) -> None:
    write_engine(project.path / "tmp" / "other", copies=2)
    result = project.against("--gate-exact", base="tmp/other")
    assert result.ret == 1
    says(result, f"the base is {project.path / 'tmp' / 'other'}", "copies went from 2 to 3")


def test_another_interpreter_can_run_the_base(project: Project) -> None:
    python = project.path / "tmp" / "python"
    python.write_text(f'#!/bin/sh\necho base >>{project.path / "tmp" / "started"}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    result = project.against("--gate-exact", f"--gate-against-python={python}")
    assert result.ret == 0, result.stdout.str()
    assert (project.path / "tmp" / "started").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import there_is_no_such_module", "there_is_no_such_module"),
        ("REUSES = False\ncopies = lambda size: 3", "0 of 8"),
    ],
)
def test_a_base_that_cannot_be_measured_is_neither_pass_nor_regression(project: Project, text: str, words: str) -> None:
    write_engine(project.path, text=text)
    project.commit("broken")
    write_engine(project.path, copies=4, slower=1.5)
    result = project.against()
    assert result.ret == CANNOT_JUDGE
    says(result, "cannot judge:", "2 not comparable", "the base cannot be measured", words)
    assert "regressed perf_tests" not in result.stdout.str()


def test_a_base_older_than_the_package_is_not_comparable(project: Project) -> None:
    shutil.move(project.path / "engine", project.path / "motor")
    project.commit("before it had its name")
    shutil.move(project.path / "motor", project.path / "engine")
    result = project.against("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "holds no module 'engine'", "2 not comparable")


def test_a_broken_candidate_is_invalid(project: Project) -> None:
    write_engine(project.path, reuses=False)
    result = project.against()
    assert result.ret == CANNOT_JUDGE
    says(result, "warm reused 0 of 8 tokens", "2 invalid")


def test_what_is_left_out_is_missing(project: Project) -> None:
    result = project.against("--gate-exact", "-k", "size1")
    assert result.ret == CANNOT_JUDGE
    says(result, "missing perf_tests/test_hit.py::test_hit[size2]", "left out by -k")
    assert project.against("--gate-exact", "-k", "nothing_of_this_name").ret == CANNOT_JUDGE


def test_a_path_narrows_what_is_asked_for(project: Project) -> None:
    path = "perf_tests/test_hit.py::test_hit[size1]"
    result = project.pytester.runpytest_subprocess(*QUIET, path, "--gate-exact", "--gate-against=HEAD")
    assert result.ret == 0, result.stdout.str()


def test_a_skipped_test_is_red(project: Project) -> None:
    project.write("perf_tests/test_hit.py", SUITE.replace("\n@pytest", "\n@pytest.mark.skip\n@pytest"))
    result = project.against("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "without judging it")


def test_allowances_for_this_can_be_given_by_ini_and_marker(project: Project) -> None:
    write_engine(project.path, slower=1.2)
    project.write("pytest.ini", INI + "gate_against_allowance = reuse efficiency = 0.5\n")
    assert project.against().ret == 0
    mark = "\n@pytest.mark.allowance('reuse efficiency', 0.02, against=0.02)\n@pytest"
    project.write("perf_tests/test_hit.py", SUITE.replace("\n@pytest", mark))
    assert project.against().ret == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gate-against=nowhere"], "there is no revision 'nowhere'"),
        (["--gate-against"], "nothing to compare: name the base"),
        (["--gate-against=perf_tests"], "behind the paths of the suites"),
        (["--gate-against=HEAD", "--benchmark-compare"], "run pytest twice"),
        (["--gate-against=HEAD", "--gate-record=x"], "--gate-record is about records"),
        (["--gate-against=HEAD", "--gate-samples=x"], "--gate-samples is about records"),
        (["--gate-against=HEAD", "--benchmark-disable"], "--gate-against needs to measure"),
        (["--gate-against-python=/no/such/python", "--gate-against=HEAD"], "path of a Python interpreter"),
        ([f"--gate-against-python={sys.executable}"], "add --gate-against"),
    ],
)
def test_a_bad_call_is_named(project: Project, arguments: list[str], words: str) -> None:
    result = project.try_here(*arguments)
    assert result.ret == USAGE
    says(result, words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "--gate-against needs to know which packages differ"),
        ("gate_subject = ../engine", "give the path of a package"),
        ("gate_subject = motor", "holds no motor"),
    ],
)
def test_a_subject_that_is_not_there_is_named(project: Project, line: str, words: str) -> None:
    project.write("pytest.ini", INI.replace("gate_subject = engine", line))
    result = project.try_here("--gate-against=HEAD")
    assert result.ret == USAGE
    says(result, words)
    assert project.try_here("--collect-only").ret == 0


def test_ctrl_c_takes_the_base_away(project: Project) -> None:
    write_engine(
        project.path, text="import time\ndef copies(size):\n    open('hangs', 'w').close()\n    time.sleep(60)\n"
    )
    tmp = project.path / "tmp"
    command = [sys.executable, "-m", "pytest", *QUIET, "perf_tests", "--gate-exact", "--gate-against=HEAD"]
    run = subprocess.Popen(command, cwd=project.path, start_new_session=True, stdout=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 30
        while not (project.path / "hangs").exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert len(list(tmp.glob("perf-gate-base-*"))) == 1
        os.killpg(run.pid, signal.SIGINT)
        output, _ = run.communicate(timeout=30)
    finally:
        run.kill()
    assert run.returncode == 2
    assert "interrupted" in output
    assert list(tmp.glob("perf-gate-*")) == []
