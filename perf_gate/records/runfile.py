"""The samples of a run that is no record: written without the recording rules, and never compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from perf_gate.judging.inventory import fault
from perf_gate.measurement import Measurement
from perf_gate.records import codec
from perf_gate.records.profile import profile_of
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import read, write
from perf_gate.records.section import RecordError, Section


@dataclass(frozen=True)
class Run:
    """What one run measured.

    section: its valid scenarios, at least one. invalid: scenario -> why nothing may be concluded from it.
    plant: the slowdown that was planted, as it was asked for; "" for an honest run. seconds: wall time of the
    measuring. base: what was measured in turns with it, scenario by scenario, under the same worker names; its
    scenarios that could not be measured are not there.
    """

    section: Section
    profile: str
    invalid: Mapping[str, str] = field(default_factory=dict)
    plant: str = ""
    seconds: float = 0.0
    base: Section | None = None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All that was measured, the invalid ones without samples."""
        lost = (Measurement(name, "", (), "", invalid=why) for name, why in self.invalid.items())
        return (*self.section.measurements, *lost)


def run_of(
    measurements: Sequence[Measurement],
    provenance: Provenance,
    *,
    sampled: bool = True,
    plant: str = "",
    seconds: float = 0.0,
    base: Sequence[Measurement] = (),
) -> Run:
    """Tell the valid measurements from the others. Raises ValueError where none is valid.

    base: what was measured beside them. Its provenance is that of the run: the suites, the gate and the options are.
    """
    section, invalid = _valid(measurements, provenance, sampled=sampled)
    if section is None:
        raise ValueError("no scenario was measured validly, so there are no samples to write")
    beside, _ = _valid(base, provenance, sampled=sampled)
    return Run(section, profile_of(provenance), invalid, plant, seconds, beside)


def _valid(
    measurements: Sequence[Measurement], provenance: Provenance, *, sampled: bool
) -> tuple[Section | None, dict[str, str]]:
    """The sound ones, None without any; and what is wrong with each of the others, by scenario."""
    faults = {each.scenario: fault(each, sampled=sampled) for each in measurements}
    sound = tuple(replace(each, machine=provenance.machine) for each in measurements if faults[each.scenario] is None)
    section = Section(datetime.now(UTC).isoformat(timespec="seconds"), provenance, sound) if sound else None
    return section, {name: why for name, why in faults.items() if why is not None}


def save_run(run: Run, path: Path) -> None:
    """Write the samples, the whole file or nothing; replaces an older file. Raises RecordError."""
    facts = {"invalid": dict(run.invalid), "plant": run.plant, "seconds": run.seconds}
    write(codec.encode(path.stem, run.profile, [run.section], facts, run.base), path, overwrite=True)


def load_run(path: Path | str) -> Run:
    """Read the samples of a run. Raises RecordError as `record.load` does, and for a file that is a record."""
    path = Path(path)
    profile, sections, facts, base = codec.decode_run(read(path), path)
    invalid, plant, seconds = facts.get("invalid"), facts.get("plant"), facts.get("seconds")
    sound = (
        isinstance(invalid, dict)
        and all(isinstance(why, str) for why in invalid.values())
        and isinstance(plant, str)
        and isinstance(seconds, int | float)
        and len(sections) == 1
    )
    if not sound:
        raise RecordError(path, "holds no sound facts about its run", "Make it anew with --gate-samples")
    return Run(sections[0], profile, invalid, plant, float(seconds), base)  # type: ignore[arg-type]  # seen just above
