"""Guided backpropagation's ReLUs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class GuidedReLUs(TorchFunctionMode):
    """Within the block, each ReLU passes on only the positive part of its gradient.

    Reached are ``nn.ReLU``, ``functional.relu``, ``torch.relu`` and ``Tensor.relu``, in place or
    not, used once or often. Not reached, so that they keep their own gradient: other activations
    (ReLU6, LeakyReLU, GELU, hardswish), a ReLU spelt ``clamp(min=0)``, and code that does not run
    in Python (TorchScript, C++).

    Notes
    -----
    ``[f > 0] * max(R, 0) = max([f > 0] * R, 0)``: it is enough to cut the gradient that arrives
    at a ReLU's output, and its own backward does the rest. No module is hooked or changed.

    Captum's own GuidedBackprop is not used. Measured with 0.9.0, it is right, bit for bit, where
    each ReLU is a module and has its input to itself (VGG, ResNet, MobileNet v3), in place or
    reused too. It is wrong where a ReLU is a function (DenseNet's last, all of GoogLeNet's); where
    a ReLU's input also goes elsewhere, as in pre-activation ResNets, because it cuts the input's
    whole gradient; and where code relies on an in-place ReLU having changed its input, because it
    puts a copy in between. It fails where a ReLU's input needs no gradient.
    """

    relus = (functional.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)
    met = 0  # how many ran within the block

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self.relus and result.requires_grad:
            self.met += 1
            result.register_hook(lambda gradient: gradient.clamp(min=0))
        return result
