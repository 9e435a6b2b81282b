"""Collects the scenarios of a session."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

import pytest

from perf_gate.measuring.samples import Task
from perf_gate.session.selection import MARKER, Scope, place_of, scenarios_for, scope, tasks
from perf_gate.session.settings import Settings
from perf_gate.session.threshold import INI, PAIRED_INI, refuse_unknown_metrics
from perf_gate.showing.run_report import Place


class ScenarioCollector:
    """A plugin object: its pytest_* methods are hooks.

    tasks: of all tests with scenarios that were collected, by node id. left_out: names of those that were deselected.
    scope: the paths on the command line. places: file and line of each test, by name. All are empty before collection.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        """Keep the settings; everything else is known after collection."""
        self.tasks: dict[str, Task] = {}
        self.left_out: list[str] = []
        self.scope = Scope()
        self.places: dict[str, Place] = {}
        self._config = config
        self._settings = settings
        self._usage: list[str] = []

    def chosen(self, items: Iterable[pytest.Item]) -> dict[str, Task]:
        """Return the tasks of the tests among `items`, by node id, in their order."""
        return {item.nodeid: self.tasks[item.nodeid] for item in items if item.nodeid in self.tasks}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrise a test with the scenarios of its marker."""
        marker = metafunc.definition.get_closest_marker(MARKER)
        if marker is None:
            return
        try:
            scenarios = scenarios_for(metafunc, marker)
        except pytest.UsageError as error:
            # Raised here, it would only be a collection error.
            self._usage.append(str(error))
            scenarios = []
        metafunc.parametrize("scenario", scenarios, ids=[scenario.id for scenario in scenarios])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Collect the tasks before anything is deselected, and let pytest-benchmark take their tests for benchmarks."""
        if self._usage:
            raise pytest.UsageError(self._usage[0])
        settings = self._settings
        self.tasks = tasks(items, settings.root, settings.thresholds, settings.paired_thresholds)
        self.places = {
            self.tasks[item.nodeid].name: place_of(item, settings.root) for item in items if item.nodeid in self.tasks
        }
        for ini, thresholds in ((INI, settings.thresholds), (PAIRED_INI, settings.paired_thresholds)):
            refuse_unknown_metrics(
                ini, thresholds, self.tasks.values(), session, root=settings.root, baselines=settings.baselines
            )
        self.scope = scope(self._config, settings.root)
        names = {id(item.fixturenames): item.fixturenames for item in items if item.nodeid in self.tasks}  # type: ignore[attr-defined]
        for each in names.values():
            each.append("benchmark")
        try:
            return (yield)
        finally:
            for each in names.values():
                each.remove("benchmark")

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note what -k, -m, --deselect, --lf and the like leave out."""
        self.left_out.extend(task.name for task in self.chosen(items).values())
