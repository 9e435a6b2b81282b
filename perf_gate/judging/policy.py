"""The error rates of a run, and how much evidence it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """How a run is judged.

    alpha: chance that a run in which no metric is worse by more than its threshold is red, over all its rows and looks.
    looks: number of times that the samples may be judged while they are gathered; fixed before the run.
    beta: chance that a row passes although it is worse by its resolution.
    min_workers: fewest workers on either side from which a sampled metric is judged.
    pooled_threshold_share: threshold and resolution of a pooled row, as a share of those of its scenarios. A mean over
        scenarios varies less than one of them.
    paired_threshold_share: threshold against a base in the same run, as a share of the one against a record, which also
        covers the difference between two sessions of the same code.
    pooled_alpha_share: share of alpha that is reserved for the pooled rows of a paired run.
    paired_resolution_factor: distance from threshold to resolution of one scenario in a paired run, as a multiple of
        that against a record. Few pairs share a short time, so a slowdown of one scenario alone is left to the
        comparison with a record. The pooled row, which shows a slowdown of all scenarios, keeps its distance.
    """

    alpha: float = 0.001
    looks: int = 3
    beta: float = 0.05
    min_workers: int = 3
    pooled_threshold_share: float = 0.75
    paired_threshold_share: float = 0.5
    pooled_alpha_share: float = 0.8
    paired_resolution_factor: float = 3.0

    def __post_init__(self) -> None:
        """Raise ValueError for values that make no sense."""
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not 0 < value < 0.5:
                raise ValueError(f"policy: {name} is a chance, > 0 and < 0.5 (0.001 = 0.1 %), not {value!r}")
        if isinstance(self.looks, bool) or not isinstance(self.looks, int) or self.looks < 1:
            raise ValueError(f"policy: looks is a whole number >= 1, not {self.looks!r}")
        if isinstance(self.min_workers, bool) or not isinstance(self.min_workers, int) or self.min_workers < 3:
            raise ValueError(
                f"policy: min_workers is a whole number >= 3, not {self.min_workers!r}: two do not show a spread"
            )
        for name in ("pooled_threshold_share", "paired_threshold_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"policy: {name} is > 0 and <= 1, not {getattr(self, name)!r}")
        if not 0 < self.pooled_alpha_share < 1:
            raise ValueError(f"policy: pooled_alpha_share is > 0 and < 1, not {self.pooled_alpha_share!r}")
        if not self.paired_resolution_factor >= 1:
            raise ValueError(f"policy: paired_resolution_factor is >= 1, not {self.paired_resolution_factor!r}")

    def pooled_resolution_share(self, *, paired: bool) -> float:
        """Return the distance from threshold to resolution of a pooled row, as a share of its scenarios' mean."""
        return self.pooled_threshold_share / (self.paired_resolution_factor if paired else 1.0)

    def level(self, look: int) -> float:
        """Return the part of alpha that is spent at `look` (1-based): shares 1 : 2 : ... : looks, which sum to alpha.

        Later looks get more, because they have more samples. The sum bounds the chance of a false alarm whatever the
        dependence between looks (Bonferroni). Raises ValueError for a look beyond `looks`.
        """
        if not 1 <= look <= self.looks:
            raise ValueError(f"look {look} of {self.looks}: looks are fixed before the run, raise Policy.looks")
        return self.alpha * 2 * look / (self.looks * (self.looks + 1))
