"""Measure what hookviz computes for models of the zoo, using only its public API.

`zoo.against` runs this file beside hookviz 0.3 and beside today's code, so it must not import from
hookviz anything that one of them lacks, directly or through another module of the tests.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

import hookviz
from zoo.faults.catalogue import FAULTS
from zoo.models import all_cases
from zoo.running import ask, call, score, seed
from zoo.small import SMALL

RENAMED = {"score drop": "ablation", "gradcam weight": "weight"}
"""Names in today's code -> names in 0.3."""

SAMPLED = 4_000
"""Number of values, evenly spaced, that are stored beside the digest of a tensor."""

NOT_DETERMINISTIC = "not deterministic"
ORDERS = ("mean", "max", "zeros", "gradient", "gradcam weight")
RUN_THE_MODEL = ("scorecam", "ablationcam", "occlusion")
LAYERS = nn.Linear, nn.modules.conv._ConvNd

Numbers = dict[str, Any]
Subject = dict[str, Numbers | list[str]]
Measured = dict[str, Subject]


@dataclass(frozen=True)
class Demo:
    """The trained network that ships with hookviz."""

    name: str
    make: Callable[[], nn.Module]
    pictures: Callable[[], list[Any]]
    kind = "demo"

    def build(self):
        """Load the network."""
        return self.make()

    def input(self):
        """Prepare two of its pictures."""
        model = self.build()
        prepared = (hookviz.attribution.prepare_input(x, model) for x in self.pictures()[5:7])
        return torch.cat([each.args[0] for each in prepared])


DEMOS = {
    "demo": Demo("demo", hookviz.demo_model, hookviz.demo_images),
    "demo transformer": Demo(
        "demo transformer", hookviz.models.demo_transformer, hookviz.models.demo_digits
    ),
}


def cases():
    """All models and planted faults by name."""
    faults = {f"fault/{name}": fault for name, fault in FAULTS.items()}
    return {**DEMOS, **SMALL, **all_cases(), **faults}


def numbers(tensor):
    """Describe a tensor: its type and shape, a digest of all its bits, and some of its values."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    values = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    return {
        "type": f"{tensor.dtype} {tuple(tensor.shape)}",
        "digest": hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest(),
        "values": values[:: len(values) // SAMPLED + 1].double(),
    }


def maps(case):
    """Capture every leaf module in eval and training mode, with gradients, and make heatmaps."""
    measured: Measured = {"maps": {}, "gradients": {}, "heatmaps": {}}
    for mode in ("eval", "train"):
        with recorded(measured["maps"], f"{mode}: layers") as record:
            caches = [captured(case, mode == "train") for _ in range(2)]
            record(caches[0])
            if mode == "eval":
                measured["heatmaps"] = heatmaps(case, caches[0])
            for first, second in zip(*map(outputs, caches), strict=True):
                subject, key, tensor = first
                entry = numbers(tensor)
                if entry["digest"] != numbers(second[2])["digest"]:
                    entry["digest"] = NOT_DETERMINISTIC
                measured[subject][f"{mode}: {key}"] = entry
    return measured


def captured(case, training):
    """Capture a forward and a backward of a new model."""
    model = case.build().train(training)
    seed()
    with hookviz.capture(model, lambda name, module: not [*module.children()]) as cache:
        value, sources = ask(model, case.input())
        torch.autograd.grad(value, sources, allow_unused=True)
    return cache


def outputs(cache):
    """Yield subject, layer with its call and output, and tensor of everything captured."""
    for name, layer in cache.items():
        for number, ran in enumerate(layer.calls):
            for index, output in enumerate(ran.outputs):
                key = f"{name}#{number}.{index}"
                yield "maps", key, output.value
                if output.gradient is not None:
                    yield "gradients", key, output.gradient


def heatmaps(case, cache):
    """Compute every heatmap of some layers; those that run the model for small models only."""
    names = [name for name in cache if cache[name].last.activation.ndim > 2]
    found: Subject = {}
    for method, function in hookviz.attribution.HEATMAPS.items():
        if method not in RUN_THE_MODEL:
            for name in spread(names, 6):
                with recorded(found, f"{name}, {method}") as record:
                    record(hookviz.heatmap(cache[name], method))
        elif case.name in DEMOS:
            with recorded(found, f"{names[-1]}, {method}") as record:
                record(function(case.build(), case.input(), names[-1], 3))
    return found


def spread(items, count):
    """Choose at most `count` items, evenly spaced, always including the last."""
    items = list(items)
    step = max(1, -(-len(items) // count))
    return items[::-1][::step][::-1]


@contextmanager
def recorded(subject, key):
    """Store under a key what the block records, or the built-in type of the error it raises."""

    def record(value):
        subject[key] = numbers(value) if isinstance(value, Tensor) else sorted(set(value))

    try:
        yield record
    except Exception as error:
        builtin = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
        subject[key] = [f"raised {builtin.__name__}"]


def edges(case):
    """Find the edges of the graph, and each layer's sources and the operations behind it."""
    found: Subject = {}
    with recorded(found, "edges") as record:
        graph = hookviz.graph(case.build(), case.input())
        nodes = graph.records()
        record(f"{nodes[a]['name']} → {nodes[b]['name']}" for a, b in graph.edges)
        for node in nodes:
            if node["sources"] is not None:
                place = f"{node['layer']}#{node['call']}"
                found[f"sources of {place}"] = sorted(f"{n}#{i}" for n, i in node["sources"])
                found[f"after {place}"] = node["after"] or []
        found["unused"] = sorted(graph.unused)
    return {"edges": found}


def fields(case):
    """Find the receptive field of every convolution."""
    found: Subject = {}
    with recorded(found, "all") as record:
        by_name = hookviz.receptive_field(case.build(), case.input())
        record(by_name)
        for name, field in by_name.items():
            rule = f"{field.status}, size {field.size}, stride {field.stride}, start {field.start}"
            boxes = hashlib.sha256(field.boxes.int().numpy().tobytes()).hexdigest()[:8]
            found[name] = [f"{rule}, boxes {boxes}"]
    return {"fields": found}


def terms(case):
    """Decompose values of some layers into their terms."""
    found: Subject = {}
    model, inputs = case.build(), case.input()
    with hookviz.capture(model, LAYERS) as cache, torch.no_grad():
        call(model, inputs)
    for name in spread(cache, 5):
        _, *sizes = cache[name].last.activation.shape
        if isinstance(cache[name].module, nn.Linear):
            sizes = [sizes[-1], *sizes[:-1]]
        channel, *position = (size // 2 for size in sizes)
        key = f"{name}, channel {channel}"
        with recorded(found, key) as record:
            why = hookviz.contributions(model, inputs, name, channel=channel, position=position)
            record(torch.tensor([why.value, why.bias], dtype=torch.float64))
            found[f"{key}: by channel"] = numbers(why.by_channel)
            found[f"{key}: products"] = numbers(why.products)
            found[f"{key}: sources"] = sorted(f"{layer}#{run}" for layer, run in why.sources)
            found[f"{key}: after"] = [operation for operation, _ in why.after]
    return {"terms": found}


def attention(case):
    """Read the attention weights, their gradients, and the heatmaps made of them."""
    found: Subject = {}
    with recorded(found, "attention") as record:
        weights = hookviz.attention(case.build(), case.input(), target=score)
        record(weights)
        for name in weights:
            found[name] = numbers(weights[name])
        for name, gradient in weights.gradients.items():
            found[f"{name}, gradient"] = numbers(gradient)
        for method in hookviz.attribution.ATTENTION_HEATMAPS if len(weights) else ():
            with recorded(found, method) as record_heatmap:
                record_heatmap(hookviz.heatmap(weights, method))
    return {"attention": found}


def findings(case):
    """Diagnose the model in both modes, or a planted fault at once and around a step."""
    found: Subject = {}
    if case.name in FAULTS:
        with recorded(found, "diagnose(model, x)") as record, case.around():
            record(map(_said, hookviz.diagnose(case.build(), case.given(), case.loss)))
        model = case.build()
        with recorded(found, "with diagnose(model)") as record:
            with suppress(RuntimeError, ValueError), hookviz.diagnose(model) as seen:
                case.step(model)
            record(map(_said, seen))
        return {"findings": found}
    for mode in ("eval", "train"):
        model = case.build().train(mode == "train")
        seed()
        with recorded(found, mode) as record:
            record(map(_said, hookviz.diagnose(model, case.input())))
    return {"findings": found}


def _said(finding):
    return f"{finding.severity} {finding.kind}: {finding.layer or 'the model'}"


def orders(case):
    """Note the channel that is first in each order of the explorer, in some layers."""
    found: Subject = {}
    more = ["score drop"] if case.kind in ("demo", "small") else []  # runs the model many times
    with recorded(found, "layers") as record:
        explorer = hookviz.explore(case.build(), case.input(), target=score)
        record(explorer.cache)
        for layer in spread(explorer.cache, 3):
            explorer.layer, explorer.channel, explorer.place = layer, 0, (0.4, 0.6)
            for order in (*ORDERS, *more):
                with recorded(found, f"{layer}, {order}") as record_first:
                    explorer.order = "index"
                    _set(explorer, "order", order)
                    record_first([f"channel {explorer.channel}"])
        explorer.close()
    return {"orders": found}


def _set(explorer, setting, value):
    """Set a value by today's name, or by that of 0.3."""
    try:
        setattr(explorer, setting, value)
    except Exception:
        setattr(explorer, setting, RENAMED[value])


STEPS = (maps, edges, fields, terms, attention, findings, orders)


def measure(case):
    """Measure all subjects on one model."""
    measured: Measured = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in (findings,) if case.name in FAULTS else STEPS:
            measured |= step(case)
    return measured


def file_of(folder, name):
    """Return the file with the results of one model."""
    return folder / f"{name.replace('/', '-').replace(' ', '-')}.pt"


def _write(case, name, folder):
    torch.set_num_threads(1)
    torch.save(measure(case), file_of(folder, name))


def main():
    """Measure the named models, a process each, and write a file for each."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "hookviz.txt").write_text(str(Path(hookviz.__file__).parent))
    every, context = cases(), multiprocessing.get_context("fork")
    for name in options.names:
        begun = time.monotonic()
        process = context.Process(target=_write, args=(every[name], name, options.folder))
        process.start()
        process.join()
        print(f"{options.folder.name}: {name}, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
