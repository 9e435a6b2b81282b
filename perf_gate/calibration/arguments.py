"""The command line of `perf-gate calibrate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perf_gate.calibration import power_curve
from perf_gate.calibration.real_runs import EACH
from perf_gate.judging.policy import Policy
from perf_gate.measuring.slowdown import parse_slowdown
from perf_gate.records.writable import why_not_writable, why_not_writable_in
from perf_gate.session.options import AGAINST_WORKERS, COMPARE_WORKERS, RECORD_WORKERS
from perf_gate.session.threshold import parse_threshold
from perf_gate.value import checked, number, parse_budget, parse_chance, parse_count, parse_seed, parse_workers


def add_verb(verbs: Any) -> Any:
    """Add the verb to the command line; returns its parser."""
    verb = verbs.add_parser(
        "calibrate",
        help="measure the false-alarm rate and the detection rate of the gate",
        description="Measure how often the gate is wrong, from samples of your own machine.",
        usage="%(prog)s {RECORD.json | --paired} [options]"
        " [--real N [--inject ARM=FACTOR] [--neighbour SECONDS] -- COMMAND ...]",
        epilog="Examples: perf-gate calibrate baselines/0001_first.json --real 20 --folder calibration"
        " --markdown docs/calibration.md --plot docs/calibration.svg -- pytest perf_tests;"
        " perf-gate calibrate --paired --real 20 --folder pairs -- pytest perf_tests --gate-against=HEAD",
    )
    verb.add_argument(
        "record", metavar="RECORD.json", nargs="?", help="the record; simulated runs are drawn from its workers"
    )
    verb.add_argument(
        "--paired", action="store_true",
        help="calibrate --gate-against instead, from pairs of workers of runs with the same code on both sides",
    )  # fmt: skip
    verb.add_argument("--machine", help="the machine class of the record (default: the one recorded last)")
    verb.add_argument(
        "--against", metavar="RUN.json", nargs="+", type=Path, default=[], action="extend",
        help="files of --gate-samples from runs of the same code, or folders of them: their workers are "
        "drawn from too, and each run is judged itself",
    )  # fmt: skip
    verb.add_argument(
        "--disturbed", metavar="RUN.json", nargs="+", type=Path, default=[], action="extend",
        help="the same from runs with another busy process: they are judged, but no runs are drawn from them",
    )  # fmt: skip
    _add_simulation(verb)
    real = verb.add_argument_group("real runs", "Run COMMAND N times, each with a --gate-samples file of its own.")
    real.add_argument("--real", metavar="N", type=checked(parse_count, "count"), default=0, help="number of runs")
    real.add_argument(
        "--folder", type=Path, default=Path("calibration"), help="the folder for their files (%(default)s)"
    )
    real.add_argument(
        "--inject", metavar="ARM=FACTOR[@SCENARIO]", type=checked(parse_slowdown, "slowdown"),
        help=f"slow down the workers, e.g. warm=1.05; with @ID in this scenario; with @{EACH} in one scenario per "
        "run, in turn",
    )  # fmt: skip
    real.add_argument(
        "--neighbour", metavar="SECONDS", type=checked(parse_budget, "seconds"),
        help="keep one core busy during the middle half of a run that takes SECONDS",
    )  # fmt: skip
    return verb


def _add_simulation(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--runs", type=checked(parse_count, "count"), default=10_000, help="number of simulated runs (%(default)s)"
    )
    verb.add_argument(
        "--rule-runs",
        type=checked(parse_count, "count"),
        default=2_000,
        help="number of simulated runs for each rule of other tools (%(default)s)",
    )
    verb.add_argument("--arm", default="warm", help="the arm that is slowed down (%(default)s)")
    verb.add_argument(
        "--within",
        metavar="TEXT",
        default="",
        help="slow down only scenarios with TEXT in their names (default: every scenario with this arm)",
    )
    verb.add_argument(
        "--slowdowns", metavar="PERCENT,...", type=checked(parse_slowdowns, "percent"),
        default=parse_slowdowns("2,3,5,10,20"), help="injected slowdowns in percent (2,3,5,10,20)",
    )  # fmt: skip
    verb.add_argument(
        "--workers", metavar="MIN:MAX", type=checked(parse_workers, "workers"),
        help="workers of a simulated run, as in --gate-workers ({}:{}; paired {}:{}); real runs use the "
        "settings in their files".format(*COMPARE_WORKERS, *AGAINST_WORKERS),
    )  # fmt: skip
    verb.add_argument(
        "--record-workers", type=checked(parse_count, "count"), default=RECORD_WORKERS[-1],
        help="workers of a record (%(default)s)",
    )  # fmt: skip
    verb.add_argument(
        "--threshold", metavar="METRIC=SHARE", type=checked(parse_threshold, "threshold"), default=[], action="append",
        help="the threshold of METRIC, e.g. 'reuse efficiency=0.01'; may be given several times (default: the one in "
        "the files)",
    )  # fmt: skip
    verb.add_argument(
        "--alpha",
        type=checked(parse_chance, "chance"),
        default=Policy().alpha,
        help="false-alarm rate of a run (%(default)s)",
    )
    verb.add_argument("--seed", type=checked(parse_seed, "seed"), default=0, help="random seed (%(default)s)")
    verb.add_argument("--plot", metavar="FILE.svg", type=Path, help="write the power curve, as SVG and PNG")
    verb.add_argument("--markdown", metavar="FILE.md", type=Path, help="write the report")


def parse_slowdowns(text: str) -> tuple[float, ...]:
    """Percentages, comma-separated, as ascending shares. Raises ValueError."""
    shares = sorted({number(part) / 100 for part in text.split(",")})
    if not all(0 < share <= 9 for share in shares):
        raise ValueError("give percentages > 0, e.g. 2,5,10")
    return tuple(shares)


def contradiction(options: argparse.Namespace) -> str | None:
    """Return what is wrong with the options taken together, or None."""
    paired, injected = options.paired, options.inject
    wrong = {
        "give either a record or --paired": paired is (options.record is not None),
        "--paired needs real runs: give them with --against, or make them with --real N -- COMMAND": paired
        and not (options.against or options.real),
        "--machine selects a machine class of a record, and --paired has no record: drop one of the two": paired
        and bool(options.machine),
        f"--inject ...@{EACH} takes the scenarios of a record, and --paired has no record: name one scenario": paired
        and injected is not None
        and injected.scenario == EACH,
        "real runs need both --real N and -- COMMAND, e.g. --real 20 -- pytest perf_tests": bool(options.command)
        is not bool(options.real),
        "--inject and --neighbour only apply to real runs: add --real N -- COMMAND": not options.real
        and bool(injected or options.neighbour),
        f"--inject slows down another arm than --arm, which is {options.arm!r}: give the same arm": injected is not None
        and injected.arm != options.arm,
    }
    return next((what for what, so in wrong.items() if so), None) or _why_not_writable(options)


def _why_not_writable(options: argparse.Namespace) -> str | None:
    """Return why an output cannot be written, or None. Called before anything is measured."""
    for option, path in (
        ("--markdown", options.markdown),
        *(("--plot", each) for each in power_curve.files(options.plot)),
    ):
        if path is not None and (found := why_not_writable(path)) is not None:
            return f"{option}={path} cannot be written: {found}"
    if options.real and (found := why_not_writable_in(options.folder)) is not None:
        return f"--folder={options.folder} cannot be used for the runs: {found}"
    return None
