"""What is asked of the engine, in which order. The same options always make the same plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cache_bench.experiment.options import Options

_BLOCK = 10  # prompts of one prefix in a row: it stays hot, as in a server that is asked for it often
_LONG_READS = (1, 2, 5, 10, 20, 50, 100, 150, 200)
# A forward pass of one token takes about as long as so many tokens add to a longer one; for the time left only.
_PASS = 30


class Part(StrEnum):
    """What a step is there for."""

    PROMPT = "prompt"
    SHARE = "share"
    SHARING = "sharing"
    OUTPUT = "output"


@dataclass(frozen=True)
class Step:
    """One prompt, and the arms that answer it, in the order in which they are visited.

    number: within its part. prefix, suffix: tokens; the prefix is stored but where `turn` is 0. turn: place in a
    series of requests that share a prefix, from 1 on; 0 outside a series. reads: numbers of output tokens at which
    each answer is read; more than one only where the course of an answer matters. Floor is read at its first token.
    """

    part: Part
    number: int
    prefix: int
    suffix: int
    arms: tuple[str, ...]
    reads: tuple[int, ...]
    turn: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What no other step has."""
        return self.part.value, self.number

    @property
    def stored(self) -> int:
        """Tokens of the prefix that are stored when the step begins."""
        return 0 if self.turn == 1 else self.prefix

    @property
    def rows(self) -> list[tuple[str, int]]:
        """Arm and output tokens of every reading that a finished step leaves, sorted."""
        return sorted((arm, read) for arm in self.arms for read in ((1,) if arm == "floor" else self.reads))

    @property
    def weight(self) -> float:
        """What it takes, in tokens' time."""
        whole, rest = self.prefix + self.suffix, self.prefix + self.suffix - self.stored
        further = self.reads[-1] - 1
        return float(
            sum(
                _PASS + (whole if arm == "cold" else rest) + (0 if arm == "floor" else _PASS * further)
                for arm in self.arms
            )
        )


def plan(options: Options) -> tuple[Step, ...]:
    """Every step of the experiment."""
    random = np.random.default_rng(options.seed)
    return (
        *_prompts(options, random),
        *_shares(options, random),
        *_sharing(options, random),
        *_outputs(options, random),
    )


def _shuffled(random: np.random.Generator, *arms: str) -> tuple[str, ...]:
    return tuple(arms[index] for index in random.permutation(len(arms)))


def _prompts(options: Options, random: np.random.Generator) -> Iterator[Step]:
    blocks: list[tuple[int, Sequence[int]]] = []
    for prefix, share in zip(
        options.prefixes, np.array_split(np.arange(options.prompts), len(options.prefixes)), strict=True
    ):
        even = np.linspace(*options.suffixes, len(share)).round().astype(int)
        lengths = [int(length) for length in random.permutation(even)]
        blocks += [(prefix, lengths[start : start + _BLOCK]) for start in range(0, len(lengths), _BLOCK)]
    number = 0
    for index in random.permutation(len(blocks)):
        prefix, lengths = blocks[index][0], list(blocks[index][1])
        for suffix in lengths:
            arms = _shuffled(random, "cold", "warm", "floor")
            yield Step(Part.PROMPT, number, prefix, suffix, arms, (options.output_tokens,))
            number += 1


def _shares(options: Options, random: np.random.Generator) -> Iterator[Step]:
    for repeat in range(options.share_repeats):
        for place, index in enumerate(random.permutation(len(options.shares))):
            share = options.shares[index]
            number = repeat * len(options.shares) + place
            yield Step(Part.SHARE, number, share, options.share_tokens - share, _shuffled(random, "cold", "warm"), (1,))


def _sharing(options: Options, random: np.random.Generator) -> Iterator[Step]:
    for series in range(options.series):
        for place in range(options.sharing):
            suffix = int(random.integers(options.suffixes[0], options.suffixes[1] + 1))
            yield Step(
                Part.SHARING,
                series * options.sharing + place,
                options.sharing_prefix,
                suffix,
                _shuffled(random, "cold", "warm"),
                (1,),
                turn=place + 1,
            )


def _outputs(options: Options, random: np.random.Generator) -> Iterator[Step]:
    reads = (*(read for read in _LONG_READS if read < options.long_output), options.long_output)
    ends = sorted({options.prefixes[0], options.prefixes[-1]})
    for series in range(options.series):
        for place, prefix in enumerate(ends):
            number = series * len(ends) + place
            suffix = sum(options.suffixes) // 2
            yield Step(Part.OUTPUT, number, prefix, suffix, _shuffled(random, "cold", "warm"), reads)
