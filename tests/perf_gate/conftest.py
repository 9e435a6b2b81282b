"""A project folder with synthetic scenarios that the workers can import."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from perf_gate.reporting.page import render
from tests.perf_gate import report_data_samples
from tests.perf_gate.checkout import ROOT
from tests.perf_gate.suite import Suite
from tests.perf_gate.versioned import Project

HERE = Path(__file__).parent


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder that is the current directory and holds synthetic.py."""
    shutil.copy(HERE / "synthetic.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def synthetic(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of synthetic scenarios, imported from the project folder."""
    monkeypatch.syspath_prepend(str(project))
    yield importlib.import_module("synthetic")
    del sys.modules["synthetic"]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in list(os.environ):
        if name.startswith(("PYTEST_", "GIT_")):
            monkeypatch.delenv(name)
    return Suite(pytester)


@pytest.fixture(scope="session")
def first_record(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Filled by the first test that records; the others copy it."""
    return [tmp_path_factory.mktemp("record")]


@pytest.fixture
def recorded(suite: Suite, first_record: list[Path]) -> Suite:
    """A suite with a committed record."""
    kept = first_record[0] / "baselines"
    if not kept.exists():
        result = suite.record()
        assert result.ret == 0, result.stdout.str()
        shutil.copytree(suite.path / "baselines", kept)
    else:
        shutil.copytree(kept, suite.path / "baselines")
    suite.commit()
    suite.discard()
    return suite


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    """The page of each report."""
    return {name: render(make()) for name, make in report_data_samples.ALL.items()}


@pytest.fixture
def versioned(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project under git with one commit, whose temporary folders are its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in list(os.environ):
        if name.startswith(("PYTEST_", "GIT_", "GITHUB_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(pytester.path / "tmp"))
    return Project(pytester)
