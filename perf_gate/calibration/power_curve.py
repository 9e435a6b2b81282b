"""The power curve: the share of red runs as a function of the slowdown."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from perf_gate.calibration.calibration_report import CalibrationReport
from perf_gate.calibration.decision_rules import DecisionRule, MannWhitney, PercentRule, StudentT, WelchInterval
from perf_gate.calibration.pool import CalibrationError
from perf_gate.calibration.rate import Rate
from perf_gate.calibration.simulation import Condition

Curve = Mapping[float, Rate]


def figure_maker() -> Any:
    """Return matplotlib's Figure. Raises CalibrationError naming the extra if it is not installed."""
    try:
        return importlib.import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise CalibrationError("a plot needs matplotlib: pip install 'prefix-cache-gate[report]'") from error


def curves(report: CalibrationReport) -> dict[str, Curve]:
    """Return label -> slowdown -> runs with any red row. At 0 these are false alarms."""
    found: dict[str, Curve] = {}
    unchanged = report.tallies.get(Condition())
    start = {} if unchanged is None else {0.0: unchanged.alarms}
    for everywhere in (False, True):
        label = f"this gate, slower in {'all scenarios' if everywhere else 'one scenario'}"
        found[label] = {**start, **{s: report.tallies[Condition(s, everywhere)].alarms for s in report.slowdowns}}
    for rule, rates in report.rules.items():
        if _shown(rule):
            found[f"{rule}"] = {0.0: rates.alarms, **rates.one}
    return found


def _shown(rule: DecisionRule) -> bool:
    """One rule of each kind, as it is mostly used. With more curves the plot cannot be read."""
    if isinstance(rule, PercentRule):
        return (rule.statistic, rule.limit, rule.processes) in (("mean", 0.05, 1), ("min", 0.05, None))
    kept = {MannWhitney: 2, StudentT: 1, WelchInterval: None}
    unit = getattr(rule, "unit", "processes")
    return kept[type(rule)] == rule.processes and unit == "processes"


def draw(report: CalibrationReport, path: Path) -> list[Path]:
    """Write the curve as SVG and as PNG, whatever the suffix of `path`, and return both paths.

    Raises CalibrationError if matplotlib is missing.
    """
    make = figure_maker()
    figure = make(figsize=(9, 6.5), layout="constrained")
    axes = figure.add_subplot()
    for number, (label, curve) in enumerate(curves(report).items()):
        ours = number < 2
        x = [100 * slowdown for slowdown in curve]
        y = [100 * rate.share for rate in curve.values()]
        ends = [
            [100 * (r.share - r.interval[0]) for r in curve.values()],
            [100 * (r.interval[1] - r.share) for r in curve.values()],
        ]
        axes.errorbar(
            x, y, yerr=ends, label=label, capsize=2, marker="o", markersize=3,
            linewidth=2.2 if ours else 1, linestyle="-" if ours else "--",
        )  # fmt: skip
    axes.set_xlabel(f"injected slowdown of the arm {report.arm!r} (%); at 0 a red run is a false alarm")
    axes.set_ylabel("runs with any red row (%)")
    axes.set_ylim(-2, 102)
    runs = max(tally.runs for tally in report.tallies.values())
    axes.set_title(
        f"Share of red runs by slowdown\n{runs} runs resampled from {report.pool}; "
        f"bars: exact 95 % intervals{'; other rules: slower in one scenario' if report.rules else ''}",
        fontsize=10,
    )
    axes.grid(alpha=0.3)
    figure.legend(fontsize=7, loc="outside lower center")
    for file in files(path):
        _save(figure, file)
    return files(path)


def files(path: Path | None) -> list[Path]:
    """Return the paths that `draw` writes, none for None."""
    return [] if path is None else [path.with_suffix(".svg"), path.with_suffix(".png")]


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix[1:]
    # No date and constant ids: the same data gives the same file.
    rc = importlib.import_module("matplotlib").rc_context
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file, rc({"svg.hashsalt": "perf-gate"}):
            figure.savefig(file, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise
