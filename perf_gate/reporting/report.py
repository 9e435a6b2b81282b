"""`perf-gate report FILE...`: the last file, judged against the base in it or the record before it, as an HTML page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perf_gate.judging.judge import judge, judge_paired
from perf_gate.judging.policy import Policy
from perf_gate.records.record import Record, earliest, load, read
from perf_gate.records.runfile import Run, Terms, load_run
from perf_gate.records.section import RecordError
from perf_gate.reporting import plot_folder
from perf_gate.reporting.library import ReportError, require
from perf_gate.reporting.report_data import ReportData, ReportSide
from perf_gate.session.options import COMPARE_WORKERS, looks_between
from perf_gate.session.output import Output, Page, PlotFolder, clear, is_samples, mark_unfinished, named
from perf_gate.showing.table import headline
from perf_gate.value import checked, parse_chance
from perf_gate.verdict import Exit, exit_status

PAGE = Path("report.html")


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    verb = verbs.add_parser("report", help="write the verdict as an HTML page", description=__doc__)
    verb.add_argument(
        "files", nargs="+", metavar="FILE",
        help="records, oldest first, e.g. baselines/*.json. The last is compared with the one before it. It may also be"
        " a file of --gate-samples; if that has a base, it is compared with its base. A single file without a base is"
        " shown and not compared with anything",
    )  # fmt: skip
    verb.add_argument("--out", type=Path, default=PAGE, metavar="FILE.html", help="the page (default: %(default)s)")
    verb.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="also write its plots as SVG and PNG, and summary.md"
    )
    verb.add_argument(
        "--alpha",
        type=checked(parse_chance, "chance"),
        help=f"chance of a false alarm (default: the one of the run; for records {Policy().alpha})",
    )
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Judge, write the page and print the verdict. Returns its exit status, 0 if there was nothing to compare.

    Raises OutputError if an output cannot be written, RecordError.
    """
    found = _targets(options.out, options.plots)
    try:
        for target in found:
            target.check()
    finally:
        clear(found)
    try:
        require()
        data = compiled([opened(file) for file in options.files], alpha=options.alpha)
        publish(data, options.out, options.plots)
    except ReportError as error:
        raise RecordError(options.out, "was not written", str(error)) from error
    alone = "nothing was compared: give the record to compare with first"
    said = headline(data.rows) if data.reference else " ".join(data.faults) or alone
    print(f"{said}\nreport: {options.out}")  # noqa: T201 - a command line speaks by printing
    if options.plots is not None:
        print(f"plots: {options.plots}")  # noqa: T201 - a command line speaks by printing
    sys.stdout.flush()
    return data.status


def mark_page_unfinished(arguments: Sequence[str]) -> None:
    """Replace the page of an earlier call, if `arguments` could not be read."""
    given = named(arguments, ("--out", "--plots"), Path.cwd())
    mark_unfinished(_targets(given["--out"] or PAGE, given["--plots"]))


def _targets(page: Path, plots: Path | None) -> tuple[Output, ...]:
    return (Page("--out", page), *([] if plots is None else [PlotFolder("--plots", plots)]))


def publish(data: ReportData, page: Path | None, folder: Path | None) -> None:
    """Write the page, the plots or both. Raises RecordError naming what cannot be written, ReportError."""
    from perf_gate.reporting import page as pages  # noqa: PLC0415 - slow to import and rarely needed

    for target, save in ((page, pages.save), (folder, plot_folder.save)):
        if target is not None:
            save(data, target)


def opened(file: str | Path) -> Record | Run:
    """Return a record or the samples of a run. Raises RecordError if the file is neither, or damaged."""
    return load_run(file) if is_samples(read(Path(file))) else load(file)


def compiled(files: Sequence[Record | Run], *, alpha: float | None = None) -> ReportData:
    """Judge the last of `files` against the base of the same run, else the record before it of the same
    profile.

    A record is judged by one look; samples of a run by what that run was judged by, so that the verdict is that of the
    run itself. alpha: promised chance of a false alarm; None: that of the run. Raises RecordError where samples
    stand anywhere but at the end.
    """
    *before, last = files
    for each in before:
        if isinstance(each, Run):
            raise RecordError(
                each.section.created, "samples of a run stand before another file", "Put them last: they are judged"
            )
    records = [each for each in before if isinstance(each, Record) and each.profile == last.profile]
    section = last.latest if isinstance(last, Record) else last.section
    now = ReportSide(
        name=_name(last) if isinstance(last, Record) else "this run",
        created=section.created,
        provenance=section.provenance,
        measurements=section.measurements if isinstance(last, Record) else last.measurements,
        profile=last.profile,
    )
    others = len(before) - len(records)
    notes = (
        [f"{others} of the files given hold another profile than {last.profile!r} and are left out."] if others else []
    )
    if isinstance(last, Run) and last.injected:
        notes.append(f"Injected slowdown {last.injected}: slower on purpose, this run measures nothing.")
    terms = _terms(last, alpha)
    data = ReportData(now, notes=tuple(notes), history=tuple(records), alpha=terms.alpha)
    if isinstance(last, Run) and last.paired:
        return _judged_beside(data, last, terms)
    if before and not records:
        fault = (
            f"Nothing was compared: none of the records given holds profile {last.profile!r}, which was to be judged."
        )
        return replace(data, faults=(fault,), status=int(Exit.CANNOT_JUDGE))
    return _judged(data, records, terms) if records else data


def _terms(last: Record | Run, alpha: float | None) -> Terms:
    asked = Policy().alpha if alpha is None else alpha
    if isinstance(last, Record):
        return Terms((1,), 1, asked)
    if last.terms is not None:
        return last.terms if alpha is None else replace(last.terms, alpha=alpha)
    # A file from before this was written down: made with the usual number of workers, most likely.
    looks = looks_between(*COMPARE_WORKERS)
    workers = max((each.workers for each in last.measurements), default=0)
    return Terms(looks, min(sum(workers > look for look in looks) + 1, len(looks)), asked)


def _judged(data: ReportData, records: Sequence[Record], terms: Terms) -> ReportData:
    now, machine = data.now, data.now.provenance.machine
    section = records[-1].section(machine)
    rows = judge(
        now.measurements,
        section.measurements,
        policy=terms.policy,
        look=terms.look,
        oldest=earliest(records, now.measurements, machine),
        machine=machine,
        software=now.provenance.software,
        reference_software=section.provenance.software,
        sampled=any(each.seconds for each in now.measurements),
    )
    reference = ReportSide(
        _name(records[-1]), section.created, section.provenance, section.measurements, records[-1].profile
    )
    return replace(data, reference=reference, rows=tuple(rows), status=int(exit_status(rows)))


def _judged_beside(data: ReportData, run: Run, terms: Terms) -> ReportData:
    now = data.now
    rows = judge_paired(
        now.measurements,
        run.base_measurements,
        policy=terms.policy,
        look=terms.look,
        sampled=any(each.seconds for each in now.measurements),
    )
    judged = replace(data, paired=True, rows=tuple(rows), status=int(exit_status(rows)))
    base = run.base
    if base is None:
        return replace(judged, faults=("Nothing was compared: no scenario could be measured on the base.",))
    commit = base.provenance.commit
    name = f"the base {commit[:12]}" if commit else "the base"
    reference = ReportSide(name, base.created, base.provenance, base.measurements, now.profile)
    return replace(judged, reference=reference)


def _name(record: Record) -> str:
    return record.path.stem if record.path else record.name
