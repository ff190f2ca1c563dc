"""The only way in which hookviz runs a user's model: afterwards its state is restored exactly."""

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
"""The tensors whose gradient is computed: the inputs; parameters too; or all, by backward()."""


def clone_inputs(model: nn.Module, args: Any, kwargs: Any) -> tuple[list, dict, list[Tensor]]:
    """Clone the call's arguments as tensors that require a gradient; return both.

    Without any floating-point input (a text model), the parameters take their part, frozen ones
    too; `preserved_state` freezes them again.
    """
    sources: list[Tensor] = []

    def own(tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone()
        if not copy.is_floating_point():
            return copy
        sources.append(copy.requires_grad_())
        return copy.clone()  # not a leaf: a first layer may work in place

    args, kwargs = map_tensors((list(args), dict(kwargs)), own)
    if not sources:
        sources = [p.requires_grad_() for p in model.parameters() if p.is_floating_point()]
    return args, kwargs, sources


def run_backward(
    score: Tensor, sources: list[Tensor], model: nn.Module, source: GradientSource
) -> GradientSource | None:
    """Run backward without writing ``.grad``; return another source if this one is unsupported."""
    if source == "everything":
        for parameter in model.parameters():
            parameter.grad = None  # `preserved_state` puts it back
        score.backward()
        return None
    if source == "parameters":
        sources = sources + [p for p in model.parameters() if p.requires_grad]
    try:
        torch.autograd.grad(score, sources, allow_unused=True)
    except RuntimeError as error:
        if "checkpoint" not in str(error).lower():
            raise
        return "everything"  # reentrant checkpointing supports backward() only
    return None


class Observer(Protocol):
    """Hooks that are on during a forward and a backward."""

    @property
    def missing_gradients(self) -> bool:
        """True if a tensor that requires a gradient got none."""
        ...

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: Any) -> Any: ...


class Addition(Observer, Protocol):
    """Hooks that are on beside a capture, and add layers to it."""

    def joined(self, cache: FeatureCache) -> FeatureCache:
        """Return the cache with the layers that these hooks have found."""
        ...


class _Together(Block):
    """A capture, and what is on beside it."""

    def __init__(self, cache: Capture, beside: Addition) -> None:
        super().__init__()
        self._cache, self._beside = cache, beside

    def _begin(self) -> None:
        self.exit_stack.enter_context(self._cache)
        self.exit_stack.enter_context(self._beside)

    @property
    def missing_gradients(self) -> bool:
        return self._cache.missing_gradients or self._beside.missing_gradients

    def data(self) -> FeatureCache:
        return self._beside.joined(self._cache.data())


O = TypeVar("O", bound=Observer)  # noqa: E741
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PassResult(Generic[O]):
    """The result of one forward and one backward."""

    observer: O
    output: Any
    scored: bool
    source: GradientSource


@dataclass(frozen=True, eq=False)
class Run:
    """The records of one forward and backward."""

    cache: FeatureCache
    logits: Tensor | None  # class scores (N, K), detached; None without a classifier
    scored: bool  # False if there was no score to run backward from
    returned: type  # the type of the model's output
    source: GradientSource  # whose gradient was computed in the end


class Session:
    """A user's model, its input and its classes, and every way to run it.

    `given` is the user's model, maybe in a wrapper; `model` is the one inside all wrappers, which
    runs. Every run makes the `edits`.

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
        """The model's input.

        If the model raises on the given input, a replacement may be used, such as a batch for a
        single sample. The first run decides that; reading this property earlier costs a forward.
        """
        if self._inputs.instead is not None:
            with suppress(Exception), self.active(grad=False):  # the next run raises it again
                self._settling(lambda: self.call(*map_tensors(self._inputs.args, torch.clone)))
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: ModelInput) -> None:
        self._inputs = inputs

    @property
    def edited_inputs(self) -> ModelInput:
        """The input after the edits that change it."""
        inputs, own = self.inputs, [each for each in self.edits if each.of_input]
        if not own:
            return inputs
        args, kwargs = map_tensors((inputs.args, inputs.kwargs), torch.clone)
        with self.edited(()).active(grad=False):  # the random numbers of the run
            for each in own:
                args, kwargs = each.block(self.given).of_input(each.layer, args, kwargs)
        return replace(inputs, args=args, kwargs=kwargs)

    def edited(self, edits: Sequence[LayerEdit]) -> Session:
        """Return the same session with these edits alone."""
        twin = copy.copy(self)
        twin.edits = tuple(edits)
        return twin

    def active(self, *, grad: bool = True, keep_mode: bool = False) -> Block:
        """Return a block for `call`: nothing runs compiled, and the state is restored at its end.

        In eval mode, unless ``keep_mode``. The session's edits are on.
        """
        edits = [each.block(self.given) for each in self.edits]
        return _Active(self.model, grad, keep_mode, edits)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model, within an `active` block. An error names the layer in which it arose."""
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
        """Refuse class names of the wrong number if the user gave them; discard found ones."""
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
        """Return the model's output with the session's edits, without a graph; see `Replay`."""

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
        """Run one forward under the hooks that ``observe`` makes, a ``with`` block; return these.

        Without ``grad`` no graph is kept.
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
        source: GradientSource = "inputs",
        keep_mode: bool = False,
        score_of: Callable[..., Tensor | None] = score_of,
    ) -> PassResult[O]:
        """Run one forward and one backward under hooks; ``observe`` makes new ones for each run.

        Some layers may not depend on the input, and reentrant checkpointing supports
        ``backward()`` only: then the run is repeated with a wider ``source``.
        """
        check_target(target)

        def once(source: GradientSource) -> tuple[PassResult[O], GradientSource | None]:
            observer = observe()
            with self.active(keep_mode=keep_mode):
                args, kwargs, sources = clone_inputs(
                    self.model, self._inputs.args, self._inputs.kwargs
                )
                with observer:
                    output = self.call(*args, **kwargs)
                    self._check_names(output)
                    score = score_of(output, target, self.class_names)
                    more = (
                        None if score is None else run_backward(score, sources, self.model, source)
                    )
            lacking = score is not None and more is None and source == "inputs"
            learns = any(parameter.requires_grad for parameter in self.model.parameters())
            if lacking and observer.missing_gradients and learns:
                more = "parameters"
            return PassResult(observer, output, score is not None, source), more

        while True:
            passed, more = self._settling(partial(once, source))
            if more is None:
                return passed
            source = more
            del passed  # so that memory never holds both

    def run(
        self,
        target: Target = None,
        *,
        layers: Layers = None,
        max_bytes: int | None = None,
        on_progress: Callable[[float], object] = lambda fraction: None,
        beside: Callable[[FeatureCache, TensorStore], Addition] | None = None,
    ) -> Run:
        """Capture layers in one forward and one backward, as for `hookviz.explore`.

        ``on_progress`` is called with the fraction of the work that is done, 0 to 1; ``beside``
        makes hooks that add layers to the capture, of the same budget.
        """

        def observe() -> Capture | _Together:
            expected: int
            done = count(1)
            one_more = lambda: on_progress(min(next(done) / expected, 1.0))  # noqa: E731
            # By the names in the user's model, wrapped or not.
            store = TensorStore(max_bytes=max_bytes)
            cache = Capture(self.given, layers, store, on_progress=one_more)
            expected = 2 * len(cache.not_called)
            return cache if beside is None else _Together(cache, beside(cache, store))

        passed = self.forward_backward(target, observe)
        logits = logits_of(passed.output)
        kept = None if logits is None else logits.detach()
        cache = passed.observer.data()
        return Run(cache, kept, passed.scored, type(passed.output), passed.source)

    def _settling(self, run: Callable[[], T]) -> T:
        """Run on the input as it is; if the forward raises, on its replacement.

        If the second run raises too, the first error is raised: it is about the user's own input.
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
        self.exit_stack.enter_context(state)
        self.exit_stack.enter_context(force_eager())
        self.exit_stack.enter_context(torch.set_grad_enabled(self._grad))
        for each in self._edits:
            self.exit_stack.enter_context(each)
