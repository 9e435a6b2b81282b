"""The report of a session, as its user gets it."""

from __future__ import annotations

import pytest

from tests.perf_gate.suite import CANNOT_JUDGE, USAGE, Suite, says


def page(suite: Suite) -> str:
    return (suite.path / "out.html").read_text()


def word(suite: Suite) -> str:
    return page(suite).split('<span class="word">', 1)[1].split("<", 1)[0]


def test_a_green_run_leaves_a_page_and_plots(recorded: Suite) -> None:
    result = recorded.compare("--gate-report=out.html", "--gate-plots=plots")
    assert result.ret == 0, result.stdout.str()
    says(result, "report: ", "out.html")
    assert word(recorded) == "Pass"
    assert "0001_first" in page(recorded)
    assert (recorded.path / "plots" / "changes.png").exists()
    assert (recorded.path / "plots" / "summary.md").read_text().startswith("## Performance gate: pass")


def test_a_red_run_leaves_a_red_page(recorded: Suite) -> None:
    (recorded.path / "regress").touch()
    result = recorded.compare("--gate-exact", "--gate-report=out.html")
    assert result.ret == 1
    assert word(recorded) == "Regressed"
    assert "+1 token" in page(recorded)


def test_without_a_comparison_the_page_says_so(suite: Suite) -> None:
    assert suite.run("perf_tests", "--gate-exact", "--gate-report=out.html").ret == 0
    assert word(suite) == "Not compared"


def test_without_a_record_the_page_cannot_judge(suite: Suite) -> None:
    assert suite.compare("--gate-exact", "--gate-report=out.html").ret == CANNOT_JUDGE
    assert word(suite) == "Cannot judge"
    assert "--gate-record" in page(suite)


def test_a_failed_test_is_no_pass_on_the_page(recorded: Suite) -> None:
    recorded.write("perf_tests/test_z.py", "def test_right(): assert False\n")
    assert recorded.compare("--gate-exact", "--gate-report=out.html").ret == 1
    assert word(recorded) == "Failed"
    assert "perf_tests/test_z.py::test_right failed" in page(recorded)


def test_what_was_left_out_is_on_the_page(recorded: Suite) -> None:
    assert recorded.compare("--gate-exact", "--gate-report=out.html", "-k", "size1").ret == CANNOT_JUDGE
    assert word(recorded) == "Cannot judge"
    assert "missing" in page(recorded)
    result = recorded.run("perf_tests/test_memory.py", "--benchmark-compare", "--gate-exact", "--gate-report=out.html")
    assert result.ret == 0
    assert "judged 1 of the 3 scenarios on record: only perf_tests/test_memory.py was asked for" in page(recorded)


def test_a_run_that_breaks_off_leaves_no_page_of_an_earlier_one(recorded: Suite) -> None:
    (recorded.path / "out.html").write_text("an earlier verdict")
    recorded.write("perf_tests/test_a.py", "def test_stop(): raise KeyboardInterrupt\n")
    assert recorded.compare("--gate-exact", "--gate-report=out.html").ret == 2
    assert not (recorded.path / "out.html").exists()


def test_a_page_that_cannot_be_written_is_no_pass(recorded: Suite) -> None:
    (recorded.path / "out.html").mkdir()
    result = recorded.compare("--gate-exact", "--gate-report=out.html")
    assert result.ret == CANNOT_JUDGE
    says(result, "the report was not written", "out.html")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--gate-report=perf_tests", "ends in .html"),
        ("--gate-plots=perf_tests", "holds something else"),
        ("--gate-plots=pytest.ini", "holds something else"),
    ],
)
def test_what_is_no_place_for_a_report_is_refused(suite: Suite, option: str, said: str) -> None:
    result = suite.try_here(option)
    assert result.ret == USAGE
    says(result, said)
    assert not suite.measured()


def test_a_missing_library_is_told_before_the_wait(suite: Suite) -> None:
    suite.write("nolib.py", "import sys\nsys.modules['jinja2'] = None\n")
    result = suite.run("perf_tests", "-p", "nolib", "--gate-exact", "--gate-report=out.html")
    assert result.ret == USAGE
    says(result, "prefix-cache-gate[report]")
    assert not suite.measured()
