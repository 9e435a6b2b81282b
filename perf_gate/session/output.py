"""The files and folders that a run writes: checked before the run, and emptied so that an old one is never mistaken."""

from __future__ import annotations

import argparse
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from perf_gate.records.section import RecordError
from perf_gate.records.writable import why_not_writable, why_not_writable_in
from perf_gate.reporting import plot_folder
from perf_gate.showing.markdown import HEADING, unfinished

# In every page, see perf_gate/reporting/page.html.
GENERATOR = '<meta name="generator" content="perf_gate">'
SUFFIXES = (".html", ".htm")


class OutputError(Exception):
    """An output cannot be written: the message has the option, the path, the reason and what to do."""


@dataclass(frozen=True)
class Output(ABC):
    """One file or folder. option: the option that names it."""

    option: str
    path: Path

    def check(self) -> None:
        """Raise OutputError if a run could not write there at its end."""
        try:
            found = self.why_not_writable()
        except OSError as error:
            found = f"{self.path} cannot be read ({error.strerror}): give another path"
        if found is not None:
            raise OutputError(f"{self.option}={self.path} cannot be written: {found}")

    @abstractmethod
    def why_not_writable(self) -> str | None:
        """Return why it cannot be written and what to do, or None. Raises OSError."""

    @abstractmethod
    def clear(self) -> None:
        """Remove what an earlier run of the gate has written there, and nothing else. Raises OSError, RecordError."""

    def mark_unfinished(self) -> None:
        """Make sure that nothing there can be taken for the verdict of a run that ended early. Raises as `clear`."""
        self.clear()


@dataclass(frozen=True)
class ReplacedFile(Output):
    """A file that each run replaces. ours: whether a text was written by the gate. endings: of names; (): any."""

    ours: Callable[[str], bool]
    endings: tuple[str, ...] = ()

    def why_not_writable(self) -> str | None:
        """Refuse to replace a file that the gate has not written."""
        if self.endings and self.path.suffix.lower() not in self.endings:
            return f"give a file that ends in {self.endings[0]}, e.g. {self.option}=report{self.endings[0]}"
        found = why_not_writable(self.path)
        if found is None and self.path.exists() and self.path.stat().st_size and not self._is_ours():
            return "it is not a file of the gate: give a new file, or move that one away"
        return found

    def clear(self) -> None:
        """Remove it."""
        if self.path.is_file() and self._is_ours():
            self.path.unlink()

    def _is_ours(self) -> bool:
        return self.ours(self.path.read_text(encoding="utf-8", errors="replace"))


@dataclass(frozen=True)
class PlotFolder(Output):
    """A folder of plots with their summary."""

    def why_not_writable(self) -> str | None:
        """Accept a folder that is new, empty, or has the plots of an earlier run."""
        if self.path.is_dir() and any(self.path.iterdir()) and not plot_folder.ours(self.path):
            return f"it has other files: give a new folder, e.g. {self.option}=plots"
        return why_not_writable_in(self.path)

    def clear(self) -> None:
        """Remove plots and summary, and nothing else."""
        if self.path.is_dir():
            plot_folder.clear(self.path)


@dataclass(frozen=True)
class AppendedFile(Output):
    """A file that several runs append to."""

    def why_not_writable(self) -> str | None:
        """Accept anything that can be written to."""
        if not self.path.exists():
            return why_not_writable(self.path)
        if self.path.is_dir():
            return f"{self.path} is a folder: give a file"
        return (
            None
            if os.access(self.path, os.W_OK)
            else "it is not writable: give another file, or change its permissions"
        )

    def clear(self) -> None:
        """Keep what is there."""

    def mark_unfinished(self) -> None:
        """Append that there is no verdict, if an earlier one is there."""
        if self.path.is_file() and HEADING.search(self.path.read_text(encoding="utf-8", errors="replace")):
            append(unfinished(), self.path)


def append(text: str, path: Path) -> None:
    """Append to a file. Raises RecordError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RecordError(
            path, f"cannot be written ({error.strerror})", "Check its rights and the space left"
        ) from error


def is_page(text: str) -> bool:
    """Return whether this is a page of a report."""
    return GENERATOR in text


def is_rows(text: str) -> bool:
    """Return whether this is a verdict as JSON."""
    return {"schema", "status", "headline", "rows"} <= _keys(text)


def is_samples(text: str) -> bool:
    """Return whether this is a file of --gate-samples."""
    return "run" in _keys(text, "perf_gate")


def _keys(text: str, *inside: str) -> set[str]:
    try:
        found = json.loads(text)
        for name in inside:
            found = found[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()
    return set(found) if isinstance(found, dict) else set()


Page = partial(ReplacedFile, ours=is_page, endings=SUFFIXES)
# What a session can write besides a record, by option.
OUTPUT_OPTIONS: Mapping[str, Callable[[str, Path], Output]] = {
    "--gate-report": Page,
    "--gate-plots": PlotFolder,
    "--gate-rows": partial(ReplacedFile, ours=is_rows),
    "--gate-summary": AppendedFile,
    "--gate-samples": partial(ReplacedFile, ours=is_samples),
}


def outputs(asked: Mapping[str, Path | None]) -> tuple[Output, ...]:
    """Return an Output for each option of OUTPUT_OPTIONS that was given."""
    return tuple(OUTPUT_OPTIONS[option](option, path) for option, path in asked.items() if path is not None)


def named(arguments: Sequence[str], options: Iterable[str], here: Path) -> dict[str, Path | None]:
    """Return each of `options` with its path, relative to `here`, or None, from a command line that may be wrong."""
    return {option: _named(arguments, option, here) for option in options}


def _named(arguments: Sequence[str], option: str, here: Path) -> Path | None:
    # Parsed alone, so that an error in another option does not hide this one.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(option, dest="path", type=here.joinpath)
    try:
        found: Path | None = parser.parse_known_args(arguments)[0].path
    except argparse.ArgumentError:
        return None
    return found


def clear(found: Iterable[Output]) -> None:
    """Clear all of them, as far as possible."""
    for target in found:
        with suppress(OSError, RecordError):
            target.clear()


def mark_unfinished(found: Iterable[Output]) -> None:
    """Mark all of them as unfinished, as far as possible."""
    for target in found:
        with suppress(OSError, RecordError):
            target.mark_unfinished()
