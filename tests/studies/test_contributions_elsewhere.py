"""Contributions in many networks: each term is the decrease of the value without its input."""

import pytest
import torch
from architectures import MODELS, QUICK, built
from heavy import heavy_but
from torch import nn

import hookviz

MAX_LAYERS = 6  # layers of a network, evenly spaced


def runs_of(model, x):
    """Return by name the input and output of each convolution and linear layer in its last call."""
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
    """Return one value of the output with an input channel or a weight set to zero."""
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
def test_terms_equal_the_change_without_their_input_or_weight(name):
    model, x = built(name)
    runs = runs_of(model, x)
    layers = list(runs)[:: -(-len(runs) // MAX_LAYERS)]
    generator = torch.Generator().manual_seed(1)

    def random_index(count):
        return int(torch.randint(count, (1,), generator=generator))

    for layer in layers:
        module, (given, output) = model.get_submodule(layer), runs[layer]
        linear = isinstance(module, nn.Linear)
        channels = output.shape[-1 if linear else 1]
        sizes = output.shape[1:-1] if linear else output.shape[2:]
        channel, position = random_index(channels), tuple(random_index(size) for size in sizes)
        index = (1, *position, channel) if linear else (1, channel, *position)
        why = hookviz.contributions(model, x, layer, channel=channel, position=position, sample=1)
        size = why.products.abs().sum().item() + abs(why.bias)
        close = {"rel": 1e-9, "abs": 1e-11 * size}
        # hookviz disables torch's fast path for attention, which adds up in another order.
        assert why.value == pytest.approx(output[index].item(), **close), layer
        assert why.bias + why.products.sum().item() == pytest.approx(why.value, **close), layer
        inputs = len(why.by_channel)
        assert inputs == given.shape[-1 if linear else 1]
        groups = getattr(module, "groups", 1)
        first = channel // (channels // groups) * (inputs // groups)
        largest = why.by_channel.abs().topk(min(3, inputs)).indices.tolist()
        for number in {*largest, random_index(inputs), random_index(inputs)}:
            lost = why.value - without(module, given, index, channel=number)
            assert lost == pytest.approx(why.by_channel[number].item(), **close), (layer, number)
            own = number - first
            if not 0 <= own < inputs // groups:
                assert not why.products[number].any()
                continue
            products = why.products[number]
            taps = {int(products.abs().argmax()), random_index(products.numel())}
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
