"""The part of a record for one machine class, and the error for a file that cannot be used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perf_gate.measurement import Measurement
from perf_gate.records.provenance import Provenance

HOW_TO_RECORD = "Record one: pytest PATH --gate-record NAME"


class RecordError(Exception):
    """A record cannot be used. The message says which file, what is wrong with it, and what to do."""

    def __init__(self, path: Path | str, what: str, remedy: str) -> None:
        """Compose the message."""
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
