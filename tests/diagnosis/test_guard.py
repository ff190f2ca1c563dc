"""A guard, ``with hookviz.diagnose(model)``, and a call with a loss find the same faults."""

import gc
import re
import warnings
import weakref
from contextlib import nullcontext, suppress
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from architectures import model_of
from digits import Rounded
from test_faults import LABELS, ONE_HOT, Between, Listed, faults_of, rows
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

import hookviz


def pictures():
    return rows(16, 3, 12, 12)


def cross_entropy(output):
    return F.cross_entropy(output, LABELS)


def net(*last, classes=4):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(8, classes), *last,
    )  # fmt: skip


def guarded(model, loss, *given):
    """Return the findings of a guarded step, which may raise."""
    findings = hookviz.diagnose(model)
    with suppress(RuntimeError, ValueError, TypeError), findings:
        loss(model(*given)).backward()
    return findings


def both(make, loss, *given):
    """Yield the findings of a call, then of a guarded step."""
    yield hookviz.diagnose(make(), given if len(given) > 1 else given[0], loss)
    yield guarded(make(), loss, *given)


def kinds_and_layers(findings):
    return [(each.kind, each.layer) for each in faults_of(findings)]


def changed(model, change):
    with torch.no_grad():
        change(model)
    return model


def test_an_error_of_the_loss_is_reported_with_the_nan_that_caused_it():
    """Binary cross entropy raises on NaN, which comes from a weight."""
    loss = lambda output: F.binary_cross_entropy(output, ONE_HOT)  # noqa: E731
    broken = lambda: changed(net(nn.Sigmoid()), lambda m: m[-2].weight.fill_(torch.nan))  # noqa: E731
    for findings in both(broken, loss, pictures()):
        assert {("nan", "6"), ("error", "")} <= set(kinds_and_layers(findings)), findings


def test_a_fault_that_the_step_and_its_repetition_show_is_reported_once():
    block = nn.Linear(8, 8)
    model = nn.Sequential(block, block, nn.Linear(8, 4), nn.Linear(4, 4))
    changed(model, lambda m: m[3].weight[0].fill_(torch.nan))
    findings = guarded(model, cross_entropy, rows())
    assert sorted(kinds_and_layers(findings)) == [("nan", "3"), ("one module", "0")]


@pytest.mark.parametrize("training", [True, False])
def test_a_constant_input_is_reported_instead_of_its_consequences(training):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 4, 4, bias=False), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 4),
    ).train(training)  # fmt: skip
    for value, target in ((0.0, None), (1.0, cross_entropy)):
        findings = hookviz.diagnose(model, torch.full((16, 3, 12, 12), value), target)
        (found,) = [each for each in findings if each.kind != "training mode"]
        assert found.kind == "input scale" and f"are {value:.0f}: every" in found.message
        assert found.severity == ("note" if target is None else "warning")


def test_an_error_is_located_although_an_earlier_call_made_nan():
    model = Between(torch.log)
    with suppress(RuntimeError), hookviz.diagnose(model) as findings:
        model(rows())
        model(rows(16, 5))
    found = next(each for each in findings if each.kind == "shape")
    assert found.layer == "first" and "takes 8 features" in found.message


@pytest.mark.parametrize("called", [True, False])
def test_an_error_beside_the_model_is_a_finding(called):
    model = net()
    with pytest.raises(OSError), hookviz.diagnose(model) as findings:
        if called:
            model(pictures())
        raise OSError("no such file")  # planted
    assert (findings[0].kind, findings[0].severity) == ("error", "error")
    assert "traceback" in findings[0].advice and "# planted" in findings[0].code


def test_an_optimizer_step_before_a_backward_is_found():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with suppress(RuntimeError), hookviz.diagnose(model) as findings:
        first, second = cross_entropy(model(pictures())), cross_entropy(model(pictures()))
        first.backward()
        optimizer.step()
        second.backward()
    assert findings[0].kind == "in place" and "optimizer.step() after" in findings[0].advice


STEPS = {
    "backward, zero, step": False,
    "zero, backward, step": True,
    "backward, step, zero": True,
    "backward, clip, step": True,
    "backward, backward, step": True,  # accumulation
    "backward, step, zero, backward, step": True,
    "backward, zero, backward, step": True,
    "backward": True,
    "closure, zero, closure": True,
    "nothing, backward, zero, step": True,  # the gradient itself is 0
}
"""The parts of a step -> whether the optimizer learns from the gradients."""


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("order", STEPS)
def test_gradients_set_to_zero_before_the_optimizer_steps_are_found(order, set_to_none):
    model, factor = net(), 0.0 if order.startswith("nothing") else 1.0
    half = [*model.parameters()][:2], [*model.parameters()][2:]
    optimizers = [torch.optim.SGD(each, 0.01) for each in half]

    def backward():
        loss = cross_entropy(model(pictures())) * factor
        loss.backward()
        return loss

    def all_do(name, *arguments, **options):
        for optimizer in optimizers:
            getattr(optimizer, name)(*arguments, **options)

    parts = {
        "nothing": lambda: None,
        "backward": backward,
        "zero": lambda: all_do("zero_grad", set_to_none=set_to_none),
        "step": lambda: all_do("step"),
        "clip": lambda: nn.utils.clip_grad_norm_(model.parameters(), 1e-3),
        "closure": lambda: all_do("step", backward),
    }
    before = [len(each._optimizer_step_pre_hooks) for each in optimizers]
    with hookviz.diagnose(model, optimizer=optimizers) as findings:
        for part in order.split(", "):
            parts[part]()
    assert [len(each._optimizer_step_pre_hooks) for each in optimizers] == before
    found = [each for each in faults_of(findings) if each.kind == "optimizer"]
    if STEPS[order]:
        assert not found and (factor == 0.0 or findings.healthy), findings
    else:
        (found,) = found
        assert "'0.weight': it learns nothing" in found.message and found.layers == ["0", "1", "6"]
        assert "before backward() or after optimizer.step()" in found.advice


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("samples, word", [(16, ""), (0, "Inf"), (torch.nan, "NaN")])
def test_a_gradient_that_is_not_finite_when_the_block_ends_is_found(samples, word, scaled):
    """It is divided by the number of valid samples, or averaged with another process's."""
    model, scaler = net(), torch.amp.GradScaler("cpu", init_scale=16.0, enabled=scaled)
    with hookviz.diagnose(model, scaler=scaler) as findings:
        cross_entropy(model(pictures())).backward()
        model[6].weight.grad.div_(samples)
    assert findings.healthy is (scaled or not word)
    found = [each for each in findings if each.kind == word.lower()]
    assert [(each.layer, each.phase) for each in found] == [("6", "backward")] * bool(word)
    assert all("finite when backward() computed it" in each.message for each in found)
    assert all("GradScaler" in each.message + each.advice for each in found)


@pytest.mark.parametrize("step", [True, False])
def test_a_parameter_with_nan_is_named_although_the_optimizer_steps(step):
    model = changed(net(), lambda m: m[6].weight[0].fill_(torch.nan))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with hookviz.diagnose(model, optimizer=optimizer) as findings:
        for _ in range(2):
            cross_entropy(model(pictures())).backward()
            if step:
                optimizer.step()
    (found,) = faults_of(findings)
    assert (found.kind, found.layer) == ("nan", "6")
    assert found.message == "Parameter '6.weight' holds NaN before anything has run."


def trained_norm_network():
    """Return a network whose BatchNorm has seen enough batches."""
    model = net()
    for _ in range(30):
        model(pictures())
    return model


@pytest.mark.parametrize("training", [False, True])
def test_an_input_on_another_scale_than_in_training_is_found(training):
    make = lambda: trained_norm_network().train(training)  # noqa: E731
    assert guarded(make(), cross_entropy, pictures()).healthy
    for findings in both(make, cross_entropy, pictures() * 255):
        assert kinds_and_layers(findings) == [("input scale", "1")]
    assert guarded(
        net(), cross_entropy, pictures() * 255
    ).healthy  # its BatchNorm has seen too few batches to judge


def test_faults_of_the_input_and_of_the_loss_are_each_reported_once():
    findings = guarded(
        trained_norm_network(), lambda out: cross_entropy(out.softmax(1)), pictures() * 255
    )
    assert sorted(kind for kind, _ in kinds_and_layers(findings)) == ["input scale", "loss"]


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, x, mask):  # planted: call
        return self.first(x) * mask


class WrongCall(Masked):
    def forward(self, x):
        return self.first(x, 3)  # planted: call, guard


@pytest.mark.parametrize("make, wanted", [(Masked, "(x, mask)"), (WrongCall, "(input)")])
def test_wrong_arguments_are_reported_with_their_line(make, wanted):
    """A call names the line of the forward's signature, a guard the line of the user's call."""
    model, x = make(), rows()
    guard = hookviz.diagnose(model)
    with suppress(TypeError), guard:
        model(x)  # planted: guard
    for form, findings in (("call", hookviz.diagnose(model, x)), ("guard", guard)):
        assert findings[0].kind == "error" and wanted in findings[0].advice
        assert re.search(f"# planted: .*{form}", findings[0].code)


class Modes(nn.Module):
    """A layer that records the active dispatch mode."""

    def forward(self, x):
        self.seen = _get_current_dispatch_mode()
        if x.shape[-1] == 5:
            raise ValueError("five classes")
        return x


class Counting(TorchDispatchMode):
    """A dispatch mode of the user."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("counted", [False, True])
def test_a_model_runs_only_in_the_users_dispatch_modes(counted):
    """The guard's mode is off within the model: it would slow a small model by a third."""
    modes = Modes()
    model, own = net(modes), Counting()
    with hookviz.diagnose(model) as findings:
        with own if counted else nullcontext():
            output = model(pictures())
            assert modes.seen is (own if counted else None)
            assert _get_current_dispatch_mode() is not None
        cross_entropy(output.softmax(1)).backward()
    assert bool(own.count) is counted and [each.kind for each in findings] == ["loss"]
    assert _get_current_dispatch_mode() is None


def test_a_layer_that_forward_makes_is_found_although_the_optimizer_steps():
    def forward(model, x):
        model.head = nn.Linear(4, 2)
        return model.head(model.first(x).relu())

    model = model_of(forward, first=nn.Linear(3, 4), head=nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookviz.diagnose(model, optimizer=optimizer) as guard:
        model(torch.rand(8, 3)).square().mean().backward()
        optimizer.step()
    (found, *_) = guard
    assert (found.kind, found.severity, found.layer) == ("optimizer", "warning", "head")
    assert "2 parameters were made while the step ran, such as 'head.weight'" in found.message


@pytest.mark.parametrize("kind, kinds", [(list, ["not registered"]), (nn.ModuleList, [])])
@pytest.mark.parametrize("steps", [False, True])
def test_layers_in_a_list_are_found_although_the_optimizer_steps(kind, kinds, steps):
    model = Listed(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookviz.diagnose(model, optimizer=optimizer) as findings:
        cross_entropy(model(rows())).backward()
        if steps:
            optimizer.step()
    assert [each.kind for each in findings] == kinds
    assert not kinds or "nn.ModuleList" in findings[0].advice
    assert "'layers' of 'the model'" in repr(findings) or not (steps and kinds)


def test_parameters_of_the_optimizer_that_are_not_the_models_are_reported_once():
    model, other = Listed(list), nn.Linear(2, 2)
    own = [parameter for layer in model.layers for parameter in layer.parameters()]
    optimizer = torch.optim.SGD([*model.parameters(), *own, *other.parameters()], lr=0.1)
    with hookviz.diagnose(model, optimizer=optimizer) as findings:
        cross_entropy(model(rows())).backward()
        optimizer.step()
    assert ["parameters that are not the model's" in each.message for each in findings] == [True]


def test_a_guard_with_inputs_or_with_a_target_is_refused():
    with (
        pytest.raises(TypeError, match="leave the inputs out"),
        hookviz.diagnose(net(), pictures()),
    ):
        pass
    with pytest.raises(ValueError, match="target= needs inputs"), hookviz.diagnose(net(), target=0):
        pass


def test_lazy_layers_are_refused_until_they_have_weights():
    model, x = nn.Sequential(nn.LazyLinear(2)), torch.rand(4, 3)
    guard = hookviz.diagnose(model)
    with pytest.raises(ValueError, match="Layer '0' is lazy and has no weights yet: run"), guard:
        model(x).sum().backward()
    model(x)
    with guard:
        model(x).sum().backward()
    assert guard.healthy


def weight_loss(model, x, labels):
    return lambda weights: F.cross_entropy(torch.func.functional_call(model, weights, (x,)), labels)


def per_sample_gradients(model, weights, x):
    one = lambda w, row, label: weight_loss(model, row[None], label[None])(w)  # noqa: E731
    return torch.vmap(torch.func.grad(one), (None, 0, 0))(weights, x, LABELS)


def batched_gradients(model, weights, x):
    several = torch.eye(64).reshape(64, 16, 4)
    return torch.autograd.grad(model(x), [*model.parameters()], several, is_grads_batched=True)


def functional_training(model, weights, x):
    weights = {name: each.clone().requires_grad_() for name, each in weights.items()}
    weight_loss(model, x, LABELS)(weights).backward()
    return [each.grad for each in weights.values()]


FUNCTIONAL = {
    "functional_call": functional_training,
    "grad": lambda m, w, x: torch.func.grad(weight_loss(m, x, LABELS))(w),
    "per-sample gradients": per_sample_gradients,
    "jacrev": lambda m, w, x: torch.func.jacrev(m)(x),
    "hessian": lambda m, w, x: torch.func.hessian(lambda x: m(x).sum())(x),
    "vmap of jacrev": lambda m, w, x: torch.vmap(torch.func.jacrev(m))(x),
    "jacobian": lambda m, w, x: torch.autograd.functional.jacobian(m, x, vectorize=True),
    "batched gradients": batched_gradients,
}


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_a_step_within_a_transform_is_unchanged_and_healthy(name):
    model = Between(torch.tanh)
    arguments = model, {name: each.detach() for name, each in model.named_parameters()}, rows()
    expected = FUNCTIONAL[name](*arguments)
    with hookviz.diagnose(model) as findings:
        found = FUNCTIONAL[name](*arguments)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert findings.healthy, findings


def test_no_dispatch_mode_is_left_after_an_error():
    model = net(Modes(), classes=5)
    with Counting() as own, hookviz.diagnose(model):
        for _ in range(2):
            with pytest.raises(ValueError, match="five"):
                model(pictures())
            assert _get_current_dispatch_mode() is own
        with pytest.raises(ValueError, match="five"), Counting():
            model(pictures())
    assert _get_current_dispatch_mode() is None


def test_a_fault_in_a_second_backward_names_its_line():
    model = net()
    with hookviz.diagnose(model) as findings:
        cross_entropy(model(pictures())).backward()
        output = model(pictures())
        (output - output.detach()).abs().sum().sqrt().backward()
    found = next(each for each in findings if each.severity == "error")
    assert (found.kind, found.operation, found.phase) == ("inf", "sqrt", "backward")
    assert "sqrt().backward()" in Path(found.file).read_text().splitlines()[found.line - 1]


def test_a_buffer_that_changes_its_size_is_restored():
    model = nn.Sequential(Rounded(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(400, 4))
    hookviz.diagnose(model, pictures(), cross_entropy)
    assert not model[0].most.numel()
    changed(model, lambda m: m[1].weight[0, 0, 0, 0].fill_(torch.nan))
    findings = guarded(
        model, cross_entropy, pictures()
    )  # repeats the run, which must start from an empty buffer
    assert findings[0].kind == "nan" and "1.weight" in findings[0].message


def test_a_failing_block_leaves_random_numbers_and_buffers_as_they_were():
    model = net(nn.Linear(5, 2))
    twin = deepcopy(model.train())
    torch.manual_seed(0)
    with pytest.raises(RuntimeError):
        twin(pictures())
    drawn = torch.rand(1)
    torch.manual_seed(0)
    with pytest.raises(RuntimeError), hookviz.diagnose(model) as findings:
        model(pictures())
    assert torch.equal(torch.rand(1), drawn) and findings[0].layer == "7"
    for one, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_broadcasting_in_a_loss_within_the_model_is_found():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found,) = hookviz.diagnose(
            model_of(
                lambda m, x, truth: m.loss(m.net(x), truth), net=nn.Linear(8, 1), loss=nn.MSELoss()
            ),
            (rows(), rows(16)),
        )
    assert found.kind == "loss" and "(N, N)" in found.message


def test_a_call_of_the_model_under_no_grad_names_its_line():
    model = net()
    with suppress(RuntimeError), hookviz.diagnose(model) as findings:
        with torch.no_grad():  # planted
            output = model(pictures())
        cross_entropy(output).backward()
    found = findings[0]
    assert (found.severity, found.operation) == ("error", "no_grad")
    assert found.code.endswith("# planted")


@pytest.mark.parametrize(
    ("steps", "depth", "smaller", "healthy"),
    [(0, 24, 1, True), (2, 24, 1, True), (0, 12, 0.01, True), (0, 12, 1e-4, False)],
)
def test_a_batchnorm_that_has_seen_few_batches_is_healthy(steps, depth, smaller, healthy):
    """Its statistics are close to their initial values, so that outputs shrink in eval mode.

    Two layers may shrink them more than others, unless they alone make them vanish.
    """
    torch.manual_seed(0)
    blocks = [
        layer
        for _ in range(depth)
        for layer in (nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
    ]
    for layer in blocks[::3]:
        nn.init.kaiming_normal_(layer.weight, a=5**0.5)
    for layer in blocks[9:16:6]:
        layer.weight.data *= smaller
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.Flatten(), nn.Linear(800, 4))
    for _ in range(steps):
        cross_entropy(model(pictures()))
    once, guard = both(model.eval, cross_entropy, pictures())
    assert once.healthy == healthy and (guard.healthy or not healthy)
    words = f"have seen {steps} batches" if steps else "have seen no batch"
    assert any(words in each.advice for each in once)


@pytest.mark.parametrize("raises", [False, True])
def test_findings_keep_neither_inputs_nor_the_graph_alive(raises):
    model = net(nn.Sigmoid(), nn.Linear(4, 4))
    if raises:
        model[-1].register_forward_pre_hook(lambda module, args: 1 / 0)
    x = pictures().requires_grad_()
    alive = weakref.ref(x)
    with suppress(ZeroDivisionError), hookviz.diagnose(model) as findings:
        model(x).square().mean().backward()
    del x
    gc.collect()
    assert alive() is None
    assert any(each.kind == "error" for each in findings) == raises
