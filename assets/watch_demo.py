"""Where does one see that a training goes wrong? Writes ``assets/watch.png``.

    python assets/watch_demo.py

trains the demo model on drawn pictures, with a fault: at step 300 the learning rate is multiplied
by 1000. It prints by how much each statistic of each layer changes from one recorded step to the
next, around the fault.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import torch
from torch import nn
from train_demo_model import data_set

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import hookviz
from hookviz.draw.figures import small_png
from hookviz.models import DemoNet

OUT = Path(__file__).resolve().parent
PICTURES, BATCH, STEPS, EVERY = 640, 16, 360, 10
FAULT, TIMES = 300, 1000


def train() -> hookviz.results.Watch:
    pictures, labels = data_set(6, PICTURES)
    torch.manual_seed(0)
    model = DemoNet().train()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.02)
    watch = hookviz.watch(model, every=EVERY)
    for step in range(STEPS):
        if step == FAULT:
            for group in optimizer.param_groups:
                group["lr"] *= TIMES
        batch = torch.randint(PICTURES, (BATCH,))
        with watch:
            loss = nn.functional.cross_entropy(model(pictures[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        if step % 50 == 0 or abs(step - FAULT) < 3:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return watch


def tell(watch: hookviz.results.Training) -> None:
    """By how much statistics change from a recorded step to the next, the median of all layers."""
    records = watch.records()
    for name in ("update_ratio", "weight_norm", "std", "gradient_std", "zeros", "dead"):
        said = []
        for step in range(FAULT - 2 * EVERY, FAULT + 4 * EVERY, EVERY):
            values = [r[name] for r in records if r["step"] == step and r[name] is not None]
            said.append(f"{step}: {statistics.median(values):.3g}")
        print(f"{name:14}", "  ".join(said))


def main() -> None:
    watch = train()
    tell(watch)
    print(watch.title)
    if len(sys.argv) > 1:
        watch.save(sys.argv[1])
    figure = watch.figure(["update_ratio", "std", "gradient_std"])
    (OUT / "watch.png").write_bytes(small_png(figure))


if __name__ == "__main__":
    main()
