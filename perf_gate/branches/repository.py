"""The project's git repository, read only: nothing here changes a ref, an index or a working tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Candidates for the default branch, the likeliest first.
DEFAULT_BRANCHES = ("origin/main", "origin/master", "main", "master")
DEEPEN = (
    "this is a shallow clone, which may lack it: fetch the whole history (fetch-depth: 0 in actions/checkout, "
    "GIT_DEPTH: 0 in GitLab, git fetch --unshallow here)"
)


class RepositoryError(Exception):
    """A git command failed: the message says why and what to do."""


@dataclass(frozen=True)
class Repository:
    """The repository around a folder. root: any folder in its working tree."""

    root: Path

    def git(
        self,
        *arguments: str,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        shown: bool = False,
    ) -> str:
        """Output of a git command, stripped. settings: "name=value", over git's own configuration.

        shown: let the output through instead of returning it.

        Raises RepositoryError with what git said.
        """
        program = shutil.which("git")
        if program is None:
            raise RepositoryError("git is not installed: install it, or give a directory to compare with")
        # A hook (pre-push) sets the variables of its own repository; this one is found from the root.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        options = [part for setting in settings for part in ("-c", setting)]
        done = subprocess.run(  # noqa: S603 - the program is git, the arguments are our own
            [program, "--no-optional-locks", "-C", str(self.root), *options, *arguments],
            stdout=None if shown else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**inherited, "LC_ALL": "C", **(environment or {})},
        )
        if done.returncode:
            raise RepositoryError(f"git {arguments[0]}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        return "" if shown else done.stdout.strip()

    def holds(self, *arguments: str) -> bool:
        """Return whether a git command succeeds."""
        try:
            self.git(*arguments)
        except RepositoryError:
            return False
        return True

    @property
    def prefix(self) -> str:
        """Path of the root below the top of the working tree, "" for the top itself. Raises RepositoryError."""
        return self.git("rev-parse", "--show-prefix")

    @property
    def dirty(self) -> bool:
        """Whether anything below the root differs from the commit, new files included. Raises RepositoryError."""
        return bool(self.git("status", "--porcelain", "--", "."))

    def commit(self, revision: str) -> str:
        """Return the full hash of the commit of `revision`. Raises RepositoryError."""
        # --end-of-options: a revision that begins with a dash is not taken for an option.
        arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if not self.holds("rev-parse", "--git-dir"):
            raise RepositoryError(f"{self.root} is not in a git repository: give a directory to compare with")
        if not self.holds(*arguments):
            raise RepositoryError(f"there is no revision {revision!r} here{self.perhaps_shallow()}")
        return self.git(*arguments).splitlines()[-1]

    def merge_base(self, revision: str) -> str:
        """Return the full hash of the best common ancestor of `revision` and HEAD. Raises RepositoryError."""
        other = self.commit(revision)
        if not self.holds("merge-base", other, "HEAD"):
            raise RepositoryError(f"{revision} and HEAD have no common ancestor{self.perhaps_shallow()}")
        return self.git("merge-base", other, "HEAD").splitlines()[0]

    def default_branch(self) -> str:
        """Return the default branch as a revision, e.g. "origin/main". Raises RepositoryError."""
        if self.holds("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD"):
            return self.git("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
        for name in DEFAULT_BRANCHES:
            where = "remotes" if "/" in name else "heads"
            if self.holds("rev-parse", "--verify", "--quiet", f"refs/{where}/{name}"):
                return name
        raise RepositoryError(
            f"no default branch was found (looked for origin/HEAD, {', '.join(DEFAULT_BRANCHES)}): "
            f"give a base, e.g. --gate-against=HEAD~1{self.perhaps_shallow()}"
        )

    def describe(self, commit: str) -> str:
        """Return a commit as one line: the beginning of its hash and its subject. Raises RepositoryError."""
        return self.git("show", "--no-patch", "--format=%h (%s)", commit)

    def perhaps_shallow(self) -> str:
        """Return how to fetch a missing commit, to append to a message, if this is a shallow clone; else ""."""
        shallow = self.holds("rev-parse", "--git-dir") and self.git("rev-parse", "--is-shallow-repository") == "true"
        return f"; {DEEPEN}" if shallow else ""
