"""The input, the hook, the forward and the backward, and the score between them."""

from __future__ import annotations

import ast
from os import PathLike
from typing import Any

from torch import Tensor

from ...hooking.tensors import tensors_in
from ...run.target import Target, class_index
from .draft import WIDTH, CodeContext, as_drawn
from .edits import edit_hooks
from .inputs import quoted


def input_lines(draft: CodeContext) -> list[str]:
    """``model`` and ``x``, made or taken."""
    asking = ".requires_grad_()" if draft.scored and draft.differentiable else ""
    name, weights, x = draft.given.name, draft.given.weights, draft.x
    if name is None:
        draft.take("model", f"your {type(draft.user_model).__name__}")
        lines = []
    else:
        lines = [f"model = get_model({quoted(name)}, weights={quoted(weights.name)})"]
    if draft.preparation is not None:
        if not isinstance(draft.given.image, (str, PathLike)):
            draft.take("image", "the picture that you gave")
        return [*lines, *draft.preparation.lines, f"x = {draft.preparation.last}{asking}"]
    if x is None:
        names = ["args", *(["kwargs"] if draft.inputs.kwargs else [])]
        for name in names:
            draft.take(name, f"what went in: explorer.inputs.{name}")
        if draft.scored:
            copies = ", ".join(f"own({name})" for name in names)
            return [*lines, *_OWN.splitlines(), "", f"{', '.join(names)} = {copies}"]
        return [*lines, *(f"{name} = deepcopy({name})" for name in names)]
    draft.take("x", f"what went in, shape {tuple(x.shape)}: explorer.inputs.{draft.x_at}")
    return [*lines, *([f"x = x.clone(){asking}"] if asking else [])]


_OWN = """sources = []

def own(value):  # copies: the model may write into lists, and the gradient is asked of tensors
    if isinstance(value, (list, tuple)):
        return [own(each) for each in value]
    if isinstance(value, dict):
        return {key: own(each) for key, each in value.items()}
    if not torch.is_tensor(value) or not value.is_floating_point():
        return value
    sources.append(value.clone().requires_grad_())
    return sources[-1].clone()
"""


def hook_lines(draft: CodeContext) -> list[str]:
    """``keep``, the forward hook, and the lists that it fills."""
    calls, path = draft.record.calls, draft.call.outputs[0].path
    kept = "output.detach().clone()"
    why = "  # before in-place ReLUs overwrite it"
    where = [f"    output = output{_checked(path)}"] if path else []
    if len(calls) > 1:
        lines = ["calls = []", "", "def keep(module, args, output):", *where]
        lines += [f'    call = {{"activation": {kept}}}{why}', "    calls.append(call)"]
        watch = "output.register_hook(lambda gradient: call.update(gradient=gradient))"
    else:
        lists = "activations, gradients = [], []" if draft.graded else "activations = []"
        lines = [lists, "", "def keep(module, args, output):", *where]
        lines += [f"    activations.append({kept}){why}"]
        watch = "output.register_hook(gradients.append)"
    if not draft.graded:
        return lines
    if any(call.outputs[0].hooked_in_task is None for call in calls):
        return [*lines, "    if output.requires_grad:", f"        {watch}"]
    lines.append(f"    {watch}")
    # What overwrites a view in place takes the view's hook out of the graph; a sample without
    # batch dimension comes as a view, and so do tensors of other classes.
    if draft.arrangement == "[None]" or type(draft.call.activation) is not Tensor:
        lines.append("    return output.clone()")
    return lines


def _checked(path: str) -> str:
    """Where in its output a layer's tensor is, if Python can read that back."""
    try:
        node: Any = ast.parse(f"output{path}", mode="eval").body
    except SyntaxError:
        node = None
    while isinstance(node, ast.Attribute) or (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    ):
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError(
            f"There is no short code for a tensor at {path!r} of what a layer returns."
        )
    return path


def run_lines(draft: CodeContext) -> list[str]:
    """Eval mode, the forward under the hook, and the backward."""
    model, layer = draft.model, draft.layer(draft.record.name)
    lines = []
    if len({module.training for module in draft.core.modules()}) > 1:
        every = f"for module in {model}.modules()"
        lines.append(f"training = {{module: module.training {every}}}")
    lines += [f"{model}.requires_grad_()"] if _thawed(draft) else []
    lines += [f"{model}.eval()"]
    # The handle takes the hook off at the end of the block, also if the model raises.
    blocks = [*edit_hooks(draft), f"{layer}.register_forward_hook(keep)"]
    blocks = blocks if draft.scored else ["torch.no_grad()", *blocks]
    start = [f"with {', '.join(blocks)}:"]
    if len(start[0]) > WIDTH and len(blocks) > 1:
        start = ["with (", *(f"    {block}," for block in blocks), "):"]
    if not draft.scored:
        return [*lines, *start, f"    {draft.calling}"]
    scored = [f"    {line}" for line in score_lines(draft)]
    return [*lines, *start, *scored, *_backward(draft)]


def mode_back(draft: CodeContext) -> list[str]:
    """The end of eval mode, where it was off."""
    flags = {module.training for module in draft.core.modules()}
    if flags == {True}:
        return [f"{draft.model}.train()"]
    if flags == {False}:
        return []
    return ["for module, was in training.items():", "    module.training = was"]


def _thawed(draft: CodeContext) -> bool:
    """Whether the parameters, all frozen, must be asked for want of an input that can be."""
    frozen = not any(parameter.requires_grad for parameter in draft.core.parameters())
    given = tensors_in((draft.inputs.args, draft.inputs.kwargs))
    return draft.scored and frozen and not any(t.is_floating_point() for _, t in given)


def _backward(draft: CodeContext) -> list[str]:
    why = "  # sets off the hook; no .grad is touched" if draft.graded else ""
    saliency = draft.method == "saliency"
    if draft.differentiable and draft.run.goal == "inputs":
        return [f"{'(slopes,) = ' * saliency}torch.autograd.grad(score, x){why}"]
    sources = ["x"] if draft.differentiable else []
    thawed, parameters = _thawed(draft), list(draft.core.parameters())
    if thawed or all(parameter.requires_grad for parameter in parameters):
        sources.append(f"*{draft.model}.parameters()")
    else:
        sources.append(f"*(p for p in {draft.model}.parameters() if p.requires_grad)")
    return [
        f"sources {'+=' if draft.x is None else '='} [{', '.join(sources)}]",
        f"{'slopes, *_ = ' * saliency}torch.autograd.grad(score, sources, allow_unused=True){why}",
        *([f"{draft.model}.requires_grad_(False)"] if thawed else []),
    ]


def score_lines(draft: CodeContext) -> list[str]:
    """``score = ...``, a scalar."""
    target, logits = draft.at.target, draft.run.logits
    if callable(target):
        name = getattr(target, "__name__", type(target).__name__)
        draft.take("target", f"your function {quoted(name)}: explorer.target")
        return [f"score = target({draft.calling})"]
    if isinstance(target, list):
        terms = [term_of(draft, each, str(row)) for row, each in enumerate(target)]
        rows = [f"    {term},{comment}" for term, comment in terms]
        return [f"logits = {draft.logits}", "score = sum([", *rows, "])"]
    if logits is not None and len(logits) == 1:
        return with_logits(draft, "score = ", *term_of(draft, target, "0"))
    term, comment = term_of(draft, target, ":")
    term = f"({term}).sum()" if " - " in term else f"{term}.sum()"
    return with_logits(draft, "score = ", term, comment)


def term_of(draft: CodeContext, target: Target, row: str) -> tuple[str, str]:
    """One sample's score, or with ``row=":"`` each sample's ``(N,)``; and a comment."""
    if target is None:
        top = "logits.amax(1)" if row == ":" else f"logits[{row}].max()"
        return top, "  # the top class" + (" of each sample" if row == ":" else "")
    classes: Any = target if isinstance(target, tuple) else (target,)
    first, *others = (class_number(draft, each) for each in classes)
    names = draft.class_names
    said = " against ".join(quoted(names[i]) for i in (first, *others) if i < len(names))
    comment = f"  # {said}" if said else ""
    term = f"logits[{row}, {first}]"
    if len(others) == 1:
        term += f" - logits[{row}, {others[0]}]"
    elif others:
        term += f" - logits[{row}, {others}].mean({'1' if row == ':' else ''})"
    return term, comment


def class_number(draft: CodeContext, target: Any) -> int:
    """The number of a class that the target names."""
    assert draft.run.logits is not None  # there is no score of classes without
    return class_index(target, draft.run.logits.shape[1], draft.class_names)


def with_logits(draft: CodeContext, start: str, term: str, comment: str) -> list[str]:
    """The term with the model's answer in it, in one line if it is needed once."""
    if term.count("logits") == 1:
        return [start + term.replace("logits", draft.logits) + comment]
    return [f"logits = {draft.logits}", start + term + comment]


def map_lines(draft: CodeContext) -> list[str]:
    """``activation`` and ``gradient``, arranged as ``(N, C, *spatial)``."""
    arranged = draft.arrangement + as_drawn(draft.call.activation)
    names = ["activation", *(["gradient"] if draft.graded else [])]
    several = len(draft.record.calls) > 1
    place = f'calls[{draft.at.call}]["{{}}"]' if several else "{}s[0]"
    values = [place.format(name) + arranged for name in names]
    whole = f"{', '.join(names)} = {', '.join(values)}"
    if not arranged and len(whole) <= WIDTH:
        return [whole]
    return [f"{name} = {value}" for name, value in zip(names, values, strict=True)]
