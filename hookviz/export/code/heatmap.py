"""The heatmap: by the function that made it, or by captum."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

from ...attribution.cam import HEATMAPS
from ...attribution.gradients import ATTRIBUTIONS, GuidedReLUs
from ...view.settings import EFFECTIVE, PRODUCT
from .draft import CodeContext, as_drawn
from .function_source import Source, source_of
from .inputs import quoted
from .run import class_number, score_lines, term_of, with_logits


def heatmap_source(draft: CodeContext) -> Source | None:
    """The function or class that the heatmap needs, if it can be printed."""
    method = draft.method
    if method not in HEATMAPS and method != "guided_backprop":
        return None
    function: Any = HEATMAPS.get(method, GuidedReLUs)
    return draft.view.memo.once("source", (function,), lambda: source_of(function))


def heatmap_lines(draft: CodeContext, source: Source | None) -> list[str]:
    """``heatmap = ...``, by ``source``, or else by a function that the code takes."""
    method, at = draft.method, draft.at
    if method is None:
        return []
    if method in ATTRIBUTIONS:
        return _attribution(draft, method)
    if method == PRODUCT:
        return [f"heatmap = (activation * gradient)[{draft.index(at.sample, at.channel)}]"]
    if method == EFFECTIVE:
        raise ValueError(
            "The effective field takes more than a few lines: hookviz.receptive_field(model, "
            f"{quoted(at.layer)}, x).effective(x) computes it."
        )
    if source is None:
        draft.take("method", f"your function: hookviz.attribution.HEATMAPS[{quoted(method)}]")
    alone = len(inspect.signature(HEATMAPS[method]).parameters) == 1
    given = "activation" if alone else f"activation, {'gradient' if draft.graded else None}"
    called = f"{source.name if source else 'method'}({given})"
    return [f"heatmap = {called}[{draft.index(at.sample)}]"]


def _attribution(draft: CodeContext, method: str) -> list[str]:
    assert draft.x is not None
    sample = min(draft.at.sample, len(draft.x) - 1)
    # Captum is given the sample by itself, but to a function as target the whole batch.
    cut = len(draft.x) > 1 and not callable(draft.at.target)
    row = 0 if cut and method in ("smoothgrad", "integrated_gradients") else sample
    end = f"[{', '.join(map(str, [row, *draft.x_depth]))}]{as_drawn(draft.x)}"
    if method == "saliency":
        return [f"heatmap = slopes.abs().amax(1){end}"]
    if method == "guided_backprop":
        return [
            "with GuidedReLUs():",
            *(f"    {line}" for line in score_lines(draft)),
            "(slopes,) = torch.autograd.grad(score, x)",
            f"heatmap = slopes.sum(1){end}",
        ]
    part = f"x[{sample}:{sample + 1}]" if cut else "x"
    given = part.replace("x", "x.detach()")
    function, name, target = _captums_function(draft, sample)
    if method == "integrated_gradients":
        rows = len(draft.x) if callable(draft.at.target) else 1
        made = [
            f"slopes = IntegratedGradients({name}).attribute(",
            f"    {given}, {target}internal_batch_size={rows}",
        ]
    else:
        made = [
            "torch.manual_seed(0)",
            f"slopes = NoiseTunnel(Saliency({name})).attribute(",
            f"    {given}, {target}abs=False, nt_samples=25, nt_samples_batch_size=1,",
            f"    stdevs=0.15 * ({part}.max() - {part}.min()).item(),",
        ]
    return [*function, *made, ")", f"heatmap = slopes.sum(1){end}"]


def _captums_function(draft: CodeContext, sample: int) -> tuple[list[str], str, str]:
    """What captum is given: the model and a target, or a function of our own and none."""
    target, logits = draft.at.target, draft.run.logits
    if callable(target):
        body = [f"return target({draft.calling}).reshape(1)"]
    else:
        target = target[sample] if isinstance(target, list) else target
        if target is None:  # the class of the picture itself, whatever noise is added
            assert logits is not None
            target = int(logits[sample].argmax())
        plain = issubclass(draft.run.returned, Tensor) and draft.calling == f"{draft.model}(x)"
        if plain and not isinstance(target, tuple):
            return [], draft.model, f"target={class_number(draft, target)}, "
        body = with_logits(draft, "return ", *term_of(draft, target, ":"))
    return ["", "def score_of(x):", *(f"    {line}" for line in body), ""], "score_of", ""
