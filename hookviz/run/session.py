"""The one way in which hookviz runs a user's model, which is afterwards as it was, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ..hooking.capture import Capture
from ..hooking.compiled import force_eager
from ..hooking.copies import Copies
from ..hooking.interrupts import Block
from ..hooking.nested import change_tensors
from ..hooking.records import FeatureCache
from ..hooking.select import Layers, check_model, unwrapped
from .class_names import class_names_of
from .errors import located_error, refuse_without_weights
from .gradients import Goal, own_inputs, send_back
from .inputs import ModelInput, prepare_input, with_batch
from .state import preserved_state
from .targets import Target, check_target, logits_of, score_of
from .transforms import Transform


class Observer(Protocol):
    """Hooks that are on during a forward and a backward."""

    @property
    def unreached(self) -> bool:
        """Whether a tensor that asked for a gradient got none."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: Any) -> Any: ...


O = TypeVar("O", bound=Observer)  # noqa: E741


@dataclass(frozen=True, eq=False)
class Passed(Generic[O]):
    """One forward and one backward: who observed it, what the model returned, what was asked."""

    observer: O
    output: Any
    scored: bool
    goal: Goal


@dataclass(frozen=True, eq=False)
class Run:
    """What one forward and backward gave.

    Attributes
    ----------
    cache : FeatureCache
    logits : torch.Tensor or None
        Class scores ``(N, K)``, detached; None if the model is no classifier.
    scored : bool
        Whether there was a score to go backward from.
    returned : type
        Of what the model returned.
    goal : str
        What the gradient had to be asked of, see `hookviz.run.gradients.Goal`.
    """

    cache: FeatureCache
    logits: Tensor | None
    scored: bool
    returned: type
    goal: Goal


class Session:
    """A user's model, its input and its classes, and every way to run it.

    Parameters
    ----------
    model, image, weights, transform, class_names
        As for `hookviz.explore`.

    Attributes
    ----------
    given : torch.nn.Module
        The model as it was given, maybe in a wrapper.
    model : torch.nn.Module
        The model inside all wrappers: this one runs.
    inputs : hookviz.run.inputs.ModelInput
    class_names : list of str
        May be shorter than there are classes, or empty.

    Raises
    ------
    TypeError, ValueError, FileNotFoundError
        No model, one with lazy layers, or an input that cannot be one.

    Examples
    --------
    >>> import hookviz
    >>> session = Session(nn.DataParallel(hookviz.demo_model()), hookviz.demo_images()[6])
    >>> session.name, session.inputs.args[0].shape
    ('DemoNet', torch.Size([1, 3, 112, 112]))
    >>> session.run("moon", layers="stem.0").cache["stem.0"].gradient.shape
    torch.Size([1, 24, 56, 56])
    """

    def __init__(
        self,
        model: nn.Module,
        image: Any,
        *,
        weights: Any = None,
        transform: Transform | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        check_model(model)
        self.given = model
        self.model, _ = unwrapped(model)
        refuse_without_weights(self.model)
        self.class_names = class_names_of(self.model, weights, class_names)
        inputs = prepare_input(image, self.model, weights=weights, transform=transform)
        self.inputs = self._settled(inputs)

    @property
    def name(self) -> str:
        """The model's class."""
        return type(self.model).__name__

    def active(self, *, grad: bool = True) -> Block:
        """A block within which `call` may be used: eval mode, nothing compiled, state preserved."""
        return _Active(self.model, grad)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; within an `active` block.

        Raises
        ------
        ValueError, RuntimeError
            The model raised; the message says in which layer.
        """
        try:
            return self.model(*args, **kwargs)
        except Exception as error:
            raise located_error(error, self.model, (args, kwargs)) from error

    def forward(self, observer: Observer) -> Any:
        """One forward, as `forward_backward` does it, without a backward."""
        with self.active():
            args, kwargs, _ = own_inputs(self.model, self.inputs.args, self.inputs.kwargs)
            with observer:
                return self.call(*args, **kwargs)

    def forward_backward(self, target: Target, observe: Callable[[], O]) -> Passed[O]:
        """One forward and one backward with hooks on.

        Not every layer may depend on the input, and checkpointing may know ``backward()`` only:
        then it is done again, and the gradient asked of more.

        Parameters
        ----------
        target
            See `hookviz.run.targets.score_of`.
        observe : callable
            Makes the hooks, anew for each time.
        """
        check_target(target)
        goal: Goal | None = "inputs"
        while goal is not None:
            observer, asked = observe(), goal
            with self.active():
                args, kwargs, sources = own_inputs(self.model, self.inputs.args, self.inputs.kwargs)
                with observer:
                    output = self.call(*args, **kwargs)
                    score = score_of(output, target, self.class_names)
                    goal = None if score is None else send_back(score, sources, self.model, asked)
            lacking = score is not None and goal is None and asked == "inputs"
            if lacking and observer.unreached and self._learns():
                goal = "parameters"
        return Passed(observer, output, score is not None, asked)

    def run(
        self,
        target: Target = None,
        *,
        layers: Layers = None,
        max_bytes: int | None = None,
        tick: Callable[[float], object] = lambda share: None,
    ) -> Run:
        """Capture layers in one forward and one backward.

        Parameters
        ----------
        target, layers, max_bytes
            As for `hookviz.explore`.
        tick : callable, optional
            Called with the share of the work that is done, 0 to 1.

        Raises
        ------
        ValueError
            No such layer or target, or an input that does not fit.
        RuntimeError
            The model raised; the message says in which layer.
        """

        def observe() -> Capture:
            done = 0

            def one_more() -> None:
                nonlocal done
                done += 1
                tick(min(done / expected, 1.0))

            # By the names that the given model has, wrapped or not.
            cache = Capture(self.given, layers, Copies(max_bytes=max_bytes), tick=one_more)
            expected = 2 * len(cache.missed)
            return cache

        passed = self.forward_backward(target, observe)
        logits = logits_of(passed.output)
        kept = None if logits is None else logits.detach()
        cache = passed.observer.data()
        return Run(cache, kept, passed.scored, type(passed.output), passed.goal)

    def _settled(self, inputs: ModelInput) -> ModelInput:
        """A sample without a batch dimension gets one only where it cannot go in as it is."""
        batched = with_batch(inputs, self.model)
        if batched is None:
            return inputs
        with self.active(grad=False):
            for each in (inputs, batched):
                try:
                    self.call(*change_tensors(each.args, torch.clone))
                except (ValueError, RuntimeError):
                    continue
                return each
        return inputs  # neither: as given, the error is about what the user knows

    def _learns(self) -> bool:
        return any(parameter.requires_grad for parameter in self.model.parameters())


class _Active(Block):
    def __init__(self, model: nn.Module, grad: bool) -> None:
        super().__init__()
        self._model, self._grad = model, grad

    def _begin(self) -> None:
        self.around.enter_context(preserved_state(self._model))
        self.around.enter_context(force_eager())
        self.around.enter_context(torch.set_grad_enabled(self._grad))
