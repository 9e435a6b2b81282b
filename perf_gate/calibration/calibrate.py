"""`perf-gate calibrate`: how often the gate is wrong, against a record or beside a base, on recorded samples."""

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

from perf_gate.calibration import plot
from perf_gate.calibration.loop import Loop
from perf_gate.calibration.options import add_verb, contradiction
from perf_gate.calibration.pool import CalibrationError, Pool, gather, gather_pairs
from perf_gate.calibration.replay import Hearing, PairedHearing, RecordHearing
from perf_gate.calibration.report import RealLine, Report, counted, words
from perf_gate.calibration.rival import compete
from perf_gate.calibration.split import Split, split
from perf_gate.calibration.trial import AgainstRecord, BesideBase, Case, Tell, simulate, slowable
from perf_gate.calibration.trouble import TROUBLES, Trouble
from perf_gate.judging.policy import Policy
from perf_gate.measuring.plant import Plant, parse_plant
from perf_gate.metric import Metric, Sampled
from perf_gate.records.provenance import Provenance
from perf_gate.records.record import Record, load, write
from perf_gate.records.runfile import Run, load_run
from perf_gate.records.section import Section
from perf_gate.session.options import AGAINST_WORKERS, COMPARE_WORKERS, looks_between
from perf_gate.verdict import Exit

USAGE = 4
TELL_SECONDS = 5.0
MIXED = (
    "Processes of several runs are mixed: what makes one whole run differ from another counts as a difference between "
    "processes here. The real runs above are the check for that."
)
SPLITS = (
    "All simulated runs are random splits of the same {} processes, without replacement: no process is on both sides, "
    "but the runs are not independent of each other. The intervals hold for the simulation; what these processes do "
    "not show, no number of runs can."
)
DRAWS = (
    "All simulated runs are drawn from the same {} pairs, no pair twice in one run: the runs are not independent of "
    "each other. The intervals hold for the simulation; what these pairs do not show, no number of runs can."
)
PLANTED = "A planted slowdown is an exact factor on the recorded seconds; only runs with --plant really wait."


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    add_verb(verbs).set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make the real runs that were asked for, simulate, and print the report. Returns 0, 4 or 10."""
    wrong = contradiction(options)
    if wrong is not None:
        _say(f"perf-gate calibrate: {wrong}")
        return USAGE
    try:
        if options.plot is not None:
            plot.figure_maker()  # before the wait, not after it
        report = calibrate(options)
        text = report.markdown()
        print(text, end="")  # noqa: T201 - a command line speaks by printing
        if options.markdown is not None:
            write(text, options.markdown, overwrite=True)
        if options.plot is not None:
            plot.draw(report, options.plot)
    except CalibrationError as error:
        _say(f"cannot calibrate: {error}")
        return int(Exit.CANNOT_JUDGE)
    return int(Exit.PASS)


def calibrate(options: argparse.Namespace) -> Report:
    """Everything but the output. Raises CalibrationError, RecordError."""
    options.workers = options.workers or (AGAINST_WORKERS if options.paired else COMPARE_WORKERS)
    looks = looks_between(*options.workers)
    policy = Policy(alpha=options.alpha, looks=len(looks))
    return (_paired if options.paired else _against_record)(options, looks, policy)


def _against_record(options: argparse.Namespace, looks: tuple[int, ...], policy: Policy) -> Report:
    record = load(options.record)
    section = lenient(_section(record, options.machine), dict(options.allowance))
    own = gather({record.name: section.measurements})
    slowed = slowable(own, options.arm, options.within)
    slow = [own.measurements[index].scenario for index in slowed]

    runs = _runs(options, slow)
    sources = {record.name: section.measurements, **{name: each.measurements for name, each in runs.honest.items()}}
    pool = gather(sources)
    asked, drawn = Split(options.record_workers, looks), split(pool.workers, options.record_workers, looks, policy)
    cases = _cases(options.slowdowns, TROUBLES)
    draws = AgainstRecord(pool, policy, drawn, cases, options.seed)
    tallies = simulate(
        draws, cases, arm=options.arm, within=options.within,
        runs=options.runs, seed=options.seed, tell=_teller("simulated runs"),
    )  # fmt: skip
    rivals = compete(
        pool, drawn, slowed, options.slowdowns, arm=options.arm, runs=options.rival_runs,
        seed=options.seed, troubles=TROUBLES, tell=_teller("runs under other rules"),
    )  # fmt: skip
    report = Report(
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
        real=_replayed(runs, RecordHearing(policy, looks, section), options, slow),
        rivals=rivals,
        limits=[SPLITS.format(pool.workers), *([] if drawn == asked else [_too_few(pool.workers, drawn, asked)])],
    )
    return _completed(report, pool, options, sources)


def _paired(options: argparse.Namespace, looks: tuple[int, ...], policy: Policy) -> Report:
    runs = _runs(options, ())
    if not runs.honest:
        raise CalibrationError("no run with the same code on both sides was given: add some without --plant")
    pairs = gather_pairs({name: (each.measurements, each.beside) for name, each in runs.honest.items()})
    if pairs.now.workers < 2 * looks[-1]:
        raise CalibrationError(
            f"{pairs.now.workers} pairs are too few to draw different runs of {looks[-1]} from: "
            f"at least {2 * looks[-1]}, add runs with --against"
        )
    slow = [pairs.now.measurements[index].scenario for index in slowable(pairs.now, options.arm, options.within)]
    draws = BesideBase(pairs, policy, looks)
    cases = _cases(options.slowdowns)
    tallies = simulate(
        draws, cases, arm=options.arm, within=options.within, runs=options.runs,
        seed=options.seed, tell=_teller("simulated runs"),
    )  # fmt: skip
    seconds = sorted(each.seconds for each in runs.honest.values())
    report = Report(
        pool=f"{pairs.now.workers} pairs of worker processes",
        facts={
            "machine class": next(iter(runs.honest.values())).section.machine,
            "distinct pairs of worker processes": f"{pairs.now.workers}, "
            f"from {counted(len(runs.honest) - len(pairs.left_out), 'file')} with the same code on both sides, "
            f"measured in {seconds[0]:.0f} to {seconds[-1]:.0f} s each",
            "a simulated run": f"judged after {words(looks, 'pairs')}",
        },
        against="the base beside them",
        arm=options.arm,
        slowed=len(slow),
        rows=draws.rows,
        tallies=tallies,
        real=_replayed(runs, PairedHearing(policy, looks), options, slow),
        limits=[DRAWS.format(pairs.now.workers)],
    )
    return _completed(report, replace(pairs.now, left_out=pairs.left_out), options, runs.honest)


def _completed(report: Report, pool: Pool, options: argparse.Namespace, sources: Sized) -> Report:
    """With the facts and the limits that every calibration has."""
    facts = {
        "command": f"`{shlex.join(options.line)}`",
        "date": datetime.now(UTC).date().isoformat(),
        **report.facts,
        "judged": f"{counted(len(pool.measurements), 'timed scenario')}, {report.rows} sampled rows",
        "promised": f"at most {100 * options.alpha:g} % of unchanged runs red, over all rows and looks",
        "slowed down": f"the seconds of the arm `{options.arm}`, in one of {report.slowed} scenarios (in turn) or in "
        "all",
    }
    limits = [
        *report.limits,
        PLANTED,
        *([MIXED] if len(sources) > 1 else []),
        *(f"Left out: {source}: {why}." for source, why in pool.left_out.items()),
    ]
    return replace(report, facts=facts, limits=limits)


def _too_few(workers: int, drawn: Split, asked: Split) -> str:
    return (
        f"A real run holds {words(asked.looks)} against a record of {asked.reference}. "
        f"{workers} processes are too few for that: here {words(drawn.looks)} stand against {drawn.reference}, and a "
        "run that is still undecided then counts as such. This is less evidence than a real run has: take detection "
        "rates as lower bounds, and add runs with --against."
    )


def _section(record: Record, machine: str | None) -> Section:
    if machine is not None and machine not in record.sections:
        raise CalibrationError(f"{record.name} holds no machine class {machine!r}, only: {'; '.join(record.sections)}")
    return record.latest if machine is None else record.sections[machine]


def _cases(slowdowns: Sequence[float], troubles: Sequence[Trouble] = ()) -> list[Case]:
    planted = [Case(slowdown, everywhere) for everywhere in (False, True) for slowdown in slowdowns]
    return [Case(), *planted, *(Case(trouble=trouble) for trouble in troubles)]


@dataclass(frozen=True)
class _Runs:
    """Real runs by file name: as they are, slowed down on purpose, with a busy neighbour."""

    honest: Mapping[str, Run]
    planted: Mapping[str, Run]
    disturbed: Mapping[str, Run]


def _runs(options: argparse.Namespace, slow: Sequence[str]) -> _Runs:
    against, disturbed = _files(options.against), _files(options.disturbed)
    if options.real:
        ids = tuple(name.rpartition("[")[2].removesuffix("]") for name in slow)
        loop = Loop(
            options.command, options.folder, options.real, options.plant, ids, options.neighbour, options.paired
        )
        (against if options.neighbour is None else disturbed).extend(loop.run(_say))
    found, burdened = _loaded(against, options), _loaded(disturbed, options)
    return _Runs(
        {name: each for name, each in found.items() if not each.plant},
        {name: each for name, each in found.items() if each.plant},
        burdened,
    )


def _loaded(paths: Sequence[Path], options: argparse.Namespace) -> dict[str, Run]:
    found = {str(path): load_run(path) for path in dict.fromkeys(paths)}
    allowances = dict(options.allowance)
    for name, each in found.items():
        if each.paired is not options.paired:
            held = "a base beside it" if each.paired else "no base beside it"
            raise CalibrationError(
                f"{name} holds {held}: runs with --gate-against belong to calibrate --paired, the others to a record"
            )
        if each.base is not None and (apart := _apart(each.section.provenance, each.base.provenance)):
            raise CalibrationError(
                f"{name} does not have the same code on both sides ({apart}): run --gate-against=HEAD in a clean tree"
            )
    return {
        name: replace(
            each,
            section=lenient(each.section, allowances),
            base=None if each.base is None else lenient(each.base, allowances),
        )
        for name, each in found.items()
    }


def _apart(candidate: Provenance, base: Provenance) -> str | None:
    """What tells the two sides' code apart, or leaves it unknown."""
    if candidate.dirty:
        return "the candidate had uncommitted changes"
    if not base.commit:
        return "the base was a directory, of which no commit is known"
    return None if candidate.commit == base.commit else f"commits {candidate.commit[:12]} and {base.commit[:12]}"


def lenient(section: Section, allowances: Mapping[str, float]) -> Section:
    """The same with other allowances. Raises CalibrationError for a metric that it does not have, or too much."""
    known = {metric.name for each in section.measurements for metric in each.metrics if isinstance(metric, Sampled)}
    if unknown := sorted(set(allowances) - known):
        raise CalibrationError(f"no sampled metric is named {unknown[0]!r}; there are {', '.join(sorted(known))}")
    try:
        changed = tuple(
            replace(each, metrics=tuple(_allowed(metric, allowances) for metric in each.metrics))
            for each in section.measurements
        )
    except ValueError as error:
        raise CalibrationError(f"--allowance: {error}") from None
    return replace(section, measurements=changed)


def _allowed(metric: Metric, allowances: Mapping[str, float]) -> Metric:
    if not isinstance(metric, Sampled) or metric.name not in allowances:
        return metric
    return replace(metric, allowance=allowances[metric.name])


def _files(given: Sequence[Path]) -> list[Path]:
    """The same, with each folder replaced by its runs."""
    found: list[Path] = []
    for path in given:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise CalibrationError(f"{path} holds no *.json: name a folder with the files of --gate-samples")
        found.extend(inside)
    return found


def _replayed(runs: _Runs, hearing: Hearing, options: argparse.Namespace, slow: Sequence[str]) -> list[RealLine]:
    lines = []
    calm = Case()

    def add(what: str, chosen: Mapping[str, Run], case: Case, *, tell_wrong: bool) -> None:
        if chosen:
            found, wrong = hearing.tally(list(chosen.values()), case, arm=options.arm, slow=slow)
            lines.append(RealLine(what, found, tuple(wrong) if tell_wrong else ()))

    add("nothing changed", runs.honest, calm, tell_wrong=True)
    for plant in sorted({_kind_of(each) for each in runs.planted.values()}):
        chosen = {name: each for name, each in runs.planted.items() if _kind_of(each) == plant}
        add(f"the workers really waited: {plant}", chosen, calm, tell_wrong=False)
    kinds = sorted({each.plant for each in runs.disturbed.values()})
    for plant in kinds:
        chosen = {name: each for name, each in runs.disturbed.items() if each.plant == plant}
        add(f"a neighbour burned one core{f', and {plant}' if plant else ''}", chosen, calm, tell_wrong=not plant)
    for case in _cases(options.slowdowns):
        if case.slowdown:
            add(f"multiplied afterwards: {case}", runs.honest, case, tell_wrong=False)
    return lines


def _kind_of(run: Run) -> str:
    plant: Plant = parse_plant(run.plant)
    return (
        f"{plant.arm} {100 * (plant.factor - 1):g} % slower in {'one scenario' if plant.scenario else 'all scenarios'}"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a command line speaks by printing


def _teller(what: str) -> Tell:
    """Say now and then how far it is, and how long it may still take."""
    began = last = time.monotonic()

    def tell(done: int, wanted: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TELL_SECONDS:
            last = now
            _say(f"{done} of {wanted} {what}, about {(now - began) / done * (wanted - done):.0f} s left")

    return tell
