"""One pytest session under the gate: measures, hands out verdicts, and decides the exit status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perf_gate.branches.repository import RepositoryError
from perf_gate.measurement import Measurement
from perf_gate.measuring.campaign import Campaign, CampaignError, Log, Undecided
from perf_gate.measuring.crew import Side
from perf_gate.measuring.evidence import Task
from perf_gate.measuring.progress import LiveLine, PlainLines, Progress
from perf_gate.metric import Exact
from perf_gate.records.provenance import Provenance, provenance
from perf_gate.records.record import write
from perf_gate.records.recording import record
from perf_gate.records.refusal import RefusedRecord
from perf_gate.records.runfile import Terms, run_of, save_run
from perf_gate.records.section import RecordError
from perf_gate.reporting.library import ReportError, require
from perf_gate.scenario import Scenario
from perf_gate.session.publication import earlier
from perf_gate.session.replay import replay
from perf_gate.session.roster import Roster
from perf_gate.session.selection import MARKER, scenario_of
from perf_gate.session.settings import Against, Settings, is_distributed, only_asks
from perf_gate.session.target import abandon, append, clear
from perf_gate.showing import table
from perf_gate.showing.markdown import as_markdown
from perf_gate.showing.report import Report, as_json, commands
from perf_gate.showing.values import values
from perf_gate.verdict import Exit, Row, Verdict, exit_status

if TYPE_CHECKING:
    from perf_gate.session.court import Court

TEST_FAILED = int(pytest.ExitCode.TESTS_FAILED)
RED = ("perf gate", "red")


class Gatekeeper:
    """A plugin object: its pytest_* methods are hooks. Silent and without cost where no test uses scenarios."""

    def __init__(self, config: pytest.Config, settings: Settings, roster: Roster) -> None:
        """Nothing is known before collection."""
        self.settings = settings
        self._config = config
        self._roster = roster
        self._provenance = Provenance()
        self._court: Court | None = None
        self._fault: str | None = None
        self._measured: dict[str, Measurement] = {}
        self._base: Sequence[Measurement] = ()
        self._log: Log | None = None
        self._rows: list[Row] = []
        self._selected: list[str] = []
        self._judged: set[str] = set()
        self._red: list[str] = []
        self._failures: list[str] = []
        self._recorded: list[str] = []
        self._refused: str | None = None
        self._kept: str | None = None
        self._shown: list[str] = []
        self._report: Report | None = None
        self._untold: list[str] = []
        self._waiting: list[Task] = []
        self._over = self._green = False

    @property
    def active(self) -> bool:
        """Whether there is anything to say: a scenario was collected, or a verdict, record or report was asked for."""
        asked = self.settings.asks or self.settings.publication
        return bool(self._roster.tasks or self._red or asked) and not only_asks(self._config)

    @property
    def _muted(self) -> bool:
        return self._config.get_verbosity() <= -2

    @property
    def _idle(self) -> bool:
        return only_asks(self._config) or hasattr(self._config, "workerinput")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """See to it that a report can be made, and that none of an earlier run is taken for this one's."""
        if self._idle:
            return
        clear(self.settings.targets)
        try:
            if self.settings.publication:
                require()
        except ReportError as error:
            raise pytest.UsageError(str(error)) from None

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what is going to be measured and judged, before the wait begins."""
        if not self.active or is_distributed(self._config) or self._muted:
            return []
        lines = [f"perf gate: {len(self._roster.tasks) - len(self._roster.left_out)} scenarios to measure"]
        lines += [f"perf gate: {warning}" for warning in self._warnings()]
        if self.settings.against is not None:
            self._prepare()
            lines += self._sides(self.settings.against)
        if self.settings.reference is not None:
            self._prepare()
            if self._court is not None and self._court.record.path is not None:
                judging = f"judging {len(self._court.asked)} of {self._court.held} records"
                if len(self._court.asked) < self._court.held:
                    judging += f": only {self._roster.scope} was asked for"
                lines.append(f"perf gate: against {self._court.record.path.name}, {judging}")
        return lines

    def _sides(self, against: Against) -> list[str]:
        changed = ", with uncommitted changes" if self._provenance.dirty else ""
        commit = self._provenance.commit[:7] or "no commit"
        where = f", {against.candidate}" if against.candidate != self.settings.root else f"{changed}"
        return [
            f"perf gate: the candidate is the working tree at {commit}{where}",
            f"perf gate: the base is {against.base.name}",
            f"perf gate: {against.subject} differs between them, suites and gate are the candidate's",
        ]

    # ---------------------------------------------------------------- measuring

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Find out what is going to be measured, before the first test."""
        option = session.config.option
        broken = session.testsfailed and not option.continue_on_collection_errors
        if broken or not self.active:
            return
        chosen = self._roster.chosen(session.items)
        self._selected = [task.name for task in chosen.values()]
        self._prepare()
        for item in session.items:
            if item.nodeid in chosen and item.get_closest_marker("xfail") and self.settings.asks:
                self._blame(f"{item.nodeid} is marked xfail, which would hide its verdict: take the mark off")
        if not chosen:
            if self.settings.asks:
                self._blame("no scenario was selected: give the path of the suites, and drop -k, -m and --deselect")
            return
        if self._fault is None and not option.setuponly:
            self._waiting = list(chosen.values())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Measure everything before the first test that asks for a verdict; the tests ahead of it prove it right."""
        if not self._waiting or item.nodeid not in self._roster.tasks:
            return
        waiting, self._waiting = self._waiting, []
        if self._failures:
            self._blame(
                f"nothing was measured: {self._failures[0]} failed before, and what is wrong need not be timed; mend it"
            )
        else:
            self._measure(waiting)

    def _prepare(self) -> None:
        """Find out where we are and what to hold the run against; once, before anything is measured."""
        if self._provenance.machine or self._fault is not None:
            return
        if is_distributed(self._config):
            self._blame("pytest-xdist runs tests side by side, so nothing was measured: drop -n")
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
        self._provenance = provenance(
            settings.root,
            threads=settings.conditions.threads,
            options=options,
            command=["pytest", *map(str, self._config.invocation_params.args)],
            besides=besides,
        )
        if settings.reference is None:
            return
        from perf_gate.session.court import Court  # noqa: PLC0415 - scipy takes time that other runs need not wait

        try:
            self._court = Court(
                settings.baselines,
                settings.reference,
                provenance=self._provenance,
                scope=self._roster.scope,
                policy=settings.policy,
                sampled=not settings.exact,
            )
        except RecordError as error:
            self._blame(str(error))
            return
        if not self._court.asked:
            self._blame(
                f"0 of {self._court.held} records compared: none of them lies in {self._roster.scope or 'the project'};"
                " give the path of the suites, or record anew"
            )

    def _measure(self, chosen: Sequence[Task]) -> None:
        court, against, base = self._court, self.settings.against, None
        side = Side(self.settings.root)
        try:
            with ExitStack() as stack:
                if against is not None:
                    root = stack.enter_context(against.base.laid_out())
                    side, base = against.sides(self.settings.root, root)
                campaign = Campaign(
                    chosen,
                    side=side,
                    base=base,
                    plan=self.settings.plan,
                    conditions=self.settings.conditions,
                    progress=self._progress(),
                )
                decide: Undecided | None = None
                if against is not None:
                    decide = partial(self._undecided_beside, campaign)
                elif self.settings.record is None:
                    decide = court.undecided if court is not None else nothing_undecided
                outcome = campaign.run(decide)
        except (CampaignError, RepositoryError) as error:
            self._blame(str(error))
            return
        self._log = outcome.log
        self._measured = {
            each.scenario: replace(each, machine=self._provenance.machine) for each in outcome.measurements
        }
        if court is not None:
            self._rows = court.judge(tuple(self._measured.values()), outcome.log.look)
        if against is not None:
            self._base = outcome.base
            self._rows = self._beside(outcome.measurements, outcome.base, outcome.log.look)

    def _beside(self, now: Sequence[Measurement], base: Sequence[Measurement], look: int) -> list[Row]:
        from perf_gate.judging.judge import judge_beside  # noqa: PLC0415 - as above

        settings = self.settings
        return judge_beside(now, base, policy=settings.policy, look=look, sampled=not settings.exact)

    def _undecided_beside(self, campaign: Campaign, now: Sequence[Measurement], look: int) -> set[str]:
        from perf_gate.judging.judge import undecided  # noqa: PLC0415 - as above

        return undecided(self._beside(now, campaign.base, look))

    def _progress(self) -> Progress:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self._muted:
            return Progress()
        reporter.ensure_newline()
        return LiveLine(reporter._tw._file) if reporter.isatty else PlainLines(reporter.write_line)

    def _blame(self, fault: str) -> None:
        if self._fault is None:
            self._fault = fault

    # ---------------------------------------------------------------- judging

    def judge(self, item: pytest.Item, scenario: Scenario) -> None:
        """Show the scenario's samples in pytest-benchmark's table and fail the test where it is not green."""
        __tracebackhide__ = True
        task = self._roster.tasks.get(item.nodeid)
        if task is None or scenario != scenario_of(item):
            raise pytest.UsageError(
                f"{item.nodeid}: gate.judge takes the argument 'scenario' of a test with @pytest.mark.{MARKER}"
            )
        if self._fault is not None or task.name not in self._measured:
            self._fail(item, f"{task.name}: cannot be judged: {self._fault or 'it was not measured'}")
        self._judged.add(task.name)
        measurement = self._measured[task.name]
        if measurement.invalid is not None:
            self._fail(item, f"{task.name}: invalid: {measurement.invalid}")
        replay(item, self._config.pluginmanager.get_plugin("pytest-benchmark"), scenario, measurement)
        exact = [metric for metric in measurement.metrics if isinstance(metric, Exact)]
        item.user_properties.extend((metric.name, measurement.exact[metric.name]) for metric in exact)
        rows = [row for row in self._rows if row.scenario == task.name]
        if any(map(table.red, rows)):
            self._fail(item, table.failure_text(rows))

    def _fail(self, item: pytest.Item, text: str) -> None:
        __tracebackhide__ = True
        # It travels with the report, also from another process.
        item.user_properties.append(RED)
        pytest.fail(text, pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell a red verdict from a test that failed for a reason of its own."""
        if report.failed:
            ours = report.when == "call" and any(tuple(each) == RED for each in report.user_properties)
            (self._red if ours else self._failures).append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected is a failure too."""
        if report.failed:
            self._failures.append(report.nodeid)

    # ---------------------------------------------------------------- the end

    def _unjudged(self) -> list[Row]:
        """Rows for scenarios whose test did not come to its verdict."""
        why = "selected, but its test ended without judging it (skipped, stopped by -x, or failed before): run it."
        lost = [name for name in self._selected if name not in self._judged]
        rows = [Row(name, None, Verdict.MISSING, why=why) for name in lost]
        if self.settings.against is not None:
            # Against a record the record itself says what is missing.
            why = "left out by -k, -m, --deselect or the like: drop that, or give the paths that are to be judged."
            rows += [Row(name, None, Verdict.MISSING, why=why) for name in self._roster.left_out]
        return rows

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the record if one was asked for, and set the exit status."""
        ends = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._idle:
            return
        if exitstatus not in ends:
            abandon(self.settings.targets)
            return
        if not self.active:
            return
        self._over = True
        if self.settings.compares and self._fault is None:
            self._rows = [*self._rows, *self._unjudged()]
        if self.settings.record is not None:
            self._record(self.settings.record)
        if self.settings.samples is not None and self._fault is None:
            self._keep_samples(self.settings.samples)
        session.exitstatus = self._told(self._status(int(exitstatus)))
        self._green = session.exitstatus == Exit.PASS

    def _told(self, status: int) -> int:
        """Write the verdict down where that was asked for. Returns the exit status: 10 for a 0 that was not told."""
        ended = status
        # Nothing can be taken back from a summary, so it comes last.
        for tell in (self._publish, self._save_rows, self._append_summary):
            ended = self._tried(tell, ended)
        if ended != status:
            # The others may say pass by now.
            clear(each for each in self.settings.targets if each.path != self.settings.samples)
            for tell in (self._publish, self._save_rows):
                self._tried(tell, ended)
        self._report = self._reported(ended)
        return ended

    def _tried(self, tell: Callable[[int], None], status: int) -> int:
        try:
            tell(status)
        except (RecordError, ReportError) as error:
            why = f"the report was not written: {error}"
            if why not in self._untold:
                self._untold.append(why)
            if status == Exit.PASS:
                self._blame(why)
                return int(Exit.CANNOT_JUDGE)
        return status

    def _save_rows(self, status: int) -> None:
        if self.settings.rows is not None:
            write(as_json(self._reported(status)), self.settings.rows, overwrite=True)

    def _append_summary(self, status: int) -> None:
        if self.settings.summary is not None:
            # Several steps of a job share one summary.
            append(as_markdown(self._reported(status)), self.settings.summary)

    def _reported(self, status: int) -> Report:
        return Report(
            self._rows,
            status,
            against=self._held_against(),
            fault=self._fault,
            failed=self._failures,
            facts=[
                *self._warnings(),
                *([] if self._log is None else [self._measuring(self._log)]),
                *(f"recorded: {name}" for name in self._recorded),
                *([] if self._refused is None else [self._refused]),
            ],
            values=[] if self.settings.compares else list(values(self._measured.values())),
            places=self._roster.places,
        )

    def _held_against(self) -> str:
        if self.settings.against is not None:
            return f"the base {self.settings.against.base.name}"
        if self._court is not None and self._court.record.path is not None:
            return f"the record {self._court.record.path.name}"
        return ""

    def _measuring(self, log: Log) -> str:
        crew = "workers" if self.settings.against is None else f"pair{'' if log.workers == 1 else 's'} of workers"
        timed = f"timed in {log.workers} {crew}" if log.workers else "not timed"
        return f"{len(self._measured)} scenarios counted, {timed}, {log.seconds:.0f} s: {log.stopped}"

    def _status(self, exitstatus: int) -> int:
        """1 for a failed test or a regression, 10 where anything that was asked for could not be judged."""
        verdicts = exit_status(self._rows) if self.settings.compares else Exit.PASS
        if self._failures or verdicts is Exit.REGRESSED:
            return TEST_FAILED
        blamed = self._fault is not None and (self.settings.asks or bool(self._selected))
        if blamed or self._refused is not None or verdicts is not Exit.PASS:
            return int(Exit.CANNOT_JUDGE)
        return int(Exit.CANNOT_JUDGE) if self._red else exitstatus

    def _warnings(self) -> list[str]:
        plant = self.settings.plant
        return [] if plant is None else [f"PLANTED SLOWDOWN {plant}: slower on purpose, this run measures nothing"]

    def _keep_samples(self, path: Path) -> None:
        log, plant, settings = self._log, self.settings.plant, self.settings
        against = settings.against
        try:
            run = run_of(
                tuple(self._measured.values()),
                self._provenance,
                sampled=not settings.exact,
                plant="" if plant is None else str(plant),
                seconds=0.0 if log is None else log.seconds,
                terms=None if log is None else Terms(settings.plan.looks, log.look, settings.policy.alpha),
                base=self._base,
                base_provenance=None if against is None else against.provenance(self._provenance),
            )
            save_run(run, path)
        except (ValueError, RecordError) as error:
            self._blame(f"the samples were not written to {path}: {error}")
        else:
            self._kept = f"samples of this run, no record: {path}"

    def _publish(self, status: int) -> None:
        publication, court = self.settings.publication, self._court
        self._shown = []
        if not publication:
            return
        faults = [] if self._fault is None else [self._fault]
        faults += [f"{name} failed" for name in self._failures]
        faults += [] if self._refused is None else [self._refused]
        if court is None:
            faults += [f"{each.scenario}: {each.invalid}" for each in self._measured.values() if each.invalid]
        notes = self._warnings() + ([] if self._log is None else [f"lost: {text}" for text in self._log.lost])
        if court is not None and len(court.asked) < court.held:
            asked = f"only {self._roster.scope} was asked for"
            notes.append(f"judged {len(court.asked)} of the {court.held} scenarios on record: {asked}")
        publication.publish(
            self._measured,
            self._provenance,
            court,
            against=self.settings.against,
            measured_base=self._base,
            rows=self._rows,
            status=status,
            faults=faults,
            notes=notes,
            earlier=earlier(self.settings.baselines, self._provenance, self._recorded),
        )
        self._shown = [f"report: {path}" for path in (publication.page, publication.plots) if path is not None]

    def _record(self, name: str) -> None:
        unmeasured = [name for name in self._selected if name not in self._measured]
        try:
            path = record(
                self.settings.baselines,
                name,
                tuple(self._measured.values()),
                self._provenance,
                failed=[*self._failures, *self._red],
                left_out=[*self._roster.left_out, *(row.scenario for row in self._unjudged())],
                unmeasured=unmeasured,
                scope=self._roster.scope,
                sampled=not self.settings.exact,
                workers=min(self.settings.plan.looks),
            )
        except (RefusedRecord, RecordError) as error:
            self._refused = str(error) if self._fault is None else f"nothing was recorded: {self._fault}"
        else:
            self._recorded.append(path.name)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the verdicts, after pytest-benchmark's table."""
        if not self.active or hasattr(self._config, "workerinput") or (self._muted and self._green):
            return
        terminalreporter.section("perf gate")
        for line in self._summary(terminalreporter):
            terminalreporter.write_line(line)

    def _summary(self, reporter: pytest.TerminalReporter) -> list[str]:
        if not self._over:
            return ["nothing was judged or recorded: the run was interrupted"]
        lines = self._warnings()
        if self._log is not None:
            log = self._log
            lines.append(self._measuring(log))
            if self._config.get_verbosity() > 0:
                lines += details(log)
            lines += [f"lost: {text}" for text in log.lost]
        if self._rows:
            terminal = reporter._tw
            # A log is read in a browser; only a terminal's width is a limit.
            width = terminal.fullwidth if reporter.isatty else max(170, terminal.fullwidth)
            equal = self._config.get_verbosity() > 0
            than = "record" if self.settings.against is None else "base"
            text = table.render(self._rows, width=width, color=terminal.hasmarkup, equal=equal, than=than)
            lines += text.splitlines()
        if self._fault is not None:
            lines.append(f"cannot judge: {self._fault}")
        if not self.settings.compares:
            lines += values(self._measured.values())
            lines.append("nothing was compared: add --benchmark-compare to judge against baselines/")
        lines += [f"recorded: {self.settings.baselines.name}/{name}" for name in self._recorded]
        if self._refused is not None:
            lines.append(self._refused)
        lines += [] if self._kept is None else [self._kept]
        lines += [line for line in self._untold if line != self._fault]
        lines += self._shown
        if self.settings.annotate and self._report is not None:
            lines += commands(self._report)
        return lines


def details(log: Log) -> list[str]:
    """Where the time of a campaign went, the dearest first."""
    dearest = sorted(log.counting.items(), key=lambda item: -item[1])
    return [
        f"booting two workers: {', '.join(f'{seconds:.1f}' for seconds in log.boot) or 'none was timed'} s",
        *(f"counting {name}: {seconds:.1f} s; {log.rounds.get(name, 0)} rounds a worker" for name, seconds in dearest),
    ]


def nothing_undecided(_now: Sequence[Measurement], _look: int) -> set[str]:
    """Where nothing is compared, the least workers are enough."""
    return set()
