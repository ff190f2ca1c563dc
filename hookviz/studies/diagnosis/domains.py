"""Why an operation made NaN or Inf, in words, with the fix.

The cause is found in the inputs from which one NaN or Inf of the result was computed. For an
elementwise operation it is a formula, ``log(0) is −Inf``, with the numbers that the operation
takes, from `DOMAINS`; for another one it is the first of its `REASONS` that is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from ...run.operations import ELEMENTWISE_KINDS, Kind
from ...run.recorder import Operation
from ...tables import number
from .ranges import Range, range_of
from .records import HALF, Cause


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
    value : float
        NaN, Inf or −Inf.
    maker : str
        The operation that made the first input.
    """

    name: str
    kind: Kind
    arguments: Mapping[str, Any]
    made: tuple[Range, ...]
    value: float
    maker: str

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
    def nan(self) -> bool:
        """True for NaN, False for Inf."""
        return math.isnan(self.value)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the result."""
        return self.made[0].dtype

    @property
    def formula(self) -> str:
        """The operation and its values, such as ``log(0)`` or ``0 / 0``."""
        values = [_shown(each) for each in self.given]
        if self.name in _SIGNS and len(values) > 1:
            return f"{values[0]} {_SIGNS[self.name]} {values[1]}"
        return f"{self.name.removeprefix('special_')}({', '.join(values)})"

    @property
    def too_much(self) -> str:
        """The largest number of its type, in words: ``"more than float32 holds (3.4e+38)"``."""
        limit = torch.finfo(self.dtype).max
        largest = f"{limit:g}" if limit < 1e5 else number(limit)
        return f"more than {str(self.dtype).removeprefix('torch.')} holds ({largest})"


_MISSING = Range(math.nan, math.nan, (), torch.float32)
"""Stands for an argument that is unknown: every comparison with it is false."""

_SIGNS = {"div": "/", "mul": "×", "add": "+", "sub": "−", "pow": "**"}


def _shown(values: Range) -> str:
    return " … ".join(dict.fromkeys((number(values.low), number(values.high))))


_ABOVE_ZERO = (
    "Keep its input above 0, x.clamp(min=1e-6).log(); for probabilities use log_softmax, or a loss "
    "that takes logits."
)
_ABOVE_MINUS_ONE = "Keep its input above −1: x.clamp(min=-1 + 1e-6)."
_WITHIN_ONE = "Clamp its input, with a margin: x.clamp(-1 + 1e-6, 1 - 1e-6)."

_DOMAINS = {
    "sqrt": (
        "a number of 0 or more",
        "Add a small number under the root, (x + 1e-8).sqrt(), or x.clamp(min=1e-6).sqrt() if x "
        "may be negative.",
    ),
    "rsqrt": ("a number above 0", "Clamp its input: x.clamp(min=1e-6).rsqrt()."),
    "log log2 log10": ("a number above 0", _ABOVE_ZERO),
    "xlogy": ("a second number above 0", _ABOVE_ZERO),
    "log1p": ("a number above −1", _ABOVE_MINUS_ONE),
    "special_xlog1py": ("a second number above −1", _ABOVE_MINUS_ONE),
    "logit special_ndtri special_entr": (
        "a probability, between 0 and 1",
        "Clamp it, with a margin: x.clamp(1e-6, 1 - 1e-6).",
    ),
    "div floor_divide reciprocal remainder fmod addcdiv": (
        "a divisor other than 0",
        "Add a small number to the divisor, or clamp it away from 0.",
    ),
    "pow": (
        "a base above 0 if the exponent is a fraction, or is negative and divides by the base",
        "Keep the base above 0: (x.abs() + 1e-8) ** p.",
    ),
    "asin acos": ("a number from −1 to 1", _WITHIN_ONE),
    "atanh erfinv": ("a number between −1 and 1", _WITHIN_ONE),
    "acosh": ("a number of 1 or more", "Keep its input above 1: x.clamp(min=1 + 1e-6)."),
    "lgamma digamma polygamma": (
        "a number other than 0, −1, −2 …",
        "Keep its input above 0: x.clamp(min=1e-6).",
    ),
}
DOMAINS = {name: each for names, each in _DOMAINS.items() for name in names.split()}
"""An elementwise operation -> the numbers that it takes, and the fix for others, or for the ends,
where its slope may be infinite."""

_EXPONENTIALS = {"exp", "expm1", "exp2", "sinh", "cosh"}
_GROWING = {"mul", "add", "sub", "div", "pow", "addcmul", "addcdiv", "lerp", "hypot", "ldexp"}
_GROWING |= {"to_copy", *_EXPONENTIALS}
_DIVISORS = {"div": "other", "pow": "self", "addcdiv": "tensor2"}
"""The arguments of which an operation makes Inf if they are 0."""

_STATISTICS = {"nanmedian": "median"}
_STATISTICS |= dict.fromkeys(("std", "std_mean"), "standard deviation")
_STATISTICS |= dict.fromkeys(("var", "var_mean"), "variance")
"""Operations -> what they compute, where that has another name."""

_SUMMING = {Kind.CONVOLUTION, Kind.PRODUCT, Kind.REDUCTION, Kind.SCAN, Kind.LOSS}
_SUMMING |= {Kind.RECURRENCE, Kind.ATTENTION, Kind.POOLING}
_SUMMING_NAMES = {"convolution_backward", "embedding_dense_backward"}
_SUMMING_NAMES |= {"linalg_det", "linalg_matrix_exp"}
_SUMMING_NAMES |= {"cdist_forward", "pdist_forward", "fft_r2c", "fft_c2r", "fft_c2c"}


class Reason(NamedTuple):
    """A test of a broken value, and what to say and do where it is true."""

    when: Callable[[Broken], bool]
    words: str
    fix: str
    overflow: bool = False


def infinite(broken: Broken) -> bool:
    """Return whether an input is infinite, as a mask is."""
    return any(not each.finite for each in broken.given)


def empty(broken: Broken) -> bool:
    """Return whether an input has no values."""
    return any(0 in each.shape for each in broken.given)


def sums(broken: Broken) -> bool:
    """Return whether the operation adds up values or their products."""
    return broken.kind in _SUMMING or broken.name in _SUMMING_NAMES


def too_large(broken: Broken) -> bool:
    """Return whether its type does not hold the result of finite inputs."""
    if broken.nan or infinite(broken) or empty(broken):
        return False
    divisor = broken[_DIVISORS.get(broken.name, "")]
    grows = broken.name in _GROWING and not divisor.low <= 0 <= divisor.high
    grows |= broken.name == "lgamma" and broken["self"].low > 0
    return grows or sums(broken) or (broken.dtype in HALF and broken.kind not in ELEMENTWISE_KINDS)


def squares_too_large(broken: Broken) -> bool:
    """Return whether the type in which a normalization computes does not hold its squares."""
    given = broken["input"]
    computed = torch.promote_types(given.dtype, torch.float32)
    return broken.nan and given.finite and given.magnitude > torch.finfo(computed).max ** 0.5


def masked(broken: Broken) -> bool:
    """Return whether a row holds −Inf, and no Inf: if a softmax makes NaN of it, nothing else."""
    return any(each.low == -math.inf and each.high < math.inf for each in broken.given)


def too_few_values(broken: Broken) -> bool:
    """Return whether a variance divides by n − correction = 0, or less."""
    shape, correction = broken["self"].shape, broken["correction"].low
    dims = broken.arguments.get("dim") or range(len(shape))
    count = math.prod(shape[dim] for dim in dims)
    return 0 < count <= (1.0 if math.isnan(correction) else correction)


def all_ignored(broken: Broken) -> bool:
    """Return whether all targets are ``ignore_index``."""
    return broken["target"].low == broken["target"].high == broken["ignore_index"].low


UNKNOWN = Cause("", "Look at the values that this layer gets: explore(model, x) shows them.")
_MASK = "Mask with a large finite number, −1e4, or with torch.where instead of a product."
_SMALLER = "Make its input smaller: normalize it, or compute with logarithms."

_REASONS: dict[str, list[Reason]] = {
    "log": [
        Reason(
            lambda broken: not broken.nan and broken.maker == "softmax",
            "the logarithm of a probability that softmax rounded to 0",
            "Use log_softmax(x) instead of log(softmax(x)); adding a small number does not help.",
        )
    ],
    "std var std_mean var_mean": [
        Reason(
            too_few_values,
            "the standard deviation of one number divides by n − 1 = 0",
            "Give it at least two numbers, or pass correction=0, which divides by n.",
        )
    ],
    "linalg_slogdet": [
        Reason(
            lambda broken: not broken.nan,
            "the matrix is singular: its determinant is 0, and the logarithm of that is −Inf",
            "Add a small multiple of the identity: A + 1e-6 * torch.eye(n).",
        )
    ],
    "scalar_tensor": [
        Reason(
            lambda broken: True,
            "it is a constant of the code, or torch.logdet of a negative determinant",
            "Write a finite number instead; for determinants that may be negative use "
            "torch.linalg.slogdet.",
        )
    ],
    "fill full masked_fill": [
        Reason(
            lambda broken: True,
            "the code writes this value",
            "Write a finite number instead.",
        )
    ],
    "softmax log_softmax": [
        Reason(
            masked,
            "a row that is −Inf throughout: everything in it is masked",
            "Leave one position of every row unmasked, or mask with a large negative number, −1e4.",
        )
    ],
    "layer_norm group_norm batch_norm": [
        Reason(
            lambda broken: broken["eps"].low == 0,
            "the variance is 0 and eps is 0: 0 divided by 0",
            "Give the layer a positive eps; the default is 1e-5.",
        ),
        Reason(
            lambda broken: broken["running_var"].low < 0,
            "its running variance is negative, and it takes the root",
            "Reset it with reset_running_stats(), or load another checkpoint.",
        ),
        Reason(
            squares_too_large,
            "the squares of its input are larger than their type holds",
            "Make its input smaller: divide it by a constant, or normalize in an earlier layer.",
            overflow=True,
        ),
    ],
    "nll_loss_forward nll_loss2d_forward": [
        Reason(
            lambda broken: all_ignored(broken) and not empty(broken),
            "the mean over no label: all of them are ignore_index",
            "Skip batches without labels, or divide the sum by the number of labels, at least 1.",
        ),
        Reason(
            lambda broken: broken.made[1].magnitude == 0 and not empty(broken),
            "the class weights of all its targets are 0, and it divides by their sum",
            "Give the classes that occur a positive weight, or use reduction='sum'.",
        ),
    ],
    "ctc_loss": [
        Reason(
            lambda broken: not (broken.nan or infinite(broken)),
            "a target does not fit into its input: CTC needs a step for each label, and one more "
            "between two equal labels",
            "Pass zero_infinity=True, or give more steps: a smaller stride, or longer inputs.",
        )
    ],
}
REASONS = {name: each for names, each in _REASONS.items() for name in names.split()}
"""Names of operations -> the inputs for which they make NaN or Inf."""

SLOPES = {
    "linalg_eigh": Cause(
        "two eigenvalues are equal, and their vectors have no slope",
        "Use torch.linalg.eigvalsh, the eigenvalues alone, or add noise to the matrix.",
    ),
    "linalg_svd": Cause(
        "two singular values are equal, or one is 0, and their vectors have no slope",
        "Use torch.linalg.svdvals, the singular values alone, or add noise to the matrix.",
    ),
}
"""Operations with one way to make NaN or Inf in the backward -> the cause and the fix."""


def cause_of(
    operation: Operation, given: Sequence[Tensor], made: tuple[Range, ...], maker: str
) -> Cause:
    """Find the cause of an operation's NaN or Inf while its values are at hand.

    ``given`` are its input tensors as they were before it ran, ``maker`` is the operation that
    made the first of them.
    """
    broken = next(filter(None, map(_first_broken, operation.outputs)), None)
    if broken is None:
        return UNKNOWN
    result, position = broken
    before = {id(t): copy for t, copy in zip(operation.inputs, given, strict=True)}
    dims = operation.argument.get("dim") if operation.kind in _ALONG else None
    positions = operation.kind in ELEMENTWISE_KINDS or dims is not None

    def values(argument: Any) -> Any:
        if isinstance(argument, Tensor):
            tensor = before.get(id(argument), argument)
            near = _extent(_behind(tensor, result, position, dims) if positions else tensor)
            return replace(near, shape=tuple(tensor.shape)) if near is not _MISSING else near
        if isinstance(argument, (list, tuple)) and any(isinstance(e, Tensor) for e in argument):
            return tuple(map(values, argument))
        if isinstance(argument, (int, float)) and not isinstance(argument, bool):
            return Range(float(argument), float(argument), (), torch.float64)
        return argument

    arguments = {name: values(each) for name, each in operation.argument.items()}
    value = float(_extent(result[position]).low)
    found = Broken(operation.name, operation.kind, arguments, made, value, maker)
    node = torch._C._current_autograd_node()
    forward = operation.phase == "forward" or isinstance(node, BackwardCFunction)
    return _cause(found, "" if forward else operation.title)


_ALONG = frozenset((Kind.REDUCTION, Kind.SOFTMAX, Kind.SCAN))
"""Operations along the dimensions that their argument ``dim`` names."""


def _cause(broken: Broken, slope_of: str) -> Cause:
    """Return the cause; in a backward ``slope_of`` is the operation whose slope it is."""
    if slope_of in SLOPES:
        return SLOPES[slope_of]
    for reason in REASONS.get(broken.name, ()):
        if reason.when(broken):
            return Cause(reason.words, reason.fix, reason.overflow)
    elementwise = broken.kind in ELEMENTWISE_KINDS
    if too_large(broken):
        what = broken.formula if elementwise else "the result"
        fix = DOMAINS["div"][1] if broken.name in ("div", "addcdiv") else _SMALLER
        if broken.name in _EXPONENTIALS:
            fix = "Subtract the largest value first, or use logsumexp, softmax or softplus."
        elif broken.dtype in HALF:
            fix = "Compute this layer in float32, or use bfloat16, whose largest number is 3.4e38."
        return Cause(f"{what} is {broken.too_much}", fix, overflow=True)
    if infinite(broken):
        if not broken.nan or any(each.nan for each in broken.given):
            word = "NaN" if broken.nan else "Inf"
            return Cause(f"a constant in the code holds {word}", "Write a finite number instead.")
        return Cause(broken.formula if elementwise else "Inf − Inf or 0 × Inf", _MASK)
    if empty(broken):
        name = "mean" if broken.kind is Kind.LOSS else broken.name
        statistic = _STATISTICS.get(name, name)
        fix = "Skip the batch if nothing is selected"
        if statistic == "mean":
            fix += ", or divide the sum by the count, at least 1: x.sum() / max(x.numel(), 1)"
        return Cause(f"the {statistic} over no values: its input is empty", f"{fix}.")
    if sums(broken):
        words = "its sums are larger than its type holds, with either sign: Inf − Inf"
        return Cause(words, _SMALLER, overflow=True)
    takes, fix = DOMAINS.get(slope_of or broken.name, ("", UNKNOWN.fix))
    words = f"{broken.formula} is {number(broken.value)}"
    if slope_of:
        # torch.where gives the values that it leaves out a gradient of 0, and 0 × Inf is NaN.
        words += f", since the slope of {slope_of} is not finite there"
        fix += (
            " If torch.where leaves these values out, replace them before the operation: "
            "torch.where(mask, x, 1.0)."
        )
    elif takes:
        words += f", since {broken.name.removeprefix('special_')} takes {takes}"
    return Cause(words, fix) if elementwise or takes else UNKNOWN


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
    dims: int | Sequence[int] | None,
) -> Tensor:
    """Return an input's values behind one value of a result; all where the shapes do not tell.

    Of an elementwise operation that is one value, after broadcasting; of one along ``dims`` a row.
    """
    if dims is None:
        with suppress(RuntimeError):  # it cannot be broadcast
            return tensor.expand_as(result)[position]
        return tensor
    index: list[Any] = [*position]
    along = [dims] if isinstance(dims, int) else dims
    for each in sorted(dim % max(tensor.ndim, 1) for dim in along):
        index[each : each + (result.ndim == tensor.ndim)] = [slice(None)]
    return tensor[tuple(index)] if len(index) == tensor.ndim else tensor


def _extent(tensor: Tensor) -> Range:
    """Return the range of a tensor, of whole numbers and truths too."""
    fractions = tensor.is_floating_point() or tensor.is_complex()
    return range_of(tensor if fractions else tensor.double()) or _MISSING
