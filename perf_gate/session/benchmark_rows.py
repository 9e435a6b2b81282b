"""Adds samples that the workers took to pytest-benchmark's tables and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from pytest_benchmark.utils import NameWrapper

from perf_gate.measurement import Measurement
from perf_gate.records.benchmark_json import about, byte_counts, title
from perf_gate.scenario import Scenario


def replaying_timer(values: Iterator[float]) -> Callable[[], float]:
    """Return a timer that reads 0 at the start of each round and the round's value at its end."""
    return chain.from_iterable((0.0, value) for value in values).__next__


def add_benchmark_rows(item: pytest.Item, session: Any, scenario: Scenario, measurement: Measurement) -> None:
    """Add one row per timed arm to pytest-benchmark's `session`; for a scenario without arms, one per number of bytes.

    Adds nothing under --benchmark-disable.
    """
    if session.disabled:
        return
    for arm, per_worker in measurement.seconds.items():
        samples = [value for worker in per_worker for value in worker]
        if samples:
            extra: dict[str, object] = {"arm": arm, "workers": measurement.workers, **measurement.exact}
            _add(item, session, scenario, measurement, label=arm, values=samples, extra_info=extra)
    for metric in byte_counts(measurement):
        value, which = measurement.exact[metric.name], about(metric, measurement)
        _add(item, session, scenario, measurement, label=title(metric), values=[value], extra_info=which)


def _add(
    item: pytest.Item,
    session: Any,
    scenario: Scenario,
    measurement: Measurement,
    *,
    label: str,
    values: Sequence[float],
    extra_info: Mapping[str, object],
) -> None:
    """Add one row. Each needs a fixture of its own, because `benchmark` can be used only once per test."""
    # pytest-benchmark comes without types.
    make_fixture: Any = BenchmarkFixture
    wrap: Any = NameWrapper
    options = {**session.options, "timer": wrap(replaying_timer(iter(values))), "cprofile": False}
    fixture = make_fixture(
        item,
        add_stats=session.benchmarks.append,
        logger=session.logger,
        warner=item.warn,
        disabled=False,
        group=measurement.group,
        **options,
    )
    fixture.name = f"{item.name} {label}"
    fixture.fullname = f"{measurement.scenario} {label}"
    fixture.param = scenario.id
    # In every row, so that --benchmark-group-by=param:arm can group them.
    fixture.params = {**scenario.fields(), "arm": label}
    fixture.extra_info = dict(extra_info)
    fixture.pedantic(int, rounds=len(values))
    # pytest-benchmark divides by the iterations, which makes a whole number of bytes a float.
    fixture.stats.stats.data[:] = values
