"""Make every step that has not been made yet."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from perf_tests.experiment.count import count
from perf_tests.experiment.laboratory import Laboratory
from perf_tests.experiment.options import Options
from perf_tests.experiment.origin import origin
from perf_tests.experiment.plan import plan
from perf_tests.experiment.progress import Bar
from perf_tests.experiment.results import Results

_COUNTING = 2000.0  # weight of counting one prefix


def run(options: Options, folder: Path, console: Console) -> Results:
    """Measure, or go on where an earlier run was stopped; every finished step is on disk before the next begins.

    Raises ExperimentError for results in `folder` that are not this experiment's, perf_tests.model.ModelUnavailable,
    and perf_gate.InvalidPremise where an answer was not what was meant; what was kept before stays.
    """
    steps = plan(options)
    results = Results.resume(folder, origin(options), steps)
    done = results.done
    missing = [step for step in steps if step.key not in done]
    uncounted = [prefix for prefix in options.prefixes if prefix not in {each.prefix_tokens for each in results.counts}]
    if not missing and not uncounted:
        return results
    total = sum(step.weight for step in steps) + _COUNTING * len(options.prefixes)
    left = sum(step.weight for step in missing) + _COUNTING * len(uncounted)
    laboratory = Laboratory(options, steps)
    with Bar(console, total, total - left) as bar:
        for prefix in uncounted:
            results.count(count(options, prefix))
            bar.advance(_COUNTING, f"{options.model}: counted {prefix} tokens")
        for step in missing:
            results.append(laboratory.make(step))
            bar.advance(step.weight, f"{options.model}: {step.part} {step.number + 1}")
    return results
