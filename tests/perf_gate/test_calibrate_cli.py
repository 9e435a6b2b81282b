"""The command as its user sees it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from perf_gate.calibration import power_curve
from perf_gate.calibration.arguments import parse_slowdowns
from perf_gate.cli import cut, main
from perf_gate.records.record import save
from perf_gate.records.runfile import run_of, save_run
from perf_gate.verdict import Exit
from tests.perf_gate import samples
from tests.perf_gate.samples import COPIED, EFFICIENCY, SPEEDUP, measurement
from tests.perf_gate.test_real_runs import COMMAND

USAGE = 4
RUN = """[
    measurement(short, seed=seed + 10, workers=16, visits=20, metrics=(COPIED, EFFICIENCY, SPEEDUP))
    for short in ("p50", "p200")
]"""
SHORT = ("p50", "p200")
FEW = ("--workers=8:12", "--runs=300", "--rule-runs=50", "--slowdowns=3,10")


def side(seed: int, workers: int, **changes: object) -> list[samples.Measurement]:
    return [
        measurement(short, seed=seed, workers=workers, visits=20, metrics=(COPIED, EFFICIENCY, SPEEDUP), **changes)  # type: ignore[arg-type]
        for short in SHORT
    ]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    save(samples.record(side(1, 24)), "0001_base.json")
    return "0001_base.json"


def run_file(name: str, seed: int, workers: int = 16, injected: str = "", **changes: object) -> str:
    save_run(run_of(side(seed, workers, **changes), samples.provenance(), injected=injected), Path(name))
    return name


def cells(text: str, start: str, heading: str) -> list[str]:
    """The cells of the one line below a heading that begins with `start`."""
    section = text.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    (line,) = [line for line in section.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_it_says_how_often_the_gate_is_wrong(record, capsys):
    assert main(["calibrate", record, *FEW]) == 0
    said = capsys.readouterr().out
    for part in (
        f"- command: `perf-gate calibrate {record} --workers=8:12 --runs=300 --rule-runs=50 --slowdowns=3,10`",
        "- record: 0001_base.json (base, profile quick)",
        f"- machine class: {samples.MACHINE}",
        "- distinct worker processes: 24, from 1 file",
        "- a simulated run: record of 12 workers, candidate judged after 8, 10 and 12 workers\n",
        "- judged: 2 timed scenarios, 6 sampled rows\n",
        "24 processes are too few for that",
    ):
        assert part in said
    assert cells(said, "nothing changed", "The gate, on resampled runs")[1] == "0.00 % [0.00, 1.22]"
    for where in ("one scenario", "all scenarios"):
        caught = cells(said, f"10 % slower in {where}", "The gate, on resampled runs")
        assert caught[1] == "100.00 % [98.78, 100.00]"
        assert caught[4] == "300"
    assert "drift" in said
    ours = cells(said, "**this gate**", "The same samples under other rules")
    assert ours[1] == "0.00 % [0.00, 1.22]"
    theirs = cells(said, "Student's t-test on all visits, two-sided p < 0.05, and slower, all", "The same samples")
    assert len(theirs) == len(ours) == 6
    assert "on real runs compared with" not in said
    assert cells(said, "**this gate**", "False alarms on a disturbed machine")[1:] == ["0.00 % [0.00, 1.22]"] * 3
    theirs = cells(said, "mean more than 5 % up (pytest-benchmark), all processes", "False alarms on a disturbed")
    assert theirs[1].startswith("100.00 %")


def test_the_same_call_says_the_same_and_another_seed_something_else(record, capsys):
    def once(seed):
        assert main(["calibrate", record, *FEW, "--seed", seed, "--markdown", f"{seed}.md"]) == 0
        said = capsys.readouterr().out
        assert Path(f"{seed}.md").read_text() == said
        return said

    first = once("1")
    assert once("1") == first
    assert once("2").partition("## ")[2] != first.partition("## ")[2]


def test_real_runs_are_judged_and_join_the_pool(record, capsys):
    honest = [run_file(f"run{seed}.json", seed) for seed in (2, 3)]
    Path("waited").mkdir()
    for seed in (4, 5):
        run_file(f"waited/slow{seed}.json", seed, injected="warm=1.2", slower=1.2)
    burdened = run_file("burden.json", 6, offset=0.2)
    assert main(["calibrate", record, *FEW, "--against", *honest, "waited", "--disturbed", burdened]) == 0
    said = capsys.readouterr().out
    assert "- distinct worker processes: 56, from 3 files" in said
    assert "record of 24 workers, candidate judged after 8, 10 and 12 workers" in said
    assert "too few for that" not in said
    real = "The gate, on real runs"
    assert cells(said, "nothing changed", real)[1:] == ["0.00 % [0.00, 84.2]", "0.00 % [0.00, 84.2]", "2"]
    assert cells(said, "--inject: warm 20 % slower in all scenarios", real)[1].startswith("100.00 %")
    assert cells(said, "another process kept one core busy", real)[2:] == ["100.00 % [2.5, 100.00]", "1"]
    assert cells(said, "seconds multiplied afterwards: 10 % slower in one scenario", real)[1].startswith("100.00 %")
    assert (
        "- another process kept one core busy: run 1: perf_tests/test_ttft.py::test_ttft[p50]: reuse efficiency" in said
    )


def test_a_folder_without_runs_is_no_evidence(record, capsys):
    Path("empty").mkdir()
    assert main(["calibrate", record, "--against", "empty"]) == Exit.CANNOT_JUDGE
    assert "empty has no *.json" in capsys.readouterr().err


def test_a_run_that_does_not_fit_is_told(record, capsys):
    save_run(run_of(side(2, 16)[:1], samples.provenance()), Path("part.json"))
    assert main(["calibrate", record, *FEW, "--against", "part.json"]) == 0
    said = capsys.readouterr().out
    assert "- Left out: part.json: it has no perf_tests/test_ttft.py::test_ttft[p200]." in said
    assert cells(said, "nothing changed", "The gate, on real runs")[2:] == ["100.00 % [2.5, 100.00]", "1"]
    assert "test_ttft[p200]: -: missing" in said


def test_the_loop_makes_the_runs(record, capsys):
    Path("command.py").write_text(COMMAND.replace('[measurement("a", seed=seed)]', RUN).replace(
        "seed = int", "from tests.perf_gate.samples import COPIED, EFFICIENCY, SPEEDUP\nseed = int"
    ))  # fmt: skip
    command = ["calibrate", record, *FEW, "--real", "2", "--folder", "kept", "--", sys.executable, "command.py"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "- distinct worker processes: 56, from 3 files" in said.out
    assert f"--folder kept -- {sys.executable} command.py`" in said.out
    assert "run 2 of 2 starts" in said.err
    assert main([*command[:-3], "--inject", "warm=1.5", *command[-3:]]) == 0
    assert "--inject: warm 50 % slower in all scenarios" in capsys.readouterr().out
    assert sorted(path.name for path in Path("kept").glob("*.json")) == [
        "injected-warm-1.5-001.json", "injected-warm-1.5-002.json", "run-001.json", "run-002.json",
    ]  # fmt: skip


def test_what_is_allowed_can_be_tried_on_the_same_samples(record, capsys):
    """4 % slower in every scenario is caught less often where more is allowed."""

    def caught(*allowed: str) -> float:
        slow = ("--slowdowns=4", "--runs=100", "--rule-runs=10")
        assert main(["calibrate", record, "--workers=8:12", *slow, *allowed]) == 0
        red = cells(capsys.readouterr().out, "4 % slower in all scenarios", "The gate, on resampled runs")[1]
        return float(red.partition(" ")[0])

    wide = ("--threshold", "reuse efficiency=0.02", "--threshold", "speedup = 0.05")
    assert caught(*wide) < caught() - 20
    for text, words in (
        ("reuse=0.02", "'reuse': give one of reuse efficiency, speedup"),
        ("speedup=0.9", "resolution"),
    ):
        assert main(["calibrate", record, "--threshold", text]) == Exit.CANNOT_JUDGE
        assert words in capsys.readouterr().err


def paired_file(name: str, seed: int, injected: str = "", slower: float = 1.0, **base: object) -> str:
    run = run_of(
        side(seed, 8, slower=slower), samples.provenance(), injected=injected, seconds=90.0, base=side(seed + 50, 8),
        base_provenance=samples.provenance(**base),
    )  # fmt: skip
    save_run(run, Path(name))
    return name


def test_paired_runs_are_drawn_from_their_pairs(record, capsys):
    honest = [paired_file(f"pair{seed}.json", seed) for seed in (2, 3, 4)]
    slow = paired_file("slow.json", 5, injected="warm=1.2", slower=1.2)
    call = ["calibrate", "--paired", "--runs=300", "--slowdowns=3,10", "--against", *honest, slow]
    assert main([*call, "--markdown", "paired.md", "--plot", "paired.svg"]) == 0
    said = capsys.readouterr().out
    assert Path("paired.md").read_text() == said
    assert Path("paired.svg").exists()
    for part in (
        "- distinct pairs of worker processes: 24, from 3 files with the same code on both sides, measured in 90 to 90",
        "- a simulated run: judged after 6 pairs\n",
        "- judged: 2 timed scenarios, 6 sampled rows\n",
    ):
        assert part in said
    resampled = "The gate, on resampled runs"
    assert cells(said, "nothing changed", resampled)[1] == "0.00 % [0.00, 1.22]"
    assert cells(said, "10 % slower in all scenarios", resampled)[1] == "100.00 % [98.78, 100.00]"
    real = "The gate, on real runs compared with their base"
    calm = cells(said, "nothing changed", real)
    assert (calm[1], calm[3]) == ("0.00 % [0.00, 70.8]", "3")
    assert cells(said, "--inject: warm 20 % slower in all scenarios", real)[1].startswith("100.00 %")
    assert "under other rules" not in said
    assert "drift" not in said


def test_runs_of_another_kind_are_refused(record, capsys):
    alone, pair = run_file("alone.json", 2), paired_file("pair.json", 3)
    assert main(["calibrate", "--paired", "--against", alone]) == Exit.CANNOT_JUDGE
    assert "alone.json has no base" in capsys.readouterr().err
    assert main(["calibrate", record, "--against", pair]) == Exit.CANNOT_JUDGE
    assert "pair.json has a base" in capsys.readouterr().err
    assert main(["calibrate", "--paired", "--against", pair]) == Exit.CANNOT_JUDGE
    assert "8 pairs are too few to draw different runs of 6 pairs from them" in capsys.readouterr().err
    for base, words in (
        ({"commit": "f" * 40}, "commits 0123456789ab and ffffffffffff"),
        ({"commit": ""}, "a directory"),
    ):
        other = paired_file("other.json", 3, **base)
        assert main(["calibrate", "--paired", "--against", other]) == Exit.CANNOT_JUDGE
        assert words in capsys.readouterr().err
    slow = paired_file("slow.json", 5, injected="warm=1.2")
    assert main(["calibrate", "--paired", "--against", slow]) == Exit.CANNOT_JUDGE
    assert "same code on both sides" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ([], "give either a record"),
        (["0001_base.json", "--paired"], "give either a record"),
        (["--paired"], "needs real runs"),
        (["--paired", "--machine=x", "--against", "a.json"], "--machine selects"),
        (["--paired", "--real=2", "--inject=warm=1.1@each", "--", "pytest"], "@each takes the scenarios of a record"),
    ],
)
def test_a_record_or_pairs(record, capsys, call, words):
    assert main(["calibrate", *call]) == USAGE
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--real", "2"], "both --real N and -- COMMAND"),
        (["--", "pytest"], "both --real N and -- COMMAND"),
        (["--inject", "warm=1.05"], "add --real N"),
        (["--neighbour", "100"], "add --real N"),
        (["--real", "2", "--inject", "cold=1.05", "--", "pytest"], "give the same arm"),
        (["--markdown", "."], "--markdown=. cannot be written: . is a folder"),
        (["--plot", "0001_base.json/a.svg"], "0001_base.json is not a folder"),
        (["--real", "2", "--folder", "0001_base.json", "--", "pytest"], "cannot be used for the runs"),
    ],
)
def test_a_contradiction_is_a_wrong_call(record, capsys, options, words):
    assert main(["calibrate", record, *options]) == USAGE
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--runs=0"], ["--slowdowns=fast"], ["--slowdowns=-1"], ["--workers=3:9"], ["--alpha=2"], ["--inject=warm"]],
)
def test_a_bad_value_is_a_wrong_call(record, capsys, options):
    with pytest.raises(SystemExit) as caught:
        main(["calibrate", record, *options])
    assert caught.value.code == USAGE
    assert options[0].partition("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--arm", "wram"], "no metric gets worse with the seconds of an arm 'wram'"),
        (["--machine", "abacus"], "no machine class 'abacus'"),
        (["--workers", "16:32"], "too few to split"),
    ],
)
def test_what_cannot_be_calibrated_is_one_sentence(record, capsys, options, words):
    assert main(["calibrate", record, *FEW, *options]) == Exit.CANNOT_JUDGE
    said = capsys.readouterr()
    assert said.err.startswith("cannot calibrate: ")
    assert words in said.err
    assert said.out == ""


def test_a_file_that_is_no_record_cannot_be_judged(record, capsys):
    assert main(["calibrate", run_file("run.json", 2)]) == Exit.CANNOT_JUDGE
    assert main(["calibrate", record, "--against", record]) == Exit.CANNOT_JUDGE
    assert "not a file of --gate-samples" in capsys.readouterr().err


def test_a_dash_of_another_verb_stays_its_own():
    assert cut(["compare", "--", "a", "b"]) == (["compare", "--", "a", "b"], ())
    assert cut(["calibrate", "a", "--", "pytest", "--", "x"]) == (["calibrate", "a"], ("pytest", "--", "x"))


def test_slowdowns_are_ascending_shares():
    assert parse_slowdowns("10,2,2.5") == (0.02, 0.025, 0.1)


class Canvas:
    """Stands in for matplotlib: keeps what is drawn."""

    def __init__(self, **options):
        self.drawn, self.texts = {}, []

    def add_subplot(self):
        return self

    def errorbar(self, x, y, *, yerr, label, **style):
        self.drawn[label] = (x, y, yerr)

    def set_title(self, text, **style):
        self.texts.append(text)

    set_xlabel = set_ylabel = set_title

    def set_ylim(self, *limits):
        pass

    grid = legend = lambda self, *a, **k: None

    def savefig(self, file, **options):
        file.write(options["format"].encode())


class Quiet:
    """matplotlib.rc_context without matplotlib."""

    @staticmethod
    def rc_context(_settings):
        import contextlib

        return contextlib.nullcontext()


def test_the_plot_shows_false_alarms_and_detections_in_both_formats(record, capsys, monkeypatch):
    made = []

    def make(**options):
        made.append(Canvas(**options))
        return made[-1]

    monkeypatch.setattr(power_curve, "figure_maker", lambda: make)
    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: Quiet if name == "matplotlib" else real(name))
    assert main(["calibrate", record, *FEW, "--plot", "out/curve.svg"]) == 0
    (canvas,) = made
    assert (Path("out/curve.svg").read_text(), Path("out/curve.png").read_text()) == ("svg", "png")
    assert sorted(path.name for path in Path("out").iterdir()) == ["curve.png", "curve.svg"]
    x, y, (below, above) = canvas.drawn["this gate, slower in one scenario"]
    assert x == [0.0, 3.0, 10.0]
    assert (y[0], y[2]) == (0.0, 100.0)
    assert min(*below, *above) >= 0
    assert len(canvas.drawn) == 7
    assert any("%" in text for text in canvas.texts)
    assert "300 runs resampled from 24 worker processes" in "".join(canvas.texts)


def test_without_matplotlib_the_extra_is_named_before_the_wait(record, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["calibrate", record, *FEW, "--plot", "curve.svg"]) == Exit.CANNOT_JUDGE
    said = capsys.readouterr()
    assert "pip install 'prefix-cache-gate[report]'" in said.err
    assert said.out == ""
