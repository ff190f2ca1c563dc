"""One forward and one backward of a model as a graph of plain operations.

The class or the values of the output whose gradient is taken, and a factor for each channel, are
inputs of the graph: the graph is made once, and any target and any silenced channel is a run of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...files import without_half_characters
from ...hooking.functions import standing_in
from ...hooking.handles import Hook, HookManager
from ...hooking.interrupts import Block, uninterrupted
from ...hooking.maps import as_maps, channel_dimension
from ...hooking.select import first_names
from ...hooking.tensors import map_tensors, tensors
from ...run.output import Output
from ...run.session import Session
from ...run.target import Target, logits_of, score_of


class NetworkError(ValueError):
    """A model that a page cannot run; ``operation`` names the reason, empty if unknown."""

    def __init__(self, message: str, operation: str = "") -> None:
        super().__init__(message)
        self.operation = operation


@dataclass(frozen=True)
class NetworkLayer:
    """One call of a layer in an exported network.

    Attributes
    ----------
    name : str
        The module's name; of its second call ``name#1``.
    layer : str
        The module's name.
    call : int
        Counted from 0.
    shape : tuple of int
        Of what the layer returns for one sample, with the batch dimension.
    channels : int
        The number of its channels; 0 if they cannot be scaled.
    start : int
        The place of the first channel's factor in the input ``scales``.
    targets : tuple of str
        The inputs for whose scores a gradient reaches it: ``own``, the class or the run's target,
        and ``weights:0`` and so on.
    """

    name: str
    layer: str
    call: int
    shape: tuple[int, ...]
    channels: int
    start: int
    targets: tuple[str, ...] = ()

    @property
    def graded(self) -> bool:
        """True if a gradient reaches it, for any target."""
        return bool(self.targets)


@dataclass(frozen=True, eq=False)
class TracedNetwork:
    """A graph with its inputs and the names of its outputs.

    Attributes
    ----------
    graph : torch.fx.GraphModule
        Takes ``inputs`` in their order and returns a tuple of tensors.
    inputs : dict of str to torch.Tensor
        ``input`` ``(1, …)``; for a classifier with a backward ``classes`` ``(1, K)``, the weight of
        each class in the score, of which all are zero for the class with the largest logit;
        ``scales`` ``(S,)``, a factor for each channel of each layer. Where parts of the output can
        be targets, ``weights:0`` and so on, of the shapes of ``answer:0`` and so on, the weight of
        each of their values in the score, and ``own`` ``(1,)``, that of the class or of the run's
        target.
    outputs : list of str
        ``logits``, ``activation:NAME`` of each layer, ``gradient:NAME`` of those it reaches;
        ``answer:0`` and so on, the parts of the model's output that are shown as maps.
    layers : list of NetworkLayer
    """

    graph: torch.fx.GraphModule
    inputs: dict[str, Tensor]
    outputs: list[str]
    layers: list[NetworkLayer]


class _Forward(NamedTuple):
    """One forward: the calls of its layers in order, and what the graph returns of it."""

    calls: list[tuple[str, int]]  # names and numbers
    outputs: list[Tensor]
    sources: list[Tensor]  # whose gradients are those of the outputs
    logits: Tensor | None
    scores: dict[str, Tensor]
    shown: list[Tensor]


def trace_network(
    session: Session,
    names: Sequence[str],
    *,
    sample: int = 0,
    target: Target = None,
    backward: bool = True,
    answers: Sequence[Output] = (),
) -> TracedNetwork:
    """Trace a session's model on one of its samples.

    Parameters
    ----------
    session : Session
        Its edits are part of the graph.
    names : sequence of str
        The layers whose outputs and gradients are outputs of the graph.
    sample : int
        The index of the sample in the batch.
    target : optional
        The score of a model that is not a classifier; a classifier's is the sum of its logits
        weighted by the input ``classes``. Parts of the output add to it as they are weighted.
    backward : bool
        If false, the graph has no gradients.
    answers : sequence of Output
        Tensors of the model's output that are outputs of the graph as they are.

    Raises
    ------
    NetworkError
        The model takes something else than one tensor, computes in another precision than float32,
        or its code depends on a number that is taken from a tensor.
    """
    given = _one_tensor(session, sample)
    core = session.model
    modules = {name: module for module, name in first_names(core).items()}
    widths: dict[str, int] = {}
    starts: dict[str, int] = {}

    def forward(given: dict[str, Tensor]) -> _Forward:
        x, scales = given["input"], given.get("scales")
        calls: list[tuple[str, int]] = []
        outputs: list[Tensor] = []
        sources: list[Tensor] = []

        def after(name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            first = next(iter(tensors(output)), None)
            if first is None or not first.is_floating_point():
                return None
            call = sum(each == name for each, _ in calls)
            calls.append((name, call))
            kept = _scaled(first, module, scales, starts.get(name), widths.get(name, 0))
            outputs.append(kept)
            # A tensor that the layer only passes on may be used elsewhere, too.
            passed_on = any(first is each for each in tensors((args, kwargs)))
            sources.append(first if passed_on else kept)
            # The next layer may overwrite what it is given.
            return map_tensors(output, lambda each: kept.clone() if each is first else each)

        hooks: list[Hook] = [(modules[name], "forward", partial(after, name)) for name in names]
        with torch.enable_grad(), HookManager(hooks), standing_in(_pool_contiguous):
            x = x.detach().clone().requires_grad_()
            returned = session.call(x.clone())
        logits = logits_of(returned)
        shown = [each(returned) for each in answers]
        own = logits
        if logits is None:
            own = score_of(_at_sample(returned, sample, target), target, session.class_names)
        elif "classes" in given:
            own = logits * _weights(given["classes"], logits.detach())
        scores = {f"weights:{n}": each for n, each in enumerate(shown)} | {"own": own}
        scores = {n: each for n, each in scores.items() if each is not None and each.requires_grad}
        return _Forward(calls, outputs, sources, logits, scores, shown)

    def run(given: dict[str, Tensor]) -> tuple[Tensor, ...]:
        ran = forward(given)
        gradients = _gradients(ran.sources, ran.scores, given) if backward else []
        logits = [] if ran.logits is None else [ran.logits]
        return (*logits, *ran.outputs, *gradients, *ran.shown)

    with session.active():
        for parameter in core.parameters():
            parameter.requires_grad_(False)
        try:
            first = forward({"input": given})
            scores = first.scores if backward else {}
            reached = _reached(first.sources, scores)
        except RuntimeError as error:
            raise NetworkError(str(error)) from error
        total = 0
        for (name, call), output in zip(first.calls, first.outputs, strict=True):
            if call == 0:
                widths[name] = _width(output, modules[name])
                starts[name] = total
                total += widths[name]
        inputs = {"input": given}
        inputs |= _target_inputs(first.logits, scores)
        if total:
            inputs["scales"] = torch.ones(total, dtype=given.dtype, device=given.device)
        graph = _graph_of(run, inputs, session.name)
    layers = [
        NetworkLayer(
            # ONNX holds names in UTF-8.
            without_half_characters(name if call == 0 else f"{name}#{call}"),
            name,
            call,
            tuple(output.shape),
            widths[name],
            starts[name],
            targets,
        )
        for (name, call), output, targets in zip(first.calls, first.outputs, reached, strict=True)
    ]
    names_of = ["logits"] if first.logits is not None else []
    names_of += [f"activation:{each.name}" for each in layers]
    names_of += [f"gradient:{each.name}" for each in layers if each.graded]
    names_of += [f"answer:{number}" for number in range(len(answers))]
    return TracedNetwork(graph, inputs, names_of, layers)


def _reached(sources: list[Tensor], scores: dict[str, Tensor]) -> list[tuple[str, ...]]:
    """Return the names of the scores that send a gradient to each tensor."""
    found: list[tuple[str, ...]] = [()] * len(sources)
    for name, score in scores.items():
        every = torch.autograd.grad(score.sum(), sources, allow_unused=True, retain_graph=True)
        for number, each in enumerate(every):
            found[number] += () if each is None else (name,)
    return found


def _target_inputs(logits: Tensor | None, scores: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs that say what the gradients are of: at first the run's own target."""
    inputs = {}
    if logits is not None and "own" in scores:
        inputs["classes"] = torch.zeros_like(logits)
        inputs["classes"][0, int(logits[0].argmax())] = 1
    parts = [name for name in scores if name != "own"]
    inputs |= {name: torch.zeros_like(scores[name]) for name in parts}
    if parts and "own" in scores:
        inputs["own"] = torch.ones_like(scores["own"].detach().flatten()[:1])
    return inputs


def _gradients(
    sources: list[Tensor], scores: dict[str, Tensor], given: dict[str, Tensor]
) -> list[Tensor]:
    """Return the gradients of the weighted scores, of the tensors that they reach."""
    weighted = [(each * given[n] if n in given else each).sum() for n, each in scores.items()]
    if not weighted:
        return []
    every = torch.autograd.grad(sum(weighted[1:], weighted[0]), sources, allow_unused=True)
    return [each for each in every if each is not None]


def _at_sample(returned: Any, sample: int, target: Target) -> Any:
    """Return the output of one sample as that of a batch, in which a target names it by number."""
    if not sample or not callable(target):
        return returned

    def spread(each: Tensor) -> Tensor:
        return each.expand(sample + 1, *each.shape[1:]) if each.shape[:1] == (1,) else each

    return map_tensors(returned, spread)


def _pool_contiguous(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a function of torch; give contiguous values to adaptive mean poolings.

    PyTorch pools channels-last values, as ConvNeXt and Swin have them, to one place by strides in
    memory (``as_strided_``), whose backward (``as_strided_scatter``) ONNX lacks.
    """
    if function in (functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d):
        args = (args[0].contiguous(), *args[1:])
    return function(*args, **kwargs)


def _one_tensor(session: Session, sample: int) -> Tensor:
    """Return the sample as the model's one argument; refuse anything else."""
    given = session.inputs
    args = given.args
    if len(args) != 1 or given.kwargs or not isinstance(args[0], Tensor):
        raise NetworkError(
            f"{session.name} takes more than one tensor, which a page's network cannot: give a "
            "model of one tensor, or write the page with network=False."
        )
    kinds = {each.dtype for each in (*session.model.parameters(), args[0])}
    other = next((each for each in kinds if each != torch.float32), None)
    if other is not None:
        raise NetworkError(
            f"A page's network computes in float32, and {session.name} has values of {other}: "
            "give model.float(), or write the page with network=False."
        )
    return args[0][sample : sample + 1].detach()


def _weights(classes: Tensor, logits: Tensor) -> Tensor:
    """Return the classes' weights; if all are zero, 1 for the largest logit.

    >>> _weights(torch.zeros(1, 3), torch.tensor([[0.5, 2.0, 2.0]]))
    tensor([[0., 1., 0.]])
    """
    numbers = torch.arange(classes.shape[1], device=classes.device)
    likeliest = numbers == logits.argmax(1, keepdim=True)
    return torch.where((classes == 0).all(), likeliest.to(classes.dtype), classes)


def _width(output: Tensor, module: nn.Module) -> int:
    """Return the number of channels that can be scaled; 0 if none can."""
    try:
        as_maps(output.detach(), module)
    except ValueError:
        return 0
    return int(output.shape[channel_dimension(output, module)])


def _scaled(
    output: Tensor, module: nn.Module, scales: Tensor | None, start: int | None, width: int
) -> Tensor:
    if scales is None or start is None or not width:
        return output.clone()
    shape = [1] * output.ndim
    shape[channel_dimension(output, module)] = width
    return output * scales[start : start + width].reshape(shape)


def _graph_of(
    run: Callable[..., tuple[Tensor, ...]], inputs: dict[str, Tensor], name: str
) -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    order = list(inputs)

    def called(*values: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(order, values, strict=True))
        return run(given)

    try:
        # Fused kernels have no backward of plain operations.
        with Block([sdpa_kernel(SDPBackend.MATH)]):
            traced = make_fx(called, decomposition_table=_decompositions())
            # Cut short, torch would go on tracing for ever.
            graph = uninterrupted(traced, *inputs.values())
    except NetworkError:
        raise
    except Exception as error:
        operation = operation_in(str(error))
        asks = "_local_scalar_dense" in operation or "data-dependent" in str(error)
        why = "its code depends on a tensor's values" if asks else str(error).partition("\n")[0]
        raise refusal(name, why, operation) from error
    return graph.eval()


def refusal(name: str, why: str, operation: str = "") -> NetworkError:
    """Return the error for a model that cannot be exported.

    >>> print(refusal("Net", "ONNX lacks an operation", "aten.cummax"))
    Net cannot be written for a page: ONNX lacks an operation (aten.cummax). Write the page
    with network=False.
    """
    reason = f"{why} ({operation})" if operation else why
    sentence = f"{name} cannot be written for a page: {reason}. Write the page with network=False."
    return NetworkError(sentence, operation)


def operation_in(message: str) -> str:
    """Return the first operation of PyTorch that an error's message names; empty if none.

    >>> operation_in("No decomposition for <OpOverload(op='aten.cummax', overload='default')>")
    'aten.cummax'
    """
    named = re.search(r"\b(?:aten|prims|torchvision|quantized)(?:\.|::)\w+", message)
    return named.group().replace("::", ".") if named else ""


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's core decompositions, with a convolution's backward as a convolution."""
    from torch._decomp import core_aten_decompositions

    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    table[torch.ops.aten.convolution_backward.default] = convolution_backward
    table[torch.ops.aten._adaptive_avg_pool2d_backward.default] = adaptive_pool_backward
    table[torch.ops.aten.avg_pool2d_backward.default] = mean_pool_backward
    for forward, backward, options in UPSAMPLINGS:
        table[backward.default] = partial(upsampling_backward, forward.default, options)
    return table


def separable_backward(
    gradient: Tensor, size: Sequence[int], forward: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Compute the gradient with respect to the input of a pooling or upsampling, by two products.

    The operation is ``R x C^T``, where row and column weights are what it makes of a one among
    zeros; so its gradient is ``R^T g C``. ``forward`` runs it along one axis, 0 or 1.
    """
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

    sides = []
    with disable_proxy_modes_tracing():
        for axis in range(2):
            ones = torch.eye(size[axis - 2], dtype=gradient.dtype, device=gradient.device)
            sides.append(forward(ones[:, None, :, None], axis)[:, 0, :, 0].contiguous())
    return sides[0] @ gradient @ sides[1].mT


def adaptive_pool_backward(gradient: Tensor, given: Tensor) -> Tensor:
    """Compute the gradient of ``aten._adaptive_avg_pool2d``."""

    def pooled(ones: Tensor, axis: int) -> Tensor:
        return functional.adaptive_avg_pool2d(ones, (gradient.shape[axis - 2], 1))

    return separable_backward(gradient, given.shape, pooled)


def mean_pool_backward(
    gradient: Tensor,
    given: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Compute the gradient of ``aten.avg_pool2d``; one with a divisor of its own stays as it is."""
    if divisor_override:
        return NotImplemented

    def pooled(ones: Tensor, axis: int) -> Tensor:
        kernel, step, before = (
            each[axis % len(each)] for each in (kernel_size, stride or kernel_size, padding)
        )
        sides = (kernel, 1), (step, 1), (before, 0)
        return functional.avg_pool2d(ones, *sides, ceil_mode, count_include_pad)

    return separable_backward(gradient, given.shape, pooled)


def upsampling_backward(
    forward: Callable[..., Tensor],
    options: int,
    gradient: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *given: Any,
) -> Tensor:
    """Compute the gradient of an upsampling.

    The first ``options`` of ``given`` are the operation's own, and the scales of rows and columns
    follow.
    """
    scales = (*given[options:], None, None)

    def enlarged(ones: Tensor, axis: int) -> Tensor:
        return forward(ones, [output_size[axis], 1], *given[:options], scales[axis], None)

    return separable_backward(gradient, input_size, enlarged)


UPSAMPLINGS = (
    (torch.ops.aten.upsample_nearest2d, torch.ops.aten.upsample_nearest2d_backward, 0),
    (
        torch.ops.aten._upsample_nearest_exact2d,
        torch.ops.aten._upsample_nearest_exact2d_backward,
        0,
    ),
    (torch.ops.aten.upsample_bilinear2d, torch.ops.aten.upsample_bilinear2d_backward, 1),
    (torch.ops.aten.upsample_bicubic2d, torch.ops.aten.upsample_bicubic2d_backward, 1),
)
"""The operations of upsampling, their backward, and the number of options before their scales."""


def convolution_backward(
    gradient: Tensor,
    given: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute the gradients of a convolution by convolutions; None for those not in the mask.

    The gradient with respect to the input of a convolution is the transposed convolution with the
    same kernel, and the other way round (Dumoulin & Visin 2016, "A guide to convolution arithmetic
    for deep learning", 4). The output padding makes up for the last places that a stride leaves
    out: ``p_i = in_i - ((out_i - 1) * s_i - 2 * pad_i + d_i * (k_i - 1) + 1)``.

    The signature is that of ``aten.convolution_backward``.
    """
    back = weights = bias = None
    if output_mask[0]:
        extra = [0] * len(stride)
        if not transposed:
            ends = zip(given.shape[2:], gradient.shape[2:], weight.shape[2:], strict=True)
            extra = [
                i - ((o - 1) * stride[d] - 2 * padding[d] + dilation[d] * (k - 1) + 1)
                for d, (i, o, k) in enumerate(ends)
            ]
        back = torch.ops.aten.convolution(
            gradient, weight, None, stride, padding, dilation, not transposed, extra, groups
        )
    if output_mask[1]:
        sides = (gradient, given) if transposed else (given, gradient)
        weights = _kernel_gradient(*sides, weight.shape, stride, padding, dilation, groups)
    if output_mask[2]:
        bias = gradient.sum([0, *range(2, gradient.ndim)])
    return back, weights, bias


def _kernel_gradient(
    given: Tensor,
    gradient: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Compute the gradient with respect to the kernel of a convolution.

    It is the convolution of the input with the output's gradient, in which stride and dilation, and
    batch and channels, change places. Places of the input that a stride leaves out make it larger
    than the kernel.
    """
    grouped = given.reshape(len(given), groups, -1, *given.shape[2:]).transpose(0, 2)
    grouped = grouped.reshape(len(grouped), -1, *given.shape[2:])
    kernels = gradient.transpose(0, 1)
    axes = [0] * len(stride)
    found = torch.ops.aten.convolution(
        grouped, kernels, None, dilation, padding, stride, False, axes, groups
    )
    for axis, size in enumerate(shape[2:], 2):
        found = found.narrow(axis, 0, size)
    return found.transpose(0, 1)
