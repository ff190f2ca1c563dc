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
    "sqrt of -1": ([-1.0, 4.0], "torch.sqrt(x)", "root of a negative number, −1", "Clamp",
        "x.clamp(min=1e-6).sqrt()"),
    "rsqrt of 0": ([0.0, 4.0], "torch.rsqrt(x)", "divided by the root of 0",
        "Add a small number", "(x + 1e-6).rsqrt()"),
    "rsqrt of -4": ([-4.0, 4.0], "torch.rsqrt(x)", "root of a negative number, −4", "Clamp",
        "x.clamp(min=1e-6).rsqrt()"),
    "reciprocal of 0": ([0.0, 4.0], "torch.reciprocal(x)", "division by 0", "Add a small number",
        "1 / (x + 1e-6)"),
    "0 ** -1": ([0.0, 4.0], "x**-1.0", "0 to the power of −1 divides by 0",
        "clamp it away from 0", "x.clamp(min=1e-3) ** -1.0"),
    "0 ** -2": ([0.0, 4.0], "x**-2.0", "0 to the power of −2 divides by 0",
        "clamp it away from 0", "x.clamp(min=1e-3) ** -2.0"),
    "-8 ** 1.5": ([-8.0, 4.0], "x**1.5", "a negative number, −8, to the power of 1.5", "abs()",
        "x.abs() ** 1.5"),
    "1e25 ** 2": ([1e25, 4.0], "x**2", "1e+25 to the power of 2 is more than float32 holds",
        "normalize", "(x / 1e25) ** 2"),
    "2 ** 400": ([400.0, 4.0], "2**x", "2 to the power of 400 is more than float32 holds",
        "logarithms", "x * 0.693"),
    "0 ** -0.5 of two tensors": ([0.0, 4.0], "x ** (x - 0.5).detach()",
        "0 to the power of −0.5 divides by 0", "clamp it away from 0",
        "x.clamp(min=1e-3) ** -0.5"),
    # Logarithms
    "log of 0": ([0.0, 4.0], "torch.log(x)", "the logarithm of 0", "clamp(min=1e-6)",
        "x.clamp(min=1e-6).log()"),
    "log of -2": ([-2.0, 0.5], "torch.log(x)", "the logarithm of a negative number, −2",
        "clamp(min=1e-6)", "x.clamp(min=1e-6).log()"),
    "log10 of 0": ([0.0, 4.0], "torch.log10(x)", "the logarithm of 0", "clamp(min=1e-6)",
        "x.clamp(min=1e-6).log10()"),
    "log of a softmax": ([[1e4, 0.0]], "x.softmax(1).log()", "the logarithm of 0", "log_softmax",
        "x.log_softmax(1)"),
    "log1p of -1": ([-1.0, 4.0], "torch.log1p(x)", "log1p(−1)", "clamp(min=-1 + 1e-6)",
        "x.clamp(min=-1 + 1e-6).log1p()"),
    "log1p of -3": ([-3.0, 4.0], "torch.log1p(x)", "log1p(−3), of a negative number",
        "clamp(min=-1 + 1e-6)", "x.clamp(min=-1 + 1e-6).log1p()"),
    "logit of 1": ([1.0, 0.5], "torch.logit(x)", "the logit of 0 and of 1 is infinite",
        "eps=1e-6", "torch.logit(x, eps=1e-6)"),
    "logit of 3": ([3.0, 0.5], "torch.logit(x)", "3, is not between 0 and 1", "probabilities",
        "(x / 4).logit()"),
    "xlogy of 1 and 0": ([0.0, 4.0], "torch.xlogy(1.0, x)", "the logarithm of 0",
        "clamp(min=1e-6)", "torch.xlogy(1.0, x.clamp(min=1e-6))"),
    "xlogy of 1 and -2": ([-2.0, 4.0], "torch.xlogy(1.0, x)",
        "logarithm of a negative number, −2", "clamp(min=1e-6)",
        "torch.xlogy(1.0, x.clamp(min=1e-6))"),
    "xlog1py of 1 and -1": ([-1.0, 4.0], "torch.special.xlog1py(1.0, x)", "the logarithm of 0",
        "clamp(min=-1 + 1e-6)", "torch.special.xlog1py(1.0, x.clamp(min=-1 + 1e-6))"),
    "entropy of -1": ([-1.0, 0.5], "torch.special.entr(x)",
        "the entropy of a negative number, −1", "probabilities",
        "torch.special.entr(x.softmax(0))"),
    # Divisions
    "1 / 0": ([0.0, 4.0], "(x + 1) / x", "division by 0", "Add a small number",
        "(x + 1) / (x + 1e-3)"),
    "0 / 0": ([0.0, 4.0], "x / x.abs()", "0 divided by 0", "Add a small number",
        "x / (x.abs() + 1e-3)"),
    "divided by a sum of 0": ([[0.0, 0.0], [1.0, 2.0]], "x / x.sum(1, keepdim=True)",
        "0 divided by 0", "Add a small number", "x / (x.sum(1, keepdim=True) + 1e-6)"),
    "divided by a norm of 0": ([[0.0, 0.0], [1.0, 2.0]], "x / x.norm(dim=1, keepdim=True)",
        "0 divided by 0", "Add a small number", "F.normalize(x)"),
    "divided by next to 0": ([1e-30, 4.0], "1e30 * x.detach().sign() / x",
        "a number next to 0, 1e−30", "clamp it away from 0",
        "1e30 * x.detach().sign() / x.clamp(min=1.0) / 1e30"),
    "remainder of 0": ([3.0, 4.0], "torch.remainder(x, 0.0)", "remainder of a division by 0",
        "divisor", "torch.remainder(x, 5.0)"),
    "fmod of 0": ([3.0, 4.0], "torch.fmod(x, 0.0)", "remainder of a division by 0", "divisor",
        "torch.fmod(x, 5.0)"),
    # Exponentials
    "exp of 100": ([100.0, 1.0], "torch.exp(x)",
        "is 100, and exp of it is more than float32 holds", "Subtract the largest",
        "(x - x.max().detach()).exp()"),
    "expm1 of 100": ([100.0, 1.0], "torch.expm1(x)", "its input is 100", "Subtract the largest",
        "(x - x.max().detach()).expm1()"),
    "exp2 of 200": ([200.0, 1.0], "torch.exp2(x)", "its input is 200", "Subtract the largest",
        "(x - x.max().detach()).exp2()"),
    "cosh of 100": ([100.0, 1.0], "torch.cosh(x)", "its input is 100", "softplus",
        "F.softplus(x)"),
    "sinh of -100": ([-100.0, 1.0], "torch.sinh(x)", "its input is −100", "softplus",
        "F.softplus(x)"),
    # Inverse and special functions
    "asin of 2": ([2.0, 0.5], "torch.asin(x)", "2, is not between −1 and 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).asin()"),
    "acos of -2": ([-2.0, 0.5], "torch.acos(x)", "−2, is not between −1 and 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).acos()"),
    "acosh of 0.5": ([0.5, 2.0], "torch.acosh(x)", "0.5, is smaller than 1",
        "x.clamp(min=1 + 1e-6)", "x.clamp(min=1 + 1e-6).acosh()"),
    "atanh of 1": ([1.0, 0.5], "torch.atanh(x)", "atanh is infinite at −1 and 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).atanh()"),
    "atanh of 3": ([3.0, 0.5], "torch.atanh(x)", "3, is not between −1 and 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).atanh()"),
    "erfinv of -1": ([-1.0, 0.5], "torch.erfinv(x)", "erfinv is infinite at −1 and 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).erfinv()"),
    "erfinv of 2": ([2.0, 0.5], "torch.erfinv(x)", "2, is not between −1 and 1",
        "x.clamp(-1 + 1e-6, 1 - 1e-6)", "x.clamp(-1 + 1e-6, 1 - 1e-6).erfinv()"),
    "ndtri of 0": ([0.0, 0.5], "torch.special.ndtri(x)", "the quantile of 0 and of 1",
        "clamp(1e-6, 1 - 1e-6)", "torch.special.ndtri(x.clamp(1e-6, 1 - 1e-6))"),
    "lgamma of 0": ([0.0, 2.0], "torch.lgamma(x)", "whole numbers, and the input is 0",
        "x.clamp(min=1e-6)", "x.clamp(min=1e-6).lgamma()"),
    "lgamma of -3": ([-3.0, 2.0], "torch.lgamma(x)", "whole numbers, and the input is −3",
        "x.clamp(min=1e-6)", "x.clamp(min=1e-6).lgamma()"),
    "digamma of -2": ([-2.0, 2.0], "torch.digamma(x)", "whole numbers, and the input is −2",
        "x.clamp(min=1e-6)", "x.clamp(min=1e-6).digamma()"),
    "polygamma of 0": ([0.0, 2.0], "torch.polygamma(1, x)", "whole numbers, and the input is 0",
        "x.clamp(min=1e-6)", "torch.polygamma(1, x.clamp(min=1e-6))"),
    "mvlgamma of 0.5": ([0.5, 2.0], "torch.mvlgamma(x, 2)", "0.5, is not above (p − 1) / 2",
        "above", "torch.mvlgamma(x + 1, 2)"),
    "gammainc of -1": ([1.0, 2.0], "torch.special.gammainc(torch.tensor(-1.0), x)",
        "a negative number", "Clamp", "torch.special.gammainc(torch.tensor(1.0), x)"),
    "zeta of 1": ([1.0, 2.0], "torch.special.zeta(torch.ones(2), x)", "zeta is infinite at 1",
        "above 1", "torch.special.zeta(torch.ones(2) + 1, x)"),
    # Reductions
    "mean of nothing": ([1.0, 2.0], "nothing(x).mean() + x.mean()", "the mean over no values",
        "x.numel()", "mean_of_selected(x)"),
    "median of nothing": ([1.0, 2.0], "nothing(x).median() + x.mean()",
        "the mean over no values", "Skip", "mean_of_selected(x)"),
    "std of one number": ([3.0], "torch.std(x)", "n − 1 = 0", "correction=0",
        "x.std(correction=0) + x"),
    "var of one number a row": ([[3.0], [4.0]], "x.var(1)", "n − 1 = 0", "correction=0",
        "x.var(1, correction=0) + x[:, 0]"),
    "var_mean of one number": ([3.0], "torch.var_mean(x)[0]", "n − 1 = 0", "correction=0",
        "torch.var_mean(x, correction=0)[0] + x"),
    "std of nothing": ([3.0, 4.0], "nothing(x).std() + x.mean()", "its input is empty", "Skip",
        "mean_of_selected(x)"),
    "product of large numbers": ([1e30, 1e30], "torch.prod(x)", "larger than float32 holds",
        "logarithms", "x.log().sum()"),
    "cumulative product": ([1e30, 1e30], "x.cumprod(0)", "larger than float32 holds",
        "logarithms", "x.log().cumsum(0)"),
    "logdet of a singular matrix": ([[1.0, 1.0], [1.0, 1.0]], "torch.logdet(x)",
        "the matrix is singular", "identity", "torch.logdet(x + 1e-2 * torch.eye(2))"),
    "logdet of a negative determinant": ([[0.0, 1.0], [1.0, 0.0]], "torch.logdet(x)",
        "negative determinant", "slogdet", "torch.linalg.slogdet(x)[1]"),
    # Normalizations and masks
    "layer norm of equal values": ([[2.0, 2.0], [1.0, 2.0]], "F.layer_norm(x, (2,), eps=0)",
        "eps is 0", "eps", "F.layer_norm(x, (2,))"),
    "group norm of equal values": ([[2.0, 2.0], [1.0, 2.0]], "F.group_norm(x, 1, eps=0)",
        "eps is 0", "eps", "F.group_norm(x, 1)"),
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
        "the batch is empty", "Skip the batch", "F.cross_entropy(x, LABELS)"),
    "mean squared error of nothing": (LOGITS,
        "F.mse_loss(nothing(x), nothing(x) * 2) + x.mean()", "the mean over no values", "Skip",
        "F.mse_loss(x, x.detach() * 2)"),
    "l1 loss of nothing": (LOGITS, "F.l1_loss(nothing(x), nothing(x) * 2) + x.mean()",
        "the mean over no values", "Skip", "F.l1_loss(x, x.detach() * 2)"),
    "smooth l1 loss of nothing": (LOGITS,
        "F.smooth_l1_loss(nothing(x), nothing(x.detach())) + x.mean()",
        "the mean over no values", "Skip", "F.smooth_l1_loss(x, x.detach() * 2)"),
    "huber loss of nothing": (LOGITS, "F.huber_loss(nothing(x), nothing(x.detach())) + x.mean()",
        "the mean over no values", "Skip", "F.huber_loss(x, x.detach() * 2)"),
    "BCE with logits of nothing": (LOGITS,
        "F.binary_cross_entropy_with_logits(nothing(x), nothing(x.detach())) + x.mean()",
        "the mean over no values", "Skip", "F.binary_cross_entropy_with_logits(x, torch.eye(2))"),
    "CTC with a target that is too long": (torch.arange(9.0), "ctc(x)", "a target does not fit",
        "zero_infinity=True", "ctc(x, zero_infinity=True) + x.mean()"),
    "CTC with two equal labels": (torch.arange(9.0), "ctc(x[:9], 3)",
        "one more between two equal labels", "steps", "ctc(x, 2)"),
    "Poisson loss of a negative rate": ([-2.0, 1.0],
        "F.poisson_nll_loss(x, torch.ones(2), log_input=False)",
        "logarithm of a negative number, −2", "clamp(min=1e-6)",
        "F.poisson_nll_loss(x, torch.ones(2))"),
    # Types
    "float16 of 1e6": ([1e6, 1.0], "x.half().float()", "more than float16 holds", "bfloat16",
        "x.bfloat16().float()"),
    "a sum in float16": ([4e4, 4e4], "x.half().sum().float()", "more than float16 holds",
        "float32", "x.sum()"),
    "a product of matrices": ([[1e25, 1.0], [1e25, 1.0]], "x @ x", "larger than float32 holds",
        "normalize", "(x / 1e25) @ (x / 1e25)"),
    "the sum of a product with both signs": ([[1e25, 1e25]],
        "x @ (x.detach() * torch.tensor([[1e14, -1e14]])).T * 1e10", "larger than float32 holds",
        "normalize", "x / 1e25"),
    "where around exp": ([1000.0, 4.0], "torch.where(x < 10, x.exp(), 0.0)",
        "is 1000, and exp of it is more than float32", "Subtract the largest",
        "torch.where(x < 10, torch.where(x < 10, x, 0.0).exp(), 0.0)"),
}  # fmt: skip

BACKWARD = {
    "the root's slope at 0": ([0.0, 4.0], "torch.sqrt(x)",
        "the slope of the root is infinite at 0", "(x + 1e-8).sqrt()", "(x + 1e-8).sqrt()"),
    "the slope of x ** 0.5 at 0": ([0.0, 4.0], "x**0.75",
        "the slope of x ** 0.75 is infinite at x = 0", "1e-8", "(x + 1e-8) ** 0.75"),
    "a distance of 0": ([[1.0, 2.0]], "((x - x.detach()) ** 2).sum(1).sqrt() + x.mean()",
        "the slope of the root is infinite at 0", "(x + 1e-8).sqrt()",
        "(((x - x.detach()) ** 2).sum(1) + 1e-8).sqrt() + x.mean()"),
    "where around log": ([0.0, 4.0], "torch.where(x > 0, x.log(), 0.0)",
        "the slope of log is infinite at 0", "torch.where(mask, x, 1.0)",
        "torch.where(x > 0, torch.where(x > 0, x, 1.0).log(), 0.0)"),
    "where around sqrt": ([0.0, 4.0], "torch.where(x > 0, x.sqrt(), 0.0)",
        "the slope of the root is infinite at 0", "torch.where(mask, x, 1.0)",
        "torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)"),
    "where around a division": ([0.0, 4.0], "torch.where(x > 0, (x + 1) / x, 0.0)",
        "the slope of div is infinite at 0", "torch.where(mask, x, 1.0)",
        "torch.where(x > 0, (x + 1) / torch.where(x > 0, x, 1.0), 0.0)"),
    "the slope of acos at 1": ([1.0, 0.5], "torch.acos(x)",
        "the slope of acos is infinite at −1 and 1", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        "x.clamp(-1 + 1e-6, 1 - 1e-6).acos()"),
    "the slope of asin at -1": ([-1.0, 0.5], "torch.asin(x)",
        "the slope of asin is infinite at −1 and 1", "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        "x.clamp(-1 + 1e-6, 1 - 1e-6).asin()"),
    "the slope of acosh at 1": ([1.0, 2.0], "torch.acosh(x)",
        "the slope of acosh is infinite at 1", "x.clamp(min=1 + 1e-6)",
        "x.clamp(min=1 + 1e-6).acosh()"),
    "the slope of the entropy at 0": ([0.0, 0.5], "torch.special.entr(x)",
        "the slope of special_entr is infinite at 0", "clamp(min=1e-6)",
        "torch.special.entr(x.clamp(min=1e-6))"),
    "the slope of xlogy at 0": ([0.0, 0.5], "torch.xlogy(x, x)",
        "the slope of xlogy is infinite at 0", "clamp(min=1e-6)",
        "torch.xlogy(x, x.clamp(min=1e-6))"),
    "the slope of hypot at 0": ([0.0, 0.5], "torch.hypot(x, x)", "hypot has no slope at (0, 0)",
        "Add a small number", "torch.hypot(x, x + 1e-3)"),
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
