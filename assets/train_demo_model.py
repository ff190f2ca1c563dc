"""Train the demo model on generated pictures, and write what ships: weights, pictures, card.

    python assets/train_demo_model.py

takes about seven minutes on two cores. The held-out pictures come from another
seed than the training pictures.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from demo_pictures import CLASSES, draw
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from hookviz.models import DemoNet

OUT = Path(__file__).resolve().parent / "demo"
TRAIN_SEED, HELD_OUT_SEED, SHIPPED_SEED = 1, 2, 3
TRAIN, HELD_OUT, EPOCHS, BATCH = 10_000, 1_000, 8, 64


def held_out(count: int = HELD_OUT) -> tuple[Tensor, Tensor]:
    """Return the first ``count`` held-out pictures ``(count, 3, 112, 112)`` and their labels."""
    return data_set(HELD_OUT_SEED, count)


def data_set(seed: int, count: int) -> tuple[Tensor, Tensor]:
    with ProcessPoolExecutor() as pool:
        pairs = list(pool.map(_one, [seed] * count, range(count), chunksize=50))
    pixels = torch.from_numpy(np.stack([pixels for pixels, _ in pairs]))
    return normalize(pixels), torch.tensor([label for _, label in pairs])


def _one(seed: int, index: int) -> tuple[np.ndarray, int]:
    picture, _, label = draw(np.random.default_rng([seed, index]))
    return np.asarray(picture), label


def normalize(pixels: Tensor) -> Tensor:
    """uint8 ``(N, H, W, 3)`` to the network's input, as ``DemoNet.pretrained_cfg`` says."""
    mean, std = (torch.tensor(DemoNet.pretrained_cfg[key]) for key in ("mean", "std"))
    return ((pixels / 255 - mean) / std).permute(0, 3, 1, 2)


def accuracy(model: nn.Module, pictures: Tensor, labels: Tensor) -> float:
    model.eval()
    with torch.inference_mode():
        guesses = torch.cat([model(batch).argmax(1) for batch in pictures.split(100)])
    return (guesses == labels).float().mean().item()


def train(pictures: Tensor, labels: Tensor) -> nn.Module:
    torch.manual_seed(0)
    model = DemoNet().to(memory_format=torch.channels_last).train()
    steps = EPOCHS * (len(pictures) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(pictures))[: len(pictures) // BATCH * BATCH]
        total = 0.0
        for batch in order.split(BATCH):
            x = pictures[batch].contiguous(memory_format=torch.channels_last)
            if torch.rand(()) < 0.5:
                x = x.flip(3)
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), labels[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}/{EPOCHS}: loss {total / (len(order) // BATCH):.3f}", flush=True)
    return model.to(memory_format=torch.contiguous_format)


def write_pictures() -> None:
    for folder in ("pictures", "masks"):
        (OUT / folder).mkdir(parents=True, exist_ok=True)
    for number in range(3 * len(CLASSES)):
        rng = np.random.default_rng([SHIPPED_SEED, number])
        picture, mask, label = draw(rng, number % len(CLASSES))
        name = f"{number:02}_{CLASSES[label]}.png"
        picture.save(OUT / "pictures" / name, optimize=True)
        mask.convert("1").save(OUT / "masks" / name, optimize=True)


def main() -> None:
    start = time.perf_counter()
    write_pictures()
    model = train(*data_set(TRAIN_SEED, TRAIN))
    score = accuracy(model, *held_out())
    torch.save(model.state_dict(), OUT / "weights.pt")
    card = {
        "held_out_accuracy": round(score, 4),
        "held_out_pictures": HELD_OUT,
        "training_pictures": TRAIN,
        "epochs": EPOCHS,
        "minutes": round((time.perf_counter() - start) / 60, 1),
        "torch": torch.__version__,
    }
    (OUT / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    print(card)


if __name__ == "__main__":
    main()
