from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perf_gate.cli import main, parser
from perf_gate.judging.judge import Policy, judge
from perf_gate.records.record import load, save
from perf_gate.showing.compare import compare
from perf_gate.verdict import Exit, Verdict, exit_status
from tests.perf_gate import samples
from tests.perf_gate.samples import COPIED, EFFICIENCY, ELSEWHERE, MACHINE, SPEEDUP, measurement

ROOT = Path(__file__).parents[2]
SHORT = ("p50", "p200")


@pytest.fixture
def put(tmp_path):
    """Write a record of two scenarios and give back its path."""

    def write(file, seed, **changes):
        machine = changes.get("machine", MACHINE)
        path = tmp_path / file
        measured = [measurement(short, seed=seed, workers=16, visits=20, **changes) for short in SHORT]
        save(samples.record(measured, machine=machine), path)
        return str(path)

    return write


def test_two_records_of_the_same_code_pass(put, capsys):
    assert main(["compare", put("0001_a.json", 1), put("0002_b.json", 2)]) == 0
    assert capsys.readouterr().out.startswith("pass: 5 of 5 metrics; 0 not judged\n")


def test_the_second_file_is_the_one_that_is_judged(put, capsys):
    fast, slow = put("0001_a.json", 1), put("0002_b.json", 2, slower=1.2)
    assert main(["compare", fast, slow]) == Exit.REGRESSED
    assert capsys.readouterr().out.startswith("regressed: 3 of 5 metrics")
    assert main(["compare", slow, fast]) == 0
    assert capsys.readouterr().out.startswith("pass: 5 of 5 metrics; 3 improved")


def test_exact_only_leaves_the_timed_metrics_out(put, capsys):
    fast, slow = put("0001_a.json", 1), put("0002_b.json", 2, slower=1.2)
    assert main(["compare", "--exact", fast, slow]) == 0
    assert "2 not judged" in capsys.readouterr().out.splitlines()[0]
    fat = put("0003_c.json", 3, exact={"bytes copied": 1})
    assert main(["compare", "--exact", fast, fat]) == 1


def test_what_is_missing_cannot_be_judged(put, tmp_path, capsys):
    whole, part = put("0001_a.json", 1), tmp_path / "0002_b.json"
    save(samples.record([measurement("p50", seed=2, workers=16)]), part)
    assert main(["compare", whole, str(part)]) == Exit.CANNOT_JUDGE
    assert "1 missing" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("text", [None, "", "{", "{}", "<<<<<<< HEAD\n"])
@pytest.mark.parametrize("verb", ["compare", "show"])
def test_an_unreadable_record_cannot_be_judged(put, tmp_path, capsys, verb, text):
    path = tmp_path / "0009_x.json"
    if text is not None:
        path.write_text(text)
    arguments = [verb, str(path)] + ([put("0001_a.json", 1)] if verb == "compare" else [])
    assert main(arguments) == Exit.CANNOT_JUDGE
    said = capsys.readouterr()
    assert said.err.startswith("cannot judge: ")
    assert str(path) in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""


@pytest.mark.parametrize(
    "arguments",
    [[], ["guess"], ["compare"], ["compare", "a.json"], ["compare", "a", "b", "--alpha", "3"], ["show", "--no-such"]],
)
def test_a_wrong_call_ends_with_4(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 4
    assert "usage: perf-gate" in capsys.readouterr().err


def test_an_unknown_machine_class_is_a_wrong_call(put, capsys):
    one = put("0001_a.json", 1)
    assert main(["compare", one, one, "--machine", "abacus"]) == 4
    assert MACHINE in capsys.readouterr().err


def test_the_machine_class_to_judge_can_be_chosen(put, tmp_path):
    metrics = (COPIED, EFFICIENCY, SPEEDUP)
    reference = load(put("0001_a.json", 1, metrics=metrics))
    now = load(put("0002_b.json", 2, metrics=metrics))
    foreign = load(put("0003_c.json", 3, metrics=metrics, machine=ELSEWHERE))
    later = replace(foreign.latest, created="2027-01-01T00:00:00+00:00")
    both = now.holding(later)
    home, abroad = compare(reference, both, machine=MACHINE), compare(reference, both)
    assert not any(row.optional for row in home)
    assert [row.metric.name for row in abroad if row.optional] == ["speedup"] * 2
    assert exit_status(home) is exit_status(abroad) is Exit.PASS


def test_the_reference_is_the_section_of_the_same_machine_class(put):
    home, now = load(put("0001_a.json", 1, slower=1.2)), load(put("0002_b.json", 2, slower=1.2))
    later = replace(load(put("0003_c.json", 3, machine=ELSEWHERE)).latest, created="2027-01-01T00:00:00+00:00")
    assert exit_status(compare(home.holding(later), now)) is Exit.PASS


def test_finished_records_are_looked_at_once_and_pay_for_one_look(put):
    one, other = load(put("0001_a.json", 1)), load(put("0002_b.json", 2))
    once = judge(
        other.latest.measurements, one.latest.measurements, policy=Policy(alpha=0.01, looks=1), machine=MACHINE
    )
    assert compare(one, other, alpha=0.01) == once


def test_other_software_is_read_from_the_records(put, tmp_path):
    metrics = (COPIED, EFFICIENCY, samples.CALLS)
    reference = load(put("0001_a.json", 1, metrics=metrics))
    section = replace(
        reference.latest,
        provenance=samples.provenance(versions={"torch": "3.0"}),
        measurements=tuple(
            replace(each, exact={**each.exact, "operator calls": 5}) for each in reference.latest.measurements
        ),
    )
    calls = [
        row
        for row in compare(reference, replace(reference, sections={MACHINE: section}))
        if row.metric is samples.CALLS or (row.metric is not None and row.metric.name == "operator calls")
    ]
    assert {row.verdict for row in calls} == {Verdict.NOT_COMPARABLE}
    assert all(row.optional for row in calls)


def test_slow_drift_shows_against_a_third_record(put, capsys):
    oldest, newest, now = put("0001_a.json", 1), put("0002_b.json", 2, slower=1.1), put("0003_c.json", 3, slower=1.1)
    assert main(["compare", newest, now]) == 0
    assert main(["compare", newest, now, "--oldest", oldest]) == 1
    assert "compared with the oldest comparable record 0001_a" in " ".join(capsys.readouterr().out.split())


def test_show_says_what_is_in_a_record(put, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["show", put("0001_a.json", 1)]) == 0
    said = capsys.readouterr().out
    for word in (MACHINE, "0123456789ab on main", "torch 2.13.0+cpu", "profile=quick", "pytest perf_tests"):
        assert word in said
    (line,) = [line for line in said.splitlines() if "p200" in line and "efficiency" in line]
    assert [cell.strip() for cell in line.split("|")][3:5] == ["16", "320"]


def test_show_reads_a_record_without_times(tmp_path, capsys):
    path = tmp_path / "0001_a.json"
    save(samples.record([replace(measurement("a"), seconds={})]), path)
    assert main(["show", str(path)]) == 0
    assert "not timed" in capsys.readouterr().out


@pytest.mark.parametrize(("slower", "status"), [(1.0, 0), (1.2, 1)])
def test_a_shell_sees_the_verdict(put, slower, status):
    files = put("0001_a.json", 1), put("0002_b.json", 2, slower=slower)
    done = subprocess.run(
        [sys.executable, "-m", "perf_gate.cli", "compare", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr == ""


def test_a_reader_that_has_seen_enough_gets_no_traceback(put):
    show = [sys.executable, "-u", "-m", "perf_gate.cli", "show", put("0001_a.json", 1)]
    with subprocess.Popen(show, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.close()
        assert reader.stderr.read() == ""
        assert reader.wait() == Exit.CANNOT_JUDGE


def test_runs_that_calibrate_keeps_do_not_make_the_checkout_dirty():
    folder = parser().parse_args(["calibrate", "0001_quick.json"]).folder
    assert f"/{folder}/" in (ROOT / ".gitignore").read_text().splitlines()
