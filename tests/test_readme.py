"""What the README promises is what CI runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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
    known = {name for option in pytestconfig._parser._anonymous.options for name in option.names()}
    for group in pytestconfig._parser._groups:
        known |= {name for option in group.options for name in option.names()}
    suites = (ROOT / "perf_tests" / "conftest.py").read_text(encoding="utf-8")
    for option in re.findall(r"(?<![\w-])--(?:gate|benchmark)-[a-z-]+", page.read_text(encoding="utf-8")):
        assert option in known, f"{page.name} names {option}"
    for option in re.findall(r"(?<![\w-])--(?:profile|model)\b", page.read_text(encoding="utf-8")):
        assert f'"{option}"' in suites
