"""Compares a run with its baseline and returns one row for each metric on either side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from perf_gate.judging import matching, reason
from perf_gate.judging.comparison import (
    POOLED_PREFIX,
    Comparison,
    compare_paired,
    compare_to_record,
    gather_evidence,
    values,
)
from perf_gate.judging.decision import bounds, decide
from perf_gate.judging.matching import RECORD_ANEW, Pair
from perf_gate.judging.policy import Policy
from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Comparable, Exact, Metric, Sampled
from perf_gate.verdict import Row, Verdict

__all__ = ["Policy", "judge", "judge_paired", "undecided"]


@dataclass(frozen=True)
class Setting:
    """The machines and the software of both sides, and whether sampled metrics are judged."""

    machine: str
    software: str
    reference_software: str
    sampled: bool


def judge(
    now: Sequence[Measurement],
    references: Sequence[Measurement],
    *,
    policy: Policy | None = None,
    look: int = 1,
    oldest: Sequence[Measurement] = (),
    machine: str = "",
    software: str = "",
    reference_software: str | None = None,
    sampled: bool = True,
) -> list[Row]:
    """Compare a run with a record: a row per metric of every scenario on either side, pooled rows, rows for `oldest`.

    now: what was measured, on `machine` with `software`. references: what to compare with, each with the `machine` that
    it comes from ("": the same), recorded with `reference_software` (None: the same). oldest: for each scenario, what
    the oldest comparable record has; sampled metrics are compared with it too, so that small steps do not add up.
    Measurements of the same record as the reference are left out. look: how often these samples have been judged,
    1-based. sampled: False to judge exact metrics only.

    Deterministic, and independent of the order of workers. Raises ValueError if a scenario occurs twice on a side, and
    for a look beyond `policy.looks`.
    """
    policy = policy or Policy()
    level = policy.level(look)
    taken = matching.match_record(now, references, sampled=sampled)
    setting = Setting(machine, software, software if reference_software is None else reference_software, sampled)
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    for pair in taken.pairs:
        for compared in _compare_metrics(pair, setting):
            if isinstance(compared, Row):
                rows.append(compared)
            else:
                comparisons.append(compared)
    if sampled:
        asked = {each.scenario: each.record for each in references}
        apart = [each for each in oldest if not each.record or each.record != asked.get(each.scenario)]
        for pair in matching.match_record(now, apart).pairs:
            comparisons += _compare_to_oldest(pair, setting)
    rows += _decide(comparisons, policy, level)
    place = {each.scenario: index for index, each in enumerate(now)}
    rows.sort(key=lambda row: (bool(row.against), place.get(row.scenario, len(place))))
    return rows + list(taken.rows)


def judge_paired(
    now: Sequence[Measurement],
    base: Sequence[Measurement],
    *,
    policy: Policy | None = None,
    look: int = 1,
    sampled: bool = True,
) -> list[Row]:
    """Compare a run with a base that was measured in the same run: a row per metric of every scenario, pooled rows.

    now, base: the same scenarios on both sides; workers of equal names took turns, and a sampled metric is judged by
    the difference within each pair. A scenario that the base could not measure is `not comparable`. look, sampled: see
    `judge`.

    Deterministic. Raises ValueError if a scenario occurs twice on a side, or on one side only.
    """
    policy = policy or Policy()
    level = policy.level(look)
    taken = matching.match_base(now, base, sampled=sampled)
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    for pair in taken.pairs:
        for metric in pair.now.metrics:
            if isinstance(metric, Exact):
                rows.append(_exact(pair, metric, paired=True))
            elif sampled:
                ours, theirs = values(metric, pair.now), values(metric, pair.reference)
                comparisons.append(compare_paired(pair.now.scenario, metric, ours, theirs, policy))
            else:
                why = "not timed, because --gate-exact judges exact metrics only."
                rows.append(_plain(pair, metric, Verdict.NOT_COMPARABLE, why, optional=True))
    rows += _decide(comparisons, policy, level)
    place = {each.scenario: index for index, each in enumerate(now)}
    rows.sort(key=lambda row: place.get(row.scenario, len(place)))
    return rows + list(taken.rows)


def undecided(rows: Iterable[Row]) -> set[str]:
    """Return the names of the scenarios that more workers could still decide.

    An inconclusive pooled row needs all of its scenarios. Rows whose reference has too few workers are not included,
    because more workers now cannot change that.
    """
    rows = list(rows)
    names: set[str] = set()
    for row in rows:
        if row.verdict is not Verdict.INCONCLUSIVE or (row.low is None and row.minimum_detectable_change == math.inf):
            continue
        names |= _members(row, rows) if row.scenario.startswith(POOLED_PREFIX) else {row.scenario}
    return names


def _members(pooled: Row, rows: Iterable[Row]) -> set[str]:
    return {
        row.scenario
        for row in rows
        if isinstance(row.metric, Sampled)
        and pooled.metric is not None
        and row.metric.name == pooled.metric.name
        and row.against == pooled.against
        and row.low is not None
        and not row.scenario.startswith(POOLED_PREFIX)
    }


def _compare_metrics(pair: Pair, setting: Setting) -> list[Row | Comparison]:
    ours = {metric.name: metric for metric in pair.now.metrics}
    theirs = {metric.name: metric for metric in pair.reference.metrics}
    compared: list[Row | Comparison] = []
    for name, metric in ours.items():
        if name not in theirs:
            why = f"the record does not have this metric: {RECORD_ANEW} to include it."
            compared.append(_plain(pair, metric, Verdict.UNRECORDED, why))
        elif (changed := _redefined(metric, theirs[name])) is not None:
            why = f"the metric's definition has changed ({changed}): {RECORD_ANEW}."
            compared.append(_plain(pair, metric, Verdict.NOT_COMPARABLE, why))
        elif (foreign := _foreign(metric, pair.reference, setting)) is not None:
            compared.append(_plain(pair, metric, Verdict.NOT_COMPARABLE, foreign, optional=True))
        elif isinstance(metric, Exact):
            compared.append(_exact(pair, metric))
        elif setting.sampled and not pair.reference.seconds:
            why = f"the record has exact metrics only: {RECORD_ANEW} with timing."
            compared.append(_plain(pair, metric, Verdict.UNRECORDED, why))
        elif setting.sampled:
            compared.append(_compare(pair, metric, setting))
        else:
            why = "not timed, because --gate-exact judges exact metrics only."
            compared.append(_plain(pair, metric, Verdict.NOT_COMPARABLE, why, optional=True))
    why = f"recorded, but the scenario no longer has this metric: restore it, or {RECORD_ANEW}."
    compared += [_plain(pair, metric, Verdict.MISSING, why) for name, metric in theirs.items() if name not in ours]
    return compared


def _compare_to_oldest(pair: Pair, setting: Setting) -> list[Comparison]:
    against = pair.reference.record or "without a name"
    theirs = {metric.name: metric for metric in pair.reference.metrics}
    return [
        _compare(pair, metric, setting, against)
        for metric in pair.now.metrics
        if isinstance(metric, Sampled)
        # The software of the oldest record is not known here.
        and metric.comparable is not Comparable.SOFTWARE
        and pair.reference.seconds
        and metric.name in theirs
        and _redefined(metric, theirs[metric.name]) is None
        and _foreign(metric, pair.reference, setting) is None
    ]


def _redefined(now: Metric, then: Metric) -> str | None:
    if isinstance(now, Exact) is not isinstance(then, Exact):
        return f"{type(now).__name__.lower()}, recorded as {type(then).__name__.lower()}"
    for name in ("unit", "better", "numerator", "denominator"):
        ours, theirs = getattr(now, name, None), getattr(then, name, None)
        if ours != theirs:
            return f"{name} {ours}, recorded with {theirs}"
    return None


def _foreign(metric: Metric, reference: Measurement, setting: Setting) -> str | None:
    if metric.comparable is Comparable.SOFTWARE and setting.software != setting.reference_software:
        return (
            f"recorded with {setting.reference_software or 'unknown software'}, now "
            f"{setting.software or 'unknown software'}: {RECORD_ANEW} with these versions to have it judged."
        )
    other_machine_threshold = metric.other_machine_threshold if isinstance(metric, Sampled) else None
    if metric.comparable is Comparable.MACHINE and _abroad(reference, setting) and other_machine_threshold is None:
        return (
            f"recorded on {reference.machine}, this is {setting.machine or 'an unknown machine'}: "
            f"{RECORD_ANEW} on this machine class to have it judged."
        )
    return None


def _abroad(reference: Measurement, setting: Setting) -> bool:
    return bool(reference.machine) and reference.machine != setting.machine


def _compare(pair: Pair, metric: Sampled, setting: Setting, against: str = "") -> Comparison:
    abroad = _abroad(pair.reference, setting) and metric.other_machine_threshold is not None
    threshold = (
        metric.other_machine_threshold if abroad and metric.other_machine_threshold is not None else metric.threshold
    )
    ours, theirs = values(metric, pair.now), values(metric, pair.reference)
    return compare_to_record(pair.now.scenario, metric, ours, theirs, threshold=threshold, against=against)


def _plain(pair: Pair, metric: Metric, verdict: Verdict, why: str, *, optional: bool = False) -> Row:
    return Row(scenario=pair.now.scenario, metric=metric, verdict=verdict, why=why, optional=optional)


def _exact(pair: Pair, metric: Exact, *, paired: bool = False) -> Row:
    now, then = pair.now.exact[metric.name], pair.reference.exact[metric.name]
    increase = now - then if metric.better is Better.LOWER else then - now
    worse = increase / abs(then) if then else math.copysign(math.inf, increase) if increase else 0.0
    verdict, why = Verdict.PASS, ""
    if increase > 0:
        verdict, why = Verdict.REGRESSED, reason.count_rose(metric, then, now, paired=paired)
    elif increase < 0:
        verdict, why = Verdict.IMPROVED, reason.count_fell(metric, then, now, paired=paired)
    return Row(pair.now.scenario, metric, verdict, then, now, worse, worse, worse, 0.0, why=why)


def _decide(comparisons: Sequence[Comparison], policy: Policy, level: float) -> list[Row]:
    evidence, unable = gather_evidence(comparisons, policy)
    rows = [_too_few(each, policy) for each in unable]
    if evidence is None:
        return rows
    promise: dict[str, Any] = {"alpha": level, "beta": policy.beta, "weights": evidence.weights}
    decision = decide(evidence.contrast, evidence.threshold, evidence.resolution, **promise)
    found = bounds(evidence.contrast, evidence.threshold, **promise)
    for index, each in enumerate(evidence.comparisons):
        worse = _share(evidence.contrast.change[index])
        if decision.regressed[index]:
            verdict, why = Verdict.REGRESSED, reason.regressed(each, worse)
        elif decision.improved[index]:
            verdict, why = Verdict.IMPROVED, reason.improved(each, worse)
        elif decision.passed[index]:
            verdict, why = Verdict.PASS, ""
        else:
            verdict, why = Verdict.INCONCLUSIVE, reason.inconclusive(each, _share(found.ceiling[index]), policy)
        rows.append(
            replace(
                _row(each, verdict, why),
                change=worse,
                low=_share(found.low[index]),
                high=_share(found.high[index]),
                minimum_detectable_change=_share(found.minimum_detectable_change[index]),
            )
        )
    return rows


def _too_few(each: Comparison, policy: Policy) -> Row:
    lacking = len(each.reference.workers) < policy.min_workers and not each.paired
    row = _row(each, Verdict.INCONCLUSIVE, reason.too_few(each, policy))
    return replace(row, minimum_detectable_change=math.inf if lacking else None)


def _row(each: Comparison, verdict: Verdict, why: str) -> Row:
    then, now = (math.exp(side.mean) if side.workers else None for side in (each.reference, each.now))
    threshold = _share(each.threshold)
    return Row(each.scenario, each.metric, verdict, then, now, threshold=threshold, why=why, against=each.against)


def _share(change: ArrayLike) -> float:
    # Not math.expm1: with three workers an end may be too large for a float, and is infinite then.
    with np.errstate(over="ignore"):
        return float(np.expm1(change))
