"""What layers return and what gradient reaches them, found without any hook and without hookviz.

Each layer's ``forward`` is wrapped so that the caller gets a clone of what the layer
returned. Whatever is done in place is done to the clone; the tensor itself stays in the
graph untouched and retains its gradient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch import Tensor, nn

CONVOLUTION = torch.nn.modules.conv._ConvNd  # the base that hookviz does not use


@contextmanager
def true_outputs(model, is_layer=None):
    """Layer name -> what it returned, call by call, with ``.grad`` after a backward."""
    is_layer = is_layer or (lambda module: isinstance(module, CONVOLUTION))
    outputs: defaultdict[str, list[Tensor]] = defaultdict(list)

    def wrap(name, module):
        forward = module.forward
        earlier.append((module, vars(module).get("forward")))  # as accelerate sets one

        def recording(*args, **kwargs):
            out = forward(*args, **kwargs)
            if out.requires_grad:
                out.retain_grad()
            outputs[name].append(out)
            return out.clone()

        module.forward = recording

    earlier: list[tuple[nn.Module, Callable | None]] = []
    for name, module in list(model.named_modules()):
        if is_layer(module):
            wrap(name, module)
    try:
        yield outputs
    finally:
        for module, forward in earlier:
            del module.forward
            if forward is not None:
                module.forward = forward


def assert_exact(cache, outputs):
    """Every layer, every call, activation and gradient, bit for bit; returns how many calls."""
    assert set(cache) == {name for name, calls in outputs.items() if calls}
    count = 0
    for name, truths in outputs.items():
        assert len(cache[name].calls) == len(truths), name
        for call, truth in zip(cache[name].calls, truths, strict=True):
            count += 1
            assert call.activation.shape == truth.shape
            assert torch.equal(call.activation, truth.detach()), name
            if truth.grad is None:
                assert call.gradient is None, name
            else:
                assert call.gradient is not None, name
                assert torch.equal(call.gradient, truth.grad), name
    return count
