"""Compares the measurements of a session with a record in the baselines folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perf_gate.judging.judge import judge, undecided
from perf_gate.judging.policy import Policy
from perf_gate.measurement import Measurement
from perf_gate.records.profile import profile_of
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record, earliest, history
from perf_gate.records.section import HOW_TO_RECORD, RecordError
from perf_gate.session.selection import Scope
from perf_gate.verdict import Row


class RecordComparison:
    """The record that a run is compared with, and how.

    record: the record. section: its part for this machine class. history: all records of the profile, oldest first.
    held: number of scenarios in the section. asked: those of them that the command line asked for.
    """

    def __init__(
        self, folder: Path, reference: str, *, provenance: Provenance, scope: Scope, policy: Policy, sampled: bool
    ) -> None:
        """Read all records. Raises RecordError if there is none, or one of them cannot be read."""
        profile = profile_of(provenance)
        self.history = history(folder, profile)
        self._policy = policy
        self._provenance = provenance
        self._sampled = sampled
        self.record = self._chosen(folder, reference, profile)
        self.section = section = self.record.section(provenance.machine)
        self._software = section.provenance.software
        self.held = len(section.measurements)
        self.asked = tuple(each for each in section.measurements if scope.holds(each.scenario))

    def _chosen(self, folder: Path, reference: str, profile: str) -> Record:
        if not reference:
            return self.history[-1]
        for record in self.history:
            number = record.path.name.partition("_")[0] if record.path else ""
            if reference in (number, number.lstrip("0"), record.path.stem if record.path else ""):
                return record
        raise RecordError(folder, f"has no record {reference!r} of profile {profile!r}", HOW_TO_RECORD)

    def judge(self, now: Sequence[Measurement], look: int) -> list[Row]:
        """Return the rows of what was measured, at the given look (1-based)."""
        return judge(
            now,
            self.asked,
            policy=self._policy,
            look=look,
            oldest=earliest(self.history, now, self._provenance.machine),
            machine=self._provenance.machine,
            software=self._provenance.software,
            reference_software=self._software,
            sampled=self._sampled,
        )

    def undecided(self, now: Sequence[Measurement], look: int) -> set[str]:
        """Return the names of the scenarios that more workers could still decide."""
        return undecided(self.judge(now, look))
