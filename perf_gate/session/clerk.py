"""Writes down and says what a session has come to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perf_gate.measuring.campaign import Log
from perf_gate.records.record import write
from perf_gate.records.runfile import Terms, run_of, save_run
from perf_gate.records.section import RecordError
from perf_gate.reporting.library import ReportError
from perf_gate.session.case import Case
from perf_gate.session.publication import earlier
from perf_gate.session.roster import Roster
from perf_gate.session.settings import Settings
from perf_gate.session.target import append, clear
from perf_gate.showing import table
from perf_gate.showing.markdown import as_markdown
from perf_gate.showing.report import Report, as_json, commands
from perf_gate.showing.values import values
from perf_gate.verdict import Exit


class Clerk:
    """Tells a case wherever that was asked for: page, plots, rows, summary, samples, terminal, GitHub."""

    def __init__(self, settings: Settings, roster: Roster, case: Case) -> None:
        """Nothing is written before the session is over."""
        self._settings = settings
        self._roster = roster
        self._case = case
        self._kept: str | None = None
        self._shown: list[str] = []
        self._report: Report | None = None
        self._untold: list[str] = []

    def warnings(self) -> list[str]:
        """What everybody who reads of this run has to know first."""
        plant = self._settings.plant
        return [] if plant is None else [f"PLANTED SLOWDOWN {plant}: slower on purpose, this run measures nothing"]

    def opening(self) -> list[str]:
        """What is going to be measured and judged."""
        case, against = self._case, self._settings.against
        lines = [f"{len(self._roster.tasks) - len(self._roster.left_out)} scenarios to measure", *self.warnings()]
        if against is not None:
            changed = ", with uncommitted changes" if case.provenance.dirty else ""
            where = f", {against.candidate}" if against.candidate != self._settings.root else changed
            lines += [
                f"the candidate is the working tree at {case.provenance.commit[:7] or 'no commit'}{where}",
                f"the base is {against.base.name}",
                f"{against.subject} differs between them, suites and gate are the candidate's",
            ]
        court = case.court
        if court is not None and court.record.path is not None:
            judging = f"judging {len(court.asked)} of {court.held} records"
            if len(court.asked) < court.held:
                judging += f": only {self._roster.scope} was asked for"
            lines.append(f"against {court.record.path.name}, {judging}")
        return lines

    def keep_samples(self, path: Path) -> None:
        """Write the samples to `path`; where that fails, nothing can be judged."""
        case, settings = self._case, self._settings
        log, plant, against = case.log, settings.plant, settings.against
        try:
            run = run_of(
                tuple(case.measured.values()),
                case.provenance,
                sampled=not settings.exact,
                plant="" if plant is None else str(plant),
                seconds=0.0 if log is None else log.seconds,
                terms=None if log is None else Terms(settings.plan.looks, log.look, settings.policy.alpha),
                base=case.base,
                base_provenance=None if against is None else against.provenance(case.provenance),
            )
            save_run(run, path)
        except (ValueError, RecordError) as error:
            case.blame(f"the samples were not written to {path}: {error}")
        else:
            self._kept = f"samples of this run, no record: {path}"

    def told(self, status: int) -> int:
        """Write the verdict down where that was asked for. Returns the exit status: 10 for a 0 that was not told."""
        ended = status
        # Nothing can be taken back from a summary, so it comes last.
        for tell in (self._publish, self._save_rows, self._append_summary):
            ended = self._tried(tell, ended)
        if ended != status:
            # The others may say pass by now.
            clear(each for each in self._settings.targets if each.path != self._settings.samples)
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
                self._case.blame(why)
                return int(Exit.CANNOT_JUDGE)
        return status

    def _save_rows(self, status: int) -> None:
        if self._settings.rows is not None:
            write(as_json(self._reported(status)), self._settings.rows, overwrite=True)

    def _append_summary(self, status: int) -> None:
        if self._settings.summary is not None:
            # Several steps of a job share one summary.
            append(as_markdown(self._reported(status)), self._settings.summary)

    def _reported(self, status: int) -> Report:
        case = self._case
        return Report(
            case.rows,
            status,
            against=self._held_against(),
            fault=case.fault,
            failed=case.failures,
            facts=[
                *self.warnings(),
                *([] if case.log is None else [self._measuring(case.log)]),
                *(f"recorded: {name}" for name in case.recorded),
                *([] if case.refused is None else [case.refused]),
            ],
            values=[] if self._settings.compares else list(values(case.measured.values())),
            places=self._roster.places,
        )

    def _held_against(self) -> str:
        against, court = self._settings.against, self._case.court
        if against is not None:
            return f"the base {against.base.name}"
        if court is not None and court.record.path is not None:
            return f"the record {court.record.path.name}"
        return ""

    def _measuring(self, log: Log) -> str:
        crew = "workers" if self._settings.against is None else f"pair{'' if log.workers == 1 else 's'} of workers"
        timed = f"timed in {log.workers} {crew}" if log.workers else "not timed"
        return f"{len(self._case.measured)} scenarios counted, {timed}, {log.seconds:.0f} s: {log.stopped}"

    def _publish(self, status: int) -> None:
        case, publication = self._case, self._settings.publication
        self._shown = []
        if not publication:
            return
        publication.publish(
            case.measured,
            case.provenance,
            case.court,
            against=self._settings.against,
            measured_base=case.base,
            rows=case.rows,
            status=status,
            faults=self._faults(),
            notes=self._notes(),
            earlier=earlier(self._settings.baselines, case.provenance, case.recorded),
        )
        self._shown = [f"report: {path}" for path in (publication.page, publication.plots) if path is not None]

    def _faults(self) -> list[str]:
        case = self._case
        faults = [] if case.fault is None else [case.fault]
        faults += [f"{name} failed" for name in case.failures]
        faults += [] if case.refused is None else [case.refused]
        if case.court is None:
            faults += [f"{each.scenario}: {each.invalid}" for each in case.measured.values() if each.invalid]
        return faults

    def _notes(self) -> list[str]:
        log, court = self._case.log, self._case.court
        notes = self.warnings() + ([] if log is None else [f"lost: {text}" for text in log.lost])
        if court is not None and len(court.asked) < court.held:
            asked = f"only {self._roster.scope} was asked for"
            notes.append(f"judged {len(court.asked)} of the {court.held} scenarios on record: {asked}")
        return notes

    def lines(self, reporter: pytest.TerminalReporter) -> list[str]:
        """The verdicts and all that belongs to them, as the terminal shows them."""
        case, settings, verbose = self._case, self._settings, reporter.verbosity > 0
        lines = self.warnings()
        if case.log is not None:
            lines.append(self._measuring(case.log))
            lines += details(case.log) if verbose else []
            lines += [f"lost: {text}" for text in case.log.lost]
        if case.rows:
            terminal = reporter._tw
            # A log is read in a browser; only a terminal's width is a limit.
            width = terminal.fullwidth if reporter.isatty else max(170, terminal.fullwidth)
            than = "record" if settings.against is None else "base"
            text = table.render(case.rows, width=width, color=terminal.hasmarkup, equal=verbose, than=than)
            lines += text.splitlines()
        if case.fault is not None:
            lines.append(f"cannot judge: {case.fault}")
        if not settings.compares:
            lines += values(case.measured.values())
            lines.append("nothing was compared: add --benchmark-compare to judge against baselines/")
        lines += [f"recorded: {settings.baselines.name}/{name}" for name in case.recorded]
        lines += [line for line in (case.refused, self._kept) if line is not None]
        lines += [line for line in self._untold if line != case.fault]
        lines += self._shown
        if settings.annotate and self._report is not None:
            lines += commands(self._report)
        return lines


def details(log: Log) -> list[str]:
    """Where the time of a campaign went, the dearest first."""
    dearest = sorted(log.counting.items(), key=lambda item: -item[1])
    return [
        f"booting two workers: {', '.join(f'{seconds:.1f}' for seconds in log.boot) or 'none was timed'} s",
        *(f"counting {name}: {seconds:.1f} s; {log.rounds.get(name, 0)} rounds a worker" for name, seconds in dearest),
    ]
