"""`perf-gate calibrate RECORD`: how often the gate is wrong, on this machine's own samples."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perf_gate.calibration import plot
from perf_gate.calibration.family import Family
from perf_gate.calibration.loop import EACH, Loop
from perf_gate.calibration.pool import CalibrationError, gather
from perf_gate.calibration.replay import Hearing
from perf_gate.calibration.report import RealLine, Report
from perf_gate.calibration.rival import compete
from perf_gate.calibration.split import Split, split
from perf_gate.calibration.trial import Case, Tell, simulate, slowable
from perf_gate.calibration.trouble import TROUBLES
from perf_gate.judging.policy import Policy
from perf_gate.measuring.plant import Plant, parse_plant
from perf_gate.records.obstacle import obstacle, obstacle_below
from perf_gate.records.record import Record, load, write
from perf_gate.records.runfile import Run, load_run
from perf_gate.records.section import Section
from perf_gate.session.options import COMPARE_WORKERS
from perf_gate.session.settings import looks_between
from perf_gate.session.value import checked, parse_budget, parse_chance, parse_count, parse_seed, parse_workers
from perf_gate.verdict import Exit

USAGE = 4
RECORD_WORKERS = 24
TELL_SECONDS = 5.0


def cut(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Part `calibrate ... -- COMMAND` and `bisect ... -- ARGUMENTS` at the first "--"; other verbs keep theirs."""
    given = list(arguments)
    if given[:1] not in (["calibrate"], ["bisect"]) or "--" not in given:
        return given, ()
    at = given.index("--")
    return given[:at], tuple(given[at + 1 :])


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    verb = verbs.add_parser(
        "calibrate",
        help="measure how often the gate alarms when nothing changed, and what it catches",
        description=__doc__,
        usage="%(prog)s RECORD.json [options] [--real N [--plant ARM=FACTOR] [--neighbour SECONDS] -- COMMAND ...]",
        epilog="Example: perf-gate calibrate baselines/0001_first.json --real 20 --folder calibration"
        " --markdown docs/calibration.md --plot docs/calibration.svg -- pytest perf_tests",
    )
    verb.add_argument("record", metavar="RECORD.json", help="the record whose workers runs are drawn from")
    verb.add_argument("--machine", help="its machine class (default: the one recorded last)")
    verb.add_argument(
        "--against", metavar="RUN.json", nargs="+", type=Path, default=[], action="extend",
        help="real runs of the same code (--gate-samples), or folders of them: their workers join the pool, and each "
        "is judged itself",
    )  # fmt: skip
    verb.add_argument(
        "--disturbed", metavar="RUN.json", nargs="+", type=Path, default=[], action="extend",
        help="real runs with a busy neighbour, or folders of them: judged, but not drawn from",
    )  # fmt: skip
    _add_simulation(verb)
    real = verb.add_argument_group("real runs", "COMMAND is run N times, with a fresh --gate-samples file each.")
    real.add_argument("--real", metavar="N", type=checked(parse_count, "count"), default=0, help="number of runs")
    real.add_argument("--folder", type=Path, default=Path("calibration"), help="where they are kept (%(default)s)")
    real.add_argument(
        "--plant", metavar="ARM=FACTOR[@SCENARIO]", type=checked(parse_plant, "plant"),
        help=f"let the workers really wait, e.g. warm=1.05; @ID: in one scenario; @{EACH}: in one, all taking turns",
    )  # fmt: skip
    real.add_argument(
        "--neighbour", metavar="SECONDS", type=checked(parse_budget, "seconds"),
        help="burn one core during the middle half of a run that takes SECONDS",
    )  # fmt: skip
    verb.set_defaults(run=run)


def _add_simulation(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--runs", type=checked(parse_count, "count"), default=10_000, help="simulated runs (%(default)s)")
    verb.add_argument(
        "--rival-runs", type=checked(parse_count, "count"), default=2_000, help="for other rules (%(default)s)"
    )
    verb.add_argument("--arm", default="warm", help="the arm that is slowed down (%(default)s)")
    verb.add_argument(
        "--within",
        metavar="TEXT",
        default="",
        help="slow down only scenarios with TEXT in their names (all that have it)",
    )
    verb.add_argument(
        "--slowdowns", metavar="PERCENT,...", type=checked(parse_slowdowns, "percent"),
        default=parse_slowdowns("2,3,5,10,20"), help="planted slowdowns in percent (2,3,5,10,20)",
    )  # fmt: skip
    verb.add_argument(
        "--workers", metavar="MIN:MAX", type=checked(parse_workers, "workers"), default=COMPARE_WORKERS,
        help="workers of a candidate run, as in --gate-workers (8:10); a real run is judged by the looks in its file",
    )  # fmt: skip
    verb.add_argument(
        "--record-workers", type=checked(parse_count, "count"), default=RECORD_WORKERS,
        help="workers of a record (%(default)s)",
    )  # fmt: skip
    verb.add_argument("--alpha", type=checked(parse_chance, "chance"), default=Policy().alpha, help="(%(default)s)")
    verb.add_argument("--seed", type=checked(parse_seed, "seed"), default=0, help="of the draws (%(default)s)")
    verb.add_argument("--plot", metavar="FILE.svg", type=Path, help="write the power curve, as SVG and PNG")
    verb.add_argument("--markdown", metavar="FILE.md", type=Path, help="write the report")


def parse_slowdowns(text: str) -> tuple[float, ...]:
    """Percentages, comma-separated, as ascending shares. Raises ValueError."""
    try:
        shares = sorted({float(part) / 100 for part in text.split(",")})
    except ValueError:
        shares = [math.nan]
    if not all(0 < share <= 9 for share in shares):
        raise ValueError("give percentages > 0, e.g. 2,5,10")
    return tuple(shares)


def run(options: argparse.Namespace) -> int:
    """Make the real runs that were asked for, simulate, and print the report. Returns 0, 4 or 10."""
    wrong = _contradiction(options)
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


def _contradiction(options: argparse.Namespace) -> str | None:
    if bool(options.command) != bool(options.real):
        return "real runs need both --real N and -- COMMAND, e.g. --real 20 -- pytest perf_tests"
    if (options.plant or options.neighbour) and not options.real:
        return "--plant and --neighbour say how real runs are made: add --real N -- COMMAND"
    if options.plant and options.plant.arm != options.arm:
        return f"--plant slows {options.plant.arm!r} down, but --arm is {options.arm!r}: name the same arm"
    for option, path in (("--markdown", options.markdown), ("--plot", options.plot)):
        # Found before the wait, not after it.
        if path is not None and (found := obstacle(path)) is not None:
            return f"{option}={path} cannot be written: {found}"
    if options.real and (found := obstacle_below(options.folder)) is not None:
        return f"--folder={options.folder} cannot hold the runs: {found}"
    return None


def calibrate(options: argparse.Namespace) -> Report:
    """Everything but the output. Raises CalibrationError, RecordError."""
    record = load(options.record)
    section = _section(record, options.machine)
    looks = looks_between(*options.workers)
    policy = Policy(alpha=options.alpha, looks=len(looks))
    family = Family(gather({record.name: section.measurements}), policy)
    slowed = slowable(family, options.arm, options.within)
    slow = [family.scenarios[index] for index in slowed]

    runs = _runs(options, slow)
    sources = {record.name: section.measurements, **{name: each.measurements for name, each in runs.honest.items()}}
    pool = gather(sources)
    family = Family(pool, policy)
    drawn = split(pool.workers, options.record_workers, looks, policy)
    tallies = simulate(
        pool, family, drawn, _cases(options.slowdowns), arm=options.arm, within=options.within, runs=options.runs,
        seed=options.seed, tell=_teller("simulated runs"),
    )  # fmt: skip
    rivals = compete(
        pool, drawn, slowed, options.slowdowns, arm=options.arm, runs=options.rival_runs,
        seed=options.seed, troubles=TROUBLES, tell=_teller("runs under other rules"),
    )  # fmt: skip
    return Report(
        record=f"{Path(options.record).name} ({record.name}, profile {record.profile})",
        machine=section.machine,
        command=shlex.join(options.line),
        date=datetime.now(UTC).date().isoformat(),
        arm=options.arm,
        policy=policy,
        workers=pool.workers,
        sources=len(sources) - len(pool.left_out),
        left_out=pool.left_out,
        asked=Split(options.record_workers, looks),
        split=drawn,
        scenarios=len(family.scenarios),
        slowed=len(slow),
        rows=family.rows,
        tallies=tallies,
        real=_replayed(runs, Hearing(section, policy, looks), options, slow),
        rivals=rivals,
    )


def _section(record: Record, machine: str | None) -> Section:
    if machine is not None and machine not in record.sections:
        raise CalibrationError(f"{record.name} holds no machine class {machine!r}, only: {'; '.join(record.sections)}")
    return record.latest if machine is None else record.sections[machine]


def _cases(slowdowns: Sequence[float]) -> list[Case]:
    planted = [Case(slowdown, everywhere) for everywhere in (False, True) for slowdown in slowdowns]
    return [Case(), *planted, *(Case(trouble=trouble) for trouble in TROUBLES)]


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
        loop = Loop(options.command, options.folder, options.real, options.plant, ids, options.neighbour)
        (against if options.neighbour is None else disturbed).extend(loop.run(_say))
    found = {str(path): load_run(path) for path in dict.fromkeys(against)}
    return _Runs(
        {name: each for name, each in found.items() if not each.plant},
        {name: each for name, each in found.items() if each.plant},
        {str(path): load_run(path) for path in dict.fromkeys(disturbed)},
    )


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
