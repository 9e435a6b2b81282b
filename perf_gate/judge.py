"""Holds what a run measured against a reference; closed: what is on either side gets a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perf_gate import estimate, inventory
from perf_gate.contest import Contest, contest, contrasts, kinds, mean, pool
from perf_gate.decision import Decision, decide
from perf_gate.inventory import RECORD, Pair
from perf_gate.measurement import Measurement
from perf_gate.metric import Better, Exact, Metric, Sampled, Travels
from perf_gate.policy import Policy
from perf_gate.verdict import Row, Verdict

__all__ = ["Policy", "judge", "undecided"]


@dataclass(frozen=True)
class Setting:
    """Where the two sides come from, and whether timed metrics were asked for."""

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
    """Judge a run: a row per metric of every scenario on either side, pooled rows, rows against `oldest`.

    now: what was measured, on `machine` with `software`. references: what it is held against, each carrying
    the `machine` it comes from ("": the same), recorded with `reference_software` (None: the same).
    oldest: for each scenario, what the oldest still comparable record holds of it; sampled metrics are held
    against it too, so that steps that pass one by one do not add up. What comes from the same record as the
    reference is left out. look: how often these samples have been judged, 1-based. sampled: False where only
    exact metrics were asked for.

    Deterministic; the order of workers changes nothing. Raises ValueError where a scenario occurs twice on
    a side, and for a look beyond `policy.looks`.
    """
    policy = policy or Policy()
    level = policy.level(look)
    taken = inventory.take(now, references, sampled=sampled)
    setting = Setting(machine, software, software if reference_software is None else reference_software, sampled)
    rows: list[Row] = []
    contests: list[Contest] = []
    for pair in taken.pairs:
        for heard in _hear(pair, setting):
            if isinstance(heard, Row):
                rows.append(heard)
            else:
                contests.append(heard)
    if sampled:
        asked = {each.scenario: each.record for each in references}
        apart = [each for each in oldest if not each.record or each.record != asked.get(each.scenario)]
        for pair in inventory.take(now, apart).pairs:
            contests += _hear_again(pair, setting)
    rows += _sentence(contests, policy, level)
    place = {each.scenario: index for index, each in enumerate(now)}
    rows.sort(key=lambda row: (bool(row.against), place.get(row.scenario, len(place))))
    return rows + list(taken.rows)


def undecided(rows: Iterable[Row]) -> set[str]:
    """Names of the scenarios that more workers could still decide.

    A pooled row that is undecided needs all of its scenarios. What the reference has too few workers for is
    not
    included: sampling on cannot mend that.
    """
    rows = list(rows)
    names: set[str] = set()
    for row in rows:
        if row.verdict is not Verdict.INCONCLUSIVE or row.detectable == math.inf:
            continue
        names |= _members(row, rows) if row.scenario.startswith("(all") else {row.scenario}
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
        and not row.scenario.startswith("(all")
    }


def _hear(pair: Pair, setting: Setting) -> list[Row | Contest]:
    ours = {metric.name: metric for metric in pair.now.metrics}
    theirs = {metric.name: metric for metric in pair.reference.metrics}
    heard: list[Row | Contest] = []
    for name, metric in ours.items():
        if name not in theirs:
            why = f"the record does not hold this metric: {RECORD} to include it."
            heard.append(_plain(pair, metric, Verdict.UNRECORDED, why))
        elif (changed := _redefined(metric, theirs[name])) is not None:
            why = f"the metric means something else now ({changed}): {RECORD}."
            heard.append(_plain(pair, metric, Verdict.NOT_COMPARABLE, why))
        elif (foreign := _foreign(metric, pair.reference, setting)) is not None:
            heard.append(_plain(pair, metric, Verdict.NOT_COMPARABLE, foreign, optional=True))
        elif isinstance(metric, Exact):
            heard.append(_exact(pair, metric))
        elif setting.sampled and not pair.reference.seconds:
            why = f"the record was made of exact metrics only: {RECORD} with timing."
            heard.append(_plain(pair, metric, Verdict.UNRECORDED, why))
        elif setting.sampled:
            heard.append(_contest(pair, metric, setting))
        else:
            why = "not timed: only exact metrics were asked for."
            heard.append(_plain(pair, metric, Verdict.NOT_COMPARABLE, why, optional=True))
    why = f"recorded, but the scenario no longer yields this metric: restore it, or {RECORD}."
    heard += [_plain(pair, metric, Verdict.MISSING, why) for name, metric in theirs.items() if name not in ours]
    return heard


def _hear_again(pair: Pair, setting: Setting) -> list[Contest]:
    against = pair.reference.record or "without a name"
    theirs = {metric.name: metric for metric in pair.reference.metrics}
    return [
        _contest(pair, metric, setting, against)
        for metric in pair.now.metrics
        if isinstance(metric, Sampled)
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
    if metric.travels is Travels.SOFTWARE and setting.software != setting.reference_software:
        return (
            f"recorded with {setting.reference_software or 'unknown software'}, now "
            f"{setting.software or 'unknown software'}: {RECORD} with these versions to have it judged."
        )
    elsewhere = metric.elsewhere if isinstance(metric, Sampled) else None
    if metric.travels is Travels.MACHINE and _abroad(reference, setting) and elsewhere is None:
        return (
            f"recorded on {reference.machine}, this is {setting.machine or 'an unknown machine'}: "
            f"{RECORD} on this machine class to have it judged."
        )
    return None


def _abroad(reference: Measurement, setting: Setting) -> bool:
    return bool(reference.machine) and reference.machine != setting.machine


def _contest(pair: Pair, metric: Sampled, setting: Setting, against: str = "") -> Contest:
    abroad = _abroad(pair.reference, setting) and metric.elsewhere is not None
    allowance = metric.elsewhere if abroad and metric.elsewhere is not None else metric.allowance
    return contest(pair.now.scenario, metric, pair.now, pair.reference, allowance=allowance, against=against)


def _plain(pair: Pair, metric: Metric, verdict: Verdict, why: str, *, optional: bool = False) -> Row:
    return Row(scenario=pair.now.scenario, metric=metric, verdict=verdict, why=why, optional=optional)


def _exact(pair: Pair, metric: Exact) -> Row:
    now, then = pair.now.exact[metric.name], pair.reference.exact[metric.name]
    increase = now - then if metric.better is Better.LOWER else then - now
    worse = increase / abs(then) if then else math.copysign(math.inf, increase) if increase else 0.0
    verdict, why = Verdict.PASS, ""
    if increase > 0:
        verdict = Verdict.REGRESSED
        why = (
            f"{metric.name} went from {then} to {now} {metric.unit}; it is counted, so this is no noise. "
            f"Find the change that did it, or {RECORD} if it is meant."
        )
    elif increase < 0:
        verdict = Verdict.IMPROVED
        why = f"improved from {then} to {now} {metric.unit}: {RECORD}, or the slack hides the next regression."
    return Row(pair.now.scenario, metric, verdict, then, now, worse, worse, worse, 0.0, why=why)


def _sentence(contests: Sequence[Contest], policy: Policy, level: float) -> list[Row]:
    rows: list[Row] = []
    judged: list[Contest] = []
    parts = []
    for kind in kinds(contests):
        for group in (kind, *([each] for each in pool(kind, policy))):
            able = [each for each in group if min(each.workers) >= policy.workers]
            rows += [_too_few(each, policy) for each in group if min(each.workers) < policy.workers]
            if able:
                judged += able
                parts.append(contrasts(able))
    if not judged:
        return rows
    contrast = estimate.join(parts)
    decision = decide(
        contrast,
        [each.allowance for each in judged],
        [each.resolution for each in judged],
        alpha=level,
        doubt=policy.doubt,
    )
    return rows + [_row(each, decision, index, float(contrast.change[index])) for index, each in enumerate(judged)]


def _too_few(each: Contest, policy: Policy) -> Row:
    now, then = each.workers
    crew = "visited all of its scenarios" if each.scenario.startswith("(all") else "timed it"
    short = then < policy.workers
    remedy = f"{RECORD} with more workers" if short else "measure with more workers or a larger budget"
    why = (
        f"{now} workers now and {then} in the record {crew}; each side needs at least {policy.workers} "
        f"before any slowdown could be told from noise: {remedy}."
    )
    return Row(
        each.scenario,
        each.metric,
        Verdict.INCONCLUSIVE,
        math.exp(mean(each.reference.values())) if each.reference else None,
        math.exp(mean(each.now.values())) if each.now else None,
        allowed=math.expm1(each.allowance),
        detectable=math.inf if short else None,
        why=why,
        against=each.against,
    )


def _row(each: Contest, decision: Decision, index: int, change: float) -> Row:
    low, high = float(decision.low[index]), float(decision.high[index])
    ceiling = float(decision.ceiling[index])
    verdict, why = Verdict.INCONCLUSIVE, _inconclusive(each, ceiling)
    if decision.regressed[index]:
        verdict, why = Verdict.REGRESSED, _regressed(each, change)
    elif decision.improved[index]:
        verdict = Verdict.IMPROVED
        why = f"improved by {-math.expm1(change):.1%}: {RECORD}, or the slack hides the next regression."
    elif decision.passed[index]:
        verdict, why = Verdict.PASS, ""
    if why and each.against:
        why = f"against the oldest comparable record {each.against}: {why}"
    return Row(
        each.scenario,
        each.metric,
        verdict,
        math.exp(mean(each.reference.values())),
        math.exp(mean(each.now.values())),
        math.expm1(change),
        math.expm1(low),
        math.expm1(high),
        math.expm1(each.allowance),
        math.expm1(float(decision.detectable[index])),
        why,
        against=each.against,
    )


def _regressed(each: Contest, change: float) -> str:
    text = f"{math.expm1(change):.1%} worse, clear of the allowed {math.expm1(each.allowance):.1%}. "
    if each.against:
        return text + "Small steps have added up; retire that record if the whole of it is meant."
    return text + f"Find the change that did it, or {RECORD} if it is meant."


def _inconclusive(each: Contest, ceiling: float) -> str:
    now, then = each.workers
    return (
        f"not shown to be worse, but a change of up to {math.expm1(ceiling):.1%} cannot be ruled out "
        f"(needed: {math.expm1(each.resolution):.1%}) from {now} workers now and {then} in the record: "
        f"measure with more workers or a larger budget, or on a quieter machine."
    )
