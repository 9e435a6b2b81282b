"""Command line: measure (or go on measuring), answer, draw."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from perf_gate import InvalidPremise
from perf_tests.experiment.answers import Answers, answer
from perf_tests.experiment.fault import ExperimentError
from perf_tests.experiment.figures import draw
from perf_tests.experiment.options import Options
from perf_tests.experiment.results import Results
from perf_tests.experiment.run import run
from perf_tests.model import ModelUnavailable, require

_USAGE = 4  # as pytest has it
_DEFAULTS = Options("")


def main(arguments: Sequence[str] | None = None) -> int:
    """0: done; 1: an answer was wrong, so that nothing may be concluded; 4: cannot be done as asked; 130: stopped."""
    asked = _parser().parse_args(arguments)
    console = Console()
    try:
        all_results = [_results(asked, model, console) for model in asked.models]
        if asked.page is not None:
            from perf_tests.experiment.page import fill  # noqa: PLC0415 - nothing else needs a page's formats

            fill(asked.page, all_results)
            console.print(f"filled {asked.page}")
        if asked.notebook:
            from perf_tests.experiment.notebook import build  # noqa: PLC0415 - needs more packages than all the rest

            build()
    except (ExperimentError, ModelUnavailable) as error:
        Console(stderr=True).print(str(error), markup=False, highlight=False)
        return _USAGE
    except InvalidPremise as error:
        Console(stderr=True).print(f"not what was meant to be timed: {error}", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command goes on from here")
        return 130
    return 0


def _results(asked: argparse.Namespace, model: str, console: Console) -> Results:
    if asked.stored:
        results = Results.stored(asked.out, model)
    else:
        require(model)
        results = run(_options(asked, model), asked.out, console)
    if len(results.done) != results.head["steps"] or len(results.counts) != len(
        str(results.made_with["prefixes"]).split()
    ):
        raise ExperimentError(
            f"{results.csv} holds {len(results.done)} of {results.head['steps']} prompts; finish it with the command "
            "that began it, without --stored"
        )
    answers = answer(results)
    results.conclude(answers.stored())
    _show(answers, console)
    files = draw(results, answers, asked.out)
    console.print(f"{results.csv}, {results.json.name} and {len(files)} plots", highlight=False)
    return results


def _show(answers: Answers, console: Console) -> None:
    table = Table(title=answers.model, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("prefix", "cold ms", "warm ms", "speedup", "at best", "FLOPs", "saved", "TPOT", "MiB"):
        table.add_column(name, justify="right")
    for prefix in answers.prefixes:
        table.add_row(
            f"{prefix.prefix_tokens}",
            f"{1e3 * prefix.cold_s:.1f}",
            f"{1e3 * prefix.warm_s:.1f}",
            f"{prefix.speedup.value:.2f}×",
            f"{prefix.attainable.value:.2f}×",
            f"{prefix.theoretical:.1f}×",
            f"{100 * prefix.saved.value:.0f} %",
            f"{prefix.tpot.value:.3f}×",
            f"{prefix.kept_bytes / 2**20:.1f}",
        )
    console.print(table)
    found = answers.break_even
    console.print(
        f"storing costs {1e3 * found.storing_s.value:.1f} ms of {1e3 * found.cold_s:.0f} ms; pays from "
        f"{100 * found.share.value:.1f} % of the prompt on "
        f"[{100 * found.share.low:.1f}, {100 * found.share.high:.1f}]; "
        f"{len(answers.sharing)} requests that share a prefix: {answers.sharing[-1].gain:.2f}×",
        highlight=False,
    )


def _options(asked: argparse.Namespace, model: str) -> Options:
    names = ("prompts", "output_tokens", "share_repeats", "sharing", "series", "long_output", "seed", "threads")
    return Options(
        model,
        prefixes=tuple(asked.prefixes),
        suffixes=(asked.suffixes[0], asked.suffixes[1]),
        **{name: getattr(asked, name) for name in names},
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m perf_tests.experiment",
        description="What prefix caching gains and costs here: measured, answered, drawn. The same command goes on "
        "where an earlier one was stopped.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="smollm2-135m, distilgpt2-shape, llama-4m, a hub name or a folder")
    add("--out", type=Path, default=Path("results"), metavar="FOLDER", help="results and plots")
    add("--prompts", type=int, default=_DEFAULTS.prompts, help="in all, spread over the prefixes")
    add("--prefixes", type=int, nargs="+", default=list(_DEFAULTS.prefixes), metavar="TOKENS")
    add("--suffixes", type=int, nargs=2, default=list(_DEFAULTS.suffixes), metavar=("LOW", "HIGH"))
    add("--output-tokens", type=int, default=_DEFAULTS.output_tokens, help="of each prompt")
    add("--share-repeats", type=int, default=_DEFAULTS.share_repeats, help="rounds for the break-even")
    add("--sharing", type=int, default=_DEFAULTS.sharing, help="requests in a series that shares a prefix")
    add("--series", type=int, default=_DEFAULTS.series, help="such series, and long answers")
    add("--long-output", type=int, default=_DEFAULTS.long_output, help="output tokens of the long answers")
    add("--seed", type=int, default=_DEFAULTS.seed)
    add("--threads", type=int, default=_DEFAULTS.threads)
    add(
        "--stored", action="store_true", help="measure nothing: answer and draw what --out holds, whatever code made it"
    )
    add("--page", type=Path, metavar="FILE", help="write the figures between the marks of this Markdown file")
    add("--notebook", action="store_true", help="run docs/experiment.py into docs/experiment.ipynb")
    return parser
