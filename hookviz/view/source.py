"""The input of a view: which picture and sample the shown maps were computed from."""

from __future__ import annotations

import numpy as np
from torch import nn

from ..draw.overlay import picture_of
from ..hooking.select import dimensions, first_convolution, first_names
from ..run.inputs import ModelInput
from ..run.origins import (
    UNKNOWN,
    PictureSource,
    RowSources,
    call_origins,
    picture_tensors,
    single_picture,
)
from .maps import depth_share, layer_of, layers_of, rows_of, whole_record_of
from .transform import TransformWords, transform_words_of
from .view import View, cached


def source_of(view: View) -> PictureSource | str:
    """Return the input sample that the shown maps were computed from, or why none can be named."""
    if _is_folded(view):
        return "the model folds the pictures of its input into the batch, or takes it in slices"
    if (single := _single_picture(view)) is not None:
        return single
    origins = _origins(view).get(whole_record_of(view).module, [])
    call, sample, rows = view.settings.call, view.settings.sample, layer_of(view).samples
    if call >= len(origins) or len(origins[call]) != rows or sample >= rows:
        return UNKNOWN
    return origins[call][sample]


@cached(of_input=True)
def _is_folded(view: View) -> bool:
    """Return whether convolutions of pictures get an input such as crops or frames, of 5 sizes."""
    main, first = view.session.inputs.main, first_convolution(view.session.model)
    flat = first is not None and dimensions(first) < 3
    return flat and main is not None and main.ndim == 5


@cached(of_input=True)
def _single_picture(view: View) -> PictureSource | None:
    return single_picture(view.session)


@cached(of_input=True)
def _origins(view: View) -> dict[nn.Module, list[RowSources]]:
    """Return the origins of each layer's calls; they are the same with and without edits."""
    session = view.session.edited(())
    names = first_names(session.model)
    shown = {record.module: names[record.module] for record in view.cache.values()}
    try:
        found = call_origins(session, shown.values())
    except (ValueError, TypeError, RuntimeError):
        return {}
    return {
        module: [rows for (layer, _), rows in sorted(found.items()) if layer == name]
        for module, name in shown.items()
    }


def input_sample(view: View) -> int:
    """Return the sample of the input, and of the output, that the shown maps belong to.

    If it cannot be named, it is taken that each sample has the same number of rows, in order.
    """
    if isinstance(source := source_of(view), PictureSource):
        return source.sample
    rows, batch = layer_of(view).samples, view.session.inputs.samples
    return view.settings.sample * batch // rows if rows % batch == 0 else 0


def is_of_parts(view: View) -> bool:
    """Return whether the layer's samples are windows or boxes cut from the inputs."""
    main = view.session.inputs.main
    return main is not None and layer_of(view).samples > len(main)


@cached()
def layers_of_parts(view: View) -> set[str]:
    """Return the layers that run on parts of the inputs."""
    main = view.session.inputs.main
    if main is None:
        return set()
    return {name for name in layers_of(view) if rows_of(view.cache[name].last) > len(main)}


def picture_and_words(view: View) -> tuple[np.ndarray | None, str]:
    """Return the shown sample's input, of a volume the slice at the same relative depth.

    With it comes a note on the normalization. It is None if its source is unknown.
    """
    at = picture_at(view)
    return (None, "") if at is None else picture_part(view, *at)


def shown_picture(view: View) -> np.ndarray | None:
    """Return the picture beside the maps; None if its source is unknown."""
    return picture_and_words(view)[0]


def picture_at(view: View) -> tuple[int, float, int] | None:
    """Return the sample, the relative depth and the input tensor of the picture beside the maps."""
    source = source_of(view)
    if not isinstance(source, PictureSource):
        return None
    return source.sample, depth_share(view), source.input


def why_no_picture(view: View) -> str:
    """Return why there is no picture beside the maps, in a sentence; empty if there is one."""
    if isinstance(source := source_of(view), str) and picture_tensors(view.session.inputs):
        return f"No picture is shown beside this map: {source}."
    return ""


def picture_part(
    view: View, sample: int, depth: float, tensor: int
) -> tuple[np.ndarray | None, str]:
    """Return a sample of an input tensor, at a relative depth, and a note on normalization."""
    key, inputs = (sample, depth, tensor), shown_inputs(view)
    memo = view.input_memo if inputs is view.session.inputs else view.memo
    return memo.get_or_compute("picture", key, lambda: picture_of(inputs, *key))


def shown_inputs(view: View) -> ModelInput:
    """Return the input of the run, after the edits that change it."""
    return view.run.edited_inputs or view.session.inputs


@cached(of_input=True)
def transform_of(view: View) -> TransformWords | None:
    """Return the transform in words; None where no picture was given."""
    return transform_words_of(view.session)
