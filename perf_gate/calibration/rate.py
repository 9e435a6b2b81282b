"""A rate with an exact interval."""

from __future__ import annotations

from dataclasses import dataclass

from scipy import special

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """`hits` of `n` independent trials."""

    hits: int
    n: int

    def __post_init__(self) -> None:
        """Refuse what cannot have been counted."""
        if not 0 <= self.hits <= self.n or self.n < 1:
            raise ValueError(f"a rate counts 0 <= hits <= n with n >= 1, not {self.hits} of {self.n}")

    @property
    def share(self) -> float:
        """Hits per trial."""
        return self.hits / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Exact two-sided 95 % interval of the binomial proportion (Clopper & Pearson 1934), by beta quantiles."""
        tail = (1 - CONFIDENCE) / 2
        # Not scipy.stats.beta, which computes the same and takes half a second to import.
        low = float(special.betaincinv(self.hits, self.n - self.hits + 1, tail)) if self.hits else 0.0
        high = float(special.betainccinv(self.hits + 1, self.n - self.hits, tail)) if self.hits < self.n else 1.0
        return low, high

    def __str__(self) -> str:
        """E.g. "0.03 % [0.01, 0.09]"; both in percent."""
        low, high = self.interval
        return f"{_percent(self.share)} % [{_percent(low)}, {_percent(high)}]"


def _percent(share: float) -> str:
    digits = 2 if share < 0.02 or share > 0.98 else 1
    return f"{100 * share:.{digits}f}"
