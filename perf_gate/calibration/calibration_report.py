"""The report of a calibration as Markdown: rates with exact intervals, their source and their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perf_gate.calibration.decision_rules import DecisionRule, RuleRates
from perf_gate.calibration.rate import Rate
from perf_gate.calibration.simulation import Condition, Tally


@dataclass(frozen=True)
class RealLine:
    """Real runs of one kind. wrong: the rows that did not pass, if nothing was injected."""

    what: str
    tally: Tally
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True)
class CalibrationReport:
    """The content of a report.

    pool: what simulated runs are drawn from, as text. facts: name -> text, in order. against: what real runs are
    compared with. slowed: number of scenarios that a slowdown of `arm` makes worse. rows: sampled rows of a run.
    limits: sentences.
    """

    pool: str
    facts: Mapping[str, str]
    against: str
    arm: str
    slowed: int
    rows: int
    tallies: Mapping[Condition, Tally]
    real: Sequence[RealLine]
    limits: Sequence[str]
    rules: Mapping[DecisionRule, RuleRates] = field(default_factory=dict)

    @property
    def slowdowns(self) -> list[float]:
        """The injected shares, ascending."""
        return sorted({condition.slowdown for condition in self.tallies if condition.slowdown})

    def markdown(self) -> str:
        """The whole text, with a trailing newline."""
        parts = [self._head(), self._resampled(), self._real(), self._rules(), self._disturbances(), self._limits()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _head(self) -> str:
        lines = "\n".join(f"- {name}: {fact}" for name, fact in self.facts.items())
        return f"# How often the gate is wrong\n\n{lines}\n\nIn brackets: exact 95 % intervals (Clopper-Pearson), in %."

    def _resampled(self) -> str:
        rows = [
            (
                str(condition),
                str(tally.alarms),
                str(tally.unjudged),
                str(Rate(tally.improved, tally.runs)),
                str(tally.runs),
            )
            for condition, tally in self.tallies.items()
        ]
        return f"## The gate, on resampled runs\n\n{_table(('', 'red', 'cannot judge', 'improved', 'n'), rows)}"

    def _real(self) -> str:
        if not self.real:
            return ""
        rows = [
            (line.what, str(line.tally.alarms), str(line.tally.unjudged), str(line.tally.runs)) for line in self.real
        ]
        wrong = [f"- {line.what}: {text}" for line in self.real for text in line.wrong]
        listed = "\n\nRows that did not pass although nothing was injected:\n\n" + "\n".join(wrong) if wrong else ""
        table = _table(("", "red", "cannot judge", "n"), rows)
        return f"## The gate, on real runs compared with {self.against}\n\n{table}{listed}"

    def _rules(self) -> str:
        if not self.rules:
            return ""
        slowdowns = self.slowdowns
        head = (
            "rule",
            "false alarms, whole run",
            "per row",
            "cannot judge",
            *(f"{100 * s:g} % slower" for s in slowdowns),
        )
        rows = [
            (
                str(rule),
                str(found.alarms),
                str(found.per_row),
                str(found.unjudged),
                *(str(found.one[s]) for s in slowdowns),
            )
            for rule, found in self.rules.items()
        ]
        unchanged = self.tallies.get(Condition())
        if unchanged is not None:
            caught = (str(self.tallies[Condition(s)].alarms) for s in slowdowns)
            rows.insert(0, ("**this gate**", str(unchanged.alarms), "-", str(unchanged.unjudged), *caught))
        runs = next(iter(self.rules.values())).alarms.n
        return (
            "## The same samples under other rules\n\n"
            f"Each rule judges the seconds of `{self.arm}`, one row per scenario ({self.slowed}); this gate judges all "
            f"of its {self.rows} rows. n = {runs} runs for the other rules. Slower: one scenario is slower; the share "
            f"of runs with any red row, unchanged scenarios included.\n\n{_table(head, rows)}"
        )

    def _disturbances(self) -> str:
        names = list(next(iter(self.rules.values())).disturbances) if self.rules else []
        if not names:
            return ""
        rows = [(str(rule), *(str(found.disturbances[name]) for name in names)) for rule, found in self.rules.items()]
        ours = {
            condition.disturbance.name: str(tally.alarms)
            for condition, tally in self.tallies.items()
            if condition.disturbance is not None
        }
        rows.insert(0, ("**this gate**", *(ours.get(name, "-") for name in names)))
        return (
            "## False alarms on a disturbed machine\n\nThe code did not change, and the recorded seconds were "
            "multiplied as in the head of the column. The share of runs with any red row."
            f"\n\n{_table(('rule', *names), rows)}"
        )

    def _limits(self) -> str:
        return "## Limits\n\n" + "\n".join(f"- {text}" for text in self.limits)


def counted(number: int, noun: str) -> str:
    """E.g. "1 file", "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def words(looks: Sequence[int], noun: str = "workers") -> str:
    """E.g. "8 and 10 workers"."""
    *most, last = map(str, looks)
    return f"{', '.join(most)}{' and ' if most else ''}{last} {noun}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
