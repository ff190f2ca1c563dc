"""Batches for the model from a data set of any kind, or from a folder of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from ...files import check_pictures
from ...run.errors import first_line
from ...run.inputs import LOADER_BATCH, ModelInput, is_loader_batch
from ...run.pictures import load_picture
from ...run.transforms import Preprocessing, Transform, normalization_of, preprocessing_for

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


class PictureFolder:
    """The pictures in a folder and the folders in it, in the order of their names.

    Parameters
    ----------
    folder : path
        If all pictures are in folders of it, these are the classes.

    Raises
    ------
    ValueError
        The folder does not exist, or holds no picture.
    """

    def __init__(self, folder: str | PathLike) -> None:
        top = Path(folder)
        check_pictures(folder)
        files = sorted(path for path in top.rglob("*") if path.suffix.lower() in ENDINGS)
        if not files:
            raise ValueError(
                f"Folder {str(folder)!r} and the folders in it hold no pictures: their names end "
                f"in {', '.join(ENDINGS)}."
            )
        self.folder, self.files = top, files
        first = [path.relative_to(top).parts[0] for path in files]
        sorted_in = all(len(path.relative_to(top).parts) > 1 for path in files)
        self.classes = sorted(set(first)) if sorted_in else []
        self._labels = [self.classes.index(each) if sorted_in else None for each in first]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        path, label = str(self.files[index]), self._labels[index]
        return path if label is None else (path, label)

    @property
    def names(self) -> list[str]:
        """Paths of the pictures, relative to the folder."""
        return [path.relative_to(self.folder).as_posix() for path in self.files]


@dataclass(frozen=True)
class Batch:
    """Neighbours in the data set, those that could be read as one input of the model."""

    span: range  #: the indices of all of them
    indices: list[int]  #: of those that could be read
    labels: list[int]  #: of these; −1 where none is known
    inputs: ModelInput  #: these, together
    unread: dict[int, str] = field(default_factory=dict)  #: index -> why not


def as_data_set(given: Any) -> Any:
    """Make a data set with a length and items of a user's argument.

    Raises
    ------
    TypeError
        It has none.
    ValueError
        It is empty.
    """
    if isinstance(given, (str, PathLike)):
        return PictureFolder(given)
    if isinstance(given, DataLoader):
        raise TypeError(
            "A DataLoader may shuffle, so its inputs have no fixed index: give its .dataset, and "
            "num_workers= and batch_size= here."
        )
    sized = hasattr(given, "__len__") and hasattr(given, "__getitem__")
    if isinstance(given, (IterableDataset, Mapping)) or not sized:
        raise TypeError(
            f"inputs= of type {type(given).__name__} has no inputs with an index: give a data set "
            "with a length and items 0, 1, …, a list, or a folder of pictures."
        )
    if not len(given):
        raise ValueError(f"The {type(given).__name__} is empty: give one with inputs in it.")
    return given


class Reader:
    """Reads batches of a data set, each the inputs of a span of indices.

    Pictures (paths, PIL images, arrays) go through ``transform``, or the model's own; tensors only
    through one that the user gave.
    """

    def __init__(
        self,
        data: Any,
        model: nn.Module | None,
        weights: Any = None,
        transform: Transform | None = None,
    ) -> None:
        self.data, self.transform = data, transform
        self._preprocessing: Preprocessing | ValueError
        try:
            self._preprocessing = _preprocessing(model, weights, transform)
        except ValueError as error:  # matters only if there are pictures
            self._preprocessing = error

    @property
    def rule(self) -> Any:
        """Transform of an item into an input; an error if it is unknown."""
        made = self._preprocessing
        return made if isinstance(made, ValueError) else made.transform

    def input(self, index: int) -> ModelInput:
        """One item as the model's input, of which `picture_of` makes a picture.

        Raises
        ------
        ValueError
            It cannot be read.
        """
        try:
            given, _ = split(self.data[index])
            inputs = _together({index: self._sample(given)})
        except Exception as error:  # of the data set's or the transform's own making
            why = f"{type(error).__name__}: {first_line(error)}"
            raise ValueError(f"Input {index} cannot be read ({why}).") from error
        known = self.transform is not None or _is_picture(given)
        mean, std = normalization_of(self.rule) or ((), ())
        return replace(inputs, mean=mean, std=std, normalized=known and bool(mean))

    def check(self) -> None:
        """Raise an error if the first item is a picture and no transform for pictures is known."""
        if isinstance(self.rule, ValueError) and _is_picture(split(self.data[0])[0]):
            raise self.rule

    def batches(self, spans: Sequence[range], workers: int) -> Iterator[Batch]:
        """Yield the batches of these spans in order, read by several processes."""
        # With a generator of its own, since it would draw a seed from everybody's.
        own = torch.Generator()
        given: Any = {"dataset": spans, "collate_fn": self.read}  # each item of it is a span
        return iter(DataLoader(**given, batch_size=None, num_workers=workers, generator=own))

    def read(self, span: range) -> Batch:
        """Neighbours in the data set, as one batch."""
        samples, labels, unread = {}, [], {}
        for index in span:
            try:
                given, label = split(self.data[index])
                samples[index] = self._sample(given)
                labels.append(label)
            except Exception as error:  # of the data set's or the transform's own making
                unread[index] = f"{type(error).__name__}: {first_line(error)}"
        return Batch(span, list(samples), labels, _together(samples), unread)

    def _sample(self, given: Any) -> dict[str, Tensor]:
        """One input's tensors by their names, with a batch dimension; a lone one has none."""
        if _is_picture(given):
            if isinstance(self._preprocessing, ValueError):
                raise self._preprocessing
            batch = self._preprocessing.apply(load_picture(given))[0]
            return {"": batch} if isinstance(batch, Tensor) else batch
        given = given if self.transform is None else self.transform(given)
        tensors = {"": given} if isinstance(given, Tensor) else given
        if isinstance(tensors, Mapping) and all(isinstance(v, Tensor) for v in tensors.values()):
            return {key: value[None] for key, value in tensors.items()}
        raise TypeError(
            f"a value of type {type(given).__name__} is not a picture, tensor or dict of tensors: "
            "give transform="
        )


def _is_picture(given: Any) -> bool:
    return isinstance(given, (str, PathLike, Image.Image, np.ndarray))


def _preprocessing(
    model: nn.Module | None, weights: Any, transform: Transform | None
) -> Preprocessing:
    if model is not None:
        return preprocessing_for(model, weights, transform)
    if transform is not None:
        return Preprocessing(transform, None, "transform= as given", given=True)
    raise ValueError(
        "These pictures went through a model's transform: give model=, or the transform= itself."
    )


def split(item: Any) -> tuple[Any, int]:
    """Split an item of a data set into the input and its class, −1 if it has none."""
    if isinstance(item, Tensor):
        return item, -1
    label: Any = None
    if isinstance(item, Mapping) and "image" in item and not _are_arguments(item):
        # As the rows of Hugging Face's data sets.
        item, label = item["image"], item.get("label")
    elif isinstance(item, (tuple, list)) and len(item):
        item, label = item[0], item[1] if len(item) > 1 else None
    if isinstance(label, (Tensor, np.generic)) and np.ndim(label) == 0:
        label = label.item()
    return item, int(label) if isinstance(label, Integral) else -1


def _are_arguments(item: Mapping[str, Any]) -> bool:
    """Return True for several tensors, none of them a label: arguments of the model's forward."""
    dense = all(isinstance(value, Tensor) and value.ndim for value in item.values())
    return dense and len(item) > 1 and "label" not in item


def _together(samples: Mapping[int, dict[str, Tensor]]) -> ModelInput:
    if not samples:
        return ModelInput(())
    first, *others = samples
    for index in others:
        pair = samples[first], samples[index]
        shapes = [{key: each.shape for key, each in sample.items()} for sample in pair]
        if shapes[0] != shapes[1]:
            # Pictures of several sizes have as many dimensions, inputs and labels usually do not.
            several = [tensor[0] for sample in pair for tensor in sample.values()]
            if is_loader_batch(several) and several[0].ndim != several[1].ndim:
                raise ValueError(LOADER_BATCH)
            one, two = map(_shapes, pair)
            raise ValueError(
                f"Inputs {first} and {index} differ in shape, {one} and {two}: give a transform= "
                "that makes them alike, or batch_size=1."
            )
    named = {key: torch.cat([each[key] for each in samples.values()]) for key in samples[first]}
    return ModelInput((named.pop(""),) if "" in named else (), named)


def _shapes(sample: Mapping[str, Tensor]) -> str:
    """Describe the shapes of a sample's tensors, without the batch dimension."""
    shapes = {key: "×".join(map(str, each.shape[1:])) for key, each in sample.items()}
    return ", ".join(f"{key} {shape}".strip() for key, shape in shapes.items())
