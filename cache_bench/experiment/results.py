"""What has been measured so far: NAME.csv with a row per reading, NAME.json with counts, origin and answers.

The CSV file is replaced whole after every step, the JSON file before the first one, after every count and with the
answers; so a stop or a full disk at any time leaves all finished steps and no half of one. A CSV file that was cut off
afterwards, while it was copied, loses its last step and no other; a JSON file is refused then.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cache_bench.experiment import table
from cache_bench.experiment.count import Count
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.file import write
from cache_bench.experiment.options import Value
from cache_bench.experiment.origin import Origin
from cache_bench.experiment.plan import Step
from cache_bench.experiment.reading import Reading
from cache_bench.experiment.table import Table

SCHEMA = 1  # of both files; 1: the first

_Key = tuple[str, int]
_Rows = Sequence[tuple[str, int]]  # arm and output tokens of each reading of a step, sorted


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
        self.notice = ""  # what was found to be cut off, in words

    @classmethod
    def resume(cls, folder: Path, origin: Origin, steps: Sequence[Step]) -> Results:
        """Those that lie in `folder`, to go on with, or empty ones. Writes nothing.

        Raises ExperimentError where they were made with anything else, or hold what `steps` cannot have left.
        """
        results = cls(folder, str(origin.made_with["model"]))
        if results.csv.exists() or results.json.exists():
            results._read_head()
            answered = results.csv.exists() or "answers" in results.head
            if answered or results.made_with == origin.made_with:
                results._require_same(origin.made_with)
                if results.csv.exists():
                    results._read_rows({step.key: step for step in steps})
                return results
            results.counts = []  # nothing was timed with the other options: there is nothing to mix or to lose
        results.head = {
            "schema": SCHEMA,
            "made_with": dict(origin.made_with),
            "commit": origin.commit,
            "dirty": origin.dirty,
            "steps": len(steps),
        }
        return results

    @classmethod
    def stored(cls, folder: Path, model: str) -> Results:
        """Those that lie in `folder`, to look at, whatever made them. Raises ExperimentError where there are none."""
        results = cls(folder, model)
        results._read_head()
        results._read_rows(None)
        return results

    def require_finished(self) -> None:
        """Raise ExperimentError where steps or counts are missing."""
        prefixes = str(self.made_with["prefixes"]).split()
        if len(self.done) != self.head["steps"] or len(self.counts) != len(prefixes):
            raise ExperimentError(
                f"{self.csv} holds {len(self.done)} of {self.head['steps']} prompts; finish it with the command that "
                f"began it, without --stored{self.notice and f' ({self.notice})'}"
            )

    @property
    def made_with(self) -> Mapping[str, Value]:
        """See Origin."""
        made_with: Mapping[str, Value] = self.head["made_with"]
        return made_with

    def of(self, part: str, arm: str | None = None) -> list[Reading]:
        """The readings of a part, in the order of the plan."""
        return [reading for reading in self.readings if reading.part == part and arm in (None, reading.arm)]

    @property
    def done(self) -> set[_Key]:
        """Keys of the steps that need not be made again."""
        return {(reading.part, reading.number) for reading in self.readings}

    def begin(self) -> None:
        """Say what the rows to come are made with, before the first of them is measured."""
        self._save_head()

    def append(self, readings: Iterable[Reading]) -> None:
        """Keep what one whole step has left."""
        self.readings += readings
        write(table.text(self.readings), self.csv)

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
        write(json.dumps(head, indent=1) + "\n", self.json)

    def _require(self, file: Path) -> None:
        if not file.exists():
            raise ExperimentError(
                f"{file} is not there: {self.model} has not been measured into this folder, or half of its results "
                f"was removed. Measure with: python -m cache_bench.experiment {self.model} --out {file.parent}; rows "
                f"whose origin nobody knows ({self.csv.name} without {self.json.name}) have to be deleted first."
            )

    def _read_head(self) -> None:
        self._require(self.json)
        try:
            self.head = json.loads(self.json.read_text(encoding="utf-8"))
            if self.head["schema"] != SCHEMA:
                raise self._unreadable(f"it has schema {self.head['schema']}, known is {SCHEMA}")
            self.counts = [Count(**count) for count in self.head.pop("counts")]
            _ = self.head["steps"], self.head["commit"], self.made_with["model"], self.made_with["prefixes"]
        except OSError as error:
            raise self._unreadable(str(error.strerror)) from error
        except json.JSONDecodeError as error:
            raise self._unreadable(f"it is no JSON from line {error.lineno} on") from error
        except UnicodeDecodeError as error:
            raise self._unreadable("it is no text in UTF-8") from error
        except (KeyError, TypeError) as error:
            raise self._unreadable("it lacks what an experiment keeps there") from error

    def _unreadable(self, what: str) -> ExperimentError:
        return ExperimentError(f"{self.json} cannot be read: {what}. {self._begin_anew}")

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

    def _read_rows(self, steps: Mapping[_Key, Step] | None) -> None:
        """Whole steps only. steps: that have to have left the rows; None: whatever has."""
        self._require(self.csv)
        found = table.read(self.csv)
        if steps is not None:
            self._require_asked(found, steps)
        places: dict[_Key, list[int]] = {}
        for place, reading in enumerate(found.readings):
            places.setdefault((reading.part, reading.number), []).append(place)
        rows = {key: _rows(found.readings[place] for place in places[key]) for key in places}
        whole = _usual(rows) if steps is None else {key: steps[key].rows for key in rows}
        end = len(found.readings)
        for key in places:
            if rows[key] == whole[key]:
                continue
            if places[key][-1] != end - 1 or not set(rows[key]) < set(whole[key]):
                raise found.damaged(
                    places[key][0],
                    f"the {len(rows[key])} rows of {key[0]} {key[1]}, which begin here, are not the {len(whole[key])} "
                    "that it should have; some were removed, added or changed",
                )
            end = places[key][0]
        if end < len(found.readings) or found.cut_at is not None:
            line = found.lines[end] if end < len(found.readings) else found.cut_at
            self.notice = (
                f"{self.csv} is cut off: what stands from line {line} on is no whole prompt and does not count"
            )
        self.readings = list(found.readings[:end])

    def _require_asked(self, found: Table, steps: Mapping[_Key, Step]) -> None:
        for place, reading in enumerate(found.readings):
            step = steps.get((reading.part, reading.number))
            if step is None or not reading.belongs_to(step):
                raise found.damaged(
                    place, f"it holds {reading.part} {reading.number}, which this experiment has not asked"
                )

    @property
    def _begin_anew(self) -> str:
        return f"Choose another folder with --out, or delete {self.csv.name} and {self.json.name} there to begin anew."


def _rows(readings: Iterable[Reading]) -> _Rows:
    return sorted((reading.arm, reading.output_tokens) for reading in readings)


def _usual(rows: Mapping[_Key, _Rows]) -> Mapping[_Key, _Rows]:
    """What most steps of the same part have left."""
    parts: dict[str, Counter[tuple[tuple[str, int], ...]]] = {}
    for (part, _), has in rows.items():
        parts.setdefault(part, Counter())[tuple(has)] += 1
    return {key: list(parts[key[0]].most_common(1)[0][0]) for key in rows}
