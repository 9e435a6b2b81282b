"""The base of --gate-against, which is measured in turns with the candidate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perf_gate.branches.base import Base
from perf_gate.branches.subject import Subject
from perf_gate.measuring.worker_pool import BASE, Side
from perf_gate.records.provenance import Provenance


@dataclass(frozen=True)
class Against:
    """The base, and what differs between it and the candidate.

    candidate: project root that the candidate's subject comes from. python: interpreter of the base; None: this one.
    """

    base: Base
    subject: Subject
    candidate: Path
    python: str | None = None

    def provenance(self, candidate: Provenance) -> Provenance:
        """Return the provenance of the base's measurements."""
        return self.base.provenance(candidate, python=self.python)

    def sides(self, root: Path, base_root: Path) -> tuple[Side, Side]:
        """Return candidate and base: the same suites in the same directory `root`, each with its own subject."""
        ours = Side(root, homes=self.subject.homes(self.candidate))
        homes = self.subject.homes(base_root)
        if self.python is None:
            return ours, Side(root, BASE, homes=homes)
        return ours, Side(root, BASE, python=self.python, path=None, homes=homes)
