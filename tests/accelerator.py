"""Compare hookviz on an accelerator with hookviz on the CPU, in at most five minutes.

    python tests/accelerator.py                  # CUDA or MPS, the available one
    python tests/accelerator.py --device cpu     # test the script without an accelerator

Each subject runs in float32, with ``channels_last`` tensors and under autocast. Captured maps and
gradients must be bit-identical to a reference without hooks on the same device. All results are
compared with those of the CPU in float32, by the norm of the difference. Then the time and the
memory of a training step are printed, with and without hookviz. The last line is the verdict, and
the exit status is 1 if anything disagrees.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torchvision
from benchmarks.race import race, timed
from reference import true_outputs
from torch import Tensor, nn

import hookviz

LAYER, CHANNEL, TARGET = "layer3.0.conv1", 17, 1

TOLERANCES = {"float32": 1e-3, "channels_last": 1e-3, "autocast": 0.2}
"""The largest ``norm(difference) / norm(CPU)``. Devices add in another order, which 15 layers and
their backward amplify; bfloat16 and float16 have 8 and 11 bits."""


@dataclass(frozen=True)
class Setting:
    """The device, number format and memory format in which a subject runs."""

    device: torch.device
    name: str = "float32"

    @property
    def half(self):
        """The dtype of autocast: MPS in torch 2.4 has float16 only."""
        return torch.float16 if self.device.type == "mps" else torch.bfloat16

    def autocast(self):
        if self.name != "autocast":
            return nullcontext()
        return torch.autocast(self.device.type, self.half)

    def place(self, model, x):
        """Return the model and its input on the device, in the setting's memory format."""
        last = self.name == "channels_last"
        memory_format = torch.channels_last if last else torch.contiguous_format
        return (
            model.to(self.device, memory_format=memory_format),
            x.to(self.device, memory_format=memory_format),
        )

    def demo(self):
        """Return the demo model and three of its pictures."""
        model = hookviz.demo_model()
        pictures = hookviz.demo_images()[:3]
        inputs = [hookviz.attribution.prepare_input(picture, model).args[0] for picture in pictures]
        return self.place(model, torch.cat(inputs))

    def on_cpu(self):
        return replace(self, device=torch.device("cpu"), name="float32")


# ---- subjects: each returns tensors by name, and facts that must be equal

Results = dict[str, Any]


def capture(setting):
    model, x = setting.demo()
    with hookviz.capture(model) as cache, setting.autocast():
        model(x)[:, TARGET].sum().backward()
    calls = {name: cache[name].calls[-1] for name in cache}
    maps = {f"map of {name}": call.activation for name, call in calls.items()}
    return maps | {f"gradient of {name}": call.gradient for name, call in calls.items()}


def exactness(setting):
    """Compare each map and gradient with the reference of the same device."""
    model, x = setting.demo()
    with true_outputs(model) as truths, setting.autocast():
        model(x)[:, TARGET].sum().backward()
    with hookviz.capture(model) as cache, setting.autocast():
        model(x)[:, TARGET].sum().backward()
    different = []
    for name, (truth,) in truths.items():
        same = torch.equal(cache[name].activation, truth.detach())
        if not (same and torch.equal(cache[name].gradient, truth.grad)):
            different.append(name)
    return {"layers that differ from the reference": different}


def heatmaps(setting):
    model, x = setting.demo()
    with hookviz.capture(model, LAYER) as cache, setting.autocast():
        model(x)[:, TARGET].sum().backward()
    methods = ["gradcam", "gradcam++", "hirescam", "layercam"]
    return {method: hookviz.heatmap(cache[LAYER], method) for method in methods}


def edits(setting):
    model, x = setting.demo()
    changes = {"a factor": 0.5, "mean": "mean", "a function": torch.tanh}
    results: Results = {}
    for name, change in changes.items():
        with hookviz.edit(model, LAYER, change, channels=[CHANNEL]), setting.autocast():
            results[name] = model(x).detach()
    return results


def graph(setting):
    model, x = setting.demo()
    with setting.autocast():
        found = hookviz.graph(model, x)
    # Autocast adds conversions, and operations have other names on other devices.
    layers = [node.layer for node in found.nodes if node.layer not in ("", "input")]
    return {"sources": {layer: found.sources(layer) for layer in layers}}


def contributions(setting):
    model, x = setting.demo()
    with setting.autocast():
        why = hookviz.contributions(model, x, LAYER, channel=CHANNEL, position=(3, 4))
    rounding = abs(why.remainder) <= TOLERANCES[setting.name] * why.products.abs().sum().item()
    terms: Results = {"products": why.products, "bias": why.bias, "value": why.value}
    return terms | {"the remainder is rounding": rounding}


def diagnose(setting):
    model, x = setting.demo()
    with setting.autocast():
        healthy = hookviz.diagnose(model, x)
        model.get_submodule(LAYER).weight.data[CHANNEL] = float("nan")
        planted = hookviz.diagnose(model, x)
    return {
        "healthy": healthy.healthy,
        "planted NaN": [(f.kind, f.layers) for f in planted if f.severity == "error"],
    }


def survey(setting):
    model, x = setting.demo()
    with setting.autocast():
        found = hookviz.survey(model, list(x.cpu()), k=2, batch_size=2)
    layer = found[LAYER]
    top = torch.tensor([[best[1] for best in layer.top(c)] for c in range(len(layer))])
    return {"top values": top, "mean": layer.mean, "standard deviation": layer.std}


def watch(setting):
    model, x = setting.demo()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    watching = hookviz.watch(model, every=1)
    for _ in range(3):
        with watching, setting.autocast():
            optimizer.zero_grad()
            model(x)[:, TARGET].sum().backward()
            optimizer.step()
    return _numbers(watching.records())


def attributions(setting):
    model, x = setting.demo()
    results: Results = {}
    # Each device draws different noise, so SmoothGrad gets almost none.
    fewer = {
        "smoothgrad": {"nt_samples": 4, "stdevs": 1e-9},
        "integrated_gradients": {"n_steps": 8},
    }
    for method in hookviz.attribution.ATTRIBUTIONS:
        options = fewer.get(method, {})
        with setting.autocast():
            results[method] = hookviz.attribute(model, x, TARGET, method=method, **options)
    return results


class Recurrent(nn.Module):
    """A recurrent network; cuDNN computes no gradient of one in eval mode."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def recurrence(setting):
    torch.manual_seed(0)
    model = Recurrent().eval().to(setting.device)
    x = torch.randn(2, 6, 8).to(setting.device)
    with setting.autocast():
        gradient = hookviz.attribute(model, x, TARGET, method="saliency")
        box = hookviz.receptive_field(model, x, "lstm").box(3)
    return {"saliency": gradient, "box": box}


def attention(setting):
    model = hookviz.models.demo_transformer().to(setting.device)
    with setting.autocast():
        found = hookviz.attention(model, hookviz.models.demo_digits()[7], target=7)
    weights = {f"weights of {layer}": found[layer] for layer in found}
    return weights | {f"gradient of {layer}": found.gradients[layer] for layer in found}


def field(setting):
    model, x = setting.demo()
    with setting.autocast():
        found = hookviz.receptive_field(model, x, LAYER)
        effective = found.effective(x, position=(3, 4))
    return {"box": found.box(3, 4), "effective": effective}


def compare_models(setting):
    """Compare the model with a copy on the CPU that differs in one layer."""
    (model, x), (other, _) = setting.demo(), setting.on_cpu().demo()
    other.get_submodule(LAYER).weight.data[CHANNEL] *= 1.5
    with setting.autocast():
        found = hookviz.compare(model, other, x, TARGET)
    first = found.first(0.05)
    return {"first layer that differs": first and first.layer}


def trace(setting):
    model, x = setting.demo()
    with setting.autocast():
        events = [event for event in hookviz.trace(model, x, TARGET).records() if event["norm"]]
    norms = torch.tensor([event["norm"] for event in events])
    return {"norms": norms, "hooks": [(event["kind"], event["layer"]) for event in events]}


def explorer(setting):
    """Open the explorer on a picture, edit a layer and select another one."""
    model, _ = setting.demo()
    with setting.autocast():
        shown = hookviz.explore(model, hookviz.demo_images()[0], layer=LAYER, target=TARGET)
        shown.edit(LAYER, 0.5, channels=[CHANNEL])
        shown.layer = "layer1.0.conv1"
        predictions = {row.name: torch.tensor(row.value) for row in shown.frame.predictions}
        maps = {f"heatmap of {name}": each for name, each in shown.heatmaps().items()}
    shown.close()
    return predictions | maps


def _numbers(records):
    """Return the columns of fractional numbers as tensors."""
    columns: Results = {}
    for name, first in records[0].items():
        if isinstance(first, float):
            values = [record[name] for record in records]
            columns[name] = torch.tensor([x if isinstance(x, float) else 0.0 for x in values])
    return columns


SUBJECTS: dict[str, Callable[[Setting], Results]] = {
    each.__name__: each
    for each in (
        exactness,
        capture,
        heatmaps,
        edits,
        graph,
        contributions,
        diagnose,
        survey,
        watch,
        attributions,
        recurrence,
        attention,
        field,
        compare_models,
        trace,
        explorer,
    )
}


# ---- the comparison


@dataclass(frozen=True)
class Row:
    """One subject in one setting: the largest difference, and what disagrees."""

    subject: str
    setting: str
    difference: float
    wrong: tuple[str, ...]


def compare(subject, setting):
    """Run a subject on the device and on the CPU."""
    measured, expected = (SUBJECTS[subject](one) for one in (setting, setting.on_cpu()))
    largest, wrong = 0.0, []
    for name in {**expected, **measured}:
        a, b = measured.get(name), expected.get(name)
        if isinstance(b, Tensor | float) and isinstance(a, Tensor | float):
            difference = distance(a, b)
            largest = max(largest, difference)
            if not difference <= TOLERANCES[setting.name]:
                wrong.append(f"{name} differs by {difference:.2g} of its norm")
        elif a != b:
            wrong.append(f"{name} is {a}, on the CPU {b}")
    return Row(subject, setting.name, largest, tuple(wrong))


def distance(a, b):
    """Return ``norm(a - b) / norm(b)``, computed in float64 on the CPU."""
    a, b = (torch.as_tensor(value).detach().cpu().double() for value in (a, b))
    if a.shape != b.shape:
        return float("inf")
    return float((a - b).norm() / b.norm().clamp(min=1e-12))


def line(rows):
    """Return the line of one subject: the largest difference in each setting."""
    found = [f"{'WRONG' if row.wrong else f'{row.difference:.1e}':>16}" for row in rows]
    return f"{rows[0].subject:16}" + "".join(found)


# ---- time and memory of a step


def costs(device, rounds):
    """Print the time and the peak memory of a step, with and without hookviz."""
    setting = Setting(device)
    if device.type == "cpu":
        model, x = setting.demo()
    else:
        model = torchvision.models.resnet50()
        model, x = setting.place(model, torch.randn(16, 3, 224, 224))
    model.train()
    watching = hookviz.watch(model, every=1)

    def plain():
        model(x).sum().backward()
        synchronize(device)

    def captured():
        with hookviz.capture(model) as cache:
            plain()
        return cache

    def guarded():
        with hookviz.diagnose(model):
            plain()

    def watched():
        with watching:
            plain()

    steps = {"plain": plain, "capture": captured, "guard": guarded, "watch, every step": watched}
    title = f"A training step of {type(model).__name__}, batch of {len(x)}"
    table = timed(title, race(steps, rounds, clock=time.perf_counter))
    rows = [(*row, peak_memory(device, steps[row[0]])) for row in table.rows]
    print(replace(table, head=(*table.head, "peak MB"), rows=rows).markdown())


def peak_memory(device, step):
    """Return the peak memory of a step in megabytes, "–" for a CPU."""
    if device.type == "cpu":
        return "–"
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        step()
        used = torch.cuda.max_memory_allocated(device)
    else:
        # MPS reports no peak, but its allocator keeps the largest amount that the step used.
        torch.mps.empty_cache()
        step()
        used = torch.mps.driver_allocated_memory()
    return f"{used / 1e6:.0f}"


def synchronize(device):
    """Wait until the device has done its work."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


# ---- the program


def available():
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def device_description(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


@contextmanager
def reproducible():
    """Choose the same algorithms in each run, without TensorFloat-32."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = True, False, False
    matmul.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


def main(arguments=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default=available(), help="cuda, mps or cpu")
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds of a step")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    print(f"torch {torch.__version__} on {device}: {device_description(device)}")
    began, rows = time.monotonic(), []
    with reproducible():
        print(f"{'':16}" + "".join(f"{name:>16}" for name in TOLERANCES))
        for subject in SUBJECTS:
            for name in TOLERANCES:
                try:
                    rows.append(compare(subject, Setting(device, name)))
                except Exception as error:  # the other subjects are still compared
                    message = f"{type(error).__name__}: {error}"
                    rows.append(Row(subject, name, float("nan"), (message,)))
            print(line(rows[-len(TOLERANCES) :]))
    if options.rounds:
        costs(device, options.rounds)
    wrong = [row for row in rows if row.wrong]
    for row in wrong:
        print(f"WRONG: {row.subject}, {row.setting}: {'; '.join(row.wrong[:3])}")
    seconds = time.monotonic() - began
    print(
        f"hookviz on {device} agrees with the CPU in {len(rows) - len(wrong)} of {len(rows)} "
        f"comparisons ({seconds:.0f} s)."
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
