"""`perf-gate bisect GOOD BAD METRIC`: find the commit that made a metric worse, with `git bisect run`.

Every step uses the suites and the gate of the working tree. Only the packages under test change from commit to commit;
each is compared with GOOD. The search runs in a clone in a temporary folder, which shares only its objects.
Options for pytest follow "--", e.g. `-- perf_tests/test_memory.py --profile quick`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf_gate.branches.base import lay_out
from perf_gate.branches.repository import Repository, RepositoryError
from perf_gate.folder import TemporaryFolder
from perf_gate.measuring.worker_pool import GATE
from perf_gate.quantity import quantity
from perf_gate.verdict import Exit, Verdict

# The exit statuses of git bisect run: https://git-scm.com/docs/git-bisect#_bisect_run
GOOD, BAD, SKIP, ABORT = 0, 1, 125, 128


# A step runs in the commit that is checked out, whose own gate must not be imported.
STEP = """
import sys
sys.path.insert(0, sys.argv[1])
from perf_gate.branches.bisect import main
sys.exit(main(sys.argv[1:]))
"""


class BisectError(Exception):
    """The search is impossible: the message says why and what to do."""


@dataclass(frozen=True)
class Search:
    """One search. root: project root in the working tree. base: project root of GOOD. pytest: its arguments."""

    root: Path
    base: Path
    metric: str
    pytest: tuple[str, ...]

    def judge(self, candidate: Path, rows: Path) -> StepResult:
        """Compare the subject at `candidate` with GOOD. rows: a file to write. Raises BisectError."""
        command = [sys.executable, "-m", "pytest", *self.pytest, f"--gate-against={self.base}"]
        command += [f"--gate-candidate={candidate}", f"--gate-rows={rows}", "-p", "no:cacheprovider"]
        rows.unlink(missing_ok=True)
        done = subprocess.run(  # noqa: S603 - our own interpreter, and the arguments of whoever called us
            command, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if not rows.exists():
            raise BisectError(f"pytest ended with {done.returncode} and no verdict:\n{done.stdout[-4000:]}")
        report = json.loads(rows.read_text(encoding="utf-8"))
        if report["fault"] is not None:
            raise BisectError(f"nothing can be judged: {report['fault']}")
        return StepResult.of(report["rows"], self.metric)


@dataclass(frozen=True)
class StepResult:
    """The result of one commit for the metric. status: for git bisect run. text: for display."""

    status: int
    text: str
    timed: bool = False
    known: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], metric: str) -> StepResult:
        """Return the result from the rows of a verdict. A commit that is invalid or inconclusive is skipped."""
        known = tuple(sorted({row["metric"] for row in rows if row["metric"] is not None}))
        mine = [row for row in rows if row["metric"] == metric]
        # Missing scenarios were left out by the arguments.
        unfit = [row for row in rows if row["metric"] is None and row["verdict"] != Verdict.MISSING]
        worse = [row for row in mine if row["verdict"] == Verdict.REGRESSED]
        if worse:
            return cls(BAD, _in_words(max(worse, key=_share)), known=known)
        untimed = [row for row in mine if row["optional"]]
        if untimed:
            return cls(SKIP, untimed[0]["why"], timed=True, known=known)
        doubtful = [row for row in mine if row["verdict"] not in (Verdict.PASS, Verdict.IMPROVED)] + unfit
        if doubtful or not mine:
            why = str(doubtful[0]["why"]) if doubtful else f"no scenario has {metric!r}"
            return cls(SKIP, why.splitlines()[0], known=known)
        return cls(GOOD, _in_words(max(mine, key=_share)), known=known)


def _share(row: Mapping[str, Any]) -> float:
    return float(row["change"])


def _in_words(row: Mapping[str, Any]) -> str:
    before, after = (quantity(row[name], row["unit"]) for name in ("reference", "now"))
    return f"{row['scenario']}: {before} before, {after} now"


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    verb = verbs.add_parser("bisect", help="find the commit that made a metric worse", description=__doc__)
    verb.add_argument("good", metavar="GOOD", help="a revision at which the metric is good")
    verb.add_argument("bad", metavar="BAD", help="a later revision at which it is worse")
    verb.add_argument("metric", metavar="METRIC", help="the name of the metric, e.g. 'KV bytes copied, hot hit'")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Search and print. Returns 0 if the commit was found, else 10."""
    try:
        say(bisect(Path.cwd(), options.good, options.bad, options.metric, options.command))
    except (BisectError, RepositoryError) as error:
        print(f"cannot bisect: {error}", file=sys.stderr)  # noqa: T201 - a command line speaks by printing
        return int(Exit.CANNOT_JUDGE)
    return int(Exit.PASS)


def say(text: str) -> None:
    """Print and flush, because git prints in between."""
    print(text, flush=True)  # noqa: T201 - a command line speaks by printing


def bisect(root: Path, good: str, bad: str, metric: str, arguments: Sequence[str]) -> str:
    """Find the first bad commit and return it as text.

    root: project root, the folder of the ini file. Raises BisectError, RepositoryError.
    """
    repository = Repository(root)
    ends = [repository.commit(each) for each in (good, bad)]
    if not repository.holds("merge-base", "--is-ancestor", *ends) or ends[0] == ends[1]:
        raise BisectError(
            f"{good} is not an ancestor of {bad}: give an older revision that is good and a later one that is bad"
            f"{repository.perhaps_shallow()}"
        )
    with TemporaryFolder() as folder:
        base = lay_out(repository, ends[0], folder.path / "tree", folder.path / "index")
        clone = folder.path / "clone"
        # Its refs, its index, its HEAD and its bisection are the clone's own; the objects are read where they are.
        repository.git("clone", "--quiet", "--shared", "--no-checkout", _common(repository), str(clone))
        theirs = Repository(clone)
        theirs.git("checkout", "--quiet", "--detach", ends[1])
        search = Search(root, base, metric, tuple(arguments))
        rows = folder.path / "rows.json"
        search, result = _both_ends(search, clone / repository.prefix, rows)
        say(f"bad: {repository.describe(ends[1])}: {result.text}")
        return _search(theirs, search, ends, repository.prefix, rows)


def _common(repository: Repository) -> str:
    return repository.git("rev-parse", "--path-format=absolute", "--git-common-dir")


def _both_ends(search: Search, candidate: Path, rows: Path) -> tuple[Search, StepResult]:
    """Make sure that the bad revision is bad, by counting alone if that shows it."""
    exact = Search(search.root, search.base, search.metric, (*search.pytest, "--gate-exact"))
    for each in (exact, search):
        result = each.judge(candidate, rows)
        if search.metric not in result.known:
            raise BisectError(
                f"no scenario yields {search.metric!r}; there are: {', '.join(result.known) or f'none ({result.text})'}"
            )
        if result.status == BAD:
            return each, result
        if not result.timed:
            break
    state = "is no worse there" if result.status == GOOD else "cannot be judged there"
    raise BisectError(f"the bad revision is not bad, {search.metric!r} {state}: {result.text}")


def _search(theirs: Repository, search: Search, ends: Sequence[str], prefix: str, rows: Path) -> str:
    step = [sys.executable, "-P", "-c", STEP, GATE, str(search.root), str(search.base), str(theirs.root / prefix)]
    theirs.git("bisect", "start", ends[1], ends[0])
    try:
        theirs.git("bisect", "run", *step, str(rows), search.metric, *search.pytest, shown=True)
    except RepositoryError as error:
        # If everything between was skipped, git's log has the commits that are left.
        left = [line for line in theirs.git("bisect", "log").splitlines() if line.startswith("# possible first bad")]
        if not left:
            raise BisectError(f"the search failed: {error}") from error
        listed = "\n".join(line.partition(": ")[2] for line in left)
        raise BisectError(f"every commit between was skipped; it is one of:\n{listed}") from None
    first = theirs.commit("refs/bisect/bad")
    return f"first bad commit: {theirs.git('show', '--no-patch', '--format=%H%n  %an, %cs: %s', first)}"


def main(arguments: Sequence[str]) -> int:
    """Run one step of git bisect run on the commit that is checked out. Returns 0, 1, 125, or 128 to abort.

    arguments: folder of the gate, root, base, candidate, file for the rows, metric, and the arguments of pytest.
    """
    _, root, base, candidate, rows, metric, *others = arguments
    try:
        result = Search(Path(root), Path(base), metric, tuple(others)).judge(Path(candidate), Path(rows))
    except BisectError as error:
        say(f"cannot bisect: {error}")
        return ABORT
    word = {GOOD: "good", BAD: "bad", SKIP: "skipped"}[result.status]
    say(f"{word}: {Repository(Path(candidate)).describe('HEAD')}: {result.text}")
    return result.status
