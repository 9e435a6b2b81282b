"""Registers the gate."""

from __future__ import annotations

import pytest

# `pytest-benchmark compare` looks for it here alone.
from perf_gate.session.byte_tables import pytest_benchmark_scale_unit  # noqa: F401

pytest_plugins = ["perf_gate.plugin", "pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """Without the gate the suites have neither their hook nor their markers, which pytest calls internal errors."""
    if not config.pluginmanager.hasplugin("perf_gate.plugin"):
        raise pytest.UsageError(
            "the gate is switched off (-p no:perf_gate.plugin), so nothing would be measured or judged: switch it on"
        )
