"""The stated cause of NaN and Inf is the actual one, and its fix leaves nothing to report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hookviz

INF = torch.inf


class Scaled(nn.Module):
    """A function of the input times a weight of 1."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.ones(())), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.weight * x)


@dataclass(frozen=True)
class Case:
    """A function that makes NaN or Inf of an input, why, and the function with its fix."""

    x: Any
    sick: Callable[[Tensor], Tensor]
    words: str  # in the message
    fix: str  # in the advice
    cured: Callable[[Tensor], Tensor]
    phase: str = "forward"


def backward(
    x: Any,
    sick: Callable[[Tensor], Tensor],
    words: str,
    fix: str,
    cured: Callable[[Tensor], Tensor],
) -> Case:
    return Case(x, sick, words, fix, cured, phase="backward")


LOGITS = [[1.0, -1.0], [0.5, 2.0]]
IGNORED = torch.tensor([-100, -100])
LABELS = torch.tensor([0, 0])
ROW = torch.tensor([[-INF, -INF], [0.0, 0.0]])
ONE_LEFT = torch.tensor([[-INF, 0.0], [0.0, 0.0]])


def ctc(x: Tensor, length: int = 4, **options: Any) -> Tensor:
    target = torch.tensor([[1, 1, 2, 2]])[:, :length]
    given = x.reshape(3, 1, 3).log_softmax(2)
    return F.ctc_loss(given, target, torch.tensor([3]), torch.tensor([length]), **options)


def nothing(x: Tensor) -> Tensor:
    return x[x > 100]


def mean_of_selected(x: Tensor) -> Tensor:
    return nothing(x).sum() / max(nothing(x).numel(), 1) + x.mean()


CASES = {
    # Powers and roots
    "sqrt of -1": Case(
        [-1.0, 4.0], torch.sqrt, "root of a negative number, −1", "Clamp",
        lambda x: x.clamp(min=1e-6).sqrt(),
    ),
    "rsqrt of 0": Case(
        [0.0, 4.0], torch.rsqrt, "divided by the root of 0", "Add a small number",
        lambda x: (x + 1e-6).rsqrt(),
    ),
    "rsqrt of -4": Case(
        [-4.0, 4.0], torch.rsqrt, "root of a negative number, −4", "Clamp",
        lambda x: x.clamp(min=1e-6).rsqrt(),
    ),
    "reciprocal of 0": Case(
        [0.0, 4.0], torch.reciprocal, "division by 0", "Add a small number",
        lambda x: 1 / (x + 1e-6),
    ),
    "0 ** -1": Case(
        [0.0, 4.0], lambda x: x**-1.0, "0 to the power of −1 divides by 0", "clamp it away from 0",
        lambda x: x.clamp(min=1e-3) ** -1.0,
    ),
    "0 ** -2": Case(
        [0.0, 4.0], lambda x: x**-2.0, "0 to the power of −2 divides by 0", "clamp it away from 0",
        lambda x: x.clamp(min=1e-3) ** -2.0,
    ),
    "-8 ** 1.5": Case(
        [-8.0, 4.0], lambda x: x**1.5, "a negative number, −8, to the power of 1.5", "abs()",
        lambda x: x.abs() ** 1.5,
    ),
    "1e25 ** 2": Case(
        [1e25, 4.0], lambda x: x**2, "1e+25 to the power of 2 is more than float32 holds",
        "normalize", lambda x: (x / 1e25) ** 2,
    ),
    "2 ** 400": Case(
        [400.0, 4.0], lambda x: 2**x, "2 to the power of 400 is more than float32 holds",
        "logarithms", lambda x: x * 0.693,
    ),
    "0 ** -0.5 of two tensors": Case(
        [0.0, 4.0], lambda x: x ** (x - 0.5).detach(), "0 to the power of −0.5 divides by 0",
        "clamp it away from 0", lambda x: x.clamp(min=1e-3) ** -0.5,
    ),
    # Logarithms
    "log of 0": Case(
        [0.0, 4.0], torch.log, "the logarithm of 0", "clamp(min=1e-6)",
        lambda x: x.clamp(min=1e-6).log(),
    ),
    "log of -2": Case(
        [-2.0, 0.5], torch.log, "the logarithm of a negative number, −2", "clamp(min=1e-6)",
        lambda x: x.clamp(min=1e-6).log(),
    ),
    "log10 of 0": Case(
        [0.0, 4.0], torch.log10, "the logarithm of 0", "clamp(min=1e-6)",
        lambda x: x.clamp(min=1e-6).log10(),
    ),
    "log of a softmax": Case(
        [[1e4, 0.0]], lambda x: x.softmax(1).log(), "the logarithm of 0", "log_softmax",
        lambda x: x.log_softmax(1),
    ),
    "log1p of -1": Case(
        [-1.0, 4.0], torch.log1p, "log1p(−1)", "clamp(min=-1 + 1e-6)",
        lambda x: x.clamp(min=-1 + 1e-6).log1p(),
    ),
    "log1p of -3": Case(
        [-3.0, 4.0], torch.log1p, "log1p(−3), of a negative number", "clamp(min=-1 + 1e-6)",
        lambda x: x.clamp(min=-1 + 1e-6).log1p(),
    ),
    "logit of 1": Case(
        [1.0, 0.5], torch.logit, "the logit of 0 and of 1 is infinite", "eps=1e-6",
        lambda x: torch.logit(x, eps=1e-6),
    ),
    "logit of 3": Case(
        [3.0, 0.5], torch.logit, "3, is not between 0 and 1", "probabilities",
        lambda x: (x / 4).logit(),
    ),
    "xlogy of 1 and 0": Case(
        [0.0, 4.0], lambda x: torch.xlogy(1.0, x), "the logarithm of 0", "clamp(min=1e-6)",
        lambda x: torch.xlogy(1.0, x.clamp(min=1e-6)),
    ),
    "xlogy of 1 and -2": Case(
        [-2.0, 4.0], lambda x: torch.xlogy(1.0, x), "logarithm of a negative number, −2",
        "clamp(min=1e-6)", lambda x: torch.xlogy(1.0, x.clamp(min=1e-6)),
    ),
    "xlog1py of 1 and -1": Case(
        [-1.0, 4.0], lambda x: torch.special.xlog1py(1.0, x), "the logarithm of 0",
        "clamp(min=-1 + 1e-6)", lambda x: torch.special.xlog1py(1.0, x.clamp(min=-1 + 1e-6)),
    ),
    "entropy of -1": Case(
        [-1.0, 0.5], torch.special.entr, "the entropy of a negative number, −1", "probabilities",
        lambda x: torch.special.entr(x.softmax(0)),
    ),
    # Divisions
    "1 / 0": Case(
        [0.0, 4.0], lambda x: (x + 1) / x, "division by 0", "Add a small number",
        lambda x: (x + 1) / (x + 1e-3),
    ),
    "0 / 0": Case(
        [0.0, 4.0], lambda x: x / x.abs(), "0 divided by 0", "Add a small number",
        lambda x: x / (x.abs() + 1e-3),
    ),
    "divided by a sum of 0": Case(
        [[0.0, 0.0], [1.0, 2.0]], lambda x: x / x.sum(1, keepdim=True), "0 divided by 0",
        "Add a small number", lambda x: x / (x.sum(1, keepdim=True) + 1e-6),
    ),
    "divided by a norm of 0": Case(
        [[0.0, 0.0], [1.0, 2.0]], lambda x: x / x.norm(dim=1, keepdim=True), "0 divided by 0",
        "Add a small number", lambda x: F.normalize(x),
    ),
    "divided by next to 0": Case(
        [1e-30, 4.0], lambda x: 1e30 * x.detach().sign() / x, "a number next to 0, 1e−30",
        "clamp it away from 0", lambda x: 1e30 * x.detach().sign() / x.clamp(min=1.0) / 1e30,
    ),
    "remainder of 0": Case(
        [3.0, 4.0], lambda x: torch.remainder(x, 0.0), "remainder of a division by 0", "divisor",
        lambda x: torch.remainder(x, 5.0),
    ),
    "fmod of 0": Case(
        [3.0, 4.0], lambda x: torch.fmod(x, 0.0), "remainder of a division by 0", "divisor",
        lambda x: torch.fmod(x, 5.0),
    ),
    # Exponentials
    "exp of 100": Case(
        [100.0, 1.0], torch.exp, "is 100, and exp of it is more than float32 holds",
        "Subtract the largest",
        lambda x: (x - x.max().detach()).exp(),
    ),
    "expm1 of 100": Case(
        [100.0, 1.0], torch.expm1, "its input is 100", "Subtract the largest",
        lambda x: (x - x.max().detach()).expm1(),
    ),
    "exp2 of 200": Case(
        [200.0, 1.0], torch.exp2, "its input is 200", "Subtract the largest",
        lambda x: (x - x.max().detach()).exp2(),
    ),
    "cosh of 100": Case(
        [100.0, 1.0], torch.cosh, "its input is 100", "softplus", lambda x: F.softplus(x)
    ),
    "sinh of -100": Case(
        [-100.0, 1.0], torch.sinh, "its input is −100", "softplus", lambda x: F.softplus(x)
    ),
    # Inverse and special functions
    "asin of 2": Case(
        [2.0, 0.5], torch.asin, "2, is not between −1 and 1", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        lambda x: x.clamp(-1 + 1e-6, 1 - 1e-6).asin(),
    ),
    "acos of -2": Case(
        [-2.0, 0.5], torch.acos, "−2, is not between −1 and 1", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        lambda x: x.clamp(-1 + 1e-6, 1 - 1e-6).acos(),
    ),
    "acosh of 0.5": Case(
        [0.5, 2.0], torch.acosh, "0.5, is smaller than 1", "x.clamp(min=1 + 1e-6)",
        lambda x: x.clamp(min=1 + 1e-6).acosh(),
    ),
    "atanh of 1": Case(
        [1.0, 0.5], torch.atanh, "atanh is infinite at −1 and 1", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        lambda x: x.clamp(-1 + 1e-6, 1 - 1e-6).atanh(),
    ),
    "atanh of 3": Case(
        [3.0, 0.5], torch.atanh, "3, is not between −1 and 1", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        lambda x: x.clamp(-1 + 1e-6, 1 - 1e-6).atanh(),
    ),
    "erfinv of -1": Case(
        [-1.0, 0.5], torch.erfinv, "erfinv is infinite at −1 and 1", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        lambda x: x.clamp(-1 + 1e-6, 1 - 1e-6).erfinv(),
    ),
    "erfinv of 2": Case(
        [2.0, 0.5], torch.erfinv, "2, is not between −1 and 1", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        lambda x: x.clamp(-1 + 1e-6, 1 - 1e-6).erfinv(),
    ),
    "ndtri of 0": Case(
        [0.0, 0.5], torch.special.ndtri, "the quantile of 0 and of 1", "clamp(1e-6, 1 - 1e-6)",
        lambda x: torch.special.ndtri(x.clamp(1e-6, 1 - 1e-6)),
    ),
    "lgamma of 0": Case(
        [0.0, 2.0], torch.lgamma, "whole numbers, and the input is 0",
        "x.clamp(min=1e-6)",
        lambda x: x.clamp(min=1e-6).lgamma(),
    ),
    "lgamma of -3": Case(
        [-3.0, 2.0], torch.lgamma, "whole numbers, and the input is −3",
        "x.clamp(min=1e-6)",
        lambda x: x.clamp(min=1e-6).lgamma(),
    ),
    "digamma of -2": Case(
        [-2.0, 2.0], torch.digamma, "whole numbers, and the input is −2",
        "x.clamp(min=1e-6)",
        lambda x: x.clamp(min=1e-6).digamma(),
    ),
    "polygamma of 0": Case(
        [0.0, 2.0], lambda x: torch.polygamma(1, x), "whole numbers, and the input is 0",
        "x.clamp(min=1e-6)",
        lambda x: torch.polygamma(1, x.clamp(min=1e-6)),
    ),
    "mvlgamma of 0.5": Case(
        [0.5, 2.0], lambda x: torch.mvlgamma(x, 2), "0.5, is not above (p − 1) / 2", "above",
        lambda x: torch.mvlgamma(x + 1, 2),
    ),
    "gammainc of -1": Case(
        [1.0, 2.0], lambda x: torch.special.gammainc(torch.tensor(-1.0), x), "a negative number",
        "Clamp", lambda x: torch.special.gammainc(torch.tensor(1.0), x),
    ),
    "zeta of 1": Case(
        [1.0, 2.0], lambda x: torch.special.zeta(torch.ones(2), x), "zeta is infinite at 1",
        "above 1", lambda x: torch.special.zeta(torch.ones(2) + 1, x),
    ),
    # Reductions
    "mean of nothing": Case(
        [1.0, 2.0], lambda x: nothing(x).mean() + x.mean(), "the mean over no values", "x.numel()",
        mean_of_selected,
    ),
    "median of nothing": Case(
        [1.0, 2.0], lambda x: nothing(x).median() + x.mean(), "the mean over no values", "Skip",
        mean_of_selected,
    ),
    "std of one number": Case(
        [3.0], torch.std, "n − 1 = 0", "correction=0", lambda x: x.std(correction=0) + x
    ),
    "var of one number a row": Case(
        [[3.0], [4.0]], lambda x: x.var(1), "n − 1 = 0", "correction=0",
        lambda x: x.var(1, correction=0) + x[:, 0],
    ),
    "var_mean of one number": Case(
        [3.0], lambda x: torch.var_mean(x)[0], "n − 1 = 0", "correction=0",
        lambda x: torch.var_mean(x, correction=0)[0] + x,
    ),
    "std of nothing": Case(
        [3.0, 4.0], lambda x: nothing(x).std() + x.mean(), "its input is empty", "Skip",
        mean_of_selected,
    ),
    "product of large numbers": Case(
        [1e30, 1e30], torch.prod, "larger than float32 holds", "logarithms",
        lambda x: x.log().sum(),
    ),
    "cumulative product": Case(
        [1e30, 1e30], lambda x: x.cumprod(0), "larger than float32 holds", "logarithms",
        lambda x: x.log().cumsum(0),
    ),
    "logdet of a singular matrix": Case(
        [[1.0, 1.0], [1.0, 1.0]], torch.logdet, "the matrix is singular", "identity",
        lambda x: torch.logdet(x + 1e-2 * torch.eye(2)),
    ),
    "logdet of a negative determinant": Case(
        [[0.0, 1.0], [1.0, 0.0]], torch.logdet, "negative determinant", "slogdet",
        lambda x: torch.linalg.slogdet(x)[1],
    ),
    # Normalizations and masks
    "layer norm of equal values": Case(
        [[2.0, 2.0], [1.0, 2.0]], lambda x: F.layer_norm(x, (2,), eps=0), "eps is 0", "eps",
        lambda x: F.layer_norm(x, (2,)),
    ),
    "group norm of equal values": Case(
        [[2.0, 2.0], [1.0, 2.0]], lambda x: F.group_norm(x, 1, eps=0), "eps is 0", "eps",
        lambda x: F.group_norm(x, 1),
    ),
    "standardized by one number": Case(
        [[3.0], [4.0]], lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True),
        "n − 1 = 0", "correction=0",
        lambda x: x / (x.std(1, keepdim=True, correction=0) + 1),
    ),
    "softmax of a masked row": Case(
        LOGITS, lambda x: (x + ROW).softmax(1), "−Inf throughout", "Leave one position",
        lambda x: (x + ONE_LEFT).softmax(1),
    ),
    "log_softmax of a masked row": Case(
        LOGITS, lambda x: x.masked_fill(ROW == -INF, -INF).log_softmax(1), "−Inf throughout",
        "a large negative number", lambda x: x.masked_fill(ROW == -INF, -1e4).log_softmax(1),
    ),
    # Losses
    "cross entropy of ignored targets": Case(
        LOGITS, lambda x: F.cross_entropy(x, IGNORED), "all of them are ignore_index",
        "Skip batches without labels",
        lambda x: F.cross_entropy(x, IGNORED, reduction="sum") / 1 + x.mean(),
    ),
    "cross entropy with class weights of 0": Case(
        LOGITS, lambda x: F.cross_entropy(x, LABELS, torch.tensor([0.0, 1.0])),
        "the class weights of all its targets are 0", "a positive weight",
        lambda x: F.cross_entropy(x, LABELS, torch.tensor([0.5, 1.0])),
    ),
    "cross entropy of ignored pixels": Case(
        [[[[1.0]], [[2.0]]]],
        lambda x: F.cross_entropy(x, torch.full((1, 1, 1), 255), ignore_index=255),
        "all of them are ignore_index", "Skip batches without labels",
        lambda x: F.cross_entropy(x, torch.zeros(1, 1, 1).long(), ignore_index=255),
    ),
    "cross entropy of nothing": Case(
        LOGITS, lambda x: F.cross_entropy(x[:0], LABELS[:0]) + x.mean(), "the batch is empty",
        "Skip the batch", lambda x: F.cross_entropy(x, LABELS),
    ),
    "mean squared error of nothing": Case(
        LOGITS, lambda x: F.mse_loss(nothing(x), nothing(x) * 2) + x.mean(),
        "the mean over no values", "Skip", lambda x: F.mse_loss(x, x.detach() * 2),
    ),
    "l1 loss of nothing": Case(
        LOGITS, lambda x: F.l1_loss(nothing(x), nothing(x) * 2) + x.mean(),
        "the mean over no values", "Skip", lambda x: F.l1_loss(x, x.detach() * 2),
    ),
    "smooth l1 loss of nothing": Case(
        LOGITS, lambda x: F.smooth_l1_loss(nothing(x), nothing(x.detach())) + x.mean(),
        "the mean over no values", "Skip", lambda x: F.smooth_l1_loss(x, x.detach() * 2),
    ),
    "huber loss of nothing": Case(
        LOGITS, lambda x: F.huber_loss(nothing(x), nothing(x.detach())) + x.mean(),
        "the mean over no values", "Skip", lambda x: F.huber_loss(x, x.detach() * 2),
    ),
    "BCE with logits of nothing": Case(
        LOGITS,
        lambda x: F.binary_cross_entropy_with_logits(nothing(x), nothing(x.detach())) + x.mean(),
        "the mean over no values", "Skip",
        lambda x: F.binary_cross_entropy_with_logits(x, torch.eye(2)),
    ),
    "CTC with a target that is too long": Case(
        torch.arange(9.0), ctc, "a target does not fit", "zero_infinity=True",
        lambda x: ctc(x, zero_infinity=True) + x.mean(),
    ),
    "CTC with two equal labels": Case(
        torch.arange(9.0), lambda x: ctc(x[:9], 3), "one more between two equal labels", "steps",
        lambda x: ctc(x, 2),
    ),
    "Poisson loss of a negative rate": Case(
        [-2.0, 1.0], lambda x: F.poisson_nll_loss(x, torch.ones(2), log_input=False),
        "logarithm of a negative number, −2", "clamp(min=1e-6)",
        lambda x: F.poisson_nll_loss(x, torch.ones(2)),
    ),
    # Types
    "float16 of 1e6": Case(
        [1e6, 1.0], lambda x: x.half().float(), "more than float16 holds", "bfloat16",
        lambda x: x.bfloat16().float(),
    ),
    "a sum in float16": Case(
        [4e4, 4e4], lambda x: x.half().sum().float(), "more than float16 holds", "float32",
        lambda x: x.sum(),
    ),
    "a product of matrices": Case(
        [[1e25, 1.0], [1e25, 1.0]], lambda x: x @ x, "larger than float32 holds", "normalize",
        lambda x: (x / 1e25) @ (x / 1e25),
    ),
    "the sum of a product with both signs": Case(
        [[1e25, 1e25]], lambda x: x @ (x.detach() * torch.tensor([[1e14, -1e14]])).T * 1e10,
        "larger than float32 holds", "normalize", lambda x: x / 1e25,
    ),
    # Infinite slopes
    "the root's slope at 0": backward(
        [0.0, 4.0], torch.sqrt, "the slope of the root is infinite at 0", "(x + 1e-8).sqrt()",
        lambda x: (x + 1e-8).sqrt(),
    ),
    "the slope of x ** 0.5 at 0": backward(
        [0.0, 4.0], lambda x: x**0.75, "the slope of x ** 0.75 is infinite at x = 0", "1e-8",
        lambda x: (x + 1e-8) ** 0.75,
    ),
    "a distance of 0": backward(
        [[1.0, 2.0]], lambda x: ((x - x.detach()) ** 2).sum(1).sqrt() + x.mean(),
        "the slope of the root is infinite at 0", "(x + 1e-8).sqrt()",
        lambda x: (((x - x.detach()) ** 2).sum(1) + 1e-8).sqrt() + x.mean(),
    ),
    "where around log": backward(
        [0.0, 4.0], lambda x: torch.where(x > 0, x.log(), 0.0),
        "the slope of log is infinite at 0", "torch.where(mask, x, 1.0)",
        lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).log(), 0.0),
    ),
    "where around sqrt": backward(
        [0.0, 4.0], lambda x: torch.where(x > 0, x.sqrt(), 0.0),
        "the slope of the root is infinite at 0", "torch.where(mask, x, 1.0)",
        lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0),
    ),
    "where around a division": backward(
        [0.0, 4.0], lambda x: torch.where(x > 0, (x + 1) / x, 0.0),
        "the slope of div is infinite at 0", "torch.where(mask, x, 1.0)",
        lambda x: torch.where(x > 0, (x + 1) / torch.where(x > 0, x, 1.0), 0.0),
    ),
    "where around exp": Case(
        [1000.0, 4.0], lambda x: torch.where(x < 10, x.exp(), 0.0),
        "is 1000, and exp of it is more than float32", "Subtract the largest",
        lambda x: torch.where(x < 10, torch.where(x < 10, x, 0.0).exp(), 0.0),
    ),
    "the slope of acos at 1": backward(
        [1.0, 0.5], torch.acos, "the slope of acos is infinite at −1 and 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", lambda x: x.clamp(-1 + 1e-6, 1 - 1e-6).acos(),
    ),
    "the slope of asin at -1": backward(
        [-1.0, 0.5], torch.asin, "the slope of asin is infinite at −1 and 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", lambda x: x.clamp(-1 + 1e-6, 1 - 1e-6).asin(),
    ),
    "the slope of acosh at 1": backward(
        [1.0, 2.0], torch.acosh, "the slope of acosh is infinite at 1", "x.clamp(min=1 + 1e-6)",
        lambda x: x.clamp(min=1 + 1e-6).acosh(),
    ),
    "the slope of the entropy at 0": backward(
        [0.0, 0.5], torch.special.entr, "the slope of special_entr is infinite at 0",
        "clamp(min=1e-6)", lambda x: torch.special.entr(x.clamp(min=1e-6)),
    ),
    "the slope of xlogy at 0": backward(
        [0.0, 0.5], lambda x: torch.xlogy(x, x), "the slope of xlogy is infinite at 0",
        "clamp(min=1e-6)", lambda x: torch.xlogy(x, x.clamp(min=1e-6)),
    ),
    "the slope of hypot at 0": backward(
        [0.0, 0.5], lambda x: torch.hypot(x, x), "hypot has no slope at (0, 0)",
        "Add a small number", lambda x: torch.hypot(x, x + 1e-3),
    ),
    "eigenvectors of equal eigenvalues": backward(
        [[1.0, 0.0], [0.0, 1.0]], lambda x: torch.linalg.eigh(x)[1][0, 0].abs() + x.mean(),
        "two eigenvalues are equal", "eigvalsh", lambda x: torch.linalg.eigvalsh(x),
    ),
    "singular vectors of equal singular values": backward(
        [[1.0, 0.0], [0.0, 1.0]], lambda x: torch.linalg.svd(x)[0][0, 0].abs() + x.mean(),
        "two singular values are equal", "svdvals", lambda x: torch.linalg.svdvals(x),
    ),
}  # fmt: skip


def lost(findings: hookviz.Diagnosis) -> list[Any]:
    return [each for each in findings if each.kind in ("nan", "inf")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_stated_cause_is_the_actual_one(name):
    case = CASES[name]
    x = torch.as_tensor(case.x)
    findings = hookviz.diagnose(Scaled(case.sick), x, lambda output: output.sum())
    [first, *_] = lost(findings)
    assert case.words in first.message, findings
    assert case.fix in first.advice, findings
    assert first.phase == case.phase, findings
    cured = hookviz.diagnose(Scaled(case.cured), x, lambda output: output.sum())
    assert not lost(cured) and cured.healthy, cured


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_a_guard_states_the_same_cause_in_a_loss(name):
    case, model = CASES[name], Scaled(lambda x: x * 1.0)
    with hookviz.diagnose(model) as findings:
        case.sick(model(torch.as_tensor(case.x))).sum().backward()
    [first, *_] = lost(findings)
    assert case.words in first.message, findings
