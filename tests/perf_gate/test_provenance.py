from __future__ import annotations

import subprocess

import pytest

from perf_gate.records import provenance as module
from perf_gate.records.provenance import machine_class, machine_parts, provenance, software, versions


def git(root, *arguments):
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "code.py").write_text("1\n")
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "README").write_text("records\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_clean_checkout_is_named_by_its_commit(checkout):
    found = provenance(checkout, threads=2, options={"profile": "quick"}, command=["pytest", "perf_tests"])
    assert found.commit == git(checkout, "rev-parse", "HEAD")
    assert found.committed == git(checkout, "show", "-s", "--format=%cI", "HEAD")
    assert (found.branch, found.dirty) == ("trunk", False)
    assert (found.options, found.command) == ({"profile": "quick"}, ("pytest", "perf_tests"))
    assert found.parts["threads"] == 2
    assert found.machine == machine_class(found.parts)
    assert found.software == software(versions())


@pytest.mark.parametrize("change", ["edited", "added", "staged", "deleted"])
def test_any_change_makes_the_tree_dirty(checkout, change):
    if change == "edited":
        (checkout / "code.py").write_text("2\n")
    elif change == "deleted":
        (checkout / "code.py").unlink()
    else:
        (checkout / "new.py").write_text("3\n")
        if change == "staged":
            git(checkout, "add", "new.py")
    assert provenance(checkout).dirty


def test_records_do_not_make_the_tree_dirty(checkout):
    (checkout / "baselines" / "0001_a.json").write_text("{}")
    assert not provenance(checkout).dirty
    assert provenance(checkout, besides=()).dirty


def test_a_detached_head_has_no_branch(checkout):
    git(checkout, "checkout", "-q", "--detach")
    assert provenance(checkout).branch == ""
    assert provenance(checkout).commit


def test_without_a_commit_or_a_checkout_or_git_it_says_so_and_does_not_raise(tmp_path, checkout, monkeypatch):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    assert provenance(outside).commit == ""
    git(outside, "init", "-q")
    assert (provenance(outside).commit, provenance(outside).branch) == ("", "")
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    found = provenance(checkout)
    assert (found.commit, found.dirty) == ("", False)


def test_a_git_environment_of_somebody_else_does_not_mislead(checkout, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert provenance(checkout).branch == "trunk"


def test_the_machine_class_names_what_timing_depends_on_and_nothing_else():
    parts = {
        "architecture": "x86_64",
        "processor": "Testchip 9",
        "family": 6,
        "model": 1,
        "cores": 2,
        "threads": 1,
        "memory": 1,
        "release": "6.1",
    }
    assert machine_class(parts) == "x86_64 Testchip 9 (6/1), 2 cores, 1 thread"
    assert machine_class({**parts, "memory": 2, "release": "6.2"}) == machine_class(parts)
    for part, value in {"architecture": "arm64", "processor": "T", "model": 2, "cores": 4, "threads": 2}.items():
        assert machine_class({**parts, part: value}) != machine_class(parts)
    assert machine_class({**parts, "family": None, "cores": 1}) == "x86_64 Testchip 9, 1 core, 1 thread"


def test_this_machine_has_a_class_that_stays():
    assert machine_class(machine_parts(1)) == machine_class(machine_parts(1))
    assert machine_parts(1)["cores"] >= 1
    assert machine_parts(1)["processor"]


def test_versions_are_read_without_importing(monkeypatch):
    assert set(versions(["pytest", "there-is-no-such-package"])) == {"python", "pytest"}
    asked = []
    monkeypatch.setattr(module.metadata, "version", lambda name: asked.append(name) or "1.0")
    versions()
    assert {"torch", "transformers"} < set(asked)


def test_software_is_what_operator_calls_depend_on():
    found = {"python": "3.11", "numpy": "2.0", "transformers": "5.24.0", "torch": "2.13.0+cpu"}
    assert software(found) == "torch 2.13.0, transformers 5.24.0"
    assert software({**found, "python": "3.14", "torch": "2.13.0"}) == software(found)
    assert software({**found, "torch": "2.14.0"}) != software(found)
    assert software({}) == ""
