"""The base of --gate-against: a revision of the repository or a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from perf_gate.branches.repository import Repository, RepositoryError
from perf_gate.branches.subject import Subject
from perf_gate.folder import TemporaryFolder
from perf_gate.records.provenance import Provenance

# Git settings that would write into the repository, or check out less than the whole commit, switched off.
PLAIN = ("core.splitIndex=false", "core.fsmonitor=false", "core.sparseCheckout=false", "core.untrackedCache=false")


@dataclass(frozen=True)
class Base:
    """One base. name: for display. commit: full hash; "" for a directory, which is used with what is in it."""

    name: str
    root: Path
    commit: str = ""
    directory: Path | None = None

    def provenance(self, candidate: Provenance, *, python: str | None) -> Provenance:
        """Return the provenance of its measurements: the candidate's, with its own commit.

        python: its interpreter, if that is another one than the candidate's; the versions installed there are unknown.
        """
        versions = candidate.versions if python is None else {"interpreter": python}
        return replace(candidate, commit=self.commit, committed="", branch="", dirty=False, versions=versions)

    @contextmanager
    def laid_out(self) -> Iterator[Path]:
        """Yield the project root of the base. Raises RepositoryError.

        A commit is written into a temporary folder through an index of its own. The repository gets no worktree, no ref
        and no lock, so that nothing is left in it however the process ends.
        """
        if self.directory is not None:
            yield self.directory
            return
        with TemporaryFolder() as folder:
            yield lay_out(Repository(self.root), self.commit, folder.path / "tree", folder.path / "index")


def lay_out(repository: Repository, commit: str, tree: Path, index: Path) -> Path:
    """Write the files of a commit below `tree` and return the project root in there.

    index: path of a file for git's index. Raises RepositoryError.
    """
    tree.mkdir()
    top = Repository(Path(repository.git("rev-parse", "--show-toplevel")))
    environment = {"GIT_INDEX_FILE": str(index)}
    top.git("read-tree", commit, settings=PLAIN, environment=environment)
    top.git("checkout-index", "--all", "--quiet", f"--prefix={tree}/", settings=PLAIN, environment=environment)
    return tree / repository.prefix


def find_base(asked: str, root: Path, here: Path, subject: Subject) -> Base:
    """Return the base that was asked for.

    asked: a revision; a revision followed by "..." for its merge base with HEAD; a directory, relative to `here`; ""
    for the merge base with the default branch. root: the candidate's project root. Raises RepositoryError.
    """
    directory = (here / asked).resolve() if asked else None
    if directory is not None and directory.is_dir():
        revision = _revision(asked, root)
        if not subject.missing(directory):
            return _directory(asked, directory, root, revision)
        if revision is None:
            missing = ", ".join(subject.missing(directory))
            raise RepositoryError(
                f"the directory {asked} has no {missing}, and there is no such revision: give the root of a project, "
                "or write the option behind the paths of the suites, which it took for its value"
            )
    repository = Repository(root)
    if not asked:
        return _default(repository, root)
    if asked.endswith("..."):
        branch = asked.removesuffix("...")
        commit = repository.merge_base(branch)
        return Base(f"{repository.describe(commit)}, the merge base with {branch}", root, commit)
    commit = repository.commit(asked)
    return Base(f"{repository.describe(commit)}, {asked}", root, commit)


def _revision(asked: str, root: Path) -> str | None:
    try:
        return Repository(root).commit(asked)
    except RepositoryError:
        return None


def _directory(asked: str, directory: Path, root: Path, revision: str | None) -> Base:
    if directory == root.resolve():
        raise RepositoryError(
            f"{asked} is the candidate itself: give another directory or a revision (HEAD: the last commit)"
        )
    if revision is not None and "/" not in asked:
        raise RepositoryError(f"{asked} is both a directory and a revision: write ./{asked} or {revision[:12]}")
    return Base(str(directory), root, directory=directory)


def _default(repository: Repository, root: Path) -> Base:
    repository.commit("HEAD")
    branch = repository.default_branch()
    commit = repository.merge_base(branch)
    if commit == repository.commit("HEAD") and not repository.dirty:
        raise RepositoryError(
            f"HEAD is already in {branch} and nothing has changed since, so there is nothing to compare: give a base, "
            "e.g. --gate-against=HEAD~1"
        )
    return Base(f"{repository.describe(commit)}, the merge base with {branch}", root, commit)
