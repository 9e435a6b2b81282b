"""Rows of bytes in pytest-benchmark's tables and files."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from perf_gate.records.benchmark_json import shows_bytes
from perf_gate.session.byte_tables import pytest_benchmark_scale_unit
from tests.perf_gate.checkout import ROOT, says
from tests.perf_gate.suite import Suite

STORE = """
from dataclasses import dataclass
from pathlib import Path
from perf_gate import Exact, Scenario

@dataclass(frozen=True)
class Store(Scenario):
    size: int = 7
    id = "store"
    group = "memory store"
    metrics = (Exact("bytes kept", "B"), Exact("bytes kept after all", "B"), Exact("parts", "nodes"))

    def open(self): pass

    def count(self):
        more = Path("regress").exists()
        return {"bytes kept": 7340033 + more, "bytes kept after all": 0, "parts": 3}
"""
TEST_STORE = """
import pytest
from store import Store

@pytest.mark.scenarios(lambda config: [Store()])
def test_store(scenario, gate):
    gate.judge(scenario)
"""
TEST_PLAIN = "def test_plain(benchmark): benchmark.pedantic(int, rounds=3)\n"
KEPT = "test_store[store] bytes kept (B)"
FREED = "test_store[store] bytes kept after all (B)"


@pytest.fixture
def store(suite: Suite) -> Suite:
    """A suite that counts bytes, one of them 0, and times one thing with pytest-benchmark's own fixture."""
    suite.write("store.py", STORE)
    suite.write("perf_tests/test_memory.py", TEST_STORE)
    suite.write("perf_tests/test_ttft.py", TEST_PLAIN)
    suite.commit()
    return suite


def tables(result: pytest.RunResult) -> dict[str, list[list[str]]]:
    """Heading -> its lines, split into columns."""
    found: dict[str, list[list[str]]] = {}
    for line in result.stdout.lines:
        if line.startswith("-") and "benchmark" in line:
            lines = found[line.strip("- ")] = []
        elif line.startswith("Legend") or "= perf gate =" in line:
            lines = []
        elif found and line and not line.startswith("---"):
            lines.append([column for column in line.split("  ") if column])
    return found


def test_bytes_have_a_table_of_their_own(store: Suite) -> None:
    result = store.run("perf_tests", "--gate-exact")
    assert result.ret == 0, result.stdout.str()
    found = tables(result)
    assert list(found) == ["benchmark: 1 tests", "benchmark 'memory store': 2 tests"]
    assert [[cell.strip() for cell in line] for line in found["benchmark 'memory store': 2 tests"]] == [
        ["Name", "Bytes"],
        [FREED, "0"],
        [KEPT, "7,340,033"],
    ]
    assert "Name (time in" in found["benchmark: 1 tests"][0][0]


def test_bytes_alone_are_shown_too_and_no_word_is_said_of_time(store: Suite) -> None:
    result = store.run("perf_tests/test_memory.py")
    assert result.ret == 0
    says(result, "7,340,033")
    assert "time in" not in result.stdout.str()
    assert "OPS" not in result.stdout.str()


@pytest.mark.parametrize("by", ["func", "fullfunc", "name", "fullname", "param:arm", "group"])
def test_however_rows_are_grouped_no_table_mixes_units(store: Suite, by: str) -> None:
    # One group for all: the harder case is what a hook of the user's does.
    if by == "group":
        store.write(
            "perf_tests/conftest.py", "def pytest_benchmark_group_stats(benchmarks): return [(None, benchmarks)]"
        )
    arguments = ["perf_tests/test_memory.py"] if by == "param:arm" else ["perf_tests"]
    result = store.run(*arguments, f"--benchmark-group-by={by}")
    assert result.ret == 0, result.stdout.str()
    for lines in tables(result).values():
        kinds = {"(B)" in line[0] for line in lines[1:]}
        assert len(kinds) == 1
        assert ("Bytes" in lines[0][-1]) is kinds.pop()
    says(result, "7,340,033")


@pytest.mark.parametrize(
    "option",
    [
        "--benchmark-columns=ops,rounds",
        "--benchmark-sort=name",
        "--benchmark-sort=stddev",
        "--benchmark-time-unit=ns",
        "--benchmark-name=long",
        "--benchmark-name=trial",
        "--benchmark-verbose",
    ],
)
def test_no_option_of_pytest_benchmark_changes_a_count(store: Suite, option: str) -> None:
    result = store.run("perf_tests", option)
    assert result.ret == 0, result.stdout.str()
    assert [line for line in result.stdout.lines if line.endswith(" 7,340,033")]


def test_a_quiet_table_and_a_disabled_one_show_no_bytes(store: Suite) -> None:
    for option in ("--benchmark-quiet", "--benchmark-disable"):
        result = store.run("perf_tests", option, "--benchmark-json=out.json")
        assert result.ret == 0
        assert not any("7,340,033" in line and "store] bytes kept (B)" in line for line in result.stdout.lines)
    assert not (store.path / "out.json").exists() or "7340033" in (store.path / "out.json").read_text()


DRAW = """
import sys, types
from pathlib import Path

def make_histogram(prefix, group, rows, unit, adjustment):
    with Path("drawn").open("a") as drawn:
        drawn.writelines(f"{row['name']}\\n" for row in rows)

sys.modules["pytest_benchmark.histogram"] = types.SimpleNamespace(make_histogram=make_histogram)
"""


def test_a_histogram_is_drawn_of_times_alone(store: Suite) -> None:
    store.write("perf_tests/conftest.py", DRAW)
    result = store.run("perf_tests", "--benchmark-histogram=out")
    assert result.ret == 0, result.stdout.str()
    assert (store.path / "drawn").read_text() == "test_plain\n"


def test_a_histogram_of_bytes_alone_asks_for_nothing(store: Suite) -> None:
    result = store.run("perf_tests/test_memory.py", "--benchmark-histogram=drawn/out")
    assert result.ret == 0, result.stdout.str()
    says(result, "7,340,033")
    assert not (store.path / "drawn").exists()


def test_saved_bytes_are_compared_by_pytest_benchmark_alone(store: Suite) -> None:
    """Saved as pytest-benchmark saves, put beside each other by its own command, and whole to the last byte."""
    result = store.run("perf_tests", "--benchmark-json=out.json", "--benchmark-save=mine", "--benchmark-save-data")
    assert result.ret == 0, result.stdout.str()
    rows = {row["name"]: row for row in json.loads((store.path / "out.json").read_text())["benchmarks"]}
    kept, freed = rows[KEPT], rows[FREED]
    assert kept["group"] == "memory store"
    assert kept["fullname"] == f"perf_tests/test_memory.py::{KEPT}"
    assert kept["extra_info"] == {
        "bytes kept": 7340033,
        "bytes kept after all": 0,
        "parts": 3,
        "unit": "B",
        "metric": "bytes kept",
    }
    for row, value in ((kept, 7340033), (freed, 0)):
        figures = row["stats"]
        assert all(figures[name] == value for name in ("min", "max", "mean", "median"))
        assert isinstance(figures["min"], int)
        assert (figures["rounds"], figures["stddev"], figures["data"]) == (1, 0, [value])
    assert (kept["stats"]["ops"], freed["stats"]["ops"]) == (1 / 7340033, 0)

    store.write("conftest.py", (ROOT / "conftest.py").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", "out.json", "--group-by=group"],
        capture_output=True,
        text=True,
        check=False,
        cwd=store.path,
    )
    assert done.returncode == 0, done.stderr
    assert "7,340,033.0000" in done.stdout
    assert "Name (time in bytes)" in done.stdout


def test_a_comparison_shows_both_and_fails_on_what_grew_alone(store: Suite) -> None:
    assert store.record("--gate-exact").ret == 0
    compare = ("perf_tests/test_memory.py", "-p", "no:cacheprovider", "--benchmark-storage=file://baselines")
    failing = ("--benchmark-compare=0001", "--benchmark-compare-fail", "mean:5%", "stddev:5%", "max:0.5")
    result = store.run(*compare, *failing)
    says(result, "bytes kept (B) (0001_first)", "bytes kept (B) (NOW)", "bytes kept after all (B) (NOW)")
    assert result.ret == 0
    assert "Performance has regressed" not in result.stdout.str() + result.stderr.str()
    (store.path / "regress").touch()
    result = store.run(*compare, *failing)
    says(result, "Performance has regressed", "bytes kept (B) (0001_first) - Field 'max'", "7,340,034")
    assert "after all (B) (0001_first) - Field" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("record_has_rows", [True, False])
def test_a_record_is_compared_whether_or_not_it_has_rows_of_bytes(store: Suite, record_has_rows: bool) -> None:
    store.write("perf_tests/test_ttft.py", "")
    store.commit()
    result = store.record("--gate-exact")
    assert result.ret == 0, result.stdout.str()
    path = store.path / "baselines/0001_first.json"
    document = json.loads(path.read_text())
    assert sorted(row["name"] for row in document["benchmarks"]) == sorted([KEPT, FREED])
    if not record_has_rows:
        document["benchmarks"] = []
        path.write_text(json.dumps(document))
    result = store.compare("--gate-exact", "--benchmark-storage=file://baselines")
    assert result.ret == 0, result.stdout.str()
    assert ("bytes kept (B) (0001_first)" in result.stdout.str()) is record_has_rows
    says(result, "7,340,033", "pass: 3 of 3 metrics")


def test_what_is_a_row_of_bytes() -> None:
    assert shows_bytes({"extra_info": {"unit": "B", "metric": "x"}})
    for other in (
        {},
        {"extra_info": None},
        {"extra_info": {"unit": "s", "metric": "x"}},
        {"extra_info": {"unit": "B"}},
    ):
        assert not shows_bytes(other)


def test_the_command_compare_scales_seconds_as_before_and_bytes_not_at_all() -> None:
    seconds = {"min": 0.002, "ops": 500.0}
    count = {"min": 0, "ops": 0, "extra_info": {"unit": "B", "metric": "x"}}
    scales = [
        pytest_benchmark_scale_unit(None, unit, rows, rows[0], rows[0], "min")
        for rows in ([seconds], [count], [seconds, count])
        for unit in ("seconds", "operations")
    ]
    assert scales == [("m", 1e3), ("", 1.0), ("byte", 1.0), ("", 1.0), ("m", 1e3), ("", 1.0)]
