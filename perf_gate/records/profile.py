"""Which set of scenarios a run measures; records are compared within it."""

from __future__ import annotations

from perf_gate.records.provenance import Provenance

DEFAULT = "default"


def profile_of(provenance: Provenance) -> str:
    """The suites' option "profile" (see perf_gate.session.hookspec), "default" where they have none."""
    return str(provenance.options.get("profile") or DEFAULT)
