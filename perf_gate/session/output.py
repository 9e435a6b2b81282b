"""The places that a run is asked to write to: whether it can, and that nothing older is taken for what it came to."""

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

# Stands in every page, see perf_gate/reporting/page.html.
GENERATOR = '<meta name="generator" content="perf_gate">'
SUFFIXES = (".html", ".htm")


class OutputError(Exception):
    """Nothing can be written to a place that was asked for: which option and path, what is in the way, what to do."""


@dataclass(frozen=True)
class Output(ABC):
    """One place. option: as it stands on the command line."""

    option: str
    path: Path

    def check(self) -> None:
        """Raises OutputError where a run would find, at its end, that it cannot write there."""
        try:
            found = self.why_not_writable()
        except OSError as error:
            found = f"{self.path} cannot be read ({error.strerror}): choose another place"
        if found is not None:
            raise OutputError(f"{self.option}={self.path} cannot be written: {found}")

    @abstractmethod
    def why_not_writable(self) -> str | None:
        """What is in the way, and what to do; None where nothing is. Raises OSError."""

    @abstractmethod
    def clear(self) -> None:
        """Take away what an earlier run of the gate has left there; never what anybody else has.

        Raises OSError, RecordError.
        """

    def abandon(self) -> None:
        """See to it that nothing there can be taken for what a run has come to that ended too early.

        Raises as `clear` does.
        """
        self.clear()


@dataclass(frozen=True)
class ReplacedFile(Output):
    """A file that each run writes anew. ours: whether its text is the gate's. endings: of names; (): any."""

    ours: Callable[[str], bool]
    endings: tuple[str, ...] = ()

    def why_not_writable(self) -> str | None:
        """It takes the place of nobody else's file."""
        if self.endings and self.path.suffix.lower() not in self.endings:
            return f"give a file that ends in {self.endings[0]}, e.g. {self.option}=report{self.endings[0]}"
        found = why_not_writable(self.path)
        if found is None and self.path.exists() and self.path.stat().st_size and not self._is_ours():
            return "it holds something else: give a new file, or move that one away"
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
        """It is new, empty, or holds the plots of an earlier run."""
        if self.path.is_dir() and any(self.path.iterdir()) and not plot_folder.ours(self.path):
            return f"it holds something else: give a new folder, e.g. {self.option}=plots"
        return why_not_writable_in(self.path)

    def clear(self) -> None:
        """Remove plots and summary, and nothing beside them."""
        if self.path.is_dir():
            plot_folder.clear(self.path)


@dataclass(frozen=True)
class AppendedFile(Output):
    """A file that several runs write to, each below the other."""

    def why_not_writable(self) -> str | None:
        """It may be anything that takes text."""
        if not self.path.exists():
            return why_not_writable(self.path)
        if self.path.is_dir():
            return f"{self.path} is a folder: name a file"
        return None if os.access(self.path, os.W_OK) else "it may not be written to: choose another, or mend its rights"

    def clear(self) -> None:
        """What is there stays."""

    def abandon(self) -> None:
        """Say so below the verdict of an earlier run."""
        if self.path.is_file() and HEADING.search(self.path.read_text(encoding="utf-8", errors="replace")):
            append(unfinished(), self.path)


def append(text: str, path: Path) -> None:
    """Write below what is there. Raises RecordError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RecordError(
            path, f"cannot be written ({error.strerror})", "Check its rights and the space left"
        ) from error


def is_page(text: str) -> bool:
    """Whether this is a page of a report."""
    return GENERATOR in text


def is_rows(text: str) -> bool:
    """Whether this is a verdict as JSON."""
    return {"schema", "status", "headline", "rows"} <= _keys(text)


def is_samples(text: str) -> bool:
    """Whether these are the samples of a run, which is no record."""
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
# Where a session writes to if it is asked to, beside a record, by option.
OUTPUT_OPTIONS: Mapping[str, Callable[[str, Path], Output]] = {
    "--gate-report": Page,
    "--gate-plots": PlotFolder,
    "--gate-rows": partial(ReplacedFile, ours=is_rows),
    "--gate-summary": AppendedFile,
    "--gate-samples": partial(ReplacedFile, ours=is_samples),
}


def outputs(asked: Mapping[str, Path | None]) -> tuple[Output, ...]:
    """What stands behind each option of PLACES that was given."""
    return tuple(OUTPUT_OPTIONS[option](option, path) for option, path in asked.items() if path is not None)


def named(arguments: Sequence[str], options: Iterable[str], here: Path) -> dict[str, Path | None]:
    """Each of `options` with its path, from `here`, in a command line that may be wrong; None: it has none there."""
    return {option: _named(arguments, option, here) for option in options}


def _named(arguments: Sequence[str], option: str, here: Path) -> Path | None:
    # By itself: what is wrong with another option must not hide this one.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(option, dest="path", type=here.joinpath)
    try:
        found: Path | None = parser.parse_known_args(arguments)[0].path
    except argparse.ArgumentError:
        return None
    return found


def clear(found: Iterable[Output]) -> None:
    """Clear all of them, as far as that can be done."""
    for target in found:
        with suppress(OSError, RecordError):
            target.clear()


def abandon(found: Iterable[Output]) -> None:
    """Abandon all of them, as far as that can be done."""
    for target in found:
        with suppress(OSError, RecordError):
            target.abandon()
