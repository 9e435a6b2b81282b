"""What the README promises is what CI runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cache_bench.plugin import pytest_addoption

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[str]:
    return [line.strip() for line in README.splitlines() if line.startswith("    python3 -m venv")]


def test_there_are_two_commands_and_ci_runs_the_tests_by_the_readmes() -> None:
    gate, tests = commands()
    assert gate.endswith("pytest perf_tests --benchmark-compare")
    assert tests in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_options_that_are_named_exist(page: Path, pytestconfig: pytest.Config) -> None:
    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    groups = [pytestconfig._parser._anonymous, *pytestconfig._parser._groups, *parser._groups]
    known = {name for group in groups for option in group.options for name in option.names()}
    for option in re.findall(r"(?<![\w-])--(?:(?:gate|benchmark)-[a-z-]+|profile|model)\b", page.read_text("utf-8")):
        assert option in known, f"{page.name} names {option}"
