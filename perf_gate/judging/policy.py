"""The promises of a run: how often it may be wrong and how much evidence it wants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """How a run is judged.

    alpha: chance that a run in which nothing changed for the worse by more than its allowance is red at
        all, over all its rows and all its looks.
    looks: number of times that the samples may be judged while they are being gathered; fixed before the run.
    doubt: chance that a row passes although it is worse by its resolution.
    workers: fewest workers, on either side, that a sampled metric is judged from.
    pooled_share: the pooled row's allowance and resolution, as a share of those of its scenarios. A mean over
        scenarios scatters less than one of them, so it can be held to less.
    paired_share: allowance against a base in the same run, as a share of that against a record. What two sessions of
        the same code differ by is part of the latter, and does not exist within one run.
    pooled_alarms: share of alpha that the pooled rows of a paired run have to themselves.
    paired_reach: how many times farther than against a record the resolution of one scenario lies from its allowance.
        A base is seen by few pairs, in a minute that many scenarios share: what slows down one of them alone is for the
        record to find. What slows down all of them shows in the pooled row, of which as much is wanted as ever.
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
        """Refuse promises that mean nothing."""
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
        """How far a pooled row's resolution lies from its allowance, as a share of its scenarios' mean distance."""
        return self.pooled_threshold_share / (self.paired_resolution_factor if paired else 1.0)

    def level(self, look: int) -> float:
        """Alpha spent at `look` (1-based): shares 1 : 2 : ... : looks, which add up to alpha.

        Raises ValueError for a look that was not announced. Later looks get more, since they have the most
        samples; a sum bounds the chance of any false alarm whatever the dependence between looks
        (Bonferroni).
        """
        if not 1 <= look <= self.looks:
            raise ValueError(f"look {look} of {self.looks}: looks are fixed before the run, raise Policy.looks")
        return self.alpha * 2 * look / (self.looks * (self.looks + 1))
