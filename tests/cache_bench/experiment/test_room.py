"""What a model has no room for is refused before anything is written; the most that is named is accepted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cache_bench.experiment import laboratory
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.options import Options
from cache_bench.experiment.run import check, run
from prefix_cache.errors import UnsupportedModelError


def refusal(options: Options, folder: Path) -> str:
    with pytest.raises(ExperimentError) as refused:
        run(options, folder, Console(quiet=True))
    assert not folder.exists()
    return str(refused.value)


def most_of(words: str, flag: str) -> int:
    found = re.search(rf"at most (\d+)(?: with {flag})?$|at most (\d+) with {flag}", words)
    assert found is not None, words
    return int(found[1] or found[2])


def with_value(options: Options, name: str, value: int) -> Options:
    """The last length of those that make up an option, or the option itself."""
    before = getattr(options, name)
    changed: Any = (*before[:-1], value) if isinstance(before, tuple) else value
    return replace(options, **{name: changed})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("prefixes", 1020, r"--prefixes 8 1020: tiny-learned has 1024 positions, 10 of which .* give at most 1014$"),
        ("sharing_prefix", 1020, r"--sharing-prefix 1020: tiny-learned has 1024 positions"),
        ("share_tokens", 1024, r"--share-tokens 1024: tiny-learned has 1024 positions; give at most 1023$"),
        ("suffixes", 65, r"--suffixes 3 65: the floor has room for 64 tokens; give at most 64$"),
    ],
)
def test_positions_and_the_floor(options: Options, tmp_path: Path, name: str, value: int, words: str) -> None:
    learned = replace(options, model="tiny-learned")
    said = refusal(with_value(learned, name, value), tmp_path / "out")
    assert re.match(words, said), said
    most = most_of(said, "")
    check(with_value(learned, name, most), tmp_path / "out")
    refusal(with_value(learned, name, most + 1), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_answer_that_leaves_no_prefix(options: Options, tmp_path: Path) -> None:
    said = refusal(replace(options, model="tiny-learned", long_output=1020), tmp_path / "out")
    assert "1024 positions, and suffix and answer take 1024" in said
    assert "--long-output, together at most 1023" in said


@pytest.mark.parametrize("name", ["prefixes", "sharing_prefix", "shares"])
def test_text(options: Options, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cache_bench.prompts.load_tokenizer", lambda _: lambda _: {"input_ids": [*range(200)]})
    roomy = replace(options, prefixes=(8, 200), share_tokens=300)
    said = refusal(with_value(roomy, name, 201), tmp_path / "out")
    assert "the text that all prompts share has 200 tokens for tiny-grouped; give at most 200" in said
    assert said.startswith(f"--{name.replace('_', '-')} ")
    check(with_value(roomy, name, 200), tmp_path / "out")


@pytest.mark.parametrize(("name", "value"), [("prompts", 600), ("prefixes", 1500)])
def test_vocabulary(options: Options, tmp_path: Path, name: str, value: int) -> None:
    said = refusal(with_value(options, name, value), tmp_path / "out")
    assert f"--{name} {'8 ' if name == 'prefixes' else ''}{value}" in said
    assert "tiny-grouped knows 512 tokens" in said
    most = most_of(said, f"--{name}")
    check(with_value(options, name, most), tmp_path / "out")
    refusal(with_value(options, name, most + 1), tmp_path / "out")


def test_a_vocabulary_that_no_number_of_prompts_would_fit(options: Options, tmp_path: Path) -> None:
    said = refusal(replace(options, sharing=600, sharing_prefix=100), tmp_path / "out")
    assert said.endswith("give less with --sharing, --series, --shares or --share-repeats")


def test_a_model_whose_kv_cannot_be_cached(options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def engine(_: object) -> None:
        raise UnsupportedModelError("it has no KV")

    monkeypatch.setattr(laboratory, "PrefixCacheEngine", engine)
    assert refusal(options, tmp_path / "out") == "tiny-grouped cannot be cached: it has no KV"
