"""How much memory a capture takes at its peak, and what a step sends to the browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import torch

import hookviz

_LIMITS = Path(__file__).resolve().parents[1] / "limits"
_MB = 1_000_000

# network, pictures, pixels a side, budget: large ones, and what a machine with 4 GB can do
LARGE = [
    ("resnet50", 1, 2048, 1000 * _MB),
    ("resnet152", 32, 224, 1000 * _MB),
]
SMALL = [
    ("narrow", 1, 1024, 20 * _MB),
    ("resnet152", 4, 64, 20 * _MB),
]


def run(*, quick: bool = False) -> None:
    """Measure each way in a process of its own, one after another."""
    measure = run_path(str(_LIMITS / "peak.py"))["measure"]
    print("\npeak memory above model and input, and ÷ that of plain forward + backward")
    print(f"  {'':34}  {'peak MB':>8}  {'ratio':>5}  {'kept MB':>8}")
    for name, batch, side, budget in SMALL if quick else LARGE:
        ways = {
            "plain": ("plain", None),
            "capture": ("capture", None),
            f"capture, max_bytes={budget // _MB} MB": ("capture", budget),
            "explore": ("explore", None),
            "with diagnose(model)": ("guard", None),
            "diagnose(model, x)": ("diagnose", None),
            "capture, all modules": ("capture all", None),
            "compare, all modules": ("compare", None),
        }
        print(f"  {name}, {batch} × {side}×{side}")
        plain = None
        for label, (kind, max_bytes) in ways.items():
            found = measure(kind, name, batch, side, max_bytes)
            plain = plain or found
            print(
                f"    {label:32}  {found['peak'] / _MB:8.0f}  {found['peak'] / plain['peak']:5.2f}"
                f"  {found['nbytes'] / _MB:8.0f}",
                flush=True,
            )
    attention(measure, "vit_b_16")
    _messages()


def attention(measure: Callable[..., dict], name: str) -> None:
    """All layers' attention of one picture, with the model's own memory in both."""
    networks = run_path(str(_LIMITS / "networks.py"))
    own = sum(each.nbytes for each in networks["network"](name).parameters())
    print(f"\nattention of {name}, one picture: memory with the model's {own / _MB:.0f} MB")
    print(f"  {'':34}  {'peak MB':>8}  {'ratio':>5}  {'kept MB':>8}")
    for plain, kind in (("forward", "attention"), ("plain", "attention and gradients")):
        base = measure(plain, name, 1, 224, None)
        label = {"forward": "forward", "plain": "forward and backward"}[plain]
        print(f"    {label:32}  {(own + base['peak']) / _MB:8.0f}")
        for budget in (None, 10 * _MB):
            found = measure(kind, name, 1, 224, budget)
            said = kind + (f", max_bytes={budget // _MB} MB" if budget else "")
            ratio = (own + found["peak"]) / (own + base["peak"])
            kept = found["nbytes"] / _MB
            print(f"    {said:32}  {(own + found['peak']) / _MB:8.0f}  {ratio:5.2f}  {kept:8.0f}")


def _messages() -> None:
    """Counts, not times: they are the same on every machine."""
    networks = run_path(str(_LIMITS / "networks.py"))
    sent_by = run_path(str(_LIMITS / "spy.py"))["sent_by"]
    print("\nmessages to the browser: how many, kB in all, kB of the largest")
    print(f"  {'':26}  {'open':>16}  {'channel step':>16}  {'layer step':>16}  {'strip':>16}")
    for name, side in (("500 convolutions", 64), ("4096 channels", 56), ("narrow", 2048)):
        torch.manual_seed(0)
        model, x = networks["network"](name), networks["pictures"](1, side)
        with sent_by() as opening:
            explorer = hookviz.explore(model, x)
        steps = [opening]
        last = list(explorer.cache)[-1]
        for setting, value in (("channel", 1), ("layer", last), ("all_layers", True)):
            with sent_by() as step:
                setattr(explorer, setting, value)
            steps.append(step)
        explorer.close()
        cells = (f"{len(s)} {sum(s) / 1000:.0f} {max(s) / 1000:.0f}" for s in steps)
        print(f"  {f'{name}, {side}×{side}':26}  " + "  ".join(f"{cell:>16}" for cell in cells))
