"""What is known of a session so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perf_gate.measurement import Measurement
from perf_gate.measuring.measurement_run import Log
from perf_gate.records.provenance import Provenance
from perf_gate.verdict import Row

if TYPE_CHECKING:
    from perf_gate.session.record_comparison import RecordComparison


@dataclass
class SessionState:
    """GatePlugin fills it; SessionReporter reads it.

    provenance: empty until something is going to be measured. comparison: None if there is no record to compare with.
    measured: by scenario. base: the same for the base of --gate-against. log: how it was measured. rows: the verdicts.
    fault: why nothing can be judged. failures: tests and files that failed for another reason than a verdict.
    recorded: names of the records written. not_recorded: why a record was refused.
    """

    provenance: Provenance = field(default_factory=Provenance)
    comparison: RecordComparison | None = None
    measured: dict[str, Measurement] = field(default_factory=dict)
    base: Sequence[Measurement] = ()
    log: Log | None = None
    rows: list[Row] = field(default_factory=list)
    fault: str | None = None
    failures: list[str] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)
    not_recorded: str | None = None

    def fail(self, fault: str) -> None:
        """Note that nothing can be judged. The first reason is kept, because the later ones follow from it."""
        if self.fault is None:
            self.fault = fault
