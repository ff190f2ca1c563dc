"""The only way in which hookviz runs a user's model: afterwards its state is restored exactly.

`preserved_state` notes a model's state and puts it back to the bit after a run in eval mode.
"""

from __future__ import annotations

import copy
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, is_dataclass, replace
from functools import partial, wraps
from itertools import count
from operator import is_
from types import SimpleNamespace
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..hooking.capture import Capture
from ..hooking.edit import EditError, LayerEdit
from ..hooking.handles import force_eager
from ..hooking.interrupts import Block
from ..hooking.records import FeatureCache, TensorStore
from ..hooking.select import Layers, check_model, unwrapped
from ..hooking.tensors import map_tensors
from ..hooking.threads import open_run
from ..hooking.transforms import TransformError
from .errors import located_error, message_of, needs_gradient, refuse_without_weights
from .inputs import ModelInput, cure_words, refuse_nonfinite
from .output import Leaf, leaves_of
from .replay import Replay
from .target import Target, check_target, class_names_of, logits_of, score_of

_MAPPINGS = frozenset((dict, OrderedDict, defaultdict, Counter))
_SEQUENCES = (list, deque)
# The most frequent types; weights' values are not kept, since they are as large as the model.
_PLAIN = frozenset((str, int, float, bool, bytes, type(None), nn.Parameter))


_P = ParamSpec("_P")
_R = TypeVar("_R")
_ALONE = threading.RLock()


def alone(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Keep all other threads from running a model through hookviz while the function works.

    JupyterLab answers a widget's messages in a thread of their own, also while a cell runs: without
    this a layer would be seen to run twice, once for each of the two.
    """

    @wraps(function)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _ALONE:
            return function(*args, **kwargs)

    return inner


@contextmanager
def preserved_state(model: nn.Module, *, keep_mode: bool = False) -> Iterator[None]:
    """Switch to eval mode with gradients within the block; restore the model afterwards.

    With ``keep_mode`` the mode is not switched.

    Restored, also after an exception, are training flags, buffers, all attributes, and their
    content at any depth: tensors, arrays, lists, deques, dicts of all kinds, sets, dataclasses,
    namespaces and random generators; the parameters' ``.grad`` and ``requires_grad``; the random
    number generators of Python, numpy and torch; and the surrounding grad and inference mode.

    The content of other objects is not restored. Nor are parameters' values: a model that
    overwrites its weights in eval mode stays changed.
    """
    # A ScriptModule may list anything as a module.
    modules = [module for module in model.modules() if isinstance(module, nn.Module)]
    sharded = _sharded(modules)
    kept = _Kept(managed=bool(sharded))
    for module in modules:
        kept.look_into(module)
    parameters = list(model.parameters())
    asked = [(p, p.requires_grad, p.grad) for p in parameters]
    with _random_state(parameters), torch.inference_mode(False), torch.enable_grad():
        try:
            for module in [] if keep_mode else modules:
                if module.training:  # setting a module's attribute is slow
                    module.training = False
            yield
        finally:
            for module in sharded:
                if hasattr(module, "reshard"):  # FSDP2's outermost is left whole by a forward alone
                    module.reshard()  # type: ignore[operator]
            kept.put_back()
            for parameter, required, gradient in asked:
                if parameter.requires_grad != required:
                    parameter.requires_grad_(required)
                if parameter.grad is not gradient:
                    parameter.grad = gradient


class _Kept:
    """The content of objects when the block began. No code of the user's runs to find it."""

    def __init__(self, managed: bool) -> None:
        self._managed = managed  # FSDP adds and removes parameters by itself
        self._held: list[tuple[dict, list, list]] = []  # mappings, their keys and values
        self._empty: list[dict] = []
        self._undo: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}  # the objects too, so that no id is used again

    def put_back(self) -> None:
        with torch.no_grad():
            for undo in self._undo:
                undo()
        for value in self._empty:
            if value:
                value.clear()
        for value, keys, values in self._held:
            if not (_same(value, keys) and _same(value.values(), values)):
                _hold(value, dict(zip(keys, values, strict=True)))

    def look_into(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if kind in _MAPPINGS:
            self._mapping(value)
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, nn.Module):
            self._module(value)
        elif kind is SimpleNamespace or (is_dataclass(kind) and hasattr(value, "__dict__")):
            self._mapping(value.__dict__)
        elif kind in _SEQUENCES:
            self._sequence(value)
        elif isinstance(value, tuple):
            if not _PLAIN.issuperset(map(type, tuple.__iter__(value))):
                for each in tuple.__iter__(value):
                    self.look_into(each)
        elif kind is set:
            content = value.copy()
            self._undo.append(lambda: (value.clear(), value.update(content)))
        elif isinstance(value, np.ndarray):
            self._array(value)
        else:
            self._generator(value)

    def _module(self, value: nn.Module) -> None:
        if isinstance(value, torch.jit.ScriptModule):  # its content is not in its __dict__
            flag = value.training
            self._undo.append(lambda: setattr(value, "training", flag))
            for buffer in value.buffers():
                self.look_into(buffer)
        else:
            # FSDP takes its parameters in and out of this dict, and knows which are there.
            self._mapping(value.__dict__, besides=value._parameters if self._managed else None)

    def _mapping(self, value: dict, besides: Any = None) -> None:
        values = list(value.values())
        self._held.append((value, list(value), values))
        for each in values:
            kind = type(each)
            # A module holds many of the first three: a call for each would be most of the work.
            if kind in _PLAIN or (kind is tuple and _PLAIN.issuperset(map(type, each))):
                continue
            if kind in _MAPPINGS and not each:
                self._empty.append(each)
            elif each is not besides:
                self.look_into(each)

    def _sequence(self, value: Any) -> None:
        content = list(value)

        def undo() -> None:
            if not _same(value, content):
                value.clear()
                value.extend(content)

        self._undo.append(undo)
        for each in content:
            self.look_into(each)

    def _tensor(self, value: Tensor) -> None:
        # Weights may be of a subclass, too; other layouts cannot be copied in place.
        if isinstance(value, nn.Parameter) or value.is_meta or value.layout is not torch.strided:
            return
        self._undo.append(partial(put_back, value, value.detach().clone()))

    def _array(self, value: np.ndarray) -> None:
        if value.flags.writeable:
            array = value.copy()
            self._undo.append(lambda: np.copyto(value, array))

    def _generator(self, value: Any) -> None:
        if isinstance(value, torch.Generator):
            state = value.get_state()
            self._undo.append(lambda: value.set_state(state))
        elif type(value) is random.Random:
            drawn = value.getstate()
            self._undo.append(lambda: value.setstate(drawn))
        elif type(value) is np.random.Generator:
            bits = value.bit_generator
            held = bits.state
            self._undo.append(lambda: setattr(bits, "state", held))


def put_back(tensor: Tensor, content: Tensor) -> None:
    """Fill a tensor with what it held, in the shape that it had: an observer's limits grow."""
    if tensor.shape != content.shape:
        tensor.resize_(content.shape)
    if not torch.equal(tensor, content):
        tensor.copy_(content)


def _sharded(modules: list[nn.Module]) -> list[nn.Module]:
    """Return the modules managed by ``fully_shard`` (FSDP2) or ``FullyShardedDataParallel``."""
    managers = {"FSDPModule", "FullyShardedDataParallel"}
    kinds = {type(module) for module in modules}
    those = {kind for kind in kinds if managers & {each.__name__ for each in kind.__mro__}}
    return [module for module in modules if type(module) in those]


def _same(those: Collection[Any], held: list) -> bool:
    """Compare two sequences by identity; never call ``__eq__``."""
    return len(those) == len(held) and all(map(is_, those, held))


def _hold(value: dict, held: dict) -> None:
    """Restore a mapping's items, and their order if it has one."""
    for key in [key for key in value if key not in held]:
        del value[key]
    for key, each in held.items():  # a Counter's update would add
        value[key] = each
        if isinstance(value, OrderedDict):
            value.move_to_end(key)


@contextmanager
def _random_state(parameters: list[nn.Parameter]) -> Iterator[None]:
    on = {p.device for p in parameters}
    kind = next((each.type for each in on if each.type not in ("cpu", "meta")), "cuda")
    devices = sorted({each.index or 0 for each in on if each.type == kind})
    python, legacy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices, device_type=kind):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)


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
        if "checkpoint" not in message_of(error).lower():
            raise
        return "everything"  # reentrant checkpointing supports backward() only
    return None


@contextmanager
def _unchanged_weights(model: nn.Module) -> Iterator[None]:
    """Say so if a backward fails since another thread has changed the weights."""
    parameters = [each for each in model.parameters() if not each.is_inference()]
    versions = [each._version for each in parameters]
    try:
        yield
    except RuntimeError as error:
        if "inplace operation" not in str(error) or versions == [p._version for p in parameters]:
            raise
        raise RuntimeError(
            "The weights were changed while the model ran, as by a training in another thread: "
            "look at the model between two steps."
        ) from error


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
    leaves: Sequence[Leaf] = ()  # the output's tensors, detached; none of a classifier


def run_of(passed: PassResult[Any]) -> Run:
    """Return the records of a capture's pass, with the output detached."""
    logits = logits_of(passed.output)
    kept = None if logits is None else logits.detach()
    leaves = leaves_of(passed.output) if kept is None else []
    cache = passed.observer.data()
    return Run(cache, kept, passed.scored, type(passed.output), passed.source, leaves)


class Session:
    """A user's model, its input and its classes, and every way to run it.

    `given` is the user's model, maybe in a wrapper; `model` is the one inside all wrappers, which
    runs. Every run makes the `edits`.

    Parameters
    ----------
    model : torch.nn.Module
    inputs : ModelInput
        As `prepare_input` returns it.
    weights, class_names, token_names : optional
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
        token_names: Sequence[str] | None = None,
    ) -> None:
        check_model(model)
        self.token_names = list(token_names or ())
        self.given = model
        self.model, _ = unwrapped(model)
        refuse_without_weights(self.model)
        self.class_names = class_names_of(self.model, weights, class_names)
        self._named = class_names is not None
        self._inputs = inputs
        self._failed: Exception | None = None  # of the forward
        self._takes_gradients = False  # whether its forward does, as for forces

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

    @property
    def edited_inputs(self) -> ModelInput:
        """The input after the edits that change it."""
        inputs, own = self.inputs, [each for each in self.edits if each.of_input]
        if not own:
            return inputs
        args, kwargs = map_tensors((inputs.args, inputs.kwargs), torch.clone)
        # Of the run: its random numbers. The model itself is not called.
        with (
            _random_state([*self.given.parameters()]),
            torch.inference_mode(False),
            torch.no_grad(),
        ):
            for each in own:
                args, kwargs = each.input_of(self.given, args, kwargs)
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
        """Run the model, within an `active` block. An error names the layer in which it arose.

        A model that takes gradients in its forward runs with gradients also in a block without
        them; its output is detached then.
        """
        try:
            output = self._called(args, kwargs)
        except (EditError, TransformError) as error:  # not the model's
            self._failed = error
            raise
        except Exception as error:
            located = located_error(error, self.model, (args, kwargs))
            self._failed = located
            raise located from error
        refuse_nonfinite(self._inputs, output)
        return output

    def _called(self, args: Any, kwargs: Any) -> Any:
        grad = torch.is_grad_enabled()
        if grad or not self._takes_gradients:
            try:
                return self.model(*args, **kwargs)
            except RuntimeError as error:
                if grad or not needs_gradient(error):
                    raise
                self._takes_gradients = True
        with torch.enable_grad():
            own_args, own_kwargs, _ = clone_inputs(self.model, args, kwargs)
            output = self.model(*own_args, **own_kwargs)
        return map_tensors(output, torch.detach)

    def observed(self, run: Callable[[], T]) -> T:
        """Call ``run``, which calls the model under hooks; once more if it saw half a run, too.

        That is so where it has turned out that the model takes gradients.
        """
        known = self._takes_gradients
        found = run()
        return found if known == self._takes_gradients else run()

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

        return self.observed(lambda: self._with_replacement(once))

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
                with observer, _unchanged_weights(self.model):
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
            passed, more = self._with_replacement(partial(once, source))
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

        return run_of(self.forward_backward(target, observe))

    def runs(self, targets: Sequence[Target], layers: Layers) -> Iterator[Run]:
        """Run one forward, and one backward for each target; yield the run of each.

        All runs have the same records: their gradients hold until the next run is made. The model
        must have run before, with the gradient of its inputs as the source.
        """
        cache = Capture(self.given, layers, TensorStore())
        with self.active():
            args, kwargs, sources = clone_inputs(self.model, self._inputs.args, self._inputs.kwargs)
            with cache:
                output = self.call(*args, **kwargs)
                for target in targets:
                    cache.forget_gradients()
                    score = score_of(output, target, self.class_names)
                    if score is not None:
                        torch.autograd.grad(score, sources, allow_unused=True, retain_graph=True)
                    yield run_of(PassResult(cache, output, score is not None, "inputs"))

    def _with_replacement(self, run: Callable[[], T]) -> T:
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
            if given.replacement is not None:
                self._inputs = replace(given, replacement=None)
            return found
        if given.replacement is not None:
            self._inputs = given.replacement
            with suppress(Exception):
                return run()
            self._inputs = replace(given, replacement=None)
        of_model = not isinstance(first, (EditError, TransformError))
        hint = cure_words(given, self.model, first.__cause__) if of_model else ""
        if hint:
            raise RuntimeError(f"{str(first).rstrip('.:')}. {hint}") from first.__cause__
        raise first


class _Active(Block):
    def __init__(
        self, model: nn.Module, grad: bool, keep_mode: bool, edits: Sequence[Block]
    ) -> None:
        super().__init__()
        self._model, self._grad, self._edits = model, grad, edits
        self._keep_mode = keep_mode

    def _begin(self) -> None:
        self.exit_stack.enter_context(_ALONE)
        modules = [each for each in self._model.modules() if isinstance(each, nn.Module)]
        self.exit_stack.enter_context(open_run(modules))
        state = preserved_state(self._model, keep_mode=self._keep_mode)
        self.exit_stack.enter_context(state)
        self.exit_stack.enter_context(force_eager())
        self.exit_stack.enter_context(torch.set_grad_enabled(self._grad))
        for each in self._edits:
            self.exit_stack.enter_context(each)
