"""Heatmaps of (activation, gradient): one short function per method.

Every method is a pure function of one layer's activation A and of the gradient G of the
score with respect to it, both ``(N, C, *spatial)``: one forward and one backward serve all
layers and all methods. Values are raw, at the layer's own size. Where a method's paper takes
the positive part, so does the function; the others are signed.
`hookviz.widgets.Explorer.code` prints these functions verbatim.

The packages compared with these, pytorch-grad-cam, torchcam and captum, agree on ``gradcam``,
``xgradcam`` and ``layercam``; they take the positive part of everything and scale the map to 0..1,
hookviz does neither. Each method's docstring notes other differences.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn

from ..hooking.maps import as_maps
from ..hooking.records import Call, FeatureCache, LayerRecord
from ..hooking.select import close_names
from ..hooking.tensors import at_least_float32
from .attention import Attention, prefix_of

Method = Callable[..., Tensor]


def heatmap(
    record: LayerRecord | Call | Attention,
    method: str = "gradcam",
    *,
    grid: tuple[int, ...] | None = None,
) -> Tensor:
    """Compute where in a layer the score comes from.

    Parameters
    ----------
    record : LayerRecord, Call or Attention
        From a `hookviz.capture` in which a backward ran; for a record, its last call. Or all
        attention of a vision transformer, from `hookviz.attention`.
    method : str
        One of ``hookviz.attribution.HEATMAPS``: ``gradcam``, ``gradcam++``, ``hirescam``,
        ``xgradcam``, ``layercam``, ``eigencam``, ``eigengradcam``, ``gradient`` or ``activation``.
        With attention one of ``hookviz.attribution.ATTENTION_HEATMAPS``: ``rollout``,
        ``gradient × attention`` or ``legrad``.
    grid : tuple of int, optional
        Rows and columns of a token layer's patches (vision transformers), if they are not a
        square and the model's first layer does not determine them.

    Returns
    -------
    torch.Tensor
        ``(N, *spatial)``, float32 or float64, on the activation's device; of attention ``(N, rows,
        columns)`` on the patches.

    Raises
    ------
    ValueError
        Unknown method, missing gradient, or the layer's output cannot be
        arranged as maps; not all patches look at all (Swin's windows).
    TypeError
        ``record`` is none of these.

    Notes
    -----
    A vision transformer that classifies by its class token sends no gradient to the patches of its
    last block: use an earlier one. Behind a LayerNorm the channels' mean gradient is zero but
    for rounding, so ``gradient`` says nothing there.

    A complex layer is a real one with twice the channels: the real and the imaginary parts, whose
    gradients are the parts of torch's ``G = dS/dRe(A) + i dS/dIm(A)``. So ``hirescam`` is
    ``sum_c Re(conj(G_c) * A_c)`` and ``gradcam`` ``relu(sum_c Re(conj(mean(G_c)) * A_c))``. These
    two and ``eigencam`` do not depend on the phase of a channel; the other methods do.

    Examples
    --------
    >>> import torch, hookviz
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.Flatten())
    >>> with hookviz.capture(model) as cache:
    ...     model(torch.rand(2, 3, 6, 6)).sum().backward()
    >>> hookviz.heatmap(cache["0"], "layercam").shape
    torch.Size([2, 4, 4])

    A method of your own is one line:

    >>> hookviz.attribution.HEATMAPS["max"] = lambda activation, gradient=None: activation.amax(1)
    >>> hookviz.heatmap(cache["0"], "max").shape
    torch.Size([2, 4, 4])
    >>> del hookviz.attribution.HEATMAPS["max"]
    """
    if isinstance(record, Attention):
        check_method(method, ATTENTION_HEATMAPS, "heatmap of attention")
        return ATTENTION_HEATMAPS[method](record)
    if isinstance(record, nn.Module):
        raise TypeError(
            "A heatmap is of a captured layer, not of a model: run the model within "
            "hookviz.capture, and give one of the records, as cache['layer1']."
        )
    check_method(method, HEATMAPS)
    if isinstance(record, FeatureCache):
        if not record:
            raise ValueError(
                "No layer has run in this capture: call the model, and backward() of a score, "
                "within its block."
            )
        raise TypeError(
            f"A heatmap is of one layer, and this is a capture of {len(record)}: give one of its "
            f"records, as cache[{next(iter(record))!r}]."
        )
    if not isinstance(record, LayerRecord | Call):
        raise TypeError(
            f"record= is of type {type(record).__name__}: give a layer of a capture, such as "
            "cache['layer4'], or what hookviz.attention returned."
        )
    call = record.last if isinstance(record, LayerRecord) else record
    grid = grid or call.grid
    maps = at_least_float32(as_maps(call.activation, call.module, grid))
    gradient = call.gradient
    if gradient is not None:
        gradient = at_least_float32(as_maps(gradient, call.module, grid))
    elif needs_gradient(method):
        without = ", ".join(repr(name) for name in HEATMAPS if not needs_gradient(name))
        raise ValueError(
            f"No gradient reached layer {call.layer!r}, which {method!r} needs: run "
            f"score.backward() within the capture's block, or take one of {without}."
        )
    function = HEATMAPS[method]
    if maps.is_complex():
        maps, gradient = as_pairs(maps), None if gradient is None else as_pairs(gradient)
    return function(maps) if len(_parameters(function)) == 1 else function(maps, gradient)


def as_pairs(maps: Tensor) -> Tensor:
    """Replace complex channels by twice as many real ones: real parts, then imaginary parts."""
    return torch.cat([maps.real, maps.imag], 1)


def check_method(method: str, known: Collection[str], kind: str = "heatmap") -> None:
    """Raise ``ValueError`` for a method that is not among the ``known`` ones of its kind."""
    if method not in known:
        raise ValueError(f"Unknown {kind} method={method!r}; {close_names(str(method), known)}.")


def needs_gradient(method: str) -> bool:
    """Return whether a method's second argument is a gradient without a default."""
    parameters = _parameters(HEATMAPS[method])
    return len(parameters) > 1 and parameters[1].default is inspect.Parameter.empty


def needs_target(method: str) -> bool:
    """Return whether a heatmap depends on the target.

    >>> needs_target("gradcam"), needs_target("eigencam"), needs_target("rollout")
    (True, False, False)
    """
    return method != "rollout" and (method not in HEATMAPS or needs_gradient(method))


@functools.lru_cache(maxsize=256)
def _parameters(function: Method) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def gradcam(activation: Tensor, gradient: Tensor) -> Tensor:
    """Compute Grad-CAM: channels weighted by their mean gradient.

    ``relu(sum_c mean(G_c) * A_c)``, Selvaraju et al. 2017, "Grad-CAM: Visual Explanations from
    Deep Networks via Gradient-based Localization", equations 1 and 2.
    """
    weights = gradient.flatten(2).mean(2)
    # A matrix product: writing all weighted maps would be bound by memory bandwidth.
    return torch.einsum("nc,nc...->n...", weights, activation).relu()


def gradcam_plus_plus(activation: Tensor, gradient: Tensor) -> Tensor:
    """Compute Grad-CAM++: positive gradients, weighted so that several objects count alike.

    ``relu(sum_c w_c * A_c)`` with ``w_c = sum(alpha * relu(G_c))`` and ``alpha = G**2 /
    (2 * G**2 + sum(A_c) * G**3)``, Chattopadhyay et al. 2018, "Grad-CAM++: Generalized
    Gradient-based Visual Explanations for Deep Convolutional Networks", equations 10 and 19:
    with the exponential of the score as class score, higher derivatives are powers of G.

    Notes
    -----
    ``alpha`` is computed as ``1 / (2 + sum(A_c) * G)``, and is 0 where G is. pytorch-grad-cam adds
    1e-6 to the longer fraction's denominator, which damps gradients below 1e-3; for larger ones it
    agrees. torchcam 0.5.0 leaves the division out.
    """
    maps, gradients = activation.flatten(2), gradient.flatten(2)
    alpha = 1 / (2 + maps.sum(2, keepdim=True) * gradients)
    alpha = alpha.masked_fill((gradients == 0) | alpha.isinf(), 0)
    weights = (alpha * gradients.relu()).sum(2, keepdim=True)
    return (weights * maps).sum(1).relu().unflatten(1, activation.shape[2:])


def hirescam(activation: Tensor, gradient: Tensor) -> Tensor:
    """Compute HiResCAM: gradient times activation, position by position.

    ``sum_c G_c * A_c``, signed, Draelos and Carin 2020, "Use HiResCAM instead of Grad-CAM for
    faithful explanations of convolutional neural networks". pytorch-grad-cam keeps the
    positive part only.
    """
    return (gradient * activation).sum(1)


def xgradcam(activation: Tensor, gradient: Tensor) -> Tensor:
    """Compute XGrad-CAM: channels weighted by their gradient, averaged by activation.

    ``relu(sum_c w_c * A_c)`` with ``w_c = sum(G_c * A_c) / sum(A_c)``, Fu et al. 2020,
    "Axiom-based Grad-CAM: Towards Accurate Visualization and Explanation of CNNs", equation 8.

    Notes
    -----
    The paper's layers are behind a ReLU. A convolution's own output has both signs, so that
    ``sum(A_c)`` may be near zero and the weight very large: prefer another method there. A channel
    whose sum is exactly zero gets the weight 0; the peers add 1e-7 or 1e-8 instead.
    """
    maps = activation.flatten(2)
    total = maps.sum(2, keepdim=True)
    weights = (gradient.flatten(2) * maps).sum(2, keepdim=True) / total
    weights = weights.where(total != 0, 0)
    return (weights * maps).sum(1).relu().unflatten(1, activation.shape[2:])


def layercam(activation: Tensor, gradient: Tensor) -> Tensor:
    """Compute LayerCAM: positive gradient times activation at each position; for early layers.

    ``relu(sum_c relu(G_c) * A_c)``, Jiang et al. 2021, "LayerCAM: Exploring Hierarchical Class
    Activation Maps for Localization", equations 5 and 6.
    """
    return (gradient.relu() * activation).sum(1).relu()


def eigencam(activation: Tensor, gradient: Tensor | None = None) -> Tensor:
    """Compute Eigen-CAM: the activation's first principal component, whatever the class.

    Each position's channels, centred, projected on the first right singular vector of the
    ``(positions, C)`` matrix, Muhammad and Yeasin 2020, "Eigen-CAM: Class Activation Map using
    Principal Components".

    Notes
    -----
    A component's sign is arbitrary: here the value of largest magnitude is positive. As in
    pytorch-grad-cam, but not in the paper, each channel's mean over the positions is subtracted
    first; without that the component mostly repeats the mean activation.
    """
    return first_component(activation)


def eigengradcam(activation: Tensor, gradient: Tensor) -> Tensor:
    """Compute Eigen-Grad-CAM: `eigencam` of gradient times activation, so that the class counts.

    Introduced by pytorch-grad-cam; there is no paper.
    """
    return first_component(gradient * activation)


def first_component(maps: Tensor) -> Tensor:
    """Project each position's centred channels on the direction of largest variance.

    ``(N, C, *spatial)`` to ``(N, *spatial)``; the value of largest magnitude is positive.
    """
    channels = maps.flatten(2)  # (N, C, places)
    channels = channels - channels.mean(2, keepdim=True)
    peaks = channels.abs().amax((1, 2), keepdim=True)
    # The first singular vector is the first eigenvector of the smaller product of the
    # matrix with itself, at a fraction of the cost. Scaled, no square leaves the range.
    scaled = channels / peaks.clamp(min=1e-30)
    wide = channels.shape[1] > channels.shape[2]
    products = scaled.mT @ scaled if wide else scaled @ scaled.mT
    # Decomposing NaN is an error: such a sample is zeroed here and NaN in the result.
    finite = peaks.isfinite()
    products = products.where(finite, 0).cpu().double()
    vectors = torch.linalg.eigh(products).eigenvectors[..., -1:].to(channels)
    direction = scaled @ vectors if wide else vectors  # (N, C, 1)
    length = direction.norm(dim=1, keepdim=True).clamp(min=1e-30)
    component = ((direction / length).mT @ channels).squeeze(1)
    peak = component.gather(1, component.abs().argmax(1, keepdim=True))
    component = torch.where(peak < 0, -component, component)  # its sign is arbitrary
    component = component.where(finite.squeeze(2), torch.nan)
    return component.unflatten(1, maps.shape[2:])


def mean_gradient(activation: Tensor, gradient: Tensor) -> Tensor:
    """Compute the gradient's mean over channels, signed: ``mean_c G_c``."""
    return gradient.mean(1)


def mean_activation(activation: Tensor, gradient: Tensor | None = None) -> Tensor:
    """Compute the activation's mean over channels, signed: ``mean_c A_c``, whatever the class."""
    return activation.mean(1)


HEATMAPS: dict[str, Method] = {
    "gradcam": gradcam,
    "gradcam++": gradcam_plus_plus,
    "hirescam": hirescam,
    "xgradcam": xgradcam,
    "layercam": layercam,
    "eigencam": eigencam,
    "eigengradcam": eigengradcam,
    "gradient": mean_gradient,
    "activation": mean_activation,
}
"""Method name -> function ``(activation, gradient) -> (N, *spatial)``. Add your own.

For a complex layer it gets the real and imaginary parts as channels, see `hookviz.heatmap`. Methods
that have to run the model, `hookviz.attribution.scorecam` and `hookviz.attribution.ablationcam`,
are called by themselves.
"""


METHOD_NAMES = {
    "gradcam": "Grad-CAM",
    "gradcam++": "Grad-CAM++",
    "gradcam weight": "Grad-CAM weight",
    "hirescam": "HiResCAM",
    "xgradcam": "XGrad-CAM",
    "layercam": "LayerCAM",
    "eigencam": "Eigen-CAM",
    "eigengradcam": "Eigen-Grad-CAM",
    "scorecam": "Score-CAM",
    "ablationcam": "Ablation-CAM",
    "legrad": "LeGrad",
    "smoothgrad": "SmoothGrad",
    "integrated_gradients": "integrated gradients",
    "guided_backprop": "guided backpropagation",
}
"""Names of heatmaps and orders as papers write them, where they differ from those in Python."""


def method_name(method: str) -> str:
    """Return the name of a method as papers write it.

    >>> method_name("layercam"), method_name("rollout")
    ('LayerCAM', 'rollout')
    """
    return METHOD_NAMES.get(method, method)


# Of attention: functions of the weights A of all layers in which all tokens attend to all, and of
# the score's gradients G at them, both (N, heads, T, T). The result is read from the row of the
# class token, the first of all tokens; without one, it is the mean over the patches.


NO_ATTENTION_GRADIENT = "No gradient reaches any attention: give a target that depends on it."


def rollout(maps: Attention) -> Tensor:
    """Attention rollout: how much of each patch has flowed to the class token, for any class.

    The row of the class token in ``Â_L … Â_2 Â_1`` with ``Â = (mean over heads of A + I) / 2``,
    Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.1.

    Notes
    -----
    Popular code also sets small weights to zero (``discard_ratio``); the paper does not.
    """
    means = [weights.mean(1) for weights in _square(maps).values()]
    mixed = [(mean + torch.eye(mean.shape[-1]).to(mean)) / 2 for mean in means]
    return _read(maps, functools.reduce(lambda flow, layer: layer @ flow, mixed))


def gradient_attention(maps: Attention) -> Tensor:
    """Gradient × attention: each patch's relevance for the target, followed through all layers.

    The row of the class token in ``R``, which starts as the identity and becomes ``R + Ā R`` at
    each layer, with ``Ā = mean over heads of relu(G * A)``; Chefer, Gur and Wolf 2021, "Generic
    Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers",
    equations 5 and 6, for self-attention.
    """
    square = _square(maps)
    passed = [
        (gradient * square[name]).relu().mean(1)
        for name, gradient in maps.gradients.items()  # not of layers without an effect on the score
        if name in square
    ]
    if not passed:
        raise ValueError(NO_ATTENTION_GRADIENT)
    relevance = torch.eye(passed[0].shape[-1]).to(passed[0]).expand_as(passed[0])
    for each in passed:
        relevance = relevance + each @ relevance
    return _read(maps, relevance)


def legrad(maps: Attention) -> Tensor:
    """LeGrad: the gradient of the score at the weights of each patch, averaged over all layers.

    ``mean over layers, heads and queries of relu(dS_l/dA_l)``, where ``S_l`` is the score that the
    model would compute if layer l were its last one; Bousselham et al. 2024, "LeGrad: An
    Explainability Method for Vision Transformers via Feature Formation Sensitivity", equations 5
    to 8. The model runs once for each layer.

    Notes
    -----
    ``S_l`` is computed from the class token or from the mean of the tokens, as the model does it.
    The authors' code for CLIP takes the mean of all tokens, and scales the map to 0..1.
    """
    square = _square(maps)  # raises for windows, before the model runs for the gradients
    gradients = maps.layer_gradients
    found = [gradients[name].relu().mean((1, 2)) for name in square if name in gradients]
    if not found:
        raise ValueError(NO_ATTENTION_GRADIENT)
    return _on_patches(maps, torch.stack(found).mean(0))


ATTENTION_HEATMAPS: dict[str, Callable[[Attention], Tensor]] = {
    "rollout": rollout,
    "gradient × attention": gradient_attention,
    "legrad": legrad,
}
"""Method name -> function of an `Attention` -> ``(N, rows, columns)``."""


def _square(maps: Attention) -> dict[str, Tensor]:
    """Return the layers in which all tokens attend to all, in the order in which they ran."""
    found = {
        name: weights
        for name, weights in maps.items()
        if weights.shape[-2] == weights.shape[-1]
        and prefix_of(weights.shape[-1], maps.grid) is not None
    }
    sizes = {(len(each), each.shape[-1]) for each in found.values()}
    if len(sizes) != 1:
        raise ValueError(
            f"In {maps.model} some layers do not attend over all patches: such a heatmap needs the "
            "same tokens in every layer, as in ViT; see one layer with patches() or figure()."
        )
    return found


def _read(maps: Attention, matrix: Tensor) -> Tensor:
    """Return the row of the class token in ``(N, T, T)``, or the mean over the patches."""
    before = prefix_of(matrix.shape[-1], maps.grid)
    return _on_patches(maps, matrix[:, 0] if before else matrix.mean(1))


def _on_patches(maps: Attention, tokens: Tensor) -> Tensor:
    before = prefix_of(tokens.shape[-1], maps.grid)
    assert before is not None and maps.grid is not None
    return tokens[:, before:].unflatten(1, maps.grid)
