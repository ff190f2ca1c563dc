"""What the pages show and is made elsewhere: notebooks, and pictures and pages by hookviz."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import house
import numpy as np
from illustrations import as_png, draw_howtos
from live_pages import write_pages
from PIL import Image, ImageOps

import hookviz
from hookviz.draw.colours import palette, to_levels

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
    draw_howtos(DOCS / "pictures", write)
    draw_gallery(DOCS / "extra" / "gallery")
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
        write(DOCS / "pictures" / f"{name}.png", as_png(explorer.figure(), dpi=72))
    explorer.close()


WIDE, HIGH = 300, 200
"""Pixels of a thumbnail."""


def draw_gallery(folder: Path) -> None:
    """Draw the first page's thumbnails from runs of trained networks, a part of each view."""
    folder.mkdir(parents=True, exist_ok=True)
    cat = hookviz.models.photographs()["chelsea"]
    explorer = hookviz.explore("efficientnet_lite0", cat, layer="_blocks.4._depthwise_conv")
    shown = {"maps": _mosaic(explorer.frame)}
    explorer.layer = "_blocks.14._project_conv"
    shown["heatmap"] = _overlay(explorer.frame)
    explorer.layer, explorer.order = "_blocks.8._expand_conv", "gradcam weight"
    gradient = explorer.frame.panels[1]
    levels = to_levels(gradient.values, gradient.low, gradient.high)
    shown["gradient"] = palette(gradient.cmap)[levels]
    explorer.close()
    transformer, digit = hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7]
    explorer = hookviz.explore(transformer, digit)
    shown["attention"] = _mosaic(explorer.frame)
    explorer.close()
    demo, fish = hookviz.demo_model(), hookviz.demo_images()[12]
    explorer = hookviz.explore(demo, fish, layer="layer2.1.conv2")
    shown["teach"] = _overlay(explorer.frame)
    explorer.close()
    why = hookviz.contributions(demo, fish, "layer2.1.conv2", channel=3, position=(14, 14))
    most = why.by_channel.abs().argsort(descending=True)[:6]
    terms = why.products[most].view(2, 3, 3, 3).permute(0, 2, 1, 3).reshape(6, 9).numpy()
    end = float(abs(terms).max())
    shown["why"] = palette("RdBu_r")[to_levels(terms, -end, end)]
    for name, pixels in shown.items():
        kept = io.BytesIO()
        _thumbnail(pixels).quantize(128).save(kept, "PNG", optimize=True)
        write(folder / f"{name}.png", kept.getvalue())


def _mosaic(frame: Any) -> np.ndarray:
    """Return the tiles of a frame, white between them."""
    colours = palette(frame.tiles.cmap).copy()
    colours[-1] = 255
    return colours[frame.tiles.mosaic.levels]


def _overlay(frame: Any) -> np.ndarray:
    """Return the input with the heatmap over it."""
    return frame.overlay.pixels


def _thumbnail(pixels: np.ndarray) -> Image.Image:
    """Fill a thumbnail with the middle of a picture; its own pixels stay sharp if it is small."""
    picture = Image.fromarray(np.ascontiguousarray(pixels[..., :3]))
    how = Image.Resampling.NEAREST if picture.width < 120 else Image.Resampling.LANCZOS
    return ImageOps.fit(picture, (WIDE, HIGH), how, centering=(0.5, 0.2))


VIEWS = {
    "first": {},
    "deep": {"layer": "layer3.0.conv1", "channel": 17},
    "other": {"target": "eye"},
}


def write(path: Path, content: bytes) -> None:
    """Write the files that have changed: Sphinx reads newer files again."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
