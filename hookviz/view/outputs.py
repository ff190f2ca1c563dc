"""Outputs that are pictures: dense maps, and boxes with keypoints over the input.

An output is known by its shape and its keys, a family of models at a time: `dense_maps` for
segmentation, depth, keypoint heatmaps and autoencoders, and one function for each family of
detectors in `DETECTORS`. Each position and each box has the expression with which it is a target.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..draw.colours import to_numpy
from ..run.output import Leaf, Output

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


@dataclass(frozen=True)
class DetectedBox:
    """A box of a detector.

    Attributes
    ----------
    corners : tuple of float
        Left, top, right and bottom, as fractions of the input.
    label : str
    score : float
    at : Output
        The expression of its score.
    points : tuple of (float, float)
        Keypoints, right and down, as fractions of the input.
    points_at : tuple of Output
        The expression of each keypoint's score; empty if the model has none.
    """

    corners: tuple[float, float, float, float]
    label: str
    score: float
    at: Output
    points: tuple[tuple[float, float], ...] = ()
    points_at: tuple[Output, ...] = ()


@dataclass(frozen=True, eq=False)
class ShownOutput:
    """The parts of a model's output that are pictures, of one sample.

    Attributes
    ----------
    maps : list of DenseMap
    boxes : list of DetectedBox
        The best first.
    count : int
        The number of boxes in the output, of which the best are here.
    """

    maps: list[DenseMap]
    boxes: list[DetectedBox]
    count: int = 0

    def __bool__(self) -> bool:
        return bool(self.maps or self.boxes)


Named = Callable[[int], str]


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
    >>> found.boxes[0].corners, found.boxes[0].at
    ((0.0, 0.0, 0.5, 0.5), output[0]["scores"][0])
    """
    groups, named = _grouped(leaves), _namer(class_names)
    for detector in DETECTORS:
        boxes = list(detector(groups, size, sample, named))
        if boxes:
            boxes.sort(key=lambda box: -box.score)
            return ShownOutput([], boxes[:SHOWN], len(boxes))
    boxed = {base for base, group in groups.items() if {"boxes", "pred_boxes"} & group.keys()}
    maps = [leaf for leaf in leaves if leaf.base not in boxed]  # masks are the boxes' own
    return ShownOutput(list(dense_maps(maps, size, class_names)), [])


def box_tensors(
    leaves: Sequence[Leaf], sample: int, class_names: Sequence[str]
) -> tuple[dict[str, Any], list[Output]] | None:
    """Return how boxes are computed of plain tensors, and these; None if there are none such.

    Returns
    -------
    dict, list of Output
        For `web/detected.js`: ``kind``, ``"queries"``, ``"anchors"`` or ``"rows"``; ``written``,
        the scores' tensor; ``labels``, the names of the classes; ``points``, the number of
        keypoints; and ``every``, True if all classes have a name.
    """
    groups, named = _grouped(leaves), _namer(class_names)
    common = {"points": 0, "every": True, "labels": list(class_names)}
    for logits, boxes, every in _query_leaves(groups, named):
        labels = [named(index) for index in range(logits.value.shape[2])]
        own = {"kind": "queries", "written": str(logits.at), "labels": labels, "every": every}
        return common | own, [logits.at, boxes.at]
    for leaf, classes in _anchor_leaves(groups, named):
        labels = [named(index) for index in range(classes)]
        points = _points(leaf.value[sample, 4 + classes :].float())
        own = {"kind": "anchors", "written": str(leaf.at), "labels": labels, "points": points}
        return common | own, [leaf.at]
    for leaf in _row_leaves(groups, sample):
        more = leaf.value.shape[2] - 6
        points = more // 3 if more % 3 == 0 else 0
        return common | {"kind": "rows", "written": str(leaf.at), "points": points}, [leaf.at]
    return None


def _grouped(leaves: Sequence[Leaf]) -> dict[Output, dict[Any, Leaf]]:
    groups: dict[Output, dict[Any, Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf.base, {})[leaf.key] = leaf
    return groups


def _namer(class_names: Sequence[str]) -> Named:
    return lambda number: class_names[number] if number < len(class_names) else f"class {number}"


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


# A family of detectors each


Groups = Mapping[Output, Mapping[Any, Leaf]]


def _torchvision(
    groups: Groups, size: tuple[int, ...], sample: int, named: Named
) -> Iterator[DetectedBox]:
    """Yield boxes of a list of dicts with "boxes" in pixels, "scores", "labels", "keypoints"."""
    bases = [base for base, group in groups.items() if _has_rows(group)]
    if sample >= len(bases):
        return
    group = groups[bases[sample]]
    boxes, scores = group["boxes"], group["scores"]
    height, width = size[-2:]
    labels = group["labels"].value.tolist() if "labels" in group else [0] * len(scores.value)
    points = group["keypoints"].value if "keypoints" in group else None
    sure = group.get("keypoints_scores")
    for place, (corners, score) in enumerate(
        zip(boxes.value.tolist(), scores.value.tolist(), strict=True)
    ):
        own = () if points is None else points[place, :, :2].tolist()
        yield DetectedBox(
            _fractions(corners, width, height),
            named(int(labels[place])) if "labels" in group else "box",
            score,
            scores.at[place],
            tuple((right / width, down / height) for right, down in own),
            tuple(sure.at[place, number] for number in range(len(own))) if sure else (),
        )


def _has_rows(group: Mapping[Any, Leaf]) -> bool:
    """Tell torchvision's dicts, a row a box, from raw predictions with the same keys."""
    boxes, scores = group.get("boxes"), group.get("scores")
    if boxes is None or scores is None:
        return False
    rows, own = boxes.value.shape, scores.value.shape
    return len(rows) == 2 and rows[1] == 4 and tuple(own) == (rows[0],)


def _query_leaves(groups: Groups, named: Named) -> Iterator[tuple[Leaf, Leaf, bool]]:
    """Yield logits and boxes of DETR's queries, and whether all classes have names."""
    for group in groups.values():
        logits = group.get("logits") or group.get("pred_logits")
        boxes = group.get("pred_boxes")
        if logits is not None and boxes is not None and logits.value.ndim == 3:
            # The last class of DETR's softmax is "no object", which has no name.
            yield logits, boxes, not _unnamed(named, logits.value.shape[2] - 1)


def _queries(
    groups: Groups, size: tuple[int, ...], sample: int, named: Named
) -> Iterator[DetectedBox]:
    """Yield boxes of DETR and its kin: "pred_boxes" ``(N, Q, 4)`` as shares, "logits" beside."""
    for logits, boxes, every in _query_leaves(groups, named):
        rows = logits.value[sample].float()
        shares = rows.sigmoid() if every else rows.softmax(-1)[:, :-1]
        best, labels = shares.max(-1)
        for place in range(len(rows)):
            right, down, wide, high = boxes.value[sample, place].tolist()
            label = int(labels[place])
            corners = right - wide / 2, down - high / 2, right + wide / 2, down + high / 2
            at = logits.at[sample, place, label]
            yield DetectedBox(_fractions(corners, 1, 1), named(label), float(best[place]), at)
        return


def _anchor_leaves(groups: Groups, named: Named) -> Iterator[tuple[Leaf, int]]:
    """Yield tensors of YOLO's anchors, and the number of classes."""
    if _unnamed(named, 0):  # that number tells it from any other 3d tensor
        return
    classes = next(count for count in itertools.count() if _unnamed(named, count))
    for group in groups.values():
        leaf = group.get(0)
        if leaf is not None and leaf.value.ndim == 3:
            rows, anchors = leaf.value.shape[1:]
            if 4 + classes <= rows < anchors and rows > 4:
                yield leaf, classes


def _points(more: Tensor) -> int:
    """Count the keypoints in rows that follow an anchor's classes; 0 if they are something else."""
    sound = len(more) % 3 == 0 and bool(((more[2::3] >= 0) & (more[2::3] <= 1)).all())
    return len(more) // 3 if sound else 0


def _anchors(
    groups: Groups, size: tuple[int, ...], sample: int, named: Named
) -> Iterator[DetectedBox]:
    """Yield boxes of YOLO as ultralytics returns it: ``(N, 4 + classes, A)``, in pixels.

    Three rows a keypoint may follow, right, down and its score, or the coefficients of masks.
    """
    height, width = size[-2:]
    for leaf, classes in _anchor_leaves(groups, named):
        rows = leaf.value[sample].float()
        scores, labels = rows[4 : 4 + classes].max(0)
        chosen = scores.argsort(descending=True)[: 50 * SHOWN]
        right, down, wide, high = rows[:4, chosen]
        corners = torch.stack(
            [right - wide / 2, down - high / 2, right + wide / 2, down + high / 2], 1
        )
        more = rows[4 + classes :]
        marked = bool(_points(more))
        for place in _without_overlap(corners, labels[chosen]):
            anchor = int(chosen[place])
            label = int(labels[anchor])
            own = more[:, anchor].reshape(-1, 3)[:, :2].tolist() if marked else []
            yield DetectedBox(
                _fractions(corners[place].tolist(), width, height),
                named(label),
                float(scores[anchor]),
                leaf.at[sample, 4 + label, anchor],
                tuple((right / width, down / height) for right, down in own),
                tuple(
                    leaf.at[sample, 6 + classes + 3 * number, anchor] for number in range(len(own))
                ),
            )
        return


def _row_leaves(groups: Groups, sample: int) -> Iterator[Leaf]:
    """Yield tensors whose rows are boxes: behind the corners a share and a whole number."""
    for group in groups.values():
        leaf = group.get(0)
        if leaf is None or leaf.value.ndim != 3 or leaf.value.shape[2] < 6:
            continue
        scores, labels = leaf.value[sample].float()[:, 4:6].unbind(1)
        shares = ((scores >= 0) & (scores <= 1)).all() and scores.any()
        if shares and ((labels >= 0) & (labels == labels.round())).all():
            yield leaf


def _chosen_rows(
    groups: Groups, size: tuple[int, ...], sample: int, named: Named
) -> Iterator[DetectedBox]:
    """Yield boxes of YOLO that leaves none to be left out: ``(N, boxes, 6 or more)``.

    A row is the corners in pixels, the score and the number of the class; keypoints may follow.
    """
    height, width = size[-2:]
    for leaf in _row_leaves(groups, sample):
        rows = leaf.value[sample].float()
        more = rows[:, 6:]
        marked = more.shape[1] % 3 == 0
        for place, (*corners, score, label) in enumerate(rows[:, :6].tolist()):
            own = more[place].reshape(-1, 3)[:, :2].tolist() if marked else []
            yield DetectedBox(
                _fractions(corners, width, height),
                named(int(label)),
                score,
                leaf.at[sample, place, 4],
                tuple((right / width, down / height) for right, down in own),
                tuple(leaf.at[sample, place, 8 + 3 * number] for number in range(len(own))),
            )
        return


DETECTORS = (_torchvision, _queries, _anchors, _chosen_rows)


def _unnamed(named: Named, number: int) -> bool:
    return named(number) == f"class {number}"


def _fractions(
    corners: Sequence[float], width: float, height: float
) -> tuple[float, float, float, float]:
    left, top, right, bottom = corners
    return left / width, top / height, right / width, bottom / height


def _without_overlap(corners: Tensor, labels: Tensor) -> list[int]:
    """Return the boxes, the best first, that overlap no better one of their class."""
    kept: list[int] = []
    for place, (left, top, right, bottom) in enumerate(corners.tolist()):
        for other in kept:
            if labels[other] != labels[place]:
                continue
            a, b, c, d = corners[other].tolist()
            wide, high = min(right, c) - max(left, a), min(bottom, d) - max(top, b)
            common = max(wide, 0) * max(high, 0)
            both = (right - left) * (bottom - top) + (c - a) * (d - b) - common
            if common > OVERLAP * both:
                break
        else:
            kept.append(place)
        if len(kept) == SHOWN:
            break
    return kept


# For the browser and the page


def answer_payload(answer: ShownOutput, sample: int) -> dict[str, Any] | None:
    """Return maps and boxes in words, as JSON values; None if the output is not a picture."""
    if not answer:
        return None
    return {
        "sample": sample,
        "count": answer.count,
        "first": list(main_map(answer.maps, sample)) if answer.maps else [0, None],
        "maps": [
            {
                "name": str(each.at),
                "flat": each.flat,
                "labels": each.labels,
                "picture": each.picture,
                "size": list(each.values.shape[2:]),
            }
            for each in answer.maps
        ],
        "boxes": [
            {
                "corners": list(box.corners),
                "label": box.label,
                "score": box.score,
                "target": str(box.at),
                "points": [list(point) for point in box.points],
                "pointTargets": [str(each) for each in box.points_at],
            }
            for box in answer.boxes
        ],
    }


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
