"""The answers as plots: SVG, with text as text."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cache_bench.experiment.answers import Answers, by_prompt
from cache_bench.experiment.file import write
from cache_bench.experiment.plan import Part
from cache_bench.experiment.results import Results
from cache_bench.experiment.spread import Spread

# Okabe & Ito's colours, which the colour-blind can tell apart; each arm has a marker of its own besides.
_ARMS: dict[str, dict[str, Any]] = {
    "cold": {"color": "#D55E00", "marker": "o", "label": "cold: nothing reused"},
    "warm": {"color": "#0072B2", "marker": "s", "label": "warm: through the cache"},
    "floor": {"color": "#009E73", "marker": "^", "label": "floor: a cache without overhead"},
}
_GREY = "#555555"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "prefix-cache",  # the same plot is the same file
    "font.family": "sans-serif",
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}
_MIB = 2**20


def draw(results: Results, answers: Answers, folder: Path) -> list[Path]:
    """Write every plot into `folder`, named after model and plot; returns the files."""
    files = []
    for name, make in PLOTS.items():
        file = folder / f"{results.name}-{name}.svg"
        write(svg(make(results, answers)), file)
        files.append(file)
    return files


def svg(figure: Figure) -> str:
    """The same figure always gives the same text."""
    text = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def png(figure: Figure) -> bytes:
    """For viewers that show no SVG."""
    image = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(image, format="png", dpi=80, metadata={"Software": None})
    return image.getvalue()


def _figure(title: str, columns: int = 1, width: float = 8.0, height: float = 4.6) -> tuple[Figure, list[Axes]]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(title)
        axes = figure.subplots(1, columns, sharey=True, squeeze=False)
    return figure, list(axes[0])


def _bars(spreads: Sequence[Spread], scale: float = 1.0) -> list[list[float]]:
    return [
        [scale * (spread.value - spread.low) for spread in spreads],
        [scale * (spread.high - spread.value) for spread in spreads],
    ]


def ttft(results: Results, answers: Answers) -> Figure:
    """TTFT against suffix length, one panel for each length of prefix."""
    figure, panels = _figure(
        f"{answers.model}: time to first token by length of prefix and suffix", len(answers.prefixes), 11.0, 4.2
    )
    for axes, prefix in zip(panels, answers.prefixes, strict=True):
        for arm, look in _ARMS.items():
            points = [
                reading for reading in results.of(Part.PROMPT, arm) if reading.prefix_tokens == prefix.prefix_tokens
            ]
            axes.scatter(
                [point.suffix_tokens for point in points], [1e3 * point.ttft_s for point in points], s=18, **look
            )
        axes.set_title(f"prefix {prefix.prefix_tokens} tokens", fontsize="medium")
        axes.set_yscale("log")
        axes.set_xlabel("suffix (tokens)")
    panels[0].set_ylabel("time to first token (ms, logarithmic)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def speedup(_results: Results, answers: Answers) -> Figure:
    """Speedup against prefix length, with what is attainable and what the FLOPs promise."""
    figure, (axes,) = _figure(f"{answers.model}: how many times sooner the first token is there")
    lengths = [prefix.prefix_tokens for prefix in answers.prefixes]
    flops = [prefix.theoretical for prefix in answers.prefixes]
    axes.plot(lengths, flops, color=_GREY, linestyle=":", marker="x", label="ratio of FLOPs: not attainable")
    for what, arm, label in (
        ([prefix.attainable for prefix in answers.prefixes], "floor", "cold / floor: attainable"),
        ([prefix.speedup for prefix in answers.prefixes], "warm", "cold / warm: this cache"),
    ):
        look = {**_ARMS[arm], "label": label}
        axes.errorbar(lengths, [spread.value for spread in what], yerr=_bars(what), capsize=3, **look)
    axes.axhline(1, color=_GREY, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("shared prefix (tokens)")
    axes.set_ylabel("speedup of the first token (×)\nmedian over prompts, 95 % interval")
    axes.legend(frameon=False)
    return figure


def saved(results: Results, answers: Answers) -> Figure:
    """Share of the time saved against share of the prompt that is stored."""
    figure, (axes,) = _figure(f"{answers.model}: what part of the time to first token is saved")
    prompts = by_prompt(results.of(Part.PROMPT))
    shares = [
        100 * prompt["warm"].prefix_tokens / (prompt["warm"].prefix_tokens + prompt["warm"].suffix_tokens)
        for prompt in prompts
    ]
    look = {**_ARMS["warm"], "label": "a prompt"}
    axes.scatter(shares, [100 * (1 - each["warm"].ttft_s / each["cold"].ttft_s) for each in prompts], s=18, **look)
    axes.plot([0, 100], [0, 100], color=_GREY, linestyle=":", label="as much time as tokens")
    axes.set_xlabel("share of the prompt's tokens that is stored (%)")
    axes.set_ylabel("time to first token saved (%)")
    axes.legend(frameon=False)
    return figure


def memory(_results: Results, answers: Answers) -> Figure:
    """Bytes of a stored prefix, measured and by formula."""
    figure, (axes,) = _figure(f"{answers.model}: memory that a stored prefix takes")
    lengths = [prefix.prefix_tokens for prefix in answers.prefixes]
    per_token = answers.prefixes[-1].formula_bytes / lengths[-1]
    axes.plot(
        [0, lengths[-1]],
        [0, answers.prefixes[-1].formula_bytes / _MIB],
        color=_GREY,
        linestyle=":",
        label=f"formula: {per_token:,.0f} bytes a token",
    )
    look = {**_ARMS["warm"], "label": "measured at the allocator", "linestyle": "none"}
    axes.plot(lengths, [prefix.kept_bytes / _MIB for prefix in answers.prefixes], **look)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("stored prefix (tokens)")
    axes.set_ylabel("memory (MiB)")
    axes.legend(frameon=False)
    return figure


def tpot(_results: Results, answers: Answers) -> Figure:
    """Time per output token with and without the cache."""
    figure, (axes,) = _figure(f"{answers.model}: time per output token, with the cache over without")
    lengths = [prefix.prefix_tokens for prefix in answers.prefixes]
    ratios = [prefix.tpot for prefix in answers.prefixes]
    look = {**_ARMS["warm"], "label": "warm / cold", "linestyle": "none"}
    axes.errorbar(lengths, [ratio.value for ratio in ratios], yerr=_bars(ratios), capsize=3, **look)
    axes.axhline(1, color=_GREY, linewidth=0.8)
    low, high = min(ratio.low for ratio in ratios), max(ratio.high for ratio in ratios)
    axes.set_ylim(min(0.8, low - 0.05), max(1.2, high + 0.05))
    axes.set_xlabel("shared prefix (tokens)")
    axes.set_ylabel("time per output token, warm / cold\nmedian over prompts, 95 % interval")
    return figure


def break_even(_results: Results, answers: Answers) -> Figure:
    """Saved against share of the prompt, with the point from which on it pays."""
    found = answers.break_even
    figure, (axes,) = _figure(
        f"{answers.model}: what a request of {found.prompt_tokens} tokens saves, storing included"
    )
    shares = [100 * point.shared_tokens / found.prompt_tokens for point in found.points]
    spreads = [point.saved_s for point in found.points]
    look = {**_ARMS["warm"], "label": "measured, median and 95 % interval", "linestyle": "none"}
    axes.errorbar(shares, [1e3 * spread.value for spread in spreads], yerr=_bars(spreads, 1e3), capsize=3, **look)
    start, slope = found.line
    axes.plot(
        [0, 50], [1e3 * start, 1e3 * (start + slope / 2)], color=_GREY, linestyle=":", label="line up to one half"
    )
    axes.axhline(0, color=_GREY, linewidth=0.8)
    axes.axvline(
        100 * found.share.value,
        color=_ARMS["cold"]["color"],
        linewidth=1,
        label=f"pays from {100 * found.share.value:.1f} % on",
    )
    axes.set_xlabel("share of the prompt that was stored before (%)")
    axes.set_ylabel("time saved by the whole request (ms)")
    axes.legend(frameon=False)
    return figure


def sharing(results: Results, answers: Answers) -> Figure:
    """Gain of all requests together against their number."""
    prefix = results.of(Part.SHARING)[0].prefix_tokens
    figure, (axes,) = _figure(
        f"{answers.model}: gain of all requests that share {prefix} tokens, the first of which finds nothing"
    )
    look = {**_ARMS["warm"], "label": "time without a cache / with one"}
    axes.plot([point.requests for point in answers.sharing], [point.gain for point in answers.sharing], **look)
    axes.axhline(1, color=_GREY, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("requests so far")
    axes.set_ylabel("time of all so far, without / with the cache (×)")
    return figure


def output(_results: Results, answers: Answers) -> Figure:
    """Latency from end to end against the number of output tokens."""
    prefixes = sorted({point.prefix_tokens for point in answers.outputs})
    figure, panels = _figure(f"{answers.model}: latency from end to end", len(prefixes), 9.0)
    for axes, prefix in zip(panels, prefixes, strict=True):
        points = [point for point in answers.outputs if point.prefix_tokens == prefix]
        for arm in ("cold", "warm"):
            seconds = [getattr(point, f"{arm}_s") for point in points]
            axes.plot([point.output_tokens for point in points], seconds, **_ARMS[arm])
        axes.set_title(f"prefix {prefix} tokens", fontsize="medium")
        axes.set_xlabel("output tokens")
    panels[0].set_ylim(0, 1.05 * max(max(point.cold_s, point.warm_s) for point in answers.outputs))
    panels[0].set_ylabel("latency (s)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


PLOTS: dict[str, Callable[[Results, Answers], Figure]] = {
    "ttft": ttft,
    "speedup": speedup,
    "saved": saved,
    "memory": memory,
    "tpot": tpot,
    "break-even": break_even,
    "sharing": sharing,
    "output": output,
}
