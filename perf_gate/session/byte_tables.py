"""Separate tables for rows of bytes, because pytest-benchmark's tables take every value for seconds."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

import pytest
from pytest_benchmark import plugin, utils

from perf_gate.records.benchmark_json import shows_bytes

Row = Mapping[str, Any]
Group = tuple[str | None, list[Row]]

COLUMN = "Bytes"
# `pytest-benchmark compare` writes "Name (time in {unit}s)" over every column.
UNIT = "byte"


class ByteTables:
    """A plugin object: takes the rows of bytes out of pytest-benchmark's groups and prints them in tables of its own.

    So no table has seconds and bytes in one column, however the rows are grouped, and no count gets a rate, a spread or
    a histogram. pytest-benchmark still saves and compares all rows.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Keep the configuration; the groups are known at the end of the session."""
        self._config = config
        self._groups: list[Group] = []

    @property
    def _session(self) -> Any:
        return self._config.pluginmanager.get_plugin("pytest-benchmark")

    @pytest.hookimpl(wrapper=True)
    def pytest_benchmark_group_stats(self) -> Generator[None, Iterable[Group], list[Group]]:
        """Split each group into rows of seconds, which pytest-benchmark gets, and rows of bytes."""
        groups = [(name, list(rows)) for name, rows in (yield)]
        self._groups = _only(groups, bytes_wanted=True)
        for _, rows in self._groups:
            self._forgive(rows)
        return _only(groups, bytes_wanted=False)

    def _forgive(self, rows: Iterable[Row]) -> None:
        """Drop the failures of --benchmark-compare-fail for 0 bytes now and before, of which every percentage is 0."""
        session, rows = self._session, list(rows)
        now = {row["fullname"]: row for row in rows if row["path"] is None}
        before = [row for row in rows if row["path"] is not None]
        unfounded = [
            (session.name_format(row), check.fails(now[row["fullname"]], row))
            for row in before
            for check in session.compare_fail or ()
            if now[row["fullname"]][check.field] == row[check.field]
        ]
        session.performance_regressions = [each for each in session.performance_regressions if each not in unfounded]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the tables of bytes after those of seconds."""
        session = self._session
        if not self._groups:
            return
        if not session.quiet:
            for name, rows in self._groups:
                _show(terminalreporter, name, rows, sort=session.sort, name_format=session.name_format)
        if not session.groups:
            # pytest-benchmark checks --benchmark-compare-fail only if it has something to show.
            session.check_regressions()


def _only(groups: Iterable[Group], *, bytes_wanted: bool) -> list[Group]:
    parts = ((name, [row for row in rows if shows_bytes(row) is bytes_wanted]) for name, rows in groups)
    return [(name, rows) for name, rows in parts if rows]


def _show(
    reporter: pytest.TerminalReporter, group: str | None, rows: Sequence[Row], *, sort: str, name_format: Any
) -> None:
    """Print one table like pytest-benchmark's, with one column."""
    lines = [
        (name_format(row), f"{row['min']:,.10g}" if row["min"] % 1 else f"{int(row['min']):,}")
        for row in sorted(rows, key=lambda row: row[sort])
    ]
    names = 3 + max(len(name) for name, _ in (("Name", ""), *lines))
    numbers = max(len(number) for _, number in ((COLUMN, COLUMN), *lines))
    heading = f" benchmark{'' if group is None else f' {group!r}'}: {len(rows)} tests "
    width = max(names + numbers, len(heading) + 2)
    numbers = width - names
    reporter.ensure_newline()
    reporter.write_line("")
    reporter.write_line(heading.center(width, "-"), yellow=True)
    reporter.write_line("Name".ljust(names) + COLUMN.rjust(numbers))
    reporter.write_line("-" * width, yellow=True)
    for name, number in lines:
        reporter.write(name.ljust(names))
        reporter.write(number.rjust(numbers), bold=True)
        reporter.write("\n")
    reporter.write_line("-" * width, yellow=True)


@pytest.hookimpl(trylast=True)
def pytest_benchmark_scale_unit(  # noqa: PLR0917 - the hook's arguments
    config: pytest.Config | None, unit: str, benchmarks: Sequence[Row], best: Row, worst: Row, sort: str
) -> tuple[str, float]:
    """Leave bytes unscaled in `pytest-benchmark compare`, which takes this hook from the top-level conftest.py only.

    It scales by the smallest value as if that were seconds; the smallest number of bytes is often 0. Everything else is
    scaled as usual. Within pytest this hook is never called, because pytest-benchmark's own comes first.
    """
    if not all(map(shows_bytes, benchmarks)):
        # pytest-benchmark comes without types.
        usual: Any = plugin.pytest_benchmark_scale_unit
        prefix, scale = usual(config, unit, benchmarks, best, worst, sort)
        return prefix, scale
    if unit != "seconds":
        return "", 1.0
    # The title of a histogram is looked up there.
    utils.TIME_UNITS.setdefault(UNIT, "bytes")
    return UNIT, 1.0
