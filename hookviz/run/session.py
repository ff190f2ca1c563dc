"""The one way in which hookviz runs a user's model, which is afterwards as it was, to the bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ..hooking.capture import Capture
from ..hooking.edit import EditError, LayerEdit
from ..hooking.handles import force_eager
from ..hooking.interrupts import Block
from ..hooking.records import FeatureCache, TensorStore
from ..hooking.select import Layers, check_model, unwrapped
from ..hooking.tensors import map_tensors
from .errors import located_error, refuse_without_weights
from .inputs import ModelInput, channels_last_words
from .replay import Replay
from .state import preserved_state
from .target import Target, check_target, class_names_of, logits_of, score_of

GradientSource = Literal["inputs", "parameters", "everything"]
"""What the gradient is asked of: the input; the parameters too; or all, by backward()."""


def clone_inputs(model: nn.Module, args: Any, kwargs: Any) -> tuple[list, dict, list[Tensor]]:
    """The call's arguments, as tensors of our own that ask for a gradient, and those tensors.

    Without any floating-point input (a text model), the parameters are asked instead, frozen ones
    too; `preserved_state` freezes them again.
    """
    sources: list[Tensor] = []

    def own(tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone()
        if not copy.is_floating_point():
            return copy
        sources.append(copy.requires_grad_())
        return copy.clone()  # no leaf: a first layer may work in place

    args, kwargs = map_tensors((list(args), dict(kwargs)), own)
    if not sources:
        sources = [p.requires_grad_() for p in model.parameters() if p.is_floating_point()]
    return args, kwargs, sources


def run_backward(
    score: Tensor, sources: list[Tensor], model: nn.Module, goal: GradientSource
) -> GradientSource | None:
    """Send the gradient through the layers; the goal to run again with, if this one cannot be."""
    if goal == "everything":
        for parameter in model.parameters():
            parameter.grad = None  # `preserved_state` puts it back
        score.backward()
        return None
    if goal == "parameters":
        sources = sources + [p for p in model.parameters() if p.requires_grad]
    try:
        torch.autograd.grad(score, sources, allow_unused=True)
    except RuntimeError as error:
        if "checkpoint" not in str(error).lower():
            raise
        return "everything"  # reentrant checkpointing knows backward() only
    return None


class Observer(Protocol):
    """Hooks that are on during a forward and a backward."""

    @property
    def missing_gradients(self) -> bool:
        """Whether a tensor that asked for a gradient got none."""
        ...

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: Any) -> Any: ...


O = TypeVar("O", bound=Observer)  # noqa: E741
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PassResult(Generic[O]):
    """One forward and one backward: who observed it, what the model returned, what was asked."""

    observer: O
    output: Any
    scored: bool
    goal: GradientSource


@dataclass(frozen=True, eq=False)
class Run:
    """What one forward and backward gave."""

    cache: FeatureCache
    logits: Tensor | None  # class scores (N, K), detached; None if the model is no classifier
    scored: bool  # whether there was a score to go backward from
    returned: type  # of what the model returned
    goal: GradientSource  # what the gradient had to be asked of


class Session:
    """A user's model, its input and its classes, and every way to run it.

    `given` is the model as it was given, maybe in a wrapper, `model` the one inside all wrappers,
    which runs. In every run `edits` are made.

    Parameters
    ----------
    model : torch.nn.Module
    inputs : ModelInput
        As `prepare_input` returns it.
    weights, class_names : optional
        As in `hookviz.explore`.
    """

    edits: tuple[LayerEdit, ...] = ()

    def __init__(
        self,
        model: nn.Module,
        inputs: ModelInput,
        *,
        weights: Any = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        check_model(model)
        self.given = model
        self.model, _ = unwrapped(model)
        refuse_without_weights(self.model)
        self.class_names = class_names_of(self.model, weights, class_names)
        self._named = class_names is not None
        self._inputs = inputs
        self._failed: Exception | None = None  # of the forward

    @property
    def name(self) -> str:
        """The model's class."""
        return type(self.model).__name__

    @property
    def inputs(self) -> ModelInput:
        """The model's input as it goes in.

        Where it cannot go in as it is, something may take its place, such as a batch for a single
        sample. The first run decides that; looked at before, it takes a forward of its own.
        """
        if self._inputs.instead is not None:
            with suppress(Exception), self.active(grad=False):  # the next run will raise it, too
                self._settling(lambda: self.call(*map_tensors(self._inputs.args, torch.clone)))
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: ModelInput) -> None:
        self._inputs = inputs

    @property
    def edited_inputs(self) -> ModelInput:
        """The input as the model gets it, with the edits that change it."""
        inputs, own = self.inputs, [each for each in self.edits if each.of_input]
        if not own:
            return inputs
        args, kwargs = map_tensors((inputs.args, inputs.kwargs), torch.clone)
        with self.edited(()).active(grad=False):  # the random numbers of the run
            for each in own:
                args, kwargs = each.block(self.given).of_input(each.layer, args, kwargs)
        return replace(inputs, args=args, kwargs=kwargs)

    def edited(self, edits: Sequence[LayerEdit]) -> Session:
        """The same session with these edits and no others."""
        twin = copy.copy(self)
        twin.edits = tuple(edits)
        return twin

    def active(self, *, grad: bool = True, keep_mode: bool = False) -> Block:
        """A block within which `call` may be used: nothing compiled, state preserved.

        In eval mode, unless the model is to run as it stands. The session's edits are on in it.
        """
        edits = [each.block(self.given) for each in self.edits]
        return _Active(self.model, grad, keep_mode, edits)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; within an `active` block. An error says in which layer it arose."""
        try:
            return self.model(*args, **kwargs)
        except EditError as error:  # not the model's
            self._failed = error
            raise
        except Exception as error:
            located = located_error(error, self.model, (args, kwargs))
            self._failed = located
            raise located from error

    def _check_names(self, output: Any) -> None:
        """Refuse class names of another number; those that nobody gave here are forgotten."""
        logits, count = logits_of(output), len(self.class_names)
        if logits is None or count in (0, logits.shape[1]):
            return
        if self._named:
            raise ValueError(
                f"class_names has {count} names for {logits.shape[1]} classes: give one for each "
                "class, in order."
            )
        self.class_names = []

    def replayed(self, replay: Replay) -> Any:
        """What the model returns with the session's edits, without a graph; see `Replay`."""

        def run(edits: Sequence[LayerEdit]) -> Any:
            with ExitStack() as stack:
                for each in edits:
                    stack.enter_context(each.block(self.given))
                given = self.inputs.args, self.inputs.kwargs
                args, kwargs = map_tensors(given, torch.clone)
                return self.call(*args, **kwargs)

        with self.edited(()).active(grad=False):
            return replay.run(lambda: run(self.edits), lambda: run(()))

    def forward(self, observe: Callable[[], T], *, grad: bool = True) -> T:
        """Run one forward, as `forward_backward` does it, without a backward; return the hooks.

        ``observe`` makes them, a ``with`` block. Without ``grad`` no graph is kept.
        """

        def once() -> T:
            observer: Any = observe()
            with self.active(grad=grad):
                given = self._inputs.args, self._inputs.kwargs
                args, kwargs, _ = clone_inputs(self.model, *given)
                with observer:
                    self.call(*args, **kwargs)
            return observer

        return self._settling(once)

    def forward_backward(
        self,
        target: Target,
        observe: Callable[[], O],
        *,
        goal: GradientSource = "inputs",
        keep_mode: bool = False,
        score_of: Callable[..., Tensor | None] = score_of,
    ) -> PassResult[O]:
        """One forward and one backward with hooks on, which ``observe`` makes anew for each time.

        Not every layer may depend on the input, and checkpointing may know ``backward()`` only:
        then it is done again, and the gradient asked of more than the first ``goal``.
        """
        check_target(target)

        def once(goal: GradientSource) -> tuple[PassResult[O], GradientSource | None]:
            observer = observe()
            with self.active(keep_mode=keep_mode):
                args, kwargs, sources = clone_inputs(
                    self.model, self._inputs.args, self._inputs.kwargs
                )
                with observer:
                    output = self.call(*args, **kwargs)
                    self._check_names(output)
                    score = score_of(output, target, self.class_names)
                    more = None if score is None else run_backward(score, sources, self.model, goal)
            lacking = score is not None and more is None and goal == "inputs"
            learns = any(parameter.requires_grad for parameter in self.model.parameters())
            if lacking and observer.missing_gradients and learns:
                more = "parameters"
            return PassResult(observer, output, score is not None, goal), more

        while True:
            passed, more = self._settling(partial(once, goal))
            if more is None:
                return passed
            goal = more
            del passed  # memory never holds both

    def run(
        self,
        target: Target = None,
        *,
        layers: Layers = None,
        max_bytes: int | None = None,
        tick: Callable[[float], object] = lambda share: None,
    ) -> Run:
        """Capture layers in one forward and one backward, as for `hookviz.explore`.

        ``tick`` is called with the share of the work that is done, 0 to 1.
        """

        def observe() -> Capture:
            expected: int
            done = count(1)
            one_more = lambda: tick(min(next(done) / expected, 1.0))  # noqa: E731
            # By the names that the given model has, wrapped or not.
            cache = Capture(self.given, layers, TensorStore(max_bytes=max_bytes), tick=one_more)
            expected = 2 * len(cache.not_called)
            return cache

        passed = self.forward_backward(target, observe)
        logits = logits_of(passed.output)
        kept = None if logits is None else logits.detach()
        cache = passed.observer.data()
        return Run(cache, kept, passed.scored, type(passed.output), passed.goal)

    def _settling(self, run: Callable[[], T]) -> T:
        """Run on the input as it is; if the forward raises, on what can take its place.

        If it raises then, too, the first error is raised: it is about what the user knows.
        """
        given = self._inputs
        try:
            found = run()
        except (ValueError, RuntimeError) as error:
            first, failed, self._failed = error, self._failed, None
            if first is not failed:
                raise
        else:
            if given.instead is not None:
                self._inputs = replace(given, instead=None)
            return found
        if given.instead is not None:
            self._inputs = given.instead
            with suppress(Exception):
                return run()
            self._inputs = replace(given, instead=None)
        hint = "" if isinstance(first, EditError) else channels_last_words(given, self.model)
        if hint:
            raise RuntimeError(f"{str(first).rstrip('.')}. {hint}") from first
        raise first


class _Active(Block):
    def __init__(
        self, model: nn.Module, grad: bool, keep_mode: bool, edits: Sequence[Block]
    ) -> None:
        super().__init__()
        self._model, self._grad, self._edits = model, grad, edits
        self._keep_mode = keep_mode

    def _begin(self) -> None:
        state = preserved_state(self._model, keep_mode=self._keep_mode)
        self.around.enter_context(state)
        self.around.enter_context(force_eager())
        self.around.enter_context(torch.set_grad_enabled(self._grad))
        for each in self._edits:
            self.around.enter_context(each)
