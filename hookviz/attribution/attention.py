"""``hookviz.attention``: where each token of a transformer looks, by layer and head."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..hooking.arguments import is_index, is_position
from ..hooking.edit import LayerEdit
from ..hooking.maps import MAX_PREFIX_TOKENS
from ..hooking.records import CapturedTensor
from ..hooking.select import Layers, close_names, first_names, select_layers
from ..hooking.tensors import map_tensors
from ..run.inputs import Transform
from ..run.recorder import OperationRecorder
from ..run.session import Session
from ..run.target import Target, check_target, needed_logits
from ..tables import Tabular, counted, number, plain
from .attention_listener import AttentionListener

if TYPE_CHECKING:
    from ..draw.figures import ShownFigure


def attention(
    model: nn.Module,
    inputs: Any,
    layers: Layers = None,
    target: Target = None,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
) -> Attention:
    """Return the attention weights of every module that attends, after softmax, before dropout.

    They are read from the operations that run, not from the code. So this works for fused kernels
    (which never make the weights), ``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer``, a
    softmax of products written by hand, windows, masks, grouped heads and cross-attention. The
    model's own computation is unchanged: for a fused operation the weights,
    ``softmax(scale * Q K^T + mask)``, are computed beside it, in float32 at least.

    Parameters
    ----------
    model : torch.nn.Module
        Runs once, in eval mode; its state is restored exactly.
    inputs
        As in `hookviz.explore`.
    layers : optional
        As in `hookviz.capture`: only these modules; None is every module that attends.
    target : optional
        As in `hookviz.explore`: the score whose gradient `Attention.gradients` holds. With a
        target, weights and gradients come from one forward and backward; without, the model runs
        again when the gradients are first used.
    weights, transform, class_names : optional
        As in `hookviz.explore`.

    Returns
    -------
    Attention
        A mapping from the name of a module to its weights ``(N, heads, queries, keys)``, in the
        order in which they ran. A single head has a dimension of one. The second call in one
        forward is ``"name#1"``. If none is found, the mapping is empty.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError, RuntimeError
        As `hookviz.explore`; and a ``ValueError`` if none of ``layers`` attends but others do.

    Notes
    -----
    The name is that of the module that attends: not its ``nn.Softmax``, and not a helper without
    weights that gets queries and keys as inputs. Windows (Swin) are samples: N is the batch times
    the windows. Samples and heads are told apart by the output projection, whose input has the
    heads' results for one query of one sample side by side; without one, by an attribute such as
    ``num_heads`` and the size of the batch.

    Attention is found if a softmax of matrix products of queries and keys weights the values in
    another matrix product. Not found are compiled or foreign kernels (``flash_attn``,
    ``xformers``, ``flex_attention``), linear and additive attention, other functions in place of
    the softmax (a sigmoid, or ``exp`` and a division), queries that are parameters without a
    projection, and products with the values that are written as sums.

    PyTorch's fast path for ``nn.TransformerEncoder`` is off while hookviz runs a model, so that its
    layers run one by one. Its results are the same, apart from the tokens that
    ``src_key_padding_mask`` hides: the fast path returns zeros there.

    Examples
    --------
    >>> import hookviz, torch
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> maps = hookviz.attention(model, torch.rand(1, 5, 8))
    >>> maps["self_attn"].shape
    torch.Size([1, 2, 5, 5])
    >>> bool(torch.allclose(maps["self_attn"].sum(-1), torch.ones(1, 2, 5)))
    True
    """
    chosen = None if layers is None else set(select_layers(model, layers))
    target = check_target(target)
    # Masks may hold −inf.
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names, finite=False
    )
    run = partial(run_attention, session, target, chosen=chosen)
    listener = run(target is not None)
    if listener.found and not listener.captured:
        near = close_names("", [each.name for each in listener.found])
        raise ValueError(f"layers={layers!r} names no module that attends; {near}.")

    captured, grid = listener.captured, listener.patches.grid
    with_gradients = lambda: captured if target is not None else run(True).captured  # noqa: E731
    return attention_of(session, target, captured, grid, with_gradients)


def attention_of(
    session: Session,
    target: Target,
    captured: Mapping[str, CapturedTensor],
    grid: tuple[int, ...] | None,
    with_gradients: Callable[[], Mapping[str, CapturedTensor]],
) -> Attention:
    """Return the attention that a run has captured, by the names of the modules that attend."""
    return Attention(
        {name: each.value for name, each in captured.items()},
        model=session.name,
        grid=grid,
        gradients=lambda: _gradients(with_gradients()),
        layer_gradients=lambda names: layer_gradients(session, target, names),
    )


def run_attention(
    session: Session, target: Target, gradients: bool, **options: Any
) -> AttentionListener:
    """Run a session's model once, with a backward for gradients, and return the listener.

    ``options`` are those of `AttentionListener`.
    """
    observe = partial(AttentionRecorder, session.model, gradients=gradients, **options)
    if gradients:
        return session.forward_backward(target, observe).observer.listener
    return session.forward(observe, grad=False).listener


class AttentionRecorder(OperationRecorder):
    """The block in which an `AttentionListener` listens."""

    def __init__(self, model: nn.Module, *, gradients: bool, **options: Any) -> None:
        self.listener = AttentionListener(model, gradients=gradients, **options)
        super().__init__(self.listener, names=first_names(model), backward=False)

    def _leave(self, *error: Any) -> None:
        super()._leave(*error)
        found = self.listener.captured.values()
        self.missing_gradients = any(each.kept and not each.has_gradient for each in found)


def _gradients(captured: Mapping[str, CapturedTensor]) -> dict[str, Tensor]:
    found = {name: each.gradient for name, each in captured.items()}
    return {name: each for name, each in found.items() if each is not None}


def layer_gradients(session: Session, target: Target, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the gradient at each layer's weights, of the score at that same layer."""
    blocks = blocks_of_attention(names)
    if target is None:  # the class is the model's own, not that of a layer halfway
        target = top_classes(session)
    returned: list[Tensor] = []

    def keep(output: Tensor) -> Tensor:
        returned[:] = [output]
        return output

    found: dict[str, Tensor] = {}
    for name, block in blocks.items():
        last = [*blocks.values()][-1]
        shortcut = LayerEdit(block, keep), LayerEdit(last, lambda output: returned[0])
        short = session.edited([*session.edits, *shortcut])
        chosen = {session.model.get_submodule(name)}
        found |= _gradients(run_attention(short, target, True, chosen=chosen).captured)
    return found


def top_classes(session: Session) -> list[int]:
    """Return each sample's top class; raise ``ValueError`` if the model is not a classifier."""
    with session.active(grad=False):
        given = map_tensors((session.inputs.args, session.inputs.kwargs), torch.clone)
        logits = needed_logits(session.call(*given[0], **given[1]), None)
    return logits.argmax(1).tolist()


def blocks_of_attention(names: Sequence[str]) -> dict[str, str]:
    """Return the name of the block of each attention: up to the part where the names differ.

    >>> blocks_of_attention(["encoder.0.attn", "encoder.1.attn"])
    {'encoder.0.attn': 'encoder.0', 'encoder.1.attn': 'encoder.1'}
    """
    parts = [name.split(".") for name in names]
    columns = enumerate(zip(*parts, strict=False))
    depth = next((depth for depth, column in columns if len({*column}) > 1), 0)
    return {name: ".".join(each[: depth + 1]) for name, each in zip(names, parts, strict=True)}


class Attention(Tabular, Mapping[str, Tensor]):
    """Attention weights by module; `hookviz.attention` makes it.

    Attributes
    ----------
    model : str
        The model's class.
    grid : tuple of int or None
        Rows and columns of the patches into which the model's first layer cuts its input.
    gradients : dict of str to torch.Tensor
        The target's gradient at the weights, of the same shapes. Modules that no gradient reaches
        are missing, and those whose fused kernel also applies dropout, or which run within
        ``checkpoint(…, use_reentrant=True)``.
    """

    _header = ("layer", "samples", "heads", "queries×keys", "entropy", "peak")

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        *,
        model: str,
        grid: tuple[int, ...] | None = None,
        gradients: Callable[[], dict[str, Tensor]] = dict,
        layer_gradients: Callable[[Sequence[str]], dict[str, Tensor]] = lambda names: {},
    ) -> None:
        self._weights, self.model, self.grid = dict(weights), model, grid
        self._make_gradients, self._make_layer_gradients = gradients, layer_gradients

    def __getitem__(self, name: str) -> Tensor:
        if name in self._weights:
            return self._weights[name]
        raise KeyError(f"No module {name!r} attends; {close_names(str(name), self)}.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    @cached_property
    def gradients(self) -> dict[str, Tensor]:
        """The target's gradient at the weights, by module; the first access may run the model."""
        return self._make_gradients()

    @cached_property
    def layer_gradients(self) -> dict[str, Tensor]:
        """The gradient at each module's weights, of the score if its block were the last one.

        The block's result takes the place of the last block's; LeGrad is computed from these. The
        first access runs the model once for each block.
        """
        square = [n for n, each in self.items() if each.shape[-2] == each.shape[-1]]
        return self._make_layer_gradients([name for name in square if "#" not in name])

    # Tokens and patches

    def prefix(self, name: str) -> int | None:
        """Return the number of keys before the patches, such as the class token; None without.

        >>> Attention({"a": torch.ones(1, 1, 5, 5)}, model="ViT", grid=(2, 2)).prefix("a")
        1
        """
        return prefix_of(self[name].shape[-1], self.grid)

    def patches(self, name: str, query: int | tuple[int, int] = 0) -> Tensor:
        """Arrange what a query looks at as maps on the patches.

        Parameters
        ----------
        name : str
        query : int or tuple of int
            A token's index, 0 being the class token where there is one; or the row and column of a
            patch.

        Returns
        -------
        torch.Tensor
            ``(N, heads, rows, columns)``; tokens before the patches are left out, so that it sums
            to less than one.

        Raises
        ------
        ValueError
            The keys are not patches, or the query is unknown.

        Examples
        --------
        >>> maps = Attention({"a": torch.eye(5)[None, None]}, model="ViT", grid=(2, 2))
        >>> maps.patches("a", (0, 1)).tolist()
        [[[[0.0, 1.0], [0.0, 0.0]]]]
        """
        tensor, grid, before = self[name], self.grid, self.prefix(name)
        if grid is None or before is None:
            raise ValueError(
                f"The {tensor.shape[-1]} keys of {name!r} are not the model's patches"
                + ("." if grid is None else f" ({'×'.join(map(str, grid))}).")
            )
        if isinstance(query, tuple):
            if not is_position(query, grid):
                raise ValueError(f"query={query} is not a patch; the grid has {grid[0]}×{grid[1]}.")
            row, column = query
            query = tensor.shape[-2] - math.prod(grid) + row * grid[1] + column
        if not is_index(query, tensor.shape[-2], from_end=True):
            raise ValueError(
                f"query={query!r} is not one of the {tensor.shape[-2]} tokens of {name!r}."
            )
        return tensor[..., query, before:].unflatten(-1, grid)

    # As text, numbers and pictures

    @property
    def verdict(self) -> str:
        """The modules that attend, in one line."""
        if not self:
            return f"{self.model}: no attention found"
        heads = sum(each.shape[1] for each in self._weights.values())
        count = counted(len(self), "module")
        return f"{self.model}: {count} with attention, {counted(heads, 'head')}"

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per head.

        Returns
        -------
        list of dict
            ``layer head samples queries keys``; ``entropy``, the mean over the queries, 1 if all
            keys get the same weight; ``peak``, the largest weight, averaged over the queries.
        """
        return [
            {
                "layer": name,
                "head": head,
                "samples": len(weights),
                "queries": weights.shape[-2],
                "keys": weights.shape[-1],
                "entropy": plain(spread),
                "peak": plain(peak),
            }
            for name, weights in self.items()
            for head, (spread, peak) in enumerate(_spread_and_peak(weights.detach()))
        ]

    def _heading(self) -> str:
        return f"Attention of {self.model}"

    def _cells(self) -> list[tuple[str, ...]]:
        rows = []
        for name, heads in groupby(self.records(), lambda row: row["layer"]):
            own = [*heads]
            count, size = own[0]["samples"], f"{own[0]['queries']}×{own[0]['keys']}"
            ranges = [_range([each[what] for each in own]) for what in ("entropy", "peak")]
            rows.append((name or "(model)", str(count), str(len(own)), size, *ranges))
        return rows

    def _png(self) -> bytes | None:
        return self.figure()._repr_png_() if self else None

    def figure(
        self,
        layers: str | Sequence[str] | None = None,
        *,
        query: int | tuple[int, int] = 0,
        sample: int = 0,
    ) -> ShownFigure:
        """Draw one row per module, with one picture per head.

        If the keys are patches, a picture shows where one query looks; otherwise it is the matrix
        of queries and keys.

        Parameters
        ----------
        layers : str or sequence of str, optional
            One name or several; by default at most twelve of all layers.
        query : int or tuple of int
            As in `patches`.
        sample : int

        Raises
        ------
        KeyError
            A layer does not attend.
        ValueError
            There is no layer to draw; ``sample`` is out of range; or as in `patches`.
        """
        from ..draw.figures import draw_heads

        if not self:
            raise ValueError(f"{self.verdict}, so there is nothing to draw.")
        if layers is not None and not layers:
            raise ValueError(f"layers={layers!r} names no layers to draw; {close_names('', self)}.")
        names = [layers] if isinstance(layers, str) else list(self if layers is None else layers)
        step = math.ceil(len(names) / 12) if layers is None else 1
        rows = {name: self._pictures(name, query, sample) for name in names[::step]}
        return draw_heads(rows)

    def _pictures(self, name: str, query: int | tuple[int, int], sample: int) -> np.ndarray:
        on_patches = self.grid is not None and self.prefix(name) is not None
        shown = self.patches(name, query) if on_patches else self[name]
        if not is_index(sample, len(shown)):
            raise ValueError(f"sample={sample!r} is out of range: {name!r} has {len(shown)}.")
        return shown[sample].detach().float().cpu().numpy()


def prefix_of(tokens: int, grid: tuple[int, ...] | None) -> int | None:
    """Return the number of tokens before the patches; None if the others are not patches."""
    before = -1 if grid is None else tokens - math.prod(grid)
    return before if 0 <= before <= MAX_PREFIX_TOKENS else None


def _spread_and_peak(weights: Tensor) -> list[list[float]]:
    """Return each head's entropy and largest weight, averaged over samples and queries."""
    seen = weights.sum(-1) > 0  # a query that may look nowhere has no entropy
    entropy = torch.special.entr(weights).sum(-1) / math.log(max(weights.shape[-1], 2))
    sums = [each.where(seen, 0).sum((0, 2)) for each in (entropy, weights.amax(-1))]
    return (torch.stack(sums, 1) / seen.sum((0, 2)).clamp(min=1)[:, None]).tolist()


def _range(values: Sequence[float | None]) -> str:
    known = [each for each in values if each is not None]
    if not known:
        return "–"
    low, high = number(min(known)), number(max(known))
    return low if low == high else f"{low} to {high}"
