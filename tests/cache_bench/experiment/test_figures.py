"""Every plot says what it shows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from cache_bench.experiment.answers import answer
from cache_bench.experiment.figures import PLOTS, draw, png, svg
from cache_bench.experiment.results import Results


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_has_a_title_and_axes_with_units(name: str, measured: Results) -> None:
    figure = PLOTS[name](measured, answer(measured))
    assert figure.get_suptitle().startswith("tiny-grouped: ")
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.has_data()
    assert figure.axes[0].get_ylabel()
    units = " ".join(label for axes in figure.axes for label in (axes.get_xlabel(), axes.get_ylabel()))
    assert any(unit in units for unit in ("(ms", "(s)", "(×)", "(%)", "(MiB)", "warm / cold"))


def test_plots_are_files_that_are_the_same_every_time(measured: Results, tmp_path: Path) -> None:
    files = draw(measured, answer(measured), tmp_path)
    assert [file.name for file in files] == [f"tiny-grouped-{name}.svg" for name in PLOTS]
    for file in files:
        ElementTree.parse(file)
    name = "speedup"
    assert svg(PLOTS[name](measured, answer(measured))) == (tmp_path / f"tiny-grouped-{name}.svg").read_text("utf-8")
    assert png(PLOTS[name](measured, answer(measured))).startswith(b"\x89PNG")


def test_nothing_lies_outside_of_a_plot(measured: Results) -> None:
    found = answer(measured)
    for make in PLOTS.values():
        for axes in make(measured, found).axes:
            low, high = axes.get_ylim()
            for line in axes.get_lines():
                if line.get_transform() == axes.transData:
                    assert all(low <= y <= high for y in line.get_ydata())
