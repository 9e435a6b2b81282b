"""The pytest plugin: options, markers, the fixture `gate`, and the registration of everything else.

```python
@pytest.mark.scenarios(lambda config: [Ttft(prefix=200), Ttft(prefix=500)])
def test_ttft(scenario, gate):
    gate.judge(scenario)
```
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from functools import partial

import pytest

from perf_gate.scenario import Scenario
from perf_gate.session import hookspec
from perf_gate.session.byte_tables import ByteTables
from perf_gate.session.gate_plugin import GatePlugin
from perf_gate.session.options import add_options
from perf_gate.session.output import OUTPUT_OPTIONS, mark_unfinished, named, outputs
from perf_gate.session.scenario_collector import ScenarioCollector
from perf_gate.session.settings import settings

NAME = "perf-gate"
NEEDS = (
    "perf_gate needs pytest-benchmark, which is switched off (-p no:benchmark, PYTEST_DISABLE_PLUGIN_AUTOLOAD)"
    " or not installed: switch it on"
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add options and ini values."""
    config = pluginmanager.get_plugin("pytestconfig")
    assert isinstance(config, pytest.Config)
    config.add_cleanup(partial(_mark_unfinished, config))
    if pluginmanager.is_blocked("benchmark"):
        raise pytest.UsageError(NEEDS)
    add_options(parser)


def _mark_unfinished(config: pytest.Config) -> None:
    """After a usage error, remove what an earlier run has written, so that it is not taken for this run's."""
    if config.pluginmanager.hasplugin(NAME) or config.known_args_namespace.version:
        return
    # Any option may be wrong, so there may be no parsed values.
    arguments = [*config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    arguments += map(str, config.invocation_params.args)
    mark_unfinished(outputs(named(arguments, OUTPUT_OPTIONS, config.invocation_params.dir)))


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hook with which suites return their options."""
    pluginmanager.add_hookspecs(hookspec)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Validate the options and register the parts of the plugin."""
    config.addinivalue_line(
        "markers", "scenarios(callable): parametrise with the scenarios that callable(config) returns (perf_gate)"
    )
    config.addinivalue_line(
        "markers",
        "threshold(metric, threshold, absolute=None, paired=None): override a sampled metric's threshold (perf_gate)",
    )
    if not config.pluginmanager.hasplugin("pytest-benchmark"):
        raise pytest.UsageError(NEEDS)
    asked = settings(config)
    collector = ScenarioCollector(config, asked)
    config.pluginmanager.register(collector, f"{NAME}-collector")
    # Before the gate plugin, so that its tables are printed before the verdicts.
    config.pluginmanager.register(ByteTables(config), f"{NAME}-bytes")
    config.pluginmanager.register(GatePlugin(config, asked, collector), NAME)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_benchmark_compare_machine_info(machine_info: object, compared_benchmark: dict[str, object]) -> None:
    """Hide the machine of the gate's own records from pytest-benchmark; the gate compares machine classes itself.

    A record keeps only what defines its machine class. pytest-benchmark compares every flag of the processor and would
    warn on the very machine that made the record.
    """
    if "perf_gate" in compared_benchmark:
        compared_benchmark["machine_info"] = machine_info


@dataclass(frozen=True)
class Gate:
    """What the fixture `gate` returns."""

    plugin: GatePlugin
    item: pytest.Item

    def judge(self, scenario: Scenario) -> None:
        """Fail the test unless every metric of `scenario` passes, or nothing is compared."""
        __tracebackhide__ = True
        self.plugin.judge(self.item, scenario)


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Gate:
    """Return the gate of this session."""
    plugin = request.config.pluginmanager.get_plugin(NAME)
    assert isinstance(plugin, GatePlugin)
    return Gate(plugin, request.node)
