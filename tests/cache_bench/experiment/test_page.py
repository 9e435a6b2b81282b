"""The page says what the stored results say, and what formulas give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cache_bench.experiment.answers import answer
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.origin import ROOT
from cache_bench.experiment.page import BLOCKS, fill, filled, kv_corrections, marked, price, storing, table
from cache_bench.experiment.results import Results
from cache_bench.experiment.spread import Spread

PAGE = ROOT / "docs" / "prefix-caching.md"
FOLDER = ROOT / "docs" / "experiment"
MODELS = ("smollm2-135m", "distilgpt2-shape")


def test_no_figure_of_the_page_was_written_by_hand() -> None:
    stored = [Results.stored(FOLDER, model) for model in MODELS]
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, stored) == text, (
        f"run: python -m cache_bench.experiment {' '.join(MODELS)} --out docs/experiment --stored --page {PAGE.name}"
    )


def test_every_block_stands_on_the_page_once() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in BLOCKS:
        assert text.count(f"<!-- figures: {name} -->") == 1


def test_a_page_is_filled_and_filled_again(measured: Results, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: memory -->\nold\n<!-- end of figures -->\nafter\n", encoding="utf-8")
    fill(page, [measured])
    once = page.read_text(encoding="utf-8")
    assert "| 250 | 128,000 | 128,000 | 128,000 | 0.12 |" in once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    fill(page, [measured])
    assert page.read_text(encoding="utf-8") == once


def test_a_mark_that_nothing_is_known_for_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: moon -->\n<!-- end of figures -->", encoding="utf-8")
    with pytest.raises(ExperimentError, match=r"page\.md: there are no figures called 'moon'; there are: summary, "):
        marked(page)


def test_a_page_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    with pytest.raises(ExperimentError, match=r"page\.md cannot be read as text \(No such file"):
        marked(page)
    page.write_bytes(b"\xff")
    with pytest.raises(ExperimentError, match=r"page\.md cannot be read as text \(not UTF-8\)"):
        marked(page)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (Spread(0.002, 0.001, 0.003), "A request that finds nothing loses 2.0 ms [1.0, 3.0] by storing everything"),
        (Spread(-0.002, -0.003, 0.001), "could not be told from nothing: -2.0 ms [-3.0, 1.0]"),
        (Spread(0.002, 0.0, 0.003), "could not be told from nothing: 2.0 ms [0.0, 3.0]"),
        (Spread(-0.002, -0.003, -0.001), "No cost of storing was seen: "),
        (Spread(-0.002, -0.003, -0.001), "is -2.0 ms [-3.0, -1.0]"),
    ],
)
def test_the_cost_of_storing_is_said_with_its_interval(cost: Spread, words: str, measured: Results) -> None:
    assert words in storing(replace(answer(measured).break_even, storing_s=cost))


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_can_be_made_of_any_results(name: str, measured: Results) -> None:
    text = filled(f"<!-- figures: {name} -->\n<!-- end of figures -->", [measured, measured])
    assert len(text) > 100
    assert "nan" not in text


def test_arithmetic_of_the_corrections() -> None:
    assert "2 × 6 × 12 × 64 × 4 bytes × 200 = 7,372,800 bytes = **7.0 MiB**" in kv_corrections()
    assert "2 × 32 × 32 × 128 × 2 bytes × 2,000 = 1,048,576,000 bytes = **1,000.0 MiB**" in kv_corrections()


def test_arithmetic_of_the_price() -> None:
    five_minutes, one_hour = price().splitlines()
    assert "from k = 1 on" in five_minutes
    assert "from k = 2 on" in one_hour
    for k, writing in ((1, 1.25), (2, 2.0)):
        assert writing + 0.1 * k < 1 + k
        assert writing + 0.1 * (k - 1) >= k


def test_a_table_is_one_in_markdown() -> None:
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
