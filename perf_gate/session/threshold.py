"""Thresholds from the ini file and from markers, and whether they name metrics that exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import pytest

from perf_gate.measurement import Measurement
from perf_gate.measuring.samples import Task
from perf_gate.metric import Metric, Sampled
from perf_gate.records.record import files, load
from perf_gate.records.section import RecordError
from perf_gate.value import number

INI = "gate_threshold"
PAIRED_INI = "gate_paired_threshold"
# Options that keep whole files from being collected.
NARROWING = ("lf", "ignore", "ignore_glob")


def parse_threshold(line: str) -> tuple[str, float]:
    """Parse a line "metric name = 0.02". Raises ValueError."""
    name, equals, text = (part.strip() for part in line.rpartition("="))
    threshold = number(text)
    if not (name and equals and 0 < threshold < 1):
        raise ValueError("give lines like 'reuse efficiency = 0.02', with a number > 0 and < 1")
    return name, threshold


def with_threshold(
    metric: Metric, item: pytest.Item, thresholds: Mapping[str, float], paired: Mapping[str, float]
) -> Metric:
    """Return the metric with the thresholds of the ini file, or of the nearest marker, which takes precedence.

    paired: thresholds by metric against a base in the same run. Raises pytest.UsageError for a marker that is wrong.
    """
    if not isinstance(metric, Sampled):
        return metric
    threshold, absolute, paired_threshold = (
        thresholds.get(metric.name),
        metric.absolute_threshold,
        paired.get(metric.name, metric.paired_threshold),
    )
    for marker in reversed(list(item.iter_markers("threshold"))):
        name, threshold_here, absolute_here, paired_here = _marked(item, marker)
        if name == metric.name:
            threshold, absolute = threshold_here, absolute if absolute_here is None else absolute_here
            paired_threshold = paired_threshold if paired_here is None else paired_here
    if threshold is None:
        return replace(metric, paired_threshold=paired_threshold)
    # The resolution keeps its distance from the threshold.
    resolution = max(metric.resolution, threshold + metric.resolution - metric.threshold)
    try:
        return replace(
            metric,
            threshold=threshold,
            absolute_threshold=absolute,
            resolution=resolution,
            paired_threshold=paired_threshold,
        )
    except (ValueError, TypeError) as error:
        raise pytest.UsageError(f"{item.nodeid}: threshold: {error}") from None


def _marked(item: pytest.Item, marker: pytest.Mark) -> tuple[str, float, float | None, float | None]:
    numbers = [*marker.args[1:], *marker.kwargs.values()]
    if (
        len(marker.args) != 2
        or not isinstance(marker.args[0], str)
        or set(marker.kwargs) - {"absolute", "paired"}
        or not all(isinstance(number, int | float) for number in numbers)
    ):
        raise pytest.UsageError(
            f"{item.nodeid}: write @pytest.mark.threshold('metric name', 0.02) or (..., absolute=0.001, paired=0.01),"
            f" not {marker.args} {marker.kwargs or ''}".rstrip()
        )
    return marker.args[0], marker.args[1], marker.kwargs.get("absolute"), marker.kwargs.get("paired")


def refuse_unknown_markers(item: pytest.Item, metrics: Sequence[Metric]) -> None:
    """Raise pytest.UsageError if a marker names a metric that is no sampled metric of its test."""
    timed = _sampled(metrics)
    for marker in item.iter_markers("threshold"):
        if marker.args and marker.args[0] not in timed:
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.threshold names {marker.args[0]!r},"
                f" but its sampled metrics are {sorted(timed)}"
            )


def refuse_unknown_metrics(
    ini: str, thresholds: Iterable[str], tasks: Iterable[Task], session: pytest.Session, *, root: Path, baselines: Path
) -> None:
    """Raise pytest.UsageError if the ini value `ini` names a sampled metric that neither a task nor a record has.

    Checked only if the suites were collected as a whole (`_is_whole`): a run of some files does not know the metrics of
    the others.
    """
    tasks = list(tasks)
    known = _sampled(metric for task in tasks for metric in task.metrics)
    strange = set(thresholds) - known
    if not strange or not tasks:
        return
    records = list(_recorded(baselines))
    known |= _sampled(metric for record in records for each in record for metric in each.metrics)
    strange -= known
    if not strange or not _is_whole(session, {task.name for task in tasks}, records, root):
        return
    name = min(strange)
    near = get_close_matches(name, sorted(known), n=1)
    meant = f", did you mean {near[0]!r}?" if near else "."
    raise pytest.UsageError(
        f"ini value {ini}: no scenario has a sampled metric {name!r}{meant} There are {sorted(known)}"
    )


def _sampled(metrics: Iterable[Metric]) -> set[str]:
    return {metric.name for metric in metrics if isinstance(metric, Sampled)}


def _recorded(baselines: Path) -> Iterable[list[Measurement]]:
    """Yield the measurements of each record that can be read; the comparison reports the others."""
    for path in files(baselines) if baselines.is_dir() else ():
        try:
            record = load(path)
        except RecordError:
            continue
        yield [each for section in record.sections.values() for each in section.measurements]


def _is_whole(session: pytest.Session, names: set[str], records: Sequence[list[Measurement]], root: Path) -> bool:
    """Return whether every suite was collected: folders, no file broken or ignored, every scenario of some record.

    Without a record, the folders have to be `root` or directly in it: a deeper folder may have siblings with suites.
    """
    config = session.config
    if session.testsfailed or any(config.getoption(option, None) for option in NARROWING):
        return False
    folders = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
    if not all(folder.is_dir() for folder in folders):
        return False
    if records:
        return any({each.scenario for each in record} <= names for record in records)
    top = root.resolve()
    return all(top in (folder, folder.parent) for folder in folders)
