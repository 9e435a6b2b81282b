"""A pytest plugin that measures scenarios in fresh processes and compares them with a baseline."""

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
