"""The only way in which hookviz runs a user's model: afterwards its state is restored exactly.

Everything runs within `Session.active`: in eval mode, with torch.compile's code run eagerly, and
inside `preserved_state`, which restores the model to the bit.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import count
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ..hooking.capture import Capture
from ..hooking.changes import EditError
from ..hooking.edit import LayerEdit, merged
from ..hooking.handles import EveryModuleRuns, HookManager
from ..hooking.interrupts import Block
from ..hooking.records import FeatureCache, TensorStore
from ..hooking.select import Layers, all_modules, check_model, type_name, unwrapped
from ..hooking.tensors import map_tensors, version_of
from ..hooking.threads import open_run
from ..hooking.transforms import TransformError
from .error_messages import OVERWRITTEN, is_of_reentrant_checkpoint, message_of, sets_flag
from .errors import located_error, needs_gradient, refuse_without_weights
from .inputs import ModelInput, Transform, cure_words, prepare_input, refuse_nonfinite
from .leaves import inputs_like_leaves
from .output import Leaf, leaves_of
from .replay import Replay
from .state import parameters_of, preserved_state
from .target import Target, class_names_of, logits_of, named_target, score_of

_P = ParamSpec("_P")
_R = TypeVar("_R")
_RUN_LOCK = threading.RLock()


def alone(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function so that no other thread runs a model through hookviz meanwhile.

    JupyterLab handles a widget's messages in a separate thread, also while a cell runs: without
    this lock, a layer that runs once in each of the two would appear to run twice.
    """

    @wraps(function)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _RUN_LOCK:
            return function(*args, **kwargs)

    return inner


GradientSource = Literal["inputs", "parameters", "everything"]
"""The tensors whose gradient is computed: the inputs; parameters too; or all, by backward()."""


def _has_no_backward(module: nn.Module) -> bool:
    """Return True for a recurrent layer of which cuDNN computes no gradient: in eval mode."""
    return (
        isinstance(module, nn.RNNBase)
        and not module.training
        and any(p.device.type in _CUDNN for p in module.parameters())
    )


_CUDNN = {"cuda"}
"""The types of devices on which cuDNN runs recurrent layers."""


def clone_inputs(model: nn.Module, args: Any, kwargs: Any) -> tuple[list, dict, list[Tensor]]:
    """Clone the arguments of a call; also return the tensors whose gradient a backward computes.

    These are the dense inputs of real or complex numbers. Without any (a text model) they are the
    parameters, frozen ones too; `preserved_state` freezes them again.
    """
    sources: list[Tensor] = []

    def clone(tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone()
        # Torch has no backward for some sparse layouts.
        if not _is_continuous(copy) or copy.layout not in (torch.strided, torch.jagged):
            return copy
        sources.append(copy.requires_grad_())
        return copy.clone()  # not a leaf, because a first layer may work in place

    args, kwargs = map_tensors((list(args), dict(kwargs)), clone)
    if not sources:
        sources = [p.requires_grad_() for p in model.parameters() if _is_continuous(p)]
    return args, kwargs, sources


def _is_continuous(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def run_backward(
    score: Tensor, sources: list[Tensor], model: nn.Module, source: GradientSource
) -> dict[Tensor, Tensor] | None:
    """Run backward without writing ``.grad``; return None if this source is unsupported.

    Otherwise return the gradients of the parameters that one reached, if the source includes them.
    """
    trained: list[Tensor] = []
    if source == "parameters":
        trained = [p for p in model.parameters() if p.requires_grad]
    if source == "everything":
        for parameter in model.parameters():
            parameter.grad = None  # `preserved_state` restores it
        score.backward()
        return {p: p.grad for p in model.parameters() if p.grad is not None}
    try:
        found = torch.autograd.grad(score, sources + trained, allow_unused=True)
    except RuntimeError as error:
        if not is_of_reentrant_checkpoint(error):
            raise
        return None  # reentrant checkpointing supports backward() only
    pairs = zip(trained, found[len(sources) :], strict=True)
    return {parameter: gradient for parameter, gradient in pairs if gradient is not None}


@contextmanager
def explains_overwritten(model: nn.Module) -> Iterator[None]:
    """Say what to do if a backward in this block needs values that were overwritten in place.

    The block includes the forward, during which another thread may change the weights.
    """
    parameters = parameters_of(all_modules(model))
    versions = [*map(version_of, parameters)]
    try:
        yield
    except RuntimeError as error:
        # An error of the forward has a cause, and already names the layer.
        located, changed = error.__cause__, versions != [*map(version_of, parameters)]
        if not OVERWRITTEN.search(message_of(located or error)) or (located and not changed):
            raise
        if changed:
            message = (
                "The weights were changed while the model ran, as by a training in another "
                "thread: look at the model between two steps."
            )
        else:
            message = (
                f"{type_name(model)}, or the target, overwrites a tensor in place whose old "
                "values the gradient needs: hookviz.diagnose(model, x) names the line; write a "
                "new tensor there, or overwrite a clone()."
            )
        raise RuntimeError(message) from error


class Observer(Protocol):
    """Hooks that are on during a forward and a backward."""

    @property
    def missing_gradients(self) -> bool:
        """True if a tensor that requires a gradient got none."""
        ...

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: Any) -> Any: ...


class Addition(Observer, Protocol):
    """Hooks that are on together with a capture, and add layers to it."""

    def joined(self, cache: FeatureCache) -> FeatureCache:
        """Return the cache with the layers of these hooks added."""
        ...


class _ExtendedCapture(Block):
    """A capture together with hooks that add layers to it."""

    def __init__(self, cache: Capture, addition: Addition) -> None:
        super().__init__([cache, addition])
        self._cache, self._addition = cache, addition

    @property
    def missing_gradients(self) -> bool:
        return self._cache.missing_gradients or self._addition.missing_gradients

    def forget_gradients(self) -> None:
        self._cache.forget_gradients()

    def data(self) -> FeatureCache:
        return self._addition.joined(self._cache.data())


O = TypeVar("O", bound=Observer)  # noqa: E741
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PassResult(Generic[O]):
    """The result of one forward and one backward."""

    observer: O
    output: Any
    scored: bool  # False if there was no score to run backward from
    source: GradientSource  # whose gradient was computed in the end
    #: Of the parameters, if the source includes them.
    gradients: Mapping[Tensor, Tensor] = field(default_factory=dict, repr=False)
    edited_inputs: ModelInput | None = None  # after the edits that change it, if there are any


@dataclass(frozen=True, eq=False)
class Run:
    """The records of one forward and backward."""

    cache: FeatureCache
    logits: Tensor | None  # class scores (N, K), detached; None without a classifier
    scored: bool
    returned: type  # the type of the model's output
    source: GradientSource
    leaves: Sequence[Leaf] = ()  # the output's tensors, detached; empty for a classifier
    edited_inputs: ModelInput | None = None  # after the edits that change it, if there are any


def run_of(result: PassResult[Any]) -> Run:
    """Return the records of a capture's pass, with the output detached."""
    logits = logits_of(result.output)
    leaves = leaves_of(result.output) if logits is None else []
    detached = None if logits is None else logits.detach()
    cache = result.observer.data()
    returned, edited = type(result.output), result.edited_inputs
    return Run(cache, detached, result.scored, returned, result.source, leaves, edited)


class FirstLayer(NamedTuple):
    """A layer to show as soon as its gradients have arrived, while backward goes on.

    ``show`` is called with the run, whose other layers may lack their gradients. If it raises, as
    it does where the model would have to run, nothing is lost: the run ends as any other.
    """

    name: str
    show: Callable[[Run], object]


class NeedsModel(BaseException):
    """The model would have to run while its backward does.

    It is no `Exception`, so that nothing on the way takes it for an error of the model.
    """


_in_backward = ContextVar("in_backward", default=False)  # while the first layer is shown


class _FirstShown:
    """Watches one run for its first layer's gradients."""

    run: Run | None = None  # once backward has begun

    def __init__(self, first: FirstLayer | None) -> None:
        self._first, self._thread = first, threading.get_ident()

    def begin(self, result: PassResult[Any]) -> None:
        if self._first is not None:
            self.run = run_of(result)

    def look(self) -> None:
        """Show the layer, once, if its gradients have arrived."""
        run, first = self.run, self._first
        # On other devices, backward runs in a thread of its own, from which nothing may be shown.
        if first is None or run is None or threading.get_ident() != self._thread:
            return
        calls = run.cache[first.name].calls if first.name in run.cache else []
        if not calls or not all(call.outputs and call.outputs[0].has_gradient for call in calls):
            return
        self._first, token = None, _in_backward.set(True)
        try:
            with suppress(Exception, NeedsModel):
                first.show(run)
        finally:
            _in_backward.reset(token)


class Session:
    """A user's model, its input and its classes, and every way to run it.

    `given` is the user's model, possibly in a wrapper; `model` is the one inside all wrappers,
    which runs. Every run makes the `edits`.

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
        self._user_named_classes = class_names is not None
        self._inputs = inputs
        self._model_error: Exception | None = None  # the latest error that `call` has raised
        self._takes_gradients = False  # True if the forward itself does, as for forces
        self._sets_flags = False  # True if it sets requires_grad of its input

    @classmethod
    def of(
        cls,
        model: nn.Module,
        inputs: Any,
        *,
        weights: Any = None,
        transform: Transform | None = None,
        class_names: Sequence[str] | None = None,
        finite: bool = True,
    ) -> Session:
        """Return a session for a user's arguments; see `prepare_input`."""
        given = prepare_input(inputs, model, weights=weights, transform=transform, finite=finite)
        return cls(model, given, weights=weights, class_names=class_names)

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
        if self._inputs.replacement is not None:
            with suppress(Exception), self.active(grad=False):  # the next run raises it again
                self._with_replacement(
                    lambda: self.call(*map_tensors(self._inputs.args, torch.clone))
                )
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: ModelInput) -> None:
        self._inputs = inputs

    def edited(self, edits: Sequence[LayerEdit]) -> Session:
        """Return the same session with these edits alone."""
        twin = copy.copy(self)
        twin.edits = tuple(edits)
        return twin

    def active(self, *, grad: bool = True, keep_mode: bool = False) -> Block:
        """Return a block for `call`: nothing runs compiled, and the state is restored at its end.

        In eval mode, unless ``keep_mode``. The session's edits are on.
        """
        if _in_backward.get():
            raise NeedsModel
        edits = [edit.block(self.given) for edit in merged(self.edits)]

        def contexts() -> Iterator[AbstractContextManager[Any]]:
            yield _RUN_LOCK
            modules = all_modules(self.model)
            yield open_run(modules)
            yield preserved_state(self.model, keep_mode=keep_mode)
            yield EveryModuleRuns()
            yield torch.set_grad_enabled(grad)  # in effect from here on
            if self._sets_flags:
                yield inputs_like_leaves()
            if any(map(_has_no_backward, modules)):
                yield torch.backends.cudnn.flags(enabled=False)
            yield from edits

        return Block(contexts())

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model, within an `active` block. An error names the layer in which it arose.

        A model that takes gradients in its forward runs with gradients also in a block without
        them; its output is detached then.
        """
        try:
            output = self._output(args, kwargs)
        except (EditError, TransformError) as error:  # already about hookviz's own hooks
            self._model_error = error
            raise
        except Exception as error:
            advice = cure_words(self._inputs, self.model, error)
            located = located_error(error, self.model, (args, kwargs), advice)
            self._model_error = located
            raise located from error
        refuse_nonfinite(self._inputs, output)
        return output

    def _output(self, args: Any, kwargs: Any) -> Any:
        grad = torch.is_grad_enabled()
        if grad or not self._takes_gradients:
            try:
                return self.model(*args, **kwargs)
            except RuntimeError as error:
                if grad or not needs_gradient(error):
                    raise
                self._takes_gradients = True
        with torch.enable_grad(), inputs_like_leaves():
            args, kwargs, _ = clone_inputs(self.model, args, kwargs)
            output = self.model(*args, **kwargs)
        return map_tensors(output, torch.detach)

    def observed(self, run: Callable[[], T]) -> T:
        """Call ``run``, which runs the model under hooks, and return its result.

        If it turns out that the model takes gradients, the hooks have seen the failed attempt as
        well: then call it a second time. So, too, if it sets ``requires_grad`` of its input, which
        takes a mode that slows down each function of torch.
        """
        before = self._takes_gradients
        try:
            result = run()
        except RuntimeError as error:
            if self._sets_flags or not sets_flag(error.__cause__ or error):
                raise
            self._sets_flags = True
            return self.observed(run)
        return result if before == self._takes_gradients else run()

    def _check_names(self, output: Any) -> None:
        """Refuse class names of the wrong number if the user gave them; discard found ones."""
        logits, names = logits_of(output), len(self.class_names)
        if logits is None or names in (0, logits.shape[1]):
            return
        if self._user_named_classes:
            raise ValueError(
                f"class_names has {names} names for {logits.shape[1]} classes: give one for each "
                "class, in order."
            )
        self.class_names = []

    def replayed(self, replay: Replay) -> Any:
        """Return the model's output with the session's edits, without a graph; see `Replay`."""

        def run(edits: Sequence[LayerEdit]) -> Any:
            with Block(edit.block(self.given) for edit in merged(edits)):
                inputs = self.inputs
                args, kwargs = map_tensors((inputs.args, inputs.kwargs), torch.clone)
                return self.call(*args, **kwargs)

        with self.edited(()).active(grad=False):
            return replay.run(lambda: run(self.edits), lambda: run(()))

    def forward(self, observe: Callable[[], T], *, grad: bool = True) -> T:
        """Run one forward within the block of hooks that ``observe`` returns; return that block.

        Without ``grad`` no graph is kept.
        """

        def once() -> T:
            observer: Any = observe()
            with self.active(grad=grad):
                args, kwargs, _ = clone_inputs(self.model, self._inputs.args, self._inputs.kwargs)
                with observer:
                    self.call(*args, **kwargs)
            return observer

        return self.observed(lambda: self._with_replacement(once))

    def forward_backward(
        self,
        target: Target,
        observe: Callable[[], O],
        *,
        source: GradientSource = "inputs",
        keep_mode: bool = False,
        score_of: Callable[..., Tensor | None] = score_of,
        on_backward: Callable[[PassResult[O]], object] = lambda result: None,
    ) -> PassResult[O]:
        """Run one forward and one backward under hooks; ``observe`` makes new ones for each run.

        ``on_backward`` is called before each backward, with the result so far.

        Some layers may not depend on the input, and reentrant checkpointing supports
        ``backward()`` only: then the run is repeated with a wider ``source``.
        """
        target = named_target(target, self.class_names)

        def once(source: GradientSource) -> tuple[PassResult[O], GradientSource | None]:
            observer = observe()
            gradients: dict[Tensor, Tensor] | None = {}
            wider: GradientSource | None = None
            with self.active(keep_mode=keep_mode):
                args, kwargs, sources = clone_inputs(
                    self.model, self._inputs.args, self._inputs.kwargs
                )
                edited = _InputSeen(self)
                with edited, observer, explains_overwritten(self.model):
                    output = self.call(*args, **kwargs)
                    self._check_names(output)
                    if isinstance(observer, Capture | _ExtendedCapture):
                        observer.forget_gradients()  # which the forward itself has taken
                    score = score_of(output, target, self.class_names)
                    scored = score is not None
                    result = PassResult(observer, output, scored, source, {}, edited.inputs)
                    if score is not None:
                        on_backward(result)
                        gradients = run_backward(score, sources, self.model, source)
            trainable = any(parameter.requires_grad for parameter in self.model.parameters())
            if gradients is None:
                wider = "everything"
            elif score is not None and source == "inputs" and trainable:
                wider = "parameters" if observer.missing_gradients else None
            return replace(result, gradients=gradients or {}), wider

        while True:
            attempt = partial(self._with_replacement, partial(once, source))
            result, wider = self.observed(attempt)
            if wider is None:
                return result
            source = wider
            del result  # so that memory never holds both

    def run(
        self,
        target: Target = None,
        *,
        layers: Layers = None,
        max_bytes: int | None = None,
        on_progress: Callable[[float], object] = lambda fraction: None,
        beside: Callable[[FeatureCache, TensorStore], Addition] | None = None,
        first: FirstLayer | None = None,
    ) -> Run:
        """Capture layers in one forward and one backward, as for `hookviz.explore`.

        ``on_progress`` is called with the fraction of the work that is done, 0 to 1; ``beside``
        makes hooks that add layers to the capture, within the same budget. With them no ``first``
        layer is shown.
        """
        first = first if beside is None else None
        shown = _FirstShown(first)

        def observe() -> Capture | _ExtendedCapture:
            nonlocal shown
            expected: int
            done, shown = count(1), _FirstShown(first)  # a new one for each run

            def one_more() -> None:
                on_progress(min(next(done) / expected, 1.0))
                shown.look()

            store = TensorStore(max_bytes=max_bytes)
            # Layers go by their names in the user's model, wrapped or not.
            cache = Capture(self.given, layers, store, on_progress=one_more)
            expected = 2 * len(cache.not_called)
            return cache if beside is None else _ExtendedCapture(cache, beside(cache, store))

        begin = lambda result: shown.begin(result)  # noqa: E731
        result = self.forward_backward(target, observe, on_backward=begin)
        return shown.run or run_of(result)

    def runs(self, targets: Sequence[Target], layers: Layers) -> Iterator[Run]:
        """Run one forward, and one backward for each target; yield a run for each.

        All runs share their records, so their gradients are valid until the next run. The model
        must have run before, with the gradient of its inputs as the source.
        """
        cache = Capture(self.given, layers, TensorStore())
        with self.active():
            args, kwargs, sources = clone_inputs(self.model, self._inputs.args, self._inputs.kwargs)
            edited = _InputSeen(self)
            with edited, cache:
                output = self.call(*args, **kwargs)
                for target in targets:
                    cache.forget_gradients()
                    score = score_of(output, target, self.class_names)
                    if score is not None:
                        torch.autograd.grad(score, sources, allow_unused=True, retain_graph=True)
                    scored = score is not None
                    yield run_of(PassResult(cache, output, scored, "inputs", {}, edited.inputs))

    def _with_replacement(self, run: Callable[[], T]) -> T:
        """Run on the given input; if the model raises, on its replacement.

        If the second run raises too, the first error is raised: it is about the user's own input.
        """
        inputs, self._model_error = self._inputs, None
        try:
            result = run()
        except (ValueError, RuntimeError) as error:
            if error is not self._model_error:
                raise
            first = error
        else:
            if inputs.replacement is not None:
                self._inputs = replace(inputs, replacement=None)
            return result
        if inputs.replacement is not None:
            self._inputs = inputs.replacement
            with suppress(Exception):
                return run()
            self._inputs = replace(inputs, replacement=None)
        raise first


class _InputSeen(HookManager):
    """Notes the model's input as the edits of a session have left it, if any changes it.

    A second computation of the edits could differ: they may draw random numbers.
    """

    inputs: ModelInput | None = None

    def __init__(self, session: Session) -> None:
        edited = any(edit.of_input for edit in session.edits)
        self._given = session._inputs
        super().__init__([(session.model, "forward_pre", self._note)] if edited else [])

    def _note(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        args, kwargs = map_tensors((args, kwargs), lambda tensor: tensor.detach().clone())
        self.inputs = replace(self._given, args=args, kwargs=kwargs)
