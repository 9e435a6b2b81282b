"""`perf-gate compare A B`: compare record B with record A, as pytest would."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

from perf_gate.judging.judge import Policy, judge
from perf_gate.records.record import Record, load
from perf_gate.showing.table import render
from perf_gate.value import checked, parse_chance
from perf_gate.verdict import Row, exit_status


class UnknownMachineError(LookupError):
    """A record does not have the machine class that was asked for."""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    verb = verbs.add_parser("compare", help="compare one record with another", description=__doc__)
    verb.add_argument("reference", metavar="A.json", help="the record to compare with")
    verb.add_argument("now", metavar="B.json", help="the record to judge")
    verb.add_argument("--machine", help="machine class of B to judge (default: the one recorded last)")
    verb.add_argument("--oldest", metavar="FILE", help="a third record to compare B with, for slow drift")
    verb.add_argument(
        "--alpha",
        type=checked(parse_chance, "chance"),
        default=Policy().alpha,
        help="chance of a false alarm (default: %(default)s)",
    )
    verb.add_argument("--exact", action="store_true", help="exact metrics only")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare and print. Returns the exit status of the verdict."""
    reference, now = load(options.reference), load(options.now)
    oldest = load(options.oldest) if options.oldest else None
    rows = compare(
        reference, now, machine=options.machine, oldest=oldest, alpha=options.alpha, sampled=not options.exact
    )
    text = render(rows, width=shutil.get_terminal_size((120, 24)).columns, color=sys.stdout.isatty())
    print(text)  # noqa: T201 - a command line speaks by printing
    return int(exit_status(rows))


def compare(
    reference: Record,
    now: Record,
    *,
    machine: str | None = None,
    oldest: Record | None = None,
    alpha: float = 0.001,
    sampled: bool = True,
) -> list[Row]:
    """Compare one record with another, in one look.

    machine: machine class to compare; None: the one that `now` was recorded on last. Raises UnknownMachineError for a
    class that `now` does not have.
    """
    if machine is not None and machine not in now.sections:
        held = "; ".join(sorted(now.sections))
        raise UnknownMachineError(f"{now.name} has no machine class {machine!r}; it has: {held}")
    ours = now.latest if machine is None else now.sections[machine]
    theirs = reference.section(ours.machine)
    return judge(
        ours.measurements,
        theirs.measurements,
        policy=Policy(alpha=alpha, looks=1),
        oldest=[] if oldest is None else oldest.section(ours.machine).measurements,
        machine=ours.machine,
        software=ours.provenance.software,
        reference_software=theirs.provenance.software,
        sampled=sampled,
    )
