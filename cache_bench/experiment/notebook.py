"""docs/experiment.ipynb from docs/experiment.py: converted, run, and stored with what it showed."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jupytext
import nbclient
import nbformat

from cache_bench.experiment.fault import ExperimentError
from cache_bench.experiment.file import write
from cache_bench.experiment.origin import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = ROOT / "docs" / "experiment.py"
TARGET = ROOT / "docs" / "experiment.ipynb"
_TIMEOUT = 1200  # seconds for one cell


def converted(source: Path) -> Any:
    """The notebook that `source` describes, without outputs; the same text always gives the same notebook."""
    notebook = jupytext.read(source)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"
        cell.metadata = {}
    return notebook


def executed(source: Path, environment: Mapping[str, str] | None = None) -> Any:
    """The same with outputs, run from the repository's root with `environment` besides this process's own.

    Raises ExperimentError where a cell fails.
    """
    notebook = copy.deepcopy(converted(source))
    client = nbclient.NotebookClient(
        notebook, timeout=_TIMEOUT, record_timing=False, resources={"metadata": {"path": str(ROOT)}}
    )
    quiet = "ignore:IProgress not found"  # a bar of transformers; its warning would carry paths of this machine
    with _environment({"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": quiet, **(environment or {})}):
        logging.getLogger("traitlets").setLevel(logging.ERROR)
        try:
            client.execute()
        except nbclient.exceptions.CellExecutionError as error:
            raise ExperimentError(f"{source.name}: a cell failed.\n{error}") from error
    return notebook


def build(source: Path = SOURCE, target: Path = TARGET) -> None:
    """Write `target` anew. Raises ExperimentError where a cell fails; `target` is as it was then."""
    notebook = executed(source)
    nbformat.validate(notebook)
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    write(text + "\n", target)


@contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(extra)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
