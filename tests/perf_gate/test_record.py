from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_gate.metric import Exact
from perf_gate.records import codec, record
from perf_gate.records.record import (
    Record,
    RecordError,
    Section,
    earliest,
    files,
    history,
    load,
    newest,
    next_path,
    oldest,
    save,
)
from perf_gate.records.recordable import NotRecordableError, require_recordable
from tests.perf_gate import samples
from tests.perf_gate.samples import (
    CALLS,
    COPIED,
    EFFICIENCY,
    ELSEWHERE,
    MACHINE,
    SPEEDUP,
    WARM,
    measurement,
    name,
    provenance,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def base() -> Record:
    metrics = (COPIED, CALLS, EFFICIENCY, SPEEDUP, replace(WARM, absolute_threshold=1e-5))
    return samples.record(
        [
            measurement("a", workers=3, visits=4, metrics=metrics, exact={"bytes copied": 7 * 2**20}),
            measurement("b", workers=3, visits=5, worker_names=["x", "y", "z"]),
            measurement("c", metrics=[COPIED]),
        ]
    )


def unsigned(section: Section) -> Section:
    """Without what reading adds: the file's name, and names for workers that had none."""
    return replace(
        section,
        measurements=tuple(replace(each, record="", worker_names=each.names) for each in section.measurements),
    )


def test_everything_comes_back_to_the_last_bit(base, tmp_path):
    path = tmp_path / "0001_base.json"
    save(base, path)
    read = load(path)
    assert read.path == path
    assert {each.record for each in read.latest.measurements} == {"0001_base"}
    assert {machine: unsigned(section) for machine, section in read.sections.items()} == {
        machine: unsigned(section) for machine, section in base.sections.items()
    }
    assert (read.name, read.profile, read.created) == (base.name, base.profile, base.created)
    again = tmp_path / "0002_base.json"
    save(read, again)
    assert again.read_text() == path.read_text()


@given(st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=5))
def test_every_time_survives_its_text(times):
    seconds = {"warm": (tuple(times),), "floor": (tuple(times),)}
    one = replace(measurement("a"), seconds=seconds)
    text = codec.encode("base", "quick", samples.record([one]).sections.values())
    _, _, (section,) = codec.decode(text, Path("x"))
    assert section.measurements[0].seconds == seconds


def test_pytest_benchmark_opens_it_with_a_row_per_arm(base, tmp_path):
    path = tmp_path / "0001_base.json"
    save(base, path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", str(path), "--columns=min,mean,rounds", "--name=normal"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    for row in ("test_ttft[a] cold", "test_ttft[a] warm", "test_ttft[a] floor", "test_ttft[b] warm"):
        assert row in done.stdout


def test_tools_that_read_benchmarks_find_what_they_look_for(base, tmp_path):
    path = tmp_path / "0001_base.json"
    save(base, path)
    document = json.loads(path.read_text())
    assert {"machine_info", "commit_info", "benchmarks", "datetime", "version"} < set(document)
    assert document["machine_info"]["node"] == ""
    assert document["commit_info"]["id"] == provenance().commit
    warm = next(row for row in document["benchmarks"] if row["fullname"] == f"{name('a')} warm")
    assert warm["extra_info"]["bytes copied"] == 7 * 2**20
    samples_of_a = base.latest.measurements[0].seconds["warm"]
    assert warm["stats"]["rounds"] == sum(map(len, samples_of_a))
    assert warm["stats"]["min"] == min(second for visits in samples_of_a for second in visits)
    assert "data" not in warm["stats"], "every sample is stored once, by worker, in the gate's own part"
    assert warm["stats"]["rounds"] == 12
    assert warm["stats"]["min"] == min(map(min, samples_of_a))
    assert {"ops", "stddev", "median", "iqr", "outliers", "iterations", "total"} < set(warm["stats"])


ALONE = Exact("bytes kept alive", "B")
FREED = Exact("bytes kept alive after evicting all", "B")
PARTS = Exact("parts", "nodes")


@pytest.fixture
def counted() -> Record:
    metrics = (ALONE, FREED, PARTS)
    exact = {"bytes kept alive": 7 * 2**20 + 1, "bytes kept alive after evicting all": 0, "parts": 3}
    timed = measurement("a", workers=3, visits=4)
    return samples.record([measurement("m", metrics=metrics, exact=exact), timed])


def test_bytes_of_what_is_never_timed_have_rows_of_one_value(counted, tmp_path):
    path = tmp_path / "0001_base.json"
    save(counted, path)
    rows = {row["fullname"]: row for row in json.loads(path.read_text())["benchmarks"]}
    assert set(rows) == {
        *(f"{name('m')} {metric.name} (B)" for metric in (ALONE, FREED)),
        *(f"{name('a')} {arm}" for arm in ("cold", "warm", "floor")),
    }
    for metric, value in ((ALONE, 7 * 2**20 + 1), (FREED, 0)):
        row = rows[f"{name('m')} {metric.name} (B)"]
        assert row["extra_info"] == {**counted.latest.measurements[0].exact, "unit": "B", "metric": metric.name}
        figures = row["stats"]
        assert all(figures[each] == value for each in ("min", "max", "mean", "median", "total"))
        assert (figures["rounds"], figures["iterations"], figures["stddev"], figures["iqr"]) == (1, 1, 0, 0)
        # What github-action-benchmark reads, as its chart shows it: more is better.
        assert figures["ops"] == pytest.approx(1 / value if value else 0)


def test_rows_of_bytes_are_not_read_back_and_not_missed(counted, tmp_path):
    path = tmp_path / "0001_base.json"
    save(counted, path)
    document = json.loads(path.read_text())
    document["benchmarks"] = [row for row in document["benchmarks"] if "unit" not in row["extra_info"]]
    assert len(document["benchmarks"]) == 3
    older = tmp_path / "older" / path.name
    older.parent.mkdir()
    older.write_text(json.dumps(document))
    for each in (path, older):
        assert unsigned(load(each).latest).measurements == unsigned(counted.latest).measurements
    assert load(older).latest == load(path).latest


def test_lists_of_numbers_take_one_line(base, tmp_path):
    path = tmp_path / "0001_base.json"
    save(base, path)
    visits = json.dumps(list(base.latest.measurements[0].seconds["warm"][0]))
    assert any(line.strip().rstrip(",") == visits for line in path.read_text().splitlines())


def other(base: Record) -> Section:
    foreign = tuple(replace(each, machine=ELSEWHERE) for each in base.latest.measurements)
    return Section("2026-02-02T00:00:00+00:00", provenance(ELSEWHERE), foreign)


def test_machine_classes_lie_side_by_side(base, tmp_path):
    path = tmp_path / "0001_base.json"
    save(base, path)
    before = load(path)
    save(before.holding(other(base)), path, overwrite=True)
    both = load(path)
    assert set(both.sections) == {MACHINE, ELSEWHERE}
    assert both.section(MACHINE) == before.section(MACHINE)
    assert both.section(ELSEWHERE).machine == ELSEWHERE
    assert {each.machine for each in both.section(ELSEWHERE).measurements} == {ELSEWHERE}
    assert both.section("unknown").machine == ELSEWHERE, "the section recorded last stands in for a missing one"
    assert both.latest.machine == ELSEWHERE


def test_a_record_without_a_section_or_under_another_name_is_refused(base):
    with pytest.raises(ValueError, match="at least one"):
        Record("base", "quick", {})
    with pytest.raises(ValueError, match="was recorded on"):
        Record("base", "quick", {ELSEWHERE: base.latest})


def edited(base, change):
    document = json.loads(codec.encode(base.name, base.profile, base.sections.values()))
    change(document["perf_gate"])
    return json.dumps(document)


def put(*way_and_value):
    *way, key, value = way_and_value

    def change(ours):
        target = ours
        for step in way:
            target = target[step]
        target[key] = value

    return change


def drop(*way):
    *way, key = way

    def change(ours):
        target = ours
        for step in way:
            target = target[step]
        del target[key]

    return change


FIRST = ("sections", MACHINE, "measurements", 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("schema", 3), "has schema 3, and this version of the gate reads schema 2"),
        (put("schema", 0), "has schema 0, of an earlier version of the gate"),
        (put("schema", "1"), "schema is '1', not a whole number"),
        (put("schema", True), "schema is True"),
        (drop("schema"), "schema is None"),
        (drop("name"), "'name' is missing"),
        (put("profile", 3), "'profile' is int, not str"),
        (put("sections", {}), "has no machine class"),
        (put("sections", MACHINE, "measurements", []), "has no measurement"),
        (put("sections", MACHINE, "provenance", "machine", "else"), "was recorded on 'else'"),
        (put("sections", MACHINE, "provenance", "dirty", "no"), "'dirty' is str, not bool"),
        (put(*FIRST, "scenario", name("b")), f"{name('b')!r} occurs twice"),
        (put(*FIRST, "seconds", "warm", 0, 0, "fast"), "expected seconds, not str"),
        (put(*FIRST, "seconds", "warm", 0, 0, None), "expected seconds, not NoneType"),
        (put(*FIRST, "seconds", "warm", 0, 0, True), "expected seconds, not bool"),
        (put(*FIRST, "seconds", "warm", 0, 0, 0), "took 0.0 s"),
        (put(*FIRST, "seconds", "warm", 0, 0, -1.0), "took -1.0 s"),
        (put(*FIRST, "seconds", "warm", 0, []), "never visited arm 'warm'"),
        (put(*FIRST, "seconds", "warm", 0, 3.0), "expected a list of seconds"),
        (drop(*FIRST, "seconds", "warm"), "arm 'warm' was not timed"),
        (put(*FIRST, "exact", "bytes copied", "7"), "'bytes copied' is str"),
        (drop(*FIRST, "exact", "bytes copied"), "'bytes copied' was not counted"),
        (put(*FIRST, "workers", ["x", "x", "y"]), "names its workers wrongly"),
        (put(*FIRST, "metrics", 0, "class", "guessed"), "neither 'exact' nor 'sampled'"),
        (put(*FIRST, "metrics", 0, "better", "sideways"), "sideways"),
        (put(*FIRST, "metrics", 2, "threshold", 0.9), "threshold < resolution"),
        (put(*FIRST, "metrics", 2, "denominator", 5), "'denominator' is int"),
        (put("sections", []), "'sections' is list"),
        (put(*FIRST, "metrics", 2, "threshold", True), "'threshold' is bool"),
        (put(*FIRST, "metrics", 2, "other_machine_threshold", False), "'other_machine_threshold' is bool"),
        (put(*FIRST, "seconds", "warm", 0, 0, 10**400), "too large"),
        (put(*FIRST, "exact", "bytes copied", 10**400), "not a finite number"),
    ],
)
def test_a_damaged_record_is_refused_with_the_place_and_the_next_step(base, tmp_path, change, said):
    path = tmp_path / "0001_base.json"
    path.write_text(edited(base, change))
    with pytest.raises(RecordError) as caught:
        load(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(".")
    assert caught.value.remedy


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_not_finite_is_refused(base, tmp_path, word):
    path = tmp_path / "0001_base.json"
    text = codec.encode(base.name, base.profile, base.sections.values())
    visit = str(base.latest.measurements[0].seconds["warm"][1][2])
    assert visit in text
    path.write_text(text.replace(visit, word))
    with pytest.raises(RecordError, match=r"not a measurement|not a time"):
        load(path)


def test_what_is_not_finite_is_refused_in_the_part_of_pytest_benchmark_too(base, tmp_path):
    path = tmp_path / "0001_base.json"
    text = codec.encode(base.name, base.profile, base.sections.values())
    assert '"iterations": 1' in text
    path.write_text(text.replace('"iterations": 1', '"iterations": NaN'))
    with pytest.raises(RecordError, match="NaN"):
        load(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[]", "not a record of the gate"),
        ("3", "not a record of the gate"),
        ('{"benchmarks": []}', "not a record of the gate"),
        ('{"perf_gate": 1}', "not a record of the gate"),
        ('{"perf_gate": {"schema": 1, "schema": 1}}', "'schema' occurs twice"),
        ("<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> branch\n", "has git conflict markers"),
        ("[" * 100_000, "recursion"),
        ("\x00", "damaged"),
        ("9" * 5000, "limit"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path, text, said):
    path = tmp_path / "0001_base.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=said):
        load(path)


def test_a_file_cut_off_anywhere_is_refused(base, tmp_path):
    text = codec.encode(base.name, base.profile, base.sections.values()).rstrip()
    path = tmp_path / "0001_base.json"
    for end in range(0, len(text), max(1, len(text) // 40)):
        path.write_text(text[:end])
        with pytest.raises(RecordError):
            load(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"no such file.*--gate-record"):
        load(tmp_path / "0001_none.json")
    (tmp_path / "0001_bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="cannot be read"):
        load(tmp_path / "0001_bytes.json")
    with pytest.raises(RecordError, match="cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_what_could_not_be_read_again_is_not_written(base, tmp_path, value):
    bad = replace(measurement("a"), seconds={"warm": ((value,),), "floor": ((1.0,),)})
    with pytest.raises(ValueError, match="not a time"):
        save(samples.record([bad]), tmp_path / "0001_bad.json")
    with pytest.raises(ValueError, match="occurs twice"):
        save(samples.record([measurement("a"), measurement("a")]), tmp_path / "0001_bad.json")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unasked(base, tmp_path):
    path = tmp_path / "0001_base.json"
    save(base, path)
    before = path.read_text()
    with pytest.raises(RecordError, match="already exists"):
        save(replace(base, name="other"), path)
    assert path.read_text() == before
    save(replace(base, name="other"), path, overwrite=True)
    assert load(path).name == "other"


def test_a_name_that_another_run_took_meanwhile_is_not_overwritten(base, tmp_path, monkeypatch):
    path = tmp_path / "0001_base.json"
    real = record.os.fsync

    def overtaken(descriptor):
        path.write_text("theirs")
        real(descriptor)

    monkeypatch.setattr(record.os, "fsync", overtaken)
    with pytest.raises(RecordError, match="already exists"):
        save(base, path)
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("call", "overwrite"), [("fsync", True), ("replace", True), ("fsync", False), ("link", False)])
def test_an_error_leaves_no_draft_behind(base, tmp_path, monkeypatch, call, overwrite):
    path = tmp_path / "0001_base.json"
    if overwrite:
        save(base, path)
    before = {each: each.read_text() for each in tmp_path.iterdir()}

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(record.os, call, fail)
    with pytest.raises(RecordError, match=r"0001_base\.json: cannot be written \(disk full\)"):
        save(replace(base, name="new"), path, overwrite=overwrite)
    assert {each: each.read_text() for each in tmp_path.iterdir()} == before


KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from perf_gate.records import record

path, call, after = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "after"
real = getattr(os, call)

def dies(*arguments, **keywords):
    if call == "fdopen":
        os.write(arguments[0], b'{"half": ')
    elif after:
        real(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

old = record.load(path)
setattr(os, call, dies)
record.save(replace(old, name="new"), path, overwrite=True)
"""


@pytest.mark.parametrize(
    ("call", "moment", "left"),
    [
        ("fdopen", "before", "base"),
        ("fsync", "before", "base"),
        ("replace", "before", "base"),
        ("replace", "after", "new"),
    ],
)
def test_kill_9_leaves_the_old_record_or_the_new_one(base, tmp_path, call, moment, left):
    path = tmp_path / "0001_base.json"
    save(base, path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), call, moment], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert load(path).name == left
    assert files(tmp_path) == [path], "a draft left behind must not be taken for a record"


def write(folder, *names, profile="quick", **changes):
    for each in names:
        save(samples.record([measurement("a", workers=2, **changes)], profile=profile), folder / each)


def test_the_number_decides_which_record_is_newest(tmp_path):
    write(tmp_path, "0002_a.json", "0010_b.json", "0009_c.json")
    write(tmp_path, "0011_full.json", profile="full")
    (tmp_path / "README.md").write_text("records")
    assert [each.path.name for each in history(tmp_path, "quick")] == ["0002_a.json", "0009_c.json", "0010_b.json"]
    assert newest(tmp_path, "quick").path.name == "0010_b.json"
    assert oldest(tmp_path, "quick").path.name == "0002_a.json"
    assert newest(tmp_path, "full").path.name == "0011_full.json"
    assert next_path(tmp_path, "next").name == "0012_next.json"


@pytest.mark.parametrize("damaged", ["0001_a.json", "0003_c.json"])
def test_an_unreadable_record_is_never_passed_over(tmp_path, damaged):
    write(tmp_path, "0001_a.json", "0002_b.json", "0003_c.json")
    (tmp_path / damaged).write_text("{")
    for look in (newest, oldest):
        with pytest.raises(RecordError, match=damaged):
            look(tmp_path, "quick")


def test_a_folder_without_records_names_the_command_that_makes_one(tmp_path):
    for folder, profile in ((tmp_path / "none", "quick"), (tmp_path, "quick")):
        with pytest.raises(RecordError, match="--gate-record NAME"):
            newest(folder, profile)
    write(tmp_path, "0001_a.json")
    with pytest.raises(RecordError, match="no record of profile 'full'"):
        newest(tmp_path, "full")


@pytest.mark.parametrize("stray", ["base.json", "1_a.json", "0002 a.json", "Linux-64bit/0002_a.json"])
def test_a_file_that_would_never_be_compared_with_is_an_error(tmp_path, stray):
    write(tmp_path, "0001_a.json")
    (tmp_path / stray).parent.mkdir(exist_ok=True)
    (tmp_path / stray).write_text("{}")
    with pytest.raises(RecordError, match=r"NNNN_name\.json"):
        files(tmp_path)


def test_two_records_with_one_number_are_an_error(tmp_path):
    write(tmp_path, "0001_a.json", "0001_b.json")
    with pytest.raises(RecordError, match=r"same number as 0001_a\.json"):
        files(tmp_path)


def test_a_name_that_makes_no_record_file_is_refused(tmp_path):
    assert next_path(tmp_path / "none", "first").name == "0001_first.json"
    for wrong in ("", "a/b", "a b", ".hidden", "../x"):
        with pytest.raises(ValueError, match="record name"):
            next_path(tmp_path, wrong)


def test_the_earliest_comparable_record_is_found_for_each_scenario(tmp_path):
    write(tmp_path, "0001_a.json", fingerprint="old")
    write(tmp_path, "0002_b.json", "0003_c.json")
    now = [measurement("a"), measurement("new")]
    found = earliest(history(tmp_path, "quick"), now, MACHINE)
    assert [(each.scenario, each.record) for each in found] == [(name("a"), "0002_b")]
    assert earliest(history(tmp_path, "quick"), now, ELSEWHERE) == []


GOOD = [measurement("a", workers=8), measurement("b", metrics=[COPIED])]


def test_a_whole_clean_run_may_be_recorded():
    require_recordable(GOOD, provenance())
    require_recordable([replace(each, seconds={}) for each in GOOD], provenance(), sampled=False)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"failed": ["test_x"]}, "test_x failed"),
        ({"left_out": ["test_x"]}, "test_x was left out"),
        ({"unmeasured": ["p50"]}, "p50 was not measured"),
        ({"measurements": []}, "no scenario was measured"),
        ({"measurements": [measurement("a", invalid="worker died")]}, "worker died"),
        ({"measurements": [measurement("a", workers=4)]}, "4 workers timed it, a record needs 8"),
        ({"provenance": provenance(dirty=True)}, "has uncommitted changes"),
        ({"provenance": provenance(commit="")}, "no git commit"),
        ({"sampled": False, "previous": samples.record(GOOD)}, "has exact metrics only"),
    ],
)
def test_every_reason_to_refuse_a_record_is_given(changes, said):
    usual = {"measurements": GOOD, "provenance": provenance()}
    with pytest.raises(NotRecordableError, match=said):
        require_recordable(**{**usual, **changes})
    everything = {**usual, "failed": ["other"], **changes}
    if "failed" not in changes:
        with pytest.raises(NotRecordableError) as caught:
            require_recordable(**everything)
        assert len(caught.value.reasons) == 2
