"""One forward and one backward, after which the model is as it was, to the bit."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import is_not
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from ..hooking.capture import capture, tensors_in
from ..hooking.interrupts import breakable, unbroken
from ..hooking.records import FeatureCache
from ..hooking.select import CONVOLUTIONS, Layers, module_names, select_layers
from .inputs import ModelInput, change_tensors
from .targets import Target, logits_of, score_of

Tick = Callable[[float], None]


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
        What the gradient had to be asked of, see `Goal`.
    """

    cache: FeatureCache
    logits: Tensor | None
    scored: bool
    returned: type
    goal: Goal


@unbroken
def run(
    model: nn.Module,
    inputs: ModelInput,
    target: Target = None,
    *,
    layers: Layers = None,
    class_names: Sequence[str] = (),
    max_bytes: int | None = None,
    tick: Tick | None = None,
) -> Run:
    """Capture all layers in one forward and one backward, in eval mode.

    Parameters
    ----------
    tick : callable, optional
        Called with the share of the work that is done, 0 to 1, each time a layer has run or
        its gradient has arrived.

    Raises
    ------
    ValueError
        Lazy layers without weights, an input that does not fit the first layer it meets,
        or a target that is not there.
    RuntimeError
        The model raised; the message says in which layer.
    """
    refuse_lazy(model)
    goal: Goal = "inputs"
    while True:
        cache = capture(model, layers, max_bytes=max_bytes)
        with ExitStack() as around:
            around.enter_context(untouched(model))
            args, kwargs, sources = differentiable(model, inputs, around)
            around.enter_context(cache)
            if tick is not None:
                around.enter_context(_ticking(model, layers, tick))
            try:
                output = breakable(model, *args, **kwargs)
            except Exception as error:
                raise explained(error, model, inputs) from error
            score = breakable(score_of, output, target, class_names)
            again = None if score is None else backward(score, sources, model, goal)
        if again is None and score is not None and goal == "inputs":
            again = "parameters" if _lacks_gradients(model, cache) else None
        if again is None:
            logits = logits_of(output)
            kept = None if logits is None else logits.detach()
            return Run(cache, kept, score is not None, type(output), goal)
        goal = again


Goal = Literal["inputs", "parameters", "everything"]
"""What the gradient is asked of: the input; the parameters too; or all, by backward()."""


def _lacks_gradients(model: nn.Module, cache: FeatureCache) -> bool:
    """Whether a layer that could have got a gradient got none: not all depend on the input."""
    outputs = [t for record in cache.values() for call in record.calls for t in call.outputs]
    lacking = any(t.watched_in is not None and not t.has_gradient for t in outputs)
    return lacking and any(p.requires_grad for p in model.parameters())


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Eval mode with gradients within the block; afterwards the model is as before.

    Training flags, buffers, attributes that a forward may set, the dicts and lists among
    them, the random number generators of Python, numpy and torch, and the surrounding grad
    and inference mode are put back, also after an exception or an interrupt.
    """
    modules = [m for m in model.modules() if isinstance(m, nn.Module)]
    flags = [(m, m.training) for m in modules]
    # What a ScriptModule holds is not in its __dict__.
    eager = [m for m in modules if not isinstance(m, torch.jit.ScriptModule)]
    held = [(each, each.copy()) for m in eager for each in _containers(m)]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]

    def restore() -> None:
        for module, was in flags:
            module.training = was
        for container, content in held:
            _refill(container, content)
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)

    with _random_state(model), torch.inference_mode(False), torch.enable_grad():
        try:
            for module in modules:
                module.training = False
            yield
        finally:
            try:
                restore()
            except BaseException:  # an interrupt in the middle: once more, from the beginning
                restore()
                raise


def _containers(module: nn.Module) -> list[Any]:
    """A module's attributes, and the dicts and lists among them, such as buffers and caches."""
    attributes = module.__dict__
    return [attributes, *(each for each in attributes.values() if type(each) in _CONTAINERS)]


_CONTAINERS = (dict, OrderedDict, list)


def _refill(current: Any, held: Any) -> None:
    if isinstance(held, list):
        if len(current) != len(held) or any(map(is_not, current, held)):
            current[:] = held
        return
    if len(current) == len(held) and all(current.get(k, current) is v for k, v in held.items()):
        return
    current.update(held)
    for key in [key for key in current if key not in held]:
        del current[key]


@contextmanager
def _random_state(model: nn.Module) -> Iterator[None]:
    kinds = {p.device.type for p in model.parameters()} - {"cpu", "meta"}
    kind = next(iter(kinds), "cuda")
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == kind})
    python, legacy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices, device_type=kind):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)


def differentiable(
    model: nn.Module, inputs: ModelInput, around: ExitStack
) -> tuple[list[Any], dict[str, Any], list[Tensor]]:
    """The call's arguments, as tensors of our own that ask for a gradient, and those tensors.

    Without any floating-point input (a text model), the parameters are asked instead.
    """
    sources: list[Tensor] = []

    def own(tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone()
        if not copy.is_floating_point():
            return copy
        sources.append(copy.requires_grad_())
        return copy.clone()  # no leaf: a first layer may work in place

    args, kwargs = change_tensors((list(inputs.args), inputs.kwargs), own)
    if not sources:
        for parameter in model.parameters():
            if parameter.is_floating_point():
                around.callback(parameter.requires_grad_, parameter.requires_grad)
                sources.append(parameter.requires_grad_())
    return args, kwargs, sources


def backward(score: Tensor, sources: list[Tensor], model: nn.Module, goal: Goal) -> Goal | None:
    """Send the gradient through the layers, and into nobody's ``.grad``.

    Returns the goal to run again with, if this one does not work with the model.
    """
    if goal == "everything":
        _backward_to_all(score, model)
        return None
    if goal == "parameters":
        sources = sources + [p for p in model.parameters() if p.requires_grad]
    try:
        breakable(torch.autograd.grad, score, sources, allow_unused=True)
    except RuntimeError as error:
        if "checkpoint" not in str(error).lower():
            raise
        return "everything"  # reentrant checkpointing knows backward() only
    return None


def _backward_to_all(score: Tensor, model: nn.Module) -> None:
    before = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        for parameter, _ in before:
            parameter.grad = None
        breakable(score.backward)
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


@contextmanager
def _ticking(model: nn.Module, layers: Layers, tick: Tick) -> Iterator[None]:
    modules = select_layers(model, layers)
    handles: list[RemovableHandle] = []
    done = 0

    def one_more(*_: Any) -> None:
        nonlocal done
        done += 1
        tick(min(done / (2 * len(modules)), 1.0))

    def ran(module: nn.Module, args: Any, output: Any) -> None:
        one_more()
        for _, tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(one_more)

    try:
        for module in modules:
            handles.append(module.register_forward_hook(ran))
        yield
    finally:
        for handle in handles:
            handle.remove()


def refuse_lazy(model: nn.Module) -> None:
    """Raise ``ValueError`` for a layer that has no weights yet."""
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(
                f"Layer {name.rpartition('.')[0]!r} is lazy and has no weights yet: run "
                "model(x) once, so that what you see is what you will use."
            )


def explained(error: Exception, model: nn.Module, inputs: ModelInput) -> Exception:
    """The model's own error with the layer in which it arose and what that layer was given.

    Both stand in the traceback: the innermost frame of a module's ``_call_impl``.
    """
    names = module_names(model)
    layer, given = innermost_call(error, names) or (model, inputs.args)
    name = names.get(layer, [""])[0]
    where = f"layer {name!r} ({type(layer).__name__})" if name else type(layer).__name__
    shapes = " and ".join(str(tuple(tensor.shape)) for _, tensor in tensors_in(given)) or "nothing"
    main = inputs.main
    mismatch = isinstance(error, RuntimeError) and isinstance(layer, CONVOLUTIONS)
    if mismatch and main is not None and _is_input(given, main):
        return ValueError(
            f"The input, shape {tuple(main.shape)}, does not fit {where}, which takes "
            f"{layer.in_channels} channels in {len(layer.kernel_size)}d: {_first_line(error)}"  # type: ignore[arg-type]
        )
    return RuntimeError(
        f"The model raised {type(error).__name__} in {where}, given {shapes}: {_first_line(error)}"
    )


def innermost_call(
    error: BaseException, names: Container[nn.Module]
) -> tuple[nn.Module, Any] | None:
    """The innermost module that was running when the error arose, and its arguments."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        local = traceback.tb_frame.f_locals
        if traceback.tb_frame.f_code.co_name == "_call_impl" and local.get("self") in names:
            found = local["self"], local.get("args", ())
        traceback = traceback.tb_next
    return found


def _is_input(given: Any, main: Tensor) -> bool:
    return any(tensor.shape == main.shape for _, tensor in tensors_in(given))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or repr(error)
