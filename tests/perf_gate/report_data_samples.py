"""Dossiers from seeded samples: green, red, undecided, and with names that nobody should trust."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perf_gate.judging.judge import judge
from perf_gate.judging.policy import Policy
from perf_gate.records.record import Record, Section
from perf_gate.reporting.report_data import ReportData, ReportSide
from perf_gate.verdict import exit_status
from tests.perf_gate import samples
from tests.perf_gate.samples import COPIED, EFFICIENCY, SPEEDUP, WARM, measurement

SHORT = ("p50", "p200")
METRICS = (COPIED, EFFICIENCY, SPEEDUP, WARM)
HOSTILE = (
    "</title><script src=http://evil.example/x.js>alert(1)</script>$\\frac{x$ & \"'` | [a](http://evil.example) \u202eb"
)


def record(number: int, *, machine: str = samples.MACHINE, copied: int = 0, short: tuple[str, ...] = SHORT) -> Record:
    measured = tuple(
        replace(
            measurement(
                each, seed=number, workers=12, metrics=METRICS, exact={"bytes copied": copied}, machine=machine
            ),
            record=f"{number:04}_quick",
        )
        for each in short
    )
    provenance = samples.provenance(machine, commit=f"{number:02x}" * 20)
    section = Section(f"2026-01-{number:02}T03:04:05+00:00", provenance, measured)
    return Record("quick", "quick", {machine: section}, Path(f"{number:04}_quick.json"))


def data(
    *,
    slower: float = 1.0,
    copied: int = 0,
    workers: int = 12,
    short: tuple[str, ...] = SHORT,
    history: tuple[Record, ...] = (),
    machine: str = samples.MACHINE,
    sampled: bool = True,
    invalid: str | None = None,
    name: str = "this run",
    **facts: object,
) -> ReportData:
    """A run judged against the last record of `history`, by default one of the same code."""
    history = history or (record(1), record(2))
    measured = [
        measurement(
            each,
            seed=9,
            workers=workers,
            slower=slower,
            metrics=METRICS,
            exact={"bytes copied": copied},
            machine=machine,
        )
        for each in short
    ]
    if not sampled:
        measured = [replace(each, seconds={}) for each in measured]
    if invalid is not None:
        measured[-1] = replace(measured[-1], invalid=invalid)
    reference = history[-1].section(machine)
    rows = judge(
        measured,
        reference.measurements,
        policy=Policy(looks=1),
        machine=machine,
        sampled=sampled,
        oldest=history[0].section(machine).measurements,
    )
    now = ReportSide(
        name, "2026-02-01T03:04:05+00:00", samples.provenance(machine, **facts), tuple(measured), profile="quick"
    )
    path = history[-1].path
    assert path is not None
    against = ReportSide(path.stem, reference.created, reference.provenance, reference.measurements, "quick")
    return ReportData(now, against, tuple(rows), int(exit_status(rows)), history=history)


def green() -> ReportData:
    return data()


def red() -> ReportData:
    return data(slower=1.2, copied=4096)


def undecided() -> ReportData:
    return data(workers=2)


def hostile() -> ReportData:
    """Everything that a stranger can name is named to break out."""
    short = (HOSTILE, "p200")
    found = data(
        slower=1.2,
        short=short,
        history=(record(1, short=short),),
        machine=HOSTILE,
        branch=HOSTILE,
        commit=HOSTILE,
        command=("pytest", HOSTILE),
        options={HOSTILE: HOSTILE},
        versions={"torch": HOSTILE},
        name=HOSTILE,
    )
    return replace(found, faults=(HOSTILE,), notes=(HOSTILE,))


ALL = {"green": green, "red": red, "undecided": undecided, "hostile": hostile}
