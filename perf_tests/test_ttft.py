"""Time to first token: hits against computing everything and against the floor."""

from __future__ import annotations

import pytest

from cache_bench.plugin import profile
from perf_gate import Scenario
from perf_gate.plugin import Gate


@pytest.mark.scenarios.with_args(lambda config: profile(config).ttft())
def test_ttft(scenario: Scenario, gate: Gate) -> None:
    gate.judge(scenario)


@pytest.mark.scenarios.with_args(lambda config: profile(config).first_hit())
def test_first_hit(scenario: Scenario, gate: Gate) -> None:
    gate.judge(scenario)
