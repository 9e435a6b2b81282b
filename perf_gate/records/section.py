"""What was recorded on one machine class, and the error of a file that cannot be used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perf_gate.measurement import Measurement
from perf_gate.records.provenance import Provenance

HOW_TO_RECORD = "record one: pytest PATH --gate-record NAME"


class RecordError(Exception):
    """A record cannot be used: which file, what is wrong with it, and what to do next."""

    def __init__(self, path: Path | str, what: str, remedy: str) -> None:
        """Compose the sentence."""
        super().__init__(f"{path}: {what}. {remedy}.")
        self.path, self.what, self.remedy = path, what, remedy


@dataclass(frozen=True)
class Section:
    """What was recorded on one machine class. created: ISO 8601, UTC."""

    created: str
    provenance: Provenance
    measurements: tuple[Measurement, ...]

    @property
    def machine(self) -> str:
        """The machine class."""
        return self.provenance.machine
