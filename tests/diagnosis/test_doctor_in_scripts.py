"""hookviz.diagnose in scripts: exit codes, JSON, ignored kinds, optimizers, findings of a watch."""

import copy
import json
import math
import sys
from contextlib import nullcontext
from itertools import product

import pytest
import torch
from architectures import model_of
from heavy import heavy_but
from torch import nn
from torch.nn import functional as F

import hookviz
from hookviz.__main__ import main

CHECK = """
import torch
from torch import nn

def well():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.ones(2, 4)

def lone():
    return nn.Linear(4, 3)

class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.used(x)

def warned():
    return Idle(), torch.ones(2, 4), lambda output: output.sum()

def broken():
    return Idle(), torch.ones(2, 4), lambda output: (output * 0).log().sum()

def raising():
    return {}["key"]

class Odd(Exception):
    def __str__(self):
        raise ValueError

def odd():
    raise Odd

def leaving():
    raise SystemExit(0)

class Leaving(nn.Linear):
    def forward(self, x):
        raise SystemExit(0)

def leaving_model():
    return Leaving(4, 3), torch.ones(2, 4)

class Talking(nn.Linear):
    def forward(self, x):
        print("forward")
        return super().forward(x)

def talking():
    print("function")
    return Talking(4, 3), torch.ones(2, 4)

print("import")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_checks", raising=False)
    (tmp_path / "own_checks.py").write_text(CHECK)
    return "own_checks"


@pytest.mark.parametrize(
    "function, options, status",
    [
        ("well", [], 0),
        ("well", ["--fail-on", "warning"], 0),
        ("warned", [], 0),
        ("warned", ["--fail-on", "warning"], 1),
        ("warned", ["--fail-on", "warning", "--ignore", "unused"], 0),
        ("warned", ["--fail-on", "warning", "--ignore", "unused:id*"], 0),
        ("broken", [], 1),
        ("lone", [], 2),
        ("missing", [], 2),
        ("raising", [], 2),
        ("odd", [], 2),
        ("leaving", [], 2),
        ("leaving_model", [], 2),
        ("talking", [], 0),
        ("well", ["--ignore", "batchnrom"], 2),
    ],
)
def test_the_exit_status_of_diagnose(module, function, options, status, capsys):
    assert main(["diagnose", f"{module}:{function}", *options]) == status
    output = capsys.readouterr()
    assert (output.err if status == 2 else output.out).strip()


def test_json_is_strict(module, capsys):
    def refuse(word):
        raise AssertionError(word)

    assert main(["diagnose", f"{module}:broken", "--json"]) == 1
    report = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert report["healthy"] is False and report["model"] == "Idle"
    assert report["findings"][0]["layers"] == [""] and report["findings"][0]["severity"] == "error"


def test_standard_output_contains_only_json(module, capsys):
    assert main(["diagnose", f"{module}:talking", "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["healthy"]
    assert all(word in output.err for word in ("import", "function", "forward"))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("raising", "own_checks:raising raised KeyError: 'key'."),
        ("odd", "own_checks:odd raised Odd: Odd()."),
        ("leaving", "the code called sys.exit(0) before hookviz had ended."),
        ("missing", "own_checks:missing cannot be imported: AttributeError: "),
    ],
)
def test_errors_of_the_users_code_are_one_sentence(module, function, message, capsys):
    assert main(["diagnose", f"{module}:{function}", "--json"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and f"hookviz: {message}" in output.err
    assert "Traceback" not in output.err


def test_a_function_without_its_module_is_refused(module, capsys):
    assert main(["diagnose", module]) == 2
    assert f"hookviz: {module!r} is not package.module:function" in capsys.readouterr().err


def test_a_module_that_fails_or_exits_on_import_is_reported(module, tmp_path, capsys):
    for number, text in enumerate(["1 / 0", "raise SystemExit(0)", "def"]):
        (tmp_path / f"own_odd_{number}.py").write_text(text)
        assert main(["diagnose", f"own_odd_{number}:check"]) == 2
        assert "hookviz: " in capsys.readouterr().err


def test_an_error_of_hookviz_has_exit_status_2_and_a_traceback(module, monkeypatch, capsys):
    def fails(*given, **options):
        raise KeyError("within hookviz")

    monkeypatch.setattr(hookviz, "diagnose", fails)
    assert main(["diagnose", f"{module}:well"]) == 2
    assert "Traceback" in capsys.readouterr().err


class WithUnusedLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.idle, self.other = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x)


X = torch.ones(2, 4)


def test_raise_if_raises_from_the_given_severity_on():
    findings = hookviz.diagnose(WithUnusedLayers(), X)
    findings.raise_if("error")
    with pytest.raises(RuntimeError, match="unused in layer 'idle'"):
        findings.raise_if("warning")
    with pytest.raises(ValueError, match="none of error, warning, note"):
        findings.raise_if("fatal")
    with pytest.raises(RuntimeError, match="not looked at"):
        hookviz.diagnose(WithUnusedLayers()).raise_if()


def test_ignored_kinds_and_layers_are_left_out():
    assert hookviz.diagnose(WithUnusedLayers(), X, ignore=["unused"]).healthy
    (left,) = hookviz.diagnose(WithUnusedLayers(), X, ignore=[("unused", "id*")])
    assert left.layers == ["other"]
    with pytest.raises(ValueError, match="no kind 'unusd'"):
        hookviz.diagnose(WithUnusedLayers(), X, ignore=["unusd"])
    with pytest.raises(ValueError, match=r"give ignore=\['unused'\]"):
        hookviz.diagnose(WithUnusedLayers(), X, ignore="unused")
    with hookviz.diagnose(nn.Linear(4, 1), ignore=["inf", "nan"]) as findings:
        pass
    assert not findings.healthy


# Optimizers.


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def optimizer_messages(model, optimizer, severity="warning"):
    kinds = "optimizer", "learning rate"
    found = hookviz.diagnose(model, X, torch.sum, optimizer=optimizer)
    return [e.message for e in found if e.kind in kinds and e.severity == severity]


def test_suitable_optimizers_are_healthy():
    model = net()
    torch.manual_seed(0)
    for make in (torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.RAdam):
        assert not optimizer_messages(model, make(model.parameters()))
    steep = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    for count, expected in (
        (2, 0),
        (32, 1),
    ):  # with few samples the gradient may be large by chance
        optimizer = torch.optim.SGD(steep.parameters(), lr=0.5)
        x, y = torch.randn(1, 4).expand(count, -1), torch.full((count, 1), 2.0)
        loss = lambda output, y=y: F.mse_loss(output, y)  # noqa: E731
        found = hookviz.diagnose(steep, x, loss, optimizer=optimizer)
        assert sum(each.kind == "learning rate" for each in found) == expected, count
    for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        assert not optimizer_messages(model, make(model.parameters(), lr=1e-3))
        with hookviz.diagnose(model, optimizer=make(model.parameters(), lr=1e-3)) as findings:
            model(X).sum().backward()
        assert findings.healthy and "the optimizer" in findings.looked_at


@pytest.mark.filterwarnings("ignore:optimizer contains")
def test_unsuitable_optimizers_are_reported():
    model = net()
    (message,) = optimizer_messages(model, torch.optim.SGD(model[2].parameters(), lr=0.01))
    assert "2 of 4 parameters" in message and "'0.weight'" in message
    (message,) = optimizer_messages(model, torch.optim.SGD([*model.parameters()] * 2, lr=0.01))
    assert "more than once" in message
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model[2] = nn.Linear(8, 3)
    lacks, foreign = optimizer_messages(model, optimizer)
    assert "such as '2.weight'" in lacks and "2 parameters that are not the model's" in foreign
    (message,) = optimizer_messages(model, torch.optim.SGD(model.parameters(), lr=0.0))
    assert "learning rate of group 0 is 0" in message
    (message,) = optimizer_messages(model, torch.optim.SGD(net().parameters(), lr=0.01))
    assert "4 parameters that are not the model's, and none of the model's own" in message
    for make, rate in (
        (torch.optim.SGD, 100.0), (torch.optim.Adam, 1.0), (torch.optim.RMSprop, 1.0),
    ):  # fmt: skip
        (message,) = optimizer_messages(model, make(model.parameters(), lr=rate))
        assert "of their own size" in message


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("rate, healthy", [(0.1, True), (1e3, False)])
def test_a_step_of_sgd_is_judged_by_the_gradient_of_the_loss(rate, healthy, scaled):
    model, x = net(), torch.randn(256, 4)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    loss = lambda output: F.cross_entropy(output, x[:, :3].argmax(1))  # noqa: E731
    with hookviz.diagnose(model, optimizer=optimizer, scaler=scaler) as findings:
        scaler.scale(loss(model(x))).backward()
    called = hookviz.diagnose(model, x, loss, optimizer=optimizer)
    assert findings.healthy is called.healthy is healthy
    for score in (None, 0):  # sums over the batch
        assert hookviz.diagnose(model, x, score, optimizer=optimizer).healthy


@pytest.mark.parametrize("rate, count", [(1e-3, 0), (1.0, 1)])
def test_weights_that_begin_small_may_grow(rate, count):
    """Those of word2vec, and the second factor of LoRA after a step."""
    for width, size in ((300, 0.5 / 300), (4, 1e-4)):
        model = nn.Sequential(nn.Embedding(200, width), nn.Linear(width, 3))
        nn.init.uniform_(model[0].weight, -size, size)
        nn.init.uniform_(model[1].weight, -size, size)
        optimizer = torch.optim.Adam(model.parameters(), rate)
        findings = hookviz.diagnose(model, torch.arange(200), optimizer=optimizer)
        assert [each.kind for each in findings if each.severity == "warning"] == (
            ["learning rate"] * count
        )


def test_a_learning_rate_of_0_during_warmup_is_a_note():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 10, 1.0))
    (message,) = optimizer_messages(model, optimizer, "note")
    assert "learning rate of group 0 is 0" in message and not optimizer_messages(model, optimizer)


# Findings of a watch.


@pytest.mark.parametrize("within", [False, True])
def test_gradients_set_to_zero_within_or_after_the_block_do_not_add_up(within):
    model = net()
    optimizer, watch = torch.optim.SGD(model.parameters(), lr=0.05), hookviz.watch(model, every=1)
    for step in range(6):
        with watch:
            generator = torch.Generator().manual_seed(step)
            output = model(torch.randn(4, 4, generator=generator))
            if within:
                optimizer.zero_grad(set_to_none=False)
            F.cross_entropy(output, torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
        if not within:
            optimizer.zero_grad(set_to_none=step % 2 == 0)
    assert watch.findings.healthy and not len(watch.findings)


def test_weights_missing_from_the_optimizer_do_not_move():
    """The optimizer resets only its own gradients, which may be less than half of all."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
    optimizer, watch = (
        torch.optim.SGD(model[0].parameters(), lr=0.05),
        hookviz.watch(model, every=1),
    )
    for _ in range(6):
        optimizer.zero_grad()
        with watch:
            F.cross_entropy(model(X), torch.tensor([0, 1, 2, 0])[: len(X)]).backward()
        optimizer.step()
    (found,) = watch.findings
    assert (found.kind, found.layers) == ("does not move", ["1", "2", "3"])
    assert found.message.startswith("The weights of '1' have a gradient")


def findings_of_a_watch(make, rate, every, later=None, steps=60, scale=1.0, schedule=None):
    """Return the findings of a watch on a perceptron that learns to classify ten points.

    From step 31 on the learning rate is `later`; the weights begin `scale` times as large.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 10))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(scale)
    optimizer, points = make(model.parameters(), lr=rate), torch.randn(10, 16)
    watch = hookviz.watch(model, every=every)
    for step in range(steps):
        if schedule is not None or (later is not None and step == 31):
            optimizer.param_groups[0]["lr"] = later if schedule is None else rate * schedule(step)
        y = torch.randint(10, (32,))
        optimizer.zero_grad()
        with watch:
            F.cross_entropy(model(points[y] + 0.3 * torch.randn(32, 16)), y).backward()
        optimizer.step()
    return watch.findings


@pytest.mark.parametrize(
    ("make", "rate", "every"),
    [(torch.optim.SGD, 30.0, 10), (torch.optim.SGD, 100.0, 1), (torch.optim.Adam, 1.0, 10)],
)
def test_a_learning_rate_that_is_far_too_high_at_first_is_found(make, rate, every):
    """Later steps look small relative to the weights that the first steps made large."""
    (found,) = findings_of_a_watch(make, rate, every)
    assert found.kind == "learning rate" and "far too high" in found.message


@pytest.mark.parametrize(
    "case",
    heavy_but({"(0.01, 1)", "(0.02, 50)", "(0.05, 10)"}, product([0.01, 0.02, 0.05], [1, 10, 50])),
)
def test_weights_that_begin_far_too_small_may_grow(case):
    """The first updates are large beside such weights, and right beside the usual ones."""
    (scale, every), make = case, torch.optim.Adam
    assert not len(findings_of_a_watch(make, 0.01, every, scale=scale))
    (found,) = findings_of_a_watch(make, 1.0, every, scale=scale)
    assert found.kind == "learning rate" and "far too high" in found.message


def test_weights_whose_norm_overflows_have_no_ratio():
    """NumPy does not warn of Inf times 0."""
    assert not len(findings_of_a_watch(torch.optim.SGD, 0.01, 1, scale=1e25))


def test_one_large_step_of_two_recorded_ones_is_not_most_of_them():
    """Weights of a usual size, whose first update is as large as they are."""
    assert not len(findings_of_a_watch(torch.optim.Adam, 0.2, 50))


@pytest.mark.parametrize(
    ("make", "later", "every"), [(torch.optim.SGD, 1e4, 4), (torch.optim.Adam, 3.0, 1)]
)
def test_a_learning_rate_that_becomes_far_too_high_is_found(make, later, every):
    (found,) = findings_of_a_watch(make, 0.01, every, later=later)
    step = 31 if every == 1 else 32
    assert found.kind == "learning rate" and found.message.startswith(f"Step {step} changes the")
    assert found.layers == ["0", "2"]
    # Diverging weights grow by more than the rate is too high, so no factor follows from them.
    assert found.advice.startswith("Make it ten times smaller, and again until")
    assert not len(findings_of_a_watch(make, 0.01, every, later=later / 1e4))


def test_a_step_whose_norm_overflows_is_too_long():
    (found,) = findings_of_a_watch(torch.optim.SGD, 0.01, 1, later=1e20)
    assert found.message.startswith(
        "Step 31 changes the weights of '0' by too much for float32; in"
    )


SCHEDULES = {
    "from 0": lambda step: min(1.0, step / 30),
    "warm up": lambda step: min(1.0, (step + 1) / 30),
    "warm restarts": lambda step: 1e-3 if step % 20 == 19 else 1.0,
}


@pytest.mark.parametrize(
    "case",
    heavy_but(
        {f"('{name}', 1.0, 4)" for name in SCHEDULES} | {"('from 0', 0.2, 1)"},
        product(SCHEDULES, [1.0, 0.2], [1, 4]),
    ),
)
def test_warm_up_and_restarts_are_healthy(case):
    name, scale, every = case
    options = {"scale": scale, "schedule": SCHEDULES[name]}
    assert not len(findings_of_a_watch(torch.optim.Adam, 0.01, every, **options))


def test_only_the_layers_that_learn_count_in_a_late_step():
    """Frozen layers do not hide a head that jumps."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    model[:4].requires_grad_(False)
    nn.init.zeros_(model[4].weight)
    for later, kinds in ((0.05, []), (1e4, ["learning rate"])):
        optimizer = torch.optim.SGD(model[4].parameters(), lr=0.05, momentum=0.9)
        watch = hookviz.watch(model, every=1)
        for step in range(12):
            optimizer.param_groups[0]["lr"] = 0.05 if step < 10 else later
            optimizer.zero_grad()
            with watch:
                F.cross_entropy(model(X), torch.tensor([0, 1, 2, 0])[: len(X)]).backward()
            optimizer.step()
        assert [found.kind for found in watch.findings] == kinds


@pytest.mark.parametrize("validated", [True, False])
@pytest.mark.parametrize(("later", "kinds"), [(0.01, []), (1e4, ["learning rate"])])
def test_weights_of_a_validation_or_a_checkpoint_are_not_an_update(validated, later, kinds):
    model = net()
    optimizer, watch = torch.optim.SGD(model.parameters(), lr=0.01), hookviz.watch(model, every=1)
    others = {name: 10 * value for name, value in model.state_dict().items()}
    for step in range(12):
        optimizer.param_groups[0]["lr"] = 0.01 if step != 9 else later
        optimizer.zero_grad()
        with watch:
            F.cross_entropy(model(X), torch.tensor([0, 1, 2, 0])[: len(X)]).backward()
        optimizer.step()
        if validated and step % 4 == 3:  # with a moving average of the weights, for example
            own = copy.deepcopy(model.state_dict())
            model.load_state_dict(others)
            model.eval()
            with torch.no_grad(), watch:
                model(X)
            model.load_state_dict(own)
            model.train()
    model.load_state_dict(others)
    assert [found.kind for found in watch.findings] == kinds


def test_nan_in_the_weights_after_the_last_recorded_step_is_found():
    for fault, kinds in ((0.0, []), (math.nan, ["nan"])):
        model = net()
        watch, optimizer = hookviz.watch(model, every=10), torch.optim.SGD(model.parameters(), 0.01)
        for step in range(4):
            optimizer.zero_grad()
            with watch:
                loss = model(X).square().sum() + (fault * model[2].weight.sum() if step else 0)
                loss.backward()
            optimizer.step()
        assert [found.kind for found in watch.findings] == kinds
    (found,) = watch.findings
    assert (
        found.layers == ["0", "2"] and "did not at step 0, the last recorded one" in found.message
    )


@pytest.mark.parametrize("every", [1, 4, 6])  # of 4, or 2, every recorded block is alike
@pytest.mark.parametrize("last", [0, 3])
@pytest.mark.parametrize(("rate", "kinds"), [(0.01, []), (0.0, ["does not move"])])
def test_gradients_may_accumulate_over_several_blocks(every, last, rate, kinds):
    model = net()
    optimizer, watch = torch.optim.SGD(model.parameters(), rate), hookviz.watch(model, every=every)
    for step in range(40):
        with watch:
            model(X).square().sum().backward()
        if step % 4 == last:
            optimizer.step()
            optimizer.zero_grad()
    assert [found.kind for found in watch.findings] == kinds


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("trained", "kinds"), [("01", []), ("0", ["does not move"])])
def test_parts_of_a_watched_model_may_learn_in_turn(every, first, trained, kinds):
    """As in a GAN: each part gets gradients from the other's loss, which its own step discards."""
    parts = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))])
    model = model_of(lambda m, x: m.parts[1](m.parts[0](x)), parts=parts)
    optimizers = [torch.optim.SGD(part.parameters(), 0.01) for part in parts]
    watch = hookviz.watch(model, every=every)
    for step in range(20):
        turn = (step + first) % 2
        with watch:
            output = model(X)
            optimizers[turn].zero_grad()
            output.square().sum().backward()
        if str(turn) in trained:
            optimizers[turn].step()
    assert [found.kind for found in watch.findings] == kinds


@pytest.mark.parametrize("steps", [1, 2])
def test_only_the_steps_of_its_own_optimizer_count_in_a_block(steps):
    generator, critic = net(), nn.Sequential(nn.Embedding(9, 3, max_norm=1.0), nn.Linear(3, 1))
    pairs = [(part, torch.optim.SGD(part.parameters(), 0.01)) for part in (critic, generator)]
    watches, norms = [hookviz.watch(part, every=1) for part, _ in pairs], []
    for _ in range(4):
        with watches[0], watches[1]:
            for _ in range(steps):
                for part, optimizer in pairs:
                    optimizer.zero_grad()
                    for token in torch.arange(6):  # whose renormalisation writes into the weights
                        (critic(token).sum() * generator(X).square().sum()).backward()
                    if part is critic:
                        norms.append(math.hypot(*(p.grad.norm() for p in part[1].parameters())))
                    optimizer.step()
    for watch in watches:
        assert [found.kind for found in watch.findings] == ["merged steps"] * (steps > 1)
        assert steps == 1 or "One block held 2 steps" in watch.findings[0].message
    recorded = [r["weight_gradient_norm"] for r in watches[0].records() if r["layer"] == "1"]
    assert recorded == pytest.approx(norms[::steps])


@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_watch_around_several_steps_says_so(accumulated):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def train(around):
        optimizer.zero_grad()
        with around:
            for _ in range(accumulated):
                model(X).square().sum().backward()
        optimizer.step()

    with hookviz.watch(model) as merged:
        for _ in range(6):
            train(nullcontext())
    (found,) = merged.findings
    assert found.kind == "merged steps" and "One block held 6 steps" in found.message
    assert "a block held 6 steps of the optimizer" in merged.title
    separate = hookviz.watch(model, every=1)
    for _ in range(6):
        train(separate)
    assert not len(separate.findings) and "a block held" not in separate.title


@pytest.mark.parametrize(
    ("make", "rate"), [(torch.optim.SGD, 1.0), (torch.optim.SGD, 0.01), (torch.optim.Adam, 0.1)]
)
def test_large_but_suitable_learning_rates_are_healthy(make, rate):
    assert not len(findings_of_a_watch(make, rate, 1))


def test_a_watch_without_records_is_not_healthy():
    assert not hookviz.watch(net()).findings.healthy


NO_GRADIENT = {
    "backward": (lambda loss: loss.backward(), True, []),
    "detached": (lambda loss: loss.detach().requires_grad_().backward(), True, ["no gradient"]),
    "no backward": (lambda loss: None, True, ["no gradient"]),
    "inference": (lambda loss: None, False, []),
}


@pytest.mark.parametrize("case", NO_GRADIENT)
def test_a_training_without_any_gradient_is_not_healthy(case, tmp_path):
    backward, graded, kinds = NO_GRADIENT[case]
    model = net()
    optimizer, watch = torch.optim.SGD(model.parameters(), 0.01), hookviz.watch(model, every=1)
    for _ in range(4):
        with watch, torch.set_grad_enabled(graded):
            optimizer.zero_grad()
            backward(model(X).square().sum())
        optimizer.step()
    watch.save(tmp_path / "run.npz")
    for training in (watch, hookviz.load(tmp_path / "run.npz")):
        assert [found.kind for found in training.findings] == kinds
        assert training.findings.healthy is not bool(kinds)


def test_findings_of_a_watch_are_saved_in_its_file(tmp_path):
    model, path = net(), tmp_path / "run.npz"
    optimizer, watch = torch.optim.SGD(model[2].parameters(), 0.01), hookviz.watch(model, every=1)
    for _ in range(5):
        with watch:
            model(X).sum().backward()
        optimizer.step()
    watch.save(path)
    kinds = {each.kind for each in hookviz.load(path).findings}
    assert kinds == {each.kind for each in watch.findings} == {"adds up", "does not move"}
