"""The samples of one scenario, as measuring, recording and judging hand them to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perf_gate.metric import Metric


@dataclass(frozen=True)
class Measurement:
    """All samples of one scenario, on one side, in one run.

    scenario: the full name, "<path of the test file from the project root>::<test name>[<scenario id>]".
    exact: value of each exact metric (all workers agreed; where they did not, `invalid` says so).
    seconds: arm -> one tuple per worker -> seconds of every visit, in order of time. The i-th tuple of every arm
        belongs to the same worker.
    fingerprint: digest of what was asked (class, fields); two measurements compare only where it is equal.
    machine: class of the machine that it was measured on. record: name of the record that it was read from, if any.
    worker_names: name of the worker behind the i-th tuple, the same in every scenario that it timed; empty: "0", "1"...
    invalid: why nothing may be concluded (a premise did not hold, a worker died, a count varied), or None.
    """

    scenario: str
    group: str
    metrics: tuple[Metric, ...]
    fingerprint: str
    exact: Mapping[str, int | float] = field(default_factory=dict)
    seconds: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    invalid: str | None = None
    machine: str = ""
    worker_names: tuple[str, ...] = ()
    record: str = ""

    @property
    def workers(self) -> int:
        """Number of worker processes that were timed."""
        return max((len(per_worker) for per_worker in self.seconds.values()), default=0)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each worker, in the order of the tuples in `seconds`."""
        return self.worker_names or tuple(str(index) for index in range(self.workers))
