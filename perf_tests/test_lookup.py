"""Matching a prompt against what is stored."""

from __future__ import annotations

import pytest

from cache_bench.plugin import profile
from perf_gate import Scenario
from perf_gate.plugin import Gate


@pytest.mark.scenarios.with_args(lambda config: profile(config).lookup())
def test_lookup(scenario: Scenario, gate: Gate) -> None:
    gate.judge(scenario)
