"""Every notebook runs from top to bottom, and is committed with outputs worth looking at."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


def outputs(book):
    return [out for cell in book.cells for out in cell.get("outputs", ())]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path, tmp_path):
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert not [out for out in outputs(book) if out.output_type == "error"]
    widgets = [out for out in outputs(book) if "widget-view" in str(out.get("data", {}).keys())]
    assert widgets
    assert all("image/png" in out.data and out.metadata["image/png"]["alt"] for out in widgets)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_outputs(path):
    book = nbformat.read(path, as_version=4)
    assert path.stat().st_size < 1_000_000
    assert sum("image/png" in out.get("data", {}) for out in outputs(book)) >= 3
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
