"""A table: what a plot shows, in figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DataTable:
    """Cells are text with their units; the first column names the row.

    caption: what the table holds. columns: headings; one that starts with "#" is a column of numbers.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a row that does not fit its headings."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.caption!r}: {len(row)} cells in a row, {len(self.columns)} columns")

    @property
    def heads(self) -> tuple[tuple[str, bool], ...]:
        """Heading of each column and whether it holds numbers."""
        return tuple((column.removeprefix("#"), column.startswith("#")) for column in self.columns)


def data_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> DataTable:
    """A DataTable from any sequences."""
    return DataTable(caption, tuple(columns), tuple(tuple(row) for row in rows))
