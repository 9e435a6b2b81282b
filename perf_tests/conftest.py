"""Takes the suites' options and hooks from cache_bench."""

from __future__ import annotations

from cache_bench.plugin import (  # noqa: F401
    pytest_addoption,
    pytest_configure,
    pytest_generate_tests,
    pytest_perf_gate_options,
)
