"""``hookviz.diagnose`` names planted faults and finds nothing in healthy models."""

import copy
import re

import pytest
import torch
from architectures import model_of
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from untouched import snapshot

import hookviz
from hookviz.studies.diagnosis import operation_log
from hookviz.studies.diagnosis.checks.no_gradient import NoGradient


class Block(nn.Module):
    """A convolution followed by a function that may contain a fault."""

    def __init__(self, change=lambda x: x):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.change = change

    def forward(self, x):
        return self.change(self.conv(x))


class Net(nn.Module):
    """Three blocks, the second of which may have a fault."""

    def __init__(self, change=lambda x: x, reentrant=None):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(change), Block()])
        self.head = nn.Linear(3, 5)
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return {"logits": self.head(x.mean((2, 3)))}


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.rand(2, 3, 12, 12)


def kinds(findings):
    return [each.kind for each in findings if each.severity != "note"]


def log(x):
    return torch.log(x.relu())  # planted


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_an_operation_with_an_infinite_backward_is_named(x, reentrant):
    """It is named by a call and by a guard, also within activation checkpointing."""
    model = Net(lambda x: (x.relu() - x.relu()).sqrt() + x, reentrant)
    once = hookviz.diagnose(model, x)
    with hookviz.diagnose(model) as guard:
        model(x.requires_grad_())["logits"].sum().backward()
    for found in (once[0], guard[0]):
        named = (found.layer, found.operation, found.phase, found.kind)
        assert named == ("blocks.1", "sqrt", "backward", "inf")
        assert found.file == __file__


def test_nan_and_inf_of_weights_inputs_and_buffers_are_located(x):
    model = Net()
    with torch.no_grad():
        model.blocks[1].conv.weight[0, 0, 0, 0] = torch.nan
    found = hookviz.diagnose(model, x)[0]
    assert found.kind == "nan" and found.layer == "blocks.1.conv"
    assert "'blocks.1.conv.weight'" in found.message

    given = x.clone()
    given[0, 0, 0, 0] = torch.inf
    found = hookviz.diagnose(Net(), given)[0]
    assert found.kind == "inf" and found.message.startswith("The input holds Inf")

    norm = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    norm[1].running_mean[2] = torch.nan
    found = hookviz.diagnose(norm, x)[0]
    assert found.layer == "1" and "'1.running_mean'" in found.message


def test_an_input_of_the_wrong_shape_is_located(x):
    model = Net()
    model.head = nn.Linear(4, 5)
    found = hookviz.diagnose(model, x)[0]
    assert (found.kind, found.layer, found.operation) == ("shape", "head", "addmm")
    assert "(2, 3)" in found.message and "4 features" in found.message
    assert "mean" in found.message  # the operation that made the tensor
    assert [name for name, _, _ in found.evidence["shapes"]][:2] == ["blocks.0", "blocks.0.conv"]
    with pytest.raises(ValueError, match="No maps can be shown"):
        hookviz.diagnose(model, x).show()

    with pytest.raises(RuntimeError, match="mat1 and mat2"), hookviz.diagnose(model) as findings:
        model(x)
    assert findings[0].layer == "head"


def test_a_softmax_that_underflows_in_float16_is_reported(x):
    def small(x):
        return (x.float().flatten(1).softmax(1) * 1e-6).to(torch.float16).view_as(x)

    found = [e for e in hookviz.diagnose(Net(small).half(), x.half()) if e.kind == "half precision"]
    assert [e.operation for e in found] == ["to_copy"] and "or use bfloat16" in found[0].advice


@pytest.mark.parametrize("method", ["enter", "leave", "after", "finish", "findings"])
def test_an_error_of_a_check_is_not_reported_as_the_models(x, monkeypatch, method):
    def fail(*given):
        raise RuntimeError("size mismatch")

    monkeypatch.setattr(NoGradient, method, fail)
    model = Net()
    with hookviz.diagnose(model) as guarded:
        model(x)["logits"].sum().backward()
    found = hookviz.diagnose(model, x)
    assert found.healthy and guarded.healthy
    assert "hookviz's own check of parameters that no gradient reaches failed" in found.text()
    assert "parameters that no gradient reaches" not in found.looked_at


def test_an_error_of_the_recording_is_not_reported_as_the_models(x, monkeypatch):
    def fail(*given):
        raise RuntimeError("size mismatch")

    monkeypatch.setattr(operation_log, "range_of", fail)
    with pytest.raises(RuntimeError, match=r"hookviz failed \(RuntimeError: size mismatch\)"):
        hookviz.diagnose(Net(), x)


def test_overflow_and_underflow_in_float16_are_reported(x):
    model = Net(lambda x: x * 6e6).half()
    found = hookviz.diagnose(model, x.half())
    assert found[0].kind == "inf" and "float16 holds (65504)" in found[0].message
    assert "half precision" not in kinds(found)  # the overflow is reported only once

    model = Net(lambda x: x * 1e-8)
    with torch.autocast("cpu", torch.float16):
        found = [f for f in hookviz.diagnose(model, x) if f.kind == "half precision"]
    assert [(f.layer, f.operation) for f in found] == [("blocks.1", "mul")]
    assert "become 0 in float16" in found[0].message
    with torch.autocast("cpu", torch.float16):
        assert "half precision" not in kinds(hookviz.diagnose(Net(), x))
        small = lambda output: output["logits"].float().sum() * 1e-9  # noqa: E731
        found = [f for f in hookviz.diagnose(Net(), x, small) if f.kind == "half precision"]
    assert [f.phase for f in found] == ["backward"] and "gradients" in found[0].message
    assert "half precision" not in kinds(hookviz.diagnose(model, x))


def scaled_step(model, x, used, factor, **options):
    """Run a guarded step in float16 whose scaled gradients overflow."""
    with torch.autocast("cpu", torch.float16), hookviz.diagnose(model, **options) as findings:
        loss = model(x)["logits"].float().sum() * factor
        used.scale(loss).backward()
    return findings


def scaler(enabled=True):
    return torch.amp.GradScaler("cpu", init_scale=2.0**11, enabled=enabled)


# A factor of the loss (the gradient overflows in the model or in the loss), the scaler, whether it
# is passed to hookviz, and the expected message and severity.
SCALED = [
    (30.0, scaler(), True, "GradScaler multiplies losses by 2048", "note"),
    (1e6, scaler(), True, "GradScaler multiplies losses by 2048", "note"),
    (30.0, scaler(), False, "a GradScaler would skip such a step", "note"),
    (1e6, scaler(), False, "a GradScaler would skip such a step", "note"),
    (1e6, scaler(enabled=False), True, "", "error"),
]


@pytest.mark.parametrize("factor, used, passed, words, severity", SCALED)
def test_inf_in_float16_gradients_of_a_scaled_loss_is_a_note(
    x, factor, used, passed, words, severity
):
    findings = scaled_step(Net(), x, used, factor, **{"scaler": used} if passed else {})
    (found,) = [each for each in findings if each.kind == "inf"]
    assert (found.phase, found.severity) == ("backward", severity) and words in found.message
    assert ("scaler=" in found.advice) == (not passed)
    assert "unused" not in kinds(findings)  # autocast caches the casts of weights


def test_inf_in_float16_gradients_of_a_large_loss_is_a_note(x):
    with torch.autocast("cpu", torch.float16):
        findings = hookviz.diagnose(Net(), x, lambda output: output["logits"].float().sum() * 1e6)
    (found,) = [each for each in findings if each.kind == "inf"]
    assert (found.phase, found.severity) == ("backward", "note") and findings.healthy
    for factor in (float("inf"), 1e38 * 10):  # no scale explains these factors
        findings = hookviz.diagnose(Net(), x, lambda out, by=factor: out["logits"].sum() * by)
        assert findings[0].severity == "error" and "GradScaler" not in findings[0].message


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16, None])
@pytest.mark.parametrize("passed", [True, False])
def test_inf_that_no_loss_scale_causes_is_an_error(x, precision, passed):
    model, used = Net(lambda x: (x * 0).sqrt()), scaler()
    autocast = torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None)
    with autocast, hookviz.diagnose(model, scaler=used if passed else None) as findings:
        used.scale(model(x)["logits"].float().sum()).backward()
    assert [(f.kind, f.phase, f.severity) for f in findings[:1]] == [("inf", "backward", "error")]
    assert "GradScaler" not in findings[0].message


@pytest.mark.parametrize("name", ["optimizer", "scaler"])
def test_arguments_of_a_wrong_type_are_refused(x, name):
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, not str"):
        hookviz.diagnose("resnet18")
    with pytest.raises(ValueError, match=f"{name}= is Net, which has no"):
        hookviz.diagnose(Net(), x, **{name: Net()})


@pytest.mark.parametrize("between", [nn.Dropout(0.3), nn.GELU(), nn.BatchNorm2d(8)])
def test_a_saturated_activation_between_layers_is_found(x, between):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), between, nn.Conv2d(8, 8, 3))
    with torch.no_grad():
        model[0].weight.mul_(1e4)
    assert kinds(hookviz.diagnose(model, x)) == ["saturated"]
    assert not kinds(hookviz.diagnose(model[:2], x))  # answers may be at the ends


def test_relu6_is_named_relu6_in_findings(x):
    """Torch computes it as a hardtanh, a name that is in nobody's code."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 8, 3))
    nn.init.constant_(model[0].bias, -100.0)
    (finding,) = hookviz.diagnose(model, x)
    assert (finding.kind, finding.layer, finding.operation) == ("dead", "1", "relu6")
    nn.init.constant_(model[0].bias, 100.0)
    (finding,) = hookviz.diagnose(model, x)
    assert "the slope of relu6 is 0 everywhere" in finding.message


def test_layers_without_a_gradient_or_a_call_are_found(x):
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("used", "detached", "untracked", "dropped"):
                setattr(self, name, nn.Conv2d(3, 4, 3))
            self.idle = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

        def forward(self, x):
            self.dropped(x)
            with torch.no_grad():
                still = self.untracked(x)
            return (self.used(x) + self.detached(x).detach() + still).mean((2, 3))

    model = Parts()
    model.used.bias.requires_grad_(False)
    found = hookviz.diagnose(model, x)
    said = {(f.kind, f.layer): f.message for f in found}
    assert set(said) == {
        ("no gradient", "used"),
        ("no gradient", "detached"),
        ("no gradient", "untracked"),
        ("no gradient", "dropped"),
        ("unused", "idle"),
        ("training mode", ""),
    }
    assert "detached in the model at test_diagnose.py:" in said["no gradient", "detached"]
    assert "no_grad" in said["no gradient", "untracked"]
    assert "does not depend" in said["no gradient", "dropped"]
    assert "frozen" in said["no gradient", "used"]


def attention(model, h):
    h = h[:, None, None].repeat(1, 1, 5, 1)
    return F.scaled_dot_product_attention(h, h, h).mean((1, 2))


def logged(model, h):
    model.log = h.detach().mean()
    return h


def logged_number(model, h):
    model.log = h.mean().item()
    return h


BRANCHES = {
    "attention": attention,
    "two results that the gradient needs": lambda model, h: torch.linalg.qr(h)[0] @ h[:2],
    "a log": logged,
    "a logged number": logged_number,
}


def two_towers(branch, score=lambda value, h: value):
    def forward(model, x):
        h = branch(model, model.e(x))
        return score(model.v(x), h), model.p(h)

    return model_of(forward, v=nn.Linear(4, 3), e=nn.Linear(4, 8), p=nn.Linear(8, 3))


def reason_for_e(findings):
    return next(each.cause for each in findings if "e" in each.layers)


@pytest.mark.parametrize("form", ["call", "guard"])
@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_that_the_score_does_not_use_is_not_called_detached(name, form):
    model, x = two_towers(BRANCHES[name]), torch.rand(2, 4)
    findings = hookviz.diagnose(model, x, hookviz.output[0][0, 1])
    if form == "guard":
        with hookviz.diagnose(model) as findings:
            model(x)[0][0, 1].backward()
    assert reason_for_e(findings) == "the score does not depend on its output"


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_that_the_score_uses_detached_is_called_detached(name):
    model = two_towers(BRANCHES[name], lambda value, h: value + h.detach().mean())
    findings = hookviz.diagnose(model, torch.rand(2, 4), hookviz.output[0][0, 1])
    assert "detached" in reason_for_e(findings)


def test_an_array_of_a_detached_output_leads_to_the_score():
    def forward(model, x):
        return model.v(x) * torch.from_numpy(model.e(x).detach().numpy() * 2).mean()

    model = model_of(forward, v=nn.Linear(4, 3), e=nn.Linear(4, 8))
    assert "detached" in reason_for_e(hookviz.diagnose(model, torch.rand(2, 4)))


def nothing(output):
    return torch.zeros(3) - torch.zeros(2)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda output: output["logits"], r"^target= returned shape \(2, 5\), not one number\.$"),
        (lambda output: 3.0, r"^target= returned a number without a gradient\.$"),
        (nothing, "^Computing the score raised RuntimeError: The size"),
    ],
)
def test_a_target_that_fails_is_not_an_error_of_the_model(x, target, message):
    finding = hookviz.diagnose(Net(), x, target)[0]
    assert finding.severity == "error" and re.search(message, finding.message)


def test_a_batchnorm_of_one_value_or_without_variance_is_found(x):
    norm = nn.Sequential(nn.Flatten(), nn.LazyLinear(4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    norm(x)
    assert kinds(hookviz.diagnose(norm, x[:1])) == ["batchnorm"]
    assert [f.kind for f in hookviz.diagnose(norm, x)] == ["training mode"]
    norm.eval()
    assert not len(hookviz.diagnose(norm, x))
    norm[2].running_var[1] = 0.0
    assert kinds(hookviz.diagnose(norm, x)) == ["batchnorm"]


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_scripted_layers_are_not_called_examined(x):
    scripted = [torch.jit.script(nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU())) for _ in range(2)]
    model = nn.Sequential(nn.Conv2d(3, 3, 3), *scripted).eval()
    (found,) = hookviz.diagnose(model, x)
    assert (found.kind, found.severity, found.layers) == ("not examined", "note", ["1", "2"])
    assert "ScriptModule" in found.message and "'2'" in found.message


def test_hooks_that_were_left_on_the_model_are_found(x):
    model = Net().eval()

    def keep(module, args, output):
        pass

    model.head.register_forward_hook(keep)
    (found,) = hookviz.diagnose(model, x)
    assert (found.kind, found.severity, found.layer) == ("hooks left behind", "note", "head")
    assert found.file == __file__


def test_a_guard_around_an_optimizer_step_advises_to_move_it_out(x):
    model = Net(log)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hookviz.diagnose(model) as findings:
        model(x)["logits"].sum().backward()
        optimizer.step()
    assert findings[0].kind == "nan" and "optimizer.step() after the block" in findings[0].advice


def test_a_guard_with_a_finding_does_not_change_the_step(x):
    one = Net(log)
    two = copy.deepcopy(one)
    torch.manual_seed(3)
    one(x)["logits"].sum().backward()
    drawn = torch.rand(2)
    torch.manual_seed(3)
    before = snapshot(two)
    with hookviz.diagnose(two) as findings:
        two(x)["logits"].sum().backward()
    assert torch.equal(drawn, torch.rand(2)) and kinds(findings) == ["inf"]
    for mine, theirs in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(mine.grad.nan_to_num(7), theirs.grad.nan_to_num(7))
    two.zero_grad()
    assert before.objects.keys() == snapshot(two).objects.keys()


def test_a_fault_in_any_call_of_a_block_is_found(x):
    model = Net(lambda x: torch.log(x) if x.shape[-1] > 12 else x)
    with hookviz.diagnose(model) as findings:
        score = model(x)["logits"].sum() + model(torch.rand(2, 3, 16, 16))["logits"].sum()
        score.backward()
    assert (findings[0].layer, findings[0].operation) == ("blocks.1", "log")
    with hookviz.diagnose(model) as findings:
        for _ in range(40):
            model(x)
        model(torch.rand(2, 3, 16, 16))
    assert (findings[0].layer, findings[0].operation) == ("blocks.1", "log")


def test_a_repeated_step_has_the_same_random_numbers_and_buffers(x):
    seen = []

    def spread(x):
        seen.append(F.dropout(x, 0.5).detach().clone())
        return x

    model = nn.Sequential(Block(spread), nn.BatchNorm2d(3), Block(lambda x: x.log()))
    with hookviz.diagnose(model) as findings:
        model(x).sum().backward()
    assert kinds(findings)[0] in ("nan", "inf") and len(seen) == 2
    assert torch.equal(*seen)
    assert model[1].num_batches_tracked == 1


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.propose, self.box = (
            nn.Conv2d(3, 4, 3),
            # It detaches its proposals, as a detector's first stage does.
            model_of(lambda m, x: m.head(x).detach(), head=nn.Conv2d(4, 4, 1)),
            nn.Conv2d(8, 4, 1),
        )

    def forward(self, x):
        x = self.body(x)
        found = self.box(torch.cat([x, self.propose(x)], 1)).mean((2, 3))
        return [{"boxes": each, "labels": each.argmax().view(1)} for each in found]


@pytest.mark.parametrize("training", [True, False])
def test_detached_proposals_are_a_note_in_eval_mode_only(training):
    torch.manual_seed(0)
    found = hookviz.diagnose(Detector().train(training), torch.randn(2, 3, 8, 8))
    (finding,) = [each for each in found if each.kind == "no gradient"]
    assert finding.layer == "propose"
    assert finding.severity == ("warning" if training else "note")


def forgets_to_return(m, x):
    m.net(x)


WITHOUT_GRADIENT = {
    "detach": lambda m, x: m.net(x).detach(),
    "no_grad": torch.no_grad()(lambda m, x: m.net(x)),
    "inference_mode": torch.inference_mode()(lambda m, x: m.net(x)),
    "numpy": lambda m, x: torch.from_numpy(m.net(x).detach().numpy()),
    "item": lambda m, x: m.net(x).sum().item(),
    "None": forgets_to_return,
}


CASES = [(name, True, None, "warning") for name in WITHOUT_GRADIENT]
CASES += [(name, False, None, "note") for name in WITHOUT_GRADIENT]
CASES += [("detach", True, 1, "error"), ("no_grad", False, 1, "error")]


@pytest.mark.parametrize(("name", "training", "target", "severity"), CASES)
def test_an_output_without_a_gradient_is_found(name, training, target, severity):
    model = model_of(WITHOUT_GRADIENT[name], net=nn.Linear(8, 3)).train(training)
    findings = hookviz.diagnose(model, torch.randn(2, 8), target)
    (found,) = [each for each in findings if each.kind == "no gradient"]
    assert found.severity == severity and "No backward ran" in found.message
    assert name == "None" or found.at.startswith("test_diagnose.py:")
    looked_at = "; ".join(findings.looked_at)
    assert " operations, forward; " in looked_at
    assert "gradient" not in looked_at and "backward" not in looked_at


NOT_REPORTED = {
    "argmax": lambda m, x: m.net(x).argmax(1),
    "a mask": lambda m, x: (m.net(x) > 0).float(),
    "a sample": lambda m, x: torch.distributions.Normal(m.net(x), 1.0).sample(),
    "boxes and labels": torch.no_grad()(lambda m, x: tuple(m.net(x).max(1))),
    "frozen weights": torch.no_grad()(lambda m, x: m.frozen(x)),
    "no weights": lambda m, x: x.detach() * 2,
}


@pytest.mark.parametrize("name", NOT_REPORTED)
def test_outputs_that_choose_or_learn_nothing_are_not_faults(name):
    frozen = nn.Linear(8, 3).requires_grad_(False)
    model = model_of(NOT_REPORTED[name], net=nn.Linear(8, 3), frozen=frozen)
    assert "no gradient" not in kinds(hookviz.diagnose(model, torch.randn(2, 8)))


@pytest.mark.parametrize("target", [torch.arange(4), nn.CrossEntropyLoss(), (torch.ones(2), 3)])
def test_invalid_targets_are_refused_with_a_remedy(x, target):
    with pytest.raises(ValueError, match=r"target= is .*lambda output: "):
        hookviz.diagnose(Net(), x, target)
