"""Why a value, in many networks: each term is what the layer loses without its input or weight."""

from __future__ import annotations

import pytest
import torch
from architectures import MODELS, QUICK, built
from heavy import heavy_but
from torch import nn

import hookviz

MOST = 6  # layers of a network, evenly spaced


def runs_of(model, x):
    """By name what each convolution and linear layer was given and returned, in its last call."""
    found = {}
    handles = [
        module.register_forward_hook(
            lambda module, args, output, name=name: found.update(
                {name: (args[0].clone(), output.clone())}
            )
        )
        for name, module in model.named_modules()
        if isinstance(module, (nn.Conv2d, nn.Linear))
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found


def without(module, given, index, *, channel=None, weight=None):
    """The value at an index of the output, with an input channel or a weight at zero."""
    with torch.no_grad():
        if channel is not None:
            given = given.clone()
            given[(..., channel) if isinstance(module, nn.Linear) else (slice(None), channel)] = 0
            return module(given)[index].item()
        kept = module.weight[weight].clone()
        module.weight[weight] = 0
        value = module(given)[index].item()
        module.weight[weight] = kept
        return value


@pytest.mark.parametrize("name", heavy_but(QUICK, MODELS))
def test_terms_are_what_is_missing_without_them(name):
    model, x = built(name)
    runs = runs_of(model, x)
    layers = list(runs)[:: -(-len(runs) // MOST)]
    generator = torch.Generator().manual_seed(1)

    def one_of(count):
        return int(torch.randint(count, (1,), generator=generator))

    for layer in layers:
        module, (given, output) = model.get_submodule(layer), runs[layer]
        linear = isinstance(module, nn.Linear)
        channels = output.shape[-1 if linear else 1]
        sizes = output.shape[1:-1] if linear else output.shape[2:]
        channel, position = one_of(channels), tuple(one_of(size) for size in sizes)
        index = (1, *position, channel) if linear else (1, channel, *position)
        why = hookviz.contributions(model, x, layer, channel=channel, position=position, sample=1)
        size = why.products.abs().sum().item() + abs(why.bias)
        close = {"rel": 1e-9, "abs": 1e-11 * size}
        # A session leaves torch's fast path for attention, whose sums are in another order.
        assert why.value == pytest.approx(output[index].item(), **close), layer
        assert why.bias + why.products.sum().item() == pytest.approx(why.value, **close), layer
        inputs = len(why.by_channel)
        assert inputs == given.shape[-1 if linear else 1]
        groups = getattr(module, "groups", 1)
        first = channel // (channels // groups) * (inputs // groups)
        largest = why.by_channel.abs().topk(min(3, inputs)).indices.tolist()
        for number in {*largest, one_of(inputs), one_of(inputs)}:
            lost = why.value - without(module, given, index, channel=number)
            assert lost == pytest.approx(why.by_channel[number].item(), **close), (layer, number)
            own = number - first
            if not 0 <= own < inputs // groups:
                assert not why.products[number].any()
                continue
            products = why.products[number]
            taps = {int(products.abs().argmax()), one_of(products.numel())}
            for tap in taps:
                place = tuple(
                    int(n) for n in torch.unravel_index(torch.tensor(tap), products.shape)
                )
                lost = why.value - without(module, given, index, weight=(channel, own, *place))
                assert lost == pytest.approx(products[place].item(), **close), (
                    layer,
                    number,
                    place,
                )
