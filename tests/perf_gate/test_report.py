"""What a pull request and a machine are told says neither more nor less than the rows."""

from __future__ import annotations

import json
import math

from perf_gate.metric import Better, Exact, Sampled
from perf_gate.showing.report import MOST_ANNOTATIONS, Place, Report, as_json, as_markdown, commands
from perf_gate.verdict import Row, Verdict

COUNT = Exact("copies", "copies")
TIMED = Sampled("reuse efficiency", "", Better.HIGHER, "floor", "warm")
NAME = "perf_tests/test_hit.py::test_hit[a]"


def worse(name: str = NAME, why: str = "copies went from 3 to 4.") -> Row:
    return Row(name, COUNT, Verdict.REGRESSED, 3, 4, 1 / 3, 1 / 3, 1 / 3, 0.0, why=why)


def test_json_holds_numbers_that_json_does_not_know_as_text() -> None:
    row = Row(NAME, COUNT, Verdict.REGRESSED, 0, 1, math.inf, math.inf, math.inf, 0.0, why="rose")
    document = json.loads(as_json(Report([row], 1, against="x", places={NAME: Place("a.py", 7)})))
    (found,) = document["rows"]
    assert (found["worse"], found["reference"], found["class"]) == ("inf", 0, "exact")
    assert (found["file"], found["line"]) == ("a.py", 7)
    assert document["headline"].startswith("regressed: 1 of 1 metrics")


def test_a_fault_is_the_verdict_and_no_comparison_is_none() -> None:
    for report in (Report([], 10, against="x", fault="no record"), Report([], 10, fault="no record")):
        assert as_markdown(report).startswith("## ⚠️ perf gate: cannot judge: no record")
        assert commands(report) == ["::error title=perf gate%3A cannot judge::no record"]
    assert as_markdown(Report([], 0, values=["a", "  copies 3"])).startswith("## ✅ perf gate: nothing was compared")


def test_a_scenarios_words_do_not_become_markup_or_commands() -> None:
    row = worse(why="first | `line`\n::error::second <b>")
    report = Report([row], 1, against="x", places={NAME: Place("odd,name:1.py", 7)})
    text = as_markdown(report)
    assert "first \\| \\`line\\`<br>::error::second \\<b\\>" in text
    (command,) = commands(report)
    assert "\n" not in command
    assert command.startswith("::error file=odd%2Cname%3A1.py,line=7,title=perf gate%3A regressed::")
    assert "%0A::error::second" in command


def test_no_more_annotations_than_are_shown_and_the_rest_is_counted() -> None:
    rows = [worse(f"t::t[{index}]") for index in range(MOST_ANNOTATIONS + 3)]
    lines = commands(Report(rows, 1, against="x"))
    assert len(lines) == MOST_ANNOTATIONS + 1
    assert "3 more scenarios" in lines[-1]


def test_what_need_not_be_judged_is_counted_and_colours_nothing() -> None:
    unjudged = Row(NAME, TIMED, Verdict.NOT_COMPARABLE, why="another machine.", optional=True)
    report = Report([Row(NAME, COUNT, Verdict.PASS, 3, 3, 0.0, 0.0, 0.0, 0.0), unjudged], 0, against="x")
    text = as_markdown(report)
    assert "### Not judged\n\n- 1 metrics: another machine." in text
    assert "| scenario |" not in text
    assert commands(report) == []


def test_a_failed_test_is_named() -> None:
    assert "- **failed** `t::right`" in as_markdown(Report([], 1, against="x", failed=["t::right"]))
