"""Files are this experiment's, or are refused by name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cache_bench.experiment import origin as origin_module
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.options import Options
from cache_bench.experiment.origin import digest, measuring, origin
from cache_bench.experiment.plan import plan
from cache_bench.experiment.results import Results


@pytest.fixture
def folder(measured_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(measured_folder, tmp_path / "copy"))


def resume(folder: Path, options: Options) -> Results:
    return Results.resume(folder, origin(options), plan(options))


def test_what_was_written_is_read(folder: Path, options: Options, measured: Results) -> None:
    again = resume(folder, options)
    assert again.readings == measured.readings
    assert again.counts == measured.counts
    text = again.csv.read_bytes(), again.json.read_bytes()
    again.append([])
    again.conclude({})
    again.head.pop("answers")
    again._save_head()
    assert (again.csv.read_bytes(), again.json.read_bytes()) == text


def test_each_step_replaces_the_rows_and_each_count_the_head(folder: Path, measured: Results, options: Options) -> None:
    results = resume(folder, options)

    def replaced(step: Callable[[], None]) -> set[str]:
        before = {file: file.stat().st_ino for file in (results.csv, results.json)}
        held = [file.open("rb") for file in before]  # lest a number be given to a new file
        step()
        for file in held:
            file.close()
        return {file.suffix for file, number in before.items() if file.stat().st_ino != number}

    assert replaced(lambda: results.append(measured.readings[:1])) == {".csv"}
    for step in (results.begin, lambda: results.count(measured.counts[0]), lambda: results.conclude({})):
        assert replaced(step) == {".json"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"output_tokens": 4}, r"output_tokens: 3 there, 4 now"),
        ({"prefixes": (8, 251)}, r"prefixes: '8 250' there, '8 251' now"),
        ({"seed": 1}, r"seed: 0 there, 1 now"),
    ],
)
def test_other_options_are_refused_by_name(
    folder: Path, options: Options, change: dict[str, object], words: str
) -> None:
    with pytest.raises(ExperimentError, match=rf"tiny-grouped\.csv was made with something else.*{words}.*--out"):
        resume(folder, replace(options, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["code", "software", "machine", "model"])
def test_other_code_software_machines_and_models_are_refused(folder: Path, options: Options, what: str) -> None:
    now = origin(options)
    other = replace(now, made_with={**now.made_with, what: "another"})
    if what == "model":
        for file in ("csv", "json"):
            (folder / f"{options.model}.{file}").rename(folder / f"another.{file}")
    with pytest.raises(ExperimentError, match=rf"{what}: .* there, 'another' now"):
        Results.resume(folder, other, plan(options))


def test_the_code_is_every_file_that_a_measurement_goes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {file.relative_to(origin_module.ROOT).as_posix() for file in measuring()}
    assert {
        "prefix_cache/cache.py",
        "cache_bench/engines/transformers_prefix_cache.py",
        "cache_bench/floor.py",
        "cache_bench/system_prompt.txt",
        "cache_bench/experiment/laboratory.py",
    } <= names
    assert not any("/test_" in name for name in names)
    # Whoever adds a file decides whether stored results may be gone on with when it changes.
    assert {Path(name).stem for name in names if name.startswith("cache_bench/experiment/")} == {
        "count",
        "laboratory",
        "plan",
        "run",
        "script",
    }
    monkeypatch.setattr(origin_module, "ROOT", tmp_path)
    file = tmp_path / "a.py"
    file.write_text("one", encoding="utf-8")
    before = digest([file])
    file.write_text("two", encoding="utf-8")
    assert digest([file]) != before


def test_a_file_that_was_cut_off_anywhere_loses_the_last_step_and_no_other(
    folder: Path, options: Options, measured: Results
) -> None:
    file, now, steps = folder / "tiny-grouped.csv", origin(options), plan(options)
    whole = file.read_bytes()
    lines = iter(whole.splitlines(keepends=True))
    ends = [len(next(lines))]  # where nothing is cut in two: behind the head, and behind each step
    for step in steps:
        ends.append(ends[-1] + sum(len(next(lines)) for _ in step.rows))
    assert ends[-1] == len(whole)
    for length in (0, 1, ends[0] - 1, ends[0], ends[0] + 1, *range(ends[-3] - 1, len(whole) + 1, 7), len(whole)):
        file.write_bytes(whole[:length])
        found = Results.resume(folder, now, steps)
        kept = steps[: sum(end <= length for end in ends[1:])]
        assert found.done == {step.key for step in kept}
        assert found.readings == measured.readings[: sum(len(step.rows) for step in kept)]
        assert ("is cut off: what stands from line" in found.notice) == (length not in ends)


def test_what_was_cut_off_is_not_answered_from(folder: Path, options: Options) -> None:
    file = folder / "tiny-grouped.csv"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:-1]), encoding="utf-8")
    found = Results.stored(folder, options.model)
    with pytest.raises(ExperimentError, match=r"holds 39 of 40 prompts; finish it .*\(.* is cut off: .* line \d+ on"):
        found.require_finished()


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("line", [2, 3, 20])
@pytest.mark.parametrize("twice", [False, True])
def test_rows_that_were_removed_or_doubled_are_refused_with_a_way_that_works(
    folder: Path, options: Options, stored: bool, line: int, twice: bool
) -> None:
    file = folder / "tiny-grouped.csv"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[line - 1 : line] = [lines[line - 1]] * (2 if twice else 0)
    file.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(
        ExperimentError,
        match=r"tiny-grouped\.csv, line \d+: the \d rows of prompt \d, .*delete this line and all below",
    ) as refused:
        _ = Results.stored(folder, options.model) if stored else resume(folder, options)
    named = int(re.findall(r"line (\d+)", str(refused.value))[0])
    assert line - 3 < named <= line
    file.write_text("".join(lines[: named - 1]), encoding="utf-8")
    assert len(resume(folder, options).done) == (named - 2) // 3


def test_rows_of_another_experiment_are_refused(folder: Path, options: Options) -> None:
    file = folder / "tiny-grouped.csv"
    text = file.read_text(encoding="utf-8")
    file.write_text(text + text.splitlines()[1].replace("prompt,", "prompt,9", 1) + "\n", encoding="utf-8")
    with pytest.raises(
        ExperimentError, match=r"csv, line \d+: it holds prompt 9\d, which this experiment has not asked"
    ):
        resume(folder, options)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ttft_s", "ttft", "line 1: its columns are"),
        (",cold,0,", ",cold,first,", r"line \d+: position is 'first', which is no whole number"),
        (",cold,0,", ",cold,-1,", r"line \d+: position is '-1', which is no whole number of 0 or more"),
        (",0.0", ",-0.0", r"line \d+: ttft_s is '-0\.0\d+', which is no time"),
        (",0.0", ",nan0.0", r"line \d+: ttft_s is 'nan0\.0\d+', which is no time"),
        (",cold,0,", ",cold,,", r"line \d+: position is empty"),
        (",cold,0,", ",cold,", r"line \d+: it holds 15 values; expected 16"),
        (",cold,0,", ',"cold"?,0,', r"line \d+: its quotation marks do not match"),
        (",cold,0,", ",c\udcffld,0,", r"line \d+: it is no text in UTF-8"),
    ],
)
def test_rows_that_are_none_are_refused_with_their_line(
    folder: Path, options: Options, old: str, new: str, words: str
) -> None:
    file = folder / "tiny-grouped.csv"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ExperimentError, match=rf"tiny-grouped\.csv, {words}.*Restore the file, or delete this line"):
        resume(folder, options)


def test_a_file_that_is_none_of_ours_is_refused(folder: Path, options: Options) -> None:
    (folder / "tiny-grouped.csv").write_text("my notes", encoding="utf-8")
    with pytest.raises(ExperimentError, match=r"csv, line 1: it is not the beginning of model,part,"):
        resume(folder, options)


def test_rows_of_unknown_origin_are_refused(folder: Path, options: Options) -> None:
    (folder / "tiny-grouped.json").unlink()
    with pytest.raises(ExperimentError, match=r"tiny-grouped\.json is not there.*origin nobody knows"):
        resume(folder, options)


def test_a_stop_before_the_first_row_leaves_nothing_to_refuse(folder: Path, options: Options) -> None:
    (folder / "tiny-grouped.csv").unlink()
    assert resume(folder, options).readings == []
    with pytest.raises(ExperimentError, match=r"tiny-grouped\.csv is not there"):
        Results.stored(folder, options.model)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{\n", "it is no JSON from line 2 on"),
        (b"\xff", "it is no text in UTF-8"),
        (b"[]", "it lacks what"),
        (b'{"schema": 1}', "it lacks what"),
        (b'{"schema": 2}', "it has schema 2, known is 1"),
    ],
)
def test_a_head_that_is_none_is_refused(folder: Path, options: Options, text: bytes, words: str) -> None:
    (folder / "tiny-grouped.json").write_bytes(text)
    with pytest.raises(ExperimentError, match=rf"tiny-grouped\.json cannot be read: {words}.*--out"):
        resume(folder, options)


def test_a_head_that_nothing_was_timed_with_stands_in_nobodys_way(folder: Path, options: Options) -> None:
    (folder / "tiny-grouped.csv").unlink()
    again = resume(folder, replace(options, seed=1))
    assert (again.readings, again.counts, again.made_with["seed"]) == ([], [], 1)
    Results.resume(folder, origin(options), plan(options)).conclude({})
    with pytest.raises(ExperimentError, match="seed: 0 there, 1 now"):  # answers would be lost
        resume(folder, replace(options, seed=1))


def test_a_hub_name_makes_a_file_name(tmp_path: Path) -> None:
    assert Results(tmp_path, "distilbert/distilgpt2").csv == tmp_path / "distilbert--distilgpt2.csv"


def test_the_head_says_what_the_rows_were_made_with(folder: Path, options: Options) -> None:
    head = json.loads((folder / "tiny-grouped.json").read_text(encoding="utf-8"))
    assert set(options.described()) | {"code", "software", "machine"} == set(head["made_with"])
    assert head["made_with"]["prefixes"] == "8 250"
