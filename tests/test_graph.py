"""The graph of a run: a layer is a source of another exactly if a change of its output arrives."""

from __future__ import annotations

import json

import pytest
import torch
import torchvision
from heavy import heavy_but
from perturbed import randomize
from torch import nn
from torch.nn import functional as F
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.hooking.tensors import map_tensors, tensors_in

# The oracle: hold the outputs of all layers but one, change that one, see whose inputs change


class Held:
    """A model whose layers return what they returned in its first run, but for one that changes."""

    def __init__(self, model, args, layers):
        self.model, self.args, self.layers = model, args, layers
        self.outputs, self.inputs = {}, {}
        self.changed_input = None
        self.outputs, self.inputs = self.run(None)

    def run(self, changed, seed=0):
        """Outputs and inputs by layer and call, with the output of one changed and all others held."""
        generator = torch.Generator().manual_seed(seed)
        calls = dict.fromkeys(self.layers, 0)
        outputs, inputs = {}, {}

        def noisy(tensor):
            if not tensor.is_floating_point():
                return tensor.clone()
            noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
            # Larger each time: a ReLU may stop a small change of a single channel.
            return tensor + noise * 10**seed * (1 + tensor.abs().max())

        def before(name, args, kwargs):
            inputs[name, calls[name]] = [t.clone() for _, t in tensors_in((args, kwargs))]

        def after(name, output):
            place = name, calls[name]
            calls[name] += 1
            if not self.outputs:
                outputs[place] = map_tensors(output, torch.clone)
                return map_tensors(output, torch.clone)
            held = self.outputs[place]
            return map_tensors(held, noisy if place == changed else torch.clone)

        handles = []
        for name in self.layers:
            module = self.model.get_submodule(name)
            handles.append(
                module.register_forward_pre_hook(
                    lambda module, args, kwargs, name=name: before(name, args, kwargs),
                    with_kwargs=True,
                )
            )
            handles.append(
                module.register_forward_hook(
                    lambda module, args, output, name=name: after(name, output)
                )
            )
        args = [
            noisy(each) if changed == ("input", number) else each.clone()
            for number, each in enumerate(self.args)
        ]
        try:
            with torch.no_grad():
                self.model(*args)
        finally:
            for handle in handles:
                handle.remove()
        return outputs, inputs

    def sources(self, rounds=3):
        """By layer and call: the layers and inputs whose change arrives."""
        places = [*(("input", n) for n in range(len(self.args))), *self.outputs]
        found = {place: set() for place in self.inputs}
        for source in places:
            for seed in range(rounds):
                _, inputs = self.run(source, seed)
                for place, tensors in inputs.items():
                    pairs = zip(tensors, self.inputs[place], strict=True)
                    if not all(torch.equal(one, other) for one, other in pairs):
                        found[place].add(source)
        return found


def check(model, *args, layers=None, rounds=3):
    """Compare a graph with the oracle; return it."""
    model, args = model.double().eval(), [each.double() for each in args]
    randomize(model, torch.Generator().manual_seed(0), biases=True)
    inputs = args[0] if len(args) == 1 else tuple(args)
    graph = hookviz.graph(model, inputs, layers)
    names = dict.fromkeys(node.layer for node in graph.nodes if node.layer not in ("", "input"))
    truth = Held(model, args, list(names)).sources(rounds)
    told = {place: set(graph.sources(*place)) for place in truth}
    wrong = {place: (told[place], truth[place]) for place in truth if told[place] != truth[place]}
    assert not wrong
    assert len(truth) == sum(node.layer not in ("", "input") for node in graph.nodes)
    return graph


MODELS = {
    "alexnet": 64,
    "convnext_tiny": 32,
    "densenet121": 32,
    "efficientnet_b0": 32,
    "efficientnet_v2_s": 32,
    "fcn_resnet50": 32,
    "googlenet": 64,
    "inception_v3": 96,
    "lraspp_mobilenet_v3_large": 32,
    "mnasnet0_5": 32,
    "mobilenet_v2": 32,
    "mobilenet_v3_small": 32,
    "regnet_x_400mf": 32,
    "regnet_y_400mf": 32,
    "resnet18": 32,
    "resnext50_32x4d": 32,
    "shufflenet_v2_x0_5": 32,
    "squeezenet1_1": 48,
    "swin_t": 32,
    "vgg11_bn": 32,
    "vit_b_16": 32,
    "wide_resnet50_2": 32,
}


@pytest.mark.parametrize(
    "name", heavy_but({"resnet18", "shufflenet_v2_x0_5", "squeezenet1_1"}, MODELS)
)
def test_of_torchvision(name):
    options = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": True}
    if name.startswith("fcn"):
        options |= {"weights_backbone": None}
    if name.startswith("lraspp"):
        options |= {"weights_backbone": None}
    if name == "vit_b_16":
        options |= {"image_size": 32}
    model = torchvision.models.get_model(name, **options)
    side = MODELS[name]
    check(model, torch.randn(2, 3, side, side), rounds=3 if name.startswith("shuffle") else 1)
