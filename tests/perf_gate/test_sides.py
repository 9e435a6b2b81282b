"""Two sides of one run: the same suites, another subject, in turns."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from perf_gate.measurement import Measurement
from perf_gate.measuring.measurement_run import (
    BLOCK_SECONDS,
    MeasurementError,
    MeasurementRun,
    Outcome,
    Plan,
    block_rounds,
)
from perf_gate.measuring.samples import Task
from perf_gate.measuring.slowdown import InjectedSlowdown
from perf_gate.measuring.worker_pool import BASE, Conditions, Side
from perf_gate.scenario import Scenario
from tests.perf_gate.engines import write_engine

HERE = Path(__file__).parent
QUICK = Plan(looks=(4,), rounds=(6, 6), passes=3, warmups=1)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a suite and an engine, and a base with an engine (and another suite) below it."""
    shutil.copy(HERE / "hits.py", tmp_path)
    write_engine(tmp_path, name="candidate")
    write_engine(tmp_path / "base", name="base")
    (tmp_path / "base" / "hits.py").write_text("raise RuntimeError('the suites are the candidate\\'s')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hits(two: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(two))
    yield importlib.import_module("hits")
    del sys.modules["hits"]


def sides(two: Path, **base: object) -> tuple[Side, Side]:
    ours = Side(two, homes={"engine": str(two)})
    theirs = Side(two, BASE, homes={"engine": str(two / "base")}, **base)  # type: ignore[arg-type]
    return ours, theirs


def run(two: Path, *scenarios: Scenario, plan: Plan = QUICK, deadline: float = 60.0, **base: object) -> Outcome:
    tasks = [Task(f"t::t[{each.id}]", each, each.metrics) for each in scenarios]
    side, other = sides(two, **base)
    return MeasurementRun(tasks, side=side, base=other, plan=plan, conditions=Conditions(deadline=deadline)).run()


def lines(two: Path, name: str) -> list[str]:
    return (two / name).read_text().splitlines()


def test_each_side_has_its_own_subject_and_both_the_same_suites(two: Path, hits: ModuleType) -> None:
    write_engine(two / "base", name="base", copies=2)
    outcome = run(two, hits.Hit(1), hits.Hit(2))
    assert [each.exact for each in outcome.measurements] == [{"copies": 3}] * 2
    assert [each.exact for each in outcome.base] == [{"copies": 2}] * 2
    assert {Path(line).parts[-3] for line in lines(two, "seen")} == {two.name, "base"}
    assert [each.scenario for each in outcome.base] == [each.scenario for each in outcome.measurements]
    assert [each.fingerprint for each in outcome.base] == [each.fingerprint for each in outcome.measurements]


def test_pairs_are_named_alike_and_as_long_on_both_sides(two: Path, hits: ModuleType) -> None:
    outcome = run(two, hits.Hit(1))
    (now,), (base,) = outcome.measurements, outcome.base
    assert now.workers == base.workers == outcome.log.workers == 4
    assert now.names == base.names
    assert {len(visits) for each in (now, base) for by in each.seconds.values() for visits in by} == {6}


def test_the_sides_change_places_every_round_in_balanced_order(
    two: Path, hits: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perf_gate.measuring.measurement_run.BLOCK_SECONDS", 1e-9)
    run(two, hits.Hit(1), plan=Plan(looks=(2,), rounds=(24, 24), passes=1, warmups=0))
    visits = [line.split()[0] for line in lines(two, "visits")]
    # A round is two visits of one side, and fills its block: none comes before it that is not recorded.
    rounds = visits[::2]
    assert visits[1::2] == rounds
    assert len(rounds) == 2 * 2 * 24  # pairs, sides
    blocks = [tuple(rounds[i : i + 2]) for i in range(0, len(rounds), 2)]
    assert set(blocks) == {("candidate", "base"), ("base", "candidate")}
    assert len(set(Counter(blocks).values())) == 1


def test_a_stint_of_several_rounds_begins_with_one_that_is_not_recorded(two: Path, hits: ModuleType) -> None:
    outcome = run(two, hits.Hit(1), plan=Plan(looks=(2,), rounds=(4, 4), passes=1, warmups=0))
    assert {len(visits) for by in outcome.base[0].seconds.values() for visits in by} == {4}
    assert len(lines(two, "visits")) == 2 * 2 * 2 * (1 + 4)  # pairs, sides, visits of a round


def test_equal_counts_are_counted_once_on_each_side_and_others_twice(two: Path, hits: ModuleType) -> None:
    write_engine(two / "base", copies="3 if size == 1 else 2")
    run(two, hits.Hit(1), hits.Hit(2), plan=Plan(exact=True))
    assert Counter(map(str, lines(two, "seen"))).total() == 2 + 4


def test_counts_that_vary_on_the_base_are_told_from_a_change(two: Path, hits: ModuleType) -> None:
    write_engine(two / "base", copies="__import__('os').getpid()")
    outcome = run(two, hits.Hit(1), plan=Plan(exact=True))
    assert outcome.measurements[0].invalid is None
    assert "varies between workers" in (outcome.base[0].invalid or "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import there_is_no_such_module", "there_is_no_such_module"),
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
        ("REUSES = True\nNAME = 'base'\n", "AttributeError"),
        ("REUSES = False\ncopies = lambda size: 3\n", "warm reused 0 of 8 tokens"),
        ("import os\ncopies = lambda size: os._exit(3)\n", "died during 'count'"),
    ],
    ids=["import", "raises", "old interface", "premise", "dies"],
)
def test_what_fails_on_the_base_spoils_the_base_alone(two: Path, hits: ModuleType, text: str, words: str) -> None:
    write_engine(two / "base", text=text)
    outcome = run(two, hits.Hit(1))
    assert outcome.measurements[0].invalid is None
    assert outcome.measurements[0].exact == {"copies": 3}
    assert words in (outcome.base[0].invalid or "")
    assert "(base)" in (outcome.base[0].invalid or "")


def test_a_base_without_the_package_never_falls_back_on_another_copy(two: Path, hits: ModuleType) -> None:
    shutil.rmtree(two / "base" / "engine")
    outcome = run(two, hits.Hit(1), plan=Plan(exact=True))
    assert f"{two / 'base'} has no module 'engine'" in (outcome.base[0].invalid or "")
    assert outcome.measurements[0].invalid is None


def test_a_subject_that_came_from_elsewhere_before_the_gate_is_refused(two: Path, hits: ModuleType) -> None:
    write_engine(two / "stray")
    (two / "stray" / "sitecustomize.py").write_text("import engine\n")
    python = two / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={two / "stray"} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with pytest.raises(MeasurementError, match=r"engine was imported from .*stray.*, not from .*base"):
        run(two, hits.Hit(1), python=str(python))


def test_another_interpreter_brings_its_own_path(two: Path, hits: ModuleType) -> None:
    (two / "own").mkdir()
    (two / "own" / "only_there.py").write_text("COPIES = 5\n")
    write_engine(two / "base", copies="__import__('only_there').COPIES")
    python = two / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={two / "own"} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert run(two, hits.Hit(1), plan=Plan(exact=True), python=str(python), path=None).base[0].exact == {"copies": 5}
    assert "only_there" in (run(two, hits.Hit(1), plan=Plan(exact=True)).base[0].invalid or "")


def test_half_a_pair_is_no_pair(two: Path, hits: ModuleType) -> None:
    # The first base worker that visits a warm arm dies; what the candidate beside it has seen has no counterpart.
    dying = """
import os
REUSES, NAME = True, "base"
copies = lambda size: 3

def __getattr__(name):
    if name != "SLOWER":
        raise AttributeError(name)
    if not os.path.exists("taken"):
        open("taken", "w").close()
        os._exit(3)
    return 1.0
"""
    write_engine(two / "base", text=dying)
    outcome = run(two, hits.Hit(1), hits.Hit(2))
    assert sorted(bool(each.invalid) for each in outcome.base) == [False, True]
    (sound,) = (index for index, each in enumerate(outcome.base) if not each.invalid)
    now, base = outcome.measurements[sound], outcome.base[sound]
    assert now.names == base.names
    assert now.workers == base.workers == outcome.log.workers == 4
    assert "4" not in now.names  # counted by workers 1 and 2; the pair of 3 and 4 is gone
    assert "3" not in now.names
    assert len(outcome.log.lost) == 1


def test_a_slowdown_is_planted_in_the_candidate_only(two: Path, hits: ModuleType) -> None:
    outcome = run(two, hits.Hit(1), plan=Plan(looks=(2,), rounds=(6, 6), injected=InjectedSlowdown("warm", 2.0)))
    now, base = (sum(map(sum, side[0].seconds["warm"])) for side in (outcome.measurements, outcome.base))
    assert now > 1.5 * base


def test_the_looks_see_both_sides(two: Path, hits: ModuleType) -> None:
    side, other = sides(two)
    task = Task("t", hits.Hit(1), hits.Hit(1).metrics)
    run = MeasurementRun([task], side=side, base=other, plan=Plan(looks=(2, 4), rounds=(3, 3)))
    looks = []

    def undecided(now: Sequence[Measurement], look: int) -> set[str]:
        looks.append((look, now[0].workers, run.base[0].workers))
        return set()

    assert run.run(undecided).log.stopped == "every verdict is clear"
    assert looks == [(1, 2, 2)]


def test_the_sides_need_different_names(two: Path, hits: ModuleType) -> None:
    with pytest.raises(ValueError, match="different names"):
        MeasurementRun([Task("t", hits.Hit(1), hits.Hit(1).metrics)], side=Side(two), base=Side(two))


def test_rounds_that_are_not_recorded_are_paid_for_out_of_the_budget(two: Path, hits: ModuleType) -> None:
    tasks = [Task(f"t::t[{each.id}]", each, each.metrics) for each in (hits.Hit(1), hits.Hit(2))]
    side, other = sides(two)
    plan = Plan(budget=100.0, looks=(4,), rounds=(3, 10_000))
    run = MeasurementRun(tasks, side=side, base=other, plan=plan)
    seconds = dict(zip(run._tasks, (0.02, 0.2), strict=True))  # a round of the second fills a block alone
    for name, case in run._tasks.items():
        for evidence in case.sides.values():
            evidence.costs({arm: seconds[name] / len(case.task.scenario.arms) for arm in case.task.scenario.arms})
    run._plan_rounds(boot=0.0)
    workers, spent = 4 * 2, 0.0
    for name, case in run._tasks.items():
        rounds, block = run._rounds[name], block_rounds(case)
        assert block == max(1, round(BLOCK_SECONDS / seconds[name] + 0.49))
        spent += workers * seconds[name] * (rounds + (rounds / block if block > 1 else 0))
    assert 80.0 < spent <= 90.0
