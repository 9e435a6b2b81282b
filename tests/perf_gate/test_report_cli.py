from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perf_gate.cli import main
from perf_gate.judging.judge import judge, judge_paired
from perf_gate.judging.policy import Policy
from perf_gate.records.record import load, save
from perf_gate.records.runfile import Run, Terms, load_run, run_of, save_run
from perf_gate.reporting.report import compiled
from perf_gate.verdict import Exit, Verdict
from tests.perf_gate import samples
from tests.perf_gate.samples import measurement

SHORT = ("p50", "p200")


@pytest.fixture
def put(tmp_path: Path):
    def write(file: str, seed: int, *, profile: str = "quick", **changes: object) -> str:
        measured = [measurement(short, seed=seed, workers=12, **changes) for short in SHORT]
        path = tmp_path / file
        save(samples.record(measured, profile=profile), path)
        return str(path)

    return write


@pytest.fixture
def samples_of_a_run(tmp_path: Path):
    def write(
        seed: int, *, workers: int = 12, injected: str = "", invalid: str | None = None, **changes: object
    ) -> str:
        measured = [measurement(short, seed=seed, workers=workers, **changes) for short in SHORT]
        if invalid:
            measured[0] = replace(measured[0], invalid=invalid)
        path = tmp_path / "run.json"
        save_run(run_of(measured, samples.provenance(), injected=injected), path)
        return str(path)

    return write


@pytest.mark.parametrize(("slower", "word"), [(1.0, "Pass"), (1.2, "Regressed")])
def test_the_last_record_is_judged_against_the_one_before(put, tmp_path, capsys, slower, word):
    out = tmp_path / "deep" / "page.html"
    files = put("0001_a.json", 1), put("0002_b.json", 2), put("0003_c.json", 3, slower=slower)
    status = main(["report", *files, "--out", str(out)])
    assert status == (Exit.PASS if slower == 1 else Exit.REGRESSED)
    text = out.read_text()
    assert f'<span class="word">{word}</span>' in text
    assert "0002_b" in text
    assert f"report: {out}" in capsys.readouterr().out


def test_the_samples_of_a_run_are_judged_as_the_run_was(put, samples_of_a_run, tmp_path, capsys):
    out = tmp_path / "page.html"
    record = put("0001_a.json", 1)
    assert main(["report", record, samples_of_a_run(2, slower=1.2), "--out", str(out)]) == Exit.REGRESSED
    assert "this run" in out.read_text()
    assert (
        main(["report", record, samples_of_a_run(2, invalid="warm reused 0"), "--out", str(out)]) == Exit.CANNOT_JUDGE
    )
    assert "warm reused 0" in out.read_text()
    assert main(["report", record, samples_of_a_run(2, injected="warm=1.05"), "--out", str(out)]) == Exit.PASS
    assert "Injected slowdown warm=1.05" in out.read_text()
    capsys.readouterr()


def test_samples_are_judged_by_what_the_run_was_judged_by(put, tmp_path):
    record = load(put("0001_a.json", 1))
    measured = tuple(measurement(short, seed=2, workers=6, slower=1.013) for short in SHORT)

    def rows(run: Run, **asked: float) -> tuple[object, ...]:
        save_run(run, tmp_path / "run.json")
        return compiled([record, load_run(tmp_path / "run.json")], **asked).rows

    def judged(looks: int, look: int, alpha: float) -> tuple[object, ...]:
        theirs = record.latest
        return tuple(
            judge(
                measured, theirs.measurements, policy=Policy(alpha, looks), look=look, oldest=theirs.measurements,
                machine=samples.MACHINE, software=theirs.provenance.software,
                reference_software=theirs.provenance.software,
            )
        )  # fmt: skip

    old = run_of(measured, samples.provenance())
    assert rows(old) == judged(2, 1, 0.001)
    for looks, look, alpha in (((6,), 1, 0.001), ((4, 6, 8), 3, 0.001), ((8, 10), 2, 0.01)):
        expected = judged(len(looks), look, alpha)
        assert expected != rows(old)
        assert rows(replace(old, terms=Terms(looks, look, alpha))) == expected
    assert rows(replace(old, terms=Terms((6,), 1, 0.01)), alpha=0.02) == judged(1, 1, 0.02)


@pytest.mark.parametrize(("slower", "status"), [(1.0, Exit.PASS), (1.2, Exit.REGRESSED)])
def test_samples_with_a_base_beside_them_are_judged_against_it(put, tmp_path, capsys, slower, status):
    """Alone, and also where a record comes first, in which everything is faster."""
    ours = [measurement(short, seed=2, slower=slower) for short in SHORT]
    theirs = [measurement(short, seed=3) for short in SHORT]
    run = run_of(
        ours, samples.provenance(), terms=Terms((6, 8), 2, 0.001), base=theirs,
        base_provenance=samples.provenance(commit="f" * 40),
    )  # fmt: skip
    save_run(run, tmp_path / "run.json")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "run.json"), "--out", str(page)]) == status
    assert "the base ffffffffffff" in page.read_text()
    record = put("0001_a.json", 1, slower=0.5)
    assert main(["report", record, str(tmp_path / "run.json"), "--out", str(page)]) == status
    data = compiled([load_run(tmp_path / "run.json")])
    assert data.paired
    assert list(data.rows) == judge_paired(run.measurements, run.base_measurements, policy=Policy(0.001, 2), look=2)
    capsys.readouterr()


@pytest.mark.parametrize("broken", [1, len(SHORT)])
def test_what_is_wrong_with_the_base_is_kept(tmp_path, capsys, broken):
    """Where the base fails, the candidate is not timed: not comparable, as in the run itself, and nobody's repair."""
    theirs = [measurement(short, seed=3) for short in SHORT]
    ours = [measurement(short, seed=2) for short in SHORT]
    for index in range(broken):
        theirs[index] = replace(theirs[index], invalid="ImportError: no module named engine", seconds={})
        ours[index] = replace(ours[index], seconds={})
    provenance = samples.provenance()
    run = run_of(ours, provenance, terms=Terms((6, 8), 1, 0.001), base=theirs, base_provenance=provenance)
    save_run(run, tmp_path / "run.json")
    read = load_run(tmp_path / "run.json")
    assert (read.paired, read.invalid) == (True, {})
    assert read.base_invalid == run.base_invalid
    assert len(read.base_invalid) == broken
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "run.json"), "--out", str(page)]) == Exit.CANNOT_JUDGE
    rows = compiled([load_run(tmp_path / "run.json")]).rows
    assert sum(row.verdict is Verdict.NOT_COMPARABLE for row in rows) == broken
    assert all("no module named engine" in row.why for row in rows if row.verdict is Verdict.NOT_COMPARABLE)
    assert "no module named engine" in page.read_text()
    capsys.readouterr()


def test_one_file_alone_is_shown_and_held_against_nothing(put, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", put("0001_a.json", 1), "--out", str(out)]) == 0
    assert "nothing was compared" in capsys.readouterr().out
    assert '<span class="word">Not compared</span>' in out.read_text()


def test_records_of_another_profile_are_left_out_and_told(put, tmp_path, capsys):
    out = tmp_path / "page.html"
    files = put("0001_a.json", 1), put("0002_b.json", 2, profile="full", slower=2.0), put("0003_c.json", 3)
    assert main(["report", *files, "--out", str(out)]) == 0
    assert "1 of the files given hold another profile" in out.read_text()
    capsys.readouterr()


def test_where_no_record_is_of_the_profile_there_is_no_verdict(put, tmp_path, capsys):
    out = tmp_path / "page.html"
    files = put("0001_a.json", 1, profile="full"), put("0002_b.json", 2)
    assert main(["report", *files, "--out", str(out)]) == Exit.CANNOT_JUDGE
    assert "none of the records given holds profile 'quick'" in capsys.readouterr().out
    assert '<span class="word">Cannot judge</span>' in out.read_text()


def test_a_page_never_takes_the_place_of_a_record(put, capsys):
    record = put("0001_a.json", 1)
    before = Path(record).read_text()
    assert main(["report", record, "--out", record]) == 4
    assert "ends in .html" in capsys.readouterr().err
    assert Path(record).read_text() == before


def test_a_failed_report_leaves_no_page_of_an_earlier_one(put, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", put("0001_a.json", 1), "--out", str(out)]) == 0
    assert main(["report", put("0001_b.json", 1), str(tmp_path / "missing.json"), "--out", str(out)]) == 10
    assert not out.exists()
    capsys.readouterr()


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> Path:
    """A folder with a record, its page and its plots."""
    folder = tmp_path_factory.mktemp("told")
    record = folder / "0001_a.json"
    save(samples.record([measurement(short, seed=1, workers=12) for short in SHORT], profile="quick"), record)
    assert (
        main(["report", str(record), str(record), f"--out={folder / 'report.html'}", f"--plots={folder / 'plots'}"])
        == 0
    )
    return folder


@pytest.mark.parametrize("wrong", [["--alpha=2"], ["--no-such-option"], ["--plots=run.json"], ["--out=page.txt"]])
def test_a_wrong_call_leaves_no_page_of_an_earlier_one_and_every_other_file(told, tmp_path, capsys, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    record = "0001_a.json"
    Path("run.json").touch()
    for foreign in (False, True):
        shutil.copytree(told, tmp_path, dirs_exist_ok=True)
        Path("plots/mine.svg").touch()
        if foreign:
            Path("report.html").write_text("<title>a page of ours</title>")
            Path("plots/summary.md").write_text("# Notes")
        try:
            status = main(["report", record, *(["--plots=plots"] if "--plots" not in wrong[0] else []), *wrong])
        except SystemExit as ended:
            status = ended.code
        assert status == 4
        assert Path("report.html").exists() is (foreign or "--out" in wrong[0])
        assert Path("plots/mine.svg").exists()
        if "--plots" not in wrong[0]:
            assert Path("plots/changes.svg").exists() is foreign
            assert (
                Path("plots/summary.md").read_text().startswith("# Notes" if foreign else "## ⚠️ perf gate: no verdict")
            )
    capsys.readouterr()


@pytest.mark.parametrize("option", ["--out=report.html", "--plots=plots"])
def test_nobody_elses_files_are_replaced(put, tmp_path, capsys, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    Path("plots").mkdir()
    for name in ("report.html", "plots/summary.md", "plots/changes.svg"):
        Path(name).write_text("mine")
    assert main(["report", put("0001_a.json", 1), "--out=other.html", option]) == 4
    assert f"{option} cannot be written: it " in capsys.readouterr().err
    assert {Path(name).read_text() for name in ("report.html", "plots/summary.md", "plots/changes.svg")} == {"mine"}


def test_damaged_samples_are_told_as_what_they_are(samples_of_a_run, tmp_path, capsys):
    path = Path(samples_of_a_run(2))
    path.write_text(path.read_text().replace('"injected": ""', '"injected": 3'))
    assert main(["report", str(path), "--out", str(tmp_path / "page.html")]) == Exit.CANNOT_JUDGE
    assert f"{path}: has wrong facts about its run. Make it anew with --gate-samples" in capsys.readouterr().err


def test_samples_stand_last_or_nowhere(put, samples_of_a_run, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", samples_of_a_run(2), put("0001_a.json", 1), "--out", str(out)]) == Exit.CANNOT_JUDGE
    assert "Put them last" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("text", [None, "", "{}", "<<<<<<< HEAD\n"])
def test_an_unreadable_file_ends_without_a_page(put, tmp_path, capsys, text):
    path, out = tmp_path / "0009_x.json", tmp_path / "page.html"
    if text is not None:
        path.write_text(text)
    assert main(["report", put("0001_a.json", 1), str(path), "--out", str(out)]) == Exit.CANNOT_JUDGE
    said = capsys.readouterr()
    assert said.err.startswith("cannot judge: ")
    assert str(path) in said.err
    assert not out.exists()


def test_a_page_that_cannot_be_written_is_no_pass(put, tmp_path, capsys):
    (tmp_path / "page.html").mkdir()
    files = put("0001_a.json", 1), put("0002_b.json", 2)
    assert main(["report", *files, "--out", str(tmp_path / "page.html")]) == 4
    assert f"--out={tmp_path / 'page.html'} cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_missing_library_is_named_with_the_extra(put, tmp_path, capsys, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    out = tmp_path / "page.html"
    assert main(["report", put("0001_a.json", 1), "--out", str(out)]) == Exit.CANNOT_JUDGE
    said = capsys.readouterr().err
    assert module in said
    assert "prefix-cache-gate[report]" in said
    assert not out.exists()


def test_plots_are_written_beside_the_page(put, tmp_path, capsys):
    folder = tmp_path / "plots"
    files = put("0001_a.json", 1), put("0002_b.json", 2)
    assert main(["report", *files, "--out", str(tmp_path / "page.html"), "--plots", str(folder)]) == 0
    assert (folder / "summary.md").read_text().startswith("## ✅ perf gate: pass")
    assert (folder / "changes.png").exists()
    assert (folder / "changes.svg").exists()
    assert f"plots: {folder}" in capsys.readouterr().out
