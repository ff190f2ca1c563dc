"""What do the demo model's channels answer to? Writes ``assets/survey.md`` and ``survey.png``.

    python assets/survey_demo.py

surveys 5,000 drawn pictures, none seen in training. The table: for each class, how many channels
of a layer have nearly only pictures of that class among their top 25. The picture: the top nine
places of three channels, cut out of their pictures.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
from demo_pictures import CLASSES, SIZE, draw
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import hookviz
from hookviz.draw.mosaic import Piece, sheet

OUT = Path(__file__).resolve().parent
LAYERS = ["stem", "layer1", "layer2", "layer3.0", "layer3"]
SEED, COUNT, K, MOST = 5, 5_000, 25, 20
SHOWN = {"layer2": (23, 33), "layer3.0": (10, 45), "layer3": (6, 59)}
"""Layer -> a channel, chosen by eye, and how many pixels of what a place sees are shown."""
TILE, TOP = 96, 9


class Drawn:
    """Drawn pictures, each with its class; drawn anew whenever one is asked for."""

    classes = list(CLASSES)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        picture, _, label = draw(np.random.default_rng([SEED, index]))
        return picture, label


def table(survey: hookviz.results.Survey) -> str:
    """Return a table with the number of channels that respond most to each class, by layer."""
    lines = [
        f"| class | {' | '.join(LAYERS)} | the clearest channel of {LAYERS[-1]} |",
        f"|---|{'---|' * len(LAYERS)}---|",
    ]
    for name in CLASSES:
        found = survey.find(name, fraction=MOST / K)
        counts = [sum(layer == each for layer, _, _ in found) for each in LAYERS]
        last = [(channel, count) for layer, channel, count in found if layer == LAYERS[-1]]
        said = f"{last[0][0]}: {last[0][1]} of {K}" if last else "–"
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {said} |")
    channels = [len(survey[layer]) for layer in LAYERS]
    of_one = [
        sum(survey[layer].purity(channel) >= MOST / K for channel in range(len(survey[layer])))
        for layer in LAYERS
    ]
    shares = [f"{some} of {all_}" for some, all_ in zip(of_one, channels, strict=True)]
    lines.append(f"| *any* | {' | '.join(shares)} | |")
    return "\n".join(lines) + "\n"


def patches(survey: hookviz.results.Survey, layer: str, channel: int, side: int) -> list[Piece]:
    """Cut out the channel's top positions, each in the middle of a square, except at borders."""
    cut = []
    for piece in survey.patches(layer, channel, TOP):
        middles = (round(at * SIZE) for at in piece.centre or ())
        top, left = (min(max(0, at - side // 2), SIZE - side) / SIZE for at in middles)
        box = top, left, top + side / SIZE, left + side / SIZE
        cut.append(dataclasses.replace(piece, box=box))
    return cut


def picture(survey: hookviz.results.Survey) -> Image.Image:
    """Draw a row of patches for each of three channels, with words above it."""
    rows = []
    for layer, (channel, side) in SHOWN.items():
        found = ", ".join(f"{name} {count}" for name, count in survey[layer].classes(channel)[:3])
        said = f"{layer}, channel {channel}. Its top {K} pictures: {found}"
        rows.append((said, patches(survey, layer, channel, side)))
    return sheet(rows, TILE)


def main() -> None:
    survey = hookviz.survey(hookviz.demo_model(), Drawn(), LAYERS, k=K, batch_size=50)
    print(survey)
    (OUT / "survey.md").write_text(table(survey), encoding="utf-8")
    picture(survey).save(OUT / "survey.png", optimize=True)
    print((OUT / "survey.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
