"""Run the notebooks and keep their outputs in them: ``python notebooks/run_all.py``."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient


def _is_log(output: nbformat.NotebookNode) -> bool:
    """Whether it tells of this machine: warnings, and where a download goes."""
    text = output.get("text", "")
    return output.get("name") == "stderr" or text.startswith("Downloading")


def main() -> None:
    for path in sorted(Path(__file__).resolve().parent.glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(path.parent)}}
        NotebookClient(book, timeout=600, resources=resources).execute()
        for cell in book.cells:
            cell.metadata.pop("execution", None)  # times of day, which would differ each run
            if cell.cell_type == "code":
                cell["outputs"] = [out for out in cell["outputs"] if not _is_log(out)]
        book.metadata.pop("widgets", None)
        nbformat.write(book, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
