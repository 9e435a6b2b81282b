"""One pytest session with the gate: measures, gives each test its verdict, and sets the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from perf_gate.branches.repository import RepositoryError
from perf_gate.measurement import Measurement
from perf_gate.measuring.measurement_run import MeasurementError, MeasurementRun, Undecided
from perf_gate.measuring.progress import LiveLine, PlainLines, Progress
from perf_gate.measuring.samples import Task
from perf_gate.measuring.worker_pool import Side
from perf_gate.metric import Exact
from perf_gate.records.provenance import provenance
from perf_gate.records.recordable import NotRecordableError
from perf_gate.records.recording import record, require_possible
from perf_gate.records.section import RecordError
from perf_gate.reporting.library import ReportError, require
from perf_gate.scenario import Scenario
from perf_gate.session.benchmark_rows import add_benchmark_rows
from perf_gate.session.output import clear, mark_unfinished
from perf_gate.session.scenario_collector import ScenarioCollector
from perf_gate.session.selection import MARKER, scenario_of
from perf_gate.session.session_reporter import SessionReporter
from perf_gate.session.session_state import SessionState
from perf_gate.session.settings import Settings, is_distributed, only_asks
from perf_gate.showing import table
from perf_gate.verdict import Exit, Row, Verdict, exit_status

TEST_FAILED = int(pytest.ExitCode.TESTS_FAILED)
RED = ("perf gate", "red")


class GatePlugin:
    """A plugin object: its pytest_* methods are hooks. It does nothing if no test uses scenarios."""

    def __init__(self, config: pytest.Config, settings: Settings, collector: ScenarioCollector) -> None:
        """Keep the settings; the scenarios are known after collection."""
        self.settings = settings
        self._config = config
        self._collector = collector
        self._state = SessionState()
        self._reporter = SessionReporter(settings, collector, self._state)
        self._selected: list[str] = []
        self._judged: set[str] = set()
        self._red: list[str] = []
        self._waiting: list[Task] = []
        self._over = self._green = False

    @property
    def active(self) -> bool:
        """Whether there is anything to report: a scenario was collected, or a verdict, record or report asked for."""
        asked = self.settings.asks or self.settings.report_writer
        return bool(self._collector.tasks or self._red or asked) and not only_asks(self._config)

    @property
    def _muted(self) -> bool:
        return self._config.get_verbosity() <= -2

    @property
    def _idle(self) -> bool:
        return only_asks(self._config) or hasattr(self._config, "workerinput")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Remove the outputs of an earlier run, and check that a report can be made."""
        if self._idle:
            return
        clear(self.settings.outputs)
        try:
            if self.settings.report_writer:
                require()
        except ReportError as error:
            raise pytest.UsageError(str(error)) from None

    def pytest_report_collectionfinish(self) -> list[str]:
        """Print what is going to be measured and compared, before the wait begins."""
        if not self.active or is_distributed(self._config) or self._muted:
            return []
        if self.settings.compares:
            self._prepare()
        return [f"perf gate: {line}" for line in self._reporter.opening()]

    # ---------------------------------------------------------------- measuring

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Collect the scenarios to measure. If it is known by now that nothing can be judged, run no test at all."""
        option = session.config.option
        broken = session.testsfailed and not option.continue_on_collection_errors
        if broken or not self.active:
            return None
        chosen = self._select(session)
        if self._state.fault is not None:
            return True if self.settings.asks else None
        if not option.setuponly:
            self._waiting = list(chosen.values())
        return None

    def _select(self, session: pytest.Session) -> dict[str, Task]:
        """Return the selected scenarios by test, and note what is wrong before any test."""
        chosen = self._collector.chosen(session.items)
        self._selected = [task.name for task in chosen.values()]
        self._prepare()
        for item in session.items:
            if item.nodeid in chosen and item.get_closest_marker("xfail") and self.settings.asks:
                self._state.fail(f"{item.nodeid} is marked xfail, which would hide its verdict: take the mark off")
        if not chosen and self.settings.asks:
            self._state.fail("no scenario was selected: give the path of the suites, and drop -k, -m and --deselect")
        return chosen

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Measure all scenarios before the first test of one; the tests before it check that the answers are right."""
        if not self._waiting or item.nodeid not in self._collector.tasks:
            return
        waiting, self._waiting = self._waiting, []
        if self._state.failures:
            first = self._state.failures[0]
            self._state.fail(
                f"nothing was measured: {first} failed first, and wrong answers are not worth timing; fix it"
            )
        else:
            self._measure(waiting)

    def _prepare(self) -> None:
        """Find the provenance of the run and what to compare it with; once, before anything is measured."""
        if self._state.provenance.machine or self._state.fault is not None:
            return
        if is_distributed(self._config):
            self._state.fail("pytest-xdist runs tests in parallel, so nothing was measured: drop -n")
            return
        options: dict[str, str | int | float | bool | None] = {}
        for answer in self._config.hook.pytest_perf_gate_options(config=self._config):
            options |= answer
        settings = self.settings
        besides = (
            [settings.baselines.relative_to(settings.root).as_posix()]
            if settings.baselines.is_relative_to(settings.root)
            else []
        )
        self._state.provenance = provenance(
            settings.root,
            threads=settings.conditions.threads,
            options=options,
            command=["pytest", *map(str, self._config.invocation_params.args)],
            besides=besides,
        )
        if settings.record is not None:
            try:
                require_possible(
                    settings.baselines,
                    self._state.provenance,
                    left_out=self._collector.left_out,
                    sampled=not settings.exact,
                )
            except NotRecordableError as error:
                self._state.fail("; ".join(error.reasons))
            except RecordError as error:
                self._state.fail(str(error))
        if settings.reference is None:
            return
        from perf_gate.session.record_comparison import RecordComparison  # noqa: PLC0415 - it imports scipy, which takes long

        try:
            comparison = self._state.comparison = RecordComparison(
                settings.baselines,
                settings.reference,
                provenance=self._state.provenance,
                scope=self._collector.scope,
                policy=settings.policy,
                sampled=not settings.exact,
            )
        except RecordError as error:
            self._state.fail(str(error))
            return
        if not comparison.asked:
            self._state.fail(
                f"0 of {comparison.held} recorded scenarios were compared: none of them is in "
                f"{self._collector.scope or 'the project'}; give the path of the suites, or record anew"
            )

    def _measure(self, chosen: Sequence[Task]) -> None:
        comparison, against, base = self._state.comparison, self.settings.against, None
        side = Side(self.settings.root)
        try:
            with ExitStack() as stack:
                if against is not None:
                    root = stack.enter_context(against.base.laid_out())
                    side, base = against.sides(self.settings.root, root)
                run = MeasurementRun(
                    chosen,
                    side=side,
                    base=base,
                    plan=self.settings.plan,
                    conditions=self.settings.conditions,
                    progress=self._progress(),
                )
                decide: Undecided | None = None
                if against is not None:
                    decide = partial(self._undecided_paired, run)
                elif self.settings.record is None:
                    decide = comparison.undecided if comparison is not None else nothing_undecided
                outcome = run.run(decide)
        except (MeasurementError, RepositoryError) as error:
            self._state.fail(str(error))
            return
        self._state.log = outcome.log
        self._state.measured = {
            each.scenario: replace(each, machine=self._state.provenance.machine) for each in outcome.measurements
        }
        if comparison is not None:
            self._state.rows = comparison.judge(tuple(self._state.measured.values()), outcome.log.look)
        if against is not None:
            self._state.base = outcome.base
            self._state.rows = self._judge_paired(outcome.measurements, outcome.base, outcome.log.look)

    def _judge_paired(self, now: Sequence[Measurement], base: Sequence[Measurement], look: int) -> list[Row]:
        from perf_gate.judging.judge import judge_paired  # noqa: PLC0415 - as above

        settings = self.settings
        return judge_paired(now, base, policy=settings.policy, look=look, sampled=not settings.exact)

    def _undecided_paired(self, run: MeasurementRun, now: Sequence[Measurement], look: int) -> set[str]:
        from perf_gate.judging.judge import undecided  # noqa: PLC0415 - as above

        return undecided(self._judge_paired(now, run.base, look))

    def _progress(self) -> Progress:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self._muted:
            return Progress()
        reporter.ensure_newline()
        return LiveLine(reporter._tw._file) if reporter.isatty else PlainLines(reporter.write_line)

    # ---------------------------------------------------------------- judging

    def judge(self, item: pytest.Item, scenario: Scenario) -> None:
        """Add the scenario's samples to pytest-benchmark's table, and fail the test unless every metric passes."""
        __tracebackhide__ = True
        task = self._collector.tasks.get(item.nodeid)
        if task is None or scenario != scenario_of(item):
            raise pytest.UsageError(
                f"{item.nodeid}: gate.judge takes the argument 'scenario' of a test with @pytest.mark.{MARKER}"
            )
        if self._state.fault is not None or task.name not in self._state.measured:
            why = "it was not measured" if self._state.fault is None else "see 'perf gate' below"
            self._fail(item, f"{task.name}: cannot be judged: {why}")
        self._judged.add(task.name)
        measurement = self._state.measured[task.name]
        if measurement.invalid is not None:
            self._fail(item, f"{task.name}: invalid: {measurement.invalid}")
        add_benchmark_rows(item, self._config.pluginmanager.get_plugin("pytest-benchmark"), scenario, measurement)
        exact = [metric for metric in measurement.metrics if isinstance(metric, Exact)]
        item.user_properties.extend((metric.name, measurement.exact[metric.name]) for metric in exact)
        rows = [row for row in self._state.rows if row.scenario == task.name]
        if any(map(table.red, rows)):
            self._fail(item, table.failure_text(rows))

    def _fail(self, item: pytest.Item, text: str) -> None:
        __tracebackhide__ = True
        # Kept in the report, so that it arrives from another process too.
        item.user_properties.append(RED)
        pytest.fail(text, pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Distinguish a test that failed by its verdict from one that failed for another reason."""
        if report.failed:
            ours = report.when == "call" and any(tuple(each) == RED for each in report.user_properties)
            (self._red if ours else self._state.failures).append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that cannot be collected as a failure."""
        if report.failed:
            self._state.failures.append(report.nodeid)

    # ---------------------------------------------------------------- the end

    def _unjudged(self) -> list[Row]:
        """Return rows for the scenarios whose test ended before its verdict."""
        why = "selected, but its test ended before the verdict (skipped, stopped by -x, or failed): run it."
        lost = [name for name in self._selected if name not in self._judged]
        rows = [Row(name, None, Verdict.MISSING, why=why) for name in lost]
        if self.settings.against is not None:
            # With a record, the record itself says what is missing.
            why = "left out by -k, -m, --deselect or the like: drop that option, or give the paths to judge."
            rows += [Row(name, None, Verdict.MISSING, why=why) for name in self._collector.left_out]
        return rows

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the record and the other outputs, and set the exit status."""
        ends = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._idle:
            return
        if exitstatus not in ends:
            mark_unfinished(self.settings.outputs)
            return
        if not self.active:
            return
        self._over = True
        if self.settings.compares and self._state.fault is None:
            self._state.rows = [*self._state.rows, *self._unjudged()]
        if self.settings.record is not None:
            self._record(self.settings.record)
        if self.settings.samples is not None and self._state.fault is None:
            self._reporter.keep_samples(self.settings.samples)
        session.exitstatus = self._reporter.write_outputs(self._status(int(exitstatus)))
        self._green = session.exitstatus == Exit.PASS

    def _status(self, exitstatus: int) -> int:
        """Return 1 for a failed test or a regression, 10 if anything that was asked for could not be judged."""
        verdicts = exit_status(self._state.rows) if self.settings.compares else Exit.PASS
        if self._state.failures or verdicts is Exit.REGRESSED:
            return TEST_FAILED
        failed = self._state.fault is not None and (self.settings.asks or bool(self._selected))
        if failed or self._state.not_recorded is not None or verdicts is not Exit.PASS:
            return int(Exit.CANNOT_JUDGE)
        return int(Exit.CANNOT_JUDGE) if self._red else exitstatus

    def _record(self, name: str) -> None:
        unmeasured = [name for name in self._selected if name not in self._state.measured]
        try:
            path = record(
                self.settings.baselines,
                name,
                tuple(self._state.measured.values()),
                self._state.provenance,
                failed=[*self._state.failures, *self._red],
                left_out=[*self._collector.left_out, *(row.scenario for row in self._unjudged())],
                unmeasured=unmeasured,
                scope=self._collector.scope,
                sampled=not self.settings.exact,
                workers=min(self.settings.plan.looks),
            )
        except (NotRecordableError, RecordError) as error:
            self._state.not_recorded = str(error) if self._state.fault is None else "nothing was recorded"
        else:
            self._state.recorded.append(path.name)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the verdicts after pytest-benchmark's tables."""
        if not self.active or hasattr(self._config, "workerinput") or (self._muted and self._green):
            return
        terminalreporter.section("perf gate")
        interrupted = ["nothing was judged or recorded: the run was interrupted"]
        for line in self._reporter.lines(terminalreporter) if self._over else interrupted:
            terminalreporter.write_line(line)


def nothing_undecided(_now: Sequence[Measurement], _look: int) -> set[str]:
    """Stop after the first look, because nothing is compared."""
    return set()
