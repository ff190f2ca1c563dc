"""Does a heatmap depend on the model's weights at all? Compare it as the weights are shuffled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..hooking.arguments import whole_number
from ..hooking.handles import HookManager
from ..hooking.interrupts import Block, defer_interrupts
from ..hooking.select import check_model, is_convolution, select_layer
from ..hooking.weights import is_packed
from ..run.errors import refuse_quantized
from ..run.inputs import Transform
from ..run.progress import Progress
from ..run.session import Session
from ..run.target import Target, check_target
from ..tables import Tabular, number, plain
from .attention import attention, top_classes
from .cam import (
    ATTENTION_HEATMAPS,
    HEATMAPS,
    check_method,
    heatmap,
    method_name,
    needs_gradient,
    needs_target,
)
from .gradients import ATTRIBUTIONS, NO_GRADIENT, attribute, picture_map

if TYPE_CHECKING:
    from ..draw.figures import ShownFigure

SAME = 0.5
"""The least rank correlation with which a heatmap of shuffled weights counts as the same."""


def sanity_check(
    model: nn.Module,
    inputs: Any,
    method: str = "gradcam",
    layer: str | nn.Module | None = None,
    target: Target = None,
    *,
    steps: int = 20,
    seed: int = 0,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
) -> SanityCheck:
    """Measure how a heatmap changes while the weights are randomised, layer by layer.

    The cascading randomisation of Adebayo et al. 2018, "Sanity Checks for Saliency Maps": beginning
    with the last layer, the weights of one layer after another are shuffled, and after each step
    the heatmap is compared with the original one. A heatmap that explains the model must change;
    one that stays shows the picture's edges, whatever the model has learned.

    Parameters
    ----------
    model : torch.nn.Module
        A copy of it is randomised: the model itself is untouched. Runs in eval mode.
    inputs
        As in `hookviz.explore`.
    method : str
        A heatmap of a layer (``hookviz.attribution.HEATMAPS``), of the input
        (``hookviz.attribution.ATTRIBUTIONS``), or of attention
        (``hookviz.attribution.ATTENTION_HEATMAPS``).
    layer : str or torch.nn.Module, optional
        The layer of a heatmap from ``HEATMAPS``; the last convolution with more than one position
        if left out.
    target : optional
        As in `hookviz.explore`. None is each sample's top class with the original weights; the
        class stays the same in all steps.
    steps : int
        The most steps. With more layers than that, several are shuffled at a time.
    seed : int
        Of the shuffling.
    weights, transform, class_names : optional
        As in `hookviz.explore`.

    Returns
    -------
    SanityCheck
        Rank correlation and structural similarity at each step, a curve and a verdict.

    Raises
    ------
    ValueError
        Unknown method, layer or class; ``steps`` below 1; a model without weights or with
        quantized ones; a layer that does not always run; a score that does not depend on it; a
        heatmap that is the same everywhere.
    RuntimeError
        The model raised; the message names the layer.

    Notes
    -----
    Each parameter's values are permuted, so that their distribution stays; the paper draws new ones
    as before training. Parameters whose values are all alike, such as zero biases, do not change.
    Compared are the magnitudes of the heatmap's values: with random weights the sign is arbitrary.

    Examples
    --------
    >>> import hookviz
    >>> model, picture = hookviz.demo_model(), hookviz.demo_images()[0]
    >>> check = hookviz.metrics.sanity_check(model, picture, "gradcam", steps=3)
    >>> len(check.layers), check.correlations.shape
    (3, torch.Size([4, 1]))
    """
    check_model(model)
    whole_number("steps", steps)
    whole_number("seed", seed, 0)
    target = check_target(target)
    refuse_quantized(model)
    for name, parameter in model.named_parameters():
        if is_packed(parameter):
            raise ValueError(
                f"{name!r} is quantized ({type(parameter).__name__}) and cannot be shuffled: take "
                "the float model that was quantized."
            )
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names
    )
    if target is None and needs_target(method):
        target = top_classes(session)
    compute = _heatmap_of(method, layer, target, session)
    order = _from_last_to_first(session)
    if not order:
        raise ValueError("The model has no weights, so its heatmaps cannot depend on them.")
    size = -(-len(order) // steps)
    groups = [order[first : first + size] for first in range(0, len(order), size)]
    twin = _copy_of(session.given)
    shuffled = Session(twin, session.inputs, weights=weights, class_names=class_names)
    generator = torch.Generator().manual_seed(seed)
    original = compute(session).abs().cpu()
    if not (original.flatten(1).amax(1) > original.flatten(1).amin(1)).all():
        raise ValueError(
            f"The heatmap by {method!r} is the same everywhere, so that it cannot change: take "
            "another target or layer."
        )
    maps = [original]
    with Progress() as progress:
        for done, group in enumerate(groups, 1):
            for name in group:
                _shuffle(shuffled.model.get_submodule(name), generator)
            maps.append(compute(shuffled).abs().cpu())
            progress.update(done / len(groups))
    return SanityCheck(method, [", ".join(group) for group in groups], torch.stack(maps))


def _copy_of(model: nn.Module) -> nn.Module:
    """Copy a model; where a hook computes a weight, its last result is copied without its graph."""
    tensors = [t for m in model.modules() for t in vars(m).values() if isinstance(t, Tensor)]
    done = {id(t): t.detach().clone() for t in tensors if not t.is_leaf}
    # Torch switches gradients off for each tensor: an interrupt could leave them off.
    with Block([torch.set_grad_enabled(torch.is_grad_enabled())]):
        return copy.deepcopy(model, done)


def _heatmap_of(
    method: str, layer: str | nn.Module | None, target: Target, session: Session
) -> Callable[[Session], Tensor]:
    """Return the function that computes the heatmap ``(N, *spatial)`` of a session's model."""
    if method in ATTRIBUTIONS:

        def of_input(s: Session) -> Tensor:
            names = s.class_names
            found = attribute(s.given, s.inputs, target, method=method, class_names=names)
            # A table (N, columns) has no positions: each column has its own value.
            return found if found.ndim == 2 else picture_map(found, method)

        return of_input
    if method in ATTENTION_HEATMAPS:
        return lambda s: heatmap(attention(s.given, s.inputs, target=target), method)
    if method not in HEATMAPS:
        check_method(method, [*HEATMAPS, *ATTRIBUTIONS, *ATTENTION_HEATMAPS])
    chosen = _last_layer(session) if layer is None else select_layer(session.given, layer)[1]

    def of_layer(s: Session) -> Tensor:
        run = s.run(target, layers=chosen)
        if chosen not in run.cache:
            when = (
                "in eval mode"
                if s is session
                else "after the weights were shuffled, which changes the model's choice of layers"
            )
            raise ValueError(f"Layer {chosen!r} did not run {when}: take one that always runs.")
        record = run.cache[chosen]
        if needs_gradient(method) and record.gradient is None:
            raise ValueError(
                f"The score does not depend on layer {chosen!r}: give another one as layer=."
                if run.scored
                else NO_GRADIENT
            )
        return heatmap(record, method)

    return of_layer


def _last_layer(session: Session) -> str:
    """Return the name of the last convolution whose maps have more than one position."""
    cache = session.run(layers=None).cache
    with_positions = [
        name
        for name, record in cache.items()
        if is_convolution(record.module) and record.activation.shape[2:].numel() > 1
    ]
    if not with_positions:
        raise ValueError("No convolution returns maps with positions: give layer=.")
    return with_positions[-1]


def _from_last_to_first(session: Session) -> list[str]:
    """Return the names of the modules with weights, the last to run first.

    A module that another one uses without calling it, such as the output projection of
    `torch.nn.MultiheadAttention`, runs with the nearest module around it.
    """
    named = dict(session.model.named_modules())
    ran: dict[nn.Module, int] = {}

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        ran[module] = len(ran)

    session.forward(
        lambda: HookManager((module, "forward_pre", note) for module in named.values()), grad=False
    )

    def place(name: str) -> int:
        return ran[named[name]] if named[name] in ran else place(name.rpartition(".")[0])

    own = [name for name, module in named.items() if module._parameters]
    return sorted(own, key=place, reverse=True)


@defer_interrupts  # torch may leave gradients off if its block is cut short
@torch.no_grad()
def _shuffle(module: nn.Module, generator: torch.Generator) -> None:
    """Permute the values of each of a module's own parameters."""
    for parameter in module.parameters(recurse=False):
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        parameter.copy_(parameter.flatten()[order].view_as(parameter))


class SanityCheck(Tabular):
    """The changes of a heatmap with the weights; `hookviz.metrics.sanity_check` makes it.

    Attributes
    ----------
    method : str
    layers : list of str
        The layers whose weights were shuffled in each step, the last layer first.
    maps : torch.Tensor
        ``(steps + 1, N, *spatial)``, the magnitudes of the heatmap: at first with the original
        weights, at last with all of them shuffled.
    correlations : torch.Tensor
        ``(steps + 1, N)``, Spearman's rank correlation of each map with the original, -1 to 1; 0 if
        it is the same everywhere or has NaN.
    similarities : torch.Tensor
        ``(steps + 1, N)``, the structural similarity (SSIM, Wang et al. 2004) of the maps scaled to
        0..1, in windows of up to 7 positions; 0 if the map is the same everywhere or has NaN.
    """

    _header = ("step", "weights shuffled", "rank correlation", "similarity")

    def __init__(self, method: str, layers: Sequence[str], maps: Tensor) -> None:
        self.method, self.layers, self.maps = method, list(layers), maps
        self.correlations = torch.stack([_rank_correlation(maps[0], each) for each in maps])
        self.similarities = torch.stack([_similarity(maps[0], each) for each in maps])

    @property
    def depends(self) -> bool:
        """True if, with all weights shuffled, the mean rank correlation is below 0.5."""
        return float(self.correlations[-1].mean()) < SAME

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        last = number(float(self.correlations[-1].mean()))
        name = method_name(self.method)
        said = f"rank correlation {last} with all weights shuffled"
        if self.depends:
            return f"{name} depends on the weights: {said}"
        return f"{name} does not depend on the weights, it looks the same: {said}"

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per step: ``step shuffled correlation similarity``, means of samples."""
        means = self.correlations.mean(1).tolist(), self.similarities.mean(1).tolist()
        return [
            {"step": step, "shuffled": name, "correlation": plain(one), "similarity": plain(other)}
            for step, (name, one, other) in enumerate(zip(["", *self.layers], *means, strict=True))
        ]

    def _heading(self) -> str:
        return f"Sanity check of {method_name(self.method)}"

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                str(row["step"]),
                row["shuffled"] or "(none)",
                number(row["correlation"]),
                number(row["similarity"]),
            )
            for row in self.records()
        ]

    def _png(self) -> bytes | None:
        return self.figure()._repr_png_()

    def figure(self) -> ShownFigure:
        """Draw both measures over the steps, as means of the samples."""
        from ..draw.figures import draw_curves

        curves = {
            "rank correlation": self.correlations.mean(1).tolist(),
            "structural similarity": self.similarities.mean(1).tolist(),
        }
        return draw_curves(curves, "steps: weights shuffled, the last layer first", self.verdict)


def _rank_correlation(one: Tensor, other: Tensor) -> Tensor:
    """Return Spearman's rank correlation ``(N,)`` of maps ``(N, *spatial)``."""
    pairs = [torch.stack([_ranks(a), _ranks(b)]) for a, b in zip(one, other, strict=True)]
    return torch.stack([torch.corrcoef(pair)[0, 1].nan_to_num(0) for pair in pairs])


def _ranks(values: Tensor) -> Tensor:
    """Return ranks of which equal values have their mean; NaN if there is one."""
    if not values.isfinite().all():
        return torch.full((values.numel(),), torch.nan)
    _, place, count = values.flatten().unique(return_inverse=True, return_counts=True)
    return (count.cumsum(0) - (count - 1) / 2)[place].float()


def _similarity(one: Tensor, other: Tensor) -> Tensor:
    """Return the structural similarity ``(N,)`` of maps ``(N, *spatial)``, each scaled to 0..1."""
    sizes = one.shape[1:]
    mean = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(sizes) - 1]
    window = [min(7, size) for size in sizes]
    local = lambda maps: mean(maps[:, None], window, stride=1)  # noqa: E731
    x, y = (_to_unit(each) for each in (one, other))
    mean_x, mean_y = local(x), local(y)
    variances = local(x * x) - mean_x**2, local(y * y) - mean_y**2
    covariance = local(x * y) - mean_x * mean_y
    small, smaller = 0.01**2, 0.03**2
    above = (2 * mean_x * mean_y + small) * (2 * covariance + smaller)
    below = (mean_x**2 + mean_y**2 + small) * (variances[0] + variances[1] + smaller)
    return (above / below).flatten(1).mean(1).nan_to_num(0)


def _to_unit(maps: Tensor) -> Tensor:
    """Scale each map to 0..1; NaN if it is the same everywhere."""
    flat = maps.flatten(1).double()
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    return ((flat - low) / (high - low)).view_as(maps)
