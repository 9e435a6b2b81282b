"""What was asked for on the command line and in the ini file, validated."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perf_gate.branches.base import Base, find_base
from perf_gate.branches.repository import RepositoryError
from perf_gate.branches.subject import Subject, subject_of
from perf_gate.judging.policy import Policy
from perf_gate.measuring.campaign import BATCH, Plan
from perf_gate.measuring.crew import BASE, Conditions, Side
from perf_gate.measuring.plant import Plant, parse_plant
from perf_gate.session import allowance
from perf_gate.session.publication import Publication, parse_folder, parse_page

Value = TypeVar("Value")

RECORD_WORKERS = (24, 24)
COMPARE_WORKERS = (8, 10)
# A record is made rarely and compared with often: it may take longer.
RECORD_BUDGET = 480.0
COMPARE_BUDGET = 180.0
# Pairs: as many on each side.
AGAINST_WORKERS = (6, 8)
AGAINST_BUDGET = 210.0


def _option(check: Callable[[str], Value], name: str) -> Callable[[str], Value]:
    """Turn a parser that raises ValueError into one whose message argparse shows."""

    def parse(text: str) -> Value:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    parse.__name__ = name
    return parse


def parse_budget(text: str) -> float:
    """Seconds, finite and > 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError("give a number of seconds > 0")
    return seconds


def parse_workers(text: str) -> tuple[int, int]:
    """MIN:MAX, or one number for both; even, since workers come in pairs."""
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise ValueError("give MIN:MAX, e.g. 8:10")
    least, most = int(parts[0]), int(parts[-1])
    if least % BATCH or most % BATCH or not 0 < least <= most:
        raise ValueError("workers come in pairs: give even numbers with 0 < MIN <= MAX, e.g. 8:10")
    return least, most


def looks_between(least: int, most: int) -> tuple[int, ...]:
    """Numbers of workers after which a verdict is asked for: the least, the most, and the middle, in pairs."""
    return tuple(sorted({least, (least + most) // (2 * BATCH) * BATCH, most}))


def parse_threads(text: str) -> int:
    """A whole number >= 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("give a whole number >= 1")
    return int(text)


def parse_seed(text: str) -> int:
    """A whole number >= 0."""
    if not text.isdecimal():
        raise ValueError("give a whole number >= 0")
    return int(text)


def parse_name(text: str) -> str:
    """Letters, digits, dash, dot and underscore: it becomes part of a file name."""
    if not text or not all(c.isalnum() or c in "-._" for c in text) or text.startswith("."):
        raise ValueError("give a name of letters, digits, '-', '_' and '.', e.g. --gate-record tree-of-nodes")
    return text


def parse_chance(text: str) -> float:
    """A chance, > 0 and < 0.5."""
    try:
        chance = float(text)
    except ValueError:
        chance = math.nan
    if not 0 < chance < 0.5:
        raise ValueError("give a chance > 0 and < 0.5, e.g. 0.001")
    return chance


def parse_python(text: str) -> str:
    """An interpreter: a file that can be run."""
    path = Path(text).expanduser()
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ValueError("give the path of a Python interpreter, e.g. other/.venv/bin/python")
    # Not resolved: a virtual environment is known by the place of its link.
    return str(path.absolute())


def add_options(parser: pytest.Parser) -> None:
    """Add the gate's options and ini values."""
    group = parser.getgroup("perf gate")
    group.addoption(
        "--gate-exact",
        action="store_true",
        help="Judge exact metrics only; nothing is timed. The same verdict on any machine, however noisy.",
    )
    group.addoption(
        "--gate-record",
        metavar="NAME",
        type=_option(parse_name, "name"),
        help="Measure at length and write the next record, e.g. baselines/0002_NAME.json. Refused after a failing,"
        " partial or invalid run and in a dirty checkout.",
    )
    group.addoption(
        "--gate-budget",
        metavar="SECONDS",
        type=_option(parse_budget, "seconds"),
        help=f"Time for measuring all scenarios (default {COMPARE_BUDGET:g}; for a record {RECORD_BUDGET:g}; against a"
        f" base {AGAINST_BUDGET:g}).",
    )
    group.addoption(
        "--gate-workers",
        metavar="MIN:MAX",
        type=_option(parse_workers, "workers"),
        help="Least and most fresh worker processes on each side (default {}:{}; for a record {}:{}; against a base"
        " {}:{}).".format(*COMPARE_WORKERS, *RECORD_WORKERS, *AGAINST_WORKERS),
    )
    group.addoption(
        "--gate-threads",
        metavar="N",
        type=_option(parse_threads, "threads"),
        default=1,
        help="Threads of each numeric library in a worker (default 1).",
    )
    group.addoption(
        "--gate-deadline",
        metavar="SECONDS",
        type=_option(parse_budget, "seconds"),
        default=300.0,
        help="Longest time that opening a scenario or one pass of rounds may take before the worker counts as hung"
        " (default 300).",
    )
    group.addoption(
        "--gate-seed",
        metavar="N",
        type=_option(parse_seed, "seed"),
        default=0,
        help="Seed of the order of scenarios, workers and arms (default 0).",
    )
    group.addoption(
        "--gate-samples",
        metavar="FILE",
        type=Path,
        help="Write every sample of this run to FILE, whatever its verdict, for perf-gate calibrate. It is no record.",
    )
    group.addoption(
        "--gate-report",
        metavar="FILE.html",
        type=_option(parse_page, "page"),
        help="Write the verdict and the samples behind it as one HTML page (needs the extra 'report').",
    )
    group.addoption(
        "--gate-plots",
        metavar="FOLDER",
        type=_option(parse_folder, "folder"),
        help="Write the page's plots as SVG and PNG, and summary.md for a job summary (needs the extra 'report').",
    )
    group.addoption(
        "--gate-against",
        metavar="REV|DIR",
        nargs="?",
        const="",
        help="Measure another revision or directory in the same run, in turns, and judge against that instead of a"
        " record. REV... is its merge base with HEAD; without a value: the merge base with the default branch. Write it"
        " behind the paths of the suites.",
    )
    group.addoption(
        "--gate-against-python",
        metavar="PATH",
        type=_option(parse_python, "interpreter"),
        help="Interpreter for the base, with what is installed for it (default: this one).",
    )
    group.addoption(
        "--gate-rows", metavar="FILE", type=Path, help="Write the verdict and all its rows to FILE, as JSON."
    )
    group.addoption(
        "--gate-summary",
        metavar="FILE",
        type=Path,
        help="Append the verdict and its table to FILE, in Markdown: --gate-summary=$GITHUB_STEP_SUMMARY.",
    )
    group.addoption(
        "--gate-annotate",
        action="store_true",
        help="Print GitHub's ::error commands, which show at the scenario's file and line in a pull request.",
    )
    # For perf-gate bisect alone: where the candidate's subject comes from.
    group.addoption("--gate-candidate", type=Path, help=argparse.SUPPRESS)
    # For perf-gate calibrate alone: whoever reads --help must not take a run with it for a measurement.
    group.addoption("--gate-plant", type=_option(parse_plant, "plant"), help=argparse.SUPPRESS)
    parser.addini("gate_alpha", "Chance that an unchanged run is red because of timing (0.001).", default="0.001")
    parser.addini(allowance.INI, "Lines 'metric name = 0.02': allowances by metric.", type="linelist")
    parser.addini(
        allowance.AGAINST_INI,
        "Lines 'metric name = 0.01': allowances against a base in the same run.",
        type="linelist",
    )
    parser.addini(
        "gate_subject",
        "The packages under test, by path from the ini file's folder: what differs between the two sides of"
        " --gate-against.",
        type="linelist",
    )
    parser.addini("gate_baselines", "Folder of the records, from the ini file's folder.", default="baselines")


@dataclass(frozen=True)
class Against:
    """The base to measure beside the candidate. subject: what differs between them. python: None: the same.

    candidate: the project root that the candidate's subject comes from.
    """

    base: Base
    subject: Subject
    candidate: Path
    python: str | None = None

    def sides(self, root: Path, base_root: Path) -> tuple[Side, Side]:
        """Candidate and base: the same suites in the same directory `root`, each with its own subject."""
        ours = Side(root, homes=self.subject.homes(self.candidate))
        homes = self.subject.homes(base_root)
        if self.python is None:
            return ours, Side(root, BASE, homes=homes)
        return ours, Side(root, BASE, python=self.python, path=None, homes=homes)


@dataclass(frozen=True)
class Settings:
    """How this run measures and judges.

    root: folder of the ini file (of the root directory where there is none): names and records are relative
    to it.
    exact: nothing is timed. reference: None: nothing is compared; "": with the newest record; else with the
    record of this number.
    against: the base to judge against, measured in the same run, or None.
    record: name of the record to write, or None. samples: where to write the samples of a run that is no record.
    publication: the report to write. rows, summary: where to write the verdict, as JSON and in Markdown.
    annotate: print it for GitHub.
    """

    root: Path
    baselines: Path
    reference: str | None
    record: str | None
    exact: bool
    plan: Plan
    conditions: Conditions
    policy: Policy
    allowances: Mapping[str, float]
    samples: Path | None = None
    publication: Publication = field(default_factory=Publication)
    against: Against | None = None
    rows: Path | None = None
    summary: Path | None = None
    annotate: bool = False
    against_allowances: Mapping[str, float] = field(default_factory=dict)

    @property
    def plant(self) -> Plant | None:
        """The slowdown that this run is to be given on purpose."""
        return self.plan.plant

    @property
    def asks(self) -> bool:
        """Whether this run has to end with a verdict or a record."""
        return self.compares or self.record is not None

    @property
    def compares(self) -> bool:
        """Whether this run has to end with a verdict."""
        return self.reference is not None or self.against is not None


def settings(config: pytest.Config) -> Settings:
    """Read the settings of a run. Raises pytest.UsageError naming the bad value."""
    option: Any = config.getoption
    root = config.inipath.parent if config.inipath else config.rootpath
    record = option("gate_record")
    paired = option("gate_against") is not None
    usual = RECORD_WORKERS if record else AGAINST_WORKERS if paired else COMPARE_WORKERS
    usual_budget = RECORD_BUDGET if record else AGAINST_BUDGET if paired else COMPARE_BUDGET
    least, most = option("gate_workers") or usual
    exact = option("gate_exact") or is_disabled(config)
    looks = looks_between(least, most)
    policy = Policy(alpha=_ini(parse_chance, "gate_alpha", config.getini("gate_alpha")), looks=len(looks))
    found = Settings(
        root=root,
        baselines=root / config.getini("gate_baselines"),
        reference=_reference(config),
        record=record,
        exact=exact,
        plan=Plan(
            budget=option("gate_budget") or usual_budget,
            looks=looks,
            seed=option("gate_seed"),
            exact=exact,
            # What differs from a record is red either way; that it does not vary is shown when the record is made.
            counts=1 if _reference(config) is not None and not record else BATCH,
            plant=option("gate_plant"),
        ),
        conditions=Conditions(threads=option("gate_threads"), deadline=option("gate_deadline")),
        policy=policy,
        allowances=_allowances(config, allowance.INI),
        samples=_beside(config, "gate_samples"),
        publication=Publication(_beside(config, "gate_report"), _beside(config, "gate_plots"), policy.alpha),
        rows=_beside(config, "gate_rows"),
        summary=_beside(config, "gate_summary"),
        annotate=option("gate_annotate"),
        against=_against(config, root),
        against_allowances=_allowances(config, allowance.AGAINST_INI),
    )
    _refuse_untold_plant(found)
    if found.asks:
        _refuse_contradictions(config)
    return found


def _allowances(config: pytest.Config, name: str) -> dict[str, float]:
    return dict(_ini(allowance.parse_allowance, name, line) for line in config.getini(name))


def _against(config: pytest.Config, root: Path) -> Against | None:
    """What --gate-against asks for. Raises pytest.UsageError."""
    option: Any = config.getoption
    asked = option("gate_against")
    if asked is None:
        for name in ("gate_against_python", "gate_candidate"):
            if option(name) is not None:
                raise pytest.UsageError(f"--{name.replace('_', '-')} says how to measure a base: add --gate-against")
        return None
    others = {"--benchmark-compare": _reference(config) is not None, "--gate-record": option("gate_record") is not None}
    for other, given in others.items():
        if given:
            raise pytest.UsageError(
                f"--gate-against judges against a base in the same run, {other} is about records: run pytest twice, so"
                " that each verdict keeps its own promise of false alarms"
            )
    subject = _subject(config)
    here = config.invocation_params.dir
    candidate = root if option("gate_candidate") is None else (here / option("gate_candidate")).resolve()
    if missing := subject.missing(root):
        raise pytest.UsageError(f"ini value gate_subject: {root} holds no {', '.join(missing)}")
    try:
        base = find_base(asked, root, here, subject)
    except RepositoryError as error:
        raise pytest.UsageError(f"--gate-against: {error}") from None
    return Against(base, subject, candidate, option("gate_against_python"))


def _subject(config: pytest.Config) -> Subject:
    lines = config.getini("gate_subject")
    if not lines:
        raise pytest.UsageError(
            "--gate-against needs to know which packages differ between the two sides; say so in the ini file:"
            ' gate_subject = "my_package", or "src/my_package" (the suites are the candidate\'s on both sides)'
        )
    return _ini(lambda text: subject_of(text.splitlines()), "gate_subject", "\n".join(lines))


def _beside(config: pytest.Config, option: str) -> Path | None:
    """The path of an option, from where the command was given."""
    asked: Any = config.getoption(option)
    return None if asked is None else config.invocation_params.dir / asked


def _refuse_untold_plant(found: Settings) -> None:
    """A run that was slowed down on purpose must leave no trace that looks like a measurement."""
    if found.plant is not None and found.record is not None:
        raise pytest.UsageError(
            "--gate-plant slows the run down on purpose: it can never be a record, drop one of both"
        )
    if found.plant is not None and found.samples is None:
        raise pytest.UsageError("--gate-plant is for perf-gate calibrate, which reads the run from --gate-samples=FILE")
    if found.samples is not None and found.samples.resolve().is_relative_to(found.baselines.resolve()):
        raise pytest.UsageError(
            f"--gate-samples={found.samples} would put the samples of one run among the records: choose another folder"
        )


def _ini(parse: Callable[[str], Value], name: str, text: str) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise pytest.UsageError(f"ini value {name}: {text!r}: {error}") from None


def _reference(config: pytest.Config) -> str | None:
    """What --benchmark-compare asks for; it takes a value, and the value may be a path that was meant as such."""
    compare: Any = config.getoption("benchmark_compare", None)
    if compare is True:
        return ""
    if not compare:
        return None
    text = str(compare)
    if "/" in text or os.sep in text or (config.invocation_params.dir / text.partition("::")[0]).exists():
        raise pytest.UsageError(
            f"--benchmark-compare took {text!r} for the number of a record, so that path would not be tested:"
            f" write 'pytest {text} --benchmark-compare', the option last (in addopts it takes what follows)"
        )
    return text


def _refuse_contradictions(config: pytest.Config) -> None:
    """Options under which nothing would be measured or judged contradict a verdict and a record."""
    option: Any = config.getoption
    verdict = next(
        name
        for name, given in {
            "--gate-record": option("gate_record"),
            "--gate-against": option("gate_against") is not None,
            "--benchmark-compare": True,
        }.items()
        if given
    )
    contradictions: dict[str, bool] = {
        "--benchmark-skip": option("benchmark_skip", False) and not option("benchmark_only", False),
        "--benchmark-disable": is_disabled(config),
        "--collect-only": option("collectonly", False),
        "--setup-plan": option("setupplan", False),
        "--setup-only": option("setuponly", False),
        "-n / --dist (pytest-xdist)": is_distributed(config),
    }
    if option("gate_record"):
        # They keep whole files from being collected, so that nobody would notice what is not measured.
        for name in ("lf", "stepwise", "ignore", "ignore_glob"):
            contradictions[f"--{name.replace('_', '-')}"] = bool(option(name, None))
    for name, given in contradictions.items():
        if given:
            raise pytest.UsageError(
                f"{verdict} needs to measure, and {name} leaves nothing measured: drop one of the two"
            )


def is_disabled(config: pytest.Config) -> bool:
    """Whether pytest-benchmark was told not to time anything."""
    option: Any = config.getoption
    return bool(option("benchmark_disable", False)) and not option("benchmark_enable", False)


def is_distributed(config: pytest.Config) -> bool:
    """Whether pytest-xdist spreads the tests over processes, here or in the process that started this one."""
    option: Any = config.getoption
    return option("dist", "no") != "no" or bool(option("numprocesses", None)) or hasattr(config, "workerinput")
