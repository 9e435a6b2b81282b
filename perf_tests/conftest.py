"""Options of the suites, and what the gate must know of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from perf_tests.model import ModelUnavailable, require
from perf_tests.profile import PROFILES, QUICK, Profile, profile_of

# One thread here as in the workers: two of them spin against each other on a machine that does anything else.
torch.set_num_threads(1)

_PROFILE = pytest.StashKey[Profile]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("perf suites")
    group.addoption(
        "--profile",
        choices=list(PROFILES),
        default=QUICK.name,
        help=f"what to measure ({QUICK.name}): "
        + "; ".join(f"{name} ({', '.join(each.models)})" for name, each in PROFILES.items()),
    )
    group.addoption(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="measure this model instead (may be repeated): a name of the Hugging Face hub, a local folder, "
        "or a stand-in such as llama-4m",
    )


def profile(config: pytest.Config) -> Profile:
    """What this run measures. Raises pytest.UsageError where a model is certain to be missing."""
    if _PROFILE not in config.stash:
        chosen = profile_of(config.getoption("--profile"), tuple(config.getoption("--model")))
        for model in chosen.models:
            try:
                require(model)
            except ModelUnavailable as error:
                raise pytest.UsageError(str(error)) from error
        config.stash[_PROFILE] = chosen
    return config.stash[_PROFILE]


def pytest_perf_gate_options(config: pytest.Config) -> Mapping[str, str]:
    chosen = profile(config)
    return {"profile": chosen.name, "models": " ".join(chosen.models)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "profile_model" in metafunc.fixturenames:
        metafunc.parametrize("profile_model", profile(metafunc.config).models)
