"""Outputs that are pictures: dense maps, and boxes with keypoints over the input.

An output is known by its shape and its keys, a family of models at a time: `dense_maps` for
segmentation, depth, keypoint heatmaps and autoencoders, and `find_boxes` for families of
detectors. Each position and each box has the expression with which it is a target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..draw.colours import to_numpy
from ..run.output import Leaf, Output

Finite = Annotated[float, "neither NaN nor infinite"]
"""A number that JSON can represent; the browser accepts null for any other float."""

SHOWN = 20
"""The most boxes that are drawn."""

LABELS = 2000
"""The most channels of a map that have a menu entry of their own."""

OVERLAP = 0.5
"""The most that two boxes of one class may overlap, by intersection over union: the worse one is
left out, where the model has not done so."""


@dataclass(frozen=True, eq=False)
class DenseMap:
    """A part of the output with a value for each position.

    Attributes
    ----------
    at : Output
        The tensor's expression.
    values : torch.Tensor
        ``(N, C, H, W)``.
    labels : list of str
        The name of each channel.
    picture : bool
        True if it has the input's shape, as an autoencoder's output.
    flat : bool
        True if the output itself has no channels, as a depth map ``(N, H, W)``.
    """

    at: Output
    values: Tensor
    labels: list[str]
    picture: bool
    flat: bool

    def target(self, sample: int, channel: int, row: int, column: int) -> Output:
        """Return the expression of one value."""
        if self.flat:
            return self.at[sample, row, column]
        return self.at[sample, channel, row, column]


class OutputBox(NamedTuple):
    """A box of a detector over the input.

    Attributes
    ----------
    corners : tuple of float
        Left, top, right and bottom, as fractions of the input.
    label : str
    score : float
    target : str
        The expression of its score.
    points : list of (float, float)
        Keypoints, right and down, as fractions of the input.
    point_targets : list of str
        The expression of each keypoint's score; empty if the model has none.
    """

    corners: tuple[Finite, Finite, Finite, Finite]
    label: str
    score: Finite
    target: str
    points: list[tuple[Finite, Finite]]
    point_targets: list[str]


@dataclass(frozen=True, eq=False)
class ShownOutput:
    """The parts of a model's output that are pictures, of one sample.

    Attributes
    ----------
    maps : list of DenseMap
    boxes : list of OutputBox
        The best first.
    count : int
        The number of boxes in the output, of which the best are here.
    """

    maps: list[DenseMap]
    boxes: list[OutputBox]
    count: int = 0

    def __bool__(self) -> bool:
        return bool(self.maps or self.boxes)


def read_output_pictures(
    leaves: Sequence[Leaf], size: tuple[int, ...], sample: int, class_names: Sequence[str]
) -> ShownOutput:
    """Return the parts of an output that are pictures.

    Parameters
    ----------
    leaves : sequence of Leaf
        The output's tensors.
    size : tuple of int
        The input's shape, ``(N, C, H, W)``.
    sample : int
        Whose boxes are meant.
    class_names : sequence of str
        Empty if unknown.

    Examples
    --------
    >>> from hookviz.run.output import leaves_of
    >>> given = [{"boxes": torch.tensor([[0.0, 0, 8, 4]]), "scores": torch.tensor([0.9])}]
    >>> found = read_output_pictures(leaves_of(given), (1, 3, 8, 16), 0, [])
    >>> found.boxes[0].corners, found.boxes[0].target
    ((0.0, 0.0, 0.5, 0.5), 'output[0]["scores"][0]')
    """
    rows = find_boxes(leaves, size, sample, class_names)
    if rows is not None and len(rows.scores):
        return ShownOutput([], _best(rows, class_names), len(rows.scores))
    groups = _grouped(leaves)
    boxed = {base for base, group in groups.items() if {"boxes", "pred_boxes"} & group.keys()}
    maps = [leaf for leaf in leaves if leaf.base not in boxed]  # masks are the boxes' own
    return ShownOutput(list(dense_maps(maps, size, class_names)), [])


def _grouped(leaves: Sequence[Leaf]) -> dict[Output, dict[Any, Leaf]]:
    groups: dict[Output, dict[Any, Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf.base, {})[leaf.key] = leaf
    return groups


def dense_maps(
    leaves: Sequence[Leaf], size: tuple[int, ...], class_names: Sequence[str]
) -> Iterator[DenseMap]:
    """Yield tensors ``(N, C, H, W)``, and ``(N, H, W)`` of the input's proportions."""
    rows, height, width = size[0], *size[-2:]
    for leaf in leaves:
        values, flat = leaf.value, leaf.value.ndim == 3
        if flat:
            tall, wide = values.shape[1:]
            if min(tall, wide) < 8 or abs(tall * width - wide * height) > width * height / 16:
                continue
            values = values[:, None]
        if values.ndim != 4 or len(values) != rows or max(values.shape[2:]) < 2:
            continue
        count = values.shape[1]
        if not count or count > LABELS:
            continue
        known = class_names if len(class_names) == count else []
        labels = [known[index] if known else f"channel {index}" for index in range(count)]
        picture = tuple(values.shape) == tuple(size) and count in (1, 3)
        yield DenseMap(leaf.at, values, labels, picture, flat)


def main_map(maps: Sequence[DenseMap], sample: int) -> tuple[int, int | None]:
    """Return the map that is shown first, and its channel; None is the largest of all.

    Of several maps it is one of probabilities, which sum to 1 over the channels: of two classes
    the second one's, such as "face" beside the offsets of boxes. Otherwise it is the first one
    with names of classes, or the first.

    Examples
    --------
    >>> from hookviz.run.output import output
    >>> boxes, faces = torch.randn(1, 4, 3, 3), torch.randn(1, 2, 3, 3).softmax(1)
    >>> names = ["channel 0", "channel 1"]
    >>> maps = [DenseMap(output[0], boxes, 2 * names, False, False)]
    >>> main_map([*maps, DenseMap(output[1], faces, names, False, False)], 0)
    (1, 1)
    """
    for which, shown in enumerate(maps if len(maps) > 1 else ()):
        values = shown.values[min(sample, len(shown.values) - 1)].detach().float()
        sums = values.sum(0)
        if len(values) > 1 and (values >= 0).all() and torch.allclose(sums, torch.ones_like(sums)):
            return which, 1 if len(values) == 2 else None
    named = (n for n, shown in enumerate(maps) if not shown.labels[0].startswith("channel "))
    return next(named, 0), None


# Detectors


class Rows(NamedTuple):
    """All boxes of a detector, a row each.

    Attributes
    ----------
    corners : torch.Tensor
        ``(n, 4)``, fractions of the input.
    scores, labels : torch.Tensor
        ``(n,)``.
    at : callable
        Row -> the expression of its score.
    points : torch.Tensor
        ``(n, keypoints, 2)``, fractions of the input.
    points_at : callable, optional
        Row, keypoint -> the expression of the keypoint's score.
    """

    corners: Tensor
    scores: Tensor
    labels: Tensor
    at: Callable[[int], Output]
    points: Tensor
    points_at: Callable[[int, int], Output] | None


def find_boxes(
    leaves: Sequence[Leaf], size: tuple[int, ...], sample: int, class_names: Sequence[str]
) -> Rows | None:
    """Return all boxes of a detector's output; None if it is not one of a known family."""
    groups = list(_grouped(leaves).values())
    scale = torch.tensor([size[-1], size[-2]], dtype=torch.float64)
    lists = [group for group in groups if _is_list(group)]
    if sample < len(lists):
        return _read_list(lists[sample], scale)
    classes = len(class_names)
    for group in groups:
        if (rows := _read_queries(group, sample, classes)) is not None:
            return rows
        leaf = group.get(0)
        rows = None if leaf is None else _read_anchors(leaf, sample, classes, scale)
        if rows is not None:
            return rows
    return None


def _is_list(group: Mapping[Any, Leaf]) -> bool:
    """Tell torchvision's dicts, a row a box, from raw predictions with the same keys."""
    boxes, scores = group.get("boxes"), group.get("scores")
    if boxes is None or scores is None:
        return False
    rows, own = boxes.value.shape, scores.value.shape
    return len(rows) == 2 and rows[1] == 4 and tuple(own) == (rows[0],)


def _read_list(group: Mapping[Any, Leaf], size: Tensor) -> Rows:
    """Read a list of dicts, as torchvision's, with boxes in pixels."""
    scores, sure = group["scores"], group.get("keypoints_scores")
    count = len(scores.value)
    points = torch.zeros(count, 0, 2)
    if "keypoints" in group:
        points = group["keypoints"].value[..., :2].cpu() / size
    return Rows(
        group["boxes"].value.cpu() / size.repeat(2),
        scores.value,
        group["labels"].value if "labels" in group else torch.full((count,), -1),
        lambda row: scores.at[row],
        points,
        None if sure is None else lambda row, point: sure.at[row, point],
    )


def _read_queries(group: Mapping[Any, Leaf], sample: int, classes: int) -> Rows | None:
    """Read DETR and its kin: boxes ``(N, Q, 4)`` as fractions, and logits beside."""
    logits, boxes = group.get("logits") or group.get("pred_logits"), group.get("pred_boxes")
    if logits is None or boxes is None or logits.value.ndim != 3:
        return None
    rows = logits.value[sample].float()
    # The last class of DETR's softmax is "no object", which has no name.
    shares = rows.sigmoid() if rows.shape[1] <= classes else rows.softmax(-1)[:, :-1]
    scores, labels = shares.max(-1)
    at = lambda row: logits.at[sample, row, int(labels[row])]  # noqa: E731
    corners = _corners(boxes.value[sample])
    return Rows(corners, scores, labels, at, torch.zeros(len(rows), 0, 2), None)


def _read_anchors(leaf: Leaf, sample: int, classes: int, size: Tensor) -> Rows | None:
    """Read YOLO as ultralytics returns it: ``(N, 4 + classes, A)``, in pixels, with overlaps.

    More rows may follow, of keypoints or masks.
    """
    from torchvision.ops import batched_nms

    first = 4 + classes
    # The number of classes tells it from any other tensor of three dimensions.
    if (
        leaf.value.ndim != 3
        or not classes
        or not first <= leaf.value.shape[1] < leaf.value.shape[2]
    ):
        return None
    rows = leaf.value[sample].cpu().float()
    scores, labels = rows[4:first].max(0)
    best = scores.argsort(descending=True)[: 50 * SHOWN]
    corners = _corners(rows[:4, best].mT)
    kept = batched_nms(corners.float(), scores[best], labels[best], OVERLAP)[:SHOWN]
    best, corners = best[kept], corners[kept]
    at = lambda row: leaf.at[sample, 4 + int(labels[best[row]]), int(best[row])]  # noqa: E731
    corners, points = corners / size.repeat(2), torch.zeros(len(best), 0, 2)
    return Rows(corners, scores[best], labels[best], at, points, None)


def _corners(boxes: Tensor) -> Tensor:
    """Return left, top, right and bottom of boxes ``(n, 4)`` around a point: its place and size."""
    middle, extent = boxes.cpu().double().split(2, 1)
    return torch.cat([middle - extent / 2, middle + extent / 2], 1)


def _best(rows: Rows, names: Sequence[str]) -> list[OutputBox]:
    """Return the boxes with the largest scores, without those that have NaN and cannot be drawn."""
    found = []
    for row in rows.scores.argsort(descending=True, stable=True)[:SHOWN].tolist():
        label, points, corners = int(rows.labels[row]), rows.points[row], rows.corners[row]
        score = float(rows.scores[row])
        if not (corners.isfinite().all() and points.isfinite().all() and math.isfinite(score)):
            continue
        left, top, right, bottom = corners.tolist()
        targets = (
            [str(rows.points_at(row, n)) for n in range(len(points))] if rows.points_at else []
        )
        found.append(
            OutputBox(
                (left, top, right, bottom),
                class_name(label, names) if label >= 0 else "box",
                score,
                str(rows.at(row)),
                [(right, down) for right, down in points.tolist()],
                targets,
            )
        )
    return found


def class_name(index: int, class_names: Sequence[str], classes: bool = True) -> str:
    """Return a distinct name of a class, or its number in words; `classes` as `are_classes` says.

    >>> names = ["crane", "moon", "crane"]  # ImageNet has two classes of that name
    >>> [class_name(number, names) for number in range(4)]
    ['crane (0)', 'moon', 'crane (2)', 'class 3']
    """
    if index >= len(class_names):
        return f"class {index}" if classes else f"output {index}"
    name = class_names[index]
    return f"{name} ({index})" if class_names.count(name) > 1 else name


# For the browser and the page


def map_values(found: DenseMap, sample: int, channel: int | None) -> dict[str, np.ndarray]:
    """Return the arrays of one map that are drawn.

    ``values``, ``(H, W)``, of one channel; for None the largest channel at each position,
    ``classes``, ``(H, W)``, or the channels of a picture, ``pixels``, ``(H, W, 3)``.
    """
    own = found.values[min(sample, len(found.values) - 1)]
    if channel is not None:
        return {"values": to_numpy(own[min(channel, len(own) - 1)])}
    if not found.picture:
        return {"classes": own.argmax(0).cpu().numpy().astype(np.uint32)}
    low, high = own.amin(), own.amax()
    shares = (own - low) / torch.where(high > low, high - low, 1)
    pixels = (255 * shares.nan_to_num().clamp(0, 1)).round().byte().expand(3, -1, -1)
    return {"pixels": pixels.permute(1, 2, 0).cpu().numpy()}
