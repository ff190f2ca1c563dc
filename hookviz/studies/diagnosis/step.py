"""The signs of a fault in a step that was only watched."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn


@dataclass
class WatchedStep:
    """The signs of a watched step by which checks decide whether it should be examined.

    Attributes
    ----------
    names : dict of torch.nn.Module to str
    learning, graded : set of str
        The parameters that are not frozen, and those that a gradient reached.
    activations, gradients : dict of str to float
        Mean absolute values by layer, of outputs and of weights' gradients.
    bounded : list of (str, float)
        Autograd's name of each sigmoid and tanh behind a layer, and the mean absolute value of the
        layer's output.
    graph : list of (str, str, int or None)
        Operations before the output, what made their input, and the dimension of a softmax that
        made the output itself.
    """

    names: dict[nn.Module, str]
    learning: set[str] = field(default_factory=set)
    graded: set[str] = field(default_factory=set)
    activations: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, float] = field(default_factory=dict)
    bounded: list[tuple[str, float]] = field(default_factory=list)
    graph: list[tuple[str, str, int | None]] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """True if the gradient of a layer's weights is 0."""
        return not all(self.gradients.values())
