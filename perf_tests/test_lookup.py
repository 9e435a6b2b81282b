"""Matching a prompt against what is stored."""

from __future__ import annotations

import pytest

from perf_gate import Scenario
from perf_gate.plugin import Gate
from perf_tests.conftest import profile


@pytest.mark.scenarios.with_args(lambda config: profile(config).lookup())
def test_lookup(scenario: Scenario, gate: Gate) -> None:
    gate.judge(scenario)
