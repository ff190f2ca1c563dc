"""What the pages show and is made elsewhere: notebooks, and pictures and pages by hookviz."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import house
from live_pages import write_pages

import hookviz

DOCS = Path(__file__).resolve().parent
NOTEBOOKS = DOCS.parent / "notebooks"


def gather(app: Any = None) -> None:
    """Copy the notebooks, draw the pictures, write the live pages; all are ignored by git."""
    (DOCS / "notebooks").mkdir(exist_ok=True)
    wanted = {path.name: as_shown(path.read_text()) for path in NOTEBOOKS.glob("*.ipynb")}
    for old in (DOCS / "notebooks").glob("*.ipynb"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        write(DOCS / "notebooks" / name, text.encode())
    draw()
    write(DOCS / "pictures" / "house.svg", house.drawing().encode())
    write_pages(DOCS / "extra" / "live", write)


def as_shown(text: str) -> str:
    """Drop a notebook's empty outputs, and move alt texts to where myst-nb looks for them."""
    book = json.loads(text)
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        # A progress bar leaves an empty text behind.
        cell["outputs"] = [out for out in cell["outputs"] if "".join(told(out)).strip()]
        pictures = [out for out in cell["outputs"] if "image/png" in out.get("data", {})]
        for picture in pictures:
            code = "".join(cell["source"]).splitlines()[-1]
            alt = picture["metadata"].get("image/png", {}).get("alt", f"What {code} shows")
            cell["metadata"]["mystnb"] = {"image": {"alt": alt}}
    return json.dumps(book, indent=1, ensure_ascii=False)


def told(output: dict[str, Any]) -> list[str]:
    """All that an output holds, as text."""
    held = [*output.get("data", {}).values(), output.get("text", ""), output.get("evalue", "")]
    return [each if isinstance(each, str) else json.dumps(each) for each in held if each]


def draw() -> None:
    """Draw the tutorial's views, with the settings that it gives."""
    (DOCS / "pictures").mkdir(exist_ok=True)
    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[12])
    for name, settings in VIEWS.items():
        for setting, value in settings.items():
            setattr(explorer, setting, value)
        drawn = io.BytesIO()
        explorer.figure().savefig(drawn, format="png", dpi=72)
        write(DOCS / "pictures" / f"{name}.png", drawn.getvalue())
    explorer.close()


VIEWS = {
    "first": {},
    "deep": {"layer": "layer3.0.conv1", "channel": 17},
    "other": {"target": "eye"},
}


def write(path: Path, content: bytes) -> None:
    """Write what has changed: Sphinx reads anew whatever is newer."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
