"""Files of --gate-samples: the samples of a run, which are not a record and which nothing is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from perf_gate.judging.matching import fault
from perf_gate.judging.policy import Policy
from perf_gate.measurement import Measurement
from perf_gate.records import codec
from perf_gate.records.profile import profile_of
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import read, write
from perf_gate.records.section import RecordError, Section


@dataclass(frozen=True)
class Terms:
    """How a run was judged.

    looks: numbers of workers, ascending, after which verdicts were computed. look: the one that ended the run, 1-based.
    alpha: chance of a false alarm.
    """

    looks: tuple[int, ...]
    look: int
    alpha: float

    def __post_init__(self) -> None:
        """Raise ValueError for values that no run can have."""
        whole = all(type(each) is int for each in (*self.looks, self.look))
        if not whole or not self.looks or min(self.looks) < 1 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"looks are ascending whole numbers of workers >= 1, not {self.looks}, {self.look!r}")
        self.policy.level(self.look)

    @property
    def policy(self) -> Policy:
        """The policy with these values."""
        return Policy(alpha=self.alpha, looks=len(self.looks))


@dataclass(frozen=True)
class Run:
    """The samples of one run.

    section: its valid scenarios, at least one. invalid: scenario -> why nothing may be concluded from it. injected: the
    slowdown that was injected, or "". seconds: wall time of the measurement. terms: how it was judged; None in files
    that do not say. base: the base's measurements, under the same worker names, or None. base_invalid: scenario -> why
    the base could not be measured; None for a run without a base.
    """

    section: Section
    profile: str
    invalid: Mapping[str, str] = field(default_factory=dict)
    injected: str = ""
    seconds: float = 0.0
    terms: Terms | None = None
    base: Section | None = None
    base_invalid: Mapping[str, str] | None = None

    @property
    def paired(self) -> bool:
        """Whether the run had a base."""
        return self.base_invalid is not None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All measurements, the invalid ones without samples."""
        lost = (Measurement(name, "", (), "", invalid=why) for name, why in self.invalid.items())
        return (*self.section.measurements, *lost)

    @property
    def base_measurements(self) -> tuple[Measurement, ...]:
        """The base's measurement of each scenario, without samples if there is none."""
        held = {} if self.base is None else {each.scenario: each for each in self.base.measurements}
        why = self.base_invalid or {}
        return tuple(
            held.get(name, Measurement(name, "", (), "", invalid=why.get(name, "it was not measured")))
            for name in (each.scenario for each in self.measurements)
        )


def run_of(
    measurements: Sequence[Measurement],
    provenance: Provenance,
    *,
    sampled: bool = True,
    injected: str = "",
    seconds: float = 0.0,
    terms: Terms | None = None,
    base: Sequence[Measurement] = (),
    base_provenance: Provenance | None = None,
) -> Run:
    """Return a Run of these measurements. Raises ValueError if none is valid.

    base: the base's measurements. base_provenance: where they come from; None for a run without a base.
    """
    broken = _faults(base, sampled=sampled)
    # If the base is invalid, the candidate is not timed, which does not make it invalid.
    invalid = {
        name: why
        for each in measurements
        for name, why in _faults([each], sampled=sampled and each.scenario not in broken).items()
    }
    section = _section(measurements, invalid, provenance)
    if section is None:
        raise ValueError("no scenario was measured validly, so there are no samples to write")
    base_measurements = None if base_provenance is None else _section(base, broken, base_provenance)
    base_invalid = None if base_provenance is None else broken
    return Run(section, profile_of(provenance), invalid, injected, seconds, terms, base_measurements, base_invalid)


def _faults(measurements: Sequence[Measurement], *, sampled: bool) -> dict[str, str]:
    found = {each.scenario: fault(each, sampled=sampled) for each in measurements}
    return {name: why for name, why in found.items() if why is not None}


def _section(measurements: Sequence[Measurement], without: Mapping[str, str], provenance: Provenance) -> Section | None:
    sound = tuple(replace(each, machine=provenance.machine) for each in measurements if each.scenario not in without)
    return Section(datetime.now(UTC).isoformat(timespec="seconds"), provenance, sound) if sound else None


def save_run(run: Run, path: Path) -> None:
    """Write the samples, the whole file or nothing, in place of an older file. Raises RecordError."""
    facts: dict[str, object] = {"invalid": dict(run.invalid), "injected": run.injected, "seconds": run.seconds}
    facts |= {} if run.terms is None else {"terms": asdict(run.terms)}
    facts |= {} if run.base_invalid is None else {"base_invalid": dict(run.base_invalid)}
    write(codec.encode(path.stem, run.profile, [run.section], facts, run.base), path, overwrite=True)


def load_run(path: Path | str) -> Run:
    """Read the samples of a run. Raises RecordError as `record.load` does, and for a record."""
    path = Path(path)
    profile, sections, facts, base = codec.decode_run(read(path), path)
    invalid, injected, seconds = facts.get("invalid"), facts.get("injected"), facts.get("seconds")
    base_invalid = facts.get("base_invalid")
    sound = (
        _reasons(invalid)
        and (_reasons(base_invalid) if base_invalid is not None else base is None)
        and isinstance(injected, str)
        and isinstance(seconds, int | float)
        and len(sections) == 1
    )
    if not sound:
        raise RecordError(path, "has wrong facts about its run", "Make it anew with --gate-samples")
    terms = _terms(facts["terms"], path) if "terms" in facts else None
    return Run(sections[0], profile, invalid, injected, float(seconds), terms, base, base_invalid)  # type: ignore[arg-type]  # seen just above


def _reasons(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(why, str) for why in value.values())


def _terms(value: object, path: Path) -> Terms:
    try:
        return Terms(tuple(value["looks"]), value["look"], value["alpha"])  # type: ignore[index]  # whatever it is
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            path, f"has wrong facts about how its run was judged ({error!r})", "Make it anew with --gate-samples"
        ) from None
