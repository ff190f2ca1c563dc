"""PyTorch's own error messages: the only file that matches them, tested in each version."""

from __future__ import annotations

import re

OVERWRITTEN = re.compile("modified by an inplace operation")
IN_PLACE = re.compile("modified by an inplace operation|leaf Variable that requires grad")
NO_GRAPH = re.compile("does not require grad")
WRONG_ARGUMENTS = re.compile(
    r"missing \d+ required (positional|keyword)|positional arguments? but|unexpected keyword"
)
LABELS = re.compile("[Tt]arget.*out of bounds|n_classes")

KINDS = {
    "no gradient": NO_GRAPH,
    "in place": IN_PLACE,
    "batchnorm": re.compile("more than 1 value per channel"),
    "shape": re.compile(
        r"shape|size|dimension|channels|should contain|must match"
        r"|expected (?!.*dtype).*(batch|tensor|input|got)",
        re.IGNORECASE,
    ),
}
"""Kinds of findings -> the messages of such errors."""

FIXES = {
    "unsigned char|'Byte'|uint8|ByteTensor": "Use floats, prepared as in training: "
    "x.float() / 255, then the normalization.",
    "[Tt]arget.*out of bounds|n_classes": "Labels must go from 0 to the number of classes less 1.",
    "device-side assert": "Restart the kernel: this process cannot use the GPU any more. Then call "
    "hookviz.diagnose(model, x, lambda output: loss(output, y)) before the training: it names the "
    "label or index that is too large.",
    "out of bounds for dimension": "Indices go from 0 to the size of the dimension less 1.",
    "index out of range in self": "Indices must be smaller than the embedding's num_embeddings: "
    "clamp them, or make the embedding larger.",
    "more than 1 value per channel": "Give a batch of two or more, call model.eval(), or use "
    "GroupNorm.",
    "modified by an inplace operation": "Write a new tensor instead of overwriting one: x = x + 1, "
    "x.relu(), inplace=False. hookviz.diagnose(model, x, lambda output: loss(output, y)) names the "
    "line that writes.",
    "leaf Variable that requires grad": "Change weights within torch.no_grad(), or a copy of them.",
    "does not require grad": "The loss is detached from the model: look for "
    "detach(), .data, .item(), argmax or torch.no_grad() on the way to it.",
    "created only for scalar outputs": "Reduce it to one number first: loss.mean().backward().",
    "backward through the graph a second time": "Call backward() once for each forward: add losses "
    "up first, and detach() what you keep from one step to the next.",
    r"expected [2-5]D.* input \(got [1-4]D input\)": "Give it a batch, even if of one "
    "sample: x[None], with the samples in the first dimension.",
    "Kernel size can't be greater|Output size is too small": "The input is too small here: give a "
    "larger one, such as F.interpolate(x, scale_factor=2) of a picture.",
    "same device": "Move the input and the labels to the model's device: x.to(device).",
    r"not subscriptable|got \(list|list' object|not list|must be Tensor": "Give the tensor itself, "
    "not a list of it: model(x), not model([x]); of a DataLoader's batch, batch[0].",
    "multi-target not supported": "Labels of classes are one number a sample, shape (N,): "
    "y.squeeze(1), or y.argmax(1) of one-hot ones.",
    "elements of target should be between 0 and 1": "Targets go from 0 to 1: divide a mask of 0 "
    "and 255 by 255; turn labels −1 and 1 into (y + 1) / 2.",
    "should be between 0 and 1": "binary_cross_entropy takes probabilities: give them through a "
    "sigmoid, or use binary_cross_entropy_with_logits on the logits.",
    r"must be (the )?same as input size|different to the input size": "Give both the same shape: "
    "output.squeeze(1), or y[:, None].float().",
    "missing 1 required positional argument: 'target'": "Give the loss its labels: "
    "lambda output: loss(output, y).",
    "Expected floating point type for target": "One-hot labels are numbers of type float: "
    "y.float(); or give the classes themselves, y.argmax(1).",
    "Found dtype Long but|cast to the desired output type Long": "This loss takes targets of type "
    "float: y.float().",
    "var has negative entry": "Make the variance positive: F.softplus(var), or var.exp() of a "
    "logarithm that the network returns.",
    "dtype Long|dtype to be Long|scalar type Long": "Labels of classes are whole numbers: "
    "y.long().",
    r"Double|\(double\)|Half|BFloat16|expected m1 and m2|same dtype": "Give it the type of the "
    "weights: x.float(), or x.to(next(model.parameters()).dtype).",
}
"""A part of a message -> the code to write instead."""


def message_of(error: BaseException) -> str:
    """Return an error's message; empty if the user's ``__str__`` raises."""
    try:
        return str(error)
    except Exception:
        return ""


def is_of_reentrant_checkpoint(error: BaseException) -> bool:
    """Return whether it says that reentrant checkpointing supports ``backward()`` only."""
    return "checkpoint" in message_of(error).lower()


def sets_flag(error: BaseException) -> bool:
    """Return whether it says that ``requires_grad`` of a computed tensor cannot be set."""
    return "requires_grad flags of leaf" in message_of(error)


def kind_of(error: BaseException) -> str:
    """Return the kind of finding that an error is."""
    message = message_of(error)
    return next((kind for kind, words in KINDS.items() if words.search(message)), "error")


def fix_of(error: BaseException) -> str:
    """Return the code to write instead of a frequent error; empty for others."""
    message = message_of(error)
    return next((fix for words, fix in FIXES.items() if re.search(words, message)), "")
