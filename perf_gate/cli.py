"""The command `perf-gate`: verdicts outside pytest."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from perf_gate.branches import bisect
from perf_gate.calibration import calibrate
from perf_gate.records.record import RecordError
from perf_gate.reporting import report
from perf_gate.session.output import OutputError
from perf_gate.showing import compare, show
from perf_gate.verdict import Exit

USAGE = 4

VERBS: tuple[Callable[[Any], None], ...] = (
    compare.add_parser,
    show.add_parser,
    report.add_parser,
    calibrate.add_parser,
    bisect.add_parser,
)


class Parser(argparse.ArgumentParser):
    """Ends with pytest's exit code after a usage error, so that one table of codes describes both."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Print the usage and the error, and exit."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser, with one subcommand per entry of VERBS; each stores its function as `run`."""
    top = Parser(prog="perf-gate", description="Judge and read records of the performance gate.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    for add in VERBS:
        add(verbs)
    return top


def cut(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Split `calibrate ... -- COMMAND` and `bisect ... -- ARGUMENTS` at the first "--"; no other subcommand."""
    given = list(arguments)
    if given[:1] not in (["calibrate"], ["bisect"]) or "--" not in given:
        return given, ()
    at = given.index("--")
    return given[:at], tuple(given[at + 1 :])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand. Returns its exit status: 0 pass, 1 regressed, 10 cannot judge; a usage error exits with 4.

    If a record cannot be read, the reason is printed on stderr and the status is 10, as in pytest.
    """
    given = sys.argv[1:] if arguments is None else arguments
    own, command = cut(given)
    try:
        options = parser().parse_args(own)
    except SystemExit as end:
        if end.code == USAGE and own[:1] == ["report"]:
            report.mark_page_unfinished(own[1:])
        raise
    options.command, options.line = command, ["perf-gate", *given]
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        status = run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has gone away (| head). Without this the interpreter complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.CANNOT_JUDGE)
    except RecordError as error:
        print(f"cannot judge: {error}", file=sys.stderr)  # noqa: T201 - a command line speaks by printing
        return int(Exit.CANNOT_JUDGE)
    except (compare.UnknownMachineError, OutputError) as error:
        print(f"perf-gate: {error}", file=sys.stderr)  # noqa: T201 - a command line speaks by printing
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
