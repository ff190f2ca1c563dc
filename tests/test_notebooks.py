"""Every notebook runs from top to bottom, and is committed with outputs worth looking at."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"


def outputs(book):
    return [out for cell in book.cells for out in cell.get("outputs", ())]


def widgets(book):
    """The outputs that show a widget."""
    return [out for out in outputs(book) if WIDGET in out.get("data", {})]


def has_static_view(output):
    """Whether a widget shows something where no kernel runs: a picture, or HTML with numbers."""
    data = output.data
    if "image/png" in data:
        return bool(output.metadata["image/png"]["alt"])
    page = "".join(data.get("text/html", ""))
    pictures = re.findall(r"<img [^>]*>", page)
    described = all(re.search(r'alt="[^"]+"', picture) for picture in pictures)
    said = re.sub(r"<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    return described and re.search(r"\d", said) is not None


@pytest.mark.heavy
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_runs_from_top_to_bottom(path, tmp_path):
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert not [out for out in outputs(book) if out.output_type == "error"]
    assert widgets(book)
    assert all(has_static_view(out) for out in widgets(book))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_outputs(path):
    book = nbformat.read(path, as_version=4)
    assert path.stat().st_size < 1_000_000
    assert sum("image/png" in out.get("data", {}) for out in outputs(book)) >= 3
    assert widgets(book)
    assert all(has_static_view(out) for out in widgets(book))
    assert not [out for out in outputs(book) if out.get("name") == "stderr"]
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    said = "".join(out.get("text", "") for out in outputs(book))
    assert "could not be downloaded" not in said
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


def first_cells():
    """The sources of the notebooks' first code cells, without repetitions."""
    books = [nbformat.read(path, as_version=4) for path in NOTEBOOKS]
    return {next(c for c in book.cells if c.cell_type == "code").source for book in books}


def way_in(monkeypatch, *found):
    """What the first cell asks pip for, if hookviz is found, or not, each time that it looks."""
    answers, asked = iter(found), []

    def run_line_magic(name, line):
        asked.append(f"{name} {line.format(**names)}")

    names = {"get_ipython": lambda: SimpleNamespace(run_line_magic=run_line_magic)}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: next(answers))
    (source,) = first_cells()  # all notebooks have the same
    exec(TransformerManager().transform_cell(source), names)
    return asked


def test_the_way_in(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert way_in(monkeypatch, True) == []
    assert way_in(monkeypatch, False, True) == ["pip install -q hookviz"]
    with pytest.raises(ModuleNotFoundError, match=r"`make wheel`.*upload.*run this cell again\.$"):
        way_in(monkeypatch, False, False)
    Path("hookviz-1.2.3-py3-none-any.whl").touch()
    wanted = "pip install -q hookviz-1.2.3-py3-none-any.whl"
    assert way_in(monkeypatch, False, True) == [wanted]


def test_a_widget_without_a_static_view_is_found():
    view = {WIDGET: {}, "text/plain": "Live()"}

    def seen(**more):
        names = {"html": "text/html", "png": "image/png"}
        data = view | {names[kind]: value for kind, value in more.items()}
        alt = {"image/png": {"alt": more.get("png", "")}}
        return has_static_view(nbformat.v4.new_output("display_data", data, metadata=alt))

    assert not seen()
    assert not seen(html='<div style="width:10px"></div>')
    assert not seen(html='<img src="data:,"> 5')
    assert not seen(png="")
    assert seen(html="<td>5</td>")
    assert seen(png="a map")


def test_run_all_keeps_what_the_reader_needs(monkeypatch):
    monkeypatch.syspath_prepend(NOTEBOOKS[0].parent)
    from run_all import paths, worth_keeping

    assert [path.stem for path in paths([])] == [path.stem for path in NOTEBOOKS]
    assert [path.stem for path in paths(["hooks_tutorial"])] == ["hooks_tutorial"]
    with pytest.raises(SystemExit, match=r"no notebook 'hooks'.*hooks_tutorial"):
        paths(["hooks"])

    def stream(text, name="stdout"):
        return nbformat.v4.new_output("stream", name=name, text=text)

    mixed = stream('Downloading: "model" to /home/me\nThe weights could not be downloaded.\n')
    assert worth_keeping(mixed)
    assert mixed.text == "The weights could not be downloaded.\n"
    assert not worth_keeping(stream("Downloading: x\n"))
    assert not worth_keeping(stream("a warning", "stderr"))
    for left in ("", "done in 1.3 s"):
        assert not worth_keeping(nbformat.v4.new_output("display_data", {"text/plain": left}))
    assert worth_keeping(nbformat.v4.new_output("display_data", {"text/plain": "36"}))
