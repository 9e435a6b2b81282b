"""What an experiment is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.spread import LEAST
from cache_bench.profile import PREFIXES

Value = int | str


@dataclass(frozen=True)
class Options:
    """Lengths are tokens. Raises ExperimentError where they make no experiment.

    prompts: in all, spread evenly over `prefixes`, LEAST or more for each; their suffixes over suffixes[0] to
    suffixes[1].
    output_tokens: of each of them.
    shares: of a prompt of `share_tokens` tokens, so many are stored; each `share_repeats` times, for the break-even.
    sharing: so many requests share a prefix of `sharing_prefix`, from an empty cache on; `series` times.
    long_output: of the requests that show the latency from end to end; `series` times.
    threads: that compute.
    """

    model: str
    prompts: int = 100
    prefixes: tuple[int, ...] = PREFIXES
    suffixes: tuple[int, int] = (20, 50)
    output_tokens: int = 8
    share_tokens: int = 256
    shares: tuple[int, ...] = (0, 8, 16, 32, 64, 128, 192, 240)
    share_repeats: int = 6
    sharing: int = 20
    sharing_prefix: int = 200
    series: int = 2
    long_output: int = 200
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        """Refuse what could not be answered from."""
        for name in ("prefixes", "shares"):
            value = getattr(self, name)
            if not value or list(value) != sorted(set(value)):
                raise ExperimentError(f"{self.given(name)}: give increasing lengths, each once")
        if self.prefixes[0] < 1:
            raise ExperimentError(f"{self.given('prefixes')}: nothing is shared; give 1 token or more")
        each = self.prompts // len(self.prefixes)
        if each < LEAST:
            raise ExperimentError(
                f"{self.given('prompts')} over {len(self.prefixes)} prefix lengths: that is {each} each, and a 95 % "
                f"interval takes {LEAST}; give at least {LEAST * len(self.prefixes)}, or fewer lengths with --prefixes"
            )
        if not 1 <= self.suffixes[0] <= self.suffixes[1]:
            raise ExperimentError(f"{self.given('suffixes')}: give 1 <= low <= high")
        if self.shares[0] != 0 or len(self.shares) < 2 or self.shares[-1] >= self.share_tokens:
            raise ExperimentError(
                f"{self.given('shares')} of {self.given('share_tokens')}: begin with 0, where nothing is shared, and "
                "end below the whole prompt"
            )
        least = {"output_tokens": 2, "long_output": 2, "share_repeats": LEAST, "sharing": 2, "sharing_prefix": 1,
                 "series": 1, "threads": 1, "seed": 0}  # fmt: skip
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ExperimentError(f"{self.given(name)}: give at least {minimum}")

    def given(self, name: str) -> str:
        """The option as the command line has it, with its value."""
        return f"{flag(name)} {self.described()[name]}"

    def described(self) -> Mapping[str, Value]:
        """Every option by name, sequences as words."""
        return {
            field.name: _words(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in fields(self)
        }


def flag(name: str) -> str:
    """What the command line calls an option."""
    return f"--{name.replace('_', '-')}"


def _words(values: tuple[int, ...]) -> str:
    return " ".join(map(str, values))
