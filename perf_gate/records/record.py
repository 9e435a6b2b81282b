"""A record: what a run measured, kept in git and reviewed like source, and the folder that holds the records."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from perf_gate.measurement import Measurement
from perf_gate.records import codec
from perf_gate.records.section import HOW_TO_RECORD, RecordError, Section

__all__ = [
    "Record",
    "RecordError",
    "Section",
    "earliest",
    "files",
    "history",
    "load",
    "newest",
    "next_path",
    "oldest",
    "save",
]

FILE_NAME = re.compile(r"(?P<number>[0-9]{4,})_(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\.json")


@dataclass(frozen=True)
class Record:
    """A named record with one section per machine class, at least one.

    profile: which set of scenarios it holds; runs are compared within a profile.
    path: the file that it was read from, None where it was not.
    """

    name: str
    profile: str
    sections: Mapping[str, Section]
    path: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse a record that could not be found again by machine class."""
        if not self.sections:
            raise ValueError(f"record {self.name!r} holds no machine class; a record needs at least one")
        for machine, section in self.sections.items():
            if machine != section.machine:
                raise ValueError(f"record {self.name!r}: section {machine!r} was recorded on {section.machine!r}")

    @property
    def created(self) -> str:
        """When its last section was recorded."""
        return self.latest.created

    @property
    def latest(self) -> Section:
        """The section that was recorded last."""
        return max(self.sections.values(), key=lambda section: (section.created, section.machine))

    def section(self, machine: str) -> Section:
        """What to hold a run on `machine` against: its own machine class, else the one recorded last."""
        return self.sections.get(machine) or self.latest

    def holding(self, section: Section) -> Record:
        """The same record with `section` added, or in place of the one of the same machine class."""
        return replace(self, sections={**self.sections, section.machine: section})


def load(path: Path | str) -> Record:
    """Read one record.

    Raises RecordError for a file that is missing, empty, truncated, half-merged, no record, of a newer
    schema, or that holds anything twice, of a wrong type, or not finite.
    """
    path = Path(path)
    name, profile, sections = codec.decode(read(path), path)
    return Record(name, profile, {each.machine: _signed(each, path.stem) for each in sections}, path)


def read(path: Path) -> str:
    """The text of a file. Raises RecordError where there is none, or it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecordError(path, "there is no such file", HOW_TO_RECORD) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(path, f"cannot be read ({error})", "Restore it from git") from error


def _signed(section: Section, record: str) -> Section:
    return replace(section, measurements=tuple(replace(each, record=record) for each in section.measurements))


def save(record: Record, path: Path | str, *, overwrite: bool = False) -> None:
    """Write one record: the whole of it under `path`, or nothing, whatever happens meanwhile.

    Raises RecordError where `path` exists and `overwrite` is False, or where it cannot be written;
    ValueError for a record that `load` would refuse (not finite, twice the same scenario).
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise RecordError(path, "exists already", "Choose another name, or say that it may be overwritten")
    write(codec.encode(record.name, record.profile, record.sections.values()), path, overwrite=overwrite)


def write(content: str | bytes, path: Path, *, overwrite: bool = False) -> None:
    """Put `content` under `path` whole or not at all; see `save`. Raises RecordError, also where the disk is full."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _draft(content, path, overwrite=overwrite)
        _settle(path.parent)
    except OSError as error:
        why = error.strerror or error
        raise RecordError(
            path, f"cannot be written ({why})", "Check the folder, its rights and the space left"
        ) from error


def _draft(content: str | bytes, path: Path, *, overwrite: bool) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o644)
        if overwrite:
            os.replace(draft, path)  # noqa: PTH105 - the call that the promise of atomicity rests on
        else:
            _publish(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise


def _publish(draft: Path, path: Path) -> None:
    # A link fails where the name was taken meanwhile; a rename would replace what another run has just recorded.
    try:
        os.link(draft, path)
    except FileExistsError:
        raise RecordError(path, "exists already", "Choose another name, or say that it may be overwritten") from None
    draft.unlink()


def _settle(folder: Path) -> None:
    # Without this a power cut could lose the new name although the file's content is on disk.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files(folder: Path | str) -> list[Path]:
    """The record files of a folder, oldest number first.

    Raises RecordError where the folder is missing, where a JSON file is not named NNNN_name.json (it would
    never be compared with), and where two files share a number (which of them is newer?).
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RecordError(folder, "there is no such folder", HOW_TO_RECORD)
    numbered: dict[int, Path] = {}
    for path in sorted(folder.rglob("*.json")):
        match = FILE_NAME.fullmatch(path.name)
        if match is None or path.parent != folder:
            raise RecordError(path, "is not a record by its name", "Name it NNNN_name.json, or move it away")
        number = int(match["number"])
        if number in numbered:
            raise RecordError(
                path, f"has the same number as {numbered[number].name}", "Rename the later one to the next number"
            )
        numbered[number] = path
    return [numbered[number] for number in sorted(numbered)]


def history(folder: Path | str, profile: str) -> list[Record]:
    """All records of a profile, oldest first.

    Raises RecordError where there is none, and where any record of the folder cannot be read, whatever its
    profile: an unreadable record says nothing about what it holds.
    """
    records = [record for record in map(load, files(folder)) if record.profile == profile]
    if not records:
        raise RecordError(folder, f"holds no record of profile {profile!r}", HOW_TO_RECORD)
    return records


def newest(folder: Path | str, profile: str) -> Record:
    """The record of a profile with the highest number. Raises RecordError as `history` does."""
    return history(folder, profile)[-1]


def oldest(folder: Path | str, profile: str) -> Record:
    """The record of a profile with the lowest number. Raises RecordError as `history` does."""
    return history(folder, profile)[0]


def earliest(records: Iterable[Record], now: Sequence[Measurement], machine: str) -> list[Measurement]:
    """For each scenario of `now`, what the oldest of `records` (oldest first) holds that asks for the same thing.

    Only sections of `machine` count. Scenarios without such a record are left out.
    """
    wanted = {each.scenario: each.fingerprint for each in now}
    found: dict[str, Measurement] = {}
    for record in records:
        section = record.sections.get(machine)
        for each in section.measurements if section is not None else ():
            if wanted.get(each.scenario) == each.fingerprint:
                found.setdefault(each.scenario, each)
    return list(found.values())


def next_path(folder: Path | str, name: str) -> Path:
    """Where the next record of this name goes: NNNN_name.json, one above the highest number.

    Raises ValueError for a name that would not make a record file, RecordError as `files` does.
    """
    folder = Path(folder)
    last = files(folder)[-1:] if folder.is_dir() else []
    number = int(last[0].name.split("_", 1)[0]) + 1 if last else 1
    path = folder / f"{number:04}_{name}.json"
    if FILE_NAME.fullmatch(path.name) is None:
        raise ValueError(f"record name {name!r}: use letters, digits, '.', '_' and '-', starting with a letter")
    return path
