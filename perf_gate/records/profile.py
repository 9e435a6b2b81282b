"""The profile of a run: a named set of scenarios, within which runs are compared."""

from __future__ import annotations

from perf_gate.records.provenance import Provenance

DEFAULT = "default"


def profile_of(provenance: Provenance) -> str:
    """Return the suites' option "profile" (see perf_gate.session.hookspec), or "default"."""
    return str(provenance.options.get("profile") or DEFAULT)
