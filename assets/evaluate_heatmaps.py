"""Do the heatmaps find the object? Writes the table ``assets/demo/heatmaps.md``.

    python assets/evaluate_heatmaps.py

On held-out pictures, of which the object's mask is known: how often a map's largest value
lies on the object (pointing game), and which share of its positive values does (energy).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from demo_pictures import draw
from torch import Tensor
from train_demo_model import HELD_OUT_SEED, normalize

import hookviz

LAYERS = ("layer1.1.conv2", "layer2.1.conv2", "layer3.0.conv2", "layer3.1.conv2", "layer3")
PICTURES = 300
OUT = Path(__file__).resolve().parent / "demo" / "heatmaps.md"


def pictures(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Held-out pictures ``(N, 3, 112, 112)``, masks ``(N, 112, 112)`` and labels ``(N,)``."""
    drawn = [draw(np.random.default_rng([HELD_OUT_SEED, number])) for number in range(count)]
    pixels = torch.from_numpy(np.stack([np.asarray(picture) for picture, _, _ in drawn]))
    masks = torch.from_numpy(np.stack([np.asarray(mask) > 0 for _, mask, _ in drawn]))
    return normalize(pixels), masks, torch.tensor([label for _, _, label in drawn])


def measure(heat: Tensor, masks: Tensor) -> tuple[float, float]:
    """Pointing-game accuracy and mean energy in the mask, both 0 to 1."""
    hits = torch.as_tensor(hookviz.metrics.pointing_game(heat, masks)).float()
    large = torch.nn.functional.interpolate(heat.relu()[:, None], masks.shape[1:], mode="bilinear")
    energy = (large[:, 0] * masks).sum((1, 2)) / large.sum((1, 2, 3))
    return hits.mean().item(), energy.nan_to_num(0).mean().item()


def evaluate(count: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Return pointing-game accuracy and energy in the mask for each (method, layer)."""
    model = hookviz.demo_model()
    x, masks, labels = pictures(count)
    x.requires_grad_()
    with hookviz.capture(model, list(LAYERS)) as cache:
        model(x)[torch.arange(count), labels].sum().backward()
    results = {
        (method, layer): measure(hookviz.heatmap(cache[layer], method), masks)
        for method in hookviz.attribution.HEATMAPS
        for layer in LAYERS
    }
    centre = torch.zeros_like(masks, dtype=torch.float32)
    centre[:, centre.shape[1] // 2, centre.shape[2] // 2] = 1
    results["centre point", ""] = measure(centre, masks)
    share = masks.float().mean().item()
    results["everywhere alike", ""] = (share, share)
    return results


def table(results: dict[tuple[str, str], tuple[float, float]], count: int) -> str:
    lines = [
        f"Pointing-game accuracy / energy in the mask, per cent, on {count} held-out pictures of",
        "the demo model; target: the true class. Made by `python assets/evaluate_heatmaps.py`.",
        "",
        "| method | " + " | ".join(LAYERS) + " |",
        "|---" * (len(LAYERS) + 1) + "|",
    ]
    for method in hookviz.attribution.HEATMAPS:
        cells = [_cell(results[method, layer]) for layer in LAYERS]
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    lines.append("")
    for name in ("centre point", "everywhere alike"):
        lines.append(f"Baseline, {name}: {_cell(results[name, ''])}.")
    return "\n".join(lines) + "\n"


def _cell(pair: tuple[float, float]) -> str:
    return f"{100 * pair[0]:.0f} / {100 * pair[1]:.0f}"


if __name__ == "__main__":
    text = table(evaluate(PICTURES), PICTURES)
    OUT.write_text(text)
    print(text)
