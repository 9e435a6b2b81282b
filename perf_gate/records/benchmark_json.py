"""Measurements in pytest-benchmark's format, for its `compare` and for other tools that read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from pytest_benchmark.stats import Stats

from perf_gate.measurement import Measurement
from perf_gate.metric import Exact, Sampled
from perf_gate.records.provenance import Provenance

BYTES = "B"


def document(measurements: Iterable[Measurement], provenance: Provenance, created: str) -> dict[str, object]:
    """Return the top level of a pytest-benchmark file: machine_info, commit_info, benchmarks, datetime, version.

    The name of the host is left out, because records are published.
    """
    parts = provenance.parts
    return {
        "machine_info": {
            "node": "",
            "processor": parts.get("processor", ""),
            "machine": parts.get("architecture", ""),
            "python_implementation": "CPython",
            "python_version": provenance.versions.get("python", ""),
            "release": parts.get("release", ""),
            "system": parts.get("system", ""),
            "cpu": {"brand_raw": parts.get("processor", ""), "count": parts.get("cores")},
        },
        "commit_info": {
            "id": provenance.commit or "unversioned",
            "time": provenance.committed or None,
            "author_time": None,
            "dirty": provenance.dirty,
            "project": "",
            "branch": provenance.branch or "(detached head)",
        },
        "benchmarks": [row for each in measurements for row in rows(each)],
        "datetime": created,
        "version": metadata.version("pytest-benchmark"),
    }


def rows(measurement: Measurement) -> list[dict[str, object]]:
    """Return one benchmark per timed arm; for a scenario that is never timed, one per number of bytes."""
    found = [
        _row(measurement, arm, {"disable_gc": True, "warmup": True}, dict(measurement.exact), _flat(per_worker))
        for arm, per_worker in measurement.seconds.items()
        if any(per_worker)
    ]
    found += [
        _row(measurement, title(metric), {}, about(metric, measurement), [measurement.exact[metric.name]])
        for metric in byte_counts(measurement)
    ]
    return found


def byte_counts(measurement: Measurement) -> tuple[Exact, ...]:
    """Return the metrics with a row of their own: counted in bytes, in a scenario without any timed metric.

    Beside the timed arms of a scenario they would be one column of seconds and bytes.
    """
    if any(isinstance(metric, Sampled) for metric in measurement.metrics):
        return ()
    return tuple(
        metric
        for metric in measurement.metrics
        if isinstance(metric, Exact) and metric.unit == BYTES and metric.name in measurement.exact
    )


def title(metric: Exact) -> str:
    """Return the name of its row, with the unit, because tools that read the format take every value for seconds."""
    return f"{metric.name} ({metric.unit})"


def about(metric: Exact, measurement: Measurement) -> dict[str, object]:
    """Return the extra_info of a row of bytes: all counts of its scenario, and which of them the row shows."""
    return {**measurement.exact, "unit": metric.unit, "metric": metric.name}


def shows_bytes(row: Mapping[str, Any]) -> bool:
    """Return whether a row of pytest-benchmark, displayed or stored, has bytes and not seconds."""
    extra = row.get("extra_info") or {}
    return extra.get("unit") == BYTES and "metric" in extra


def _row(
    measurement: Measurement,
    label: str,
    options: dict[str, object],
    extra_info: dict[str, object],
    values: Sequence[float],
) -> dict[str, object]:
    return {
        "group": measurement.group,
        "name": f"{measurement.scenario.rsplit('::', 1)[-1]} {label}",
        "fullname": f"{measurement.scenario} {label}",
        "params": {"arm": label},
        "param": label,
        "extra_info": extra_info,
        "options": options,
        "stats": stats(values),
    }


def _flat(per_worker: Iterable[Iterable[float]]) -> list[float]:
    return [value for visits in per_worker for value in visits]


def stats(values: Sequence[float]) -> dict[str, object]:
    """Return all statistics that pytest-benchmark stores, computed by its own code from our samples."""
    make: Any = Stats
    computed = make()
    computed.data = list(values)
    return {**computed.as_dict(), "iterations": 1}
