"""`--gate-against` as its user sees it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from perf_gate.records.runfile import load_run
from perf_gate.session.settings import settings
from tests.perf_gate.checkout import CANNOT_JUDGE, QUIET, USAGE, says
from tests.perf_gate.engines import write_engine
from tests.perf_gate.test_branches import everything
from tests.perf_gate.versioned import INI, SUITE, Project


def test_the_same_code_is_green_and_leaves_nothing_behind(versioned: Project) -> None:
    before = everything(versioned.path / ".git")
    result = versioned.against()
    assert result.ret == 0, result.stdout.str()
    says(
        result,
        "the candidate is the working tree at",
        f"the base is {versioned.git('rev-parse', '--short', 'HEAD')} (first), HEAD",
        "engine differs between them",
        "timed in 4 pairs of workers",
        "pass: 5 of 5 metrics",
        "2 exact metrics are equal to the base's",
    )
    assert "uncommitted" not in result.stdout.str()
    assert "nothing was compared" not in result.stdout.str()
    assert everything(versioned.path / ".git") == before
    assert list((versioned.path / "tmp").glob("perf-gate-base-*")) == []


def test_a_slower_hit_and_one_copy_more_are_regressions(versioned: Project) -> None:
    write_engine(versioned.path, copies=4, slower=1.2)
    result = versioned.against()
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    says(result, "with uncommitted changes", "copies went from 3 to 4", "20.0", "perf-gate bisect")
    # The other way round it is an improvement.
    versioned.commit("slower")
    write_engine(versioned.path)
    result = versioned.against()
    assert result.ret == 0, result.stdout.str()
    says(result, "5 improved")


def test_the_samples_of_both_sides_are_kept(versioned: Project) -> None:
    write_engine(versioned.path, slower=1.2)
    first, second = versioned.git("rev-parse", "HEAD"), versioned.commit("slower")
    file = versioned.path / "tmp" / "pairs.json"
    assert versioned.against(f"--gate-samples={file}", base="HEAD~1").ret == 1
    run = load_run(file)
    assert run.base is not None
    assert (run.section.provenance.commit, run.base.provenance.commit) == (second, first)
    assert [each.scenario for each in run.base.measurements] == [each.scenario for each in run.section.measurements]
    ours, theirs = (next(each for each in side.measurements if each.seconds) for side in (run.section, run.base))
    assert ours.names == theirs.names
    assert np.median(ours.seconds["warm"]) > 1.1 * np.median(theirs.seconds["warm"])


def test_the_page_shows_the_base_as_what_the_run_was_held_against(versioned: Project) -> None:
    write_engine(versioned.path, copies=4)
    page = versioned.path / "tmp" / "out.html"
    assert versioned.against("--gate-exact", f"--gate-report={page}").ret == 1
    text = page.read_text()
    assert '<span class="word">Regressed<' in text
    assert f"worse than in {versioned.git('rev-parse', '--short', 'HEAD')} (first), HEAD" in text
    assert versioned.git("rev-parse", "--short=12", "HEAD") in text
    assert "Recorded" not in text
    write_engine(versioned.path, copies=2)
    assert versioned.against("--gate-exact", f"--gate-report={page}").ret == 0
    assert re.search(r"metrics? (is|are) better\.", page.read_text())


def test_without_a_value_it_is_the_merge_base(versioned: Project) -> None:
    versioned.git("switch", "-qc", "work")
    write_engine(versioned.path, copies=4)
    versioned.commit("worse")
    versioned.git("switch", "-q", "main")
    write_engine(versioned.path, copies=9)
    versioned.commit("main went on")
    versioned.git("switch", "-q", "work")
    result = versioned.measure("--gate-exact", "--gate-against")
    assert result.ret == 1
    says(result, "(first), the merge base with main", "copies went from 3 to 4")


def test_a_directory_can_be_the_base(versioned: Project) -> None:
    write_engine(versioned.path / "tmp" / "other", copies=2)
    result = versioned.against("--gate-exact", base="tmp/other")
    assert result.ret == 1
    says(result, f"the base is {versioned.path / 'tmp' / 'other'}", "copies went from 2 to 3")


def test_another_interpreter_can_run_the_base(versioned: Project) -> None:
    python = versioned.path / "tmp" / "python"
    python.write_text(f'#!/bin/sh\necho base >>{versioned.path / "tmp" / "started"}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    file = versioned.path / "tmp" / "pairs.json"
    result = versioned.against("--gate-exact", f"--gate-against-python={python}", f"--gate-samples={file}")
    assert result.ret == 0, result.stdout.str()
    assert (versioned.path / "tmp" / "started").exists()
    base = load_run(file).base
    assert base is not None
    # What is installed there is not known, and must not be told as what is installed here.
    assert base.provenance.versions == {"interpreter": str(python)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import there_is_no_such_module", "there_is_no_such_module"),
        ("REUSES = False\ncopies = lambda size: 3", "0 of 8"),
    ],
)
def test_a_base_that_cannot_be_measured_is_neither_pass_nor_regression(
    versioned: Project, text: str, words: str
) -> None:
    write_engine(versioned.path, text=text)
    versioned.commit("broken")
    write_engine(versioned.path, copies=4, slower=1.5)
    result = versioned.against()
    assert result.ret == CANNOT_JUDGE
    says(result, "cannot judge:", "2 not comparable", "the base cannot be measured", words)
    assert "regressed perf_tests" not in result.stdout.str()


def test_a_base_older_than_the_package_is_not_comparable(versioned: Project) -> None:
    shutil.move(versioned.path / "engine", versioned.path / "motor")
    versioned.commit("before it had its name")
    shutil.move(versioned.path / "motor", versioned.path / "engine")
    result = versioned.against("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "has no module 'engine'", "2 not comparable")


def test_a_broken_candidate_is_invalid(versioned: Project) -> None:
    write_engine(versioned.path, reuses=False)
    result = versioned.against()
    assert result.ret == CANNOT_JUDGE
    says(result, "warm reused 0 of 8 tokens", "2 invalid")


def test_what_is_left_out_is_missing(versioned: Project) -> None:
    result = versioned.against("--gate-exact", "-k", "size1")
    assert result.ret == CANNOT_JUDGE
    says(result, "missing perf_tests/test_hit.py::test_hit[size2]", "left out by -k")
    assert versioned.against("--gate-exact", "-k", "nothing_of_this_name").ret == CANNOT_JUDGE


def test_a_path_narrows_what_is_asked_for(versioned: Project) -> None:
    path = "perf_tests/test_hit.py::test_hit[size1]"
    result = versioned.pytester.runpytest_subprocess(*QUIET, path, "--gate-exact", "--gate-against=HEAD")
    assert result.ret == 0, result.stdout.str()


def test_a_paired_run_has_one_look_and_lets_dear_scenarios_be_brief(versioned: Project) -> None:
    usual, paired = (
        settings(versioned.pytester.parseconfig("-c", str(versioned.path / "pytest.ini"), "perf_tests", option)).plan
        for option in ("--benchmark-compare", "--gate-against=HEAD")
    )
    assert paired.looks == (6,)
    assert paired.rounds[0] < usual.rounds[0]
    assert len(usual.looks) > 1


def test_a_skipped_test_is_red(versioned: Project) -> None:
    versioned.write("perf_tests/test_hit.py", SUITE.replace("\n@pytest", "\n@pytest.mark.skip\n@pytest"))
    result = versioned.against("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "its test ended before the verdict")


def test_allowances_for_this_can_be_given_by_ini_and_marker(versioned: Project) -> None:
    write_engine(versioned.path, slower=1.2)
    versioned.write("pytest.ini", INI + "gate_paired_threshold = reuse efficiency = 0.5\n")
    assert versioned.against().ret == 0
    mark = "\n@pytest.mark.threshold('reuse efficiency', 0.02, paired=0.02)\n@pytest"
    versioned.write("perf_tests/test_hit.py", SUITE.replace("\n@pytest", mark))
    assert versioned.against().ret == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gate-against=nowhere"], "there is no revision 'nowhere'"),
        (["--gate-against"], "nothing to compare: give a base"),
        (["--gate-against=perf_tests"], "behind the paths of the suites"),
        (["--gate-against=HEAD", "--benchmark-compare"], "run pytest twice"),
        (["--gate-against=HEAD", "--gate-record=x"], "--gate-record is about records"),
        (["--gate-against=HEAD", "--benchmark-disable"], "--gate-against has to measure"),
        (["--gate-against-python=/no/such/python", "--gate-against=HEAD"], "path of a Python interpreter"),
        ([f"--gate-against-python={sys.executable}"], "add --gate-against"),
    ],
)
def test_a_bad_call_is_named(versioned: Project, arguments: list[str], words: str) -> None:
    result = versioned.measure(*arguments)
    assert result.ret == USAGE
    says(result, words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "--gate-against needs to know which packages differ"),
        ("gate_subject = ../engine", "give the path of a package"),
        ("gate_subject = motor", "has no motor"),
    ],
)
def test_a_subject_that_is_not_there_is_named(versioned: Project, line: str, words: str) -> None:
    versioned.write("pytest.ini", INI.replace("gate_subject = engine", line))
    result = versioned.measure("--gate-against=HEAD")
    assert result.ret == USAGE
    says(result, words)
    assert versioned.measure("--collect-only").ret == 0


def test_ctrl_c_takes_the_base_away(versioned: Project) -> None:
    write_engine(
        versioned.path, text="import time\ndef copies(size):\n    open('hangs', 'w').close()\n    time.sleep(60)\n"
    )
    tmp = versioned.path / "tmp"
    command = [sys.executable, "-m", "pytest", *QUIET, "perf_tests", "--gate-exact", "--gate-against=HEAD"]
    run = subprocess.Popen(command, cwd=versioned.path, start_new_session=True, stdout=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 30
        while not (versioned.path / "hangs").exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert len(list(tmp.glob("perf-gate-base-*"))) == 1
        os.killpg(run.pid, signal.SIGINT)
        output, _ = run.communicate(timeout=30)
    finally:
        run.kill()
    assert run.returncode == 2
    assert "interrupted" in output
    assert list(tmp.glob("perf-gate-*")) == []
