"""The stored notebook is its text source, and runs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.notebook import SOURCE, TARGET, build, converted, executed


def test_the_stored_notebook_is_made_from_its_text_and_has_run() -> None:
    stored = nbformat.read(TARGET, as_version=4)
    again = "run: python -m cache_bench.experiment --notebook"
    assert [(cell.cell_type, cell.source) for cell in stored.cells] == [
        (cell.cell_type, cell.source) for cell in converted(SOURCE).cells
    ], again
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), again
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"execute_result", "display_data"}
    assert sum("image/png" in output.data for output in outputs) == 8
    assert not re.search(r"/(?:tmp|home|root|work|Users)/", TARGET.read_text(encoding="utf-8"))


def test_it_runs_with_a_small_model() -> None:
    notebook = executed(SOURCE, {"EXPERIMENT_MODEL": "tiny-grouped", "EXPERIMENT_SCALE": "0.1"})
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert {output.output_type for output in outputs} == {"execute_result"}
    assert any("tiny-grouped, prefix" in output.data.get("text/markdown", "") for output in outputs)
    nbformat.validate(notebook)


def test_a_cell_that_fails_leaves_the_stored_one_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "a.py", tmp_path / "a.ipynb"
    source.write_text("# %%\n1 + 1\n", encoding="utf-8")
    build(source, target)
    before = target.read_text(encoding="utf-8")
    assert '"2"' in before
    source.write_text("# %%\n1 / 0\n", encoding="utf-8")
    with pytest.raises(ExperimentError, match=r"a\.py: a cell failed(?s:.)*ZeroDivisionError"):
        build(source, target)
    assert target.read_text(encoding="utf-8") == before
