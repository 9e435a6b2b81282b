"""The samples of a run that is no record: written without the recording rules, and never compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from perf_gate.judging.inventory import fault
from perf_gate.judging.policy import Policy
from perf_gate.measurement import Measurement
from perf_gate.records import codec
from perf_gate.records.profile import profile_of
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import read, write
from perf_gate.records.section import RecordError, Section


@dataclass(frozen=True)
class Terms:
    """What a run was judged by, or would have been.

    looks: numbers of workers, ascending, after which a verdict was asked for. look: the one that ended the run,
    1-based. alpha: promised chance of a false alarm.
    """

    looks: tuple[int, ...]
    look: int
    alpha: float

    def __post_init__(self) -> None:
        """Refuse what no run can have been judged by."""
        whole = all(type(each) is int for each in (*self.looks, self.look))
        if not whole or not self.looks or min(self.looks) < 1 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"looks are ascending whole numbers of workers >= 1, not {self.looks}, {self.look!r}")
        self.policy.level(self.look)

    @property
    def policy(self) -> Policy:
        """The same as promises."""
        return Policy(alpha=self.alpha, looks=len(self.looks))


@dataclass(frozen=True)
class Run:
    """What one run measured.

    section: its valid scenarios, at least one. invalid: scenario -> why nothing may be concluded from it.
    plant: the slowdown that was planted, as it was asked for; "" for an honest run. seconds: wall time of the
    measuring. terms: what it was judged by; None in a file from before that was written down. base: what was measured
    in turns with it, scenario by scenario, under the same worker names; its scenarios that could not be measured are
    not there.
    """

    section: Section
    profile: str
    invalid: Mapping[str, str] = field(default_factory=dict)
    plant: str = ""
    seconds: float = 0.0
    terms: Terms | None = None
    base: Section | None = None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All that was measured, the invalid ones without samples."""
        lost = (Measurement(name, "", (), "", invalid=why) for name, why in self.invalid.items())
        return (*self.section.measurements, *lost)

    @property
    def beside(self) -> tuple[Measurement, ...]:
        """The base's measurement of each of them, without samples where there is none."""
        held = {} if self.base is None else {each.scenario: each for each in self.base.measurements}
        return tuple(
            held.get(each.scenario, Measurement(each.scenario, "", (), "", invalid="the base was not measured"))
            for each in self.measurements
        )


def run_of(
    measurements: Sequence[Measurement],
    provenance: Provenance,
    *,
    sampled: bool = True,
    plant: str = "",
    seconds: float = 0.0,
    terms: Terms | None = None,
    base: Sequence[Measurement] = (),
    base_provenance: Provenance | None = None,
) -> Run:
    """Tell the valid measurements from the others. Raises ValueError where none is valid.

    base: what was measured beside them; base_provenance: where that comes from, None: as they do.
    """
    section, invalid = _valid(measurements, provenance, sampled=sampled)
    if section is None:
        raise ValueError("no scenario was measured validly, so there are no samples to write")
    beside, _ = _valid(base, base_provenance or provenance, sampled=sampled)
    return Run(section, profile_of(provenance), invalid, plant, seconds, terms, beside)


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
    facts: dict[str, object] = {"invalid": dict(run.invalid), "plant": run.plant, "seconds": run.seconds}
    facts |= {} if run.terms is None else {"terms": asdict(run.terms)}
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
    terms = _terms(facts["terms"], path) if "terms" in facts else None
    return Run(sections[0], profile, invalid, plant, float(seconds), terms, base)  # type: ignore[arg-type]  # seen just above


def _terms(value: object, path: Path) -> Terms:
    try:
        return Terms(tuple(value["looks"]), value["look"], value["alpha"])  # type: ignore[index]  # whatever it is
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            path, f"does not say soundly what its run was judged by ({error!r})", "Make it anew with --gate-samples"
        ) from None
