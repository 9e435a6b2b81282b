"""What the readings say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.plan import Part
from cache_bench.experiment.reading import Reading
from cache_bench.experiment.results import Results
from cache_bench.experiment.spread import LEAST, Spread, Values, median, resampled


@dataclass(frozen=True)
class PrefixAnswer:
    """Of all prompts with one length of prefix; each ratio is taken per prompt, whose arms were timed side by side.

    cold_s, warm_s, floor_s: time to first token. speedup: cold / warm. attainable: cold / floor. theoretical: ratio of
    FLOPs. efficiency: floor / warm. saved: 1 - warm / cold. cold_tpot_s, warm_tpot_s: time per further token, and
    tpot: warm / cold. copied_bytes: KV copied by all warm answers together.
    """

    prefix_tokens: int
    prompts: int
    cold_s: float
    warm_s: float
    floor_s: float
    speedup: Spread
    attainable: Spread
    theoretical: float
    efficiency: Spread
    saved: Spread
    cold_tpot_s: float
    warm_tpot_s: float
    tpot: Spread
    formula_bytes: int
    stored_bytes: int
    kept_bytes: int
    copied_bytes: int


@dataclass(frozen=True)
class ShareAnswer:
    """Saved by the whole request, storing included, where `shared_tokens` of its prompt are stored."""

    shared_tokens: int
    saved_s: Spread


@dataclass(frozen=True)
class BreakEven:
    """From which share of the prompt on a cache pays, and after how many repeats.

    line: seconds saved where nothing is shared, and seconds more where everything is, fitted to the shares up to one
    half. share: where it crosses zero; 0 where it begins above, so that no cost was measurable. storing_s: what a
    request that finds nothing loses to one without a cache. repeats: hits on the shortest and on the longest prefix
    that win it back, counted with the upper end of storing_s; None where a hit gains nothing.
    """

    prompt_tokens: int
    points: tuple[ShareAnswer, ...]
    line: tuple[float, float]
    share: Spread
    storing_s: Spread
    cold_s: float
    repeats: tuple[int | None, int | None]


@dataclass(frozen=True)
class SharingAnswer:
    """All of the first `requests` requests together: time without a cache over time with one that was empty before."""

    requests: int
    gain: float


@dataclass(frozen=True)
class OutputAnswer:
    """From end to end, for so many output tokens behind a prefix."""

    prefix_tokens: int
    output_tokens: int
    cold_s: float
    warm_s: float

    @property
    def saved(self) -> float:
        """Share of the latency."""
        return 1 - self.warm_s / self.cold_s


@dataclass(frozen=True)
class Answers:
    """Of one model."""

    model: str
    prefixes: tuple[PrefixAnswer, ...]
    break_even: BreakEven
    sharing: tuple[SharingAnswer, ...]
    outputs: tuple[OutputAnswer, ...]

    def stored(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def answer(results: Results) -> Answers:
    """Needs results that are complete. Raises ExperimentError where they are too few for the intervals."""
    _require_enough(results)
    prefixes = tuple(_prefix(results, count.prefix_tokens) for count in results.counts)
    return Answers(
        results.model,
        prefixes,
        _break_even(results, prefixes),
        _sharing(results.of(Part.SHARING)),
        tuple(_outputs(results.of(Part.OUTPUT))),
    )


def _require_enough(results: Results) -> None:
    for part, name in ((Part.PROMPT, "--prompts"), (Part.SHARE, "--share-repeats")):
        prompts = Counter(prompt["cold"].prefix_tokens for prompt in by_prompt(results.of(part)))
        for prefix, found in sorted(prompts.items()):
            if found < LEAST:
                raise ExperimentError(
                    f"{results.csv} holds {found} prompts of {prefix} shared tokens ({part}), and a 95 % interval "
                    f"takes {LEAST}; measure anew with more {name}, into another folder (--out)"
                )


def by_prompt(readings: Iterable[Reading]) -> list[dict[str, Reading]]:
    """Arm -> reading, for each prompt; of an answer that was read more than once, the last one."""
    found: dict[tuple[str, int], dict[str, Reading]] = {}
    for reading in readings:
        found.setdefault((reading.part, reading.number), {})[reading.arm] = reading
    return [found[key] for key in sorted(found)]


def _prefix(results: Results, prefix: int) -> PrefixAnswer:
    prompts = by_prompt(reading for reading in results.of(Part.PROMPT) if reading.prefix_tokens == prefix)
    counted = next(count for count in results.counts if count.prefix_tokens == prefix)

    def middle(arm: str, what: Callable[[Reading], float] = _ttft) -> float:
        return float(np.median([what(prompt[arm]) for prompt in prompts]))

    def ratio(above: str, below: str, what: Callable[[Reading], float] = _ttft) -> Spread:
        return median([what(prompt[above]) / what(prompt[below]) for prompt in prompts])

    return PrefixAnswer(
        prefix_tokens=prefix,
        prompts=len(prompts),
        cold_s=middle("cold"),
        warm_s=middle("warm"),
        floor_s=middle("floor"),
        speedup=ratio("cold", "warm"),
        attainable=ratio("cold", "floor"),
        theoretical=counted.cold_flops / counted.hit_flops,
        efficiency=ratio("floor", "warm"),
        saved=median([1 - prompt["warm"].ttft_s / prompt["cold"].ttft_s for prompt in prompts]),
        cold_tpot_s=middle("cold", _tpot),
        warm_tpot_s=middle("warm", _tpot),
        tpot=ratio("warm", "cold", _tpot),
        formula_bytes=counted.formula_bytes,
        stored_bytes=counted.stored_bytes,
        kept_bytes=counted.kept_bytes,
        copied_bytes=sum(prompt["warm"].copied_bytes or 0 for prompt in prompts),
    )


def _ttft(reading: Reading) -> float:
    return reading.ttft_s


def _tpot(reading: Reading) -> float:
    assert reading.tpot_s is not None
    return reading.tpot_s


def _total(reading: Reading) -> float:
    assert reading.total_s is not None
    return reading.total_s


def _break_even(results: Results, prefixes: Sequence[PrefixAnswer]) -> BreakEven:
    prompts = by_prompt(results.of(Part.SHARE))
    length = prompts[0]["cold"].prefix_tokens + prompts[0]["cold"].suffix_tokens
    saved = np.asarray(
        [(prompt["warm"].prefix_tokens / length, _total(prompt["cold"]) - _total(prompt["warm"])) for prompt in prompts]
    )
    # Small remainders use the machine worse than long ones: only near zero is saved against share a line.
    lower = saved[saved[:, 0] <= max(0.5, np.unique(saved[:, 0])[1])]
    storing = median([-seconds for share, seconds in saved if share == 0])
    return BreakEven(
        prompt_tokens=length,
        points=tuple(
            ShareAnswer(round(share * length), median(saved[saved[:, 0] == share, 1].tolist()))
            for share in np.unique(saved[:, 0])
        ),
        line=_line(lower),
        share=resampled(_crossing, lower),
        storing_s=storing,
        cold_s=float(np.median([_total(prompt["cold"]) for prompt in prompts])),
        repeats=(_repeats(storing, prefixes[0]), _repeats(storing, prefixes[-1])),
    )


def _line(saved: Values) -> tuple[float, float]:
    """(seconds at no share, seconds more at the whole), by least squares."""
    slope, start = np.polyfit(saved[:, 0], saved[:, 1], 1)
    return float(start), float(slope)


def _crossing(saved: Values) -> float:
    """Share, 1 at most: from there on even a prompt that is stored as a whole gains nothing."""
    if np.ptp(saved[:, 0]) == 0:  # a resample may have drawn one share only
        return float("nan")
    start, slope = _line(saved)
    if start >= 0:
        return 0.0
    return min(1.0, -start / slope) if slope > 0 else 1.0


def _repeats(storing: Spread, prefix: PrefixAnswer) -> int | None:
    gain = prefix.cold_s - prefix.warm_s
    return max(1, math.ceil(storing.high / gain)) if gain > 0 else None


def _sharing(readings: Sequence[Reading]) -> tuple[SharingAnswer, ...]:
    series: list[list[dict[str, Reading]]] = []
    for prompt in by_prompt(readings):
        if prompt["cold"].turn == 1:
            series.append([])
        series[-1].append(prompt)
    gains = [
        np.cumsum([_total(prompt["cold"]) for prompt in prompts])
        / np.cumsum([_total(prompt["warm"]) for prompt in prompts])
        for prompts in series
    ]
    return tuple(
        SharingAnswer(number, float(gain)) for number, gain in enumerate(np.median(np.asarray(gains), axis=0), start=1)
    )


def _outputs(readings: Sequence[Reading]) -> Iterable[OutputAnswer]:
    for prefix in sorted({reading.prefix_tokens for reading in readings}):
        for tokens in sorted({reading.output_tokens for reading in readings}):
            cold, warm = (
                float(
                    np.median(
                        [
                            reading.latency_s
                            for reading in readings
                            if (reading.prefix_tokens, reading.output_tokens, reading.arm) == (prefix, tokens, arm)
                        ]
                    )
                )
                for arm in ("cold", "warm")
            )
            yield OutputAnswer(prefix, tokens, cold, warm)
