"""Shows samples that were taken elsewhere in pytest-benchmark's table, groups and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from pytest_benchmark.utils import NameWrapper

from perf_gate.measurement import Measurement
from perf_gate.scenario import Scenario


def replaying_timer(seconds: Iterator[float]) -> Callable[[], float]:
    """A clock that reads 0 at the start of each round and the round's seconds at its end."""
    return chain.from_iterable((0.0, value) for value in seconds).__next__


def replay(item: pytest.Item, session: Any, scenario: Scenario, measurement: Measurement) -> None:
    """Add one row per timed arm to pytest-benchmark's `session`, its exact metrics as extra_info.

    The fixture `benchmark` allows one use per test, hence a fixture of our own for each arm.
    """
    for arm, per_worker in measurement.seconds.items():
        samples = [value for worker in per_worker for value in worker]
        if not samples:
            continue
        # pytest-benchmark comes without types.
        make_fixture: Any = BenchmarkFixture
        wrap: Any = NameWrapper
        options = {**session.options, "timer": wrap(replaying_timer(iter(samples))), "cprofile": False}
        fixture = make_fixture(
            item,
            add_stats=session.benchmarks.append,
            logger=session.logger,
            warner=item.warn,
            disabled=False,
            group=measurement.group,
            **options,
        )
        fixture.name = f"{item.name} {arm}"
        fixture.fullname = f"{measurement.scenario} {arm}"
        fixture.param = scenario.id
        fixture.params = {**scenario.fields(), "arm": arm}
        fixture.extra_info = {"arm": arm, "workers": measurement.workers, **measurement.exact}
        fixture.pedantic(int, rounds=len(samples))
