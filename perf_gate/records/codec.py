"""The file format of a record: pytest-benchmark's JSON, with all that judging needs under "perf_gate".

Schema history:
1  first: name, profile, sections by machine class, each with created, provenance and measurements. Files of
   --gate-samples also have an object "run", and are refused where a record is expected.
2  renamed: crew to workers; of a metric travels to comparable, allowance to threshold, floor to absolute_threshold,
   elsewhere to other_machine_threshold, beside to paired_threshold (always written); of "run" plant to injected.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from perf_gate.judging.matching import fault
from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Comparable, Exact, Metric, Sampled
from perf_gate.records import benchmark_json
from perf_gate.records.provenance import Provenance
from perf_gate.records.section import HOW_TO_RECORD, RecordError, Section

SCHEMA = 2
RESTORE = "Restore it from git, or record anew"
CONFLICT = re.compile(r"^(<{7} |={7}$|>{7} |\|{7} )", re.MULTILINE)

T = TypeVar("T")


class FormatError(Exception):
    """The file does not follow the schema. where: the path to the wrong value, outermost first."""

    def __init__(self, what: str, where: str = "") -> None:
        """Compose the message."""
        super().__init__(f"{where}: {what}" if where else what)


def encode(
    name: str,
    profile: str,
    sections: Iterable[Section],
    run: Mapping[str, object] | None = None,
    base: Section | None = None,
) -> str:
    """Return the text of a record file. Raises ValueError for what `decode` would refuse.

    pytest-benchmark's format has one machine only, so its part shows the section that was recorded last. run: facts
    about a run, for a file of --gate-samples. base: the base of that run.
    """
    ordered = sorted(sections, key=lambda section: (section.created, section.machine))
    for section in [*ordered, *([] if base is None else [base])]:
        _check(section.measurements, f"section {section.machine!r}")
    latest = ordered[-1]
    document = {
        **benchmark_json.document(latest.measurements, latest.provenance, latest.created),
        "perf_gate": {
            "schema": SCHEMA,
            "name": name,
            "profile": profile,
            "sections": {section.machine: _section_to_json(section) for section in ordered},
            **({} if run is None else {"run": dict(run)}),
            **({} if base is None else {"base": _section_to_json(base)}),
        },
    }
    return _layout(document) + "\n"


def _layout(value: object, indent: str = "") -> str:
    # One line per list of numbers, because records are read in reviews.
    deeper = indent + " "
    if isinstance(value, Mapping) and value:
        items = (f"{deeper}{json.dumps(key)}: {_layout(each, deeper)}" for key, each in value.items())
        return "{\n" + ",\n".join(items) + "\n" + indent + "}"
    if isinstance(value, list | tuple) and any(isinstance(each, Mapping | list | tuple) for each in value):
        return "[\n" + ",\n".join(deeper + _layout(each, deeper) for each in value) + "\n" + indent + "]"
    return json.dumps(value, allow_nan=False)


def _section_to_json(section: Section) -> dict[str, object]:
    return {
        "created": section.created,
        "provenance": {each.name: getattr(section.provenance, each.name) for each in fields(Provenance)},
        "measurements": [_measurement_to_json(each) for each in section.measurements],
    }


def _measurement_to_json(measurement: Measurement) -> dict[str, object]:
    return {
        "scenario": measurement.scenario,
        "group": measurement.group,
        "fingerprint": measurement.fingerprint,
        "metrics": [_metric_to_json(metric) for metric in measurement.metrics],
        "exact": dict(measurement.exact),
        "workers": list(measurement.names),
        "seconds": {arm: [list(visits) for visits in per_worker] for arm, per_worker in measurement.seconds.items()},
    }


def _metric_to_json(metric: Metric) -> dict[str, object]:
    attributes = {each.name: getattr(metric, each.name) for each in fields(metric)}
    return {"class": type(metric).__name__.lower(), **attributes}


def decode(text: str, path: Path) -> tuple[str, str, tuple[Section, ...]]:
    """Return name, profile and sections from the text of a record file. Raises RecordError naming `path`."""
    ours = _ours(text, path)
    if "run" in ours:
        raise RecordError(path, "is a file of --gate-samples and not a record", HOW_TO_RECORD)
    return _decoded(ours, path)


def decode_run(text: str, path: Path) -> tuple[str, tuple[Section, ...], dict[str, Any], Section | None]:
    """Return profile, sections, facts and base from the text of a file of --gate-samples. Raises RecordError."""
    ours = _ours(text, path)
    facts = ours.get("run")
    if not isinstance(facts, dict):
        raise RecordError(path, "is not a file of --gate-samples: it has no 'run'", "Make one with --gate-samples")
    _, profile, sections = _decoded(ours, path)
    base = _read(path, lambda: _section(ours["base"], "base")) if "base" in ours else None
    return profile, sections, facts, base


def _ours(text: str, path: Path) -> dict[str, Any]:
    if not text.strip():
        raise RecordError(path, "is empty", RESTORE)
    if CONFLICT.search(text):
        raise RecordError(path, "has git conflict markers", "Resolve the merge: keep one side")
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise RecordError(path, f"is damaged or truncated (line {error.lineno}: {error.msg})", RESTORE) from None
    except (FormatError, RecursionError, ValueError) as error:
        raise RecordError(path, str(error), RESTORE) from None
    ours = document.get("perf_gate") if isinstance(document, dict) else None
    if not isinstance(ours, dict):
        raise RecordError(path, "is JSON, but not a record of the gate: it has no 'perf_gate'", HOW_TO_RECORD)
    _check_schema(ours.get("schema"), path)
    return ours


def _decoded(ours: dict[str, Any], path: Path) -> tuple[str, str, tuple[Section, ...]]:
    return _read(path, lambda: _record(ours))


def _read(path: Path, decoded: Callable[[], T]) -> T:
    try:
        return decoded()
    except (FormatError, ValueError, OverflowError) as error:
        raise RecordError(path, str(error), RESTORE) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise FormatError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice in one object")
    return found


def _constant(name: str) -> float:
    raise FormatError(f"it has {name}, which is not a measurement")


def _check_schema(schema: object, path: Path) -> None:
    if isinstance(schema, bool) or not isinstance(schema, int):
        raise RecordError(path, f"its schema is {schema!r}, not a whole number", RESTORE)
    if schema > SCHEMA:
        raise RecordError(
            path,
            f"has schema {schema}, and this version of the gate reads schema {SCHEMA}",
            "Update the gate to the version that wrote it",
        )
    if schema < SCHEMA:
        what = f"has schema {schema}, of an earlier version of the gate; this version reads schema {SCHEMA}"
        raise RecordError(path, what, "Record anew: pytest PATH --gate-record NAME")


def _get(value: object, key: str, kind: type[T] | tuple[type[T], ...], where: str) -> T:
    if not isinstance(value, dict):
        raise FormatError(f"expected an object, not {type(value).__name__}", where)
    if key not in value:
        raise FormatError(f"{key!r} is missing", where)
    found = value[key]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
        raise FormatError(
            f"{key!r} is {type(found).__name__}, not {' or '.join(each.__name__ for each in kinds)}", where
        )
    if isinstance(found, float) and not math.isfinite(found):
        raise FormatError(f"{key!r} is not finite", where)
    return found


def _record(ours: dict[str, Any]) -> tuple[str, str, tuple[Section, ...]]:
    where = "perf_gate"
    found = _get(ours, "sections", dict, where)
    sections = tuple(_section(section, f"section {machine!r}") for machine, section in found.items())
    if not sections:
        raise FormatError("it has no machine class, so nothing could be compared with it", where)
    for machine, section in zip(found, sections, strict=True):
        if machine != section.machine:
            raise FormatError(f"section {machine!r} was recorded on {section.machine!r}", where)
    return _get(ours, "name", str, where), _get(ours, "profile", str, where), sections


def _section(value: object, where: str) -> Section:
    provenance = _provenance(_get(value, "provenance", dict, where), f"{where}, provenance")
    measurements = [
        _measurement(each, f"{where}, measurement {number}", provenance.machine)
        for number, each in enumerate(_get(value, "measurements", list, where), 1)
    ]
    if not measurements:
        raise FormatError("it has no measurement, so nothing could be compared with it", where)
    _check(measurements, where)
    return Section(_get(value, "created", str, where), provenance, tuple(measurements))


def _check(measurements: Iterable[Measurement], where: str) -> None:
    seen: set[str] = set()
    for each in measurements:
        if each.scenario in seen:
            raise ValueError(f"{where}: scenario {each.scenario!r} occurs twice")
        seen.add(each.scenario)
        broken = fault(each, sampled=bool(each.seconds))
        if broken is not None:
            raise ValueError(f"{where}, {each.scenario}: {broken}")


def _provenance(value: dict[str, Any], where: str) -> Provenance:
    plain = (str, int, float, bool, type(None))
    return Provenance(
        commit=_get(value, "commit", str, where),
        committed=_get(value, "committed", str, where),
        branch=_get(value, "branch", str, where),
        dirty=_get(value, "dirty", bool, where),
        versions=_mapping(value, "versions", (str,), where),
        machine=_get(value, "machine", str, where),
        parts=_mapping(value, "parts", plain, where),
        options=_mapping(value, "options", plain, where),
        command=_list(value, "command", where, _text),
    )


def _mapping(value: object, key: str, kinds: tuple[type, ...], where: str) -> dict[str, Any]:
    found = _get(value, key, dict, where)
    return {name: _get(found, name, kinds, f"{where}, {key}") for name in found}


def _list(value: object, key: str, where: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
    return tuple(read(each, f"{where}, {key}") for each in _get(value, key, list, where))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise FormatError(f"expected text, not {type(value).__name__}", where)
    return value


def _second(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"expected seconds, not {type(value).__name__}", where)
    return float(value)


def _visits(value: object, where: str) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise FormatError(f"expected a list of seconds, not {type(value).__name__}", where)
    return tuple(_second(each, where) for each in value)


def _measurement(value: object, where: str, machine: str) -> Measurement:
    scenario = _get(value, "scenario", str, where)
    where = f"{where} ({scenario})"
    seconds = _get(value, "seconds", dict, where)
    return Measurement(
        scenario=scenario,
        group=_get(value, "group", str, where),
        metrics=_list(value, "metrics", where, _metric),
        fingerprint=_get(value, "fingerprint", str, where),
        exact=_mapping(value, "exact", (int, float), where),
        seconds={arm: _list(seconds, arm, f"{where}, seconds", _visits) for arm in seconds},
        machine=machine,
        worker_names=_list(value, "workers", where, _text),
    )


def _metric(value: object, where: str) -> Metric:
    kind = _get(value, "class", str, where)
    name = _get(value, "name", str, where)
    where = f"{where} {name!r}"
    unit, better = _get(value, "unit", str, where), Better(_get(value, "better", str, where))
    comparable = Comparable(_get(value, "comparable", str, where))
    if kind == "exact":
        return Exact(name, unit, better, comparable)
    if kind != "sampled":
        raise FormatError(f"class {kind!r} is neither 'exact' nor 'sampled'", where)
    optional = (int, float, type(None))
    return Sampled(
        name=name,
        unit=unit,
        better=better,
        numerator=_get(value, "numerator", str, where),
        denominator=_get(value, "denominator", (str, type(None)), where),
        threshold=_get(value, "threshold", (int, float), where),
        resolution=_get(value, "resolution", (int, float), where),
        absolute_threshold=_get(value, "absolute_threshold", (int, float), where),
        comparable=comparable,
        other_machine_threshold=_get(value, "other_machine_threshold", optional, where),
        paired_threshold=_get(value, "paired_threshold", optional, where),
    )
