"""The shell lines of the GitHub action, run here: what a job would end with, and what a pull request would show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.perf_gate.checkout import CANNOT_JUDGE, ROOT, USAGE
from tests.perf_gate.engines import write_engine
from tests.perf_gate.versioned import Project

ACTION = ROOT / ".github" / "actions" / "perf-gate" / "action.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# How GitHub runs `shell: bash`.
BASH = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail"]


def document(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def gate_step() -> Any:
    (step,) = (each for each in document(ACTION)["runs"]["steps"] if each.get("id") == "gate")
    return step


class Job:
    """A job that checked the project out and uses the action."""

    def __init__(self, versioned: Project) -> None:
        self.project = versioned
        self.out = versioned.path / "tmp" / "out"
        self.summary = versioned.path / "tmp" / "summary.md"
        self.summary.touch()
        programs = versioned.path / "tmp" / "bin"
        programs.mkdir()
        # The interpreter that actions/setup-python would have put first.
        (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (programs / "python").chmod(0o755)
        self.programs = programs
        self.said = ""

    def run(self, *, target: str = "", **inputs: str) -> int:
        """Exit status of the step; inputs as in `with:`, the others by their defaults."""
        declared = {name: each["default"] for name, each in document(ACTION)["inputs"].items()}
        inputs = {**declared, "output": str(self.out), "arguments": "--gate-workers=4", **inputs}
        filled = {
            name: text.replace("${{ github.base_ref }}", target)
            for name, text in {name: _fill(text, inputs) for name, text in gate_step()["env"].items()}.items()
        }
        script = self.project.path / "tmp" / "step.sh"
        script.write_text(gate_step()["run"])
        environment = {
            **os.environ,
            **filled,
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_WORKSPACE": str(self.project.path),
            "GITHUB_ACTIONS": "true",
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTEST_ADDOPTS": "-p no:hypothesispytest -p no:anyio -p no:cacheprovider",
        }
        done = subprocess.run(
            [*BASH, str(script)],
            cwd=self.project.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.said = done.stdout
        return done.returncode

    @property
    def errors(self) -> list[str]:
        return [line for line in self.said.splitlines() if line.startswith("::error")]


def _fill(text: str, inputs: dict[str, str]) -> str:
    for name, value in inputs.items():
        text = text.replace(f"${{{{ inputs.{name} }}}}", value)
    return text


@pytest.fixture
def job(versioned: Project) -> Job:
    return Job(versioned)


def test_the_same_code_passes(job: Job) -> None:
    assert job.run(against="HEAD") == 0, job.said
    assert job.errors == []
    summary = job.summary.read_text()
    assert summary.startswith("## ✅ perf gate: pass: 5 of 5 metrics")
    assert "Compared with the base" in summary
    assert "| test&#95;hit&#91;size1&#93; | reuse efficiency |" in summary
    assert json.loads((job.out / "gate.json").read_text())["status"] == 0
    assert (job.out / "gate.xml").exists()


def test_a_planted_regression_fails_the_step_and_shows_at_its_line(job: Job) -> None:
    write_engine(job.project.path, copies=4)
    assert job.run(against="HEAD", arguments="--gate-exact --gate-workers=4") == 1
    first, second = job.errors
    line = (
        (job.project.path / "perf_tests" / "test_hit.py")
        .read_text()
        .splitlines()
        .index("def test_hit(scenario, gate):")
    )
    # pytest names the first decorator where there is one.
    assert first.startswith(f"::error file=perf_tests/test_hit.py,line={line},title=perf gate%3A regressed::")
    assert "copies went from 3 to 4" in first
    assert "size2" in second
    summary = job.summary.read_text()
    assert summary.startswith("## ❌ perf gate: regressed: 2 of 4 metrics")
    # The verdict, the table, what was not judged: in this order.
    order = [summary.index(part) for part in ("- **regressed**", "| scenario | metric |", "### Not judged")]
    assert order == sorted(order)
    rows = json.loads((job.out / "gate.json").read_text())["rows"]
    assert {row["metric"] for row in rows if row["verdict"] == "regressed"} == {"copies"}


def test_a_slower_hit_fails_the_step(job: Job) -> None:
    write_engine(job.project.path, slower=1.3)
    assert job.run(against="HEAD") == 1
    assert any("reuse efficiency" in line for line in job.errors)


def test_a_pull_request_is_held_against_its_merge_base(job: Job) -> None:
    project = job.project
    project.git("switch", "-qc", "work")
    write_engine(project.path, copies=4)
    project.commit("worse")
    project.git("update-ref", "refs/remotes/origin/release", "main")
    assert job.run(target="release", arguments="--gate-exact") == 1
    assert "merge base with origin/release" in job.said
    # Outside a pull request it is the default branch's.
    assert job.run(arguments="--gate-exact") == 1
    assert "merge base with main" in job.said


def test_records_are_judged_against(job: Job) -> None:
    project = job.project
    project.write("pytest.ini", (project.path / "pytest.ini").read_text() + "gate_baselines = baselines\n")
    project.commit("before the record")
    assert project.run("--gate-exact", "--gate-record=first").ret == 0
    assert job.run(against="records", arguments="--gate-exact") == 0, job.said
    assert "Compared with the record 0001&#95;first.json" in job.summary.read_text()
    write_engine(project.path, copies=4)
    assert job.run(against="records", arguments="--gate-exact") == 1


def test_without_a_reference_it_only_reports(job: Job) -> None:
    assert job.run(against="nothing", arguments="--gate-exact") == 0, job.said
    summary = job.summary.read_text()
    assert "nothing was compared" in summary
    assert "copies 3" in summary


@pytest.mark.parametrize(
    ("inputs", "status"),
    [
        ({"paths": "perf_tests -k nothing_of_this_name", "against": "HEAD"}, CANNOT_JUDGE),
        ({"paths": "perf_tests -k nothing_of_this_name", "against": "nothing"}, 5),
        ({"paths": "nowhere", "against": "HEAD"}, USAGE),
        ({"against": "records"}, CANNOT_JUDGE),
        ({"against": "no_such_revision"}, USAGE),
        ({"against": "HEAD", "arguments": "--collect-only"}, USAGE),
        ({"against": "nothing", "arguments": "--collect-only"}, CANNOT_JUDGE),
    ],
    ids=[
        "nothing selected",
        "nothing to report",
        "no such path",
        "no record",
        "no revision",
        "collected",
        "collected only",
    ],
)
def test_nothing_measured_fails_the_step(job: Job, inputs: dict[str, str], status: int) -> None:
    assert job.run(**inputs) == status, job.said
    assert job.errors or status == 5
    assert "✅" not in job.summary.read_text()
    assert job.summary.read_text()


def test_a_verdict_of_an_earlier_step_is_none_of_this_one(job: Job) -> None:
    assert job.run(against="HEAD", arguments="--gate-exact") == 0
    assert job.run(against="no_such_revision") == USAGE
    assert not (job.out / "gate.json").exists()


def test_a_base_that_cannot_run_fails_the_step_and_is_no_regression(job: Job) -> None:
    write_engine(job.project.path, text="import there_is_no_such_module")
    job.project.commit("broken")
    write_engine(job.project.path)
    assert job.run(against="HEAD", arguments="--gate-exact") == CANNOT_JUDGE
    assert "regressed" not in job.summary.read_text()


def test_no_job_may_write(job: Job) -> None:
    for workflow in map(document, WORKFLOWS):
        assert workflow["permissions"] == {"contents": "read"}
        for each in workflow["jobs"].values():
            assert "permissions" not in each
        # `on` is a boolean to YAML.
        assert "pull_request_target" not in workflow[True]


def test_a_pull_request_is_judged_twice_on_its_whole_history(job: Job) -> None:
    steps = document(ROOT / ".github" / "workflows" / "gate.yml")["jobs"]["judge"]["steps"]
    (checkout,) = (each for each in steps if each.get("uses", "").startswith("actions/checkout"))
    assert checkout["with"]["fetch-depth"] == 0
    gates = [each for each in steps if each.get("uses") == "./.github/actions/perf-gate"]
    assert [each["with"]["against"] for each in gates] == ["records", "merge-base"]
    assert len({each["with"]["artifact"] for each in gates}) == 2
    assert "if" not in gates[0]
    assert "continue-on-error" not in json.dumps(document(ROOT / ".github" / "workflows" / "gate.yml")["jobs"]["judge"])
