"""What do the demo model's channels answer to? Writes ``assets/survey.md`` and ``survey.png``.

    python assets/survey_demo.py

surveys 5,000 drawn pictures, none seen in training. The table: for each class, how many channels
of a layer have nearly only pictures of that class among their top 25. The picture: the top nine
places of three channels, cut out of their pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from demo_pictures import CLASSES, SIZE, draw
from PIL import Image, ImageDraw

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import hookviz

OUT = Path(__file__).resolve().parent
LAYERS = ["stem", "layer1", "layer2", "layer3.0", "layer3"]
SEED, COUNT, K, MOST = 5, 5_000, 25, 20
SHOWN = {"layer2": 29, "layer3.0": 45, "layer3": 71}
"""Layer -> how large a patch is shown of it, in pixels: about what a place sees most of."""
TILE, TOP = 96, 9


class Drawn:
    """Drawn pictures, each with its class; drawn anew whenever one is asked for."""

    classes = list(CLASSES)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        picture, _, label = draw(np.random.default_rng([SEED, index]))
        return picture, label


def table(survey: hookviz.Survey) -> str:
    """How many channels answer to each class, layer by layer."""
    lines = [
        f"| class | {' | '.join(LAYERS)} | the clearest channel of {LAYERS[-1]} |",
        f"|---|{'---|' * len(LAYERS)}---|",
    ]
    for name in CLASSES:
        found = survey.find(name, share=MOST / K)
        counts = [sum(layer == each for layer, _, _ in found) for each in LAYERS]
        last = [(channel, count) for layer, channel, count in found if layer == LAYERS[-1]]
        said = f"{last[0][0]}: {last[0][1]} of {K}" if last else "–"
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {said} |")
    channels = [len(survey[layer]) for layer in LAYERS]
    of_one = [
        sum(survey[layer].classes(channel)[0][1] >= MOST for channel in range(len(survey[layer])))
        for layer in LAYERS
    ]
    shares = [f"{some} of {all_}" for some, all_ in zip(of_one, channels, strict=True)]
    lines.append(f"| *any* | {' | '.join(shares)} | |")
    return "\n".join(lines) + "\n"


def clearest(survey: hookviz.Survey, layer: str, besides: set[str]) -> tuple[int, str]:
    """A layer's channel with most top pictures of one class, and the strongest such; the class."""
    found = survey[layer]
    ranked = []
    for channel in range(len(found)):
        name, count = found.classes(channel)[0]
        above = float(found.data["values"][-1, channel] - found.mean[channel])
        ranked.append((count, above / float(found.std[channel]), channel, str(name)))
    _, _, channel, name = max(each for each in ranked if each[3] not in besides)
    return channel, name


def patches(survey: hookviz.Survey, layer: str, channel: int, side: int) -> list[Image.Image]:
    """The channel's top places, cut out of their pictures."""
    cut, size = [], survey[layer].shape[0]
    for index, _, position, _ in survey[layer].top(channel, TOP):
        row, column = ((at + 0.5) * SIZE / size for at in position)
        left, top = (round(min(max(0, at - side / 2), SIZE - side)) for at in (column, row))
        picture, _ = Drawn()[index]
        patch = picture.crop((left, top, left + side, top + side))
        cut.append(patch.resize((TILE, TILE), Image.Resampling.BICUBIC))
    return cut


def picture(survey: hookviz.Survey) -> Image.Image:
    """A row of patches for each of three channels, with words above it."""
    gap, line = 4, 22
    rows = len(SHOWN) * (TILE + line + gap)
    sheet = Image.new("RGB", (TOP * (TILE + gap) - gap, rows - gap), "white")
    pen, besides = ImageDraw.Draw(sheet), set[str]()
    for number, (layer, side) in enumerate(SHOWN.items()):
        channel, name = clearest(survey, layer, besides)
        besides.add(name)
        top = number * (TILE + line + gap)
        found = ", ".join(f"{count} {each}" for each, count in survey[layer].classes(channel)[:3])
        said = f"{layer}, channel {channel}: of its top {K} pictures {found}"
        pen.text((0, top + 2), said, "black", font_size=14)
        for place, patch in enumerate(patches(survey, layer, channel, side)):
            sheet.paste(patch, (place * (TILE + gap), top + line))
    return sheet


def main() -> None:
    survey = hookviz.survey(
        hookviz.demo_model(), Drawn(), LAYERS, k=K, batch_size=50, path=OUT / "survey.npz"
    )
    print(survey)
    (OUT / "survey.md").write_text(table(survey), encoding="utf-8")
    picture(survey).save(OUT / "survey.png", optimize=True)
    (OUT / "survey.npz").unlink()
    print((OUT / "survey.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
