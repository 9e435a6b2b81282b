"""Allowances of the ini file that mean no metric."""

from __future__ import annotations

import pytest

from perf_gate.session.threshold import parse_threshold
from tests.perf_gate.checkout import USAGE, says
from tests.perf_gate.suite import INI, MEMORY, SUITE, Suite

TYPO = INI + "gate_threshold = reuse eficiency = 0.6\n"
LINE = "ini value gate_threshold: no scenario has a sampled metric"


def collect(suite: Suite, *arguments: str) -> pytest.RunResult:
    return suite.run("--collect-only", "-q", *arguments)


def test_a_misspelt_metric_is_named_with_what_may_be_meant(suite: Suite) -> None:
    suite.write("pytest.ini", TYPO)
    result = collect(suite, "perf_tests")
    assert result.ret == USAGE
    says(result, f"{LINE} 'reuse eficiency', did you mean 'reuse efficiency'? There are ['reuse efficiency']")
    # Not among the tests that are asked for, but among those that were collected.
    assert collect(suite, "perf_tests", "-k", "bytes").ret == USAGE


def test_what_resembles_nothing_and_what_is_counted_is_named_too(suite: Suite) -> None:
    for name in ("wattage", "tokens"):
        suite.write("pytest.ini", INI + f"gate_threshold = {name} = 0.6\n")
        result = collect(suite, "perf_tests")
        assert result.ret == USAGE
        says(result, f"{LINE} '{name}'. There are ['reuse efficiency']")


@pytest.mark.parametrize(
    "arguments",
    [
        ["perf_tests/test_memory.py"],
        ["perf_tests/test_ttft.py"],
        ["perf_tests/test_ttft.py::test_ttft"],
        ["perf_tests", "--ignore=perf_tests/test_ttft.py"],
        ["perf_tests", "--ignore-glob=*ttft*"],
        ["unit"],
        [],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("where", ["suite", "recorded"])
def test_a_run_of_a_part_knows_nothing_of_the_rest(
    where: str, arguments: list[str], request: pytest.FixtureRequest
) -> None:
    suite = request.getfixturevalue(where)
    suite.write("pytest.ini", INI + "gate_threshold =\n    reuse efficiency = 0.6\n    TPOT = 0.1\n")
    result = collect(suite, *arguments)
    assert result.ret == 0, result.stdout.str() + result.stderr.str()


def test_a_file_that_cannot_be_imported_hides_its_metrics(suite: Suite) -> None:
    suite.write("pytest.ini", INI + "gate_threshold = TPOT = 0.1\n")
    suite.write("perf_tests/test_tpot.py", "raise ImportError")
    result = collect(suite, "perf_tests")
    assert LINE not in result.stdout.str() + result.stderr.str()
    assert result.ret not in (0, USAGE)


def test_a_deep_folder_may_have_a_sibling_until_a_record_says_that_it_is_all(suite: Suite) -> None:
    suite.write("pytest.ini", TYPO)
    deep = suite.path / "perf_tests" / "deep"
    deep.mkdir()
    (deep / "test_ttft.py").write_text(SUITE)
    assert collect(suite, "perf_tests/deep").ret == 0
    assert collect(suite, "perf_tests").ret == USAGE


def test_a_record_says_what_is_all_and_knows_metrics_too(recorded: Suite) -> None:
    recorded.write("pytest.ini", TYPO)
    assert collect(recorded, "perf_tests").ret == USAGE
    # Half of what is recorded is not everything.
    recorded.write("perf_tests/test_memory.py", "")
    assert collect(recorded, "perf_tests").ret == 0
    recorded.write("perf_tests/test_memory.py", MEMORY)
    # A metric that was recorded is known, though no scenario has it now: the gate says that it is missing.
    recorded.write("pytest.ini", INI + "gate_threshold = reuse efficiency = 0.6\n")
    text = (recorded.path / "synthetic.py").read_text()
    recorded.write("synthetic.py", text.replace('"reuse efficiency"', '"efficiency"'))
    assert collect(recorded, "perf_tests").ret == 0


def test_a_record_of_one_file_does_not_make_that_file_everything(suite: Suite) -> None:
    assert suite.run("perf_tests/test_memory.py", "--gate-record=part", "--gate-exact").ret == 0
    suite.write("pytest.ini", INI + "gate_threshold = reuse efficiency = 0.6\n")
    assert collect(suite, "perf_tests/test_memory.py").ret == 0


def test_a_damaged_record_is_another_fault(recorded: Suite) -> None:
    recorded.write("pytest.ini", TYPO)
    recorded.write("baselines/0002_second.json", "{")
    result = collect(recorded, "perf_tests")
    assert result.ret == USAGE
    says(result, LINE)


def test_a_name_may_hold_an_equals_sign() -> None:
    assert parse_threshold(" a = b = 0.5") == ("a = b", 0.5)
    for line in ("a", "a =", "= 0.1", "a = 0", "a = 1", "a = nan", "a = much"):
        with pytest.raises(ValueError, match="give lines like"):
            parse_threshold(line)
