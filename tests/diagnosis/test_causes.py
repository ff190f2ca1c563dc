"""The stated cause of NaN and Inf is the actual one, and its fix leaves nothing to report."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookviz

INF = torch.inf


class Scaled(nn.Module):
    """A model that evaluates an expression of its input times a weight of 1."""

    def __init__(self, expression):
        super().__init__()
        self.weight, self.expression = nn.Parameter(torch.ones(())), expression

    def forward(self, x):
        return evaluated(self.expression, self.weight * x)


def evaluated(expression, x):
    return eval(expression, globals() | {"x": x})


LOGITS = [[1.0, -1.0], [0.5, 2.0]]
IGNORED = torch.tensor([-100, -100])
LABELS = torch.tensor([0, 0])
ROW = torch.tensor([[-INF, -INF], [0.0, 0.0]])
ONE_LEFT = torch.tensor([[-INF, 0.0], [0.0, 0.0]])


def ctc(x, length=4, **options):
    target = torch.tensor([[1, 1, 2, 2]])[:, :length]
    given = x.reshape(3, 1, 3).log_softmax(2)
    return F.ctc_loss(given, target, torch.tensor([3]), torch.tensor([length]), **options)


def nothing(x):
    return x[x > 100]


def mean_of_selected(x):
    return nothing(x).sum() / max(nothing(x).numel(), 1) + x.mean()


# Name -> the input, an expression that gives NaN or Inf, words of the cause and of the fix, and the
# fixed expression.
FORWARD = {
    # Powers and roots
    "sqrt of -1": ([-1.0, 4.0], "torch.sqrt(x)",
        "sqrt(−1) is NaN, since sqrt takes a number of 0 or more", "clamp(min=1e-6)",
        "x.clamp(min=1e-6).sqrt()"),
    "rsqrt of 0": ([0.0, 4.0], "torch.rsqrt(x)", "rsqrt(0) is Inf",
        "x.clamp(min=1e-6)", "(x + 1e-6).rsqrt()"),
    "rsqrt of -4": ([-4.0, 4.0], "torch.rsqrt(x)", "rsqrt(−4) is NaN", "x.clamp(min=1e-6)",
        "x.clamp(min=1e-6).rsqrt()"),
    "reciprocal of 0": ([0.0, 4.0], "torch.reciprocal(x)", "reciprocal(0) is Inf",
        "Add a small number",
        "1 / (x + 1e-6)"),
    "0 ** -1": ([0.0, 4.0], "x**-1.0", "0 ** −1 is Inf",
        "x.abs() + 1e-8", "x.clamp(min=1e-3) ** -1.0"),
    "-8 ** 1.5": ([-8.0, 4.0], "x**1.5",
        "−8 ** 1.5 is NaN, since pow takes a base above 0 if the exponent is a fraction", "abs()",
        "x.abs() ** 1.5"),
    "1e25 ** 2": ([1e25, 4.0], "x**2", "1e+25 ** 2 is more than float32 holds (3.4e+38)",
        "normalize", "(x / 1e25) ** 2"),
    "2 ** 400": ([400.0, 4.0], "2**x", "2 ** 400 is more than float32 holds (3.4e+38)",
        "logarithms", "x * 0.693"),
    "0 ** -0.5 of two tensors": ([0.0, 4.0], "x ** (x - 0.5).detach()",
        "0 ** −0.5 is Inf", "x.abs() + 1e-8",
        "x.clamp(min=1e-3) ** -0.5"),
    # Logarithms
    "log of 0": ([0.0, 4.0], "torch.log(x)", "log(0) is −Inf, since log takes a number above 0",
        "clamp(min=1e-6)",
        "x.clamp(min=1e-6).log()"),
    "log of -2": ([-2.0, 0.5], "torch.log(x)", "log(−2) is NaN",
        "clamp(min=1e-6)", "x.clamp(min=1e-6).log()"),
    "log of a softmax": ([[1e4, 0.0]], "x.softmax(1).log()",
        "the logarithm of a probability that softmax rounded to 0", "log_softmax",
        "x.log_softmax(1)"),
    "log1p of -1": ([-1.0, 4.0], "torch.log1p(x)", "log1p(−1)", "clamp(min=-1 + 1e-6)",
        "x.clamp(min=-1 + 1e-6).log1p()"),
    "logit of 1": ([1.0, 0.5], "torch.logit(x)", "logit(1) is Inf",
        "x.clamp(1e-6, 1 - 1e-6)", "torch.logit(x, eps=1e-6)"),
    "logit of 3": ([3.0, 0.5], "torch.logit(x)", "logit(3) is NaN", "x.clamp(1e-6, 1 - 1e-6)",
        "(x / 4).logit()"),
    "xlogy of 1 and 0": ([0.0, 4.0], "torch.xlogy(1.0, x)", "xlogy(1, 0) is −Inf",
        "clamp(min=1e-6)", "torch.xlogy(1.0, x.clamp(min=1e-6))"),
    "xlog1py of 1 and -1": ([-1.0, 4.0], "torch.special.xlog1py(1.0, x)", "xlog1py(1, −1) is −Inf",
        "clamp(min=-1 + 1e-6)", "torch.special.xlog1py(1.0, x.clamp(min=-1 + 1e-6))"),
    "entropy of -1": ([-1.0, 0.5], "torch.special.entr(x)",
        "entr(−1) is −Inf", "x.clamp(1e-6, 1 - 1e-6)",
        "torch.special.entr(x.softmax(0))"),
    # Divisions
    "1 / 0": ([0.0, 4.0], "(x + 1) / x", "1 / 0 is Inf, since div takes a divisor other than 0",
        "Add a small number",
        "(x + 1) / (x + 1e-3)"),
    "0 / 0": ([0.0, 4.0], "x / x.abs()", "0 / 0 is NaN", "Add a small number",
        "x / (x.abs() + 1e-3)"),
    "divided by a sum of 0": ([[0.0, 0.0], [1.0, 2.0]], "x / x.sum(1, keepdim=True)",
        "0 / 0 is NaN", "Add a small number", "x / (x.sum(1, keepdim=True) + 1e-6)"),
    "divided by a norm of 0": ([[0.0, 0.0], [1.0, 2.0]], "x / x.norm(dim=1, keepdim=True)",
        "0 / 0 is NaN", "Add a small number", "F.normalize(x)"),
    "divided by next to 0": ([1e-30, 4.0], "1e30 * x.detach().sign() / x",
        "1e+30 / 1e−30 is more than float32 holds (3.4e+38)", "clamp it away from 0",
        "1e30 * x.detach().sign() / x.clamp(min=1.0) / 1e30"),
    "addcdiv by 0": ([0.0, 4.0], "torch.addcdiv(x, x + 1, x)",
        "addcdiv(0, 1, 0, 1) is Inf, since addcdiv takes a divisor other than 0",
        "Add a small number", "torch.addcdiv(x, x + 1, x + 1e-3)"),
    "addcdiv by next to 0": ([1e-30, 4.0], "torch.addcdiv(x, 1e30 * x.detach().sign(), x)",
        "is more than float32 holds (3.4e+38)", "clamp it away from 0",
        "torch.addcdiv(x, x.detach().sign(), x.clamp(min=1.0))"),
    "remainder of 0": ([3.0, 4.0], "torch.remainder(x, 0.0)", "remainder(3, 0) is NaN",
        "divisor", "torch.remainder(x, 5.0)"),
    # Exponentials
    "exp of 100": ([100.0, 1.0], "torch.exp(x)",
        "exp(100) is more than float32 holds (3.4e+38)", "Subtract the largest",
        "(x - x.max().detach()).exp()"),
    "cosh of 100": ([100.0, 1.0], "torch.cosh(x)",
        "cosh(100) is more than float32 holds (3.4e+38)", "softplus",
        "F.softplus(x)"),
    # Inverse and special functions
    "asin of 2": ([2.0, 0.5], "torch.asin(x)", "asin(2) is NaN",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).asin()"),
    "acos of -2": ([-2.0, 0.5], "torch.acos(x)",
        "acos(−2) is NaN, since acos takes a number from −1 to 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).acos()"),
    "acosh of 0.5": ([0.5, 2.0], "torch.acosh(x)", "acosh(0.5) is NaN",
        "x.clamp(min=1 + 1e-6)", "x.clamp(min=1 + 1e-6).acosh()"),
    "atanh of 1": ([1.0, 0.5], "torch.atanh(x)", "atanh(1) is Inf",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).atanh()"),
    "erfinv of -1": ([-1.0, 0.5], "torch.erfinv(x)", "erfinv(−1) is −Inf",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).erfinv()"),
    "ndtri of 0": ([0.0, 0.5], "torch.special.ndtri(x)", "ndtri(0) is −Inf",
        "clamp(1e-6, 1 - 1e-6)", "torch.special.ndtri(x.clamp(1e-6, 1 - 1e-6))"),
    "lgamma of 1e38": ([1e38, 2.0], "torch.lgamma(x)",
        "lgamma(1e+38) is more than float32 holds (3.4e+38)", "smaller", "(x / 1e38).lgamma()"),
    "lgamma of 0": ([0.0, 2.0], "torch.lgamma(x)", "lgamma(0) is Inf",
        "x.clamp(min=1e-6)", "x.clamp(min=1e-6).lgamma()"),
    "digamma of -2": ([-2.0, 2.0], "torch.digamma(x)", "digamma(−2) is NaN",
        "x.clamp(min=1e-6)", "x.clamp(min=1e-6).digamma()"),
    "zeta of 1": ([1.0, 2.0], "torch.special.zeta(torch.ones(2), x)", "zeta(1, 1) is Inf",
        "Look at the values", "torch.special.zeta(torch.ones(2) + 1, x)"),
    # Reductions
    "mean of nothing": ([1.0, 2.0], "nothing(x).mean() + x.mean()", "the mean over no values",
        "x.numel()", "mean_of_selected(x)"),
    "median of nothing": ([1.0, 2.0], "nothing(x).median() + x.mean()",
        "the median over no values", "Skip", "mean_of_selected(x)"),
    "std of one number": ([3.0], "torch.std(x)", "n − 1 = 0", "correction=0",
        "x.std(correction=0) + x"),
    "var of one number a row": ([[3.0], [4.0]], "x.var(1)", "n − 1 = 0", "correction=0",
        "x.var(1, correction=0) + x[:, 0]"),
    "std of nothing": ([3.0, 4.0], "nothing(x).std() + x.mean()",
        "the standard deviation over no values: its input is empty", "Skip",
        "mean_of_selected(x)"),
    "mean of windows of large numbers": ([[3e38, 3e38]], "F.avg_pool1d(x, 2)",
        "the result is more than float32 holds (3.4e+38)", "smaller", "F.avg_pool1d(x / 1e38, 2)"),
    "distances of large numbers": ([[1e25], [-1e25]], "torch.cdist(x, x.detach().flip(0))",
        "the result is more than float32 holds (3.4e+38)", "smaller",
        "torch.cdist(x / 1e25, x.detach().flip(0) / 1e25)"),
    "product of large numbers": ([1e30, 1e30], "torch.prod(x)",
        "the result is more than float32 holds (3.4e+38)",
        "logarithms", "x.log().sum()"),
    "cumulative product": ([1e30, 1e30], "x.cumprod(0)",
        "the result is more than float32 holds (3.4e+38)",
        "logarithms", "x.log().cumsum(0)"),
    "determinant": ([[1e20, 0.0], [0.0, 1e20]], "torch.linalg.det(x)",
        "the result is more than float32 holds (3.4e+38)",
        "logarithms", "torch.linalg.slogdet(x)[1]"),
    "logdet of a singular matrix": ([[1.0, 1.0], [1.0, 1.0]], "torch.logdet(x)",
        "the matrix is singular", "identity", "torch.logdet(x + 1e-2 * torch.eye(2))"),
    "logdet of a negative determinant": ([[0.0, 1.0], [1.0, 0.0]], "torch.logdet(x)",
        "negative determinant", "slogdet", "torch.linalg.slogdet(x)[1]"),
    # Normalizations and masks
    "layer norm of equal values": ([[2.0, 2.0], [1.0, 2.0]], "F.layer_norm(x, (2,), eps=0)",
        "eps is 0", "eps", "F.layer_norm(x, (2,))"),
    "group norm of equal values": ([[2.0, 2.0], [1.0, 2.0]], "F.group_norm(x, 1, eps=0)",
        "eps is 0", "eps", "F.group_norm(x, 1)"),
    "layer norm of huge values": ([[1e25, 2e25], [1.0, 2.0]], "F.layer_norm(x, (2,))",
        "the squares of its input are larger than their type holds", "divide it",
        "F.layer_norm(x / 1e25, (2,))"),
    "BatchNorm with a negative variance": ([[2.0, 2.0], [1.0, 2.0]],
        "F.batch_norm(x, torch.zeros(2), torch.tensor([-1.0, 1.0]))",
        "its running variance is negative", "reset_running_stats",
        "F.batch_norm(x, None, None, training=True)"),
    "standardized by one number": ([[3.0], [4.0]],
        "(x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)", "n − 1 = 0", "correction=0",
        "x / (x.std(1, keepdim=True, correction=0) + 1)"),
    "softmax of a masked row": (LOGITS, "(x + ROW).softmax(1)", "−Inf throughout",
        "Leave one position", "(x + ONE_LEFT).softmax(1)"),
    "log_softmax of a masked row": (LOGITS, "x.masked_fill(ROW == -INF, -INF).log_softmax(1)",
        "−Inf throughout", "a large negative number",
        "x.masked_fill(ROW == -INF, -1e4).log_softmax(1)"),
    # Losses
    "cross entropy of ignored targets": (LOGITS, "F.cross_entropy(x, IGNORED)",
        "all of them are ignore_index", "Skip batches without labels",
        "F.cross_entropy(x, IGNORED, reduction='sum') / 1 + x.mean()"),
    "cross entropy with class weights of 0": (LOGITS,
        "F.cross_entropy(x, LABELS, torch.tensor([0.0, 1.0]))",
        "the class weights of all its targets are 0", "a positive weight",
        "F.cross_entropy(x, LABELS, torch.tensor([0.5, 1.0]))"),
    "cross entropy of ignored pixels": ([[[[1.0]], [[2.0]]]],
        "F.cross_entropy(x, torch.full((1, 1, 1), 255), ignore_index=255)",
        "all of them are ignore_index", "Skip batches without labels",
        "F.cross_entropy(x, torch.zeros(1, 1, 1).long(), ignore_index=255)"),
    "cross entropy of nothing": (LOGITS, "F.cross_entropy(x[:0], LABELS[:0]) + x.mean()",
        "the mean over no values: its input is empty", "Skip the batch",
        "F.cross_entropy(x, LABELS)"),
    "mean squared error of nothing": (LOGITS,
        "F.mse_loss(nothing(x), nothing(x) * 2) + x.mean()", "the mean over no values", "Skip",
        "F.mse_loss(x, x.detach() * 2)"),
    "l1 loss of nothing": (LOGITS, "F.l1_loss(nothing(x), nothing(x) * 2) + x.mean()",
        "the mean over no values", "Skip", "F.l1_loss(x, x.detach() * 2)"),
    "huber loss of nothing": (LOGITS, "F.huber_loss(nothing(x), nothing(x.detach())) + x.mean()",
        "the mean over no values", "Skip", "F.huber_loss(x, x.detach() * 2)"),
    "logsumexp of nothing": (LOGITS, "nothing(x).logsumexp(0) + x.mean()",
        "the logsumexp over no values", "Skip", "x.logsumexp(0)"),
    "BCE with logits of nothing": (LOGITS,
        "F.binary_cross_entropy_with_logits(nothing(x), nothing(x.detach())) + x.mean()",
        "the mean over no values", "Skip", "F.binary_cross_entropy_with_logits(x, torch.eye(2))"),
    "CTC with a target that is too long": (torch.arange(9.0), "ctc(x)", "a target does not fit",
        "zero_infinity=True", "ctc(x, zero_infinity=True) + x.mean()"),
    "CTC with two equal labels": (torch.arange(9.0), "ctc(x[:9], 3)",
        "one more between two equal labels", "steps", "ctc(x, 2)"),
    "Poisson loss of a negative rate": ([-2.0, 1.0],
        "F.poisson_nll_loss(x, torch.ones(2), log_input=False)",
        "log(−2) is NaN", "clamp(min=1e-6)",
        "F.poisson_nll_loss(x, torch.ones(2))"),
    # Types
    "float16 of 1e6": ([1e6, 1.0], "x.half().float()", "more than float16 holds", "bfloat16",
        "x.bfloat16().float()"),
    "a sum in float16": ([4e4, 4e4], "x.half().sum().float()", "more than float16 holds",
        "float32", "x.sum()"),
    "a product of matrices": ([[1e25, 1.0], [1e25, 1.0]], "x @ x",
        "the result is more than float32 holds (3.4e+38)",
        "normalize", "(x / 1e25) @ (x / 1e25)"),
    "the sum of a product with both signs": ([[1e25, 1e25]],
        "x @ (x.detach() * torch.tensor([[1e14, -1e14]])).T * 1e10",
        "1e+25 × 1e+14 is more than float32 holds (3.4e+38)",
        "normalize", "x / 1e25"),
    "where around exp": ([1000.0, 4.0], "torch.where(x < 10, x.exp(), 0.0)",
        "exp(1000) is more than float32 holds (3.4e+38)", "Subtract the largest",
        "torch.where(x < 10, torch.where(x < 10, x, 0.0).exp(), 0.0)"),
}  # fmt: skip

BACKWARD = {
    "the root's slope at 0": ([0.0, 4.0], "torch.sqrt(x)",
        "1 / 0 is Inf, since the slope of sqrt is not finite there", "(x + 1e-8).sqrt()",
        "(x + 1e-8).sqrt()"),
    "the slope of x ** 0.5 at 0": ([0.0, 4.0], "x**0.75",
        "0 ** −0.25 is Inf", "1e-8", "(x + 1e-8) ** 0.75"),
    "a distance of 0": ([[1.0, 2.0]], "((x - x.detach()) ** 2).sum(1).sqrt() + x.mean()",
        "1 / 0 is Inf", "(x + 1e-8).sqrt()",
        "(((x - x.detach()) ** 2).sum(1) + 1e-8).sqrt() + x.mean()"),
    "where around log": ([0.0, 4.0], "torch.where(x > 0, x.log(), 0.0)",
        "0 / 0 is NaN", "torch.where(mask, x, 1.0)",
        "torch.where(x > 0, torch.where(x > 0, x, 1.0).log(), 0.0)"),
    "where around a division": ([0.0, 4.0], "torch.where(x > 0, (x + 1) / x, 0.0)",
        "1 / 0 is Inf", "torch.where(mask, x, 1.0)",
        "torch.where(x > 0, (x + 1) / torch.where(x > 0, x, 1.0), 0.0)"),
    "the slope of acos at 1": ([1.0, 0.5], "torch.acos(x)",
        "rsqrt(0) is Inf", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        "x.clamp(-1 + 1e-6, 1 - 1e-6).acos()"),
    "the slope of acosh at 1": ([1.0, 2.0], "torch.acosh(x)",
        "rsqrt(0) is Inf", "x.clamp(min=1 + 1e-6)",
        "x.clamp(min=1 + 1e-6).acosh()"),
    "the slope of the entropy at 0": ([0.0, 0.5], "torch.special.entr(x)",
        "log(0) is −Inf", "x.clamp(1e-6, 1 - 1e-6)",
        "torch.special.entr(x.clamp(min=1e-6))"),
    "the slope of xlogy at 0": ([0.0, 0.5], "torch.xlogy(x, x)",
        "0 / 0 is NaN", "clamp(min=1e-6)",
        "torch.xlogy(x, x.clamp(min=1e-6))"),
    "the slope of hypot at 0": ([0.0, 0.5], "torch.hypot(x, x)", "0 / 0 is NaN",
        "Look at the values", "torch.hypot(x, x + 1e-3)"),
    "eigenvectors of equal eigenvalues": ([[1.0, 0.0], [0.0, 1.0]],
        "torch.linalg.eigh(x)[1][0, 0].abs() + x.mean()", "two eigenvalues are equal",
        "eigvalsh", "torch.linalg.eigvalsh(x)"),
    "singular vectors of equal singular values": ([[1.0, 0.0], [0.0, 1.0]],
        "torch.linalg.svd(x)[0][0, 0].abs() + x.mean()", "two singular values are equal",
        "svdvals", "torch.linalg.svdvals(x)"),
}  # fmt: skip

CASES = FORWARD | BACKWARD


def nonfinite_findings(findings, name):
    """Return the findings of NaN and Inf, and check the cause and fix of the first."""
    *_, words, fix, _ = CASES[name]
    found = [each for each in findings if each.kind in ("nan", "inf")]
    assert words in found[0].message and fix in found[0].advice, findings
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_stated_cause_and_fix_of_nan_and_inf_are_right(name):
    given, sick, *_, cured = CASES[name]
    x = torch.as_tensor(given)
    first = nonfinite_findings(
        hookviz.diagnose(Scaled(sick), x, lambda output: output.sum()), name
    )[0]
    assert first.phase == ("backward" if name in BACKWARD else "forward")
    assert hookviz.diagnose(Scaled(cured), x, lambda output: output.sum()).healthy


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_a_guard_states_the_cause_of_nan_and_inf_in_a_loss(name):
    model = Scaled("x * 1.0")
    with hookviz.diagnose(model) as findings:
        evaluated(CASES[name][1], model(torch.as_tensor(CASES[name][0]))).sum().backward()
    nonfinite_findings(findings, name)
