"""Measurements as pytest-benchmark writes them, for its own `compare` and for the tools that read its format."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import Any

from pytest_benchmark.stats import Stats

from perf_gate.measurement import Measurement
from perf_gate.records.provenance import Provenance


def document(measurements: Iterable[Measurement], provenance: Provenance, created: str) -> dict[str, object]:
    """The top level of a pytest-benchmark file: machine_info, commit_info, benchmarks, datetime, version.

    The host's name is left out: records are published.
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
    """One benchmark per timed arm; counts go to extra_info."""
    name = measurement.scenario.rsplit("::", 1)[-1]
    return [
        {
            "group": measurement.group,
            "name": f"{name} {arm}",
            "fullname": f"{measurement.scenario} {arm}",
            "params": {"arm": arm},
            "param": arm,
            "extra_info": dict(measurement.exact),
            "options": {"disable_gc": True, "warmup": True},
            "stats": stats([second for visits in crew for second in visits]),
        }
        for arm, crew in measurement.seconds.items()
        if any(crew)
    ]


def stats(seconds: list[float]) -> dict[str, object]:
    """Every figure that pytest-benchmark stores of one benchmark, computed by its own code; the samples are ours."""
    make: Any = Stats
    computed = make()
    computed.data = seconds
    return {**computed.as_dict(), "iterations": 1}
