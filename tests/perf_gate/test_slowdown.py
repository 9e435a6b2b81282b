"""A slowdown that workers really wait for, and the samples of a run that is no record."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from perf_gate.measuring.measurement_run import MeasurementError, MeasurementRun, Plan
from perf_gate.measuring.samples import Task
from perf_gate.measuring.slowdown import InjectedSlowdown, parse_slowdown
from perf_gate.measuring.worker import OpenScenario, ScenarioHost, spin
from perf_gate.measuring.worker_pool import Side
from perf_gate.records.record import RecordError, load, save
from perf_gate.records.runfile import Terms, load_run, run_of, save_run
from tests.perf_gate import samples
from tests.perf_gate.checkout import CANNOT_JUDGE, ROOT, USAGE, says
from tests.perf_gate.samples import measurement
from tests.perf_gate.suite import SUITE, Suite

QUICK = Plan(looks=(2,), rounds=(6, 6), passes=2, warmups=1)


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Suite(pytester)


@pytest.mark.parametrize("text", ["warm=1.05", "warm=1.2@size2", "among many=2"])
def test_a_plant_is_read_as_it_is_written(text):
    assert str(parse_slowdown(text)) == text


@pytest.mark.parametrize("text", ["", "warm", "warm=", "warm=fast", "=1.05", "warm=0.9", "warm=nan", "warm=inf"])
def test_a_plant_that_means_nothing_is_refused(text):
    with pytest.raises(ValueError, match=r"warm=1\.05|1\.05 = 5 %"):
        parse_slowdown(text)


def test_a_plant_concerns_its_arm_and_scenario_only(synthetic: ModuleType) -> None:
    one, two, counted = synthetic.Synthetic(1), synthetic.Synthetic(2), synthetic.Counted()
    assert InjectedSlowdown("warm", 1.5).shares(one) == InjectedSlowdown("warm", 1.5).shares(two) == {"warm": 0.5}
    assert InjectedSlowdown("warm", 1.5, "size2").shares(one) == {}
    assert InjectedSlowdown("warm", 1.5, "size2").shares(two) == {"warm": 0.5}
    assert InjectedSlowdown("warm", 1.5).shares(counted) == {}


def test_spinning_takes_at_least_as_long_as_asked() -> None:
    assert spin(0.002) >= 0.002
    assert spin(0.0) >= 0.0


def test_a_worker_waits_a_share_of_the_typical_visit(synthetic: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> float:
        waited.append(seconds)
        return seconds + 0.25

    monkeypatch.setattr("perf_gate.measuring.worker.spin", wait)
    visits = iter([1.0, 9.0, 2.0, 4.0, 4.0])
    monkeypatch.setattr(synthetic.Synthetic, "visit", lambda _self, _arm: next(visits))
    opened = OpenScenario(synthetic.Synthetic(1), iter(()), injected={"warm": 0.5})
    assert [opened.visit("warm") for _ in range(4)] == [1.0 + 0.75, 9.0 + 4.75, 2.0 + 1.25, 4.0 + 2.25]
    assert waited == [0.5, 4.5, 1.0, 2.0]  # half of the median so far, the upper one of two
    assert opened.visit("floor") == 4.0
    assert len(waited) == 4


def test_the_request_to_open_plants(synthetic: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perf_gate.measuring.worker.spin", lambda _seconds: 100.0)
    request = {
        "ask": "open", "name": "a", "module": "synthetic", "qualname": "Synthetic", "file": str(synthetic.__file__),
        "fields": {"size": 1}, "seed": 1, "warmups": 1, "slowdown": {"warm": 0.1},
    }  # fmt: skip
    host = ScenarioHost()
    try:
        assert host.answer(request)["ok"]
    finally:
        gc.unfreeze()
    seconds = host.answer({"ask": "rounds", "name": "a", "rounds": 4, "warm_up": True})["seconds"]
    assert min(seconds["warm"]) > 100 > 1 > max(*seconds["floor"], *seconds["cold"])


def ratio(project: Path, module: ModuleType, injected: InjectedSlowdown | None) -> list[float]:
    """Median of warm / floor by scenario, in one pair of workers."""
    tasks = [Task(f"t::t[{each.id}]", each, each.metrics) for each in (module.Synthetic(1), module.Synthetic(2))]
    outcome = MeasurementRun(tasks, side=Side(project), plan=replace(QUICK, injected=injected)).run()
    return [float(np.median(each.seconds["warm"]) / np.median(each.seconds["floor"])) for each in outcome.measurements]


def test_a_campaign_really_waits_and_only_where_it_was_asked_to(project: Path, synthetic: ModuleType) -> None:
    """The synthetic clock has warm / floor = 1.05 +- 2 %; waiting can only take longer than asked, never shorter."""
    one, two = ratio(project, synthetic, InjectedSlowdown("warm", 1.5, "size2"))
    assert 0.95 < one < 1.15
    assert two > 1.45


@pytest.mark.parametrize(
    "plan",
    [
        replace(QUICK, injected=InjectedSlowdown("wram", 1.05)),
        replace(QUICK, exact=True, injected=InjectedSlowdown("warm", 1.05)),
    ],
)
def test_a_slowdown_that_slows_nothing_down_is_an_error(project: Path, synthetic: ModuleType, plan: Plan) -> None:
    task = Task("t::t[a]", synthetic.Synthetic(1), synthetic.Synthetic(1).metrics)
    with pytest.raises(MeasurementError, match=r"cannot be injected.*\['cold', 'floor', 'warm'\]"):
        MeasurementRun([task], side=Side(project), plan=plan).run()
    assert not (project / "pids").exists()


# ------------------------------------------------------------------ samples


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    run = run_of(
        [measurement("a", worker_names="stuvwxyz"), measurement("b", invalid="premise")],
        samples.provenance(),
        injected="warm=1.05",
        seconds=12.5,
        terms=Terms((8, 10), 2, 0.01),
    )
    save_run(run, tmp_path / "run.json")
    assert load_run(tmp_path / "run.json") == run
    assert [each.invalid for each in run.measurements] == [None, "premise"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_samples_are_no_record_and_a_record_is_no_run(tmp_path: Path) -> None:
    run, record = tmp_path / "0001_run.json", tmp_path / "0002_record.json"
    save_run(run_of([measurement("a")], samples.provenance()), run)
    save(samples.record([measurement("a")]), record)
    with pytest.raises(RecordError, match="a file of --gate-samples and not a record"):
        load(run)
    with pytest.raises(RecordError, match="not a file of --gate-samples"):
        load_run(record)


@pytest.mark.parametrize(
    "facts", [{}, {"invalid": [], "injected": "", "seconds": 1}, {"invalid": {}, "injected": 1, "seconds": 1}]
)
def test_unsound_facts_are_refused(tmp_path: Path, facts: dict[str, object]) -> None:
    path = tmp_path / "run.json"
    save_run(run_of([measurement("a")], samples.provenance()), path)
    document = json.loads(path.read_text())
    document["perf_gate"]["run"] = facts
    path.write_text(json.dumps(document))
    with pytest.raises(RecordError, match="wrong facts about its run"):
        load_run(path)


@pytest.mark.parametrize(
    "terms",
    [
        7,
        {},
        {"looks": [], "look": 1, "alpha": 0.001},
        {"looks": [10, 8], "look": 1, "alpha": 0.001},
        {"looks": [8, 10], "look": 3, "alpha": 0.001},
        {"looks": [8, 10], "look": 1.5, "alpha": 0.001},
        {"looks": ["8"], "look": 1, "alpha": 0.001},
        {"looks": [8], "look": 1, "alpha": "0.001"},
    ],
)
def test_what_no_run_was_judged_by_is_refused(tmp_path: Path, terms: object) -> None:
    path = tmp_path / "run.json"
    save_run(run_of([measurement("a")], samples.provenance()), path)
    document = json.loads(path.read_text())
    assert "terms" not in document["perf_gate"]["run"]
    document["perf_gate"]["run"]["terms"] = terms
    path.write_text(json.dumps(document))
    with pytest.raises(RecordError, match="how its run was judged"):
        load_run(path)


def test_without_a_valid_scenario_there_are_no_samples() -> None:
    with pytest.raises(ValueError, match="no scenario"):
        run_of([measurement("a", invalid="x")], samples.provenance())


# ------------------------------------------------------------------ in pytest


def test_any_run_can_keep_its_samples(suite: Suite) -> None:
    """Dirty, invalid in one scenario, nothing compared: no record could be made of it."""
    suite.write("perf_tests/test_ttft.py", SUITE.replace("Synthetic(1)", "Synthetic(1, 'premise')"))
    result = suite.run("perf_tests", "--gate-samples=out/run.json")
    assert result.ret == CANNOT_JUDGE
    says(result, "samples of this run, no record:")
    run = load_run(suite.path / "out" / "run.json")
    assert "warm reused 0 of 1 tokens" in run.invalid["perf_tests/test_ttft.py::test_ttft[size1]"]
    names = [each.scenario for each in run.section.measurements]
    assert names == ["perf_tests/test_memory.py::test_bytes[counted1]", "perf_tests/test_ttft.py::test_ttft[size2]"]
    assert run.section.measurements[1].workers == 4
    assert run.section.provenance.dirty
    assert (run.injected, run.seconds > 0) == ("", True)
    assert run.terms == Terms((4,), 1, 0.001)
    assert not suite.records


def test_a_planted_run_says_so_and_carries_it(suite: Suite) -> None:
    result = suite.run("perf_tests/test_ttft.py", "--gate-samples=out.json", "--gate-inject=warm=1.5@size2")
    assert result.ret == 0
    assert result.stdout.str().count("INJECTED SLOWDOWN warm=1.5@size2: slower on purpose") == 2
    run = load_run(suite.path / "out.json")
    assert run.injected == "warm=1.5@size2"
    found = [np.median(each.seconds["warm"]) / np.median(each.seconds["floor"]) for each in run.section.measurements]
    assert found[0] < 1.15
    assert found[1] > 1.45


def test_a_slowdown_of_no_arm_ends_red(suite: Suite) -> None:
    result = suite.run("perf_tests", "--gate-samples=out.json", "--gate-inject=wram=1.5")
    assert result.ret == CANNOT_JUDGE
    says(result, "the slowdown wram=1.5 cannot be injected")
    assert not (suite.path / "out.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gate-inject=warm=1.05"], "--gate-samples"),
        (["--gate-inject=warm=1.05", "--gate-samples=out.json", "--gate-record=x"], "never be a record"),
        (["--gate-inject=warm", "--gate-samples=out.json"], "ARM=FACTOR"),
        (["--gate-samples=baselines/0001_run.json"], "in the folder of the records"),
    ],
)
def test_what_could_pass_for_a_measurement_is_a_usage_error(suite: Suite, options: list[str], words: str) -> None:
    result = suite.run("perf_tests", *options)
    assert result.ret == USAGE
    says(result, words)
    assert not suite.measured()


def test_the_plant_is_not_offered_to_everybody(suite: Suite) -> None:
    result = suite.run("--help")
    says(result, "--gate-samples")
    assert "--gate-inject" not in result.stdout.str()
