"""The example notebook runs, and shows results, in the kernel that Jupyter uses."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from support.folders import ROOT

NOTEBOOK = ROOT / "examples/notebook/quantize.ipynb"

# By what a cell ends with: what is shown below it.
SHOWN = {
    "compiled": ["quantized", "tensors", "multiplications"],
    "qc.measure_verdict": ["integer", "accuracy", "cost"],
    "qc.check": ["Conv", "2 of 2", "QLinearConv"],
    "qc.measure_sensitivity": ["alone", "without", "image"],
    "qc.runtime.evaluate": ["SQNR", "quantized"],
    "found": ["recipe", "keeps the accuracy"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    notebook.metadata["folder"] = str(folder)
    return notebook


def outputs_behind(notebook: nbformat.NotebookNode, ending: str) -> list[nbformat.NotebookNode]:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (cell,) = [cell for cell in cells if cell.source.splitlines()[-1].partition("(")[0] == ending]
    return list(cell.outputs)


@pytest.mark.parametrize("ending", SHOWN)
def test_results_are_shown(run: nbformat.NotebookNode, ending: str) -> None:
    (result,) = [one for one in outputs_behind(run, ending) if one.output_type == "execute_result"]
    text = re.sub("<[^>]*>", "", result.data["text/html"])
    assert all(word in text for word in SHOWN[ending]), text


def test_progress_is_shown_and_taken_away(run: nbformat.NotebookNode) -> None:
    displayed = [one for one in outputs_behind(run, "compiled") if one.output_type == "display_data"]
    assert displayed and all(one.data["text/html"] == "" for one in displayed)


def test_files_are_written(run: nbformat.NotebookNode) -> None:
    folder = Path(run.metadata["folder"])
    assert (folder / "model.q.onnx").exists() and (folder / "model.html").exists()


def test_the_notebook_is_kept_without_results() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert not any(cell.outputs for cell in cells if cell.cell_type == "code")
