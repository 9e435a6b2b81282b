"""What an experiment is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from perf_tests.experiment.fault import ExperimentError
from perf_tests.profile import PREFIXES

Value = int | str


@dataclass(frozen=True)
class Options:
    """Lengths are tokens. Raises ExperimentError where they make no experiment.

    prompts: in all, spread evenly over `prefixes`; their suffixes over suffixes[0] to suffixes[1].
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
                raise ExperimentError(f"{name} are {_words(value)}; give increasing lengths, each once")
        if self.prefixes[0] < 1:
            raise ExperimentError(f"a prefix of {self.prefixes[0]} tokens cannot be shared; give 1 or more")
        if self.prompts < 2 * len(self.prefixes):
            raise ExperimentError(
                f"{self.prompts} prompts over {len(self.prefixes)} prefix lengths leave fewer than two each, and one "
                f"tells nothing of its spread; give at least {2 * len(self.prefixes)} prompts, or fewer prefixes"
            )
        if not 1 <= self.suffixes[0] <= self.suffixes[1]:
            raise ExperimentError(f"suffixes of {self.suffixes[0]} to {self.suffixes[1]} tokens; give 1 <= low <= high")
        if self.shares[0] != 0 or len(self.shares) < 2 or self.shares[-1] >= self.share_tokens:
            raise ExperimentError(
                f"shares are {_words(self.shares)} of {self.share_tokens} tokens; begin with 0, where nothing is "
                "shared, and end below the whole prompt"
            )
        least = {"output_tokens": 2, "long_output": 2, "share_repeats": 2, "sharing": 2, "sharing_prefix": 1,
                 "series": 1, "threads": 1, "seed": 0}  # fmt: skip
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ExperimentError(f"{name} is {getattr(self, name)}; give at least {minimum}")

    def described(self) -> Mapping[str, Value]:
        """Every option by name, sequences as words."""
        return {
            field.name: _words(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in fields(self)
        }


def _words(values: tuple[int, ...]) -> str:
    return " ".join(map(str, values))
