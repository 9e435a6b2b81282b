from __future__ import annotations

import math
import struct
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_gate.metric import Exact, Sampled
from perf_gate.records.record import write
from perf_gate.reporting import palette, plot_folder
from perf_gate.reporting.data_table import data_table
from perf_gate.reporting.forest_plot import ForestPlot, grouped, label
from perf_gate.reporting.histograms import Histograms
from perf_gate.reporting.history_plot import NOW, HistoryPlot, history_points, series_by_metric
from perf_gate.reporting.page import plots
from perf_gate.reporting.plot import Plot
from perf_gate.reporting.plot_folder import save
from perf_gate.reporting.result import results
from perf_gate.reporting.worker_plot import WorkerPlot
from perf_gate.session.output import PlotFolder
from perf_gate.showing.markdown import as_markdown, escaped
from perf_gate.showing.plain import plain, shortened
from perf_gate.verdict import Row, Verdict
from tests.perf_gate import report_data_samples, samples
from tests.perf_gate.report_data_samples import HOSTILE
from tests.perf_gate.samples import EFFICIENCY, measurement

PNG = b"\x89PNG\r\n\x1a\n"
SVG = "{http://www.w3.org/2000/svg}"


def row(short="p50", verdict=Verdict.PASS, metric=EFFICIENCY, **facts):
    ends = {
        "reference": 0.95,
        "now": 0.95,
        "change": 0.0,
        "low": -0.02,
        "high": 0.02,
        "threshold": 0.01,
        "minimum_detectable_change": 0.03,
    }
    return Row(samples.name(short), metric, verdict, **{**ends, **facts})


# -------------------------------------------------------------------- text


@given(st.text())
def test_any_name_can_stand_in_xml(text):
    made = plain(text)
    ElementTree.fromstring(f"<a>{made.replace('&', '').replace('<', '').replace('>', '')}</a>")
    made.encode("utf-8")
    assert len(made) == len(text)
    assert "\n" not in made


@given(st.text(), st.integers(3, 60))
def test_a_shortened_name_fits_and_keeps_both_ends(text, characters):
    made = shortened(text, characters)
    assert len(made) <= characters
    if len(text) <= characters:
        assert made == plain(text)
    else:
        assert made[0] == plain(text)[0]
        assert made[-1] == plain(text)[-1]


@pytest.mark.parametrize(
    "text",
    ["<img src=x>", "[a](http://x)", "a | b", "`x`", "@team", "https://x.example", "www.x.example", "a_b_c", "&lt;"],
)
def test_markdown_shows_a_name_as_it_is(text):
    made = escaped(text)
    assert not set("<>[]()|`@_*~$") & set(made)
    assert "://" not in made
    assert "www." not in made


def test_a_table_refuses_a_row_that_does_not_fit():
    with pytest.raises(ValueError, match="2 cells in a row, 1 columns"):
        data_table("t", ["a"], [("b", "c")])


def test_every_light_colour_is_unique_and_found_by_its_name():
    lights = [light for light, _ in palette.COLORS.values()]
    assert len(set(lights)) == len(lights)
    for name in palette.COLORS:
        assert palette.named(f"fill: {palette.light(name)}") == f"fill: var(--{name})"


@pytest.mark.parametrize("scheme", [0, 1])
@pytest.mark.parametrize("name", [name for name in palette.COLORS if name not in ("ground", "line", "soft")])
def test_every_colour_can_be_read_on_its_ground(scheme, name):
    """WCAG 2.2, 1.4.3: text needs a contrast of 4.5."""

    def luminance(color):
        channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    one, other = sorted((luminance(palette.COLORS[each][scheme]) for each in (name, "ground")), reverse=True)
    assert (one + 0.05) / (other + 0.05) >= (3 if name == "reference" else 4.5)


# -------------------------------------------------------------------- files


@pytest.fixture(scope="module")
def drawn():
    return dict(plots(report_data_samples.hostile()).all())


def test_every_plot_of_hostile_names_is_valid_svg_and_png_with_its_title(drawn):
    assert {type(plot) for plot in drawn.values()} == {ForestPlot, Histograms, WorkerPlot, HistoryPlot}
    for plot in drawn.values():
        files = plot.files()
        root = ElementTree.fromstring(files[".svg"])
        words = [text.text or "" for text in root.iter(f"{SVG}text")]
        assert "".join("".join(words).split()).find("".join(plain(plot.title)[:12].split())) >= 0
        assert files[".png"].startswith(PNG)
        width = struct.unpack(">I", files[".png"][16:20])[0]
        assert width == 2 * plot.widths[-1]


def test_dollars_are_no_formula():
    text = ForestPlot((row("$\\frac{x$"),), "r").inline("k")[-1]
    assert "$\\frac{x$" in [element.text for element in ElementTree.fromstring(text).iter("text")]


def test_the_same_figures_give_the_same_file(drawn):
    plot = drawn["history-01"]
    assert plot.files() == plot.files()


def test_two_plots_in_one_page_share_no_id(drawn):
    one, other = (
        {element.get("id") for element in ElementTree.fromstring(drawn["changes"].inline(key)[0]).iter()} - {None}
        for key in ("a", "b")
    )
    assert one
    assert not one & other


def test_nobodys_settings_change_a_plot(drawn, monkeypatch):
    import matplotlib as mpl

    before = drawn["history-01"].inline("k")
    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "red")
    monkeypatch.setitem(mpl.rcParams, "text.parse_math", True)
    assert drawn["history-01"].inline("k") == before
    assert mpl.rcParams["axes.facecolor"] == "red"


def test_a_summary_names_the_verdict_first_and_every_file(tmp_path):
    folder = tmp_path / "plots"
    found = report_data_samples.red()
    path = save(found, folder)
    text = path.read_text()
    assert text.startswith("## ❌ perf gate: regressed")
    files = {each.name for each in folder.iterdir()} - {"summary.md"}
    assert {name for name in files if name.endswith(".png") and f"`{name}`" not in text} == set()
    assert {name.rpartition(".")[0] for name in files if name.endswith(".svg")} == {
        name.rpartition(".")[0] for name in files if name.endswith(".png")
    }
    lines = [line for line in text.splitlines() if line.endswith("| regressed |")]
    assert len(lines) == sum(each.verdict is Verdict.REGRESSED for each in found.rows)


def test_a_summary_beside_plots_is_the_one_of_a_job(tmp_path, monkeypatch):
    monkeypatch.setattr(Plot, "files", lambda _plot: {})  # drawing them takes long, and is looked at above
    for make in report_data_samples.ALL.values():
        found = make()
        text = save(found, tmp_path).read_text()
        assert text.startswith(as_markdown(found.run_report))
    alone = replace(report_data_samples.green(), reference=None, rows=(), status=0)
    text = as_markdown(alone.run_report)
    assert text.startswith("## ✅ perf gate: nothing was compared")
    assert "bytes copied 0 B" in text
    failed = as_markdown(replace(report_data_samples.green(), status=1, faults=("a.py::right failed",)).run_report)
    assert failed.startswith("## ❌ perf gate: failed")
    assert "right failed" in failed


# -------------------------------------------------------------------- forest


def test_a_regression_is_counted_in_the_title_and_lies_inside():
    rows = (row(), row("p200", Verdict.REGRESSED, change=0.4, low=0.3, high=0.5))
    forest_plot = ForestPlot(rows, "0001_quick")
    assert forest_plot.title == "Compared with 0001_quick: 1 of 2 changes exceed the threshold"
    assert forest_plot.reach >= 0.4
    assert "undecided" in ForestPlot((row(verdict=Verdict.INCONCLUSIVE),), "r").title


def test_one_noisy_metric_does_not_squeeze_the_others():
    rows = (*(row(f"p{n}") for n in range(9)), row("noisy", change=0.1, low=-0.4, high=8.0, threshold=9.0))
    assert ForestPlot(rows, "r").reach < 0.1


@pytest.mark.parametrize("end", [math.inf, -math.inf, 1e300])
def test_an_endless_interval_can_be_drawn(end):
    rows = (row(low=min(end, 0), high=max(end, 0)), row("p200", Verdict.REGRESSED, Exact("bytes", "B"), change=math.inf,
            low=math.inf, high=math.inf))  # fmt: skip
    forest_plot = ForestPlot(rows, "r")
    assert math.isfinite(forest_plot.reach)
    assert len(forest_plot.inline("k")) == 2


def test_pooled_rows_come_first_and_older_records_are_named():
    rows = [row(), replace(row(), scenario="(all)"), replace(row(), against="0001_a")]
    ((name, found),) = grouped(rows)
    assert name == EFFICIENCY.name
    assert [label(each) for each in found] == ["all scenarios, pooled", "p50", "p50, since 0001_a"]
    assert label(replace(row(), scenario="(all 2 from a.py::test_x[b])")).startswith("pooled: all 2 from")


def test_a_row_against_an_older_record_is_drawn_only_where_it_did_not_pass():
    old = replace(row(), against="0001_a")
    slow = replace(old, verdict=Verdict.REGRESSED)
    found = replace(report_data_samples.green(), rows=(row(), old, slow))
    assert found.sampled == [row(), slow]


# -------------------------------------------------------------------- findings


def test_the_same_verdict_in_many_scenarios_is_said_once():
    rows = [row(f"p{n}", Verdict.REGRESSED, change=0.1, why=f"{n} % worse.") for n in range(3)]
    rows += [row("x", Verdict.MISSING, None, change=None, low=None, high=None, why="gone: run it.")]
    one, other = results(rows)
    assert [len(one.rows), len(other.rows)] == [3, 1]
    assert "record anew" in one.advice
    assert one.reasons == ["0 % worse.", "1 % worse.", "2 % worse."]
    assert (other.metric, other.advice) == ("whole scenario", "gone: run it.")


def test_what_a_base_was_measured_for_asks_for_no_record():
    for verdict, worse in ((Verdict.REGRESSED, 0.1), (Verdict.IMPROVED, -0.1)):
        for metric in (EFFICIENCY, Exact("bytes", "B")):
            rows = [row(f"p{n}", verdict, metric, change=worse, why=f"{n} %.") for n in range(2)]
            ((recorded,), (paired,)) = results(rows), results(rows, paired=True)
            assert "--gate-record" in recorded.advice
            assert "record" not in paired.advice
    better = replace(report_data_samples.green(), rows=(row(verdict=Verdict.IMPROVED),))
    assert better.summary.endswith("1 metric is better: record anew.")
    assert replace(better, paired=True).summary.endswith("1 metric is better.")


def test_nothing_that_keeps_a_run_from_passing_is_left_out():
    for make in report_data_samples.ALL.values():
        found = make()
        told = [each for finding in results(found.notable) for each in finding.rows]
        assert sorted(map(id, told)) == sorted(map(id, found.notable))
        assert {each.verdict for each in found.rows if not each.optional} - {Verdict.PASS} == {
            each.verdict for each in told
        }


# -------------------------------------------------------------------- times and workers


def test_a_histogram_holds_every_visit_of_both_sides():
    now, reference = measurement(seed=1), measurement(seed=2, workers=24)
    times = Histograms(now, reference, "0001")
    for each in times.histograms:
        assert np.isclose(each.now.sum(), 1)
        assert np.isclose(each.reference.sum(), 1)
        assert len(each.edges) == len(each.now) + 1
    assert {row[0] for row in times.data_table.rows} == set(now.seconds)
    assert len(times.quantiles.rows) == 2 * len(now.seconds)


def test_times_that_are_all_equal_can_be_drawn():
    still = replace(measurement(), seconds={"warm": ((0.007,) * 4,) * 3, "floor": ((0.006,) * 4,) * 3})
    assert Histograms(still, None).inline("k")


@pytest.mark.parametrize(("seconds", "unit"), [(2.0, "s"), (2e-3, "ms"), (2e-6, "µs"), (2e-10, "ns")])
def test_the_unit_of_an_arm_fits_its_times(seconds, unit):
    still = replace(measurement(), seconds={"warm": ((seconds, seconds * 1.1),) * 3})
    (found,) = Histograms(still, None).histograms
    assert found.unit == unit


def test_every_worker_is_a_dot_and_a_row():
    now, reference = measurement(seed=1, workers=5), measurement(seed=2, workers=7)
    workers = WorkerPlot(now, reference, (row(),), "0001")
    assert len(workers.data_table.rows) == 12
    assert "reuse efficiency pass" in workers.title
    assert "not judged" in WorkerPlot(now, reference, (), "0001").title


# -------------------------------------------------------------------- history


def test_history_names_every_record_and_its_commit():
    found = report_data_samples.green()
    names = [point.name for point in history_points(found)]
    assert names == ["0001", "0002", NOW]
    history_plot = plots(found).history_plot[0]
    assert history_plot.data_table.columns[1:] == ("#0001 (0101010)", "#0002 (0202020)", "#now (0123456)")


def test_history_shows_the_change_since_the_oldest_record():
    slow = report_data_samples.data(slower=1.2)
    by_name = {history_plot.metric.name: history_plot for history_plot in plots(slow).history_plot}
    warm = by_name["warm ttft"].pooled
    assert warm[0] == 0
    assert warm[-1] == pytest.approx(0.2, abs=0.03)
    # Higher is better here, and still a loss is for the worse.
    assert by_name["reuse efficiency"].pooled[-1] == pytest.approx(0.2, abs=0.03)
    assert "worse than in 0001" in by_name["warm ttft"].title


def test_a_count_is_drawn_only_where_it_ever_changed():
    names = {history_plot.metric.name for history_plot in plots(report_data_samples.green()).history_plot}
    assert "bytes copied" not in names
    (history_plot,) = [
        history_plot
        for history_plot in plots(report_data_samples.data(copied=1)).history_plot
        if history_plot.metric.name == "bytes copied"
    ]
    assert history_plot.title.endswith("changed in 2 of 2 scenarios")
    assert history_plot.inline("k")


def test_history_compares_only_what_asks_for_the_same_and_times_only_of_the_same_machine():
    first = report_data_samples.record(1, machine=samples.ELSEWHERE)
    found = report_data_samples.data(history=(first, report_data_samples.record(2)))
    counted = series_by_metric(history_points(found), Exact)["bytes copied"][0].values
    timed = series_by_metric(history_points(found), Sampled)["speedup"][0].values
    assert counted == (0, 0, 0)
    assert timed[0] is None
    assert None not in timed[1:]
    other = report_data_samples.record(1)
    changed = tuple(replace(each, fingerprint="beef") for each in other.latest.measurements)
    section = replace(other.latest, measurements=changed)
    found = report_data_samples.data(history=(other.holding(section), report_data_samples.record(2)))
    assert series_by_metric(history_points(found), Exact)["bytes copied"][0].values == (None, 0, 0)


def test_a_wider_allowance_does_not_cut_the_history():
    old = report_data_samples.record(1)
    wider = replace(EFFICIENCY, threshold=0.02)
    changed = tuple(
        replace(each, metrics=tuple(wider if m == EFFICIENCY else m for m in each.metrics))
        for each in old.latest.measurements
    )
    found = report_data_samples.data(
        history=(old.holding(replace(old.latest, measurements=changed)), report_data_samples.record(2))
    )
    assert None not in series_by_metric(history_points(found), Sampled)["reuse efficiency"][0].values


def test_many_records_do_not_crowd_the_axis():
    history = tuple(report_data_samples.record(number) for number in range(1, 13))
    history_plot = plots(report_data_samples.data(history=history)).history_plot[0]
    text = history_plot.inline("k")[0]
    shown = [f"00{number:02}" for number in range(1, 13) if f">00{number:02}<" in text]
    assert shown[0] == "0001"
    assert len(shown) == 4
    assert len(history_plot.data_table.columns) == 14


def test_names_of_any_length_stay_in_their_column():
    long = "x" * 300 + HOSTILE
    forest_plot = ForestPlot((replace(row(), scenario=f"a.py::test_x[{long}]"),), "r")
    for text in forest_plot.inline("k"):
        words = [element.text or "" for element in ElementTree.fromstring(text).iter("text")]
        assert max(map(len, words)) < 60
    assert long[:300] in forest_plot.data_table.rows[0][0]


def test_a_folder_of_a_run_that_was_killed_while_it_drew_is_still_the_gates(tmp_path, monkeypatch):
    written = []

    def killed(content, path, **how):
        if len(written) == 2:
            raise KeyboardInterrupt
        write(content, path, **how)
        written.append(path)

    monkeypatch.setattr(plot_folder, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        save(report_data_samples.green(), tmp_path)
    assert [path.suffix for path in written] == [".md", ".svg"]
    place = PlotFolder("--gate-plots", tmp_path)
    place.check()
    place.clear()
    assert list(tmp_path.iterdir()) == []
