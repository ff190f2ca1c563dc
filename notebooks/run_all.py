"""Run the notebooks and keep their outputs: ``python notebooks/run_all.py [name ...]``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent


def paths(names: list[str]) -> list[Path]:
    """Return the notebooks of these names, such as ``hooks_tutorial``; all without names."""
    found = {path.stem: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    for name in names:
        if name not in found:
            sys.exit(f"There is no notebook {name!r}: give one of {', '.join(found)}.")
    return [found[name] for name in names or found]


def worth_keeping(output: nbformat.NotebookNode) -> bool:
    """Return whether an output is about the lesson, not about this machine or its speed."""
    if output.output_type == "stream":
        lines = output.text.splitlines(keepends=True)
        # Where a download goes to is of this machine; why it failed is for the reader.
        output.text = "".join(line for line in lines if not line.startswith("Downloading"))
        return output.name != "stderr" and bool(output.text)
    text = output.get("data", {}).get("text/plain")
    return text is None or not re.fullmatch(r"(done in .* s)?", text)  # a progress bar's end


def run(path: Path) -> None:
    """Run one notebook from top to bottom, and write it back with its outputs."""
    book = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    # What a cell prints is one output, however often it was flushed.
    NotebookClient(book, timeout=600, coalesce_streams=True, resources=resources).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # times of day, which would differ each run
        if cell.cell_type == "code":
            cell["outputs"] = [out for out in cell["outputs"] if worth_keeping(out)]
    book.metadata.pop("widgets", None)
    nbformat.write(book, path)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    for chosen in paths(sys.argv[1:]):
        run(chosen)
