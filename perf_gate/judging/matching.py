"""Matches every measurement with its baseline; what is on one side only gets a row, so that nothing drops out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from perf_gate.measurement import Measurement
from perf_gate.metric import Exact, Sampled
from perf_gate.verdict import Row, Verdict

LARGEST = 1e300
RECORD_ANEW = "record anew (--gate-record NAME)"
ANOTHER_BASE = "choose a newer base, or compare this scenario with a record (--benchmark-compare)"


@dataclass(frozen=True)
class Pair:
    """One scenario on both sides, valid and with equal fingerprints."""

    now: Measurement
    reference: Measurement


@dataclass(frozen=True)
class Matched:
    """Pairs that can be compared, and a row for every scenario that cannot."""

    pairs: tuple[Pair, ...]
    rows: tuple[Row, ...]


def unique(measurements: Iterable[Measurement], side: str) -> dict[str, Measurement]:
    """Return the measurements by scenario. Raises ValueError if a scenario occurs twice."""
    found: dict[str, Measurement] = {}
    for each in measurements:
        if each.scenario in found:
            raise ValueError(f"{side}: scenario {each.scenario!r} occurs twice; give every scenario an id of its own")
        found[each.scenario] = each
    return found


def fault(measurement: Measurement, *, sampled: bool = True) -> str | None:
    """Return why nothing may be concluded from a measurement, or None. sampled: whether it has to be timed."""
    if measurement.invalid is not None:
        return measurement.invalid
    names = [metric.name for metric in measurement.metrics]
    if not names:
        return "it has no metric"
    if len(set(names)) != len(names):
        return f"it declares the metric {max(names, key=names.count)!r} twice"
    declared = {metric.name for metric in measurement.metrics if isinstance(metric, Exact)}
    if declared != set(measurement.exact):
        odd = sorted(declared ^ set(measurement.exact))[0]
        return f"exact metric {odd!r} was " + ("not counted" if odd in declared else "counted, but is not declared")
    for name, value in measurement.exact.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
            return f"exact metric {name!r} is {value!r}, not a finite number"
    return _fault_of_seconds(measurement) if sampled else None


def _fault_of_seconds(measurement: Measurement) -> str | None:
    timed = [metric for metric in measurement.metrics if isinstance(metric, Sampled)]
    needed = {arm for metric in timed for arm in (metric.numerator, metric.denominator) if arm is not None}
    lacking = sorted(needed - set(measurement.seconds))
    if lacking:
        return f"arm {lacking[0]!r} was not timed"
    counts = {len(per_worker) for per_worker in measurement.seconds.values()}
    if counts == {0}:
        return "no worker timed it"
    if len(counts) > 1:
        return f"its arms were timed by different numbers of workers: {sorted(counts)}"
    if len(set(measurement.names)) != len(measurement.names) or {len(measurement.names)} != (counts or {0}):
        return "it names its workers wrongly: each needs one name of its own"
    return next(_odd_visits(measurement), None)


def _odd_visits(measurement: Measurement) -> Iterator[str]:
    for arm, per_worker in measurement.seconds.items():
        for name, visits in zip(measurement.names, per_worker, strict=True):
            if not visits:
                yield f"worker {name} never visited arm {arm!r}"
            for number, value in enumerate(visits, 1):
                if not (math.isfinite(value) and value > 0):
                    yield f"worker {name}, arm {arm!r}, visit {number} took {value!r} s: not a time"


def match_record(now: Sequence[Measurement], references: Sequence[Measurement], *, sampled: bool = True) -> Matched:
    """Match every measured scenario with its reference. Raises ValueError if a scenario occurs twice on a side."""
    ours, theirs = unique(now, "this run"), unique(references, "the reference")
    pairs, rows = [], []
    for name, measured in ours.items():
        broken = fault(measured, sampled=sampled)
        if broken is not None:
            rows.append(_row(name, Verdict.INVALID, f"this run: {broken}. Nothing was judged: fix the scenario."))
        elif name not in theirs:
            rows.append(
                _row(
                    name,
                    Verdict.UNRECORDED,
                    f"measured, but not in the record: {RECORD_ANEW} to include it (or was it renamed?).",
                )
            )
        elif (row := _why_not_comparable(measured, theirs[name], sampled)) is not None:
            rows.append(row)
        else:
            pairs.append(Pair(measured, theirs[name]))
    rows += [
        _row(
            name,
            Verdict.MISSING,
            f"recorded, but not measured: run it, or {RECORD_ANEW} if it was removed or renamed on purpose.",
        )
        for name in theirs
        if name not in ours
    ]
    return Matched(tuple(pairs), tuple(rows))


def match_base(now: Sequence[Measurement], base: Sequence[Measurement], *, sampled: bool = True) -> Matched:
    """Match every scenario with the base's measurement in the same run.

    If the base cannot be measured, the scenario is `not comparable`. Raises ValueError if a scenario occurs twice on a
    side, or on one side only.
    """
    ours, theirs = unique(now, "the candidate"), unique(base, "the base")
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys())[0]
        raise ValueError(f"scenario {odd!r} is on one side only; both sides of a run measure the same scenarios")
    pairs, rows = [], []
    for name, measured in ours.items():
        if (broken := fault(measured, sampled=False)) is not None:
            rows.append(_row(name, Verdict.INVALID, f"this run: {broken}. Nothing was judged: fix the scenario."))
        elif (broken := fault(theirs[name], sampled=sampled)) is not None:
            why = f"the base cannot be measured: {broken}. Nothing was judged: {ANOTHER_BASE}."
            rows.append(_row(name, Verdict.NOT_COMPARABLE, why))
        elif (broken := fault(measured, sampled=sampled)) is not None:
            rows.append(_row(name, Verdict.INVALID, f"this run: {broken}. Nothing was judged: fix the scenario."))
        else:
            pairs.append(Pair(measured, theirs[name]))
    return Matched(tuple(pairs), tuple(rows))


def _why_not_comparable(measured: Measurement, reference: Measurement, sampled: bool) -> Row | None:
    broken = fault(reference, sampled=sampled and bool(reference.seconds))
    if broken is not None:
        return _row(measured.scenario, Verdict.INVALID, f"the reference: {broken}. Restore the file, or {RECORD_ANEW}.")
    if measured.fingerprint != reference.fingerprint:
        return _row(
            measured.scenario,
            Verdict.NOT_COMPARABLE,
            f"the scenario's class or fields have changed since it was recorded (fingerprint "
            f"{measured.fingerprint[:12]}, recorded {reference.fingerprint[:12]}): {RECORD_ANEW}.",
        )
    return None


def _row(scenario: str, verdict: Verdict, why: str) -> Row:
    return Row(scenario=scenario, metric=None, verdict=verdict, why=why)
