from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perf_gate.calibration import simulation
from perf_gate.calibration.disturbance import DISTURBANCES, Drift, NoisyNeighbour, OddProcess, disturbed_values
from perf_gate.calibration.pool import CalibrationError, gather, gather_pairs
from perf_gate.calibration.replay import PairedReplayer, RecordReplayer, injected
from perf_gate.calibration.simulation import Condition, PairedDraws, RecordDraws, shift_of, simulate, slowed_scenarios
from perf_gate.calibration.split import Split
from perf_gate.judging.comparison import compare_paired, compare_to_record, gather_evidence, values
from perf_gate.judging.decision import decide
from perf_gate.judging.judge import judge, undecided
from perf_gate.judging.policy import Policy
from perf_gate.metric import Better, Sampled
from perf_gate.records.runfile import Terms, run_of
from perf_gate.records.section import Section
from perf_gate.verdict import Exit, Verdict, exit_status
from tests.perf_gate import samples
from tests.perf_gate.samples import EFFICIENCY, MACHINE, SPEEDUP, measurement

WARM = Sampled("warm ttft", "s", Better.LOWER, "warm", absolute_threshold=100e-6)
GAIN = Sampled("gain", "x", Better.HIGHER, "cold", absolute_threshold=0.0004)
METRICS = (EFFICIENCY, SPEEDUP, WARM, GAIN)
SHORT = ("p50", "p200", "p500")


def pool_of(seed=1, workers=40, shorts=SHORT, metrics=METRICS, **changes):
    return gather(
        {"r": [measurement(s, seed=seed, workers=workers, visits=20, metrics=metrics, **changes) for s in shorts]}
    )


def held(pool, cut, cases, *, policy=None, seed=0, **options):
    """Simulated runs against simulated records."""
    draws = RecordDraws(pool, policy or Policy(), cut, cases, seed)
    return simulate(draws, cases, arm="warm", seed=seed, **options)


def at_once(simulated, run_by_run, policy, look):
    """The verdicts of all runs from one call, beside those of the judge run by run: {(scenario, metric): verdict}."""
    evidence, unable = gather_evidence(simulated, policy)
    assert not unable
    found = decide(
        evidence.contrast,
        evidence.threshold,
        evidence.resolution,
        alpha=policy.level(look),
        beta=policy.beta,
        weights=evidence.weights,
    )
    names = [(each.scenario, each.metric.name) for each in evidence.comparisons]
    for number, rows in enumerate(run_by_run):
        words = np.select(
            [found.regressed[number], found.improved[number], found.undecided[number]],
            [Verdict.REGRESSED.value, Verdict.IMPROVED.value, Verdict.INCONCLUSIVE.value],
            Verdict.PASS.value,
        )
        assert dict(zip(names, words.tolist(), strict=True)) == {
            (row.scenario, row.metric.name): row.verdict.value for row in rows
        }


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.tuples(st.integers(3, 16), st.integers(3, 24)),
    scatter=st.sampled_from([0.002, 0.01, 0.04]),
    look=st.integers(1, 3),
    alpha=st.sampled_from([0.001, 0.2, 0.4]),
    shorts=st.sampled_from([SHORT, SHORT[:2], SHORT[:1]]),
)
def test_many_runs_at_once_are_judged_as_each_alone(seed, sizes, scatter, look, alpha, shorts):
    pool, policy = pool_of(seed, shorts=shorts, offset=scatter), Policy(alpha=alpha)
    random = np.random.default_rng(seed)
    order = random.permuted(np.tile(np.arange(pool.workers), (5, 1)), axis=1)
    now, reference = order[:, : sizes[0]], order[:, 16 : 16 + sizes[1]]
    simulated = [
        compare_to_record(each.scenario, metric, side.drawn(now), side.drawn(reference), threshold=metric.threshold)
        for each in pool.measurements
        for metric in METRICS
        for side in [values(metric, each)]
    ]
    rows = [
        judge(pool.side(ours), pool.side(theirs), policy=policy, look=look, machine=MACHINE)
        for ours, theirs in zip(now, reference, strict=True)
    ]
    at_once(simulated, rows, policy, look)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    factor=st.sampled_from([1.015, 1.03, 1.2, 0.9]),
    slow=st.sets(st.integers(0, 2), min_size=1),
    shorts=st.sampled_from([SHORT, SHORT[:1]]),
)
def test_a_slower_arm_moves_each_row_as_slower_seconds_do(seed, factor, slow, shorts):
    pool, policy = pool_of(seed, workers=24, shorts=shorts), Policy()
    names = [each.scenario for each in pool.measurements]
    slower = {name: np.array(factor if index in slow else 1.0) for index, name in enumerate(names)}
    run = run_of(pool.side(range(8)), samples.provenance())
    really = injected(run, "warm", {name: float(each) for name, each in slower.items()})

    def seen(measurements):
        record = pool.side(range(8, 24))
        found = [
            compare_to_record(
                ours.scenario, metric, values(metric, ours), values(metric, theirs), threshold=metric.threshold
            )
            for ours, theirs in zip(measurements, record, strict=True)
            for metric in METRICS
        ]
        return gather_evidence(found, policy)[0]

    evidence = seen(run.measurements)
    shift = shift_of(evidence.comparisons, "warm", {name: np.log(each) for name, each in slower.items()})
    assert evidence.shifted(shift).contrast.change == pytest.approx(seen(really.measurements).contrast.change, abs=1e-9)


def test_a_simulated_run_ends_as_the_looks_of_the_judge_end():
    """The same draws, run by run through the real judge, with 4 % injected, where ends of every kind occur."""
    pool = pool_of(3, workers=30, offset=0.012, metrics=(EFFICIENCY, SPEEDUP))
    policy, cut, runs = Policy(alpha=0.02), Split(12, (6, 10, 16)), 60
    tally = simulate(
        RecordDraws(pool, policy, cut, [Condition(0.04)]),
        [Condition(0.04)],
        arm="warm",
        runs=runs,
        seed=5,
    )[Condition(0.04)]
    reference, now = cut.draw(np.random.default_rng([5, 0]), pool.workers, runs)
    ends = []
    for number in range(runs):
        section = Section("", samples.provenance(), tuple(pool.side(reference[number])))
        run = run_of(pool.side(now[number]), samples.provenance())
        name = pool.measurements[number % 3].scenario
        ends.append(RecordReplayer(policy, cut.looks, section).replay(injected(run, "warm", {name: 1.04})))
    assert tally.red == sum(end.red for end in ends)
    assert tally.undecided == sum(end.undecided for end in ends)
    assert {end.look for end in ends} == {1, 2, 3}
    assert 0 < tally.red < runs
    assert 0 < tally.undecided < runs


def test_nothing_planted_is_green_and_ten_percent_is_caught():
    """2000 runs. 8 or more red at the promised 0.1 % has p < 1e-3; 10 % is 8 standard errors away from a miss."""
    pool = pool_of(metrics=(EFFICIENCY, SPEEDUP))
    cases = [Condition(), Condition(0.1), Condition(0.1, everywhere=True)]
    found = simulate(
        RecordDraws(pool, Policy(), Split(24, (8, 12, 16)), cases),
        cases,
        arm="warm",
        runs=2000,
    )
    calm, one, everywhere = (found[case] for case in cases)
    assert calm.red < 8
    assert calm.undecided < 100
    assert one.red == everywhere.red == 2000


def test_the_same_seed_gives_the_same_figures_whatever_the_chunks(monkeypatch):
    pool = pool_of(4, offset=0.03)
    policy, cut = Policy(alpha=0.05), Split(24, (8, 16))
    cases = [Condition(), Condition(0.03), *(Condition(disturbance=disturbance) for disturbance in DISTURBANCES)]

    def once(seed):
        return list(held(pool, cut, cases, policy=policy, runs=300, seed=seed).values())

    first = once(7)
    assert first == once(7)
    assert first != once(8)
    monkeypatch.setattr(simulation, "CHUNK", 1000)
    assert once(7) == first


def test_slower_in_one_scenario_takes_turns_over_those_with_the_arm():
    """One scenario scatters so widely that its slowdown is never caught: then one third of the runs stays green."""
    quiet = [measurement(short, seed=2, workers=40, metrics=[EFFICIENCY], offset=0.001) for short in ("p50", "p200")]
    loud = measurement("p500", seed=2, workers=40, metrics=[EFFICIENCY], offset=0.5)
    pool = gather({"r": [*quiet, loud]})
    found = simulate(
        RecordDraws(pool, Policy(), Split(24, (8, 16)), [Condition(0.2)]),
        [Condition(0.2)],
        arm="warm",
        runs=300,
    )
    assert 200 <= found[Condition(0.2)].red < 215


def test_only_what_is_named_is_slowed_down():
    """The wide one is left out: then every run is red. Slowed down everywhere, too, it is left as it was."""
    quiet = [measurement(short, seed=2, workers=40, metrics=[EFFICIENCY], offset=0.001) for short in ("p50", "p200")]
    loud = measurement("x500", seed=2, workers=40, metrics=[EFFICIENCY], offset=0.5)
    pool = gather({"r": [*quiet, loud]})
    cases = [Condition(0.2), Condition(0.2, everywhere=True)]
    found = simulate(
        RecordDraws(pool, Policy(), Split(24, (8, 16)), cases),
        cases,
        arm="warm",
        within="[p",
        runs=60,
    )
    assert [found[case].red for case in cases] == [60, 60]
    with pytest.raises(CalibrationError, match="'absent' in its name"):
        slowed_scenarios(pool, "warm", "absent")


def test_an_arm_that_no_metric_suffers_from_is_named():
    pool = pool_of(metrics=(EFFICIENCY,))
    assert slowed_scenarios(pool, "warm") == [0, 1, 2]
    assert slowed_scenarios(pool, "warm", "p200") == [1]
    with pytest.raises(CalibrationError, match=r"'floor'.*\['floor', 'warm'\]"):
        slowed_scenarios(pool, "floor")


def test_progress_is_told():
    told = []
    pool = pool_of(metrics=(EFFICIENCY,))
    held(pool, Split(24, (8,)), [Condition()], runs=1500, progress=lambda done, wanted: told.append((done, wanted)))
    assert told == [(1000, 1500), (1500, 1500)]


# ------------------------------------------------------------------ pairs


def paired(seed, workers=30, shorts=SHORT, metrics=METRICS, **changes):
    """A run with the same code on both sides; `changes` make its candidate another."""
    ours, theirs = (
        [measurement(s, seed=2 * seed + side, workers=workers, visits=20, metrics=metrics, **kept) for s in shorts]
        for side, kept in ((0, changes), (1, {key: value for key, value in changes.items() if key != "slower"}))
    )
    return run_of(ours, samples.provenance(), base=theirs, base_provenance=samples.provenance())


def pairs_of(*runs):
    return gather_pairs({f"r{i}": (run.measurements, run.base.measurements) for i, run in enumerate(runs)})


def beside(pairs, chosen):
    provenance = samples.provenance()
    return run_of(pairs.now.side(chosen), provenance, base=pairs.base.side(chosen), base_provenance=provenance)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(3, 12),
    scatter=st.sampled_from([0.002, 0.01, 0.04]),
    look=st.integers(1, 2),
    alpha=st.sampled_from([0.001, 0.2, 0.4]),
    shorts=st.sampled_from([SHORT, SHORT[:1]]),
    own=st.sampled_from([None, 0.02]),
)
def test_many_paired_runs_at_once_are_judged_as_each_alone(seed, size, scatter, look, alpha, shorts, own):
    metrics = (replace(EFFICIENCY, paired_threshold=own), SPEEDUP, WARM, GAIN)
    pairs = pairs_of(paired(seed, shorts=shorts, metrics=metrics, offset=scatter))
    policy = Policy(alpha=alpha, looks=2)
    order = np.tile(np.arange(pairs.now.workers), (5, 1))
    chosen = np.random.default_rng(seed).permuted(order, axis=1)[:, :size]
    simulated = [
        compare_paired(
            now.scenario, metric, values(metric, now).drawn(chosen), values(metric, base).drawn(chosen), policy
        )
        for now, base in zip(pairs.now.measurements, pairs.base.measurements, strict=True)
        for metric in metrics
    ]
    rows = [PairedReplayer(policy, (size,)).rows(beside(pairs, each), size, policy, look) for each in chosen]
    at_once(simulated, rows, policy, look)


def test_a_simulated_paired_run_ends_as_the_looks_of_the_judge_end():
    """The same draws, run by run through the real judge, with 3 % injected, where ends of every kind occur."""
    pairs = pairs_of(paired(3, offset=0.012, metrics=(EFFICIENCY, SPEEDUP)))
    policy, looks, runs = Policy(alpha=0.02, looks=3), (6, 10, 16), 60
    draws = PairedDraws(pairs, policy, looks)
    tally = simulate(draws, [Condition(0.03)], arm="warm", runs=runs, seed=5)[Condition(0.03)]
    chosen = np.random.default_rng([5, 0]).permuted(np.tile(np.arange(30), (runs, 1)), axis=1)[:, :16]
    ends = []
    for number, drawn in enumerate(chosen):
        run = beside(pairs, drawn)
        name = pairs.now.measurements[number % 3].scenario
        ends.append(PairedReplayer(policy, looks).replay(injected(run, "warm", {name: 1.03})))
    assert tally.red == sum(end.red for end in ends)
    assert tally.undecided == sum(end.undecided for end in ends)
    assert {end.look for end in ends} == {1, 2, 3}
    assert 0 < tally.red < runs
    assert 0 < tally.undecided < runs


def test_pairs_keep_their_partners():
    """A worker that is on one side only is in no pair, and both sides keep the same order."""
    run, other = paired(1, workers=6), paired(2, workers=6)
    lame = replace(
        run.base, measurements=tuple(replace(each, worker_names=tuple("abcdex")) for each in run.base.measurements)
    )
    named = replace(
        run.section,
        measurements=tuple(replace(each, worker_names=tuple("abcdef")) for each in run.section.measurements),
    )
    pairs = pairs_of(replace(run, section=named, base=lame), other)
    assert pairs.now.measurements[0].names == pairs.base.measurements[0].names
    assert [name.partition("#")[0] for name in pairs.now.measurements[0].names] == ["r0"] * 5 + ["r1"] * 6
    assert PairedDraws(pairs, Policy(), (3,)).rows == len(METRICS) * (len(SHORT) + 1)


def test_a_run_with_a_scenario_on_one_side_only_is_left_out():
    run, other, third = (paired(seed, workers=6) for seed in (1, 2, 3))
    lame = replace(run, base=replace(run.base, measurements=run.base.measurements[1:]))
    lost = replace(third, section=replace(third.section, measurements=third.section.measurements[:2]))
    pairs = pairs_of(lame, other, lost)
    assert pairs.now.workers == 6
    assert {name: why.partition(" was ")[0] for name, why in pairs.left_out.items()} == {
        "r0": samples.name("p50"),
        "r2": samples.name("p500"),
    }
    with pytest.raises(CalibrationError, match=r"p50.* was timed on one side only"):
        pairs_of(lame)


def test_a_trouble_that_runs_cannot_be_drawn_under_is_no_zero():
    draws = PairedDraws(pairs_of(paired(1)), Policy(looks=1), (8,))
    with pytest.raises(ValueError, match="drift"):
        simulate(draws, [Condition(disturbance=Drift())], arm="warm", runs=10)


# ------------------------------------------------------------------ disturbances


def place_values(disturbance, places=8):
    """What it adds to times and to ratios, (scenarios, workers, places), and to the times of the record."""
    pool = pool_of(5, workers=6, metrics=(WARM, EFFICIENCY), noise=1e-9)
    found = disturbed_values(disturbance, pool, places, np.random.default_rng(1))
    calm = [values(metric, each).logs for each in pool.measurements for metric in (WARM, EFFICIENCY)]
    now = np.array([run - each[:, None] for (run, _), each in zip(found, calm, strict=True)])
    then = np.array([record - each for (_, record), each in zip(found, calm, strict=True)])
    return now[::2], now[1::2], then[::2], then[1::2]


def test_drift_hits_times_in_the_order_of_the_run_and_spares_ratios():
    times, ratios, *record = place_values(Drift())
    grown = np.expm1(times)
    assert np.allclose(grown[:, :, ::2], grown[:, :, 1::2])
    assert np.allclose(np.diff(grown[0, 0, ::2]), 0.3 / 4, atol=1e-3)
    assert 0 < grown.min() < grown.max() < 0.3
    assert np.abs(ratios).max() < 1e-3
    assert not np.any(record)


def test_an_odd_process_is_odd_in_all_scenarios_on_both_sides():
    times, ratios, record, record_ratios = place_values(OddProcess())
    assert set(np.round(np.exp(times), 6).ravel()) == {0.95, 1.05}
    assert set(np.round(np.exp(record), 6).ravel()) <= {0.95, 1.05}
    for side in (times, record):
        assert np.abs(side - side[:1]).max() < 1e-6
    for side in (ratios, record_ratios):
        assert np.abs(side).max() < 1e-6


def test_a_neighbour_disturbs_the_middle_half_only():
    times, ratios, *record = place_values(NoisyNeighbour())
    assert np.abs(np.array([times, ratios])[..., [0, 1, 6, 7]]).max() < 1e-12
    assert times[:, :, 2:6].min() > 0.01
    assert np.abs(ratios[:, :, 2:6]).min() > 1e-6
    assert not np.any(record)


# ------------------------------------------------------------------ replay


def section_of(measurements):
    return Section("", samples.provenance(), tuple(measurements))


def real(seed, workers=16, **changes):
    found = [measurement(short, seed=seed, workers=workers, visits=20, **changes) for short in SHORT]
    return run_of(found, samples.provenance())


def test_a_replay_stops_where_nothing_is_undecided():
    replayer = RecordReplayer(Policy(), (8, 12, 16), section_of(real(1, 24).measurements))
    calm = replayer.replay(real(2))
    assert (calm.look, calm.red, calm.undecided) == (1, False, False)
    noisy = replayer.replay(real(2, offset=0.2))
    assert (noisy.look, noisy.undecided) == (3, True)
    timed = [row for row in noisy.rows if isinstance(row.metric, Sampled) and "16 workers now" in row.why]
    assert timed


def test_a_replay_of_a_short_run_ends_with_the_workers_it_has():
    replayer = RecordReplayer(Policy(), (8, 12, 16), section_of(real(1, 24).measurements))
    short = replayer.replay(real(2, 10, offset=0.2))
    assert short.look == 2
    level = judge(
        real(2, 10, offset=0.2).measurements, replayer.record.measurements, policy=Policy(), look=2, machine=MACHINE
    )
    assert list(short.rows) == level
    assert undecided(level)


def test_a_replay_looks_when_the_run_itself_did():
    usual, own = (
        RecordReplayer(Policy(), looks, section_of(real(1, 24).measurements)) for looks in ((8, 12, 16), (6, 16))
    )
    run = real(2, offset=0.2)
    told = replace(run, terms=Terms((6, 16), 2, 0.001))
    assert usual.replay(told) == replace(own, policy=Policy(looks=2)).replay(run)
    assert usual.replay(told).look == 2
    assert usual.replay(run).look == 3


def test_what_a_run_lost_is_no_pass():
    lost = real(2)
    broken = run_of([*lost.measurements[:2], measurement("p500", invalid="premise")], samples.provenance())
    assert dict(broken.invalid) == {samples.name("p500"): "premise"}
    end = RecordReplayer(Policy(), (8,), section_of(real(1, 24).measurements)).replay(broken)
    assert exit_status(end.rows) is Exit.CANNOT_JUDGE


def test_real_runs_are_tallied_and_what_was_wrong_is_told():
    replayer = RecordReplayer(Policy(), (8, 12, 16), section_of(real(1, 24).measurements))
    names = [samples.name(short) for short in SHORT]
    runs = [real(seed) for seed in (2, 3, 4)]
    calm, nothing = replayer.tally(runs, Condition(), arm="warm", slow=names)
    assert (calm.red, calm.undecided, calm.runs, nothing) == (0, 0, 3, [])
    slow, told = replayer.tally(runs, Condition(0.2), arm="warm", slow=names)
    assert slow.red == 3
    # One scenario per run, in turn: besides the pooled row it is the only one that is told.
    for number, short in enumerate(SHORT, 1):
        assert {text for text in told if text.startswith(f"run {number}:") and "(all)" not in text} == {
            f"run {number}: {samples.name(short)}: reuse efficiency: regressed"
        }
