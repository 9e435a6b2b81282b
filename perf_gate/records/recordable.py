"""Which runs may become a record: one of a failing, partial or unrepeatable run would hide the next regression."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perf_gate.judging.matching import fault
from perf_gate.measurement import Measurement
from perf_gate.metric import Sampled
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record


class NotRecordableError(Exception):
    """Nothing was recorded. reasons: all of them, so that all can be fixed at once."""

    def __init__(self, reasons: Sequence[str]) -> None:
        """Compose the text."""
        super().__init__("nothing was recorded: " + "; ".join(reasons))
        self.reasons = tuple(reasons)


def require_recordable(
    measurements: Sequence[Measurement],
    provenance: Provenance,
    *,
    failed: Iterable[str] = (),
    left_out: Iterable[str] = (),
    unmeasured: Iterable[str] = (),
    sampled: bool = True,
    previous: Record | None = None,
    workers: int = 8,
) -> None:
    """Raise NotRecordableError unless the run may become a record.

    failed: tests that failed or had an error. left_out: tests deselected, skipped or expected to fail. unmeasured:
    scenarios that were asked for and not measured. sampled: False for a run of exact metrics only. previous: the newest
    record of the same profile, if any. workers: fewest workers for a sampled metric.
    """
    reasons = [
        *(f"{name} failed" for name in failed),
        *(f"{name} was not measured" for name in unmeasured),
    ]
    if not measurements:
        reasons.append("no scenario was measured")
    for each in measurements:
        reasons += _faults(each, sampled=sampled, workers=workers)
    reasons += known_reasons(provenance, left_out=left_out, sampled=sampled, previous=previous)
    if reasons:
        raise NotRecordableError(reasons)


def known_reasons(
    provenance: Provenance, *, left_out: Iterable[str] = (), sampled: bool = True, previous: Record | None = None
) -> list[str]:
    """Return why a run may not become a record, as far as that is known before it starts. See `require_recordable`."""
    reasons = [f"{name} was left out (deselected, skipped or expected to fail)" for name in left_out]
    if not sampled and previous is not None and _timed(previous):
        reasons.append(
            f"this run has exact metrics only, but {previous.name} has timed ones, which would never be judged again: "
            "record with timing"
        )
    if not provenance.commit:
        reasons.append("there is no git commit that it could come from: commit first")
    elif provenance.dirty:
        reasons.append("the working tree has uncommitted changes: commit or remove them first")
    return reasons


def _faults(measurement: Measurement, *, sampled: bool, workers: int) -> list[str]:
    broken = fault(measurement, sampled=sampled)
    if broken is not None:
        return [f"{measurement.scenario}: {broken}"]
    timed = any(isinstance(metric, Sampled) for metric in measurement.metrics)
    if sampled and timed and measurement.workers < workers:
        return [f"{measurement.scenario}: {measurement.workers} workers timed it, a record needs {workers}"]
    return []


def _timed(record: Record) -> bool:
    return any(each.seconds for section in record.sections.values() for each in section.measurements)
