"""The report of a session: where it goes, and what it is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from perf_gate.branches.base import Base
from perf_gate.measurement import Measurement
from perf_gate.records.profile import profile_of
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record, history
from perf_gate.records.section import RecordError
from perf_gate.reporting.library import ReportError, require
from perf_gate.verdict import Row

if TYPE_CHECKING:
    from perf_gate.session.court import Court

SUFFIXES = (".html", ".htm")


def parse_page(text: str) -> Path:
    """A file that a report may replace. Raises ValueError, so that no source file is taken for one."""
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError("give a file that ends in .html, e.g. --gate-report=report.html")
    return path


def parse_folder(text: str) -> Path:
    """A folder for plots: new, empty, or with the summary of an earlier run in it. Raises ValueError."""
    from perf_gate.reporting.summary import FILE  # noqa: PLC0415 - only where it is asked for

    path = Path(text)
    taken = path.exists() and not (path.is_dir() and ((path / FILE).exists() or not any(path.iterdir())))
    if taken:
        raise ValueError("holds something else: give a new folder, e.g. --gate-plots=plots")
    return path


@dataclass(frozen=True)
class Publication:
    """page: the HTML file; plots: the folder of plots and summary; each None where it was not asked for.

    alpha: promised chance of a false alarm.
    """

    page: Path | None = None
    plots: Path | None = None
    alpha: float = 0.001

    def __bool__(self) -> bool:
        """Whether anything was asked for."""
        return self.page is not None or self.plots is not None

    def prepare(self) -> None:
        """Take away what an earlier run left: a run that breaks off must not leave another one's verdict.

        Raises ReportError where a library is missing, before anybody has waited for a measurement.
        """
        if not self:
            return
        require()
        from perf_gate.reporting import summary  # noqa: PLC0415 - only where it is asked for

        with suppress(OSError):
            if self.page is not None:
                self.page.unlink(missing_ok=True)
            if self.plots is not None:
                summary.clear(self.plots)

    def publish(
        self,
        measured: Mapping[str, Measurement],
        provenance: Provenance,
        court: Court | None,
        *,
        base: Base | None = None,
        measured_base: Sequence[Measurement] = (),
        rows: Sequence[Row],
        status: int,
        faults: Sequence[str],
        notes: Sequence[str],
        earlier: Sequence[Record],
    ) -> None:
        """Write what was asked for. Raises RecordError naming what cannot be written, ReportError.

        base: what was measured beside the candidate, with `measured_base`. earlier: the records to show the history of.
        """
        from perf_gate.reporting.dossier import Dossier, Side  # noqa: PLC0415 - only where it is asked for
        from perf_gate.reporting.report import publish  # noqa: PLC0415

        created = datetime.now(UTC).isoformat(timespec="seconds")
        reference = None
        if base is not None:
            theirs = replace(provenance, commit=base.commit, committed="", branch="", dirty=False)
            reference = Side(base.name, created, theirs, tuple(measured_base), profile_of(provenance))
        elif court is not None:
            section = court.section
            name = court.record.path.stem if court.record.path else court.record.name
            reference = Side(name, section.created, section.provenance, court.asked, court.record.profile)
        now = Side("this run", created, provenance, tuple(measured.values()), profile_of(provenance))
        dossier = Dossier(
            now,
            reference,
            tuple(rows),
            status,
            tuple(faults),
            tuple(notes),
            tuple(earlier),
            self.alpha,
        )
        publish(dossier, self.page, self.plots)


def earlier(folder: Path, provenance: Provenance, besides: Sequence[str]) -> list[Record]:
    """The records of the run's profile, without files of the names `besides`; none where they cannot be read."""
    try:
        found = history(folder, profile_of(provenance))
    except RecordError:
        return []
    return [each for each in found if each.path is None or each.path.name not in besides]


__all__ = ["Publication", "ReportError", "earlier", "parse_folder", "parse_page"]
