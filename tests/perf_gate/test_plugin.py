"""The gate as its user sees it: what a run prints, and the exit status that a shell reads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.perf_gate.checkout import CANNOT_JUDGE, CONFTEST, QUIET, ROOT, USAGE, says
from tests.perf_gate.suite import INI, MEMORY, SUITE, Suite

# -------------------------------------------------------------------- a run


def test_without_scenarios_the_gate_is_silent(suite: Suite) -> None:
    result = suite.run("unit")
    assert result.ret == 0
    assert "perf gate" not in result.stdout.str()
    assert not suite.measured()


def test_a_run_measures_and_says_that_nothing_was_compared(suite: Suite) -> None:
    result = suite.run("perf_tests", "--benchmark-json=out.json")
    assert result.ret == 0
    says(
        result,
        "perf gate: 3 scenarios to measure",
        "nothing was compared",
        "test_ttft[size1] warm",
        "timed in 4 workers",
        "tokens 20",
        "reuse efficiency 0.95",
    )
    rows = {row["fullname"]: row for row in json.loads((suite.path / "out.json").read_text())["benchmarks"]}
    assert set(rows) == {
        "perf_tests/test_memory.py::test_bytes[counted1] bytes (B)",
        *(
            f"perf_tests/test_ttft.py::test_ttft[size{size}] {arm}"
            for size in (1, 2)
            for arm in ("cold", "warm", "floor")
        ),
    }
    row = rows["perf_tests/test_ttft.py::test_ttft[size2] floor"]
    assert row["group"] == "synthetic"
    assert row["extra_info"]["tokens"] == 20
    assert row["params"] == {"size": 2, "how": "", "arm": "floor"}
    assert row["stats"]["rounds"] == len(row["stats"]["data"]) > 0
    assert 0.009 < row["stats"]["median"] < 0.011


def test_a_muted_green_run_says_nothing_of_the_gate(suite: Suite) -> None:
    result = suite.run("perf_tests", "--gate-exact", "-q", "-q")
    assert result.ret == 0
    assert "perf gate" not in result.stdout.str()


def test_collecting_alone_measures_nothing(suite: Suite) -> None:
    result = suite.run("perf_tests", "--collect-only", "-q")
    assert result.ret == 0
    says(result, "perf_tests/test_ttft.py::test_ttft[size1]")
    assert "perf gate" not in result.stdout.str()
    assert not suite.measured()


def test_a_red_verdict_from_another_process_is_no_regression(suite: Suite) -> None:
    suite.write("spread.py", "def pytest_addoption(parser): parser.addoption('--dist', default='no')\n")
    result = suite.run("perf_tests", "-p", "no:xdist", "-p", "spread", "--dist=load")
    assert result.ret == CANNOT_JUDGE
    says(result, "drop -n")
    assert not suite.measured()


def test_benchmark_only_keeps_the_gate_tests(suite: Suite) -> None:
    result = suite.run("perf_tests", "--benchmark-only", "--gate-exact")
    result.assert_outcomes(passed=3, skipped=1)


def test_exact_only_times_nothing(recorded: Suite) -> None:
    result = recorded.compare("--gate-exact")
    assert result.ret == 0
    says(result, "3 scenarios counted, not timed", "pass:")
    assert "test_ttft[size1] warm" not in result.stdout.str()


def test_record_then_compare_is_green(recorded: Suite) -> None:
    result = recorded.compare()
    assert result.ret == 0, result.stdout.str()
    says(result, "against 0001_first.json, judging 3 of 3 records", "pass:")
    assert "nothing was compared" not in result.stdout.str()


def test_a_regression_is_a_failing_test(recorded: Suite) -> None:
    (recorded.path / "regress").touch()
    (recorded.path / "slow").touch()
    result = recorded.compare("--junitxml=out.xml")
    assert result.ret == 1
    result.assert_outcomes(failed=2, passed=2)
    says(
        result,
        "regressed:",
        "tokens went from 10 to 11",
        "reuse efficiency",
        "perf_tests/test_ttft.py::test_ttft[size1]",
    )
    assert "Traceback" not in result.stdout.str()
    assert "gate.judge(scenario)" not in result.stdout.str()
    report = (recorded.path / "out.xml").read_text()
    assert report.count("<failure") == 2
    assert "tokens: regressed" in report
    assert "tokens: regressed" in result.stdout.str()


def test_a_slower_hit_alone_is_a_regression(recorded: Suite) -> None:
    (recorded.path / "slow").touch()
    result = recorded.compare()
    assert result.ret == 1
    says(result, "reuse efficiency")


def test_a_failing_correctness_test_is_1_too(recorded: Suite) -> None:
    recorded.write("perf_tests/test_more.py", "def test_right(): assert False\n")
    assert recorded.compare().ret == 1


def test_what_is_wrong_is_not_timed(recorded: Suite) -> None:
    recorded.write("perf_tests/test_a_right.py", "def test_right(): assert False\n")
    result = recorded.compare()
    assert result.ret == 1
    assert not recorded.measured()
    says(result, "nothing was measured: perf_tests/test_a_right.py::test_right failed first")


def test_a_broken_import_is_no_regression(recorded: Suite) -> None:
    recorded.write("perf_tests/test_ttft.py", SUITE.replace("Synthetic(1)", "Synthetic(1, 'import')"))
    result = recorded.compare("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "there_is_no_such_module")


def test_a_broken_premise_is_no_regression_without_a_record_either(suite: Suite) -> None:
    suite.write("perf_tests/test_ttft.py", SUITE.replace("Synthetic(1)", "Synthetic(1, 'premise')"))
    result = suite.run("perf_tests")
    assert result.ret == CANNOT_JUDGE
    says(result, "warm reused 0 of 1 tokens")


def test_an_allowance_can_be_given_by_marker_and_ini(recorded: Suite) -> None:
    (recorded.path / "slow").touch()
    recorded.write("pytest.ini", INI + "gate_threshold = reuse efficiency = 0.6\n")
    result = recorded.compare()
    assert result.ret == 0, result.stdout.str()
    narrow = SUITE.replace("\n@pytest", "\n@pytest.mark.threshold('reuse efficiency', 0.02)\n@pytest")
    recorded.write("perf_tests/test_ttft.py", narrow)
    assert recorded.compare().ret == 1


def test_another_number_can_be_asked_for(recorded: Suite) -> None:
    assert recorded.run("perf_tests", "--gate-exact", "--benchmark-compare=0001").ret == 0
    result = recorded.run("perf_tests", "--gate-exact", "--benchmark-compare=0007")
    assert result.ret == CANNOT_JUDGE
    says(result, "has no record '0007'")


FULL = "def pytest_perf_gate_options(config): return {'profile': 'full'}\n"


def damage(suite: Suite) -> None:
    (suite.path / "baselines/0001_first.json").write_text("{")


@pytest.mark.parametrize(
    ("prepare", "option", "words"),
    [
        (lambda suite: None, "--benchmark-compare=9999", "has no record '9999'"),
        (damage, "--benchmark-compare", "0001_first.json"),
        (damage, "--gate-record=second", "0001_first.json"),
        (lambda suite: shutil.rmtree(suite.path / "baselines"), "--benchmark-compare", "there is no such folder"),
        (
            lambda suite: suite.write("conftest.py", CONFTEST + FULL),
            "--benchmark-compare",
            "no record of profile 'full'",
        ),
        (lambda suite: suite.write("perf_tests/test_memory.py", MEMORY + "\n"), "--gate-record=second", "uncommitted"),
        (lambda suite: None, "-kcorrectness", "no scenario was selected"),
    ],
)
def test_what_is_known_before_the_first_test_ends_the_run_and_is_told_once(
    recorded: Suite, prepare: Callable[[Suite], object], option: str, words: str
) -> None:
    prepare(recorded)
    recorded.discard()
    result = recorded.run("perf_tests", *(["--benchmark-compare"] if option.startswith("-k") else []), option)
    assert result.ret == CANNOT_JUDGE
    assert "passed" not in result.parseoutcomes()
    assert "failed" not in result.parseoutcomes()
    assert not recorded.measured()
    assert result.stdout.str().count(words) == 1


def test_a_failure_that_all_scenarios_share_is_told_once(recorded: Suite) -> None:
    recorded.write("perf_tests/test_a_right.py", "def test_right(): assert False\n")
    result = recorded.compare()
    assert result.parseoutcomes()["failed"] == 4
    assert result.stdout.str().count("nothing was measured: perf_tests/test_a_right.py::test_right failed first") == 1


def test_the_profile_chooses_the_record(recorded: Suite) -> None:
    recorded.write("conftest.py", CONFTEST + FULL)
    result = recorded.compare("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "no record of profile 'full'", "--gate-record")


def test_another_rootdir_renames_nothing(recorded: Suite) -> None:
    (recorded.path / "elsewhere").mkdir()
    result = recorded.compare("--gate-exact", "--rootdir=elsewhere")
    assert result.ret == 0, result.stdout.str()


def test_another_working_directory_renames_nothing(recorded: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recorded.path / "perf_tests")
    result = recorded.run(".", "--gate-exact", "--benchmark-compare")
    assert result.ret == 0, result.stdout.str()


def test_paths_narrow_what_is_asked_for(recorded: Suite) -> None:
    result = recorded.run("perf_tests/test_memory.py", "--benchmark-compare", "--gate-exact")
    assert result.ret == 0
    says(result, "judging 1 of 3 records: only perf_tests/test_memory.py was asked for")
    result = recorded.run("perf_tests/test_ttft.py::test_ttft[size2]", "--benchmark-compare", "--gate-exact")
    assert result.ret == 0
    says(result, "judging 1 of 3 records: only perf_tests/test_ttft.py::test_ttft[size2] was asked for")


# -------------------------------------------------------------------- closed


def test_no_record_names_the_command_that_makes_one(suite: Suite) -> None:
    result = suite.compare()
    assert result.ret == CANNOT_JUDGE
    says(result, "cannot judge:", "--gate-record")
    assert not suite.measured()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "0002_second.json"),
        ("{", "0002_second.json"),
        ("<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> b\n", "merge"),
        ("{}", "0002_second.json"),
        ('{"benchmarks": []}', "0002_second.json"),
    ],
)
def test_a_newest_record_that_cannot_be_read_is_red(recorded: Suite, text: str, word: str) -> None:
    recorded.write("baselines/0002_second.json", text)
    result = recorded.compare("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "cannot judge:", word)


@pytest.mark.parametrize(
    "options",
    [
        ["-k", "size1 or bytes"],
        ["-k", "nothing_of_this_name"],
        ["-m", "threshold"],
        ["--deselect", "perf_tests/test_ttft.py::test_ttft[size2]"],
        ["--ignore", "perf_tests/test_ttft.py"],
        ["-p", "no:python"],
    ],
    ids=["-k", "-k nothing", "-m", "--deselect", "--ignore", "no:python"],
)
def test_what_is_left_out_is_missing(recorded: Suite, options: list[str]) -> None:
    result = recorded.compare("--gate-exact", *options)
    assert result.ret in (CANNOT_JUDGE, USAGE)
    says(result, *(["perf gate"] if result.ret == CANNOT_JUDGE else []))


def test_last_failed_leaves_out_the_rest(recorded: Suite) -> None:
    recorded.write("perf_tests/test_more.py", "def test_right(): assert False\n")
    assert recorded.compare("--gate-exact").ret == 1
    recorded.write("perf_tests/test_more.py", "def test_right(): pass\n")
    assert recorded.compare("--gate-exact", "--lf").ret == CANNOT_JUDGE


@pytest.mark.parametrize(
    ("mark", "worse"),
    [("skip", False), ("skipif(True, reason='')", True), ("xfail", False), ("xfail", True), ("xfail(run=False)", True)],
)
def test_a_mark_hides_no_verdict(recorded: Suite, mark: str, worse: bool) -> None:
    recorded.write("perf_tests/test_ttft.py", SUITE.replace("\n@pytest", f"\n@pytest.mark.{mark}\n@pytest"))
    if worse:
        (recorded.path / "regress").touch()
    result = recorded.compare("--gate-exact")
    assert result.ret in ((1, CANNOT_JUDGE) if worse else (CANNOT_JUDGE,))
    says(result, "perf gate")


@pytest.mark.parametrize("body", ["pytest.skip('no')", "pass", "pytest.xfail('no')", "return"])
def test_a_test_that_does_not_judge_is_red(recorded: Suite, body: str) -> None:
    recorded.write("perf_tests/test_ttft.py", SUITE.replace("gate.judge(scenario)", body))
    result = recorded.compare("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "its test ended before the verdict")


def test_stopping_early_loses_no_verdict(recorded: Suite) -> None:
    recorded.write("perf_tests/test_a.py", "def test_right(): assert False\n")
    result = recorded.compare("--gate-exact", "-x")
    assert result.ret == 1
    says(result, "its test ended before the verdict")


@pytest.mark.parametrize(
    "options",
    [
        ["--benchmark-disable"],
        ["--benchmark-skip"],
        ["--collect-only"],
        ["--fixtures"],
        ["--fixtures-per-test"],
        ["--cache-show"],
        ["--setup-plan"],
        ["--setup-only"],
    ],
    ids=lambda options: options[0],
)
@pytest.mark.parametrize("verb", ["--benchmark-compare", "--gate-record=x"])
@pytest.mark.filterwarnings("ignore:Can't compare")
def test_contradictions_are_usage_errors(recorded: Suite, options: list[str], verb: str) -> None:
    result = recorded.run("perf_tests", verb, *options)
    assert result.ret == USAGE
    says(result, options[0], verb.partition("=")[0])
    assert not recorded.measured()
    assert recorded.records == ["0001_first.json"]


@pytest.mark.parametrize("option", ["--lf", "--stepwise", "--ignore=perf_tests/test_ttft.py", "--ignore-glob=*ttft*"])
def test_what_hides_files_is_no_way_to_record(suite: Suite, option: str) -> None:
    result = suite.run("perf_tests", "--gate-record=x", option)
    assert result.ret == USAGE
    says(result, option.partition("=")[0], "--gate-record")


def test_distribution_is_a_usage_error(recorded: Suite) -> None:
    recorded.write("spread.py", "def pytest_addoption(parser): parser.addoption('--dist', default='no')\n")
    result = recorded.compare("-p", "no:xdist", "-p", "spread", "--dist=load")
    assert result.ret == USAGE
    says(result, "xdist")


@pytest.mark.parametrize("options", ["", "--benchmark-storage=file://./baselines"])
def test_without_pytest_benchmark_there_is_a_sentence(recorded: Suite, options: str) -> None:
    recorded.write("pytest.ini", INI.replace("=importlib", f"=importlib {options}"))
    result = recorded.run("perf_tests", "-p", "no:benchmark")
    assert result.ret == USAGE
    says(result, "perf_gate needs pytest-benchmark")
    assert "Traceback" not in result.stderr.str()


def test_without_the_gate_there_is_a_sentence(suite: Suite) -> None:
    suite.write("conftest.py", (ROOT / "conftest.py").read_text())
    suite.write("perf_tests/conftest.py", "def pytest_perf_gate_options(config): return {}\n")
    result = suite.pytester.runpytest_subprocess(*QUIET, "perf_tests", "-p", "no:perf_gate.plugin")
    assert result.ret == USAGE
    says(result, "ERROR: the gate is switched off (-p no:perf_gate.plugin)", "switch it on")
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


@pytest.mark.filterwarnings("ignore:Can't compare")
def test_an_option_that_swallows_the_path_is_a_usage_error(recorded: Suite) -> None:
    result = recorded.run("--benchmark-compare", "perf_tests")
    assert result.ret == USAGE
    says(result, "pytest perf_tests --benchmark-compare")
    assert recorded.run("--benchmark-compare", "perf_tests/test_tttf.py").ret == USAGE


def test_the_option_in_addopts_compares_or_is_red(recorded: Suite) -> None:
    recorded.write("pytest.ini", INI.replace("--import", "--benchmark-compare --import"))
    assert recorded.run("perf_tests", "--gate-exact").ret == 0
    (recorded.path / "regress").touch()
    assert recorded.run("perf_tests", "--gate-exact").ret == 1
    recorded.write("pytest.ini", INI.replace("=importlib", "=importlib --benchmark-compare"))
    # Not through pytester, which puts an option of its own first.
    command = [sys.executable, "-m", "pytest", "perf_tests"]
    assert subprocess.run(command, cwd=recorded.path, capture_output=True, check=False).returncode == USAGE


def test_comparing_where_no_suite_is_collected_is_red(recorded: Suite) -> None:
    for arguments, words in ((["unit"], "0 of 3 recorded scenarios were compared"), ([], "no scenario was selected")):
        result = recorded.run(*arguments, "--benchmark-compare")
        assert result.ret == CANNOT_JUDGE
        says(result, f"cannot judge: {words}")


def test_a_renamed_test_is_red_twice(recorded: Suite) -> None:
    recorded.write("perf_tests/test_memory.py", MEMORY.replace("test_bytes", "test_octets"))
    result = recorded.compare("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "missing", "test_bytes[counted1]", "unrecorded", "test_octets[counted1]", "--gate-record")


def test_a_renamed_id_is_red(recorded: Suite) -> None:
    recorded.write("synthetic.py", (recorded.path / "synthetic.py").read_text().replace('f"counted', 'f"bytes'))
    result = recorded.compare("--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "missing", "test_bytes[counted1]", "unrecorded", "test_bytes[bytes1]")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("lambda config: [Synthetic(1), Synthetic(1)]", "scenario id 'size1' occurs twice"),
        ("lambda config: []", "returns no scenario"),
        ("[Synthetic(1)]", "takes one callable"),
        ("lambda config: ['a']", "'a' is not a perf_gate.Scenario"),
    ],
)
def test_wrong_scenarios_are_usage_errors(suite: Suite, wrong: str, words: str) -> None:
    suite.write("perf_tests/test_ttft.py", SUITE.replace("lambda config: [Synthetic(1), Synthetic(2)]", wrong))
    result = suite.run("perf_tests")
    assert result.ret == USAGE
    says(result, words)


def test_a_second_parameter_that_makes_names_equal_is_a_usage_error(suite: Suite) -> None:
    twice = SUITE.replace("(scenario, gate)", "(scenario, gate, n)").replace(
        "\n@pytest", "\n@pytest.mark.parametrize('n', [1, 2])\n@pytest"
    )
    suite.write("perf_tests/test_ttft.py", twice)
    result = suite.run("perf_tests")
    assert result.ret == USAGE
    says(result, "perf_tests/test_ttft.py::test_ttft[size1]", "occurs twice")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--gate-budget=soon", "seconds > 0"),
        ("--gate-budget=nan", "seconds > 0"),
        ("--gate-workers=3:8", "even numbers"),
        ("--gate-workers=8:4", "even numbers"),
        ("--gate-threads=0", "whole number >= 1"),
        ("--gate-record=a/b", "letters, digits"),
        ("--gate-seed=-1", "whole number >= 0"),
    ],
)
def test_a_bad_option_is_named(suite: Suite, option: str, words: str) -> None:
    result = suite.run("perf_tests", option)
    assert result.ret == USAGE
    says(result, option.partition("=")[0], words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gate_alpha = 2", "gate_alpha: '2'"),
        ("gate_threshold = reuse efficiency", "gate_threshold: 'reuse efficiency'"),
    ],
)
def test_a_bad_ini_value_is_named(suite: Suite, line: str, words: str) -> None:
    suite.write("pytest.ini", f"{INI}{line}\n")
    result = suite.run("perf_tests")
    assert result.ret == USAGE
    says(result, words)


@pytest.mark.parametrize(
    ("mark", "words"),
    [("'speed', 0.1", "names 'speed'"), ("'reuse efficiency'", "write @pytest.mark.threshold")],
)
def test_a_bad_allowance_is_named(suite: Suite, mark: str, words: str) -> None:
    marked = SUITE.replace("\n@pytest", f"\n@pytest.mark.threshold({mark})\n@pytest")
    suite.write("perf_tests/test_ttft.py", marked)
    result = suite.run("perf_tests")
    assert result.ret == USAGE
    says(result, words)


# -------------------------------------------------------------------- recording


def not_recorded(suite: Suite, *words: str, status: int = CANNOT_JUDGE, arguments: tuple[str, ...] = ()) -> None:
    before = suite.records
    result = suite.record("--gate-exact", *arguments)
    assert result.ret == status
    says(result, "nothing was recorded", *words)
    assert suite.records == before


def test_the_next_record_gets_the_next_number(recorded: Suite) -> None:
    result = recorded.run("perf_tests", "--gate-record=second")
    assert result.ret == 0, result.stdout.str()
    says(result, "recorded: baselines/0002_second.json")
    assert recorded.records == ["0001_first.json", "0002_second.json"]
    stored = json.loads((recorded.path / "baselines/0002_second.json").read_text())
    assert {row["name"] for row in stored["benchmarks"]} >= {"test_ttft[size1] warm"}


def test_a_failing_run_is_not_recorded(suite: Suite) -> None:
    suite.write("perf_tests/test_more.py", "def test_right(): assert False\n")
    suite.commit()
    not_recorded(suite, "test_right failed", status=1)


def test_an_invalid_run_is_not_recorded(suite: Suite) -> None:
    suite.write("perf_tests/test_ttft.py", SUITE.replace("Synthetic(1)", "Synthetic(1, 'uncounted')"))
    suite.commit()
    not_recorded(suite, "'tokens' is declared, but")


def test_a_dirty_tree_is_not_recorded(suite: Suite) -> None:
    suite.write("perf_tests/test_memory.py", MEMORY + "\n")
    not_recorded(suite, "working tree")


@pytest.mark.parametrize(
    "options", [("-k", "size1"), ("--deselect", "perf_tests/test_memory.py::test_bytes[counted1]")]
)
def test_a_partial_run_is_not_recorded(suite: Suite, options: tuple[str, ...]) -> None:
    not_recorded(suite, "left out", arguments=options)


def test_a_skipped_test_is_not_recorded(suite: Suite) -> None:
    suite.write("perf_tests/test_ttft.py", SUITE.replace("\n@pytest", "\n@pytest.mark.skip\n@pytest"))
    suite.commit()
    not_recorded(suite, "left out")


def test_a_narrow_path_is_not_recorded_over_a_wide_record(recorded: Suite) -> None:
    result = recorded.run("perf_tests/test_memory.py", "--gate-record=second")
    assert result.ret == CANNOT_JUDGE
    says(result, "test_ttft[size1] was not measured")
    assert recorded.records == ["0001_first.json"]


def test_counting_alone_is_not_recorded_over_timings(recorded: Suite) -> None:
    result = recorded.run("perf_tests", "--gate-record=second", "--gate-exact")
    assert result.ret == CANNOT_JUDGE
    says(result, "nothing was recorded")


def test_pytest_benchmark_finds_no_other_machine_in_a_record_of_this_one(recorded: Suite) -> None:
    """Of a file that is not the gate's it says what it has always said."""
    path = recorded.path / "baselines/0001_first.json"
    compare = (*QUIET, "unit", "--benchmark-storage=file://baselines", "--benchmark-compare=0001")
    result = recorded.pytester.runpytest_subprocess(*compare)
    says(result, "Comparing against benchmarks from: 0001_first.json")
    assert "machine_info" not in result.stdout.str() + result.stderr.str()
    document = json.loads(path.read_text())
    del document["perf_gate"]
    path.write_text(json.dumps(document))
    says(recorded.pytester.runpytest_subprocess(*compare), "Benchmark machine_info is different")


def test_a_regression_is_not_recorded(recorded: Suite) -> None:
    (recorded.path / "regress").touch()
    result = recorded.run("perf_tests", "--gate-record=second", "--benchmark-compare")
    assert result.ret == 1
    assert recorded.records == ["0001_first.json"]


def test_another_machine_class_joins_the_record_of_the_same_name(recorded: Suite) -> None:
    recorded.write("conftest.py", CONFTEST.replace("Imaginary 1", "Imaginary 2"))
    recorded.commit()
    result = recorded.compare()
    says(result, "Imaginary 1")
    assert result.ret == 0, result.stdout.str()
    assert recorded.record().ret == 0
    assert recorded.records == ["0001_first.json"]
    text = (recorded.path / "baselines/0001_first.json").read_text()
    assert "Imaginary 1" in text
    assert "Imaginary 2" in text


# -------------------------------------------------------------------- interrupted


def wait_for(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 30
    while not true() and time.monotonic() < until:
        time.sleep(0.02)
    return true()


def test_ctrl_c_is_2_and_records_nothing(suite: Suite) -> None:
    suite.write("perf_tests/test_ttft.py", SUITE.replace("Synthetic(1)", "Synthetic(1, 'hangs')"))
    suite.commit()
    command = [sys.executable, "-m", "pytest", "perf_tests", "--gate-record=x", "-p", "no:cacheprovider"]
    run = subprocess.Popen(command, cwd=suite.path, start_new_session=True, stdout=subprocess.PIPE, text=True)
    try:
        assert wait_for((suite.path / "hangs.taken").exists)
        os.killpg(run.pid, signal.SIGINT)
        output, _ = run.communicate(timeout=30)
    finally:
        run.kill()
    assert run.returncode == 2
    assert "nothing was judged or recorded: the run was interrupted" in output
    assert suite.records == []
