"""The colours of page and plots, in light and dark."""

from __future__ import annotations

import re

from perf_gate.verdict import Verdict

# Each light colour occurs once: a plot is drawn with it, and on the page the name takes its place.
COLORS: dict[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e6edf3"),
    "muted": ("#57606a", "#a3adb8"),
    "line": ("#d4dbe2", "#363d46"),
    "soft": ("#e6ebf1", "#2a313a"),
    "ground": ("#ffffff", "#14191f"),
    "now": ("#0b5fc0", "#74b4ff"),
    "reference": ("#6f7883", "#8d96a1"),
    "pass": ("#1a7a36", "#4cc265"),
    "regressed": ("#bf1e2b", "#ff8178"),
    "improved": ("#0a6b80", "#45cdd7"),
    "doubt": ("#855600", "#e5b547"),
}
BY_VERDICT = {
    Verdict.PASS: "pass",
    Verdict.REGRESSED: "regressed",
    Verdict.IMPROVED: "improved",
    Verdict.INVALID: "regressed",
    Verdict.INCONCLUSIVE: "doubt",
    Verdict.MISSING: "doubt",
    Verdict.UNRECORDED: "doubt",
    Verdict.NOT_COMPARABLE: "doubt",
}
_NAMES = {light: name for name, (light, _) in COLORS.items()}
_ANY = re.compile("|".join(_NAMES))


def light(name: str) -> str:
    """The colour as it is drawn, "#rrggbb"."""
    return COLORS[name][0]


def named(style: str) -> str:
    """A CSS text with every colour of ours replaced by its custom property, so that the page's scheme decides."""
    return _ANY.sub(lambda match: f"var(--{_NAMES[match.group()]})", style)


def properties(scheme: int) -> str:
    """The custom properties as CSS declarations. scheme: 0 light, 1 dark."""
    return " ".join(f"--{name}: {colors[scheme]};" for name, colors in COLORS.items())
