"""Time per output token: unchanged by the cache."""

from __future__ import annotations

import pytest

from cache_bench.plugin import profile
from perf_gate import Scenario
from perf_gate.plugin import Gate


@pytest.mark.scenarios.with_args(lambda config: profile(config).tpot())
def test_tpot(scenario: Scenario, gate: Gate) -> None:
    gate.judge(scenario)
