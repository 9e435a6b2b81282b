"""`perf-gate bisect` finds the commit that made a metric worse, and the repository does not notice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from perf_gate.branches.bisect import BAD, GOOD, SKIP, StepResult
from perf_gate.cli import main
from tests.perf_gate.checkout import CANNOT_JUDGE, QUIET
from tests.perf_gate.engines import write_engine
from tests.perf_gate.test_branches import everything
from tests.perf_gate.versioned import INI, Project

EXACT = ("--", "perf_tests", *QUIET)


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str


@pytest.fixture
def bisect(versioned: Project, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """`perf-gate bisect` in the project; stdout: all that it and git have said."""

    def run(*arguments: str) -> Ended:
        assert Path.cwd() == versioned.path
        capfd.readouterr()
        status = main(["bisect", *arguments])
        return Ended(status, "".join(capfd.readouterr()))

    return run


def commits(versioned: Project, *engines: dict[str, object]) -> list[str]:
    """A commit for each engine, behind a good one, which is tagged."""
    versioned.git("tag", "good")
    made = []
    for number, engine in enumerate(engines):
        write_engine(versioned.path, name=f"number {number}", **engine)  # type: ignore[arg-type]
        made.append(versioned.commit(f"number {number}"))
    return made


def test_it_finds_the_commit_at_which_a_count_jumps(versioned: Project, bisect: Callable[..., Ended]) -> None:
    same: dict[str, object] = {}
    made = commits(versioned, same, same, {"copies": 5}, {"copies": 5}, {"copies": 6})
    # What lies in the working tree is not the subject of any step, and a gate of the commit's own is not its judge.
    write_engine(versioned.path, name="uncommitted", copies=1)
    before = everything(versioned.path / ".git")
    done = bisect("good", "HEAD", "copies", *EXACT)
    assert done.returncode == 0, done.stdout
    assert f"first bad commit: {made[2]}" in done.stdout
    assert "number 2" in done.stdout
    assert "3 copies before, 5 copies now" in done.stdout
    assert "timed" not in done.stdout
    assert everything(versioned.path / ".git") == before
    assert 'NAME = "uncommitted"' in (versioned.path / "engine" / "__init__.py").read_text()
    assert list((versioned.path / "tmp").glob("perf-gate-*")) == []


def test_commits_that_cannot_run_are_skipped(versioned: Project, bisect: Callable[..., Ended]) -> None:
    broken: dict[str, object] = {"text": "import there_is_no_such_module"}
    made = commits(versioned, {}, broken, {}, {"copies": 5})  # the broken one is in the middle, where the search begins
    done = bisect("good", "HEAD", "copies", *EXACT)
    assert done.returncode == 0, done.stdout
    assert f"skipped: {made[1][:7]}" in done.stdout
    assert f"first bad commit: {made[3]}" in done.stdout


def test_where_only_skipped_commits_are_left_it_names_them(versioned: Project, bisect: Callable[..., Ended]) -> None:
    broken: dict[str, object] = {"text": "import there_is_no_such_module"}
    made = commits(versioned, {}, broken, {"copies": 5})
    done = bisect("good", "HEAD", "copies", *EXACT)
    assert done.returncode == CANNOT_JUDGE, done.stdout
    assert "skipped: " in done.stdout
    assert "it is one of:" in done.stdout
    for commit in made[1:]:
        assert commit in done.stdout.partition("it is one of:")[2]


def test_a_timed_metric_is_found_by_the_paired_verdict(versioned: Project, bisect: Callable[..., Ended]) -> None:
    made = commits(versioned, {}, {"slower": 1.3}, {"slower": 1.3})
    done = bisect("good", "HEAD", "reuse efficiency", *EXACT, "--gate-workers=4")
    assert done.returncode == 0, done.stdout
    assert f"first bad commit: {made[1]}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("good", "HEAD", "copies"), "the bad revision is not bad, 'copies' is no worse there"),
        (("good", "HEAD", "speed"), "no scenario yields 'speed'; there are: copies, reuse efficiency"),
        (("HEAD", "good", "copies"), "HEAD is not an ancestor of good"),
        (("nowhere", "HEAD", "copies"), "there is no revision 'nowhere'"),
    ],
)
def test_what_cannot_be_searched_is_told(
    versioned: Project, bisect: Callable[..., Ended], arguments: tuple[str, ...], words: str
) -> None:
    commits(versioned, {})
    done = bisect(*arguments, *EXACT, "--gate-workers=4")
    assert done.returncode == CANNOT_JUDGE
    assert words in done.stdout


def test_a_suite_that_cannot_run_is_told(versioned: Project, bisect: Callable[..., Ended]) -> None:
    commits(versioned, {"copies": 5})
    versioned.write("pytest.ini", INI.replace("gate_subject = engine", ""))
    done = bisect("good", "HEAD", "copies", *EXACT)
    assert done.returncode == CANNOT_JUDGE
    assert "pytest ended with 4 and no verdict" in done.stdout
    assert "gate_subject" in done.stdout


def row(verdict: str, metric: str | None = "copies", worse: object = 0.0, **more: object) -> dict[str, object]:
    numbers = {"reference": 3, "now": 4, "change": worse, "unit": "copies"}
    return {
        "scenario": "t",
        "metric": metric,
        "verdict": verdict,
        "why": "because",
        "optional": False,
        **numbers,
        **more,
    }


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([row("pass"), row("improved", change=-0.5)], GOOD),
        ([row("pass"), row("regressed", change=0.5)], BAD),
        ([row("regressed", change=0.5), row("invalid", None)], BAD),
        ([row("pass"), row("invalid", None)], SKIP),
        ([row("pass"), row("missing", None)], GOOD),
        ([row("pass"), row("inconclusive")], SKIP),
        ([row("pass"), row("regressed", "another", change=0.5)], GOOD),
        ([row("not comparable", optional=True, change=None)], SKIP),
        ([row("regressed", change="inf")], BAD),
        ([], SKIP),
    ],
)
def test_a_step_answers_as_git_expects(rows: list[dict[str, object]], status: int) -> None:
    assert StepResult.of(rows, "copies").status == status


def test_help_needs_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perf_gate.cli", "bisect", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "GOOD" in done.stdout
