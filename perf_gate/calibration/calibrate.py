"""`perf-gate calibrate`: how often the gate is wrong, compared with a record or with a base, from recorded samples."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perf_gate.calibration import power_curve
from perf_gate.calibration.arguments import add_verb, contradiction
from perf_gate.calibration.calibration_report import CalibrationReport, RealLine, counted, words
from perf_gate.calibration.decision_rules import evaluate_rules
from perf_gate.calibration.disturbance import DISTURBANCES, Disturbance
from perf_gate.calibration.pool import CalibrationError, Pool, gather, gather_pairs
from perf_gate.calibration.real_runs import RealRuns
from perf_gate.calibration.replay import PairedReplayer, RecordReplayer, Replayer
from perf_gate.calibration.simulation import Condition, PairedDraws, Progress, RecordDraws, simulate, slowed_scenarios
from perf_gate.calibration.split import Split, split
from perf_gate.judging.policy import Policy
from perf_gate.measuring.slowdown import InjectedSlowdown, parse_slowdown
from perf_gate.metric import Metric, Sampled
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record, load, write
from perf_gate.records.runfile import Run, load_run
from perf_gate.records.section import Section
from perf_gate.session.options import AGAINST_WORKERS, COMPARE_WORKERS, looks_between
from perf_gate.verdict import Exit

USAGE = 4
PROGRESS_SECONDS = 5.0
MIXED = (
    "A simulated run mixes processes of several real runs, so a difference between whole runs appears as a difference "
    "between processes. The real runs above show whether that matters."
)
SPLITS = (
    "All simulated runs are random splits of the same {} processes, without replacement: no process is on both sides, "
    "but the runs are not independent of each other. The intervals are valid for the simulation. They do not cover "
    "variation that these processes do not have."
)
DRAWS = (
    "All simulated runs are drawn from the same {} pairs, no pair twice in one run, so they are not independent of "
    "each other. The intervals are valid for the simulation. They do not cover variation that these pairs do not have."
)
INJECTED = (
    "In a simulated run, an injected slowdown multiplies the recorded seconds. Only in runs made with --inject do the "
    "workers really wait."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    add_verb(verbs).set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make the real runs, simulate, and print the report. Returns 0, 4 or 10."""
    wrong = contradiction(options)
    if wrong is not None:
        _log(f"perf-gate calibrate: {wrong}")
        return USAGE
    try:
        if options.plot is not None:
            power_curve.figure_maker()  # before the wait, not after it
        report = calibrate(options)
        text = report.markdown()
        print(text, end="")  # noqa: T201 - a command line speaks by printing
        if options.markdown is not None:
            write(text, options.markdown, overwrite=True)
        if options.plot is not None:
            power_curve.draw(report, options.plot)
    except CalibrationError as error:
        _log(f"cannot calibrate: {error}")
        return int(Exit.CANNOT_JUDGE)
    return int(Exit.PASS)


def calibrate(options: argparse.Namespace) -> CalibrationReport:
    """Return the report. Raises CalibrationError or RecordError."""
    options.workers = options.workers or (AGAINST_WORKERS if options.paired else COMPARE_WORKERS)
    looks = looks_between(*options.workers)
    policy = Policy(alpha=options.alpha, looks=len(looks))
    return (_paired if options.paired else _against_record)(options, looks, policy)


def _against_record(options: argparse.Namespace, looks: tuple[int, ...], policy: Policy) -> CalibrationReport:
    record = load(options.record)
    section = with_thresholds(_section(record, options.machine), dict(options.threshold))
    own = gather({record.name: section.measurements})
    slowed = slowed_scenarios(own, options.arm, options.within)
    slow = [own.measurements[index].scenario for index in slowed]

    runs = _runs(options, slow)
    sources = {record.name: section.measurements, **{name: each.measurements for name, each in runs.unchanged.items()}}
    pool = gather(sources)
    asked, drawn = Split(options.record_workers, looks), split(pool.workers, options.record_workers, looks, policy)
    conditions = _conditions(options.slowdowns, DISTURBANCES)
    draws = RecordDraws(pool, policy, drawn, conditions, options.seed)
    tallies = simulate(
        draws, conditions, arm=options.arm, within=options.within,
        runs=options.runs, seed=options.seed, progress=_progress("simulated runs"),
    )  # fmt: skip
    rules = evaluate_rules(
        pool, drawn, slowed, options.slowdowns, arm=options.arm, runs=options.rule_runs,
        seed=options.seed, disturbances=DISTURBANCES, progress=_progress("runs under other rules"),
    )  # fmt: skip
    report = CalibrationReport(
        pool=f"{pool.workers} worker processes",
        facts={
            "record": f"{Path(options.record).name} ({record.name}, profile {record.profile})",
            "machine class": section.machine,
            "distinct worker processes": f"{pool.workers}, from {counted(len(sources) - len(pool.left_out), 'file')}",
            "a simulated run": f"record of {drawn.reference} workers, candidate judged after {words(drawn.looks)}",
        },
        against="the record",
        arm=options.arm,
        slowed=len(slow),
        rows=draws.rows,
        tallies=tallies,
        real=_replayed(runs, RecordReplayer(policy, looks, section), options, slow),
        rules=rules,
        limits=[SPLITS.format(pool.workers), *([] if drawn == asked else [_too_few(pool.workers, drawn, asked)])],
    )
    return _completed(report, pool, options, sources)


def _paired(options: argparse.Namespace, looks: tuple[int, ...], policy: Policy) -> CalibrationReport:
    runs = _runs(options, ())
    if not runs.unchanged:
        raise CalibrationError("there is no run with the same code on both sides: add some without --inject")
    pairs = gather_pairs({name: (each.measurements, each.base_measurements) for name, each in runs.unchanged.items()})
    if pairs.now.workers < 2 * looks[-1]:
        raise CalibrationError(
            f"{pairs.now.workers} pairs are too few to draw different runs of {looks[-1]} pairs from them: add runs "
            f"with --against until there are at least {2 * looks[-1]}"
        )
    slow = [
        pairs.now.measurements[index].scenario for index in slowed_scenarios(pairs.now, options.arm, options.within)
    ]
    draws = PairedDraws(pairs, policy, looks)
    conditions = _conditions(options.slowdowns)
    tallies = simulate(
        draws, conditions, arm=options.arm, within=options.within, runs=options.runs,
        seed=options.seed, progress=_progress("simulated runs"),
    )  # fmt: skip
    seconds = sorted(each.seconds for each in runs.unchanged.values())
    report = CalibrationReport(
        pool=f"{pairs.now.workers} pairs of worker processes",
        facts={
            "machine class": next(iter(runs.unchanged.values())).section.machine,
            "distinct pairs of worker processes": f"{pairs.now.workers}, "
            f"from {counted(len(runs.unchanged) - len(pairs.left_out), 'file')} with the same code on both sides, "
            f"measured in {seconds[0]:.0f} to {seconds[-1]:.0f} s each",
            "a simulated run": f"judged after {words(looks, 'pairs')}",
        },
        against="their base",
        arm=options.arm,
        slowed=len(slow),
        rows=draws.rows,
        tallies=tallies,
        real=_replayed(runs, PairedReplayer(policy, looks), options, slow),
        limits=[DRAWS.format(pairs.now.workers)],
    )
    return _completed(report, replace(pairs.now, left_out=pairs.left_out), options, runs.unchanged)


def _completed(report: CalibrationReport, pool: Pool, options: argparse.Namespace, sources: Sized) -> CalibrationReport:
    """Return the report with the facts and limits that every calibration has."""
    facts = {
        "command": f"`{shlex.join(options.line)}`",
        "date": datetime.now(UTC).date().isoformat(),
        **report.facts,
        "judged": f"{counted(len(pool.measurements), 'timed scenario')}, {report.rows} sampled rows",
        "false-alarm rate by design": f"at most {100 * options.alpha:g} % of unchanged runs, over all rows and looks",
        "slowed down": f"the seconds of the arm `{options.arm}`, in one of {report.slowed} scenarios (in turn) or in "
        "all",
    }
    limits = [
        *report.limits,
        INJECTED,
        *([MIXED] if len(sources) > 1 else []),
        *(f"Left out: {source}: {why}." for source, why in pool.left_out.items()),
    ]
    return replace(report, facts=facts, limits=limits)


def _too_few(workers: int, drawn: Split, asked: Split) -> str:
    return (
        f"A real run has {words(asked.looks)}, compared with a record of {asked.reference}. "
        f"{workers} processes are too few for that: here {words(drawn.looks)} are compared with {drawn.reference}, and "
        "a run that is undecided after them counts as such. A real run has more evidence: take detection rates as "
        "lower bounds, and add runs with --against."
    )


def _section(record: Record, machine: str | None) -> Section:
    if machine is not None and machine not in record.sections:
        raise CalibrationError(f"{record.name} has no machine class {machine!r}, only: {'; '.join(record.sections)}")
    return record.latest if machine is None else record.sections[machine]


def _conditions(slowdowns: Sequence[float], disturbances: Sequence[Disturbance] = ()) -> list[Condition]:
    injected = [Condition(slowdown, everywhere) for everywhere in (False, True) for slowdown in slowdowns]
    return [Condition(), *injected, *(Condition(disturbance=disturbance) for disturbance in disturbances)]


@dataclass(frozen=True)
class _Runs:
    """Real runs by file name: unchanged, with an injected slowdown, and with another busy process."""

    unchanged: Mapping[str, Run]
    injected: Mapping[str, Run]
    disturbed: Mapping[str, Run]


def _runs(options: argparse.Namespace, slow: Sequence[str]) -> _Runs:
    against, disturbed = _files(options.against), _files(options.disturbed)
    if options.real:
        ids = tuple(name.rpartition("[")[2].removesuffix("]") for name in slow)
        loop = RealRuns(
            options.command, options.folder, options.real, options.inject, ids, options.neighbour, options.paired
        )
        (against if options.neighbour is None else disturbed).extend(loop.run(_log))
    found, under_load = _loaded(against, options), _loaded(disturbed, options)
    return _Runs(
        {name: each for name, each in found.items() if not each.injected},
        {name: each for name, each in found.items() if each.injected},
        under_load,
    )


def _loaded(paths: Sequence[Path], options: argparse.Namespace) -> dict[str, Run]:
    found = {str(path): load_run(path) for path in dict.fromkeys(paths)}
    thresholds = dict(options.threshold)
    for name, each in found.items():
        if each.paired is not options.paired:
            has = "a base" if each.paired else "no base"
            raise CalibrationError(
                f"{name} has {has}: use runs made with --gate-against for calibrate --paired, and others with a record"
            )
        if each.base is not None and (why := _why_different(each.section.provenance, each.base.provenance)):
            raise CalibrationError(
                f"{name} does not have the same code on both sides ({why}): run --gate-against=HEAD in a clean tree"
            )
    return {
        name: replace(
            each,
            section=with_thresholds(each.section, thresholds),
            base=None if each.base is None else with_thresholds(each.base, thresholds),
        )
        for name, each in found.items()
    }


def _why_different(candidate: Provenance, base: Provenance) -> str | None:
    """Return why the code of the two sides differs or may differ, or None."""
    if candidate.dirty:
        return "the candidate had uncommitted changes"
    if not base.commit:
        return "the base was a directory, whose commit is unknown"
    return None if candidate.commit == base.commit else f"commits {candidate.commit[:12]} and {base.commit[:12]}"


def with_thresholds(section: Section, thresholds: Mapping[str, float]) -> Section:
    """Return the section with other thresholds. Raises CalibrationError for an unknown metric or a bad threshold."""
    known = {metric.name for each in section.measurements for metric in each.metrics if isinstance(metric, Sampled)}
    if unknown := sorted(set(thresholds) - known):
        raise CalibrationError(f"no sampled metric is named {unknown[0]!r}: give one of {', '.join(sorted(known))}")
    try:
        changed = tuple(
            replace(each, metrics=tuple(_with_threshold(metric, thresholds) for metric in each.metrics))
            for each in section.measurements
        )
    except ValueError as error:
        raise CalibrationError(f"--threshold: {error}") from None
    return replace(section, measurements=changed)


def _with_threshold(metric: Metric, thresholds: Mapping[str, float]) -> Metric:
    if not isinstance(metric, Sampled) or metric.name not in thresholds:
        return metric
    return replace(metric, threshold=thresholds[metric.name])


def _files(given: Sequence[Path]) -> list[Path]:
    """Return the files, with each folder replaced by the files in it."""
    found: list[Path] = []
    for path in given:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise CalibrationError(f"{path} has no *.json files: give a folder with files of --gate-samples")
        found.extend(inside)
    return found


def _replayed(runs: _Runs, replayer: Replayer, options: argparse.Namespace, slow: Sequence[str]) -> list[RealLine]:
    lines = []
    unchanged = Condition()

    def add(what: str, chosen: Mapping[str, Run], condition: Condition, *, list_failures: bool) -> None:
        if chosen:
            found, wrong = replayer.tally(list(chosen.values()), condition, arm=options.arm, slow=slow)
            lines.append(RealLine(what, found, tuple(wrong) if list_failures else ()))

    add("nothing changed", runs.unchanged, unchanged, list_failures=True)
    for injected in sorted({_kind_of(each) for each in runs.injected.values()}):
        chosen = {name: each for name, each in runs.injected.items() if _kind_of(each) == injected}
        add(f"--inject: {injected}", chosen, unchanged, list_failures=False)
    kinds = sorted({each.injected for each in runs.disturbed.values()})
    for injected in kinds:
        chosen = {name: each for name, each in runs.disturbed.items() if each.injected == injected}
        add(
            f"another process kept one core busy{f', and --inject {injected}' if injected else ''}",
            chosen,
            unchanged,
            list_failures=not injected,
        )
    for condition in _conditions(options.slowdowns):
        if condition.slowdown:
            add(f"seconds multiplied afterwards: {condition}", runs.unchanged, condition, list_failures=False)
    return lines


def _kind_of(run: Run) -> str:
    injected: InjectedSlowdown = parse_slowdown(run.injected)
    where = "one scenario" if injected.scenario else "all scenarios"
    return f"{injected.arm} {100 * (injected.factor - 1):g} % slower in {where}"


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a command line speaks by printing


def _progress(what: str) -> Progress:
    """Return a function that prints the progress every few seconds, with the time that is left."""
    began = last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS:
            last = now
            _log(f"{done} of {total} {what}, about {(now - began) / done * (total - done):.0f} s left")

    return show
