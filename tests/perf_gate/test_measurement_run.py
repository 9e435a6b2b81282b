"""A run measures all scenarios in several workers, and no fault of one passes for a result."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from perf_gate.measurement import Measurement
from perf_gate.measuring.measurement_run import MeasurementError, MeasurementRun, Outcome, Plan
from perf_gate.measuring.progress import LiveLine, PlainLines
from perf_gate.measuring.samples import Task
from perf_gate.measuring.worker_pool import Conditions, Side
from perf_gate.scenario import Scenario

QUICK = Plan(looks=(2, 4), rounds=(4, 6), passes=2, warmups=1)


def tasks(*scenarios: Scenario) -> list[Task]:
    return [Task(f"test_it.py::test_it[{s.id}]", s, s.metrics) for s in scenarios]


def run(
    project: Path, *scenarios: Scenario, plan: Plan = QUICK, deadline: float = 60.0, decided: bool = True
) -> Outcome:
    run = MeasurementRun(tasks(*scenarios), side=Side(project), plan=plan, conditions=Conditions(deadline=deadline))
    return run.run((lambda _measurements, _look: set()) if decided else None)


def workers(project: Path) -> int:
    return len(set((project / "pids").read_text().split()))


def test_two_workers_visit_every_scenario(project: Path, synthetic: ModuleType) -> None:
    outcome = run(project, synthetic.Synthetic(1), synthetic.Synthetic(2), synthetic.Counted(3))
    one, two, counted = outcome.measurements
    for measurement in (one, two):
        assert measurement.invalid is None
        assert {arm: [len(w) for w in by] for arm, by in measurement.seconds.items()} == {
            "cold": [3, 3], "warm": [6, 6], "floor": [6, 6],
        }  # fmt: skip
        assert measurement.worker_names == ("3", "4")
    assert (one.exact, two.exact, counted.exact) == ({"tokens": 10}, {"tokens": 20}, {"bytes": 3072})
    assert counted.seconds == {}
    assert one.fingerprint != two.fingerprint
    assert workers(project) == 2 + outcome.log.workers == 4
    assert (outcome.log.look, outcome.log.stopped) == (1, "every verdict is clear")


def test_it_goes_on_while_anything_is_undecided(project: Path, synthetic: ModuleType) -> None:
    looks = []

    def undecided(measurements: Sequence[Measurement], look: int) -> set[str]:
        looks.append((look, measurements[0].workers))
        return {measurements[0].scenario}

    run = MeasurementRun(tasks(synthetic.Synthetic(1), synthetic.Counted()), side=Side(project), plan=QUICK)
    outcome = run.run(undecided)
    assert looks == [(1, 2)]
    assert outcome.measurements[0].workers == workers(project) - 2 == 4
    assert outcome.log.look == 2


def test_a_record_takes_all_workers(project: Path, synthetic: ModuleType) -> None:
    assert run(project, synthetic.Synthetic(1), decided=False).measurements[0].workers == 4


def test_the_budget_ends_it_after_the_least_workers(project: Path, synthetic: ModuleType) -> None:
    plan = Plan(budget=1e-6, looks=(2, 4, 6), rounds=(4, 6), passes=2)
    outcome = run(project, synthetic.Synthetic(1), plan=plan, decided=False)
    assert outcome.log.workers == 2
    assert outcome.log.rounds == {"test_it.py::test_it[size1]": 4}
    assert "budget" in outcome.log.stopped
    assert outcome.log.look == 2


def test_what_is_compared_is_counted_once_and_shared_between_two_workers(project: Path, synthetic: ModuleType) -> None:
    plan = Plan(exact=True, counts=1)
    kinds = [synthetic.Counted(1), synthetic.Counted(2), synthetic.Synthetic(1, "import"), synthetic.Counted(3)]
    outcome = run(project, *kinds, synthetic.Synthetic(2, "varies"), plan=plan)
    one, two, bad, three, varying = outcome.measurements
    assert [m.exact for m in (one, two, three)] == [{"bytes": 1024}, {"bytes": 2048}, {"bytes": 3072}]
    assert bad.invalid is not None
    assert varying.exact["tokens"] > 0
    opened = (project / "pids").read_text().split()
    assert (len(opened), len(set(opened))) == (5, 2)


def test_exact_only_times_nothing(project: Path, synthetic: ModuleType) -> None:
    outcome = run(project, synthetic.Synthetic(1, "nan"), plan=Plan(exact=True))
    (measurement,) = outcome.measurements
    assert measurement.invalid is None
    assert (measurement.exact, measurement.seconds) == ({"tokens": 10}, {})
    assert workers(project) == 2


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("premise", ["warm reused 0 of 1 tokens", "arm warm, warm-up 1", "in worker 3"]),
        ("nan", ["visit returned nan seconds"]),
        ("raises", ["RuntimeError: out of luck", "Traceback", "in visit"]),
        ("import", ["there_is_no_such_module", "while opening"]),
        ("varies", ["exact metric 'tokens' varies between workers", "10", "11"]),
        ("undeclared", ["'calls'", "does not declare"]),
        ("uncounted", ["'tokens' is declared, but"]),
        ("nan count", ["'tokens'", "not a finite number"]),
        ("dies", ["died during", "SIGKILL", "about to die"]),
        ("leaves", ["during", "SystemExit"]),
    ],
)
def test_a_fault_spoils_its_scenario_only(project: Path, synthetic: ModuleType, how: str, words: list[str]) -> None:
    outcome = run(project, synthetic.Synthetic(1, how), synthetic.Synthetic(2))
    bad, good = outcome.measurements
    assert bad.invalid is not None
    for word in words:
        assert word in bad.invalid
    assert good.invalid is None
    assert good.workers >= 2
    assert len({len(per_worker) for per_worker in good.seconds.values()}) == 1


def test_a_worker_that_hangs_is_killed_at_the_deadline(project: Path, synthetic: ModuleType) -> None:
    outcome = run(project, synthetic.Synthetic(1, "hangs"), synthetic.Synthetic(2), deadline=3.0)
    bad, good = outcome.measurements
    assert bad.invalid is not None
    assert "did not answer 'open' within 3 s and was killed" in bad.invalid
    assert good.invalid is None
    assert len(outcome.log.lost) == 1


def test_it_ends_when_every_scenario_is_spoilt(project: Path, synthetic: ModuleType) -> None:
    outcome = run(project, synthetic.Synthetic(1, "raises"))
    assert outcome.measurements[0].invalid
    assert "no valid scenario is left" in outcome.log.stopped


def test_workers_that_do_not_start_are_one_error(project: Path, synthetic: ModuleType) -> None:
    side = Side(project, python="/no/such/python")
    with pytest.raises(MeasurementError, match="did not start"):
        MeasurementRun(tasks(synthetic.Synthetic()), side=side, plan=QUICK).run()


def test_a_senseless_answer_loses_the_worker(project: Path, synthetic: ModuleType) -> None:
    bootstrap = """
path, parent, gate = channel.receive()
for request in channel:
    hello = request["ask"] == "hello"
    channel.send({"ok": True, "pid": 0} if hello else {"ok": True, "cost": "much"})
"""
    run = MeasurementRun(tasks(synthetic.Synthetic()), side=Side(project), plan=QUICK, bootstrap=bootstrap)
    (measurement,) = run.run().measurements
    assert measurement.invalid is not None
    assert "sent an invalid answer to 'open'" in measurement.invalid


def test_equal_names_are_refused(project: Path, synthetic: ModuleType) -> None:
    with pytest.raises(ValueError, match="different names"):
        MeasurementRun(tasks(synthetic.Synthetic(), synthetic.Synthetic()), side=Side(project))
    with pytest.raises(ValueError, match="different names"):
        MeasurementRun([], side=Side(project))


@pytest.mark.parametrize(
    "wrong",
    [
        {"looks": (3,)},
        {"looks": (4, 2)},
        {"looks": ()},
        {"budget": 0.0},
        {"rounds": (1, 9)},
        {"passes": 0},
        {"counts": 3},
        {"counts": 0},
    ],
)
def test_impossible_plans_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"pairs|budget|passes|counted by"):
        Plan(**wrong)  # type: ignore[arg-type]


def test_progress_says_where_it_stands(project: Path, synthetic: ModuleType) -> None:
    lines: list[str] = []
    run = MeasurementRun(
        tasks(synthetic.Synthetic(1)), side=Side(project), plan=QUICK, progress=PlainLines(lines.append, interval=0)
    )
    run.run()
    text = "\n".join(lines)
    for part in ("starting", "measuring, worker 4 of at most 4", "test_it[size1]", "reuse efficiency 0.9", "s left"):
        assert part in text


def test_the_live_line_is_one_line_and_leaves_nothing() -> None:
    terminal = io.StringIO()
    with LiveLine(terminal) as progress:
        progress.update(phase="measuring", worker=1, scenario="test_it.py::test_it[size1]", seconds=0)
        progress.update(phase="measuring", worker=2, seconds=0)
    assert "test_it[size1]" not in terminal.getvalue().rpartition("\r")[2]


def test_plain_lines_are_rare() -> None:
    lines: list[str] = []
    clock = iter([0.0, 5.0, 11.0, 20.0, 21.0]).__next__
    progress = PlainLines(lines.append, interval=10.0, clock=clock)
    for worker in range(1, 6):
        progress.update(phase="measuring", worker=worker, seconds=0)
    assert [line.split(" of ")[0][-1] for line in lines] == ["1", "3", "5"]
