"""The rules that others judge benchmarks by, on the same samples: the seconds of one arm in each scenario.

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
from perf_gate.calibration.simulation import Tell
from perf_gate.calibration.split import Split
from perf_gate.judging.decision import Flags
from perf_gate.judging.estimate import Floats
from perf_gate.measurement import Measurement

CHUNK = 100


@dataclass(frozen=True)
class Samples:
    """One side of many runs: its seconds, and the figures that rules ask for, which pool all of its workers.

    seconds: for each scenario (runs, workers, visits). count: samples of each scenario (scenarios,). The figures are
    (runs, scenarios).
    """

    seconds: tuple[Floats, ...]
    count: Floats
    mean: Floats
    median: Floats
    min: Floats
    variance: Floats

    @classmethod
    def of(cls, seconds: Sequence[Floats]) -> Samples:
        """Compute the figures."""
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
    """A rule that looks at one row, the seconds of an arm in one scenario, and knows no other rows.

    name: what it does. processes: of each side that it gets, pooled; None: all that there are.
    """

    def __init__(self, processes: int | None) -> None:
        """Keep the number of processes."""
        self.processes = processes

    @property
    def of(self) -> str:
        """How many processes a side, in words."""
        return (
            "all processes" if self.processes is None else f"{self.processes} process{'es'[: 2 * (self.processes > 1)]}"
        )

    @property
    @abstractmethod
    def name(self) -> str:
        """The rule in words."""

    @abstractmethod
    def judge(self, then: Samples, now: Samples, factor: float) -> tuple[Flags, Flags]:
        """Which rows alarm, and which end without a verdict, where `now` takes `factor` times its seconds.

        Each (runs, scenarios).
        """

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
        """See DecisionRule.judge. The exact distribution up to 20 samples a side, else the normal one, as asv does."""
        alarms = np.asarray(factor * now.median > self.factor * then.median)
        for scenario, (ours, theirs) in enumerate(zip(now.seconds, then.seconds, strict=True)):
            far = np.flatnonzero(alarms[:, scenario])  # the test is dear, and the factor alone acquits most
            if len(far):
                p = self._p(factor * ours[far].reshape(len(far), -1), theirs[far].reshape(len(far), -1))
                alarms[far, scenario] = p < self.p
        return _decided(alarms)

    @staticmethod
    def _p(ours: Floats, theirs: Floats) -> Floats:
        from scipy import stats  # noqa: PLC0415 - takes long to load, and few calls want it

        exact = max(ours.shape[-1], theirs.shape[-1]) <= 20
        test: Any = stats.mannwhitneyu  # its stubs do not know arrays of this kind
        tested = test(ours, theirs, axis=-1, alternative="two-sided", method="exact" if exact else "asymptotic")
        return np.asarray(tested.pvalue, dtype=np.float64)


class StudentT(DecisionRule):
    """A t-test that takes every visit for independent."""

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
    """How a rule does. alarms: runs with any red row and nothing changed. per_row: red rows among all of those.

    unjudged: runs that end without a verdict and nothing changed. one, everywhere: slowdown -> runs with any red row
    where one scenario, or all, are slower. disturbances: name -> runs with any red row and nothing changed.
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
    tell: Tell = lambda _done, _all: None,
) -> Mapping[DecisionRule, RuleRates]:
    """Let every rule judge `runs` draws: the record of the split against all workers of its last look.

    scenarios: those whose `arm` is judged, a row each. In a scenario each process gives as many visits as the poorest
    one has. Deterministic for a seed. Raises CalibrationError where that is a single visit.
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
            at_fault = {
                disturbance: (
                    Samples.of([record[then] for _, record in disturbed[disturbance, few]]),
                    Samples.of([run[ours, np.arange(ours.shape[1])] for run, _ in disturbed[disturbance, few]]),
                )
                for disturbance in disturbances
            }
            for rule in (each for each in rules if each.processes == few):
                _count(count[rule], rule, sides, factors, turn)
                for disturbance, sides_then in at_fault.items():
                    alarms[rule][disturbance.name] += int(rule.judge(*sides_then, 1.0)[0].any(-1).sum())
        tell(start + size, runs)
    return {rule: _rates(found, runs, len(scenarios), slowdowns, alarms[rule]) for rule, found in count.items()}


def _disturbed(
    disturbance: Disturbance, seconds: Sequence[Floats], places: int, random: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """Run and record of each scenario. A process is as odd in one scenario as in all others, hence one seed for all."""
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
    calm: Flags | None = None
    for place, slowdown in enumerate(slowdowns):
        alarms, void = rule.judge(*sides, 1 + slowdown)
        if calm is None:
            calm = alarms
            found["row"] += int(alarms.sum())
            found["void"] += int((void.any(-1) & ~alarms.any(-1)).sum())
        injected = calm.copy()
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
