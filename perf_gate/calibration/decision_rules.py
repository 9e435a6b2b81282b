"""The decision rules of other tools, applied to the same samples: the seconds of one arm in each scenario.

Sources: pytest-benchmark 5.3, `--benchmark-compare-fail` (a percentage on mean, min or median); asv 0.6,
`asv/_stats.py` and `asv/commands/common_args.py` (Mann-Whitney U, two-sided p < 0.002, and a factor of 1.1 between the
medians; two processes a side since asv 0.4); Student (1908); Welch (1947).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from perf_gate.calibration.disturbance import Disturbance, disturb
from perf_gate.calibration.pool import CalibrationError, Pool
from perf_gate.calibration.rate import Rate
from perf_gate.calibration.simulation import Progress
from perf_gate.calibration.split import Split
from perf_gate.judging.decision import Flags
from perf_gate.judging.estimate import Floats
from perf_gate.measurement import Measurement

CHUNK = 100


@dataclass(frozen=True)
class Samples:
    """One side of many runs: its seconds, and statistics of the seconds of all its workers together.

    seconds: for each scenario (runs, workers, visits). count: samples of each scenario (scenarios,). The statistics
    are (runs, scenarios).
    """

    seconds: tuple[Floats, ...]
    count: Floats
    mean: Floats
    median: Floats
    min: Floats
    variance: Floats

    @classmethod
    def of(cls, seconds: Sequence[Floats]) -> Samples:
        """Compute the statistics."""
        flat = [each.reshape(len(each), -1) for each in seconds]
        return cls(
            tuple(seconds),
            np.array([float(each.shape[-1]) for each in flat]),
            np.stack([each.mean(-1) for each in flat], axis=-1),
            np.stack([np.median(each, -1) for each in flat], axis=-1),
            np.stack([each.min(-1) for each in flat], axis=-1),
            np.stack([each.var(-1, ddof=1) for each in flat], axis=-1),
        )


class DecisionRule(ABC):
    """A rule that judges each row by itself: the seconds of an arm in one scenario.

    name: for display. processes: how many of each side it uses, pooled; None: all.
    """

    def __init__(self, processes: int | None) -> None:
        """Keep the number of processes."""
        self.processes = processes

    @property
    def of(self) -> str:
        """Processes of each side, as text."""
        return (
            "all processes" if self.processes is None else f"{self.processes} process{'es'[: 2 * (self.processes > 1)]}"
        )

    @property
    @abstractmethod
    def name(self) -> str:
        """The rule in words."""

    @abstractmethod
    def judge(self, then: Samples, now: Samples, factor: float) -> tuple[Flags, Flags]:
        """Return which rows alarm and which have no verdict, (runs, scenarios) each, with `now` times `factor`."""

    def __str__(self) -> str:
        """The rule and its processes."""
        return f"{self.name}, {self.of}"


def _decided(alarms: Flags) -> tuple[Flags, Flags]:
    return alarms, np.zeros_like(alarms)


class PercentRule(DecisionRule):
    """pytest-benchmark's --benchmark-compare-fail."""

    def __init__(self, statistic: str, limit: float, processes: int | None) -> None:
        """statistic: "mean", "median" or "min". limit: share, e.g. 0.05."""
        super().__init__(processes)
        self.statistic, self.limit = statistic, limit

    @property
    def name(self) -> str:
        """See DecisionRule.name."""
        return f"{self.statistic} more than {100 * self.limit:g} % up (pytest-benchmark)"

    def judge(self, then: Samples, now: Samples, factor: float) -> tuple[Flags, Flags]:
        """See DecisionRule.judge."""
        return _decided(factor * getattr(now, self.statistic) > (1 + self.limit) * getattr(then, self.statistic))


class MannWhitney(DecisionRule):
    """asv compare and asv continuous with their defaults."""

    p, factor = 0.002, 1.1
    name = "Mann-Whitney p < 0.002 and median more than 10 % up (asv)"

    def judge(self, then: Samples, now: Samples, factor: float) -> tuple[Flags, Flags]:
        """See DecisionRule.judge. As asv: exact up to 20 samples a side, else the normal approximation."""
        alarms = np.asarray(factor * now.median > self.factor * then.median)
        for scenario, (ours, theirs) in enumerate(zip(now.seconds, then.seconds, strict=True)):
            far = np.flatnonzero(alarms[:, scenario])  # the test is slow, and few rows exceed the factor
            if len(far):
                p = self._p(factor * ours[far].reshape(len(far), -1), theirs[far].reshape(len(far), -1))
                alarms[far, scenario] = p < self.p
        return _decided(alarms)

    @staticmethod
    def _p(ours: Floats, theirs: Floats) -> Floats:
        from scipy import stats  # noqa: PLC0415 - slow to import and rarely needed

        exact = max(ours.shape[-1], theirs.shape[-1]) <= 20
        test: Any = stats.mannwhitneyu  # its stubs do not know arrays of this kind
        tested = test(ours, theirs, axis=-1, alternative="two-sided", method="exact" if exact else "asymptotic")
        return np.asarray(tested.pvalue, dtype=np.float64)


class StudentT(DecisionRule):
    """A t-test that treats all visits as independent."""

    name = "Student's t-test on all visits, two-sided p < 0.05, and slower"

    def judge(self, then: Samples, now: Samples, factor: float) -> tuple[Flags, Flags]:
        """See DecisionRule.judge."""
        n, m = now.count, then.count
        pooled = ((n - 1) * factor**2 * now.variance + (m - 1) * then.variance) / (n + m - 2)
        t = (factor * now.mean - then.mean) / np.sqrt(pooled * (1 / n + 1 / m))
        return _decided(np.asarray(t > -special.stdtrit(n + m - 2, 0.025)))


class WelchInterval(DecisionRule):
    """Three verdicts from one 95 % interval of the log ratio, with the threshold and resolution of the gate's default.

    unit: what counts as independent: "visits", or "processes" (each by its median).
    """

    threshold, resolution = 0.01, 0.03

    def __init__(self, unit: str, processes: int | None) -> None:
        """Keep the unit."""
        super().__init__(processes)
        self.unit = unit

    @property
    def name(self) -> str:
        """See DecisionRule.name."""
        return f"Welch's 95 % interval of the log ratio over {self.unit}: slower beyond 1 %, fine below 3 %"

    def judge(self, then: Samples, now: Samples, factor: float) -> tuple[Flags, Flags]:
        """See DecisionRule.judge."""
        ours, here, n = self._logs(now)
        theirs, there, m = self._logs(then)
        df = (here + there) ** 2 / (here**2 / (n - 1) + there**2 / (m - 1))
        change = ours - theirs + np.log(factor)
        reach = -special.stdtrit(df, 0.025) * np.sqrt(here + there)
        alarms = np.asarray(change - reach > np.log1p(self.threshold))
        return alarms, ~alarms & (change + reach >= np.log1p(self.resolution))

    def _logs(self, side: Samples) -> tuple[Floats, Floats, Floats]:
        """Mean of the units' logs, its squared error, and the number of units."""
        logs = [np.log(each) for each in side.seconds]
        units = [np.median(each, -1) if self.unit == "processes" else each.reshape(len(each), -1) for each in logs]
        count = np.array([float(each.shape[-1]) for each in units])
        variance = np.stack([each.var(-1, ddof=1) for each in units], axis=-1)
        return np.stack([each.mean(-1) for each in units], axis=-1), variance / count, count


RULES: tuple[DecisionRule, ...] = (
    *(
        PercentRule(statistic, limit, processes)
        for processes in (1, None)
        for limit in (0.05, 0.10)
        for statistic in ("mean", "min", "median")
    ),
    MannWhitney(2),
    MannWhitney(None),
    StudentT(1),
    StudentT(None),
    WelchInterval("visits", None),
    WelchInterval("processes", None),
)


@dataclass(frozen=True)
class RuleRates:
    """The error rates of a rule. With nothing changed: alarms: runs with a red row. per_row: red rows.

    unjudged: runs without a verdict. disturbances: name -> runs with a red row. With a slowdown in one scenario, or
    everywhere: slowdown -> runs with a red row.
    """

    alarms: Rate
    per_row: Rate
    unjudged: Rate
    one: Mapping[float, Rate]
    everywhere: Mapping[float, Rate]
    disturbances: Mapping[str, Rate]


def evaluate_rules(
    pool: Pool,
    split: Split,
    scenarios: Sequence[int],
    slowdowns: Sequence[float],
    *,
    arm: str,
    runs: int,
    seed: int = 0,
    rules: Sequence[DecisionRule] = RULES,
    disturbances: Sequence[Disturbance] = (),
    progress: Progress = lambda _done, _all: None,
) -> Mapping[DecisionRule, RuleRates]:
    """Judge `runs` draws by every rule: the workers of the split's last look compared with its record.

    scenarios: those whose `arm` is judged, one row each. In a scenario every process counts with as many visits as the
    one with the fewest. Deterministic for a seed. Raises CalibrationError if that is a single visit.
    """
    seconds = [_even(pool.measurements[index], arm) for index in scenarios]
    sizes = list(dict.fromkeys(rule.processes for rule in rules))
    disturbed = {
        (disturbance, size): _disturbed(
            disturbance, seconds, size or split.looks[-1], np.random.default_rng([seed, 3, number])
        )
        for number, disturbance in enumerate(disturbances)
        for size in sizes
    }
    alarms = {rule: dict.fromkeys((disturbance.name for disturbance in disturbances), 0) for rule in rules}
    random = np.random.default_rng([seed, 2])
    factors = [0.0, *slowdowns]
    count = {
        rule: {"row": 0, "void": 0, "one": np.zeros(len(factors)), "all": np.zeros(len(factors))} for rule in rules
    }
    for start in range(0, runs, CHUNK):
        size = min(CHUNK, runs - start)
        reference, now = split.draw(random, pool.workers, size)
        turn = np.arange(start, start + size) % len(scenarios)
        for few in sizes:
            then, ours = reference[:, :few], now[:, :few]
            sides = Samples.of([each[then] for each in seconds]), Samples.of([each[ours] for each in seconds])
            under_disturbance = {
                disturbance: (
                    Samples.of([record[then] for _, record in disturbed[disturbance, few]]),
                    Samples.of([run[ours, np.arange(ours.shape[1])] for run, _ in disturbed[disturbance, few]]),
                )
                for disturbance in disturbances
            }
            for rule in (each for each in rules if each.processes == few):
                _count(count[rule], rule, sides, factors, turn)
                for disturbance, sides_then in under_disturbance.items():
                    alarms[rule][disturbance.name] += int(rule.judge(*sides_then, 1.0)[0].any(-1).sum())
        progress(start + size, runs)
    return {rule: _rates(found, runs, len(scenarios), slowdowns, alarms[rule]) for rule, found in count.items()}


def _disturbed(
    disturbance: Disturbance, seconds: Sequence[Floats], places: int, random: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """Return run and record of each scenario. One seed for all: a process is slower by the same in every scenario."""
    seed = random.integers(2**32)
    return [disturb(disturbance, each, places, np.random.default_rng(seed)) for each in seconds]


def _even(measurement: Measurement, arm: str) -> Floats:
    per_worker = measurement.seconds[arm]
    visits = min(map(len, per_worker))
    if visits < 2:
        raise CalibrationError(f"{measurement.scenario}: a worker visited {arm!r} only once: measure with more budget")
    return np.array([worker[:visits] for worker in per_worker], dtype=np.float64)


def _count(
    found: dict[str, Any],
    rule: DecisionRule,
    sides: tuple[Samples, Samples],
    slowdowns: Sequence[float],
    turn: np.ndarray,
) -> None:
    each = np.arange(len(turn))
    unchanged: Flags | None = None
    for place, slowdown in enumerate(slowdowns):
        alarms, void = rule.judge(*sides, 1 + slowdown)
        if unchanged is None:
            unchanged = alarms
            found["row"] += int(alarms.sum())
            found["void"] += int((void.any(-1) & ~alarms.any(-1)).sum())
        injected = unchanged.copy()
        injected[each, turn] = alarms[each, turn]
        found["one"][place] += injected.any(-1).sum()
        found["all"][place] += alarms.any(-1).sum()


def _rates(
    found: Mapping[str, Any], runs: int, rows: int, slowdowns: Sequence[float], disturbances: Mapping[str, int]
) -> RuleRates:
    one, everywhere = ([Rate(int(hits), runs) for hits in found[key]] for key in ("one", "all"))
    return RuleRates(
        alarms=one[0],
        per_row=Rate(found["row"], runs * rows),
        unjudged=Rate(found["void"], runs),
        one=dict(zip(slowdowns, one[1:], strict=True)),
        everywhere=dict(zip(slowdowns, everywhere[1:], strict=True)),
        disturbances={name: Rate(hits, runs) for name, hits in disturbances.items()},
    )
