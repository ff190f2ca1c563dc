"""The signs of a fault in a step that was only watched."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class WatchedStep:
    """The signs of a watched step by which checks decide whether it should be examined.

    Attributes
    ----------
    learning, graded : set of str
        The parameters that are not frozen, and those that a gradient reached.
    output : float
        The largest mean absolute value of an output of the model.
    gradients : dict of str to float
        Mean absolute values of weights' gradients by layer.
    graph : list of (str, str, int or None)
        Operations before the output, what made their input, and the dimension of a softmax that
        made the output itself.
    """

    learning: set[str] = field(default_factory=set)
    graded: set[str] = field(default_factory=set)
    output: float = 0.0
    gradients: dict[str, float] = field(default_factory=dict)
    graph: list[tuple[str, str, int | None]] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """True if the gradient of a layer's weights is 0."""
        return not all(self.gradients.values())
