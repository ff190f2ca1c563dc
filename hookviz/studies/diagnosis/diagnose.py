"""``hookviz.diagnose``: one look at a model, or a guard around a step of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from ...hooking.select import check_model, is_convolution
from ...hooking.tensors import tensors
from ...run.errors import refuse_quantized
from ...run.inputs import Transform, prepare_input, refuse_empty
from ...run.session import Session
from ...run.target import Target, logits_of, score_of
from ..showing import widget
from .all_checks import causes, findings_of, looked_at, new_checks
from .check import LayerCall, RunRecord
from .checks.optimizer import as_optimizers
from .examination import examine
from .findings import Diagnosis, Finding, Ignored
from .guard import Guard
from .loss_scale import check_scaler


def diagnose(
    model: nn.Module,
    inputs: Any = None,
    target: Target = None,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    optimizer: Any = None,
    scaler: Any = None,
    ignore: Ignored = (),
) -> Diagnosis:
    """Find what is wrong with a model: the layer, the operation, the cause and the fix.

    ``diagnose(model, inputs)`` runs one forward and one backward and examines every operation.
    ``with diagnose(model) as findings:`` guards a training step of the user, which stays the same,
    to the bit: while it runs, the least and the largest value are taken of each output of the model
    and of each gradient that reaches an output or a weight. If the model raises, or if something
    looks wrong, such as a value that is not finite, the call is repeated with the same inputs,
    random numbers and buffers, and examined. The findings are there when the block is over.

    Parameters
    ----------
    model : torch.nn.Module
        Runs unchanged, in training or in eval mode, and afterwards is as before, to the bit.
    inputs : optional
        The input, as in `hookviz.explore`; NaN and Inf are allowed. Without it, a ``with`` block
        is returned.
    target : optional
        The score of the gradient, as in `hookviz.explore`, such as a loss of the output:
        ``lambda output: loss(output, y)``. None is the sum of all outputs, and for class scores
        each sample's own top class.
    weights, transform, class_names : optional
        As in `hookviz.explore`.
    optimizer : torch.optim.Optimizer or list of them, optional
        Checked, too: weights that it lacks or holds twice, frozen weights, weights of another
        model, a learning rate of 0 or far too high, of SGD only if ``target`` is the loss. It takes
        no step. It also tells which weights this step trains: pass all optimizers of a model that
        several train, such as a GAN.
    scaler : torch.amp.GradScaler, optional
        The one that scales the loss. NaN and Inf in gradients that are too large for their type are
        a note then, since it skips such a step. Without it they are a note in float16 alone.
    ignore : sequence of str or of (str, str)
        Findings to leave out: kinds, or a kind and a pattern of layers, as in
        ``["batchnorm", ("saturated", "head.*")]``.

    Returns
    -------
    Diagnosis
        A sequence of `Finding`, worst first, displayed as a table. ``healthy`` is True if there is
        nothing but notes, ``show()`` opens the explorer at a finding's layer, and ``text()`` has
        all findings, of which a terminal shows the first 25 lines.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError
        No model takes such an input, or ``optimizer`` or ``scaler`` is something else. An error of
        the model itself is a finding; in a ``with`` block it is raised, too.

    Notes
    -----
    A finding's ``kind`` is one of:

    - ``"nan"``, ``"inf"``: the first operation that made one from finite numbers, with the
      cause, or the parameter, buffer or input that held it; reported only if it left a layer,
      reached the output or a weight. Operations that pass it on are counted, not listed, and
      masks of −Inf are not, unless the loss is infinite or they fill an output.
    - ``"half precision"``: results above half of the type's largest number, or more than a tenth
      of a tensor's numbers that become 0 in the type; not those that a cast loses beside numbers
      ten million times as large, as a mask of −100 makes them.
    - ``"dead"``, ``"constant"``, ``"saturated"``: more than half of a layer's channels are zero,
      or the same number, everywhere; or nine tenths of a sigmoid's or tanh's values at its ends.
      Nothing where a sigmoid gates or answers; a note where channels were trained away;
      ``"silent"`` where other inputs may wake the channels.
    - ``"zero weights"``, ``"same channels"``, ``"not registered"``, ``"one module"``: weights that
      are zero, equal in all channels, not among the model's parameters, or under several names.
    - ``"exploding"``, ``"vanishing"``: activations (root mean square) or gradients (norm) that are
      a million times as large, or as small, further on.
    - ``"shape"``, ``"error"``, ``"empty"``: the model, or the block, raises; a batch of nothing.
    - ``"loss"``, ``"input scale"``: targets that the loss does not take, such as a mask of 0 and
      255, a softmax before a cross entropy, (N, 1) against (N,) and the like; input on another
      scale than the first BatchNorm saw in training.
    - ``"no gradient"``, ``"unused"``: weights that no gradient reaches, or a score that has none
      or one of 0, and why: detached, under ``no_grad``, times 0; layers that never ran.
    - ``"not examined"``: layers that hooks cannot see, such as those of a ``ScriptModule``, or,
      in a ``with`` block, those that run within ``torch.vmap``; a check of hookviz that failed.
    - ``"batchnorm"``, ``"dropout"``, ``"training mode"``: layers that act differently in training;
      a dropout of everything.
    - ``"in place"``: outputs that are overwritten by a later layer; an error where a gradient
      needs what was there.
    - ``"hooks left behind"``: the same hook set several times; a note for other hooks.
    - ``"optimizer"``, ``"learning rate"``: parameters that ``optimizer`` lacks or does not move,
      weight decay that erases them.

    A finding is one cause: ``layers`` lists all layers that show it.

    In a ``with`` block compiled code runs eagerly, and the user's hooks run again if the model is
    examined. The loss is recorded there and not run again.

    Examples
    --------
    >>> import torch, hookviz
    >>> from torch import nn
    >>> class Entropy(nn.Module):
    ...     def forward(self, x):
    ...         return -(x * torch.log(x)).sum()
    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), Entropy())
    >>> _ = nn.init.constant_(model[0].weight, -1.0)
    >>> findings = hookviz.diagnose(model, torch.ones(1, 1, 8, 8))
    >>> findings[0].kind, findings[0].layer, findings[0].operation
    ('inf', '2', 'log')
    """
    check_model(model)
    refuse_quantized(model)
    check_scaler(scaler)
    optimizers = as_optimizers(optimizer)
    if inputs is None:
        if target is not None:
            raise ValueError(
                "target= needs inputs: hookviz.diagnose(model, x, target=…). A `with` block takes "
                "the loss from the step within it."
            )
        return Guard(model, optimizers, scaler, ignore)
    _refuse_labels(target)
    prepared = prepare_input(inputs, model, weights=weights, transform=transform, finite=False)
    refuse_empty(prepared)
    # Bytes, or channels last, are what a user has to hear of: no picture is made of them here.
    if prepared.replacement is not None and prepared.replacement.pictures:
        prepared = replace(prepared, replacement=None)
    session = Session(model, prepared, weights=weights, class_names=class_names)
    diagnosis = Diagnosis(session.name, ignore)
    run = examine(session, target, checks=new_checks, score_of=any_score)
    run.judged, run.loss = target is not None, callable(target)
    run.optimizers, run.scaler = list(optimizers), scaler
    found = causes(findings_of(run))
    diagnosis.set_findings(found, looked_at(run), partial(_explored, session, run))
    return diagnosis


def _refuse_labels(target: Any) -> None:
    """Say what to write where labels, or a loss that needs them, stand in a target's place."""
    several = target if isinstance(target, tuple) else (target,)
    if isinstance(target, nn.modules.loss._Loss) or any(isinstance(e, Tensor) for e in several):
        raise ValueError(
            f"target= is of type {type(target).__name__}: give a function of the output that "
            "computes the loss, such as lambda output: nn.functional.cross_entropy(output, y)."
        )


def _explored(session: Session, run: RunRecord, finding: Finding) -> Any:
    """Open an explorer on the convolutions and the finding's layer, or the nearest with maps."""
    shown = _with_maps(run.calls, finding)
    layers = [m for m in run.names if is_convolution(m) or m is shown.module]
    return widget(
        "explore",
        session.given,
        session.inputs,
        layers=layers,
        layer=shown.layer,
        call=shown.call,
        class_names=session.class_names,
    )


def _with_maps(calls: Sequence[LayerCall], finding: Finding) -> LayerCall:
    """Return the finding's call of its layer, or the last one before its end that has maps."""
    own = [each for each in calls if each.place == (finding.layer, finding.call)]
    within = finding.layer + "." if finding.layer else ""
    inside = [each for each in calls if each.layer.startswith(within)]
    before = calls[: calls.index(own[0])] if own else []
    for look in (*own, *reversed(inside), *reversed(before)):
        if look.shapes and 2 <= len(look.shapes[0]) <= 5:
            return look
    named = f"layer {finding.layer!r}" if finding.layer else "the model itself"
    raise ValueError(f"No maps can be shown: neither {named} nor a layer before it has any.")


def any_score(output: Any, target: Target, class_names: Sequence[str]) -> Tensor | None:
    """`score_of`, and without a target the sum of all else that it returns, too."""
    if target is not None:
        return score_of(output, target, class_names)
    logits = logits_of(output)
    others = [tensor for tensor in tensors(output) if tensor is not logits]
    graded = [t.sum() for t in others if t.requires_grad and t.is_floating_point()]
    if (score := score_of(output, None)) is not None:
        graded.append(score)
    return sum(graded[1:], graded[0]) if graded else None
