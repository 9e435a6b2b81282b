"""The hook with which suites describe a run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


@pytest.hookspec
def pytest_perf_gate_options(config: pytest.Config) -> Mapping[str, str | int | float | bool | None]:  # type: ignore[empty-body]
    """Return the suites' options that say what is measured, e.g. {"profile": "quick", "models": "llama-4m"}.

    They are stored in a record's provenance. "profile" also selects the records to compare with: only those of the same
    profile. The results of all implementations are merged.
    """
