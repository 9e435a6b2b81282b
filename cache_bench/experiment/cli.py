"""Command line: measure (or go on measuring), answer, draw."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from cache_bench.experiment import page
from cache_bench.experiment.answers import Answers, answer
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.figures import draw
from cache_bench.experiment.options import Options, flag
from cache_bench.experiment.results import Results
from cache_bench.experiment.run import check, run
from cache_bench.experiment.spread import LEAST
from cache_bench.model import ModelUnavailable, require
from perf_gate import InvalidPremise
from perf_gate.cli import USAGE, Parser
from perf_gate.records.writable import why_not_writable

_DEFAULTS = Options("")


def main(arguments: Sequence[str] | None = None) -> int:
    """0: done; 1: an answer was wrong, so that nothing may be concluded; 4: cannot be done as asked; 130: stopped.

    Words that are no options leave with 4, too: SystemExit.
    """
    try:
        asked = _parser().parse_args(arguments)
        console = Console()
        _check(asked)
        all_results = [_results(asked, model, console) for model in asked.models]
        if asked.page is not None:
            page.fill(asked.page, all_results)
            console.print(f"filled {asked.page}")
        if asked.notebook:
            from cache_bench.experiment.notebook import build  # noqa: PLC0415 - needs more packages than all the rest

            build()
    except (ExperimentError, ModelUnavailable) as error:
        Console(stderr=True).print(str(error), markup=False, highlight=False)
        return USAGE
    except InvalidPremise as error:
        Console(stderr=True).print(f"not what was meant to be timed: {error}", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command goes on from here")
        return 130
    return 0


def _check(asked: argparse.Namespace) -> None:
    """Raise before anything is measured or written what would be raised after."""
    if not asked.models and (asked.page is not None or not asked.notebook):
        raise ExperimentError("there is nothing to measure; name a model, such as smollm2-135m or one of the hub")
    if asked.page is not None:
        page.marked(asked.page)
        _require_writable("--page", asked.page)
    if asked.notebook:
        try:
            from cache_bench.experiment import notebook  # noqa: PLC0415 - as above
        except ModuleNotFoundError as error:
            raise ExperimentError(
                f"--notebook needs {error.name}, which is not installed. Get it with: pip install -e .[notebook]"
            ) from error
        _require_writable("--notebook", notebook.TARGET)
    for model in asked.models:
        if asked.stored:
            _stored(asked, model)
        else:
            require(model)
            check(_options(asked, model), asked.out)


def _require_writable(option: str, file: Path) -> None:
    if (found := why_not_writable(file)) is not None:
        raise ExperimentError(f"{option} writes {file}: {found}")


def _stored(asked: argparse.Namespace, model: str) -> Results:
    results = Results.stored(asked.out, model)
    results.require_finished()
    return results


def _results(asked: argparse.Namespace, model: str, console: Console) -> Results:
    results = _stored(asked, model) if asked.stored else run(_options(asked, model), asked.out, console)
    answers = answer(results)
    results.conclude(answers.stored())
    _show(results, answers, console)
    files = draw(results, answers, asked.out)
    console.print(f"{results.csv}, {results.json.name} and {len(files)} plots", highlight=False)
    return results


def _show(results: Results, answers: Answers, console: Console) -> None:
    table = Table(title=answers.model, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("prefix", "cold\nms", "warm\nms", "speedup", "at\nbest", "FLOPs", "TPOT", "MiB"):
        table.add_column(name, justify="right")
    for prefix in answers.prefixes:
        table.add_row(
            f"{prefix.prefix_tokens}",
            page.ms(prefix.cold_s),
            page.ms(prefix.warm_s),
            page.in_words(prefix.speedup),
            f"{prefix.attainable.value:.1f}×",
            f"{prefix.theoretical:.1f}×",
            page.in_words(prefix.tpot, 2),
            f"{prefix.kept_bytes / 2**20:.1f}",
        )
    console.print(table)
    found = answers.break_even
    console.print(
        f"{page.storing(found)}; without a cache it takes {page.ms(found.cold_s)} ms.\n"
        f"A cache pays from {100 * found.share.value:.1f} % of the prompt on "
        f"[{100 * found.share.low:.1f}, {100 * found.share.high:.1f}].\n"
        f"{len(answers.sharing)} requests that share a prefix: {answers.sharing[-1].gain:.2f}× (median of "
        f"{results.made_with['series']} series, without an interval).",
        highlight=False,
        markup=False,
    )


def _options(asked: argparse.Namespace, model: str) -> Options:
    known = {field.name for field in fields(Options)}
    given: dict[str, Any] = {name: value for name, value in vars(asked).items() if name in known}
    for name in ("prefixes", "suffixes", "shares"):
        given[name] = tuple(given[name])
    return Options(model, **given)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m cache_bench.experiment",
        description="What prefix caching gains and costs here: measured, answered, drawn. The same command goes on "
        "where an earlier one was stopped.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="smollm2-135m, distilgpt2-shape, llama-4m, a hub name or a folder")
    add("--out", type=Path, default=Path("results"), metavar="FOLDER", help="results and plots")

    def option(name: str, meaning: str, **form: Any) -> None:
        add(flag(name), type=int, default=getattr(_DEFAULTS, name), help=meaning, **form)

    option("prompts", f"in all, spread over the prefixes; {LEAST} or more for each")
    option("prefixes", "shared by prompts, in tokens", nargs="+", metavar="TOKENS")
    option("suffixes", "tokens behind a prefix", nargs=2, metavar=("LOW", "HIGH"))
    option("output_tokens", "of each prompt")
    option("share_tokens", "of a prompt that shares more and more, for the break-even")
    option("shares", "how many of them are stored", nargs="+", metavar="TOKENS")
    option("share_repeats", f"of each share; {LEAST} or more")
    option("sharing", "requests in a series that shares a prefix")
    option("sharing_prefix", "tokens of that prefix")
    option("series", "such series, and long answers")
    option("long_output", "output tokens of the long answers")
    option("seed", "of tokens and order")
    option("threads", "that compute")
    add(
        "--stored", action="store_true", help="measure nothing: answer and draw what --out holds, whatever code made it"
    )
    add("--page", type=Path, metavar="FILE", help="write the figures between the marks of this Markdown file")
    add("--notebook", action="store_true", help="run docs/experiment.py into docs/experiment.ipynb")
    return parser
