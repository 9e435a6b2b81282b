"""What a session has come to so far."""

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
    """Filled by the gatekeeper as the session goes on; the clerk reads it.

    provenance: empty until something is going to be measured. court: None where no record is held against. measured: by
    scenario; base: the same of the base beside it. log: how it was measured.
    rows: the verdicts. fault: why nothing can be judged. failures: tests and files that failed for a reason of their
    own. recorded: names of the records written; refused: why one was not.
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
        """Nothing can be judged any more. The first fault is told, for the others follow from it."""
        if self.fault is None:
            self.fault = fault
