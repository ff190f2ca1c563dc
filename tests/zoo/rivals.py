"""Compare other tools' activations and gradients of each convolution with the truth.

Each tool is used as its documentation says. It gets the same model, input, random state and score
as hookviz, and none of our wrappers is active. It does not get what it cannot handle, such as
layers that never ran or that do not affect the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from captum.attr import LayerActivation, LayerGradientXActivation
from pytorch_grad_cam.activations_and_gradients import ActivationsAndGradients
from reference import Truths
from torch import Tensor, nn
from torchcam.methods import GradCAM

CLOSE = 1e-4  # fraction of a tensor's largest magnitude, larger than any rounding

ACTIVATION, GRADIENT, PRODUCT = "activation", "gradient", "gradient × activation"

Values = dict[str, list[Tensor]]
"""Layer name -> the rival's values, in the order of the layer's calls."""


@dataclass
class Tally:
    """A rival's counts on one model: measured, wrong and lost calls."""

    calls: int = 0
    wrong: int = 0
    lost: int = 0
    crashed: str = ""


class Subject:
    """A model with its input and score.

    Attributes
    ----------
    model : torch.nn.Module
        Built on first access, and again after `renew`.
    given
        The model's input.
    score : callable
        Model output -> score.
    truths : Truths
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        ask: Callable[[nn.Module], tuple[Tensor, list[Tensor]]],
        given: Any,
        score: Callable[[Any], Tensor],
        truths: Truths,
    ) -> None:
        self._build, self._ask = build, ask
        self.given, self.score, self.truths = given, score, truths

    @cached_property
    def model(self) -> nn.Module:
        """Return the model in eval mode."""
        return self._build()

    def renew(self) -> None:
        """Build the model again: some cache parts of a graph, which has only one backward."""
        self.__dict__.pop("model", None)

    @property
    def ran(self) -> dict[str, nn.Module]:
        """Return the convolutions that run."""
        return {name: self.model.get_submodule(name) for name in self.truths}

    @property
    def graded(self) -> dict[str, nn.Module]:
        """Return the convolutions whose every call gets a gradient."""
        return {
            name: module
            for name, module in self.ran.items()
            if all(call.grad is not None for call in self.truths[name])
        }

    def ask(self) -> Tensor:
        """Run the model, and return its score."""
        return self._ask(self.model)[0]

    def backward(self) -> None:
        """Run the model and ``score.backward()``, and restore the parameters' ``.grad``."""
        with _grads_kept(self.model):
            self.ask().backward()


def forward_hook(subject: Subject) -> tuple[Values, ...]:
    """A forward hook on each convolution: ``kept[name].append(output.detach())``."""
    kept: Values = {name: [] for name in subject.ran}

    def keep(name: str) -> Callable:
        return lambda module, args, output: kept[name].append(output.detach())

    handles = [layer.register_forward_hook(keep(name)) for name, layer in subject.ran.items()]
    try:
        subject.ask()
    finally:
        for handle in handles:
            handle.remove()
    return (kept,)


def full_backward_hook(subject: Subject) -> tuple[Values, ...]:
    """``register_full_backward_hook`` on each convolution: ``grad_output[0].clone()``."""
    kept: Values = {name: [] for name in subject.ran}

    def keep(name: str) -> Callable:
        def hook(module: nn.Module, grad_input: Any, grad_output: Any) -> None:
            if grad_output[0] is not None:
                # The gradient of the last call comes first.
                kept[name].insert(0, grad_output[0].clone())

        return hook

    handles = [layer.register_full_backward_hook(keep(n)) for n, layer in subject.ran.items()]
    try:
        subject.backward()
    finally:
        for handle in handles:
            handle.remove()
    return (kept,)


def captum_activation(subject: Subject) -> tuple[Values, ...]:
    """``LayerActivation(forward, layers).attribute(inputs)``, all convolutions that ran."""
    forward, inputs = _for_captum(subject)
    found = LayerActivation(forward, list(subject.ran.values())).attribute(inputs)
    return ({name: [value] for name, value in zip(subject.ran, found, strict=True)},)


def captum_product(subject: Subject) -> tuple[Values, ...]:
    """``LayerGradientXActivation(forward, layers).attribute(inputs)``, layers with a gradient."""
    forward, inputs = _for_captum(subject)
    layers = subject.graded
    found = LayerGradientXActivation(forward, list(layers.values())).attribute(inputs)
    return ({name: [value] for name, value in zip(layers, found, strict=True)},)


def grad_cam(subject: Subject) -> tuple[Values, ...]:
    """pytorch-grad-cam's ``ActivationsAndGradients(model, layers, None)``, layers with a gradient.

    Its lists have no names: its CAMs pair activation i with gradient i. The activations come in
    the order of the calls, so i stands for the i-th call.
    """
    layers = subject.graded
    order = [name for name in subject.truths.order if name in layers]
    keeper = ActivationsAndGradients(subject.model, list(layers.values()), None)
    try:
        # Calling this object empties its lists and runs the model.
        keeper.activations, keeper.gradients = [], []
        subject.backward()
        activations, gradients = list(keeper.activations), list(keeper.gradients)
    finally:
        keeper.release()
    return _by_layer(order, activations), _by_layer(order, gradients)


def torchcam(subject: Subject) -> tuple[Values, ...]:
    """Of torchcam, ``GradCAM(model, names)``, asked as ``cam(0, score)``: its hook_a and hook_g."""
    names = list(subject.graded)
    with GradCAM(subject.model, list(names)) as cam:
        value = subject.ask()
        try:
            cam(0, value.reshape(1, 1))
        except Exception:  # a CAM may fail for these shapes, with the values still stored
            if any(gradient is None for gradient in cam.hook_g):
                raise
        activations = {name: [value] for name, value in zip(names, cam.hook_a, strict=True)}
        gradients = {name: [value] for name, value in zip(names, cam.hook_g, strict=True)}
    return activations, gradients


@dataclass(frozen=True)
class Rival:
    """A way to get at activations or gradients.

    Attributes
    ----------
    run : callable
        Returns the values, in the order of ``finds``.
    finds : dict of str to str
        Label -> quantity.
    graded : bool
        Whether it accepts only layers with a gradient; it is measured on those.
    """

    run: Callable[[Subject], tuple[Values, ...]]
    finds: dict[str, str]
    graded: bool = False


RIVALS = [
    Rival(forward_hook, {"forward hook, by reference": ACTIVATION}),
    Rival(full_backward_hook, {"register_full_backward_hook": GRADIENT}),
    Rival(captum_activation, {"captum LayerActivation": ACTIVATION}),
    Rival(captum_product, {"captum LayerGradientXActivation": PRODUCT}, graded=True),
    Rival(
        grad_cam,
        {
            "pytorch-grad-cam activations": ACTIVATION,
            "pytorch-grad-cam gradients, by place": GRADIENT,
        },
        graded=True,
    ),
    Rival(torchcam, {"torchcam hook_a": ACTIVATION, "torchcam hook_g": GRADIENT}, graded=True),
]


def measure(rival: Rival, subject: Subject) -> dict[str, Tally]:
    """Run a rival and compare all its values with the truth."""
    found: tuple[Values, ...] = ({},) * len(rival.finds)
    for _ in range(2):  # try again with a new model, in case the first caused the error
        crashed = ""
        try:
            found = rival.run(subject)
            break
        except Exception as error:
            crashed = f"{type(error).__name__}: {str(error).strip()[:120]}"
        subject.renew()
    for name, module in subject.model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            raise RuntimeError(f"{rival.run.__name__} left a hook on {name!r}")
    given = subject.graded if rival.graded else subject.ran
    truths = {name: subject.truths[name] for name in given}
    return {
        label: _tally(truths, quantity, values, crashed)
        for (label, quantity), values in zip(rival.finds.items(), found, strict=True)
    }


def _tally(truths: dict[str, list[Tensor]], quantity: str, values: Values, crashed: str) -> Tally:
    expected = {name: [_truth(call, quantity) for call in calls] for name, calls in truths.items()}
    tally = Tally(crashed=crashed)
    for name, wanted in expected.items():
        tally.calls += sum(each is not None for each in wanted)
        if not crashed:
            wrong, lost = _compare(wanted, values.get(name, []))
            tally.wrong, tally.lost = tally.wrong + wrong, tally.lost + lost
    return tally


def _truth(call: Tensor, quantity: str) -> Tensor | None:
    if quantity == ACTIVATION:
        return call
    return call.grad if quantity == GRADIENT or call.grad is None else call.grad * call


def _compare(wanted: list[Tensor | None], kept: list[Tensor]) -> tuple[int, int]:
    """Count wrong and lost calls.

    If there are as many values as calls, they are paired in order; otherwise each value is paired
    with a call that it equals.
    """
    if len(kept) == len(wanted):
        pairs = zip(wanted, kept, strict=True)
        return sum(truth is not None and not _close(truth, value) for truth, value in pairs), 0
    unused, unfit = list(kept), 0
    for truth in wanted:
        if truth is None:
            continue
        fits = (i for i, value in enumerate(unused) if _close(truth, value))
        place = next(fits, None)
        if place is None:
            unfit += 1
        else:
            del unused[place]
    wrong = min(unfit, len(unused))
    return wrong, unfit - wrong


def _close(truth: Tensor, value: Tensor) -> bool:
    if truth.shape != value.shape:
        return False
    return bool((truth - value).abs().amax() <= CLOSE * truth.abs().amax()) if len(truth) else True


def _for_captum(subject: Subject) -> tuple[Callable, Any]:
    """Return a forward function of tensors that returns one score, and its inputs."""
    given = subject.given
    if isinstance(given, list):
        return lambda *images: subject.score(subject.model(list(images))).reshape(1), tuple(given)
    return lambda images: subject.score(subject.model(images)).reshape(1), given


def _by_layer(order: list[str], values: list[Tensor]) -> Values:
    kept: Values = {}
    for name, value in zip(order, values, strict=False):
        kept.setdefault(name, []).append(value)
    return kept


@contextmanager
def _grads_kept(model: nn.Module) -> Iterator[None]:
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in grads:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, grad in grads:
            parameter.grad = grad
