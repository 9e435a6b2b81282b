"""The options of a run, read from the command line and the ini file and validated."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perf_gate.branches.base import find_base
from perf_gate.branches.repository import RepositoryError
from perf_gate.branches.subject import Subject, subject_of
from perf_gate.judging.policy import Policy
from perf_gate.measuring.measurement_run import BATCH, Plan
from perf_gate.measuring.slowdown import InjectedSlowdown
from perf_gate.measuring.worker_pool import Conditions
from perf_gate.records.writable import why_not_writable_in
from perf_gate.session import threshold
from perf_gate.session.against import Against
from perf_gate.session.options import (
    AGAINST_BUDGET,
    AGAINST_ROUNDS,
    AGAINST_WORKERS,
    COMPARE_BUDGET,
    COMPARE_WORKERS,
    RECORD_BUDGET,
    RECORD_WORKERS,
    looks_between,
)
from perf_gate.session.output import OUTPUT_OPTIONS, Output, OutputError, outputs
from perf_gate.session.report_writer import ReportWriter
from perf_gate.value import Value, parse_chance

# Options under which pytest only lists something and runs no test: by option, pytest's name for it.
ASKING = {
    "--collect-only": "collectonly",
    "--fixtures": "showfixtures",
    "--fixtures-per-test": "show_fixtures_per_test",
    "--cache-show": "cacheshow",
}


@dataclass(frozen=True)
class Settings:
    """How this run measures and judges.

    root: folder of the ini file, else pytest's root directory; names and records are relative to it. exact: time
    nothing. reference: None: compare with no record; "": with the newest; else with the record of this number. against:
    the base to compare with, or None. record: name of the record to write, or None. samples, rows, summary: files for
    samples, for the verdict as JSON, and for the verdict in Markdown. report_writer: the report to write. annotate:
    print GitHub's commands. outputs: all files and folders to write, but for the record.
    """

    root: Path
    baselines: Path
    reference: str | None
    record: str | None
    exact: bool
    plan: Plan
    conditions: Conditions
    policy: Policy
    thresholds: Mapping[str, float]
    samples: Path | None = None
    report_writer: ReportWriter = field(default_factory=ReportWriter)
    against: Against | None = None
    rows: Path | None = None
    summary: Path | None = None
    annotate: bool = False
    paired_thresholds: Mapping[str, float] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()

    @property
    def injected(self) -> InjectedSlowdown | None:
        """The slowdown that the workers add to this run, or None."""
        return self.plan.injected

    @property
    def asks(self) -> bool:
        """Whether this run makes a verdict or a record."""
        return self.compares or self.record is not None

    @property
    def compares(self) -> bool:
        """Whether this run makes a verdict."""
        return self.reference is not None or self.against is not None


def settings(config: pytest.Config) -> Settings:
    """Return the settings of a run. Raises pytest.UsageError naming the bad value."""
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
    places = {option: _place(config, option) for option in OUTPUT_OPTIONS}
    found = Settings(
        root=root,
        baselines=root / config.getini("gate_baselines"),
        reference=_reference(config),
        record=record,
        exact=exact,
        plan=Plan(
            budget=option("gate_budget") or usual_budget,
            looks=looks,
            rounds=AGAINST_ROUNDS if paired else Plan.rounds,
            seed=option("gate_seed"),
            exact=exact,
            # Making the record has shown that the counts do not vary, so one process is enough for a comparison.
            counts=1 if _reference(config) is not None and not record else BATCH,
            injected=option("gate_inject"),
        ),
        conditions=Conditions(threads=option("gate_threads"), deadline=option("gate_deadline")),
        policy=policy,
        thresholds=_thresholds(config, threshold.INI),
        samples=places["--gate-samples"],
        report_writer=ReportWriter(places["--gate-report"], places["--gate-plots"], policy.alpha),
        rows=places["--gate-rows"],
        summary=places["--gate-summary"],
        annotate=option("gate_annotate"),
        against=_against(config, root),
        paired_thresholds=_thresholds(config, threshold.PAIRED_INI),
        outputs=outputs(places),
    )
    _refuse_injected_record(found)
    _refuse_bad_places(found)
    if found.asks:
        _refuse_contradictions(config)
    return found


def _thresholds(config: pytest.Config, name: str) -> dict[str, float]:
    return dict(_ini(threshold.parse_threshold, name, line) for line in config.getini(name))


def _against(config: pytest.Config, root: Path) -> Against | None:
    """Return what --gate-against asks for. Raises pytest.UsageError."""
    option: Any = config.getoption
    asked = option("gate_against")
    if asked is None:
        for name in ("gate_against_python", "gate_candidate"):
            if option(name) is not None:
                raise pytest.UsageError(f"--{name.replace('_', '-')} is for a base: add --gate-against")
        return None
    others = {"--benchmark-compare": _reference(config) is not None, "--gate-record": option("gate_record") is not None}
    for other, given in others.items():
        if given:
            raise pytest.UsageError(
                f"--gate-against compares with a base, and {other} is about records: run pytest twice, so that each"
                " verdict keeps its own false-alarm rate"
            )
    subject = _subject(config)
    here = config.invocation_params.dir
    candidate = root if option("gate_candidate") is None else (here / option("gate_candidate")).resolve()
    if missing := subject.missing(root):
        raise pytest.UsageError(f"ini value gate_subject: {root} has no {', '.join(missing)}")
    try:
        base = find_base(asked, root, here, subject)
    except RepositoryError as error:
        raise pytest.UsageError(f"--gate-against: {error}") from None
    return Against(base, subject, candidate, option("gate_against_python"))


def _subject(config: pytest.Config) -> Subject:
    lines = config.getini("gate_subject")
    if not lines:
        raise pytest.UsageError(
            "--gate-against needs to know which packages differ between the two sides. Name them in the ini file:"
            ' gate_subject = "my_package", or "src/my_package" (the suites are the candidate\'s on both sides)'
        )
    return _ini(lambda text: subject_of(text.splitlines()), "gate_subject", "\n".join(lines))


def _place(config: pytest.Config, option: str) -> Path | None:
    """Return the path of an option, relative to the working directory of the command."""
    asked: Any = config.getoption(option)
    return None if asked is None else config.invocation_params.dir / asked


def _refuse_injected_record(found: Settings) -> None:
    """Refuse to record, or to judge as usual, a run that is slowed down on purpose."""
    if found.injected is not None and found.record is not None:
        raise pytest.UsageError(
            "--gate-inject slows the run down on purpose, so it can never be a record: drop one of the two"
        )
    if found.injected is not None and found.samples is None:
        raise pytest.UsageError(
            "--gate-inject is for perf-gate calibrate, which reads the run from --gate-samples=FILE"
        )


def _refuse_bad_places(found: Settings) -> None:
    """Raise pytest.UsageError for an output that cannot be written, before anything is measured."""
    taken: dict[Path, str] = {}
    for target in found.outputs:
        if (other := taken.setdefault(target.path.resolve(), target.option)) != target.option:
            raise pytest.UsageError(
                f"{other} and {target.option} both name {target.path}, so one would replace the other: give two paths"
            )
        if (plots := found.report_writer.plots) is not None and plots.resolve() in target.path.resolve().parents:
            raise pytest.UsageError(
                f"{target.option}={target.path} is in the folder that --gate-plots={plots} writes: give another path"
            )
        if target.path.resolve().is_relative_to(found.baselines.resolve()):
            raise pytest.UsageError(f"{target.option}={target.path} is in the folder of the records: give another path")
        try:
            target.check()
        except OutputError as error:
            raise pytest.UsageError(str(error)) from None
    if found.record is not None and (why := why_not_writable_in(found.baselines)) is not None:
        raise pytest.UsageError(f"--gate-record={found.record}: {why}")


def _ini(parse: Callable[[str], Value], name: str, text: str) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise pytest.UsageError(f"ini value {name}: {text!r}: {error}") from None


def _reference(config: pytest.Config) -> str | None:
    """Return the value of --benchmark-compare. Raises pytest.UsageError if it took a path for its value."""
    compare: Any = config.getoption("benchmark_compare", None)
    if compare is True:
        return ""
    if not compare:
        return None
    text = str(compare)
    if "/" in text or os.sep in text or (config.invocation_params.dir / text.partition("::")[0]).exists():
        raise pytest.UsageError(
            f"--benchmark-compare took {text!r} for the number of a record, so that path would not be tested: write"
            f" 'pytest {text} --benchmark-compare', with the option last (in addopts it takes what follows)"
        )
    return text


def _refuse_contradictions(config: pytest.Config) -> None:
    """Raise pytest.UsageError for options under which nothing would be measured."""
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
        **{name: bool(option(asking, None)) for name, asking in ASKING.items()},
        "--setup-plan": option("setupplan", False),
        "--setup-only": option("setuponly", False),
        "-n / --dist (pytest-xdist)": is_distributed(config),
    }
    if option("gate_record"):
        # They keep whole files from being collected, and nothing would say what was not recorded.
        for name in ("lf", "stepwise", "ignore", "ignore_glob"):
            contradictions[f"--{name.replace('_', '-')}"] = bool(option(name, None))
    for name, given in contradictions.items():
        if given:
            raise pytest.UsageError(
                f"{verdict} has to measure, and with {name} nothing is measured: drop one of the two"
            )


def is_disabled(config: pytest.Config) -> bool:
    """Return whether pytest-benchmark is disabled."""
    option: Any = config.getoption
    return bool(option("benchmark_disable", False)) and not option("benchmark_enable", False)


def only_asks(config: pytest.Config) -> bool:
    """Return whether pytest only lists something and runs no test."""
    option: Any = config.getoption
    return any(option(name, None) for name in ASKING.values())


def is_distributed(config: pytest.Config) -> bool:
    """Return whether pytest-xdist distributes the tests, in this process or in the one that started it."""
    option: Any = config.getoption
    return option("dist", "no") != "no" or bool(option("numprocesses", None)) or hasattr(config, "workerinput")
