"""The input, the edits, the hook, the forward and the backward, and the score between them."""

from __future__ import annotations

import textwrap
from os import PathLike
from typing import Any

from torch import Tensor
from torchvision.models import WeightsEnum

from ...hooking.edit import LayerEdit, index_words
from ...hooking.tensors import channel_dimension
from ...run.output import Output
from ...run.target import class_index
from .context import WIDTH, CodeContext, as_drawn
from .inputs import quoted


def input_lines(context: CodeContext) -> list[str]:
    """Write ``model`` and ``x``, made or to be defined by the user."""
    asking = ".requires_grad_()" if context.scored else ""
    name, weights, x = context.given.name, context.given.weights, context.x
    lines = []
    if name is None:
        context.take("model", f"your {type(context.user_model).__name__}")
    elif isinstance(weights, WeightsEnum):
        lines.append(f"model = get_model({quoted(name)}, weights={quoted(weights.name)})")
    else:
        context.take("model", f"hookviz.pretrained({quoted(name)})[0]")
    if context.preparation is not None:
        if not isinstance(context.given.image, (str, PathLike)):
            context.take("image", "the picture that you gave")
        *before, made = context.preparation
        return [*lines, *before, f"x = {made}{asking}"]
    assert x is not None
    context.take("x", f"the input, shape {tuple(x.shape)}: explorer.inputs.{context.x_at}")
    return [*lines, *([f"x = x.clone(){asking}"] if asking else [])]


def edit_lines(context: CodeContext) -> list[str]:
    """Write the explorer's edits as plain forward hooks, ``edit_0`` and so on."""
    lines: list[str] = []
    for number, edit in enumerate(context.view.session.edits):
        chosen, old = _chosen(context, edit), ""
        if edit.factor:
            old = f"output[{chosen}] * "
        lines += [
            f"def edit_{number}(module, args, output):  # {_said(edit)}",
            "    output = output.clone()  # a new tensor, or backward may break",
            f"    output[{chosen}] = {old}{edit.factor!r}",
            "    return output",
            "",
        ]
    return lines


def _chosen(context: CodeContext, edit: LayerEdit) -> str:
    """Return the index of the channels that an edit scales."""
    if edit.factor is None or edit.where is not None or edit.of_input or edit.of_heads:
        raise _refusal(edit, "it does more than scale channels; use hookviz.edit")
    record = context.view.cache.get(edit.layer)
    if record is None:
        raise _refusal(edit, "its layer is not captured; add it to layers=")
    call = record.last
    plain = [each.path for each in call.outputs] == [""]
    if not plain or channel_dimension(call.activation, record.module, call.grid) != 1:
        raise _refusal(edit, "the layer's output is not a batch of maps; edit a layer within it")
    channels: Any = edit.channels
    if channels is None:
        return ":"
    if isinstance(channels, (int, slice)):
        return f":, {index_words(channels)}"
    return f":, {channels.tolist() if isinstance(channels, Tensor) else list(channels)}"


def _said(edit: LayerEdit) -> str:
    return quoted(str(edit))[1:-1]


def _refusal(edit: LayerEdit, why: str) -> ValueError:
    return ValueError(f"There is no short code for the edit of {_said(edit)}: {why}.")


def hook_lines(context: CodeContext) -> list[str]:
    """Write ``keep``, the forward hook, and the lists that it fills."""
    calls, kept = context.record.calls, "output.detach().clone()"
    why = "  # before in-place ReLUs overwrite it"
    if len(calls) > 1:
        lines = ["calls = []", "", "def keep(module, args, output):"]
        lines += [f'    call = {{"activation": {kept}}}{why}', "    calls.append(call)"]
        register = "output.register_hook(lambda gradient: call.update(gradient=gradient))"
    else:
        lists = "activations, gradients = [], []" if context.graded else "activations = []"
        lines = [lists, "", "def keep(module, args, output):"]
        lines += [f"    activations.append({kept}){why}"]
        register = "output.register_hook(gradients.append)"
    if not context.graded:
        return lines
    if any(call.outputs[0].hooked_in_task is None for call in calls):
        return [*lines, "    if output.requires_grad:", f"        {register}"]
    return [*lines, f"    {register}"]


def run_lines(context: CodeContext) -> list[str]:
    """Write eval mode, the forward under the hooks, the backward, and the restored mode."""
    model, edits = context.model, context.view.session.edits
    flags = {module.training for module in context.core.modules()}
    lines, back = [f"{model}.eval()"], [f"{model}.train()"] if flags == {True} else []
    if len(flags) > 1:
        lines.insert(0, f"training = {{module: module.training for module in {model}.modules()}}")
        back = ["for module, was in training.items():", "    module.training = was"]
    # The handle removes the hook at the end of the block, also if the model raises.
    hooked = [(each.layer, f"edit_{number}") for number, each in enumerate(edits)]
    blocks = [] if context.scored else ["torch.no_grad()"]
    for name, hook in [*hooked, (context.record.name, "keep")]:
        blocks.append(f"{context.layer(name)}.register_forward_hook({hook})")
    start = [f"with {', '.join(blocks)}:"]
    if len(start[0]) > WIDTH and len(blocks) > 1:
        start = ["with (", *(f"    {block}," for block in blocks), "):"]
    if not context.scored:
        return [*lines, *start, f"    {context.calling}", *back]
    scored = [f"    {line}" for line in _score_lines(context)]
    return [*lines, *start, *scored, *_backward(context), *back]


def _backward(context: CodeContext) -> list[str]:
    why = "  # runs the hook; no .grad is written" if context.graded else ""
    saliency = context.method == "saliency"
    if context.run.source == "inputs":
        return [f"{'(input_gradient,) = ' * saliency}torch.autograd.grad(score, x){why}"]
    return [  # not every layer depends on the input
        f"sources = [x, *(p for p in {context.model}.parameters() if p.requires_grad)]",
        f"{'input_gradient, *_ = ' * saliency}"
        f"torch.autograd.grad(score, sources, allow_unused=True){why}",
    ]


def _score_lines(context: CodeContext) -> list[str]:
    """Write ``score = ...``, a scalar."""
    target, logits, names = context.settings.target, context.run.logits, context.class_names
    if isinstance(target, Output):
        return [f"output = {context.calling}", f"score = {target}"]
    if callable(target):
        name = getattr(target, "__name__", type(target).__name__)
        context.take("target", f"your function {quoted(name)}: explorer.target")
        return [f"score = target({context.calling})"]
    assert logits is not None  # a class score needs them
    one, count = len(logits) == 1, logits.shape[1]
    if target is None:
        top = "[0].max()  # the top class" if one else ".amax(1).sum()  # each sample's top class"
        return [f"score = {context.logits}{top}"]
    if isinstance(target, list):
        tops = logits.argmax(1).tolist()
        every = [top if t is None else class_index(t, count, names)
                 for t, top in zip(target, tops, strict=True)]  # fmt: skip
        classes = textwrap.wrap(f"classes = {every}", WIDTH - 4, subsequent_indent="    ")
        return [*classes, f"score = {context.logits}[range({len(every)}), classes].sum()"]
    if isinstance(target, tuple):
        first, *others = (class_index(each, count, names) for each in target)
        against = f" - logits[:, {others}].mean(1)" if others else ""
        whole = f"score = (logits[:, {first}]{against}).sum()"
        return [f"logits = {context.logits}", whole]
    index = class_index(target, count, names)
    comment = f"  # {quoted(names[index])}" if index < len(names) else ""
    line = f"score = {context.logits}" + (f"[0, {index}]" if one else f"[:, {index}].sum()")
    return [line + comment * (len(line + comment) <= WIDTH - 4)]


def map_lines(context: CodeContext) -> list[str]:
    """Write ``activation`` and ``gradient``, arranged as ``(N, C, *spatial)``."""
    arranged = f"{context.arrangement}{as_drawn(context.call.activation)}"
    names = ["activation", *(["gradient"] if context.graded else [])]
    several = len(context.record.calls) > 1
    place = f'calls[{context.settings.call}]["{{}}"]' if several else "{}s[0]"
    values = [place.format(name) + arranged for name in names]
    whole = f"{', '.join(names)} = {', '.join(values)}"
    if not arranged and len(whole) <= WIDTH:
        return [whole]
    return [f"{name} = {value}" for name, value in zip(names, values, strict=True)]
