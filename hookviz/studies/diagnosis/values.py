"""Checks of values: dead, constant, saturated, lost in half precision; weights that stand still."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...attribution.attention import has_collapsed, is_uniform
from ...hooking.weights import stored_tensor
from ...tables import number
from .findings import Finding
from .observation import Observation
from .operations import HALF, MAPS, OperationRecord, Range, is_batchnorm

Held = tuple[str, nn.Module]


def zero_weights(seen: Observation) -> Iterator[Finding]:
    """Layers whose weights are 0 throughout: by design where a gradient reaches them, or a fault.

    What lies before a layer that begins at zero gets no gradient in the first step, and that is
    no fault either.
    """
    if seen.error is not None:
        return
    zero = of_zeros(seen)
    learning = {name for name in zero if learns(seen, name)}
    for name, module in zero.items():
        faulty = not _by_design(seen, name, learning)
        if not faulty and not isinstance(module, LINEAR):
            continue  # a shortcut's way to begin
        yield Finding(
            "zero weights",
            "warning" if faulty else "note",
            f"All weights of {name!r} ({type(module).__name__}) are zero"
            + ("" if is_zero(module) else " as it scales them")
            + (": it returns the same whatever it is given." if faulty else ", as a layer begins."),
            "Initialise them, nn.init.kaiming_normal_(layer.weight), or load the trained ones."
            if faulty
            else "Nothing, if it is to begin at zero: a gradient reaches it.",
            name,
            cause="zero" if faulty else "begins at zero",
        )


def same_channels(seen: Observation) -> Iterator[Finding]:
    """Layers all of whose channels have the same weights, and so learn the same."""
    if seen.error is not None:
        return
    for name, module in weighted(seen):
        weight = stored_tensor(module, "weight")
        if not isinstance(module, LINEAR) or weight is None or not weight.requires_grad:
            continue
        if _channels_alike(weight, getattr(module, "groups", 1)) and not is_zero(module):
            yield Finding(
                "same channels",
                "warning",
                f"All {len(weight)} channels of {name!r} ({type(module).__name__}) have the same "
                "weights: they return the same, get the same gradient and stay the same.",
                "Initialise them at random: nn.init.kaiming_normal_(layer.weight).",
                name,
                cause="same channels",
            )


LINEAR = (nn.modules.conv._ConvNd, nn.Linear)


def _channels_alike(weight: Tensor, groups: int) -> bool:
    """Return True if all rows of each group are equal; a depthwise convolution has a single one."""
    if weight.ndim < 2 or len(weight) // groups < 2 or weight.is_meta:
        return False
    rows = weight.detach()
    if not bool((rows[0] == rows[1]).all()):  # nearly always the end of it
        return False
    rows = rows.unflatten(0, (groups, -1))
    return bool((rows == rows[:, :1]).all())


def weighted(seen: Observation) -> list[Held]:
    """Convolutions, linear layers and norms that ran, by their names, in the order they ran."""
    ran = dict.fromkeys(look.layer for look in seen.calls)
    kinds = (*LINEAR, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
    return [(name, m) for name in ran if isinstance(m := seen.modules[name], kinds)]


def is_zero(module: nn.Module) -> bool:
    """Return True if a layer's weight is 0 throughout."""
    weight = stored_tensor(module, "weight")
    if weight is None or weight.is_meta or not weight.numel():
        return False
    first = weight.detach().flatten()[:1]
    return not bool(first.any()) and not bool(weight.detach().any())


def zeroed(model: nn.Module) -> list[str]:
    """Return the names of a model's convolutions and linear layers whose weights are all zero."""
    found = model.named_modules()
    return [name for name, each in found if isinstance(each, LINEAR) and is_zero(each)]


def of_zeros(seen: Observation) -> dict[str, nn.Module]:
    """Return the layers whose weights are 0, also those that compute them, as with a gain of 0."""
    computed = {each.layer for each in seen.operations if each.facts.get("zeros")}
    return {name: m for name, m in weighted(seen) if is_zero(m) or name in computed}


def learns(seen: Observation, name: str) -> bool:
    """Return True if a gradient other than 0 reaches a layer's weights."""
    own = {f"{name}.{each}" if name else each for each, _ in seen.modules[name].named_parameters()}
    return any(seen.gradient_norms.get(each, 0.0) > 0 for each in own if not each.endswith("bias"))


def _by_design(seen: Observation, name: str, learning: set[str]) -> bool:
    """Return True if a layer of zeros begins so: the next step moves it, or the one behind it."""
    made = [each for each in seen.operations if each.layer == name and each.phase == "forward"]
    joins = any(each.facts.get("joins") for each in made)  # a gate beside takes it, too
    if not joins and any(each.facts.get("normed") or each.facts.get("feeds") for each in made):
        return False  # a norm makes noise of it, and the next layer has nothing to learn from
    # Without a backward nobody knows.
    return name in learning or bool(learning) or not seen.backward


def not_registered(seen: Observation) -> Iterator[Finding]:
    """Weights that the model reads and that are not in its ``parameters()``."""
    for operation in seen.foreign.values():
        if "plain" in operation.facts:
            held = operation.facts["plain"]
            yield Finding(
                "not registered",
                "warning",
                f"{operation.name.capitalize()} takes as weights the plain tensor {held}: it is "
                "not in model.parameters(), so no optimizer trains it, and neither state_dict() "
                "nor to(device) has it.",
                "Keep it as nn.Parameter(tensor) if it is to learn, else by "
                "register_buffer(name, tensor).",
                **operation.place,
                evidence={"weights": held},
                cause="plain tensor",
            )
            continue
        yield Finding(
            "not registered",
            "warning",
            f"{operation.name.capitalize()} reads weights that are not in model.parameters(): no "
            "optimizer trains them, and neither state_dict() nor to(device) has them.",
            "Keep layers in nn.ModuleList or nn.Sequential, not in a list or dict; lone weights in "
            "nn.ParameterList.",
            **operation.place,
            evidence={"weights": len(seen.foreign)},
            cause="not registered",
        )


def one_under_many_names(seen: Observation) -> Iterator[Finding]:
    """One module with weights that stands several times in a list, as ``[block] * 4`` makes it."""
    root = next(iter(seen.names))
    for name, owner in root.named_modules():
        if not isinstance(owner, (nn.Sequential, nn.ModuleList)):
            continue
        places: dict[nn.Module, list[str]] = {}
        for place, module in owner._modules.items():
            if module is not None:
                places.setdefault(module, []).append(f"{name}.{place}" if name else place)
        for module, names in places.items():
            if len(names) > 1 and next(module.parameters(), None) is not None:
                yield Finding(
                    "one module",
                    "warning",
                    f"{', '.join(map(repr, names[:4]))}{' …' * (len(names) > 4)} are one "
                    f"{type(module).__name__} under {len(names)} names: they share their weights.",
                    "Make each anew: [make() for _ in range(n)] in place of [block] * n.",
                    names[0],
                    layers=names,
                )


FEW = 16
"""Fewer values of a channel, or fewer channels, allow no statement, unless all channels are zero
and the model returns the same for inputs that differ."""


def silent_maps(seen: Observation) -> Iterator[Finding]:
    """Layers in which more than half of the channels are zero, or constant.

    Where all of them are, what is made of them alone can be nothing else, and is not told. Channels
    whose weights have become 0 are trained away; others may be silent on these inputs alone.
    """
    silent = set(of_zeros(seen))
    for operation in seen.operations:
        facts = operation.facts
        if "channels" not in facts:
            continue
        channels, values = facts["channels"]
        begun = facts.get("begun", operation).layer  # where it became one number everywhere
        follows = bool({facts["after"], begun, operation.layer} & silent)
        if facts["dead"] + facts["constant"] == channels:
            silent.add(operation.layer)
        few = values < FEW
        if follows or (few and not (seen.unmoved and facts["dead"] == channels)):
            continue
        for kind in ("dead",) if few else ("dead", "constant"):
            if facts[kind] - int(facts["follows"].sum()) > channels / 2:
                yield _silent(seen, operation, kind)


def _silent(seen: Observation, operation: OperationRecord, kind: str) -> Finding:
    facts = operation.facts
    count, (channels, values), after = facts[kind], facts["channels"], facts["after"]
    away = min(_trained_away(seen, operation), count)
    what = "zero" if kind == "dead" else "the same number"
    said = f"{count} of {channels} channels are {what} everywhere, over {_inputs(seen)}"
    said += ", for all of which the model returns the same" * (values < FEW)
    owner = operation.layer if operation.name in MAPS or not after else after
    severity, advice = "warning", _ADVICE[kind].format(owner)
    judged = silence(count, channels, away, seen.samples, _no_chance(seen, operation, kind))
    if judged == "dead" and count < channels and untrained(seen):
        judged = "silent"  # what a BatchNorm that does not normalize yet makes of its inputs
    if judged == "trained away":
        severity = "note"
        said += f"; the weights of {away} of them are next to zero: they were trained away"
        advice = "Nothing is wrong; such channels could be pruned."
    elif judged == "silent":
        severity, kind = "note", "silent"
        advice = "Give more and other inputs, to know whether it ever answers."
    return Finding(
        kind,
        severity,
        f"{said} ({values} values a channel).",
        advice,
        **operation.place,
        evidence={"channels": count, "of": channels, "values": values, "after": after},
        cause=f"{kind} {severity} {operation.name}",
    )


def silence(count: int, channels: int, away: int, samples: int, no_chance: bool) -> str:
    """Judge a layer with channels that are the same everywhere; the explorer's line does so too.

    Parameters
    ----------
    count, channels : int
        How many channels are so, and how many the layer has.
    away : int
        How many of them have weights next to zero.
    samples : int
        The number of inputs: one alone shows nothing dead.
    no_chance : bool
        True if other inputs would hardly wake them.

    Returns
    -------
    str
        ``""`` up to half of the channels, else ``"trained away"``, ``"silent"``, on these inputs,
        or ``"dead"``.

    Examples
    --------
    >>> silence(40, 64, 0, 1, True), silence(40, 64, 0, 2, True), silence(40, 64, 30, 2, True)
    ('silent', 'dead', 'trained away')
    """
    if count <= channels / 2:
        return ""
    if count - away <= channels / 2:
        return "trained away"
    return "silent" if samples < 2 or not no_chance else "dead"


def untrained(seen: Observation) -> str:
    """Advise on BatchNorm layers in eval mode that have seen no batch, or so few as say little."""
    norms = [m for m in seen.names if isinstance(m, _BatchNorm) and not m.training]
    counts = [int(m.num_batches_tracked) for m in norms if m.num_batches_tracked is not None]
    new = [count for count in counts if count < BEGUN]
    if not new:
        return ""
    few = f"have seen {max(new)} batch{'es' * (max(new) != 1)} and do not normalize yet"
    return (
        f"{len(new)} BatchNorm layers in eval mode "
        f"{few if any(new) else 'have never seen a batch and normalize nothing'}: load trained "
        "weights, or examine the model in training mode."
    )


BEGUN = 20
"""After so many batches a BatchNorm's statistics are those of the data: 0.9²⁰ of them, an eighth,
is of what they began with."""


def next_to_zero(weight: Tensor) -> Tensor:
    """Mark the channels whose weights are next to zero: trained away, if they were trained.

    Examples
    --------
    >>> next_to_zero(torch.tensor([[3.0, 4.0], [1e-9, 0.0]]))
    tensor([False,  True])
    """
    strength = weight.detach().flatten(1).norm(dim=1) if weight.ndim > 1 else weight.detach().abs()
    strength = strength.float()
    return strength < SMALL * strength.max()


def _inputs(seen: Observation) -> str:
    return f"{seen.samples} input{'s' * (seen.samples != 1)}"


def _no_chance(seen: Observation, operation: OperationRecord, kind: str) -> bool:
    """Return True if other inputs hardly wake it: far below zero, or not one of many channels."""
    channels, values = operation.facts["channels"]
    if kind == "constant":
        return True
    if values > seen.samples and operation.facts.get("far", 0) > channels / 2:
        return True
    return operation.facts["dead"] == channels and (
        channels >= FEW or operation.facts.get("far") == channels or operation.name in MAPS
    )


SMALL = 1e-2
"""A channel's weights are next to zero below this fraction of the largest channel's."""


def _trained_away(seen: Observation, operation: OperationRecord) -> int:
    """Count the silent channels that have a scale or a kernel next to zero."""
    still: Tensor = operation.facts["still"].clone()
    away = torch.zeros_like(still)
    name, seen_names = operation.layer, set()
    if operation.name not in MAPS:
        name = operation.facts["after"]
    while name and name not in seen_names:
        seen_names.add(name)
        weight = getattr(seen.modules.get(name), "weight", None)
        if isinstance(weight, Tensor) and not weight.is_meta and len(weight) == len(still):
            away |= next_to_zero(weight).to(still.device)
        before = seen.writers.get(name)
        name = before.facts["after"] if before is not None and before.name != "convolution" else ""
    return int((still & away).sum())


_ADVICE = {
    "dead": "Look at the bias and the scale of {!r}, which this was made from: initialise them "
    "anew, the bias with 0, since no gradient wakes it; a smaller learning rate keeps others.",
    "constant": "Look at the weights of {!r}: zero, or overwhelmed by the bias.",
}


def saturated(seen: Observation) -> Iterator[Finding]:
    """Sigmoids and tanhs at their ends, where hardly any gradient comes through.

    An output and a gate live there once they are trained. Between layers with weights, or before a
    norm, it is a fault, and so is a gate that no input moves.
    """
    for operation in seen.operations:
        facts = operation.facts
        if facts.get("saturated", 0.0) <= 0.9:
            continue
        between = facts.get("feeds") or facts.get("normed")
        fault = between or (facts.get("gates") and facts["stuck"])
        yield Finding(
            "saturated",
            "warning" if fault else "note",
            f"{100 * facts['saturated']:.3g} % of what {operation.name} returned is at its ends, "
            f"over {_inputs(seen)}"
            + (
                ": hardly any gradient comes through."
                if fault
                else ", where gates and outputs live."
            ),
            "Make smaller what it is given: a normalization before it, or smaller weights."
            if fault
            else "Nothing, if it is a gate or the answer.",
            **operation.place,
            evidence={"fraction": facts["saturated"], "after": facts["after"]},
            cause="saturated",
        )


LOST = 0.1
"""The fraction of numbers lost to half precision that is worth a word."""


def half_precision(seen: Observation) -> Iterator[Finding]:
    """Report values that overflow in half precision, nearly do, or become 0."""
    near = [(_share_of_largest(each), each) for each in seen.operations if each.phase == "forward"]
    share, worst = max(near, key=lambda each: each[0], default=(0.0, None))
    if worst is not None and share > 0.5 and not worst.propagated:  # else its Inf is told
        made = max(worst.made, key=lambda each: each.magnitude)
        name, largest = _name(made.dtype), torch.finfo(made.dtype).max
        over = share == float("inf")
        yield Finding(
            "half precision",
            "warning",
            f"{worst.name.capitalize()} "
            + ("is beyond" if over else f"reaches {number(made.magnitude)} of the {largest:g} of")
            + f" what {name} holds"
            + (f" ({largest:g})." if over else "."),
            "Scale down what goes into this layer, compute it in float32, or use bfloat16.",
            **worst.place,
            evidence={"share of the largest": share},
        )
    for operation in seen.operations:
        lost = operation.facts.get("underflow", 0.0)
        if lost > LOST:
            yield Finding(
                "half precision",
                "warning",
                f"{100 * lost:.3g} % of the {_WHAT[operation.phase]} other than 0 become 0 in "
                f"{_name(operation.made[0].dtype)}.",
                "Scale them up before the cast, as GradScaler does gradients, or use bfloat16.",
                **operation.place,
                evidence={"lost": lost},
            )
            return


_WHAT = {"forward": "numbers", "backward": "gradients"}


def _share_of_largest(operation: OperationRecord) -> float:
    """Measure how near an operation's results came to the limit of their half-precision type."""
    halves = [each for each in operation.made if each.dtype in HALF]
    if not halves or operation.constant or operation.origin not in (None, operation):
        return 0.0
    shares = [each.magnitude / torch.finfo(each.dtype).max for each in halves if not each.nan]
    return max(shares, default=0.0)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


SHIFT, SPREAD = 5.0, 10.0
"""By so many deviations, and so many times, the first BatchNorm's batch is away from what it has
seen in training: the right input is within 0.2 of it, pictures from 0 to 255 are away by 47 and
more."""
BATCHES = 20
"""So many batches a BatchNorm's statistics need before a training batch is compared with them."""


def input_scale(seen: Observation) -> Iterator[Finding]:
    """Compare the batch at the first BatchNorm with what it has seen in training."""
    given = next((s.made[0] for s in seen.sources if s.name == "input" and s.made), None)
    said = f" The input goes from {given}." if given is not None else ""
    if seen.blank is not None:
        sick = seen.judged and seen.samples > 1
        yield Finding(
            "input scale",
            "warning" if sick else "note",
            f"All numbers of the input are {number(seen.blank.low)}: every sample is the same, and "
            "so is what each channel makes of it.",
            "Look at how the data are loaded: nothing is learnt from this."
            if sick
            else "Give an input of the kind that the model is for: this one says little.",
            evidence={"everywhere the same": True},
        )
        return
    first = next((each for each in seen.operations if "shift" in each.facts), None)
    if first is None:
        yield from _bytes(seen, given)
        return
    module = seen.modules.get(first.layer)
    shift, spread = first.facts["shift"], first.facts["spread"]
    if module is not None:
        yield from off_scale(module, first.layer, shift, spread, seen.samples, said)


def off_scale(
    module: nn.Module, layer: str, shift: float, spread: float, samples: int, said: str = ""
) -> Iterator[Finding]:
    """Tell that a batch is not what the first BatchNorm has seen in training."""
    count = getattr(module, "num_batches_tracked", None)
    early = count is not None and int(count) < (BATCHES if module.training else 1)
    if early and not module.training:  # weights of old had no count
        mean, variance = module.running_mean, module.running_var
        early = isinstance(mean, Tensor) and isinstance(variance, Tensor) and not bool(mean.any())
        early = early and bool((variance == 1).all())  # type: ignore[union-attr]
    small = 0 < spread < 1 / 30 and samples > 1
    if early or not samples or (shift <= SHIFT and spread <= SPREAD and not small):
        return
    yield Finding(
        "input scale",
        "warning",
        f"At the first BatchNorm, {layer!r}, the batch is {number(shift)} standard deviations away "
        f"from what it was in training, and its spread {number(spread)} times that of training."
        f"{said}",
        "Prepare the input as in training: pictures from 0 to 1 (x / 255), then the same mean "
        "and standard deviation.",
        layer,
        evidence={"shift": shift, "spread": spread},
    )


def _bytes(seen: Observation, given: Range | None) -> Iterator[Finding]:
    """Tell that pictures go from 0 to 255, where no BatchNorm says what training had."""
    pictures = given is not None and len(given.shape) == 4 and given.shape[1] in (1, 3, 4)
    if given is None or not pictures or not (given.low >= 0 and 128 <= given.high <= 255):
        return
    if seen.error is None and not any(is_batchnorm(each) for each in seen.operations):
        yield Finding(
            "input scale",
            "note",
            f"The input goes from {given}, as pictures of bytes do.",
            "Nothing, if it was so in training; most networks take pictures from 0 to 1, x / 255.",
        )


def attention(seen: Observation) -> Iterator[Finding]:
    """Modules all of whose heads look at one token, whatever the query, or everywhere alike.

    Notes, since either may be right: tokens that are looked at in order to look nowhere are common
    in trained language models, and small weights, as before training, spread attention evenly.
    """
    modules: dict[str, list[dict[str, Any]]] = {}
    for head in seen.heads:
        if head["keys"] >= 4 and head["queries"] > 1:
            modules.setdefault(head["layer"].partition("#")[0], []).append(head)
    uniform = [name for name, heads in modules.items() if all(map(is_uniform, heads))]
    whole = len(uniform) == len(modules)
    for name, heads in modules.items():
        count = f"All {len(heads)} heads of" if len(heads) > 1 else "The head of"
        looks = "look" if len(heads) > 1 else "looks"
        if all(map(has_collapsed, heads)):
            keys = sorted({each["key"] for each in heads})
            least = min(each["fraction"] for each in heads)
            tokens = f"token{'s' * (len(keys) > 1)} {', '.join(map(str, keys[:4]))}"
            yield Finding(
                "attention",
                "note",
                f"{count} {name!r} {looks} at one token whatever the query: {100 * least:.0f} % of "
                f"the weight or more goes to {tokens}.",
                "See hookviz.attention(model, inputs) on other inputs, too: in trained language "
                "models a first token that many heads look at is common.",
                name,
                evidence={"fraction": least, "keys": keys},
                cause="collapsed",
            )
        elif name in uniform:
            yield Finding(
                "attention",
                "note",
                f"{count} {name!r} {looks} everywhere alike: the entropy is 99 % of the largest "
                "possible or more"
                + (", as in all of this model, and as before training." if whole else "."),
                "Train the model, or load its weights, if it is to attend to something."
                if whole
                else "Look at the scale of its queries and keys: hookviz.capture has what they "
                "return.",
                name,
                evidence={"entropy": min(each["entropy"] for each in heads)},
                cause="uniform",
            )
