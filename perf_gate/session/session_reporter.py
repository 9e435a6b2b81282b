"""Reports a session on the terminal and in every file that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perf_gate.measuring.measurement_run import Log
from perf_gate.records.record import write
from perf_gate.records.runfile import Terms, run_of, save_run
from perf_gate.records.section import RecordError
from perf_gate.reporting.library import ReportError
from perf_gate.session.output import append, clear
from perf_gate.session.report_writer import earlier
from perf_gate.session.scenario_collector import ScenarioCollector
from perf_gate.session.session_state import SessionState
from perf_gate.session.settings import Settings
from perf_gate.showing import table
from perf_gate.showing.markdown import as_markdown
from perf_gate.showing.run_report import RunReport, as_json, commands
from perf_gate.showing.values import values
from perf_gate.verdict import Exit


class SessionReporter:
    """Writes page, plots, rows, summary and samples of a session, and the lines for the terminal and for GitHub."""

    def __init__(self, settings: Settings, collector: ScenarioCollector, state: SessionState) -> None:
        """Write nothing yet; the session is not over."""
        self._settings = settings
        self._collector = collector
        self._state = state
        self._kept: str | None = None
        self._shown: list[str] = []
        self._report: RunReport | None = None
        self._untold: list[str] = []

    def warnings(self) -> list[str]:
        """Return what a reader of this run has to know first."""
        injected = self._settings.injected
        return (
            [] if injected is None else [f"INJECTED SLOWDOWN {injected}: slower on purpose, this run measures nothing"]
        )

    def opening(self) -> list[str]:
        """Return the lines that say what is going to be measured and compared."""
        state, against = self._state, self._settings.against
        lines = [f"{len(self._collector.tasks) - len(self._collector.left_out)} scenarios to measure", *self.warnings()]
        if against is not None:
            changed = ", with uncommitted changes" if state.provenance.dirty else ""
            where = f", {against.candidate}" if against.candidate != self._settings.root else changed
            lines += [
                f"the candidate is the working tree at {state.provenance.commit[:7] or 'no commit'}{where}",
                f"the base is {against.base.name}",
                f"{against.subject} differs between them, suites and gate are the candidate's",
            ]
        comparison = state.comparison
        if comparison is not None and comparison.record.path is not None:
            judging = f"judging {len(comparison.asked)} of {comparison.held} records"
            if len(comparison.asked) < comparison.held:
                judging += f": only {self._collector.scope} was asked for"
            lines.append(f"against {comparison.record.path.name}, {judging}")
        return lines

    def keep_samples(self, path: Path) -> None:
        """Write the samples to `path`; if that fails, the run cannot be judged."""
        state, settings = self._state, self._settings
        log, injected, against = state.log, settings.injected, settings.against
        try:
            run = run_of(
                tuple(state.measured.values()),
                state.provenance,
                sampled=not settings.exact,
                injected="" if injected is None else str(injected),
                seconds=0.0 if log is None else log.seconds,
                terms=None if log is None else Terms(settings.plan.looks, log.look, settings.policy.alpha),
                base=state.base,
                base_provenance=None if against is None else against.provenance(state.provenance),
            )
            save_run(run, path)
        except (ValueError, RecordError) as error:
            state.fail(f"the samples were not written to {path}: {error}")
        else:
            self._kept = f"samples of this run, no record: {path}"

    def write_outputs(self, status: int) -> int:
        """Write the verdict to every output. Returns the exit status: 10 instead of 0 if an output was not written."""
        ended = status
        # The summary comes last: what is appended cannot be taken back.
        for tell in (self._publish, self._save_rows, self._append_summary):
            ended = self._tried(tell, ended)
        if ended != status:
            # The other outputs may say pass already.
            clear(each for each in self._settings.outputs if each.path != self._settings.samples)
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
                self._state.fail(why)
                return int(Exit.CANNOT_JUDGE)
        return status

    def _save_rows(self, status: int) -> None:
        if self._settings.rows is not None:
            write(as_json(self._reported(status)), self._settings.rows, overwrite=True)

    def _append_summary(self, status: int) -> None:
        if self._settings.summary is not None:
            # Several steps of a job share one summary.
            append(as_markdown(self._reported(status)), self._settings.summary)

    def _reported(self, status: int) -> RunReport:
        state = self._state
        return RunReport(
            state.rows,
            status,
            against=self._held_against(),
            fault=state.fault,
            failed=state.failures,
            facts=[
                *self.warnings(),
                *([] if state.log is None else [self._measuring(state.log)]),
                *(f"recorded: {name}" for name in state.recorded),
                *([] if state.not_recorded is None else [state.not_recorded]),
            ],
            values=[] if self._settings.compares else list(values(state.measured.values())),
            places=self._collector.places,
        )

    def _held_against(self) -> str:
        against, comparison = self._settings.against, self._state.comparison
        if against is not None:
            return f"the base {against.base.name}"
        if comparison is not None and comparison.record.path is not None:
            return f"the record {comparison.record.path.name}"
        return ""

    def _measuring(self, log: Log) -> str:
        workers = "workers" if self._settings.against is None else f"pair{'' if log.workers == 1 else 's'} of workers"
        timed = f"timed in {log.workers} {workers}" if log.workers else "not timed"
        return f"{len(self._state.measured)} scenarios counted, {timed}, {log.seconds:.0f} s: {log.stopped}"

    def _publish(self, status: int) -> None:
        state, report_writer = self._state, self._settings.report_writer
        self._shown = []
        if not report_writer:
            return
        report_writer.publish(
            state.measured,
            state.provenance,
            state.comparison,
            against=self._settings.against,
            measured_base=state.base,
            rows=state.rows,
            status=status,
            faults=self._faults(),
            notes=self._notes(),
            earlier=earlier(self._settings.baselines, state.provenance, state.recorded),
        )
        self._shown = [f"report: {path}" for path in (report_writer.page, report_writer.plots) if path is not None]

    def _faults(self) -> list[str]:
        state = self._state
        faults = [] if state.fault is None else [state.fault]
        faults += [f"{name} failed" for name in state.failures]
        faults += [] if state.not_recorded is None else [state.not_recorded]
        if state.comparison is None:
            faults += [f"{each.scenario}: {each.invalid}" for each in state.measured.values() if each.invalid]
        return faults

    def _notes(self) -> list[str]:
        log, comparison = self._state.log, self._state.comparison
        notes = self.warnings() + ([] if log is None else [f"lost: {text}" for text in log.lost])
        if comparison is not None and len(comparison.asked) < comparison.held:
            asked = f"only {self._collector.scope} was asked for"
            notes.append(f"judged {len(comparison.asked)} of the {comparison.held} scenarios on record: {asked}")
        return notes

    def lines(self, reporter: pytest.TerminalReporter) -> list[str]:
        """Return the verdicts and what belongs to them, as lines for the terminal."""
        state, settings, verbose = self._state, self._settings, reporter.verbosity > 0
        lines = self.warnings()
        if state.log is not None:
            lines.append(self._measuring(state.log))
            lines += details(state.log) if verbose else []
            lines += [f"lost: {text}" for text in state.log.lost]
        if state.rows:
            terminal = reporter._tw
            # CI logs are read in a browser, so only a terminal limits the width.
            width = terminal.fullwidth if reporter.isatty else max(170, terminal.fullwidth)
            than = "record" if settings.against is None else "base"
            text = table.render(state.rows, width=width, color=terminal.hasmarkup, equal=verbose, than=than)
            lines += text.splitlines()
        if state.fault is not None:
            lines.append(f"cannot judge: {state.fault}")
        if not settings.compares:
            lines += values(state.measured.values())
            lines.append("nothing was compared: add --benchmark-compare to compare with the record in baselines/")
        lines += [f"recorded: {settings.baselines.name}/{name}" for name in state.recorded]
        lines += [line for line in (state.not_recorded, self._kept) if line is not None]
        lines += [line for line in self._untold if line != state.fault]
        lines += self._shown
        if settings.annotate and self._report is not None:
            lines += commands(self._report)
        return lines


def details(log: Log) -> list[str]:
    """Return lines that say what took how long, the slowest scenario first."""
    dearest = sorted(log.counting.items(), key=lambda item: -item[1])
    return [
        f"booting two workers: {', '.join(f'{seconds:.1f}' for seconds in log.boot) or 'none was timed'} s",
        *(f"counting {name}: {seconds:.1f} s; {log.rounds.get(name, 0)} rounds a worker" for name, seconds in dearest),
    ]
