"""pytest hooks for suites of cache_bench's scenarios: --profile and --model. A conftest.py imports them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from cache_bench.model import ModelUnavailable, require
from cache_bench.profile import PROFILES, QUICK, Profile, profile_of

_PROFILE = pytest.StashKey[Profile]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --profile and --model."""
    group = parser.getgroup("cache bench")
    group.addoption(
        "--profile",
        choices=list(PROFILES),
        default=QUICK.name,
        help=f"what to measure (default: {QUICK.name}): "
        + "; ".join(f"{name} ({', '.join(each.models)})" for name, each in PROFILES.items()),
    )
    group.addoption(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="measure this model instead of the profile's (may be repeated): a name of the Hugging Face hub, "
        "a local folder, or a seeded model such as llama-4m",
    )


def pytest_configure() -> None:
    """Use one thread here as in the workers: two of them slow each other down on a machine that does anything else."""
    torch.set_num_threads(1)


def profile(config: pytest.Config) -> Profile:
    """Return what this run measures. Raises pytest.UsageError where a model is missing or too short."""
    if _PROFILE not in config.stash:
        chosen = profile_of(config.getoption("--profile"), tuple(config.getoption("--model")))
        for model in chosen.models:
            try:
                require(model, chosen.longest)
            except ModelUnavailable as error:
                raise pytest.UsageError(str(error)) from error
        config.stash[_PROFILE] = chosen
    return config.stash[_PROFILE]


def pytest_perf_gate_options(config: pytest.Config) -> Mapping[str, str]:
    """Tell the gate which profile and models a record is of."""
    chosen = profile(config)
    return {"profile": chosen.name, "models": " ".join(chosen.models)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `profile_model` once for every model of the profile."""
    if "profile_model" in metafunc.fixturenames:
        metafunc.parametrize("profile_model", profile(metafunc.config).models)
