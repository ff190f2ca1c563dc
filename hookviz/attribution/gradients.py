"""Attributions: gradients of the score with respect to the input, pixel by pixel.

Captum computes them; it is an optional dependency, ``pip install "hookviz[attributions]"``. This
file adds restoring the model, one class per sample for all of a method's steps, reproducible noise,
and guided backpropagation that reaches every ReLU (see `GuidedReLUs`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..hooking.arguments import check_finite, check_number, whole_number
from ..hooking.functions import standing_in
from ..hooking.interrupts import Block
from ..hooking.select import check_model
from ..run.errors import refuse_quantized
from ..run.inputs import Transform
from ..run.inputs import prepare_input as prepare_input  # exported by `hookviz.attribution`
from ..run.session import Session, explains_overwritten, run_backward
from ..run.target import Target, check_target
from .cam import check_method
from .scorer import Scorer

NO_GRADIENT = (
    "The score does not depend on the input, so there is no gradient: see whether the model "
    "detaches or rounds its input, or runs under torch.no_grad()."
)


def baseline_like(name: str, given: Any, x: Tensor) -> Tensor:
    if not isinstance(given, Tensor):
        check_finite(name, given, "a number or a tensor of the input's shape")
    try:
        value = given.detach() if isinstance(given, Tensor) else torch.tensor(float(given))
        return value.to(x).expand_as(x).clone()
    except RuntimeError:
        raise ValueError(
            f"{name}= has shape {tuple(given.shape)}, which does not fit the input's "
            f"{tuple(x.shape)}: give a number or a tensor of the input's shape."
        ) from None


class GuidedReLUs(Block):
    """A block within which each ReLU passes on only the positive part of its gradient.

    Affected are ``nn.ReLU``, ``functional.relu``, ``torch.relu`` and ``Tensor.relu``, in place or
    not, used once or often. Not affected are other activations
    (ReLU6, LeakyReLU, GELU, hardswish), a ReLU written as ``clamp(min=0)``, and code that does not
    run in Python (TorchScript, C++).

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
    count = 0  # of ReLUs that ran within the block

    def __init__(self) -> None:
        super().__init__([standing_in(self._call)])

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = function(*args, **kwargs)
        if function in self.relus and result.requires_grad:
            self.count += 1
            result.register_hook(lambda gradient: gradient.clamp(min=0))
        return result


def attribute(
    model: nn.Module,
    inputs: Any,
    target: Target = None,
    *,
    method: str = "saliency",
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    **options: Any,
) -> Tensor:
    """Compute how much each value of the input moves the score, by one of ``ATTRIBUTIONS``.

    Parameters
    ----------
    model : torch.nn.Module
        Runs in eval mode with gradients; its state is restored exactly.
    inputs
        Whatever `hookviz.attribution.prepare_input` takes. Of several inputs the attribution is
        of the first floating-point tensor, ``(N, C, *spatial)``.
    target : optional
        None: each sample's own top class on the unchanged input; the class stays the same for
        noisy copies and on the path from a baseline. A class number or name: its
        logit. A tuple of classes: the first's logit less the others' mean. A list: one of these
        for each sample. A function output -> scalar: that score; it is called with the output for
        the whole batch, once per step. If it sums over independent samples, each sample gets its
        own gradient; ``output.mean()`` divides them by N. One of these as a text, as in
        `hookviz.explore`.
    method : str
        ``saliency``: the gradient's magnitude. ``smoothgrad``: the gradient's mean over noisy
        copies. ``integrated_gradients``: the gradient's mean on the path from a baseline, times
        the difference. ``guided_backprop``: the gradient, but only its positive part through each
        ReLU.
    weights, transform, class_names : optional
        As for `hookviz.explore`.
    **options
        The method's options, with captum's names:

        - saliency: ``abs=True``; False keeps the gradient's sign.
        - smoothgrad: ``nt_samples=25`` noisy copies; ``stdevs``, the noise's standard deviation
          (0.15 of the input's range if left out).
        - integrated_gradients: ``baselines=0``, a number or tensor (after normalization, 0 is the
          mean colour); ``n_steps=50``.

    Returns
    -------
    torch.Tensor
        ``(N, C, *spatial)``, the input's shape and dtype. Signed, other than saliency's.
        `picture_map` makes one map of the channels.

    Raises
    ------
    ImportError
        Captum is not installed.
    TypeError
        Not a module, not a target, or an option that the method lacks.
    ValueError
        Unknown method or class; an option's value, or an input, that cannot be used; a score
        that does not depend on the input; no ReLU for guided backpropagation.
    RuntimeError
        The model raised; the message names the layer.

    Examples
    --------
    >>> import hookviz
    >>> model, picture = hookviz.demo_model(), hookviz.demo_images()[0]
    >>> gradients = hookviz.attribute(
    ...     model, picture, "ball", method="integrated_gradients", n_steps=4
    ... )
    >>> gradients.shape
    torch.Size([1, 3, 112, 112])
    >>> hookviz.attribution.picture_map(gradients, "integrated_gradients").shape
    torch.Size([1, 112, 112])
    """
    check_model(model)
    check_method(method, ATTRIBUTIONS, "attribution")
    _check_options(method, options)
    target = check_target(target)
    captum()
    refuse_quantized(model)
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names
    )

    def run() -> Tensor:
        with session.active(), explains_overwritten(session.model):
            scorer = Scorer(session, target, 1)
            x, samples = scorer.pictures.detach().clone(), torch.arange(len(scorer.pictures))
            attribution = _METHODS[method](scorer, x, samples, **options)
            return attribution.detach().to(x.dtype)

    return session.observed(run)


def picture_map(attribution: Tensor, method: str = "saliency") -> Tensor:
    """Combine the channels' attributions into one map for each sample.

    Parameters
    ----------
    attribution : torch.Tensor
        ``(N, C, *spatial)``, from `attribute`.
    method : str
        The method that computed it. ``saliency``: the largest magnitude over the channels, as
        Simonyan et al. 2013 do for colour pictures. The signed ones: the sum over the channels,
        so that a map of integrated gradients still adds up to the score's difference.

    Returns
    -------
    torch.Tensor
        ``(N, *spatial)``: from 0 up for saliency, signed for the others.

    Raises
    ------
    ValueError
        Unknown method, or a tensor without channels.

    Examples
    --------
    >>> import torch, hookviz
    >>> attribution = torch.tensor([[[1.0, 0.0]], [[-3.0, 2.0]]]).mT  # (N, C, L) = (2, 2, 1)
    >>> hookviz.attribution.picture_map(attribution)
    tensor([[1.],
            [3.]])
    >>> hookviz.attribution.picture_map(attribution, "smoothgrad")
    tensor([[ 1.],
            [-1.]])
    """
    check_method(method, ATTRIBUTIONS, "attribution")
    if attribution.ndim < 2:
        raise ValueError(
            f"An attribution of shape {tuple(attribution.shape)} has no channels: give "
            "(N, C, *spatial), as attribute() returns it."
        )
    return attribution.abs().amax(1) if method == "saliency" else attribution.sum(1)


def _gradients(
    scorer: Scorer, forward_fn: Any, inputs: Any, target_ind: Any, additional_forward_args: Any
) -> tuple[Tensor, ...]:
    """Compute the gradient of the scores at the input, for captum."""
    (x,), (samples,) = inputs, additional_forward_args
    while True:
        score, found = scorer.score(x, samples).sum(), list[Tensor]()
        if not score.requires_grad:
            raise ValueError(NO_GRADIENT)
        x.register_hook(found.append)
        if run_backward(score, [x], scorer.session.model, scorer.source) is not None:
            break
        scorer.source = "everything"
    if not found:
        raise ValueError(NO_GRADIENT)
    return (found[0],)


# The methods. Captum repeats the indices of the samples as it repeats the samples ``x``.


def _saliency(scorer: Scorer, x: Tensor, samples: Tensor, *, abs: bool = True) -> Tensor:
    """Compute the gradient's magnitude.

    ``|dS/dx|``, Simonyan, Vedaldi and Zisserman 2013, "Deep Inside Convolutional Networks:
    Visualising Image Classification Models and Saliency Maps".
    """
    x.requires_grad_()
    method = captum().Saliency(scorer.score)
    method.gradient_func = partial(_gradients, scorer)
    return method.attribute(x, additional_forward_args=(samples,), abs=abs)


def _smoothgrad(
    scorer: Scorer,
    x: Tensor,
    samples: Tensor,
    *,
    nt_samples: int = 25,
    stdevs: float | None = None,
) -> Tensor:
    """Compute the gradient's mean over noisy copies.

    ``1/n sum_i dS/dx(x + e_i)`` with ``e_i ~ N(0, stdevs**2)``, Smilkov et al. 2017, "SmoothGrad:
    removing noise by adding noise"; they recommend 10 to 20 % of the input's range.
    """
    if stdevs is not None:
        check_number("stdevs", stdevs)
    copies = whole_number("nt_samples", nt_samples)
    low, high = x.flatten(1).aminmax(dim=1)
    spread = 0.15 * (high - low) if stdevs is None else torch.full_like(low, stdevs)
    spread = spread.view(-1, *[1] * (x.ndim - 1))
    generator, total = torch.Generator(x.device).manual_seed(0), torch.zeros_like(x)
    for _ in range(copies):
        # The same for each sample, whose map must not depend on the rest of the batch.
        noise = torch.randn(x[:1].shape, generator=generator, device=x.device).to(x)
        total += _saliency(scorer, x + spread * noise, samples, abs=False)
    return total / copies


def _integrated_gradients(
    scorer: Scorer,
    x: Tensor,
    samples: Tensor,
    *,
    baselines: float | Tensor = 0,
    n_steps: int = 50,
) -> Tensor:
    """Compute the gradient's mean on the path from a baseline b, times the difference.

    ``(x - b) * integral_0^1 dS/dx(b + t * (x - b)) dt``, Sundararajan, Taly and Yan 2017,
    "Axiomatic Attribution for Deep Networks"; by the Gauss-Legendre rule with ``n_steps`` points.
    It is complete: its sum is ``S(x) - S(b)``, up to the rule's error, which in a deep network of
    ReLUs shrinks slowly: for the demo model about 10 % with 50 points, 2 % with 200.
    """
    method = captum().IntegratedGradients(scorer.score)
    method.gradient_func = partial(_gradients, scorer)
    return method.attribute(
        x,
        baselines=baseline_like("baselines", baselines, x),
        additional_forward_args=(samples,),
        n_steps=whole_number("n_steps", n_steps),
        # A function as target must not get several copies of the batch as if they were one.
        internal_batch_size=len(x),
    )


def _guided_backprop(scorer: Scorer, x: Tensor, samples: Tensor) -> Tensor:
    """Compute the gradient, of which each ReLU passes only the positive part.

    ``R_l = [f_l > 0] * max(R_{l+1}, 0)``, Springenberg et al. 2014, "Striving for Simplicity: The
    All Convolutional Net". `GuidedReLUs` lists the affected functions.
    """
    with GuidedReLUs() as guided:
        gradient = _saliency(scorer, x, samples, abs=False)
    if scorer.source == "everything":
        raise ValueError(
            "Guided backpropagation does not reach the ReLUs in checkpoint(…, use_reentrant=True): "
            "set use_reentrant=False, or take method='saliency'."
        )
    if not guided.count:
        raise ValueError(
            "No ReLU ran, and without one guided backpropagation is the plain gradient "
            "(ReLU6, GELU, SiLU and scripted code do not count): use method='saliency'."
        )
    return gradient


_METHODS: dict[str, Callable[..., Tensor]] = {
    "saliency": _saliency,
    "smoothgrad": _smoothgrad,
    "integrated_gradients": _integrated_gradients,
    "guided_backprop": _guided_backprop,
}
ATTRIBUTIONS = tuple(_METHODS)
"""The names of the methods of `attribute`."""


def captum() -> Any:
    try:
        import captum.attr
    except ImportError as error:
        raise ImportError(
            f'Attributions need captum, which cannot be imported ({error}): pip install "hookviz'
            '[attributions]".'
        ) from error
    return captum.attr


def _check_options(method: str, options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(_METHODS[method]).parameters.values()
    known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise TypeError(
                f"Unknown option {name!r} of {method!r}; it has {', '.join(known) or 'none'}."
            )
