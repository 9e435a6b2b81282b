"""The command as a person sees it."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from perf_gate import InvalidPremise
from perf_tests.experiment import cli
from perf_tests.experiment.figures import PLOTS
from perf_tests.experiment.options import Options
from perf_tests.experiment.progress import Bar
from perf_tests.experiment.results import Results


@pytest.fixture
def folder(measured_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(measured_folder, tmp_path / "copy"))


def test_stored_results_are_answered_and_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tiny-grouped", "--out", str(folder), "--stored"]) == 0
    shown = capsys.readouterr().out
    assert "speedup" in shown
    assert "3 requests that share a prefix" in " ".join(shown.split())
    assert {file.stem for file in folder.glob("*.svg")} == {f"tiny-grouped-{name}" for name in PLOTS}
    answers = json.loads((folder / "tiny-grouped.json").read_text(encoding="utf-8"))["answers"]
    assert [prefix["prefix_tokens"] for prefix in answers["prefixes"]] == [8, 250]


def test_options_become_what_is_measured(folder: Path, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(given: Options, out: Path, _console: Console) -> Results:
        asked.append(given)
        return Results.stored(out, options.model)

    monkeypatch.setattr(cli, "run", run)
    words = "tiny-grouped --prompts 4 --prefixes 8 250 --suffixes 3 6 --output-tokens 3 --share-repeats 2 --sharing 3 "
    words += "--series 2 --long-output 6 --seed 0 --threads 1"
    assert cli.main([*words.split(), "--out", str(folder)]) == 0
    assert asked == [Options("tiny-grouped", 4, (8, 250), (3, 6), 3, share_repeats=2, sharing=3, long_output=6)]


def test_unfinished_results_are_not_answered(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results.stored(folder, "tiny-grouped")
    results.readings = [reading for reading in results.readings if reading.part != "output"]
    results.append([])
    assert cli.main(["tiny-grouped", "--out", str(folder), "--stored"]) == 4
    assert "holds 16 of 20 prompts; finish it" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tiny-grouped --stored", "has not been measured into this folder"),
        ("tiny-grouped --prompts 3", "give at least 10 prompts"),
        ("no/such-model", "could not be loaded"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert cli.main([*words.split(), "--out", str(tmp_path)]) == 4
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(InvalidPremise("warm reused 0"), 1, "not what was meant"), (KeyboardInterrupt(), 130, "goes on from here")],
)
def test_a_wrong_answer_and_a_stop_are_told_apart(
    error: BaseException,
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*_: object) -> Results:
        raise error

    monkeypatch.setattr(cli, "run", run)
    assert cli.main(["tiny-grouped", "--out", str(tmp_path)]) == status
    assert said in capsys.readouterr().err


def test_the_time_left_comes_from_the_pace_of_this_run() -> None:
    now = [0.0]
    out = io.StringIO()
    bar = Bar(Console(file=out, width=100), total=100, done=40, clock=lambda: now[0])
    assert bar.left == "time left unknown"
    with bar:
        now[0] = 30.0
        bar.advance(20, "a step")
        assert bar.left == "1:00 left"  # 20 in 30 s, 40 are left
        now[0] = 31.0
        bar.advance(20, "a step that is not worth a line")
    assert out.getvalue() == "a step: 60 %, 1:00 left\n"


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True)
    with Bar(console, total=2, done=0) as bar:
        bar.advance(1, "a step")
    assert "a step" in out.getvalue()
    assert "50 %" in out.getvalue()
