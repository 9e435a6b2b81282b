"""The values of a run as text, if there is nothing to compare them with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perf_gate.measurement import Measurement
from perf_gate.measuring.progress import estimate
from perf_gate.metric import Sampled
from perf_gate.quantity import quantity


def values(measurements: Iterable[Measurement]) -> Iterator[str]:
    """Yield lines: each scenario, and below it each of its metrics with its value."""
    for measurement in measurements:
        yield measurement.scenario.rsplit("::", 1)[-1]
        if measurement.invalid is not None:
            yield f"  invalid: {measurement.invalid}"
            continue
        for metric in measurement.metrics:
            if isinstance(metric, Sampled):
                line = estimate(metric, measurement)
            else:
                line = f"{metric.name} {quantity(measurement.exact.get(metric.name), metric.unit)}"
            if line:
                yield f"  {line}"
