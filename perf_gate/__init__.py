"""The instrument: measures scenarios in fresh processes and judges them against a reference."""

from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Comparable, Exact, Metric, Sampled
from perf_gate.scenario import InvalidPremise, Scenario
from perf_gate.verdict import Exit, Row, Verdict

__all__ = [
    "Better",
    "Comparable",
    "Exact",
    "Exit",
    "InvalidPremise",
    "Measurement",
    "Metric",
    "Row",
    "Sampled",
    "Scenario",
    "Verdict",
]
