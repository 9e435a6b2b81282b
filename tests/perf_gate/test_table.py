from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_gate.quantity import change, percent, quantity
from perf_gate.showing.table import failure_text, headline, red, render
from perf_gate.verdict import Exit, Row, Verdict, exit_status
from tests.perf_gate.samples import COPIED, EFFICIENCY, WARM, name

GOOD = Row(name("p50"), EFFICIENCY, Verdict.PASS, 0.97, 0.968, 0.002, -0.01, 0.014, 0.01, 0.022)
SLOW = Row(
    name("p200"),
    EFFICIENCY,
    Verdict.REGRESSED,
    0.9538,
    0.9044,
    0.0547,
    0.0283,
    0.0818,
    0.01,
    0.0359,
    "5.5% worse. Find the change.",
)
FATTER = Row(
    name("p500"), COPIED, Verdict.REGRESSED, 7 * 2**20, 8 * 2**20, 1 / 7, 1 / 7, 1 / 7, 0.0, None, "It went up."
)
GONE = Row(name("old"), None, Verdict.MISSING, why="recorded, but not measured: run it.")
ABROAD = Row(name("p50"), WARM, Verdict.NOT_COMPARABLE, why="another machine: record here.", optional=True)
GAIN = Row(name("p9"), EFFICIENCY, Verdict.IMPROVED, 0.9, 0.95, -0.05, -0.07, -0.03, 0.01, 0.03, "re-record.")
DRIFT = Row(name("p50"), EFFICIENCY, Verdict.PASS, 0.97, 0.968, 0.002, -0.01, 0.014, 0.01, 0.022, against="0001_a")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([SLOW, FATTER, GOOD, GOOD], "regressed: 2 of 4 metrics; 2 pass, 0 not judged"),
        ([GOOD, GOOD], "pass: 2 of 2 metrics; 0 not judged"),
        ([GOOD, ABROAD, DRIFT], "pass: 2 of 3 metrics; 1 not judged"),
        ([GOOD, GAIN], "pass: 2 of 2 metrics; 1 improved, 0 not judged"),
        ([GOOD, GONE], "cannot judge: 1 of 2 metrics; 1 missing, 1 pass, 0 not judged"),
        ([ABROAD], "cannot judge: 0 of 1 metrics; 1 not judged"),
        ([], "cannot judge: 0 metrics were compared"),
    ],
)
def test_the_first_line_is_the_verdict_with_its_counts(rows, said):
    assert headline(rows) == said
    assert render(rows).splitlines()[0] == said


def test_what_is_not_in_order_comes_first_with_its_reason():
    text = render([GOOD, GONE, ABROAD, SLOW], width=140)
    lines = text.splitlines()
    assert lines[1] == f"regressed {SLOW.scenario}: reuse efficiency"
    assert lines[2] == "  5.5% worse. Find the change."
    places = [text.index(word) for word in ("regressed perf", "missing perf", "not comparable perf", "baseline")]
    assert places == sorted(places)
    body = text[text.index("baseline") :]
    assert body.index("p200") < body.index("old]") < body.index("p50")


def test_a_row_says_everything_that_was_compared():
    (line,) = [line for line in render([SLOW], width=140).splitlines() if line.startswith("test_ttft[p200]")]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells == [
        "test_ttft[p200]",
        "reuse efficiency",
        "95.38 %",
        "90.44 %",
        "+5.47 % [+2.83, +8.18]",
        "1.00 %",
        "3.59 %",
        "regressed",
    ]
    (line,) = [line for line in render([FATTER], width=140).splitlines() if line.startswith("test_ttft[p500]")]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[2:] == ["7 MiB", "8 MiB", "+14.29 %", "0.00 %", "any", "regressed"]


def test_rows_against_an_old_record_show_only_where_they_do_not_pass():
    drifted = Row(**{**vars(SLOW), "against": "0001_a"})
    assert "0001_a" not in render([GOOD, DRIFT], width=160)
    assert "against 0001_a" in render([GOOD, drifted], width=160)


def test_exact_metrics_that_are_equal_may_be_counted_only():
    same = Row(name("p50"), FATTER.metric, Verdict.PASS, 7, 7, 0.0, 0.0, 0.0, 0.0)
    assert FATTER.metric.name in render([GOOD, same], width=160)
    text = render([GOOD, same, SLOW], width=160, equal=False)
    assert "1 exact metrics are equal" in text
    assert f"| {FATTER.metric.name} " not in text
    assert "reuse efficiency" in text
    text = render([GOOD, ABROAD, ABROAD], width=160, equal=False)
    assert f"2 metrics not judged (-v shows each): {ABROAD.why}" in text
    assert "not comparable" not in text
    # One that is not equal is shown whatever is asked for.
    assert FATTER.metric.name in render([FATTER], width=160, equal=False)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_table_fits_its_terminal_and_loses_nothing(width):
    text = render([SLOW, FATTER, GOOD, GONE, ABROAD], width=width)
    table = text[text.index("scenario") :].splitlines()
    assert max(map(len, table)) <= width
    squeezed = re.sub(r"[\s|]", "", text)
    for word in ("p200", "p500", "old"):
        assert word in squeezed


def test_colour_changes_nothing_but_the_colour(monkeypatch):
    rows = [SLOW, GOOD, GONE]
    plain = render(rows, width=120)
    assert "\x1b" not in plain
    coloured = render(rows, width=120, color=True)
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()
    for variable in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM"):
        monkeypatch.setenv(variable, "20")
    assert render(rows, width=120) == plain
    assert render(rows, width=120, color=True) == coloured


def test_names_in_brackets_are_not_taken_for_markup():
    odd = Row(name("red"), EFFICIENCY, Verdict.INVALID, why="the [bold]worker[/bold] died")
    assert "test_ttft[red]" in render([odd], width=140)
    assert "the [bold]worker[/bold] died" in render([odd], width=140)


def test_the_failure_of_one_scenario_says_all_that_matters():
    assert failure_text([GOOD, FATTER, SLOW]) == (
        "bytes copied: regressed\n"
        "  baseline 7 MiB, now 8 MiB, change for the worse +14.29 %\n"
        "  threshold 0.00 %, minimum detectable change any\n"
        "  It went up.\n"
        "reuse efficiency: regressed\n"
        "  baseline 95.38 %, now 90.44 %, change for the worse +5.47 % [+2.83, +8.18]\n"
        "  threshold 1.00 %, minimum detectable change 3.59 %\n"
        "  5.5% worse. Find the change."
    )
    assert failure_text([GONE]) == f"{name('old')}: missing\n  recorded, but not measured: run it."


def test_what_is_in_order_is_no_failure():
    assert failure_text([GOOD, ABROAD, GAIN, DRIFT]) == ""


@pytest.mark.parametrize("row", [GOOD, SLOW, FATTER, GONE, ABROAD, GAIN, DRIFT])
def test_a_row_is_red_exactly_where_it_keeps_a_run_from_passing(row):
    assert red(row) is (exit_status([GOOD, row]) is not Exit.PASS)


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (None, "s", "-"),
        (0.0071234, "s", "7.123 ms"),
        (1.5, "s", "1.5 s"),
        (12.3e-6, "s", "12.3 µs"),
        (5e-9, "s", "5 ns"),
        (0.0, "s", "0 ns"),
        (0.9538, "ratio", "95.38 %"),
        (3.2853, "ratio", "3.285x"),
        (3.2853, "x", "3.285x"),
        (0, "B", "0 B"),
        (7 * 2**20, "B", "7 MiB"),
        (7 * 2**20 + 1, "B", "7,340,033 B"),
        (36864, "B", "36 KiB"),
        (3 * 2**30, "B", "3 GiB"),
        (36.5, "B", "36.5 B"),
        (1234567, "FLOP", "1,234,567 FLOP"),
        (2.0, "calls", "2 calls"),
        (2.5, "", "2.5"),
        (math.inf, "s", "inf"),
    ],
)
def test_quantities_read_as_people_write_them(value, unit, said):
    assert quantity(value, unit) == said


@pytest.mark.parametrize(
    ("then", "now", "unit", "said"),
    [
        (10, 11, "tokens", "from 10 to 11 tokens"),
        (7 * 2**20, 8 * 2**20, "B", "from 7 to 8 MiB"),
        (7 * 2**20, 2**20 + 1, "B", "from 7 MiB to 1,048,577 B"),
        (2.0, 3.0, "x", "from 2x to 3x"),
        (2, 3, "", "from 2 to 3"),
    ],
)
def test_a_change_names_its_unit_once_where_it_can(then, now, unit, said):
    assert change(then, now, unit) == said


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_two_byte_counts_never_read_alike(one, other):
    assert (quantity(one, "B") == quantity(other, "B")) is (one == other)


@pytest.mark.parametrize(
    ("share", "signed", "said"),
    [
        (None, False, "-"),
        (0.0123, False, "1.23 %"),
        (0.0123, True, "+1.23 %"),
        (-0.5, True, "-50.00 %"),
        (11.0, True, "12x"),
        (math.inf, True, "+inf"),
    ],
)
def test_shares_read_as_percent(share, signed, said):
    assert percent(share, signed=signed) == said
