"""The gate's command-line options and ini values."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from perf_gate.measuring.measurement_run import BATCH
from perf_gate.measuring.slowdown import parse_slowdown
from perf_gate.session import threshold
from perf_gate.value import (
    checked,
    parse_budget,
    parse_count,
    parse_name,
    parse_python,
    parse_seed,
    parse_workers,
)

RECORD_WORKERS = (24, 24)
COMPARE_WORKERS = (8, 10)
# A record is made rarely and compared with often, so it may take longer.
RECORD_BUDGET = 480.0
COMPARE_BUDGET = 180.0
# Pairs of workers. There is one look: starting a pair takes as long as its rounds, and time that is kept for pairs that
# may not be needed would be missing for the others.
AGAINST_WORKERS = (6, 6)
# A lower minimum, so that a slow scenario (TPOT) leaves time to the others.
AGAINST_ROUNDS = (4, 150)
AGAINST_BUDGET = 220.0


def looks_between(least: int, most: int) -> tuple[int, ...]:
    """Return the numbers of workers after which verdicts are computed: the minimum, the maximum and the middle."""
    return tuple(sorted({least, (least + most) // (2 * BATCH) * BATCH, most}))


def add_options(parser: pytest.Parser) -> None:
    """Add the gate's options and ini values."""
    group = parser.getgroup("perf gate")
    group.addoption(
        "--gate-exact",
        action="store_true",
        help="Judge exact metrics only and time nothing. Gives the same verdict on any machine.",
    )
    group.addoption(
        "--gate-record",
        metavar="NAME",
        type=checked(parse_name, "name"),
        help="Measure at length and write the next record, e.g. baselines/0002_NAME.json. Refused if a test fails,"
        " something is left out or invalid, or the working tree has uncommitted changes.",
    )
    group.addoption(
        "--gate-budget",
        metavar="SECONDS",
        type=checked(parse_budget, "seconds"),
        help=f"Time for measuring all scenarios (default {COMPARE_BUDGET:g}; for a record {RECORD_BUDGET:g}; against a"
        f" base {AGAINST_BUDGET:g}).",
    )
    group.addoption(
        "--gate-workers",
        metavar="MIN:MAX",
        type=checked(parse_workers, "workers"),
        help="Minimum and maximum number of worker processes on each side (default {}:{}; for a record {}:{}; against a"
        " base {}:{}).".format(*COMPARE_WORKERS, *RECORD_WORKERS, *AGAINST_WORKERS),
    )
    group.addoption(
        "--gate-threads",
        metavar="N",
        type=checked(parse_count, "threads"),
        default=1,
        help="Threads of each numeric library in a worker (default 1).",
    )
    group.addoption(
        "--gate-deadline",
        metavar="SECONDS",
        type=checked(parse_budget, "seconds"),
        default=300.0,
        help="Kill a worker that takes longer to open a scenario or to run one pass of rounds (default 300).",
    )
    group.addoption(
        "--gate-seed",
        metavar="N",
        type=checked(parse_seed, "seed"),
        default=0,
        help="Seed for the order of scenarios, workers and arms (default 0).",
    )
    group.addoption(
        "--gate-samples",
        metavar="FILE",
        type=Path,
        help="Write every sample of this run to FILE, whatever the verdict, for perf-gate report and perf-gate"
        " calibrate. FILE is not a record.",
    )
    group.addoption(
        "--gate-report",
        metavar="FILE.html",
        type=Path,
        help="Write the verdict and its samples as one HTML page (needs the extra 'report').",
    )
    group.addoption(
        "--gate-plots",
        metavar="FOLDER",
        type=Path,
        help="Write the page's plots as SVG and PNG, and summary.md for a job summary (needs the extra 'report').",
    )
    group.addoption(
        "--gate-against",
        metavar="REV|DIR",
        nargs="?",
        const="",
        help="Measure another revision or directory in the same run, in turns, and compare with that instead of a"
        " record. 'REV...' is the merge base of REV and HEAD; without a value, it is the merge base with the default"
        " branch. Write it behind the paths of the suites.",
    )
    group.addoption(
        "--gate-against-python",
        metavar="PATH",
        type=checked(parse_python, "interpreter"),
        help="Interpreter for the base, with the packages installed there (default: this one).",
    )
    group.addoption(
        "--gate-rows", metavar="FILE", type=Path, help="Write the verdict and all its rows to FILE, as JSON."
    )
    group.addoption(
        "--gate-summary",
        metavar="FILE",
        type=Path,
        help="Append the verdict and its table to FILE as Markdown, e.g. --gate-summary=$GITHUB_STEP_SUMMARY.",
    )
    group.addoption(
        "--gate-annotate",
        action="store_true",
        help="Print GitHub's ::error commands, which are shown at the lines of the tests in a pull request.",
    )
    # For perf-gate bisect alone: where the candidate's subject comes from.
    group.addoption("--gate-candidate", type=Path, help=argparse.SUPPRESS)
    # For perf-gate calibrate alone: such a run is slowed down on purpose and measures nothing.
    group.addoption("--gate-inject", type=checked(parse_slowdown, "slowdown"), help=argparse.SUPPRESS)
    parser.addini("gate_alpha", "Chance that an unchanged run is red because of noise (0.001).", default="0.001")
    parser.addini(threshold.INI, "Lines 'metric name = 0.02': thresholds by metric.", type="linelist")
    parser.addini(
        threshold.PAIRED_INI,
        "Lines 'metric name = 0.01': thresholds against a base in the same run.",
        type="linelist",
    )
    parser.addini(
        "gate_subject",
        "The packages that differ between the two sides of --gate-against, by path from the ini file's folder.",
        type="linelist",
    )
    parser.addini("gate_baselines", "Folder of the records, from the ini file's folder.", default="baselines")
