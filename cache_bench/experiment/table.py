"""NAME.csv: a row per reading; what is wrong with a row is said with its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.reading import COLUMNS, Reading

_HEAD = ",".join(COLUMNS)


@dataclass(frozen=True)
class Table:
    """What `file` holds. lines: where each reading stands. cut_at: the line in the middle of which the file ends."""

    file: Path
    readings: tuple[Reading, ...]
    lines: tuple[int, ...]
    cut_at: int | None

    def damaged(self, place: int, what: str) -> ExperimentError:
        """To be raised for a reading that does not belong there."""
        return _damaged(self.file, self.lines[place], what)


def text(readings: Iterable[Reading]) -> str:
    """With a head, every line ended."""
    rows = io.StringIO()
    writer = csv.DictWriter(rows, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(reading.row() for reading in readings)
    return rows.getvalue()


def read(file: Path) -> Table:
    """Every row whose line has an end. Raises ExperimentError by file and line for one that is no reading."""
    try:
        *whole, rest = file.read_bytes().split(b"\n")
    except OSError as error:
        raise ExperimentError(f"{file} cannot be read ({error.strerror}). Put that right") from error
    cut_at = len(whole) + 1 if rest or not whole else None
    readings, lines = [], []
    for line, row in enumerate(whole, start=1):
        try:
            values = next(csv.reader([row.decode("utf-8")], strict=True), [])
            if line == 1:
                _require_head(values)
            elif values:
                readings.append(_reading(values))
                lines.append(line)
        except UnicodeDecodeError as error:
            raise _damaged(file, line, "it is no text in UTF-8") from error
        except csv.Error as error:
            raise _damaged(file, line, "its quotation marks do not match") from error
        except ValueError as error:
            raise _damaged(file, line, str(error)) from error
    if not whole and not _HEAD.startswith(rest.decode("utf-8", errors="replace")):
        raise _damaged(file, 1, f"it is not the beginning of {_HEAD}")
    return Table(file, tuple(readings), tuple(lines), cut_at)


def _require_head(values: list[str]) -> None:
    if tuple(values) != COLUMNS:
        raise ValueError(f"its columns are {', '.join(values)}; expected {', '.join(COLUMNS)}")


def _reading(values: list[str]) -> Reading:
    if len(values) != len(COLUMNS):
        raise ValueError(f"it holds {len(values)} values; expected {len(COLUMNS)}")
    return Reading.of(dict(zip(COLUMNS, values, strict=True)))


def _damaged(file: Path, line: int, what: str) -> ExperimentError:
    return ExperimentError(
        f"{file}, line {line}: {what}. Restore the file, or delete this line and all below it, which the same command "
        "measures again; or choose another folder with --out"
    )
