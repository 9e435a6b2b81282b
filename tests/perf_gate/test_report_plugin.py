"""The report of a session, as its user gets it."""

from __future__ import annotations

import json

import pytest

from perf_gate.records.runfile import run_of, save_run
from perf_gate.session.output import GENERATOR
from perf_gate.showing.markdown import as_markdown
from perf_gate.showing.run_report import RunReport, as_json
from tests.perf_gate.checkout import CANNOT_JUDGE, USAGE, says
from tests.perf_gate.samples import measurement, provenance
from tests.perf_gate.suite import INI, Suite


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
    assert (recorded.path / "plots" / "summary.md").read_text().startswith("## ✅ perf gate: pass")


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
    older(recorded)
    recorded.write("perf_tests/test_a.py", "def test_stop(): raise KeyboardInterrupt\n")
    assert recorded.compare("--gate-exact", *EVERYTHING).ret == 2
    nothing_is_left(recorded)


def test_a_page_that_cannot_be_written_in_the_end_is_no_pass(recorded: Suite) -> None:
    recorded.write(
        "perf_tests/test_z.py", "def test_z():\n    from pathlib import Path\n    Path('out.html').mkdir()\n"
    )
    result = recorded.compare("--gate-exact", "--gate-report=out.html")
    assert result.ret == CANNOT_JUDGE
    says(result, "the report was not written", "out.html")


@pytest.mark.parametrize("lost", ["rows.json", "out.md"])
def test_what_cannot_be_told_in_the_end_is_no_pass_anywhere(recorded: Suite, lost: str) -> None:
    recorded.write("perf_tests/test_z.py", f"def test_z():\n    from pathlib import Path\n    Path('{lost}').mkdir()\n")
    told = ("--gate-report=out.html", "--gate-rows=rows.json", "--gate-summary=out.md", "--gate-samples=out.json")
    result = recorded.compare("--gate-exact", *told)
    assert result.ret == CANNOT_JUDGE
    says(
        result, f"cannot judge: the report was not written: {recorded.path / lost}: cannot be written (Is a directory)"
    )
    assert word(recorded) == "Cannot judge"
    assert (recorded.path / "out.json").exists()
    if lost == "out.md":
        assert json.loads((recorded.path / "rows.json").read_text())["status"] == CANNOT_JUDGE
    else:
        assert (recorded.path / "out.md").read_text().startswith("## ⚠️ perf gate: cannot judge: ")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--gate-report=perf_tests", "ends in .html"),
        ("--gate-plots=perf_tests", "it has other files"),
        ("--gate-plots=pytest.ini", "is not a folder: give another path"),
        ("--gate-plots=pytest.ini/plots", "is not a folder: give another path"),
        ("--gate-plots=/proc/plots", "nothing can be written to /proc ("),
        ("--gate-report=folder.html", "folder.html is a folder: give a file"),
        ("--gate-report=pytest.ini/deep/out.html", "pytest.ini is not a folder: give another path"),
        ("--gate-report=/proc/out.html", "nothing can be written to /proc ("),
        ("--gate-report=foreign.html", "it is not a file of the gate"),
        ("--gate-rows=perf_tests", "perf_tests is a folder: give a file"),
        ("--gate-rows=/dev/null", "/dev/null is not a regular file"),
        ("--gate-rows=/proc/rows.json", "nothing can be written to /proc ("),
        ("--gate-rows=foreign.html", "it is not a file of the gate"),
        ("--gate-rows=baselines/rows.json", "is in the folder of the records"),
        ("--gate-summary=perf_tests", "perf_tests is a folder: give a file"),
        ("--gate-summary=pytest.ini/a.md", "pytest.ini is not a folder: give another path"),
        ("--gate-summary=/proc/a.md", "nothing can be written to /proc ("),
        ("--gate-samples=perf_tests", "perf_tests is a folder: give a file"),
        ("--gate-samples=pytest.ini/a.json", "pytest.ini is not a folder: give another path"),
        ("--gate-samples=/proc/a.json", "nothing can be written to /proc ("),
        ("--gate-samples=foreign.html", "it is not a file of the gate"),
    ],
)
def test_what_is_no_place_for_a_report_is_refused(suite: Suite, option: str, said: str) -> None:
    (suite.path / "folder.html").mkdir()
    suite.write("foreign.html", '{"schema": 1, "rows": []}')
    result = suite.run(option)
    assert result.ret == USAGE
    name, _, path = option.partition("=")
    says(result, said, name, path)
    assert not suite.measured()
    assert (suite.path / "foreign.html").read_text() == '{"schema": 1, "rows": []}'


def test_two_options_do_not_share_a_place(suite: Suite) -> None:
    result = suite.run("--gate-samples=x.json", f"--gate-rows={suite.path / 'deep' / '..' / 'x.json'}")
    assert result.ret == USAGE
    says(result, "--gate-rows and --gate-samples both name", "x.json")
    assert not suite.measured()


@pytest.mark.parametrize("other", ["--gate-summary=plots/summary.md", "--gate-rows=plots/../plots/deep/rows.json"])
def test_the_folder_of_plots_holds_nothing_else(suite: Suite, other: str) -> None:
    result = suite.run("--gate-plots=plots", other)
    assert result.ret == USAGE
    says(result, other.partition("=")[0], "is in the folder that --gate-plots=", "give another path")
    assert not suite.measured()


def test_records_that_could_not_be_kept_are_not_made(suite: Suite) -> None:
    suite.write("baselines", "no folder")
    result = suite.run("perf_tests", "--gate-record=x")
    assert result.ret == USAGE
    says(result, "--gate-record=x: ", "baselines is not a folder")


@pytest.mark.parametrize("places", [["--gate-report=deep/er/out.html", "--gate-summary=deep/er/out.md"]])
def test_folders_that_are_missing_are_made(suite: Suite, places: list[str]) -> None:
    assert suite.run("perf_tests", "--gate-exact", *places).ret == 0
    assert {path.name for path in (suite.path / "deep" / "er").iterdir()} == {"out.html", "out.md"}


# -------------------------------------------------------------------- an earlier run's


EVERYTHING = (
    "--gate-report=out.html",
    "--gate-plots=plots",
    "--gate-rows=rows.json",
    "--gate-samples=out.json",
    "--gate-summary=out.md",
)


def older(suite: Suite) -> None:
    """What an earlier run has left; a file of somebody else lies among its plots."""
    suite.write("out.html", f"<html>{GENERATOR}an earlier verdict</html>")
    suite.write("plots/summary.md", "## ✅ perf gate: pass")
    suite.write("plots/changes.png", "")
    suite.write("plots/mine.png", "")
    suite.write("rows.json", as_json(RunReport([], 0)))
    save_run(run_of([measurement("a")], provenance()), suite.path / "out.json")
    suite.write("out.md", "# Of another step\n\n" + as_markdown(RunReport([], 0)))


def nothing_is_left(suite: Suite) -> None:
    for name in ("out.html", "plots/changes.png", "rows.json", "out.json"):
        assert not (suite.path / name).exists(), name
    assert (suite.path / "plots" / "mine.png").exists()
    assert (suite.path / "plots" / "summary.md").read_text().startswith("## ⚠️ perf gate: no verdict")
    first, *_, last = (suite.path / "out.md").read_text().splitlines()
    assert first == "# Of another step"
    assert last.startswith("## ⚠️ perf gate: no verdict")


@pytest.mark.parametrize(
    "wrong",
    [
        ["perf_tests", "--gate-budget=-1"],
        ["perf_tests", "--no-such-option"],
        ["perf_tests", "--gate-inject=warm=2", "--gate-record=x"],
        ["perf_tests", "--benchmark-compare", "--benchmark-disable"],
        ["perf_tests", "--gate-against=no_such_revision"],
        ["no_such_file.py"],
    ],
    ids=lambda wrong: wrong[-1],
)
def test_a_wrong_call_leaves_nothing_of_an_earlier_run(suite: Suite, wrong: list[str]) -> None:
    older(suite)
    assert suite.run(*EVERYTHING, *wrong).ret == USAGE
    nothing_is_left(suite)


def test_an_option_without_its_value_hides_none_of_the_others(suite: Suite) -> None:
    older(suite)
    assert suite.run(*(each for each in EVERYTHING if "rows" not in each), "perf_tests", "--gate-rows").ret == USAGE
    (suite.path / "rows.json").unlink()
    nothing_is_left(suite)


def test_options_of_the_command_line_verb_are_none_of_pytest(suite: Suite) -> None:
    older(suite)
    assert suite.run("--out=out.html", "--plots=plots").ret == USAGE
    assert (suite.path / "out.html").exists()
    assert (suite.path / "plots" / "changes.png").exists()


def test_what_is_asked_for_in_the_ini_file_is_no_exception(suite: Suite) -> None:
    older(suite)
    suite.write("pytest.ini", INI.replace("addopts = ", f"addopts = {' '.join(EVERYTHING)} "))
    assert suite.run("perf_tests", "--gate-budget=-1").ret == USAGE
    nothing_is_left(suite)


@pytest.mark.parametrize(
    "call",
    [
        ["--version", "--version"],
        ["--help"],
        ["--markers"],
        ["--collect-only"],
        ["--fixtures"],
        ["--fixtures-per-test"],
        ["--cache-show"],
    ],
    ids=lambda call: call[-1],
)
def test_who_only_asks_takes_nothing_away(suite: Suite, call: list[str]) -> None:
    older(suite)
    files = [path for path in suite.path.rglob("*") if path.suffix in (".html", ".md", ".json", ".png")]
    before = [path.read_text() for path in files]
    assert suite.run(*EVERYTHING, *call).ret == 0
    assert [path.read_text() for path in files] == before


def test_a_wrong_call_takes_nothing_that_is_not_the_gates(suite: Suite) -> None:
    mine = {"out.html": "<p>Performance gate</p>", "plots/summary.md": "# Notes", "plots/changes.png": "",
            "rows.json": '{"status": 0}', "out.json": '{"perf_gate": {"schema": 1}}', "out.md": "# Notes"}  # fmt: skip
    for name, text in mine.items():
        suite.write(name, text)
    assert suite.run(*EVERYTHING, "--gate-budget=-1").ret == USAGE
    assert {name: (suite.path / name).read_text() for name in mine} == mine


def test_a_missing_library_is_told_before_the_wait(suite: Suite) -> None:
    suite.write("nolib.py", "import sys\nsys.modules['jinja2'] = None\n")
    result = suite.run("perf_tests", "-p", "nolib", "--gate-exact", "--gate-report=out.html")
    assert result.ret == USAGE
    says(result, "prefix-cache-gate[report]")
    assert not suite.measured()
