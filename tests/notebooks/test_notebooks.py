"""Every notebook runs from top to bottom and is committed with its pictures and widgets."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from kernel_files import connection
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"


def outputs(book):
    return [out for cell in book.cells for out in cell.get("outputs", ())]


def widgets(book):
    """Return the outputs that show a widget."""
    return [out for out in outputs(book) if WIDGET in out.get("data", {})]


def has_static_view(output):
    """Return whether an output shows a picture, or HTML with numbers, without a kernel."""
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
def test_every_notebook_runs_from_top_to_bottom(path, tmp_path):
    book = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    with connection() as config:
        options = {"timeout": 600, "startup_timeout": 300, "resources": resources}
        NotebookClient(book, config=config, **options).execute()
    assert not [out for out in outputs(book) if out.output_type == "error"]
    assert widgets(book)
    assert all(has_static_view(out) for out in widgets(book))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebooks_have_complete_outputs(path):
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
    """Return the distinct sources of the notebooks' first code cells."""
    books = [nbformat.read(path, as_version=4) for path in NOTEBOOKS]
    return {next(c for c in book.cells if c.cell_type == "code").source for book in books}


def run_first_cell(monkeypatch, *found):
    """Return the first cell's pip commands; `found` says whether each lookup finds hookviz."""
    answers, asked = iter(found), []

    def run_line_magic(name, line):
        asked.append(f"{name} {line.format(**names)}")

    names = {"get_ipython": lambda: SimpleNamespace(run_line_magic=run_line_magic)}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: next(answers))
    (source,) = first_cells()  # the same in all notebooks
    exec(TransformerManager().transform_cell(source), names)
    return asked


def test_the_first_cell_installs_hookviz_if_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run_first_cell(monkeypatch, True) == []
    assert run_first_cell(monkeypatch, False, True) == ["pip install -q hookviz"]
    with pytest.raises(ModuleNotFoundError, match=r"`make wheel`.*upload.*run this cell again\.$"):
        run_first_cell(monkeypatch, False, False)
    Path("hookviz-1.2.3-py3-none-any.whl").touch()
    wanted = "pip install -q hookviz-1.2.3-py3-none-any.whl"
    assert run_first_cell(monkeypatch, False, True) == [wanted]


def test_run_all_selects_notebooks_and_drops_useless_outputs(monkeypatch):
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
