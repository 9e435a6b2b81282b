"""A base is found and laid out, and the repository does not notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perf_gate import folder as folder_module
from perf_gate.branches.base import Base, find_base
from perf_gate.branches.repository import Repository, RepositoryError
from perf_gate.branches.subject import Subject, subject_of
from perf_gate.folder import BASE, LOCK, TemporaryFolder, prune
from tests.perf_gate.engines import write_engine

SUBJECT = Subject({"engine": "."})


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path, text: str) -> str:
    git(root, "add", "-A")
    git(root, "commit", "-qm", text)
    return git(root, "rev-parse", "HEAD")


def everything(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits on main, one more on a branch, which is checked out."""
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    write_engine(root, name="one")
    (root / ".gitattributes").write_text("engine/data.txt export-ignore\n")
    (root / "engine" / "data.txt").write_text("data\n")
    (root / "engine" / "link").symlink_to("data.txt")
    commit(root, "one")
    git(root, "switch", "-qc", "work")
    write_engine(root, name="work")
    commit(root, "work")
    git(root, "switch", "-q", "main")
    write_engine(root, name="two")
    commit(root, "two")
    git(root, "switch", "-q", "work")
    return root


def name_in(root: Path) -> str:
    return (root / "engine" / "__init__.py").read_text().splitlines()[1]


# -------------------------------------------------------------------- what is meant


def test_without_a_value_it_is_the_merge_base_with_the_default_branch(repo: Path) -> None:
    base = find_base("", repo, repo, SUBJECT)
    assert base.commit == git(repo, "rev-parse", "main~1")
    assert base.name.endswith("(one), the merge base with main")


def test_the_remotes_default_branch_comes_first(repo: Path, tmp_path: Path) -> None:
    git(repo, "branch", "-m", "main", "trunk")
    clone = tmp_path / "clone"
    git(repo, "switch", "-q", "trunk")
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    git(clone, "switch", "-q", "work")
    assert find_base("", clone, clone, SUBJECT).name.endswith("the merge base with origin/trunk")
    git(clone, "remote", "set-head", "origin", "--delete")
    with pytest.raises(RepositoryError, match=r"no default branch was found .* --gate-against=HEAD~1"):
        find_base("", clone, clone, SUBJECT)


def test_three_dots_are_the_merge_base(repo: Path) -> None:
    assert find_base("main...", repo, repo, SUBJECT).commit == git(repo, "rev-parse", "main~1")
    assert find_base("main", repo, repo, SUBJECT).commit == git(repo, "rev-parse", "main")


def test_nothing_to_compare_is_an_error_unless_something_changed(repo: Path) -> None:
    git(repo, "switch", "-q", "main")
    with pytest.raises(RepositoryError, match=r"nothing to compare: give a base, e\.g\. --gate-against=HEAD~1"):
        find_base("", repo, repo, SUBJECT)
    write_engine(repo, name="changed")
    assert find_base("", repo, repo, SUBJECT).commit == git(repo, "rev-parse", "HEAD")


@pytest.mark.parametrize("asked", ["nowhere", "--all", "main...work", "nowhere...", "-n1", "HEAD:engine"])
def test_a_revision_that_is_not_there_is_named(repo: Path, asked: str) -> None:
    with pytest.raises(RepositoryError, match="there is no revision"):
        find_base(asked, repo, repo, SUBJECT)


def test_histories_without_an_ancestor_say_so(repo: Path) -> None:
    git(repo, "switch", "-q", "--orphan", "alone")
    write_engine(repo)
    commit(repo, "alone")
    with pytest.raises(RepositoryError, match="main and HEAD have no common ancestor"):
        find_base("", repo, repo, SUBJECT)


def test_a_shallow_clone_names_the_way_out(repo: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", "--branch=work", "--no-single-branch", repo.as_uri(), str(shallow))
    git(shallow, "remote", "set-head", "origin", "main")
    for asked in ("", "HEAD~1", "origin/main..."):
        with pytest.raises(RepositoryError, match=r"shallow clone.*fetch-depth: 0.*git fetch --unshallow"):
            find_base(asked, shallow, shallow, SUBJECT)


def test_a_directory_is_taken_as_it_lies_there(repo: Path, tmp_path: Path) -> None:
    write_engine(tmp_path / "other")
    for asked in ("../other", str(tmp_path / "other")):
        base = find_base(asked, repo, repo, SUBJECT)
        with base.laid_out() as root:
            assert root == tmp_path / "other"
    assert (tmp_path / "other" / "engine").is_dir()


def test_a_path_that_the_option_swallowed_is_told(repo: Path) -> None:
    (repo / "perf_tests").mkdir()
    with pytest.raises(RepositoryError, match=r"perf_tests has no engine.*behind the paths of the suites"):
        find_base("perf_tests", repo, repo, SUBJECT)
    with pytest.raises(RepositoryError, match="is the candidate itself"):
        find_base(".", repo, repo, SUBJECT)


def test_a_directory_that_is_a_revision_too_is_ambiguous(repo: Path) -> None:
    write_engine(repo / "main")
    with pytest.raises(
        RepositoryError, match=r"main is both a directory and a revision: write \./main or [0-9a-f]{12}"
    ):
        find_base("main", repo, repo, SUBJECT)
    assert find_base("./main", repo, repo, SUBJECT).directory == repo / "main"
    shutil.rmtree(repo / "main" / "engine")
    assert find_base("main", repo, repo, SUBJECT).commit


def test_outside_a_repository_a_directory_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="is not in a git repository: give a directory"):
        find_base("HEAD", tmp_path, tmp_path, SUBJECT)


# -------------------------------------------------------------------- laid out


def test_what_is_laid_out_is_the_whole_commit(repo: Path) -> None:
    base = find_base("main", repo, repo, SUBJECT)
    with base.laid_out() as root:
        assert name_in(root) == 'NAME = "two"'
        # Neither export-ignore nor a link is lost.
        assert (root / "engine" / "link").read_text() == "data\n"
        assert SUBJECT.missing(root) == []
    assert not root.exists()


def test_a_project_below_the_top_is_found_there(tmp_path: Path) -> None:
    project = tmp_path / "repo" / "services" / "cache"
    write_engine(project, name="below")
    git(tmp_path / "repo", "init", "-q")
    commit(tmp_path / "repo", "one")
    with find_base("HEAD", project, project, SUBJECT).laid_out() as root:
        assert root.parts[-2:] == ("services", "cache")
        assert name_in(root) == 'NAME = "below"'


def test_the_repository_does_not_notice(repo: Path) -> None:
    (repo / "stashed.txt").write_text("1")
    git(repo, "add", "-A")
    git(repo, "stash", "-q")
    write_engine(repo, name="staged")
    git(repo, "add", "-A")
    write_engine(repo, name="unstaged")
    (repo / "untracked.txt").write_text("2")
    for setting in ("core.splitIndex", "core.sparseCheckout", "core.untrackedCache"):
        git(repo, "config", setting, "true")
    (repo / ".git" / "info" / "sparse-checkout").write_text("/nothing\n")
    before = everything(repo)
    with find_base("main", repo, repo, SUBJECT).laid_out() as root:
        assert name_in(root) == 'NAME = "two"'
        assert everything(repo) == before
    assert everything(repo) == before
    assert git(repo, "worktree", "list").count("\n") == 0


def test_a_hooks_environment_is_left_behind(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    with find_base("main", repo, repo, SUBJECT).laid_out() as root:
        assert name_in(root) == 'NAME = "two"'


def test_a_linked_worktree_is_a_place_to_start_from(repo: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", str(linked), "main")
    with find_base("work", linked, linked, SUBJECT).laid_out() as root:
        assert name_in(root) == 'NAME = "work"'


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_it_goes_whatever_happens(repo: Path, tmp_path: Path, error: type[BaseException]) -> None:
    def fail(base: Base) -> None:
        with base.laid_out():
            assert list((tmp_path / "tmp").iterdir())
            raise error

    with pytest.raises(error):
        fail(find_base("main", repo, repo, SUBJECT))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_commit_that_git_cannot_lay_out_is_an_error(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="git read-tree"), Base("gone", repo, "0" * 40).laid_out():
        pass
    assert list((tmp_path / "tmp").iterdir()) == []


# -------------------------------------------------------------------- left behind

HOLDER = """
import sys, time
from pathlib import Path
from perf_gate.folder import TemporaryFolder
with TemporaryFolder(Path(sys.argv[1])) as folder:
    print(folder.path, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_behind_goes_at_the_next_start(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().strip())
        with TemporaryFolder(tmp_path):
            assert left.is_dir(), "another process still lives in it"
        holder.kill()
        holder.wait()
        assert left.is_dir()
        with TemporaryFolder(tmp_path) as mine:
            assert not left.exists()
            prune(tmp_path)
            assert mine.path.is_dir()
    finally:
        holder.kill()
        holder.communicate()


def test_a_folder_that_is_being_made_is_left_alone_for_a_while(tmp_path: Path) -> None:
    young, old, other = (tmp_path / f"{BASE}{name}" for name in ("young", "old", "other"))
    for path in (young, old):
        path.mkdir()
    other.symlink_to(tmp_path / "somewhere")
    history_plot = time.time() - folder_module.PATIENCE_SECONDS - 60
    os.utime(old, (history_plot, history_plot))
    prune(tmp_path)
    assert young.is_dir()
    assert not old.exists()
    assert other.is_symlink()


def test_the_lock_is_held(tmp_path: Path) -> None:
    with TemporaryFolder(tmp_path) as folder:
        assert (folder.path / LOCK).is_file()
        assert not (folder.path / f"{LOCK}.draft").exists()


# -------------------------------------------------------------------- the subject


def test_a_subject_is_read_from_paths(tmp_path: Path) -> None:
    subject = subject_of(["engine", "src/other ", "one_file"])
    assert subject.homes(tmp_path) == {
        "engine": str(tmp_path), "other": str(tmp_path / "src"), "one_file": str(tmp_path),
    }  # fmt: skip
    write_engine(tmp_path)
    (tmp_path / "one_file.py").write_text("")
    assert subject.missing(tmp_path) == ["other"]
    assert str(subject) == "engine, other, one_file"


@pytest.mark.parametrize("lines", [["/engine"], ["../engine"], ["engine.py"], [""], ["a/engine", "b/engine"]])
def test_a_bad_subject_is_named(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=lines[-1] or "''"):
        subject_of(lines)


def test_git_that_is_missing_is_an_error(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RepositoryError, match="git is not installed"):
        Repository(repo).git("status")
