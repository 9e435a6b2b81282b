"""A worker answers every request with plain data, whatever a scenario does."""

from __future__ import annotations

import gc
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perf_gate.measuring.worker import ScenarioHost, find


def opened(module: ModuleType, *, warmups: int = 0, **fields: object) -> tuple[ScenarioHost, dict[str, Any]]:
    host = ScenarioHost()
    request = {
        "ask": "open", "name": "a", "module": "synthetic", "qualname": "Synthetic", "file": str(module.__file__),
        "fields": fields, "seed": 1, "warmups": warmups,
    }  # fmt: skip
    try:
        return host, host.answer(request)
    finally:
        gc.unfreeze()


def ask_rounds(host: ScenarioHost, rounds: int, *, warm_up: bool = True) -> dict[str, Any]:
    return host.answer({"ask": "rounds", "name": "a", "rounds": rounds, "warm_up": warm_up})


def test_rounds_are_visits_by_arm(synthetic: ModuleType) -> None:
    host, answer = opened(synthetic, size=3)
    assert answer == {"ok": True, "cost": {}}
    seconds = ask_rounds(host, 6)["seconds"]
    assert {arm: len(values) for arm, values in seconds.items()} == {"cold": 3, "warm": 6, "floor": 6}
    assert gc.isenabled()


def test_the_collector_rests_during_visits(synthetic: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def visit(_self: object, _arm: str) -> float:
        seen.append(gc.isenabled())
        return 1.0

    monkeypatch.setattr(synthetic.Synthetic, "visit", visit)
    host, _ = opened(synthetic)
    ask_rounds(host, 2)
    assert seen == [False] * (2 + 5)
    assert gc.isenabled()


def test_a_pass_begins_with_a_visit_of_each_frequent_arm_that_is_not_recorded(
    synthetic: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first visits after another scenario find cold caches: taken in, they would be a bias of short runs."""
    visited: list[str] = []

    def visit(_self: object, arm: str) -> float:
        visited.append(arm)
        return float(len(visited))

    monkeypatch.setattr(synthetic.Synthetic, "visit", visit)
    host, _ = opened(synthetic)
    for _ in range(2):
        del visited[:]
        seconds = ask_rounds(host, 4)["seconds"]
        assert visited[:2] == ["warm", "floor"]
        recorded = sorted(value for values in seconds.values() for value in values)
        assert recorded == list(map(float, range(3, 3 + 2 * 4 + 2)))
    del visited[:]
    ask_rounds(host, 4, warm_up=False)
    assert len(visited) == 2 * 4 + 2  # only what is recorded


def test_a_rare_arm_is_warmed_up_once(synthetic: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[str] = []
    monkeypatch.setattr(synthetic.Synthetic, "visit", lambda _, arm: visited.append(arm) or 1.0)
    _, answer = opened(synthetic, warmups=3)
    assert visited == ["cold", "warm", "floor", "warm", "floor", "warm", "floor"]
    assert set(answer["cost"]) == {"cold", "warm", "floor"}


def test_counts_are_plain_numbers(synthetic: ModuleType) -> None:
    host, _ = opened(synthetic, size=3)
    assert host.answer({"ask": "count", "name": "a"}) == {"ok": True, "exact": {"tokens": 30}}


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("premise", "premise", "warm reused 0 of 1 tokens (arm warm, before round 1)"),
        ("nan", "value", "visit returned nan seconds"),
        ("zero", "value", "visit returned 0.0 seconds"),
        ("word", "value", "visit returned 'fast'"),
        ("raises", "error", "RuntimeError: out of luck"),
    ],
)
def test_a_failing_visit_comes_back_as_data(synthetic: ModuleType, how: str, kind: str, message: str) -> None:
    host, _ = opened(synthetic, how=how)
    answer = ask_rounds(host, 1)
    assert (answer["ok"], answer["kind"]) == (False, kind)
    assert message in answer["message"]
    assert "(arm " in answer["message"]
    assert "in visit" in answer["traceback"] or kind == "value"
    assert gc.isenabled()


def test_a_nan_count_is_no_count(synthetic: ModuleType) -> None:
    host, _ = opened(synthetic, how="nan count")
    answer = host.answer({"ask": "count", "name": "a"})
    assert answer["kind"] == "value"
    assert "'tokens'" in answer["message"]


def test_a_failing_import_is_told_apart(synthetic: ModuleType) -> None:
    _, answer = opened(synthetic, how="import")
    assert answer["kind"] == "import"
    assert "there_is_no_such_module" in answer["message"]


def test_an_unknown_request_is_answered(synthetic: ModuleType) -> None:
    assert ScenarioHost().answer({"ask": "dance"})["ok"] is False
    assert ScenarioHost().answer({"ask": "rounds", "name": "never opened", "rounds": 1})["ok"] is False


def test_find_loads_a_module_that_cannot_be_imported_by_name(project: Path) -> None:
    found = find("some.where.scenarios", "Counted", str(project / "synthetic.py"))
    assert found.__name__ == "Counted"


@pytest.mark.parametrize("qualname", ["Nothing", "Synthetic.Nothing", "first_here"])
def test_find_says_what_is_not_there(synthetic: ModuleType, qualname: str) -> None:
    with pytest.raises(ImportError, match=r"synthetic"):
        find("synthetic", qualname, str(synthetic.__file__))


def test_find_does_not_hide_an_import_error_within(project: Path) -> None:
    (project / "broken.py").write_text("import there_is_no_such_module")
    with pytest.raises(ImportError, match="there_is_no_such_module"):
        find("a.broken", "Counted", str(project / "broken.py"))
