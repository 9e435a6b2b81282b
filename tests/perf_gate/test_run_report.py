"""What a pull request and a machine are told says neither more nor less than the rows."""

from __future__ import annotations

import json
import math
import re

from perf_gate.metric import Better, Exact, Sampled
from perf_gate.showing.markdown import HEADING, MOST_ROWS, as_markdown
from perf_gate.showing.run_report import MOST_ANNOTATIONS, Place, RunReport, as_json, commands
from perf_gate.verdict import Row, Verdict
from tests.perf_gate.checkout import ROOT

COUNT = Exact("copies", "copies")
TIMED = Sampled("reuse efficiency", "", Better.HIGHER, "floor", "warm")
NAME = "perf_tests/test_hit.py::test_hit[a]"


def worse(name: str = NAME, why: str = "copies went from 3 to 4.") -> Row:
    return Row(name, COUNT, Verdict.REGRESSED, 3, 4, 1 / 3, 1 / 3, 1 / 3, 0.0, why=why)


def test_json_holds_numbers_that_json_does_not_know_as_text() -> None:
    row = Row(NAME, COUNT, Verdict.REGRESSED, 0, 1, math.inf, math.inf, math.inf, 0.0, why="rose")
    document = json.loads(as_json(RunReport([row], 1, against="x", places={NAME: Place("a.py", 7)})))
    (found,) = document["rows"]
    assert (found["change"], found["reference"], found["class"]) == ("inf", 0, "exact")
    assert (found["file"], found["line"]) == ("a.py", 7)
    assert document["headline"].startswith("regressed: 1 of 1 metrics")
    described = (ROOT / "docs" / "ci.md").read_text().partition("`gate.json` has")[2].partition("\n\n")[0]
    whole, _, row_by_row = described.partition("`rows`:")
    assert set(document) - {"rows"} <= set(re.findall(r"\w+", whole))
    assert set(found) <= set(re.findall(r"\w+", row_by_row))


def test_a_fault_is_the_verdict_and_no_comparison_is_none() -> None:
    for report in (RunReport([], 10, against="x", fault="no record"), RunReport([], 10, fault="no record")):
        assert as_markdown(report).startswith("## ⚠️ perf gate: cannot judge: no record")
        assert commands(report) == ["::error title=perf gate%3A cannot judge::no record"]
    assert as_markdown(RunReport([], 0, values=["a", "  copies 3"])).startswith("## ✅ perf gate: nothing was compared")


def test_a_scenarios_words_do_not_become_markup_or_commands() -> None:
    row = worse(why="first | `line`\n::error::second <b>")
    report = RunReport([row], 1, against="x", places={NAME: Place("odd,name:1.py", 7)})
    text = as_markdown(report)
    assert "first &#124; &#96;line&#96;<br>::error::second &#60;b&#62;" in text
    (command,) = commands(report)
    assert "\n" not in command
    assert command.startswith("::error file=odd%2Cname%3A1.py,line=7,title=perf gate%3A regressed::")
    assert "%0A::error::second" in command


def test_no_more_annotations_than_are_shown_and_the_rest_is_counted() -> None:
    rows = [worse(f"t::t[{index}]") for index in range(MOST_ANNOTATIONS + 3)]
    lines = commands(RunReport(rows, 1, against="x"))
    assert len(lines) == MOST_ANNOTATIONS + 1
    assert "3 more scenarios" in lines[-1]


def test_what_need_not_be_judged_is_counted_and_colours_nothing() -> None:
    unjudged = Row(NAME, TIMED, Verdict.NOT_COMPARABLE, why="another machine.", optional=True)
    report = RunReport([Row(NAME, COUNT, Verdict.PASS, 3, 3, 0.0, 0.0, 0.0, 0.0), unjudged], 0, against="x")
    text = as_markdown(report)
    assert "### Not judged\n\n- 1 metrics: another machine." in text
    assert "| scenario |" not in text
    assert commands(report) == []


def test_a_failed_test_is_named() -> None:
    assert "- **failed** t::right\n" in as_markdown(RunReport([], 1, against="x", failed=["t::right"]))


def test_the_verdict_is_never_better_than_the_exit_status() -> None:
    equal = Row(NAME, COUNT, Verdict.PASS, 3, 3, 0.0, 0.0, 0.0, 0.0)
    for report, said in (
        (RunReport([equal], 0, against="x"), "✅ perf gate: pass: 1 of 1 metrics"),
        (RunReport([equal], 1, against="x", failed=["t::right"]), "❌ perf gate: failed (pass: 1 of 1 metrics"),
        (RunReport([worse()], 1, against="x", failed=["t::right"]), "❌ perf gate: regressed: 1 of 1 metrics"),
        (RunReport([equal], 10, against="x"), "⚠️ perf gate: cannot judge (pass: 1 of 1 metrics"),
        (RunReport([], 1), "❌ perf gate: failed (nothing was compared)"),
        (RunReport([], 10), "⚠️ perf gate: cannot judge (nothing was compared)"),
    ):
        text = as_markdown(report).replace("&#40;", "(").replace("&#41;", ")")
        assert text.startswith(f"## {said}"), text
        assert HEADING.match(text)


def test_what_a_stranger_wrote_is_no_markup_wherever_it_stands() -> None:
    odd = "</pre></details><script>`a` [b](http://c) | @d\n```\n# e $f$ \u202e"
    rows = [
        worse(odd, odd),
        Row(odd, Exact(odd, odd), Verdict.REGRESSED, 1, 2, 1.0, 1.0, 1.0, 0.0, why=odd, against=odd),
        Row(odd, TIMED, Verdict.NOT_COMPARABLE, why=odd, optional=True),
    ]
    full = RunReport(rows, 1, against=odd, fault=odd, failed=[odd], facts=[odd], values=odd.splitlines())
    text = as_markdown(full, [(odd, "a.png")])
    ours = re.sub(r"</?(pre|details|summary)>|<br>|`a\.png`", "", text)
    assert not set("<>`[]@$\\\u202e") & set(ours)
    assert "://" not in ours
    assert text.count("</pre>") == text.count("<pre>") == 1
    (line,) = [line for line in text.splitlines() if line.startswith("| ") and " against " in line]
    assert line.count("|") == 9


def test_a_long_summary_is_cut_and_says_so() -> None:
    rows = [worse(f"t::t[{index}]", "x" * 5000) for index in range(MOST_ROWS + 7)]
    text = as_markdown(RunReport(rows, 1, against="x"))
    assert text.count("\n- **regressed**") == text.count("\n| t&#91;") == MOST_ROWS
    assert text.count("7 more are not shown here") == 2
    assert len(text.encode()) < 2**20
