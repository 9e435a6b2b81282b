"""Make every step that has not been made yet."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from cache_bench.experiment.count import count
from cache_bench.experiment.laboratory import Laboratory
from cache_bench.experiment.options import Options
from cache_bench.experiment.origin import origin
from cache_bench.experiment.plan import plan
from cache_bench.experiment.progress import Bar
from cache_bench.experiment.results import Results

_COUNTING = 2000.0  # weight of counting one prefix


class _Work:
    """What an experiment asks for, what of it lies in a folder, and what is missing."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.steps = plan(options)
        self.results = Results.resume(folder, origin(options), self.steps)
        done, counted = self.results.done, {each.prefix_tokens for each in self.results.counts}
        self.missing = [step for step in self.steps if step.key not in done]
        self.uncounted = [prefix for prefix in options.prefixes if prefix not in counted]
        self.total = sum(step.weight for step in self.steps) + _COUNTING * len(options.prefixes)
        self.left = sum(step.weight for step in self.missing) + _COUNTING * len(self.uncounted)


def check(options: Options, folder: Path) -> None:
    """Raise what `run` would raise before it measures; writes nothing.

    ExperimentError for results in `folder` that are not this experiment's, and for a model that has no room for it or
    whose KV cannot be cached; cache_bench.model.ModelUnavailable.
    """
    work = _Work(options, folder)
    if work.left:
        Laboratory(options, work.steps)


def run(options: Options, folder: Path, console: Console) -> Results:
    """Measure, or go on where an earlier run was stopped; every finished step is on disk before the next begins.

    Raises what `check` does, before anything is written, and perf_gate.InvalidPremise where an answer was not what was
    meant; what was kept before stays.
    """
    work = _Work(options, folder)
    results = work.results
    if results.notice:
        console.print(results.notice, markup=False, highlight=False, soft_wrap=True)
    if not work.left:
        return results
    laboratory = Laboratory(options, work.steps)
    results.begin()
    with Bar(console, work.total, work.total - work.left) as bar:
        for prefix in work.uncounted:
            results.count(count(options, prefix))
            bar.advance(_COUNTING, f"{options.model}: counted {prefix} tokens")
        for step in work.missing:
            results.append(laboratory.make(step))
            bar.advance(step.weight, f"{options.model}: {step.part} {step.number + 1}")
    return results
