"""What has been measured so far: NAME.csv with a row per reading, NAME.json with counts, origin and answers.

Either is replaced whole, after every step, so that a stop at any time leaves all finished steps and no half of one.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perf_gate.records.record import RecordError, write
from perf_tests.experiment.count import Count
from perf_tests.experiment.fault import ExperimentError
from perf_tests.experiment.options import Value
from perf_tests.experiment.origin import Origin
from perf_tests.experiment.plan import Step
from perf_tests.experiment.reading import COLUMNS, Reading

SCHEMA = 1  # of both files; 1: the first


class Results:
    """Of one model, in a folder. Raises ExperimentError by name for files that are not this experiment's."""

    def __init__(self, folder: Path, model: str) -> None:
        self.model = model
        self.name = model.strip("/").replace("/", "--")
        self.csv = folder / f"{self.name}.csv"
        self.json = folder / f"{self.name}.json"
        self.readings: list[Reading] = []
        self.counts: list[Count] = []
        self.head: dict[str, Any] = {}

    @classmethod
    def resume(cls, folder: Path, origin: Origin, steps: Sequence[Step]) -> Results:
        """Those that lie in `folder`, to go on with, or empty ones.

        Raises ExperimentError where they were made with anything else, or hold what `steps` cannot have left.
        """
        results = cls(folder, str(origin.made_with["model"]))
        if results.csv.exists() or results.json.exists():
            results._read_head()
            results._require_same(origin.made_with)
            if results.csv.exists():  # where the very first rows were not written any more, there are none
                results._read_rows()
                results._require_whole(steps)
            return results
        results.head = {
            "schema": SCHEMA,
            "made_with": dict(origin.made_with),
            "commit": origin.commit,
            "dirty": origin.dirty,
            "steps": len(steps),
        }
        results._save_head()
        return results

    @classmethod
    def stored(cls, folder: Path, model: str) -> Results:
        """Those that lie in `folder`, to look at, whatever made them. Raises ExperimentError where there are none."""
        results = cls(folder, model)
        results._read_head()
        results._read_rows()
        return results

    @property
    def made_with(self) -> Mapping[str, Value]:
        """See Origin."""
        made_with: Mapping[str, Value] = self.head["made_with"]
        return made_with

    def of(self, part: str, arm: str | None = None) -> list[Reading]:
        """The readings of a part, in the order of the plan."""
        return [reading for reading in self.readings if reading.part == part and arm in (None, reading.arm)]

    @property
    def done(self) -> set[tuple[str, int]]:
        """Keys of the steps that need not be made again."""
        return {(reading.part, reading.number) for reading in self.readings}

    def append(self, readings: Iterable[Reading]) -> None:
        """Keep what one whole step has left."""
        self.readings += readings
        self._save_rows()

    def count(self, count: Count) -> None:
        """Keep one count."""
        self.counts.append(count)
        self._save_head()

    def conclude(self, answers: Mapping[str, Any]) -> None:
        """Keep the answers beside what they were found from."""
        self.head["answers"] = dict(answers)
        self._save_head()

    # ---- files -------------------------------------------------------------------------------------------------

    def _save_head(self) -> None:
        head = {**self.head, "counts": [asdict(count) for count in self.counts]}
        self._write(json.dumps(head, indent=1) + "\n", self.json)

    def _save_rows(self) -> None:
        rows = io.StringIO()
        writer = csv.DictWriter(rows, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(reading.row() for reading in self.readings)
        self._write(rows.getvalue(), self.csv)

    @staticmethod
    def _write(text: str, file: Path) -> None:
        try:
            write(text, file, overwrite=True)
        except RecordError as error:
            raise ExperimentError(str(error)) from error

    def _require(self, file: Path) -> None:
        if not file.exists():
            raise ExperimentError(
                f"{file} is not there: {self.model} has not been measured into this folder, or half of its results "
                f"was removed. Measure with: python -m perf_tests.experiment {self.model} --out {file.parent}; rows "
                f"whose origin nobody knows ({self.csv.name} without {self.json.name}) have to be deleted first."
            )

    def _read_head(self) -> None:
        self._require(self.json)
        try:
            self.head = json.loads(self.json.read_text(encoding="utf-8"))
            if self.head["schema"] != SCHEMA:
                raise ValueError(f"schema {self.head['schema']}, known is {SCHEMA}")
            self.counts = [Count(**count) for count in self.head.pop("counts")]
            _ = self.head["steps"], self.head["commit"], self.made_with["model"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExperimentError(f"{self.json} cannot be read ({error!r}). {self._begin_anew}") from error

    def _read_rows(self) -> None:
        self._require(self.csv)
        try:
            with self.csv.open(encoding="utf-8", newline="") as lines:
                rows = csv.DictReader(lines, strict=True)
                if tuple(rows.fieldnames or ()) != COLUMNS:
                    raise ValueError(
                        f"its columns are {', '.join(rows.fieldnames or ())}; expected {', '.join(COLUMNS)}"
                    )
                self.readings = [self._reading(row, rows.line_num) for row in rows]
        except (OSError, ValueError, csv.Error) as error:
            raise ExperimentError(f"{self.csv} cannot be read ({error}). {self._begin_anew}") from error

    @staticmethod
    def _reading(row: dict[str, str], line: int) -> Reading:
        try:
            return Reading.of(row)
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {line}: {error}") from error

    def _require_same(self, made_with: Mapping[str, Value]) -> None:
        different = [
            f"{name}: {self.made_with.get(name)!r} there, {made_with.get(name)!r} now"
            for name in {**self.made_with, **made_with}
            if self.made_with.get(name) != made_with.get(name)
        ]
        if different:
            raise ExperimentError(
                f"{self.csv} was made with something else, and results are never mixed ({'; '.join(different)}). "
                f"{self._begin_anew}"
            )

    def _require_whole(self, steps: Sequence[Step]) -> None:
        by_key = {step.key: step for step in steps}
        found: dict[tuple[str, int], list[Reading]] = {}
        for reading in self.readings:
            found.setdefault((reading.part, reading.number), []).append(reading)
        for key, readings in found.items():
            step = by_key.get(key)
            if step is None or not all(reading.belongs_to(step) for reading in readings):
                raise ExperimentError(
                    f"{self.csv} holds {key[0]} {key[1]}, which this experiment has not asked. {self._begin_anew}"
                )
            if len(readings) != step.readings:
                raise ExperimentError(
                    f"{self.csv} holds {len(readings)} of the {step.readings} rows of {key[0]} {key[1]}: somebody "
                    f"removed or added some. {self._begin_anew}"
                )

    @property
    def _begin_anew(self) -> str:
        return f"Choose another folder with --out, or delete {self.csv.name} and {self.json.name} there to begin anew."
