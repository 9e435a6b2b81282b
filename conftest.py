"""Registers the gate."""

from __future__ import annotations

pytest_plugins = ["perf_gate.plugin", "pytester"]
