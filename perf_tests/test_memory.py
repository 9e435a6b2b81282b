"""Bytes: each shared run stored once, and given back."""

from __future__ import annotations

import pytest

from cache_bench.plugin import profile
from perf_gate import Scenario
from perf_gate.plugin import Gate


@pytest.mark.scenarios.with_args(lambda config: profile(config).memory())
def test_memory(scenario: Scenario, gate: Gate) -> None:
    gate.judge(scenario)
