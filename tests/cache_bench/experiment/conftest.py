"""One small experiment that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from cache_bench.experiment.options import Options
from cache_bench.experiment.results import Results
from cache_bench.experiment.run import run


@pytest.fixture(scope="session")
def options() -> Options:
    return Options(
        "tiny-grouped",
        prompts=12,
        prefixes=(8, 250),  # with its suffix, the longer one needs a larger buffer than alone
        suffixes=(3, 6),
        output_tokens=3,
        share_tokens=16,
        shares=(0, 4, 8),
        share_repeats=6,
        sharing=3,
        sharing_prefix=12,
        series=2,
        long_output=6,
    )


@pytest.fixture(scope="session")
def measured_folder(options: Options, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    run(options, folder, Console(quiet=True))
    return folder


@pytest.fixture
def measured(options: Options, measured_folder: Path) -> Results:
    return Results.stored(measured_folder, options.model)
