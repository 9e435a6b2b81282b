"""The figures of docs/prefix-caching.md: what stands between its marks is written here, from results and formulas."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cache_bench.experiment.answers import Answers, BreakEven, PrefixAnswer, answer
from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.file import write
from cache_bench.experiment.kv_size import FLOAT16, FLOAT32, MIB, MODELS, named
from cache_bench.experiment.results import Results
from cache_bench.experiment.spread import Spread

_MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
_OUTPUTS = (1, 10, 50, 100, 200)
_REQUESTS = (1, 2, 3, 5, 10, 20)

Both = Sequence[tuple[Results, Answers]]


def fill(page: Path, results: Sequence[Results]) -> None:
    """Write the figures of `results` into `page`. Raises ExperimentError where it cannot be read or written."""
    write(filled(marked(page), results), page)


def marked(page: Path) -> str:
    """The text of `page`. Raises ExperimentError where it cannot be read, or has marks that nothing is known for."""
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(
            f"{page} cannot be read as text ({getattr(error, 'strerror', 'not UTF-8')}); give a Markdown file that is "
            "there with --page"
        ) from error
    for mark in _MARKED.finditer(text):
        if mark[2] not in BLOCKS:
            raise ExperimentError(f"{page}: there are no figures called {mark[2]!r}; there are: {', '.join(BLOCKS)}")
    return text


def filled(text: str, results: Sequence[Results]) -> str:
    """`text` with what belongs between its marks."""
    both = [(each, answer(each)) for each in results]
    return _MARKED.sub(lambda mark: f"{mark[1]}\n{BLOCKS[mark[2]](both)}\n\n{mark[3]}", text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """As Markdown; all but the first column to the right."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ruler, *rows))


def storing(found: BreakEven) -> str:
    """What a request that finds nothing loses, in words."""
    cost = found.storing_s
    loss = f"{1e3 * cost.value:.1f} ms [{1e3 * cost.low:.1f}, {1e3 * cost.high:.1f}]"
    if cost.low > 0:
        return f"A request that finds nothing loses {loss} by storing everything"
    if cost.high >= 0:
        return f"What a request that finds nothing loses by storing everything could not be told from nothing: {loss}"
    return f"No cost of storing was seen: what a request that finds nothing loses by storing everything is {loss}"


def in_words(spread: Spread, digits: int = 1, unit: str = "×") -> str:
    """With its interval."""
    return f"{spread.value:.{digits}f}{unit} [{spread.low:.{digits}f}, {spread.high:.{digits}f}]"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def ms(seconds: float) -> str:
    """Milliseconds, without the unit."""
    return f"{1e3 * seconds:.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.1f}"


def _per_model(make: Callable[[Results, Answers], str]) -> Callable[[Both], str]:
    return lambda both: "\n\n".join(make(results, answers) for results, answers in both)


def _summary(results: Results, answers: Answers) -> str:
    short, long = answers.prefixes[0], answers.prefixes[-1]
    return (
        f"- **{results.model}**: with {long.prefix_tokens} shared tokens the first token is there "
        f"{long.speedup.value:.1f} times sooner ({ms(long.warm_s)} ms instead of {ms(long.cold_s)} ms), with "
        f"{short.prefix_tokens} shared tokens {short.speedup.value:.1f} times. What is attainable is "
        f"{long.attainable.value:.1f} and {short.attainable.value:.1f} times. "
        f"{long.prefix_tokens} tokens take {long.kept_bytes / MIB:.1f} MiB."
    )


def _conditions(both: Both) -> str:
    models = " ".join(results.model for results, _ in both)
    lines = ["```", f"python -m cache_bench.experiment {models} --out docs/experiment", "```", ""]
    for what in ("machine", "software"):
        values = sorted({str(results.made_with[what]) for results, _ in both})
        lines.append(f"- {what}: {'; '.join(values)}")
    for results, _ in both:
        made = results.made_with
        lines.append(
            f"- {results.model}: {made['prompts']} prompts, suffixes of {str(made['suffixes']).replace(' ', ' to ')} "
            f"tokens, {made['output_tokens']} output tokens each; rows in "
            f"[{results.csv.name}](experiment/{results.csv.name}), counts and answers in "
            f"[{results.json.name}](experiment/{results.json.name})"
        )
    return "\n".join(lines)


def _ttft(results: Results, answers: Answers) -> str:
    head = (
        f"{results.model}, prefix", "cold ms", "warm ms", "floor ms", "speedup cold / warm", "attainable cold / floor",
        "ratio of FLOPs", "time saved", "floor / warm",
    )  # fmt: skip
    return table(head, (_ttft_row(prefix) for prefix in answers.prefixes))


def _ttft_row(prefix: PrefixAnswer) -> Sequence[str]:
    return (
        f"{prefix.prefix_tokens}",
        ms(prefix.cold_s),
        ms(prefix.warm_s),
        ms(prefix.floor_s),
        in_words(prefix.speedup),
        in_words(prefix.attainable),
        f"{prefix.theoretical:.1f}×",
        _percent(prefix.saved.value),
        f"{prefix.efficiency.value:.2f}",
    )


def _break_even(results: Results, answers: Answers) -> str:
    found = answers.break_even
    ends = answers.prefixes[0], answers.prefixes[-1]
    repeats = [
        f"{'no' if count is None else count} hit{'s' * (count is None or count > 1)} on {prefix.prefix_tokens} tokens"
        for count, prefix in zip(found.repeats, ends, strict=True)
    ]
    return (
        f"- **{results.model}**, prompts of {found.prompt_tokens} tokens ({ms(found.cold_s)} ms without a cache). "
        f"{storing(found)}. A request gains where more than {100 * found.share.value:.1f} % of its prompt "
        f"[{100 * found.share.low:.1f}, {100 * found.share.high:.1f}] is stored, "
        f"{math.ceil(found.share.value * found.prompt_tokens)} tokens. Storing for later requests is paid back, even "
        f"at the upper end of what it may cost, by {' and '.join(repeats)}."
    )


def _share_points(results: Results, answers: Answers) -> str:
    found = answers.break_even
    head = (f"{results.model}, stored of {found.prompt_tokens} tokens", "saved by the whole request, ms")
    return table(
        head,
        (
            (
                f"{point.shared_tokens} ({_percent(point.shared_tokens / found.prompt_tokens)})",
                f"{1e3 * point.saved_s.value:.1f} [{1e3 * point.saved_s.low:.1f}, {1e3 * point.saved_s.high:.1f}]",
            )
            for point in found.points
        ),
    )


def _sharing(both: Both) -> str:
    shown = [number for number in _REQUESTS if all(number <= len(answers.sharing) for _, answers in both)]
    head = ("requests that share the prefix", *(results.model for results, _ in both))
    return table(
        head,
        (
            (f"{number}", *(f"{answers.sharing[number - 1].gain:.2f}×" for _, answers in both))
            for number in shown
        ),
    )  # fmt: skip


def _output(results: Results, answers: Answers) -> str:
    head = (f"{results.model}, prefix", "output tokens", "cold s", "warm s", "saved")
    return table(
        head,
        (
            (
                f"{point.prefix_tokens}",
                f"{point.output_tokens}",
                f"{point.cold_s:.2f}",
                f"{point.warm_s:.2f}",
                _percent(point.saved),
            )
            for point in answers.outputs
            if point.output_tokens in _OUTPUTS
        ),
    )


def _tpot(results: Results, answers: Answers) -> str:
    head = (f"{results.model}, prefix", "cold ms a token", "warm ms a token", "warm / cold")
    return table(
        head,
        (
            (
                f"{prefix.prefix_tokens}",
                ms(prefix.cold_tpot_s),
                ms(prefix.warm_tpot_s),
                in_words(prefix.tpot, 3, ""),
            )
            for prefix in answers.prefixes
        ),
    )


def _memory(results: Results, answers: Answers) -> str:
    head = (f"{results.model}, prefix", "by formula, bytes", "stored, bytes", "at the allocator, bytes", "MiB")
    return table(
        head,
        (
            (
                f"{prefix.prefix_tokens}",
                f"{prefix.formula_bytes:,}",
                f"{prefix.stored_bytes:,}",
                f"{prefix.kept_bytes:,}",
                f"{prefix.kept_bytes / MIB:.2f}",
            )
            for prefix in answers.prefixes
        ),
    )


def kv_table() -> str:
    """KV size by model."""
    head = (
        "model", "attention", "numbers a token", "bytes a token, float32", "float16", "1,000 tokens in float16, MiB",
        "100,000 tokens, MiB",
    )  # fmt: skip
    return table(
        head,
        (
            (
                entry.model,
                entry.kind,
                f"{entry.formula} = {entry.numbers:,}",
                f"{entry.nbytes(1, FLOAT32):,}",
                f"{entry.nbytes(1, FLOAT16):,}",
                f"{entry.nbytes(1_000, FLOAT16) / MIB:,.1f}",
                f"{entry.nbytes(100_000, FLOAT16) / MIB:,.0f}",
            )
            for entry in MODELS
        ),
    )


def kv_corrections() -> str:
    """Figures that are copied from text to text, put right."""
    cases = (
        ("distilgpt2", 200, FLOAT32, "float32", "1 to 2 MB"),
        ("Llama-2-7B", 2000, FLOAT16, "float16", "32 MB"),
    )
    lines = []
    for model, tokens, element, dtype, wrong in cases:
        entry = named(model)
        nbytes = entry.nbytes(tokens, element)
        lines.append(
            f"- {tokens:,} tokens of {model} in {dtype} are often said to take {wrong}. They take {entry.formula} × "
            f"{element} bytes × {tokens:,} = {nbytes:,} bytes = **{nbytes / MIB:,.1f} MiB**."
        )
    return "\n".join(lines)


def price() -> str:
    """Where a provider charges for writing and less for reading, after how many reads it is cheaper than without."""
    lines = []
    for lifetime, writing in (("five minutes", 1.25), ("one hour", 2.0)):
        reading = 0.1
        extra, gain = writing - 1, 1 - reading
        lines.append(
            f"- kept for {lifetime}: writing costs {writing} times the price of an input token, reading {reading}. One "
            f"write and k reads cost {writing} + {reading} k instead of 1 + k, which is less from "
            f"k = {math.floor(extra / gain) + 1} on ({extra:g} / {gain:g} = {extra / gain:.2f})."
        )
    return "\n".join(lines)


BLOCKS: Mapping[str, Callable[[Both], str]] = {
    "summary": lambda both: "\n".join(_summary(*each) for each in both),
    "conditions": _conditions,
    "ttft": _per_model(_ttft),
    "break-even": lambda both: "\n".join(_break_even(*each) for each in both),
    "shares": _per_model(_share_points),
    "sharing": _sharing,
    "output": _per_model(_output),
    "tpot": _per_model(_tpot),
    "memory": _per_model(_memory),
    "kv-size": lambda _: kv_table(),
    "kv-corrections": lambda _: kv_corrections(),
    "price": lambda _: price(),
}
