"""The worker processes that simulated runs are drawn from. All samples of a worker stay together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perf_gate.judging.matching import fault
from perf_gate.measurement import Measurement
from perf_gate.metric import Sampled


class CalibrationError(Exception):
    """The input cannot be used for a calibration. The message says why and what to do."""


@dataclass(frozen=True)
class Pool:
    """Timed scenarios, all visited by the same workers in the same order.

    measurements: one per scenario, with sampled metrics only. left_out: sources that cannot be used, with the reason.
    """

    measurements: tuple[Measurement, ...]
    left_out: Mapping[str, str]

    @property
    def workers(self) -> int:
        """Number of distinct worker processes."""
        return self.measurements[0].workers

    def only(self, names: Sequence[str]) -> Pool:
        """Return the pool with these workers only, in this order."""
        place = {name: index for index, name in enumerate(self.measurements[0].names)}
        return Pool(tuple(self.side([place[name] for name in names])), self.left_out)

    def side(self, chosen: Sequence[int]) -> list[Measurement]:
        """Return the measurements of a run of the workers with these indices, in this order."""
        return [_of(each, chosen) for each in self.measurements]


@dataclass(frozen=True)
class Pairs:
    """Both sides of paired runs. Worker i of `now` and worker i of `base` are a pair.

    left_out: sources that cannot be used, with the reason.
    """

    now: Pool
    base: Pool
    left_out: Mapping[str, str]


def gather_pairs(sources: Mapping[str, tuple[Sequence[Measurement], Sequence[Measurement]]]) -> Pairs:
    """Join the pairs of several paired runs. sources: candidate and base of each. Raises CalibrationError as `gather`.

    A pair is left out if one of its workers did not visit every scenario, and a source if it timed a scenario on one
    side only.
    """
    unpaired = {name: lone for name, (ours, theirs) in sources.items() if (lone := _on_one_side(ours, theirs))}
    whole = {name: sides for name, sides in sources.items() if name not in unpaired}
    if not whole:
        raise CalibrationError(f"no run has complete pairs: {next(iter(unpaired.values()), 'none was given')}")
    now = gather({name: ours for name, (ours, _) in whole.items()})
    base = gather({name: theirs for name, (_, theirs) in whole.items()})
    ours, theirs = now.measurements[0].names, base.measurements[0].names
    both = [name for name in ours if name in set(theirs)]
    if len(both) < 2:
        raise CalibrationError("the runs have fewer than two complete pairs in common: make more with --gate-against")
    return Pairs(now.only(both), base.only(both), {**unpaired, **base.left_out, **now.left_out})


def _on_one_side(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> str | None:
    one, other = ({each.scenario for each in side if is_timed(each)} for side in (ours, theirs))
    return f"{min(one ^ other)} was timed on one side only" if one ^ other else None


def gather(sources: Mapping[str, Sequence[Measurement]]) -> Pool:
    """Join the workers of several runs of the same code. The scenarios are those of the first source.

    Workers that did not visit every timed scenario are left out, and so are sources without one of the scenarios or
    with another definition of it. Raises CalibrationError if the first source has no timed scenario, or fewer than two
    workers that visited all of them.
    """
    (first, *_), left_out = sources, {}
    wanted = {each.scenario: timed_only(each) for each in sources[first] if is_timed(each)}
    if not wanted:
        raise CalibrationError(f"{first} has no timed scenario: give a record made with timing")
    complete: list[list[Measurement]] = []
    for source, measurements in sources.items():
        held = {each.scenario: each for each in measurements}
        misfit = next(
            (why for name, model in wanted.items() if (why := _misfit(model, held.get(name))) is not None), None
        )
        if misfit is not None:
            left_out[source] = misfit
            continue
        complete.append(_complete([_from_source(wanted[name], held[name], source) for name in wanted]))
    if not complete or (found := complete[0][0].workers) < 2:
        why = left_out.get(first, f"its timed scenarios have only {found if complete else 0} workers in common")
        raise CalibrationError(f"{first}: {why}: record anew with more workers")
    merged = tuple(_joined(parts) for parts in zip(*complete, strict=True))
    return Pool(merged, left_out)


def is_timed(measurement: Measurement) -> bool:
    """Return whether there are samples of a sampled metric."""
    return bool(measurement.seconds) and any(isinstance(metric, Sampled) for metric in measurement.metrics)


def timed_only(measurement: Measurement) -> Measurement:
    """Return the measurement without exact metrics, which resampling cannot change."""
    timed = tuple(metric for metric in measurement.metrics if isinstance(metric, Sampled))
    return replace(measurement, metrics=timed, exact={}, record="")


def _misfit(model: Measurement, held: Measurement | None) -> str | None:
    if held is None:
        return f"it has no {model.scenario}"
    if held.fingerprint != model.fingerprint:
        return f"{model.scenario} has another definition in it"
    if held.machine != model.machine:
        return f"it was measured on {held.machine or 'an unknown machine'}, not on {model.machine}"
    broken = fault(held)
    return f"{model.scenario}: {broken}" if broken else None


def _from_source(model: Measurement, held: Measurement, source: str) -> Measurement:
    return replace(model, seconds=held.seconds, worker_names=tuple(f"{source}#{name}" for name in held.names))


def _complete(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements with only the workers that visited every scenario, in the same order."""
    common = set(measurements[0].names).intersection(*(each.names for each in measurements[1:]))
    per_worker = [name for name in measurements[0].names if name in common]
    return [_of(each, [each.names.index(name) for name in per_worker]) for each in measurements]


def _of(measurement: Measurement, chosen: Sequence[int]) -> Measurement:
    return replace(
        measurement,
        seconds={arm: tuple(per_worker[index] for index in chosen) for arm, per_worker in measurement.seconds.items()},
        worker_names=tuple(measurement.names[index] for index in chosen),
    )


def _joined(parts: Sequence[Measurement]) -> Measurement:
    first = parts[0]
    return replace(
        first,
        seconds={arm: tuple(visits for part in parts for visits in part.seconds[arm]) for arm in first.seconds},
        worker_names=tuple(name for part in parts for name in part.worker_names),
    )
