"""The explorer's edits as plain forward hooks, each of which returns what is handed on."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...hooking.edit import LayerEdit, index_words
from ...hooking.tensors import channel_dimension
from .draft import CodeContext
from .inputs import quoted


def edit_lines(draft: CodeContext) -> list[str]:
    """The hooks, ``edit_0`` and so on."""
    lines: list[str] = []
    for number, edit in enumerate(draft.view.session.edits):
        lines += [f"def edit_{number}(module, args, output):  # {_said(edit)}"]
        lines += [f"    {line}" for line in _body(draft, edit, number)] + [""]
    return lines


def edit_hooks(draft: CodeContext) -> list[str]:
    """Where they are set, in their order."""
    edits = draft.view.session.edits
    return [
        f"{draft.layer(each.layer)}.register_forward_hook(edit_{number})"
        for number, each in enumerate(edits)
    ]


def _said(edit: LayerEdit) -> str:
    return quoted(str(edit))[1:-1]


def _body(draft: CodeContext, edit: LayerEdit, number: int) -> list[str]:
    chosen = _chosen(draft, edit, number)
    if chosen is None:
        return [f"return {_new(draft, edit, number)}"]
    copied = "output = output.clone()  # a new tensor, or backward may break"
    if edit.factor == 0:
        return [copied, f"output[{chosen}] = 0", "return output"]
    if edit.factor is not None:
        new = f"output[{chosen}] * {edit.factor!r}"
    else:
        new = f"{_new(draft, edit, number)}[{chosen}]"
    return [f"new = {new}", copied, f"output[{chosen}] = new", "return output"]


def _new(draft: CodeContext, edit: LayerEdit, number: int) -> str:
    """All of what the edit makes of a layer's output."""
    if edit.factor is not None:
        return f"output * {edit.factor!r}"
    if isinstance(edit.change, str):
        places = tuple(range(2, _dimensions(draft, edit)))
        return f"output.mean({places}, keepdim=True).expand_as(output)"
    what = f"explorer.edits[{number}].change"
    if isinstance(edit.change, Tensor):
        draft.take(f"value_{number}", what)
        return f"value_{number}.to(output).expand_as(output).clone()"
    draft.take(f"change_{number}", f"your function: {what}")
    return f"change_{number}(output.clone())"


def _chosen(draft: CodeContext, edit: LayerEdit, number: int) -> str | None:
    """The index of what is changed; None if all is."""
    if edit.channels is None and edit.where is None:
        return None
    _dimensions(draft, edit)
    channels = _channels(draft, edit, number)
    if edit.where is None:
        return f":, {channels}"
    if isinstance(edit.where, Tensor):
        raise _refusal(edit, "places are a mask")
    where = edit.where if isinstance(edit.where, tuple) else (edit.where,)
    if not isinstance(edit.channels, (int, slice, type(None))):
        raise _refusal(edit, "places go with a list of channels")
    return ", ".join([":", channels, *map(index_words, where)])


def _channels(draft: CodeContext, edit: LayerEdit, number: int) -> str:
    channels = edit.channels
    if channels is None:
        return ":"
    if isinstance(channels, (int, slice)):
        return index_words(channels)
    if isinstance(channels, Sequence):
        return repr(list(channels))
    draft.take(f"channels_{number}", f"explorer.edits[{number}].channels")
    return f"channels_{number}"


def _dimensions(draft: CodeContext, edit: LayerEdit) -> int:
    """How many dimensions the layer's output has, the channels in the second."""
    record = draft.view.cache.get(edit.layer)
    if record is None:
        raise _refusal(edit, "its layer is none of those that were captured")
    call = record.last
    shape = call.outputs[0].shape if [each.path for each in call.outputs] == [""] else ()
    if not shape or channel_dimension(call.activation, record.module, call.grid) != 1:
        raise _refusal(edit, "the layer's output is no batch of maps")
    return len(shape)


def _refusal(edit: LayerEdit, why: str) -> ValueError:
    return ValueError(f"There is no short code for the edit of {_said(edit)}, since {why}.")
