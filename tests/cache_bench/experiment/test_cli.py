"""The command as a person sees it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cache_bench import experiment
from cache_bench.experiment import cli, notebook, page
from cache_bench.experiment.answers import answer
from cache_bench.experiment.figures import PLOTS
from cache_bench.experiment.options import Options
from cache_bench.experiment.origin import ROOT
from cache_bench.experiment.progress import Bar
from cache_bench.experiment.results import Results
from perf_gate import InvalidPremise

WORDS = (
    "tiny-grouped --prompts 12 --prefixes 8 250 --suffixes 3 6 --output-tokens 3 --share-tokens 16 --shares 0 4 8 "
    "--share-repeats 6 --sharing 3 --sharing-prefix 12 --series 2 --long-output 6 --seed 0 --threads 1"
)


@pytest.fixture
def folder(measured_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(measured_folder, tmp_path / "copy"))


def test_stored_results_are_answered_and_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["tiny-grouped", "--out", str(folder), "--stored"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    found = answer(Results.stored(folder, "tiny-grouped"))
    assert "speedup" in shown
    assert page.storing(found.break_even) in shown
    for prefix in found.prefixes:
        assert page.in_words(prefix.speedup) in shown
        assert page.in_words(prefix.tpot, 2) in shown
    assert re.search(r"3 requests that share a prefix: .*× \(median of 2 series, without an interval\)", shown)
    assert {file.stem for file in folder.glob("*.svg")} == {f"tiny-grouped-{name}" for name in PLOTS}
    answers = json.loads((folder / "tiny-grouped.json").read_text(encoding="utf-8"))["answers"]
    assert [prefix["prefix_tokens"] for prefix in answers["prefixes"]] == [8, 250]


def test_options_become_what_is_measured(folder: Path, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(given: Options, out: Path, _console: Console) -> Results:
        asked.append(given)
        return Results.stored(out, options.model)

    monkeypatch.setattr(cli, "run", run)
    assert cli.main([*WORDS.split(), "--out", str(folder)]) == 0
    assert asked == [options]


def test_unfinished_results_are_not_answered(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results.stored(folder, "tiny-grouped")
    results.readings = [reading for reading in results.readings if reading.part != "output"]
    results.append([])
    assert cli.main(["tiny-grouped", "--out", str(folder), "--stored"]) == 4
    assert "holds 36 of 40 prompts; finish it" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tiny-grouped --stored", "has not been measured into this folder"),
        ("tiny-grouped --prompts 3", "give at least 30"),
        ("no/such-model", "could not be loaded"),
        (f"no/such-model {WORDS}", "could not be loaded"),
        (f"{WORDS} --page missing.md", "missing.md cannot be read"),
        ("--page missing.md", "name a model"),
        ("", "name a model"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert cli.main([*words.split(), "--out", str(tmp_path / "out")]) == 4
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", ["--prompts many", "--nonsense", "--page"])
def test_words_that_are_no_options_leave_as_any_wrong_call_does(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words.split())
    assert end.value.code == 4
    assert "usage: python -m cache_bench.experiment" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "file"), [(["--page", "/proc/version"], "/proc/version"), (["--notebook"], "/proc/a.ipynb")]
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    option: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebook, "TARGET", Path("/proc/a.ipynb"))
    monkeypatch.delattr(cli, "run")
    assert cli.main([*WORDS.split(), *option, "--out", str(tmp_path / "out")]) == 4
    said = " ".join(capsys.readouterr().err.split())
    assert f"{option[0]} writes {file}: nothing can be written to /proc (" in said


def test_one_model_that_is_refused_keeps_all_from_being_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delattr(cli, "run")
    model, *others = WORDS.split()
    assert cli.main([model, "no/such-model", *others, "--out", str(tmp_path / "out")]) == 4


def test_a_notebook_without_its_packages_is_refused_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "cache_bench.experiment.notebook", raising=False)
    monkeypatch.delattr(experiment, "notebook", raising=False)
    monkeypatch.setitem(sys.modules, "jupytext", None)
    monkeypatch.delattr(cli, "run")
    assert cli.main([*WORDS.split(), "--notebook"]) == 4
    assert "--notebook needs jupytext" in capsys.readouterr().err


def test_a_stop_while_packages_are_imported_is_no_traceback(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n", encoding="utf-8"
    )
    stopped = subprocess.run(
        [sys.executable, "-m", "cache_bench.experiment", "tiny-grouped", "--out", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert stopped.stderr == "stopped before anything was measured\n"
    assert not (tmp_path / "out").exists()


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
    assert cli.main([*WORDS.split(), "--out", str(tmp_path)]) == status
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
