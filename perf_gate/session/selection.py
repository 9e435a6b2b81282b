"""The scenarios of a session, their names, and the paths on the command line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from perf_gate.measuring.samples import Task
from perf_gate.scenario import Scenario
from perf_gate.session.threshold import refuse_unknown_markers, with_threshold
from perf_gate.showing.run_report import Place

ARGUMENT = "scenario"
MARKER = "scenarios"


def scenario_of(item: pytest.Item) -> Scenario | None:
    """Return the scenario that a test is parametrised with, or None for another kind of test."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.get_closest_marker(MARKER) is None:
        return None
    scenario = callspec.params.get(ARGUMENT)
    return scenario if isinstance(scenario, Scenario) else None


def full_name(item: pytest.Item, scenario: Scenario, root: Path) -> str:
    """Return the path of the test's file from `root`, its function and the scenario's id. Records are matched by it.

    Unlike the node id it does not depend on --rootdir or on the working directory.
    """
    path = Path(item.path)
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    nodes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
    function = getattr(item, "originalname", None) or item.name
    return "::".join([shown.as_posix(), *nodes, f"{function}[{scenario.id}]"])


def place_of(item: pytest.Item, root: Path) -> Place:
    """Return file and line of a test, from the top of the checkout (GITHUB_WORKSPACE), else from `root`."""
    top = Path(os.environ.get("GITHUB_WORKSPACE") or root).resolve()
    path = Path(item.path).resolve()
    return Place((path.relative_to(top) if path.is_relative_to(top) else path).as_posix(), (item.location[1] or 0) + 1)


def scenarios_for(metafunc: pytest.Metafunc, marker: pytest.Mark) -> list[Scenario]:
    """Call the marker's callable. Raises pytest.UsageError if it returns no scenarios, or equal ids."""
    where = metafunc.definition.nodeid
    if len(marker.args) != 1 or marker.kwargs or not callable(marker.args[0]):
        raise pytest.UsageError(
            f"{where}: @pytest.mark.{MARKER} takes one callable, pytest.Config -> scenarios,"
            f" not {marker.args} {marker.kwargs or ''}".rstrip()
        )
    if ARGUMENT not in metafunc.fixturenames:
        raise pytest.UsageError(f"{where}: a test with @pytest.mark.{MARKER} takes the argument {ARGUMENT!r}")
    scenarios = list(marker.args[0](metafunc.config))
    if not scenarios:
        raise pytest.UsageError(f"{where}: @pytest.mark.{MARKER} returns no scenario, so nothing would be measured")
    for scenario in scenarios:
        if not isinstance(scenario, Scenario):
            raise pytest.UsageError(f"{where}: {scenario!r} is not a perf_gate.Scenario")
        if not scenario.id or any(c.isspace() or c in "[]" for c in scenario.id) or "::" in scenario.id:
            raise pytest.UsageError(
                f"{where}: scenario id {scenario.id!r} is empty or has spaces, brackets or '::'; give it another one"
            )
    _require_unique((scenario.id for scenario in scenarios), f"{where}: scenario id")
    return scenarios


def _require_unique(names: Iterable[str], what: str) -> None:
    duplicates = [name for name, times in Counter(names).items() if times > 1]
    if duplicates:
        raise pytest.UsageError(f"{what} {duplicates[0]!r} occurs twice; it must be unique")


def tasks(
    items: Sequence[pytest.Item],
    root: Path,
    thresholds: Mapping[str, float],
    paired_thresholds: Mapping[str, float] | None = None,
) -> dict[str, Task]:
    """Return the tasks of all tests with scenarios among `items`, by node id. Raises pytest.UsageError."""
    found = {}
    for item in items:
        scenario = scenario_of(item)
        if scenario is None:
            continue
        metrics = tuple(
            with_threshold(metric, item, thresholds, paired_thresholds or {}) for metric in scenario.metrics
        )
        _require_unique((metric.name for metric in metrics), f"{item.nodeid}: metric")
        refuse_unknown_markers(item, metrics)
        found[item.nodeid] = Task(full_name(item, scenario, root), scenario, metrics)
    _require_unique((task.name for task in found.values()), "scenario")
    return found


@dataclass(frozen=True)
class Scope:
    """The paths on the command line; empty: everything.

    paths: names from the project root, e.g. "perf_tests/test_ttft.py" or
    "perf_tests/test_ttft.py::test_ttft[a]".
    """

    paths: tuple[str, ...] = ()

    def holds(self, name: str) -> bool:
        """Return whether the scenario of this full name lies in one of the paths."""
        return not self.paths or any(
            path in ("", ".", name) or name.startswith((path + "/", path + "::", path + "[")) for path in self.paths
        )

    def __str__(self) -> str:
        """Return the paths, separated by commas."""
        return ", ".join(self.paths)


def scope(config: pytest.Config, root: Path) -> Scope:
    """Return the paths on the command line.

    -k, -m and --deselect are not part of it: they leave out what the paths ask for.
    """
    if config.args_source is not pytest.Config.ArgsSource.ARGS or config.getoption("pyargs"):
        return Scope()
    paths = []
    for argument in config.args:
        file, colons, test = str(argument).partition("::")
        path = (config.invocation_params.dir / file).resolve()
        if root.resolve().is_relative_to(path):
            return Scope()
        if path.is_relative_to(root.resolve()):
            paths.append(path.relative_to(root.resolve()).as_posix() + colons + test)
    return Scope(tuple(paths))
