"""Records, which are kept in git and reviewed like source, and the folder that they are in."""

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

    profile: set of scenarios that it has; runs are compared within a profile. path: the file that it was read from, or
    None.
    """

    name: str
    profile: str
    sections: Mapping[str, Section]
    path: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError for a record without sections, or with one under the wrong machine class."""
        if not self.sections:
            raise ValueError(f"record {self.name!r} has no machine class; a record needs at least one")
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
        """Return the section to compare a run on `machine` with: its own machine class, else the one recorded last."""
        return self.sections.get(machine) or self.latest

    def holding(self, section: Section) -> Record:
        """Return the same record with `section` added, or in place of the one of the same machine class."""
        return replace(self, sections={**self.sections, section.machine: section})


def load(path: Path | str) -> Record:
    """Read one record.

    Raises RecordError if the file is missing, empty, truncated, half-merged, not a record or of another schema, or if
    anything in it occurs twice, has the wrong type or is not finite.
    """
    path = Path(path)
    name, profile, sections = codec.decode(read(path), path)
    return Record(name, profile, {each.machine: _signed(each, path.stem) for each in sections}, path)


def read(path: Path) -> str:
    """Return the text of a file. Raises RecordError if it is missing or cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecordError(path, "there is no such file", HOW_TO_RECORD) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(path, f"cannot be read ({error})", "Restore it from git") from error


def _signed(section: Section, record: str) -> Section:
    return replace(section, measurements=tuple(replace(each, record=record) for each in section.measurements))


def save(record: Record, path: Path | str, *, overwrite: bool = False) -> None:
    """Write one record: the whole file, or nothing.

    Raises RecordError if `path` exists and `overwrite` is False, or if it cannot be written; ValueError for a record
    that `load` would refuse (not finite, a scenario twice).
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise RecordError(path, "already exists", "Give another name, or overwrite=True")
    write(codec.encode(record.name, record.profile, record.sections.values()), path, overwrite=overwrite)


def write(content: str | bytes, path: Path, *, overwrite: bool = False) -> None:
    """Write the whole of `content` to `path`, or nothing; see `save`. Raises RecordError, also if the disk is full."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _draft(content, path, overwrite=overwrite)
        _settle(path.parent)
    except OSError as error:
        why = error.strerror or error
        raise RecordError(
            path, f"cannot be written ({why})", "Check the folder, its permissions and the free space"
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
            os.replace(draft, path)  # noqa: PTH105 - the call that makes it atomic
        else:
            _publish(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise


def _publish(draft: Path, path: Path) -> None:
    # A link fails if the name has been taken meanwhile; a rename would replace what another run has just recorded.
    try:
        os.link(draft, path)
    except FileExistsError:
        raise RecordError(path, "already exists", "Give another name, or overwrite=True") from None
    draft.unlink()


def _settle(folder: Path) -> None:
    # Without this a power failure could lose the new name although the content is on disk.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files(folder: Path | str) -> list[Path]:
    """Return the record files of a folder, lowest number first.

    Raises RecordError if the folder is missing, if a JSON file is not named NNNN_name.json (nothing would be compared
    with it), or if two files have one number (neither would be the newer one).
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RecordError(folder, "there is no such folder", HOW_TO_RECORD)
    numbered: dict[int, Path] = {}
    for path in sorted(folder.rglob("*.json")):
        match = FILE_NAME.fullmatch(path.name)
        if match is None or path.parent != folder:
            raise RecordError(path, "does not have the name of a record", "Name it NNNN_name.json, or move it away")
        number = int(match["number"])
        if number in numbered:
            raise RecordError(
                path, f"has the same number as {numbered[number].name}", "Rename the later one to the next number"
            )
        numbered[number] = path
    return [numbered[number] for number in sorted(numbered)]


def history(folder: Path | str, profile: str) -> list[Record]:
    """Return all records of a profile, oldest first.

    Raises RecordError if there is none, and if any record of the folder cannot be read, because its profile is unknown.
    """
    records = [record for record in map(load, files(folder)) if record.profile == profile]
    if not records:
        raise RecordError(folder, f"has no record of profile {profile!r}", HOW_TO_RECORD)
    return records


def newest(folder: Path | str, profile: str) -> Record:
    """Return the record of a profile with the highest number. Raises RecordError as `history` does."""
    return history(folder, profile)[-1]


def oldest(folder: Path | str, profile: str) -> Record:
    """Return the record of a profile with the lowest number. Raises RecordError as `history` does."""
    return history(folder, profile)[0]


def earliest(records: Iterable[Record], now: Sequence[Measurement], machine: str) -> list[Measurement]:
    """Return for each scenario of `now` the oldest measurement in `records` (oldest first) with the same fingerprint.

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
    """Return the path of the next record of this name: NNNN_name.json, one above the highest number.

    Raises ValueError for a name that would not make a record file, RecordError as `files` does.
    """
    folder = Path(folder)
    last = files(folder)[-1:] if folder.is_dir() else []
    number = int(last[0].name.split("_", 1)[0]) + 1 if last else 1
    path = folder / f"{number:04}_{name}.json"
    if FILE_NAME.fullmatch(path.name) is None:
        raise ValueError(f"record name {name!r}: use letters, digits, '.', '_' and '-', starting with a letter")
    return path
