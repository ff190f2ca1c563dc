"""Why an operation made NaN or Inf: the inputs for which it does so, in words, with the fix.

`DOMAINS` has the reasons of each operation, `SLOPES` those of its gradient. The cause is the first
reason that is true of the values from which one broken value of the result was computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from ...run.operations import ELEMENTWISE_KINDS, Kind
from ...run.recorder import Operation
from ...tables import number
from .records import HALF, Cause, Range, range_of


@dataclass(frozen=True)
class Broken:
    """A value of a result that is NaN or Inf, with the values that it was computed from.

    Attributes
    ----------
    name : str
        The operation's.
    kind : Kind
        In a backward, that of the operation that runs there.
    arguments : mapping of str to Range or object
        By torch's names. A tensor or a number is a `Range`; of a tensor only the values behind the
        broken one, as far as the shapes tell which they are.
    made : tuple of Range
        All results.
    nan : bool
        True for NaN, False for Inf.
    maker : str
        The operation that made the first input.
    """

    name: str
    kind: Kind
    arguments: Mapping[str, Any]
    made: tuple[Range, ...]
    nan: bool
    maker: str = ""

    def __getitem__(self, name: str) -> Range:
        value = self.arguments.get(name)
        return value if isinstance(value, Range) else _MISSING

    @property
    def given(self) -> list[Range]:
        """The tensors and numbers among the arguments, those in lists included."""
        several = (each if isinstance(each, tuple) else (each,) for each in self.arguments.values())
        flat = chain.from_iterable(several)
        return [each for each in flat if isinstance(each, Range) and each is not _MISSING]

    @property
    def dtype(self) -> torch.dtype:
        """The type of the result."""
        return self.made[0].dtype if self.made else torch.float32

    def words(self, template: str) -> str:
        """Fill in arguments, and ``{operation}``, its ``{type}``, the type's ``{largest}``."""
        shown = {
            name: _Shown(each) if isinstance(each, Range) else each
            for name, each in self.arguments.items()
        }
        limit = torch.finfo(self.dtype).max
        largest = f"{limit:g}" if limit < 1e5 else number(limit)
        type_name = str(self.dtype).removeprefix("torch.")
        return template.format_map(
            shown | {"operation": self.name, "type": type_name, "largest": largest}
        )


_MISSING = Range(math.nan, math.nan, (), torch.float32)
"""Stands for an argument that is unknown: every comparison with it is false."""


class _Shown:
    """A range in words, for templates: ``{self}``, ``{self.low}``, ``{self.high}``."""

    def __init__(self, values: Range) -> None:
        self.low, self.high = number(values.low), number(values.high)

    def __str__(self) -> str:
        return " … ".join(dict.fromkeys((self.low, self.high)))


Test = Callable[[Broken], bool]


@dataclass(frozen=True)
class Reason:
    """A test of a broken value, and what to say and do where it is true."""

    when: Test
    words: str
    fix: str
    overflow: bool = False


# Tests: the simple ones are made of an argument's name and a value.


def equal(value: float, name: str = "self") -> Test:
    """Return a test whether an argument has a value."""
    return lambda broken: broken[name].low <= value <= broken[name].high


def zero(name: str = "self") -> Test:
    """Return a test whether an argument is 0."""
    return equal(0, name)


def below(value: float, name: str = "self") -> Test:
    """Return a test whether an argument is smaller than a value."""
    return lambda broken: broken[name].low < value


def negative(name: str = "self") -> Test:
    """Return a test whether an argument is smaller than 0."""
    return below(0, name)


def outside(low: float, high: float) -> Test:
    """Return a test whether the input is not in an interval."""
    return lambda broken: broken["self"].low < low or broken["self"].high > high


def nan(broken: Broken) -> bool:
    """Return whether the value is NaN, and not Inf."""
    return broken.nan


def inf(broken: Broken) -> bool:
    """Return whether the value is Inf, and not NaN."""
    return not broken.nan


def either(*tests: Test) -> Test:
    """Return a test whether one of several tests is true."""
    return lambda broken: any(test(broken) for test in tests)


def near_zero(name: str) -> Test:
    """Return a test whether an argument is closer to 0 than 1."""
    return lambda broken: broken[name].low < 1 and broken[name].high > -1


def both(*tests: Test) -> Test:
    """Return a test whether all tests are true."""
    return lambda broken: all(test(broken) for test in tests)


def always(broken: Broken) -> bool:
    """Return True: the operation has only one way to make NaN or Inf."""
    return True


def infinite(broken: Broken) -> bool:
    """Return whether an input is infinite, as a mask is."""
    return any(not each.finite for each in broken.given)


def overflows(broken: Broken) -> bool:
    """Return whether the result is Inf, of finite inputs."""
    return not broken.nan and not infinite(broken)


def empty(broken: Broken) -> bool:
    """Return whether an input has no values."""
    return any(0 in each.shape for each in broken.given)


def masked(broken: Broken) -> bool:
    """Return whether a row holds −Inf, and no Inf: if a softmax makes NaN of it, nothing else."""
    return any(each.low == -math.inf and each.high < math.inf for each in broken.given)


def fractional_exponent(broken: Broken) -> bool:
    """Return whether the exponent is not a whole number."""
    exponent = broken["exponent"].low
    return math.isfinite(exponent) and exponent != math.floor(exponent)


def too_few_values(broken: Broken) -> bool:
    """Return whether a variance divides by n − correction = 0, or less."""
    shape, correction = broken["self"].shape, broken["correction"].low
    dims = broken.arguments.get("dim") or range(len(shape))
    count = math.prod(shape[dim] for dim in dims)
    return count <= (1.0 if math.isnan(correction) else correction)


def all_ignored(broken: Broken) -> bool:
    """Return whether all targets are ``ignore_index``."""
    return broken["target"].low == broken["target"].high == broken["ignore_index"].low


def weights_sum_to_zero(broken: Broken) -> bool:
    """Return whether the class weights of all targets, by whose sum a loss divides, are 0."""
    return len(broken.made) > 1 and broken.made[1].magnitude == 0


def grows(broken: Broken) -> bool:
    """Return whether a result of finite inputs can be Inf only because it is too large."""
    return sums(broken) or broken.name in _GROWING


def sums(broken: Broken) -> bool:
    """Return whether the operation adds up values or their products."""
    return broken.kind in _SUMMING or broken.name in _SUMMING_BACKWARD


_SUMMING = {Kind.CONVOLUTION, Kind.PRODUCT, Kind.REDUCTION, Kind.SCAN, Kind.LOSS}
_SUMMING |= {Kind.RECURRENCE, Kind.ATTENTION}
_SUMMING_BACKWARD = {"convolution_backward", "embedding_dense_backward"}
_GROWING = {"mul", "add", "sub", "addcmul", "addcdiv", "lerp", "hypot", "ldexp", "to_copy"}


# Fixes that several reasons name

_ABOVE_ZERO = (
    "Keep its input above 0, x.clamp(min=1e-6).log(); for probabilities use log_softmax, or a loss "
    "that takes logits."
)
_DIVISOR = "Add a small number to the divisor, or clamp it away from 0."
_UNDER_ROOT = "Add a small number under the root, (x + 1e-8).sqrt(): its slope is finite then."
_WITHIN_ONE = "Clamp its input, with a margin: x.clamp(-1 + 1e-6, 1 - 1e-6)."
_PROBABILITIES = "Give it probabilities, clamped with a margin: x.clamp(1e-6, 1 - 1e-6)."
_ABOVE_ONE = "Keep its input above 1: x.clamp(min=1 + 1e-6)."
_ABOVE_MINUS_ONE = "Keep its input above −1: x.clamp(min=-1 + 1e-6)."
_WHERE = (
    "If torch.where leaves these values out, replace them before the operation: "
    "torch.where(mask, x, 1.0)."
)
_SELECTED = (
    "Skip the batch if nothing is selected, or divide the sum by the count, at least 1: "
    "x.sum() / max(x.numel(), 1)."
)
_LABELS = "Skip batches without labels, or divide the sum by the number of labels, at least 1."
_LARGEST_FIRST = "Subtract the largest value first, or use logsumexp, softmax or softplus."
_SMALLER = "Make its input smaller: normalize it, or compute with logarithms."
_MASK = "Mask with a large finite number, −1e4, or with torch.where instead of a product."


# Reasons that several operations share

_LOG = (
    Reason(
        lambda broken: inf(broken) and broken.maker == "softmax",
        "the logarithm of 0",
        "Use log_softmax(x) instead of log(softmax(x)); adding a small number does not help.",
    ),
    Reason(inf, "the logarithm of 0", _ABOVE_ZERO),
    Reason(negative(), "the logarithm of a negative number, {self.low}", _ABOVE_ZERO),
)
_LOG_OF_OTHER = (
    Reason(inf, "the logarithm of 0", _ABOVE_ZERO),
    Reason(negative("other"), "the logarithm of a negative number, {other.low}", _ABOVE_ZERO),
)
_DIVISION = (
    Reason(both(nan, zero("other")), "0 divided by 0", _DIVISOR),
    Reason(zero("other"), "division by 0", _DIVISOR),
    Reason(
        both(overflows, near_zero("other")), "division by a number next to 0, {other}", _DIVISOR
    ),
)
_NOT_WITHIN_ONE = Reason(outside(-1, 1), "its input, {self}, is not between −1 and 1", _WITHIN_ONE)
_NOT_WITHIN_UNIT = Reason(
    outside(0, 1), "its input, {self}, is not between 0 and 1", "Give it probabilities."
)
_ENDS = Reason(inf, "{operation} is infinite at −1 and 1", _WITHIN_ONE)
_POLE = Reason(
    below(1e-30),
    "gamma is infinite at 0 and at negative whole numbers, and the input is {self}",
    "Keep its input above 0: x.clamp(min=1e-6).",
)
_NO_VALUES = Reason(empty, "the mean over no values: its input is empty", _SELECTED)
_ONE_VALUE = Reason(
    too_few_values,
    "the standard deviation of one number divides by n − 1 = 0",
    "Give it at least two numbers, or pass correction=0, which divides by n.",
)
_NO_EPS = Reason(
    lambda broken: broken["eps"].low == 0,
    "the variance is 0 and eps is 0: 0 divided by 0",
    "Give the layer a positive eps; the default is 1e-5.",
)
_NO_LABEL = (
    Reason(empty, "the mean over no sample: the batch is empty", _SELECTED),
    Reason(all_ignored, "the mean over no label: all of them are ignore_index", _LABELS),
    Reason(
        weights_sum_to_zero,
        "the class weights of all its targets are 0, and it divides by their sum",
        "Give the classes that occur a positive weight, or use reduction='sum'.",
    ),
)
_MASKED_ROW = (
    Reason(
        masked,
        "a row that is −Inf throughout: everything in it is masked",
        "Leave one position of every row unmasked, or mask with a large negative number, −1e4.",
    ),
    Reason(
        infinite,
        "a row with Inf: Inf − Inf",
        "Look for the operation that made Inf; a mask is −Inf.",
    ),
)
_EXPONENTIAL = Reason(
    overflows,
    "its input is {self}, and {operation} of it is more than {type} holds ({largest})",
    _LARGEST_FIRST,
    overflow=True,
)


def _by_name(reasons: Mapping[str, Sequence[Reason]]) -> dict[str, Sequence[Reason]]:
    return {name: each for names, each in reasons.items() for name in names.split()}


DOMAINS = _by_name(
    {
        # Powers and roots
        "sqrt": [
            Reason(
                negative(), "the root of a negative number, {self.low}", "Clamp its input at 0."
            ),
        ],
        "rsqrt": [
            Reason(inf, "1 divided by the root of 0", "Add a small number under the root."),
            Reason(
                negative(), "the root of a negative number, {self.low}", "Clamp its input above 0."
            ),
        ],
        "reciprocal": [
            Reason(zero(), "division by 0", _DIVISOR),
            Reason(overflows, "division by a number next to 0, {self}", _DIVISOR),
        ],
        "pow": [
            Reason(
                both(inf, zero(), negative("exponent")),
                "0 to the power of {exponent} divides by 0",
                _DIVISOR,
            ),
            Reason(
                both(nan, negative(), fractional_exponent),
                "a negative number, {self.low}, to the power of {exponent}, which is a root",
                "Clamp its input at 0, or take abs() first.",
            ),
            Reason(
                overflows,
                "{self} to the power of {exponent} is more than {type} holds ({largest})",
                _SMALLER,
                overflow=True,
            ),
        ],
        # Logarithms
        "log log2 log10": _LOG,
        "log1p": [
            Reason(inf, "log1p(−1), the logarithm of 0", _ABOVE_MINUS_ONE),
            Reason(below(-1), "log1p({self.low}), of a negative number", _ABOVE_MINUS_ONE),
        ],
        "logit": [
            Reason(
                inf, "the logit of 0 and of 1 is infinite", "Pass eps=: torch.logit(x, eps=1e-6)."
            ),
            _NOT_WITHIN_UNIT,
        ],
        "xlogy": _LOG_OF_OTHER,
        "special_xlog1py": [
            Reason(inf, "the logarithm of 0", _ABOVE_MINUS_ONE),
            Reason(below(-1, "other"), "the logarithm of a negative number", _ABOVE_MINUS_ONE),
        ],
        "special_entr": [
            Reason(
                negative(), "the entropy of a negative number, {self.low}", "Give it probabilities."
            ),
        ],
        # Divisions
        "div floor_divide": _DIVISION,
        "remainder fmod": [
            Reason(
                zero("other"), "the remainder of a division by 0", "Use a divisor other than 0."
            ),
        ],
        # Exponentials
        "exp expm1 exp2 sinh cosh i0 special_i1": [_EXPONENTIAL],
        # Inverse and special functions
        "asin acos": [_NOT_WITHIN_ONE],
        "atanh erfinv": [_ENDS, _NOT_WITHIN_ONE],
        "acosh": [Reason(below(1), "its input, {self.low}, is smaller than 1", _ABOVE_ONE)],
        "special_ndtri": [
            Reason(inf, "the quantile of 0 and of 1 is infinite", _PROBABILITIES),
            _NOT_WITHIN_UNIT,
        ],
        "lgamma digamma polygamma": [_POLE],
        "mvlgamma": [
            Reason(
                lambda broken: broken["self"].low <= (broken["p"].low - 1) / 2,
                "its input, {self.low}, is not above (p − 1) / 2",
                "Keep its input above (p − 1) / 2.",
            ),
        ],
        "igamma igammac": [
            Reason(
                either(negative(), negative("other")),
                "a negative number",
                "Clamp both inputs at 0.",
            ),
        ],
        "special_zeta": [
            Reason(both(inf, equal(1)), "zeta is infinite at 1", "Give it numbers above 1."),
            Reason(
                below(1), "its input, {self.low}, is smaller than 1", "Give it numbers above 1."
            ),
        ],
        # Reductions
        "mean median": [_NO_VALUES, Reason(infinite, "Inf − Inf", _MASK)],
        "std var std_mean var_mean": [_NO_VALUES, _ONE_VALUE],
        "linalg_slogdet": [
            Reason(
                inf,
                "the matrix is singular: its determinant is 0, and the logarithm of that is −Inf",
                "Add a small multiple of the identity: A + 1e-6 * torch.eye(n).",
            ),
        ],
        # Normalizations
        "softmax log_softmax": _MASKED_ROW,
        "layer_norm group_norm batch_norm cudnn_batch_norm": [_NO_EPS],
        "weight_norm_interface": [
            Reason(zero("v"), "the norm of a row of weights is 0", "Initialise these weights."),
        ],
        # Losses
        "nll_loss_forward nll_loss2d_forward": _NO_LABEL,
        "mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
        "soft_margin_loss multi_margin_loss multilabel_margin_loss_forward": [_NO_VALUES],
        "ctc_loss cudnn_ctc_loss": [
            Reason(
                both(inf, lambda broken: not infinite(broken)),
                "a target does not fit into its input: CTC needs a step for each label, and one "
                "more between two equal labels (input_lengths {input_lengths}, target_lengths "
                "{target_lengths})",
                "Pass zero_infinity=True, or give more steps: a smaller stride, or longer inputs.",
            ),
        ],
        # Constants
        "fill full masked_fill": [
            Reason(always, "the code writes this value", "Write a finite number instead."),
        ],
        "scalar_tensor": [
            Reason(
                always,
                "it is a constant of the code, or torch.logdet of a negative determinant",
                "Write a finite number instead; for determinants that may be negative use "
                "torch.linalg.slogdet.",
            ),
        ],
        # Inf that was meant as a mask
        "mul": [Reason(infinite, "0 × Inf", _MASK)],
        "add sub sum": [Reason(infinite, "Inf − Inf", _MASK)],
    }
)
"""Names of operations -> the inputs for which they make NaN or Inf."""


def _steep(when: Test, where: str, fix: str) -> Reason:
    return Reason(when, f"the slope of {{operation}} is infinite at {where}", fix)


_STEEP_ENDS = _steep(either(equal(1), equal(-1)), "−1 and 1", _WITHIN_ONE)

SLOPES = _by_name(
    {
        "sqrt": [Reason(zero("result"), "the slope of the root is infinite at 0", _UNDER_ROOT)],
        "pow": [
            Reason(
                both(zero(), below(1, "exponent")),
                "the slope of x ** {exponent} is infinite at x = 0",
                "Add a small number to the base: (x + 1e-8) ** 0.5.",
            ),
        ],
        "linalg_vector_norm": [_steep(zero(), "0", "Add a small number to its input.")],
        "log log2 log10": [
            _steep(zero(), "0", _ABOVE_ZERO),
            Reason(
                below(1e-30),
                "the slope of {operation} at {self.low} is larger than {type} holds ({largest})",
                _ABOVE_ZERO,
            ),
        ],
        "log1p": [_steep(equal(-1), "−1", _ABOVE_MINUS_ONE)],
        "logit": [
            _steep(either(zero(), equal(1)), "0 and 1", "Pass eps=: torch.logit(x, eps=1e-6)."),
        ],
        "xlogy": [_steep(zero("other"), "0", _ABOVE_ZERO)],
        "special_entr": [_steep(zero(), "0", _ABOVE_ZERO)],
        "asin acos atanh erfinv": [_STEEP_ENDS],
        "acosh": [_steep(equal(1), "1", _ABOVE_ONE)],
        "div": [_steep(zero("other"), "0", _DIVISOR)],
        "reciprocal rsqrt": [_steep(zero(), "0", _DIVISOR)],
        "hypot": [
            Reason(
                both(zero(), zero("other")),
                "hypot has no slope at (0, 0)",
                "Add a small number to one of its inputs.",
            ),
        ],
        "linalg_eigh": [
            Reason(
                always,
                "two eigenvalues are equal, and their vectors have no slope",
                "Use torch.linalg.eigvalsh, the eigenvalues alone, or add noise to the matrix.",
            ),
        ],
        "linalg_svd": [
            Reason(
                always,
                "two singular values are equal, or one is 0, and their vectors have no slope",
                "Use torch.linalg.svdvals, the singular values alone, or add noise to the matrix.",
            ),
        ],
        "linalg_qr": [Reason(always, "the matrix is singular", "Add noise to the matrix.")],
    }
)
"""Names of operations -> the forward's inputs for which their gradients are NaN or Inf."""

ANY = [
    Reason(
        lambda broken: broken.dtype in HALF and overflows(broken),
        "more than {type} holds ({largest})",
        "Compute this layer in float32, or use bfloat16, whose largest number is 3.4e38.",
        overflow=True,
    ),
    Reason(infinite, "Inf − Inf or 0 × Inf", _MASK),
    Reason(both(nan, empty), "its input is empty, and has no mean", _SELECTED),
    Reason(
        both(overflows, grows),
        "the result is larger than {type} holds ({largest})",
        _SMALLER,
        overflow=True,
    ),
    Reason(
        both(nan, sums),
        "its sums are larger than {type} holds, with either sign: Inf − Inf",
        _SMALLER,
        overflow=True,
    ),
]
"""Reasons for all operations, after their own."""


def cause_of(
    operation: Operation, given: Sequence[Tensor], made: tuple[Range, ...], maker: str
) -> Cause | None:
    """Find the cause of an operation's NaN or Inf while its values are at hand.

    ``given`` are its input tensors as they were before it ran, ``maker`` is the operation that
    made the first of them.
    """
    broken = next(filter(None, map(_first_broken, operation.outputs)), None)
    if broken is None:
        return None
    result, position = broken
    before = {id(t): copy for t, copy in zip(operation.inputs, given, strict=True)}
    dims = operation.argument.get("dim") if operation.kind in _ALONG else None
    positions = operation.kind in ELEMENTWISE_KINDS or dims is not None

    def values(argument: Any) -> Any:
        if isinstance(argument, Tensor):
            tensor = before.get(id(argument), argument)
            near = extent(_behind(tensor, result, position, dims) if positions else tensor)
            return replace(near, shape=tuple(tensor.shape)) if near is not _MISSING else near
        if isinstance(argument, (list, tuple)) and any(isinstance(e, Tensor) for e in argument):
            return tuple(map(values, argument))
        return as_range(argument)

    arguments = {name: values(each) for name, each in operation.argument.items()}
    nan = bool(result[position].isnan())
    found = Broken(operation.name, operation.kind, arguments, made, nan, maker)
    node = torch._C._current_autograd_node()
    if operation.phase == "forward" or isinstance(node, BackwardCFunction):
        return forward_cause(found)
    saved = {name: as_range(each) for name, each in _saved(node)}
    tensors = {name: each for name, each in saved.items() if isinstance(each, Tensor)}
    saved |= {name: extent(_behind(each, result, position)) for name, each in tensors.items()}
    return backward_cause(operation.title, saved, found)


_ALONG = frozenset((Kind.REDUCTION, Kind.SOFTMAX, Kind.SCAN))
"""Operations along the dimensions that their argument ``dim`` names."""


def forward_cause(broken: Broken) -> Cause | None:
    """Return the first reason that is true; None where the cause is not known."""
    return _first_reason((*DOMAINS.get(broken.name, ()), *ANY), broken)


def backward_cause(name: str, saved: Mapping[str, Any], broken: Broken) -> Cause | None:
    """Return the cause of a gradient that is not finite.

    It is looked up by what the forward operation, ``name``, has saved, and then by what the
    operation that runs in the backward was given.
    """
    found = _first_reason(SLOPES.get(name, ()), replace(broken, name=name, arguments=saved))
    if found is None:
        return forward_cause(broken)
    # torch.where gives the values that it leaves out a gradient of 0, and 0 × Inf is NaN.
    return replace(found, fix=f"{found.fix} {_WHERE}")


def _first_reason(reasons: Iterable[Reason], broken: Broken) -> Cause | None:
    reason = next((each for each in reasons if each.when(broken)), None)
    if reason is None:
        return None
    return Cause(broken.words(reason.words), reason.fix, reason.overflow)


def _saved(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a node of autograd's graph has saved of its forward, by torch's names."""
    for name in dir(node):
        if name.startswith("_saved_"):
            value = None
            with suppress(Exception):  # activation checkpointing gives out each tensor only once
                value = getattr(node, name)
            yield name.removeprefix("_saved_"), value


def _first_broken(result: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """Return a result without its graph, and the position of its first NaN or Inf; else None."""
    known = range_of(result)
    if known is None or known.finite:
        return None
    result = result.detach()
    first = int((~result.isfinite()).flatten().int().argmax())
    position = torch.unravel_index(torch.tensor(first), result.shape)
    return result, tuple(map(int, position))


def _behind(
    tensor: Tensor,
    result: Tensor,
    position: tuple[int, ...],
    dims: int | Sequence[int] | None = None,
) -> Tensor:
    """Return an input's values behind one value of a result; all where the shapes do not tell.

    Of an elementwise operation that is one value, after broadcasting; of one along ``dims`` a row.
    """
    index: list[Any] = [*position]
    if dims is not None:
        along = [dims] if isinstance(dims, int) else dims
        for each in sorted(dim % tensor.ndim for dim in along):
            index[each : each + (result.ndim == tensor.ndim)] = [slice(None)]
    if not tensor.ndim or tensor.ndim > len(index):
        return tensor
    index = index[len(index) - tensor.ndim :]
    if dims is None:
        sizes = result.shape[result.ndim - tensor.ndim :]
        if any(size not in (1, other) for size, other in zip(tensor.shape, sizes, strict=True)):
            return tensor
        index = [0 if size == 1 else each for each, size in zip(index, tensor.shape, strict=True)]
    return tensor[tuple(index)]


def extent(tensor: Tensor) -> Range:
    """Return the range of a tensor, of whole numbers and truths too."""
    fractions = tensor.is_floating_point() or tensor.is_complex()
    return range_of(tensor if fractions else tensor.double()) or _MISSING


def as_range(value: Any) -> Any:
    """Return a number as a `Range`, and anything else unchanged."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Range(float(value), float(value), (), torch.float64)
    return value
