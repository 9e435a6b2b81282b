"""Writes the report of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from perf_gate.measurement import Measurement
from perf_gate.records.profile import profile_of
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record, history
from perf_gate.records.section import RecordError
from perf_gate.session.against import Against
from perf_gate.verdict import Row

if TYPE_CHECKING:
    from perf_gate.session.record_comparison import RecordComparison


@dataclass(frozen=True)
class ReportWriter:
    """page: the HTML file; plots: the folder for plots and summary; each None if it was not asked for.

    alpha: chance of a false alarm.
    """

    page: Path | None = None
    plots: Path | None = None
    alpha: float = 0.001

    def __bool__(self) -> bool:
        """Whether anything was asked for."""
        return self.page is not None or self.plots is not None

    def publish(
        self,
        measured: Mapping[str, Measurement],
        provenance: Provenance,
        comparison: RecordComparison | None,
        *,
        against: Against | None = None,
        measured_base: Sequence[Measurement] = (),
        rows: Sequence[Row],
        status: int,
        faults: Sequence[str],
        notes: Sequence[str],
        earlier: Sequence[Record],
    ) -> None:
        """Write page and plots. Raises RecordError naming the file that cannot be written, ReportError.

        against, measured_base: the base of --gate-against and its measurements. earlier: records to show as history.
        """
        from perf_gate.reporting.report import publish  # noqa: PLC0415
        from perf_gate.reporting.report_data import ReportData, ReportSide  # noqa: PLC0415 - only where it is asked for

        created = datetime.now(UTC).isoformat(timespec="seconds")
        reference = None
        if against is not None:
            theirs = against.provenance(provenance)
            reference = ReportSide(against.base.name, created, theirs, tuple(measured_base), profile_of(provenance))
        elif comparison is not None:
            section = comparison.section
            name = comparison.record.path.stem if comparison.record.path else comparison.record.name
            reference = ReportSide(
                name, section.created, section.provenance, comparison.asked, comparison.record.profile
            )
        now = ReportSide("this run", created, provenance, tuple(measured.values()), profile_of(provenance))
        data = ReportData(
            now,
            reference,
            tuple(rows),
            status,
            tuple(faults),
            tuple(notes),
            tuple(earlier),
            self.alpha,
            paired=against is not None,
        )
        publish(data, self.page, self.plots)


def earlier(folder: Path, provenance: Provenance, besides: Sequence[str]) -> list[Record]:
    """Return the records of the run's profile without the files named in `besides`; none if they cannot be read."""
    try:
        found = history(folder, profile_of(provenance))
    except RecordError:
        return []
    return [each for each in found if each.path is None or each.path.name not in besides]
