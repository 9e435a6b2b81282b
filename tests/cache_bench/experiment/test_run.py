"""What an experiment leaves, stopped or not, and that what it times is what was meant."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cache_bench.engine import Completion, Prompt
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.laboratory import Laboratory
from cache_bench.experiment.options import Options
from cache_bench.experiment.plan import Part, Step, plan
from cache_bench.experiment.reading import Reading
from cache_bench.experiment.results import Results
from cache_bench.experiment.run import run
from perf_gate import InvalidPremise
from prefix_cache.namespace import Namespace
from prefix_cache.tree import RadixTree

QUIET = Console(quiet=True)
PER_TOKEN = 2 * 2 * 2 * 16 * 4  # keys and values, layers, KV heads, head dim, float32


def asked(readings: Sequence[Reading]) -> list[tuple[str, int, str, int, int | None]]:
    """What a reading is of, without times."""
    return [(each.part, each.number, each.arm, each.output_tokens, each.reused_tokens) for each in readings]


def test_every_step_is_read_as_planned(options: Options, measured: Results) -> None:
    for step in plan(options):
        readings = [each for each in measured.readings if (each.part, each.number) == step.key]
        assert sorted((each.arm, each.output_tokens) for each in readings) == step.rows
        assert all(each.belongs_to(step) for each in readings)
        for each in readings:
            assert each.reused_tokens == {"cold": 0, "warm": step.stored, "floor": step.prefix}[each.arm]
            assert 0 < each.ttft_s <= each.latency_s
            assert (each.tpot_s is None) == (each.output_tokens == 1)
            assert each.total_s is None or each.total_s >= each.latency_s


def test_a_hot_hit_copies_nothing_and_stores_what_it_computed(measured: Results) -> None:
    for each in measured.of(Part.PROMPT, "warm"):
        assert each.copied_bytes == 0
        assert each.stored_bytes == (each.suffix_tokens + each.output_tokens - 1) * PER_TOKEN
    for each in measured.of(Part.SHARE, "warm"):
        assert each.copied_bytes == 0
        assert each.stored_bytes == each.suffix_tokens * PER_TOKEN
    assert all(each.stored_bytes is None for each in measured.of(Part.PROMPT, "cold"))


def test_counts_agree_with_the_formula(options: Options, measured: Results) -> None:
    assert [count.prefix_tokens for count in measured.counts] == list(options.prefixes)
    for count in measured.counts:
        assert count.formula_bytes == count.stored_bytes == count.kept_bytes == count.prefix_tokens * PER_TOKEN
        assert count.cold_flops > count.hit_flops > 0


def test_a_stop_loses_the_prompt_in_progress_and_no_other(
    options: Options, measured: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Laboratory.make
    steps = plan(options)
    within_series = next(index for index, step in enumerate(steps) if step.turn == 3)
    stops = [3, within_series]
    made: list[Step] = []

    def stopped(laboratory: Laboratory, step: Step) -> list[Reading]:
        if stops and step == steps[stops[0]]:
            stops.pop(0)
            make(laboratory, step)  # it was being made
            raise KeyboardInterrupt
        made.append(step)
        return make(laboratory, step)

    monkeypatch.setattr(Laboratory, "make", stopped)
    for stop in (3, within_series):
        with pytest.raises(KeyboardInterrupt):
            run(options, tmp_path, QUIET)
        assert Results.stored(tmp_path, options.model).done == {step.key for step in steps[:stop]}
    resumed = run(options, tmp_path, QUIET)
    assert made == list(steps)  # each once
    assert asked(resumed.readings) == asked(measured.readings)
    assert [each.copied_bytes for each in resumed.of(Part.SHARING)] == [
        each.copied_bytes for each in measured.of(Part.SHARING)
    ]


def test_a_full_disk_leaves_what_was_kept_and_is_said(
    options: Options, measured: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    written: list[int] = []

    def full(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) == 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExperimentError, match=r"csv cannot be written \(No space left on device\); it is as it was"):
        run(options, tmp_path, QUIET)
    kept = Results.stored(tmp_path, options.model)
    assert 0 < len(kept.done) < len(plan(options))
    assert not kept.notice
    assert {file.suffix for file in tmp_path.iterdir()} == {".csv", ".json"}
    assert asked(run(options, tmp_path, QUIET).readings) == asked(measured.readings)


def test_what_was_cut_off_is_said_and_measured_again(
    options: Options, measured: Results, measured_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(measured_folder, tmp_path / "copy"))
    file = folder / f"{options.model}.csv"
    file.write_bytes(file.read_bytes()[:-5])
    make = Laboratory.make
    made: list[Step] = []

    def noted(laboratory: Laboratory, step: Step) -> list[Reading]:
        made.append(step)
        return make(laboratory, step)

    monkeypatch.setattr(Laboratory, "make", noted)
    out = io.StringIO()
    again = run(options, folder, Console(file=out, width=80))
    assert f"{file} is cut off: what stands from line " in out.getvalue()
    assert made == [plan(options)[-1]]
    assert asked(again.readings) == asked(measured.readings)
    assert asked(Results.stored(folder, options.model).readings) == asked(measured.readings)


def test_what_is_done_is_not_measured_again(
    options: Options, measured_folder: Path, measured: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Laboratory, "make")
    assert run(options, measured_folder, QUIET).readings == measured.readings


def test_a_cache_that_misses_is_no_slow_result(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    match = RadixTree.match
    monkeypatch.setattr(
        RadixTree,
        "match",
        lambda self, namespace, tokens: match(self, Namespace(f"{len(tokens)}"), tokens[:0]),
    )
    monkeypatch.setattr(RadixTree, "insert", lambda self, *_: (self.match(Namespace(""), _[1]).node, 0))
    with pytest.raises(InvalidPremise, match=r"prompt 0: warm reused 0 of \d+ prompt tokens, expected (8|250)"):
        Laboratory(options, plan(options)).make(plan(options)[0])


def test_a_wrong_answer_is_no_fast_result(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory = Laboratory(options, plan(options))
    complete = laboratory.engine.complete

    def wrong(prompt: Prompt, *, new_tokens: int = 1, reuse: bool = True) -> Completion:
        answer = complete(prompt, new_tokens=new_tokens, reuse=reuse)
        return answer if answer.logits is None or not reuse else replace(answer, logits=answer.logits + 1)

    monkeypatch.setattr(laboratory.engine, "complete", wrong)
    with pytest.raises(InvalidPremise, match=r"prompt 0: \w+ against \w+: logits differ by 1"):
        laboratory.make(plan(options)[0])
