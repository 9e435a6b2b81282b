"""Measurements from a seeded generator: no clock, no process, no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Comparable, Exact, Metric, Sampled
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record, Section

MACHINE = "x86_64 Testchip (6/1), 2 cores, 1 thread"
ELSEWHERE = "arm64 Otherchip, 8 cores, 1 thread"
COPIED = Exact("bytes copied", "B")
CALLS = Exact("operator calls", "calls", comparable=Comparable.SOFTWARE)
EFFICIENCY = Sampled("reuse efficiency", "ratio", Better.HIGHER, "floor", "warm", other_machine_threshold=0.05)
SPEEDUP = Sampled("speedup", "x", Better.HIGHER, "cold", "warm", threshold=0.02, resolution=0.06)
WARM = Sampled("warm ttft", "s", Better.LOWER, "warm")
BASE = {"cold": 0.02, "warm": 0.007, "floor": 0.0067}


def name(short: str) -> str:
    return f"perf_tests/test_ttft.py::test_ttft[{short}]"


def measurement(
    short: str = "p200",
    *,
    seed: int = 0,
    workers: int = 8,
    visits: int = 12,
    slower: float = 1.0,
    offset: float = 0.01,
    noise: float = 0.03,
    metrics: Sequence[Metric] = (COPIED, EFFICIENCY),
    exact: Mapping[str, int | float] | None = None,
    fingerprint: str = "f00d",
    machine: str = MACHINE,
    worker_names: Sequence[str] = (),
    invalid: str | None = None,
) -> Measurement:
    """One scenario whose warm arm is `slower` times as slow.

    offset: spread of each arm between workers; noise: within one; both of the logarithm.
    """
    rng = np.random.default_rng([seed, sum(map(ord, short))])
    seconds = {}
    for arm, base in BASE.items():
        level = base * (slower if arm == "warm" else 1.0) * np.exp(rng.normal(0, offset, (workers, 1)))
        values = level * np.exp(rng.normal(0, noise, (workers, visits)))
        seconds[arm] = tuple(tuple(map(float, row)) for row in values)
    counted = {metric.name: 0 for metric in metrics if isinstance(metric, Exact)}
    return Measurement(
        scenario=name(short),
        group="ttft",
        metrics=tuple(metrics),
        fingerprint=fingerprint,
        exact={**counted, **(exact or {})},
        seconds=seconds if any(isinstance(metric, Sampled) for metric in metrics) else {},
        invalid=invalid,
        machine=machine,
        worker_names=tuple(worker_names),
    )


def provenance(machine: str = MACHINE, **changes: object) -> Provenance:
    facts: dict[str, object] = {
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "committed": "2026-01-02T03:04:05+00:00",
        "branch": "main",
        "versions": {"python": "3.11.7", "torch": "2.13.0+cpu", "transformers": "5.24.0"},
        "machine": machine,
        "parts": {"architecture": "x86_64", "processor": "Testchip", "family": 6, "model": 1, "cores": 2},
        "options": {"profile": "quick", "seed": 7},
        "command": ("pytest", "perf_tests"),
    }
    return Provenance(**{**facts, **changes})  # type: ignore[arg-type]


def record(
    measurements: Sequence[Measurement],
    *,
    profile: str = "quick",
    created: str = "2026-01-02T03:04:05+00:00",
    machine: str = MACHINE,
) -> Record:
    return Record("base", profile, {machine: Section(created, provenance(machine), tuple(measurements))})
