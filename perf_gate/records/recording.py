"""Writes the record of a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from perf_gate.measurement import Measurement
from perf_gate.records.profile import profile_of
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record, files, load, next_path, save
from perf_gate.records.recordable import NotRecordableError, known_reasons, require_recordable
from perf_gate.records.section import Section
from perf_gate.session.selection import Scope


def record(
    folder: Path,
    name: str,
    measurements: Sequence[Measurement],
    provenance: Provenance,
    *,
    failed: Iterable[str],
    left_out: Iterable[str],
    unmeasured: Iterable[str],
    scope: Scope,
    sampled: bool,
    workers: int,
) -> Path:
    """Write the next record of the folder and return its path.

    If the newest record has this name and the same scenarios, but no section of this machine class, the section is
    added to it. Raises NotRecordableError or RecordError and writes nothing then.
    """
    previous = _previous(folder, profile := profile_of(provenance))
    if previous is not None:
        known = {each.scenario for each in previous.latest.measurements}
        beyond = {scenario for scenario in known if not scope.holds(scenario)}
        unmeasured = [*unmeasured, *sorted(beyond - {each.scenario for each in measurements})]
    require_recordable(
        measurements,
        provenance,
        failed=failed,
        left_out=left_out,
        unmeasured=unmeasured,
        sampled=sampled,
        previous=previous,
        workers=workers,
    )
    stamped = tuple(replace(each, machine=provenance.machine) for each in measurements)
    section = Section(datetime.now(UTC).isoformat(timespec="seconds"), provenance, stamped)
    if previous is not None and previous.path is not None and _joins(previous, name, section):
        save(previous.holding(section), previous.path, overwrite=True)
        return previous.path
    path = next_path(folder, name)
    save(Record(name, profile, {section.machine: section}), path)
    return path


def require_possible(folder: Path, provenance: Provenance, *, left_out: Iterable[str], sampled: bool) -> None:
    """Raise NotRecordableError or RecordError, as `record` would, for what is known before the run starts."""
    previous = _previous(folder, profile_of(provenance))
    reasons = known_reasons(provenance, left_out=left_out, sampled=sampled, previous=previous)
    if reasons:
        raise NotRecordableError(reasons)


def _previous(folder: Path, profile: str) -> Record | None:
    """Return the newest record of the profile, or None. Raises RecordError if one is damaged."""
    if not folder.is_dir() or not files(folder):
        return None
    found = [each for each in map(load, files(folder)) if each.profile == profile]
    return found[-1] if found else None


def _joins(previous: Record, name: str, section: Section) -> bool:
    asked = {(each.scenario, each.fingerprint) for each in section.measurements}
    known = {(each.scenario, each.fingerprint) for each in previous.latest.measurements}
    return previous.name == name and section.machine not in previous.sections and asked == known
