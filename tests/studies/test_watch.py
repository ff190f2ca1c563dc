"""Watching a training gives the right records and leaves the training unchanged."""

import copy
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from architectures import model_of
from seen import blocks
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import hookviz
from hookviz.draw.colours import NAN, PLUS_INF, to_levels
from hookviz.studies.watch import log, summary
from hookviz.studies.watch.log import NAMES
from hookviz.studies.watch.recorder import Row
from hookviz.studies.watch.summary import BINS, STATISTICS, merged, sums_of

X = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(8) % 4


class Net(nn.Module):
    """Batch norm, dropout, an in-place ReLU that runs twice, and a parameter of the root module."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.relu = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(6, 6, 3)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(6, 4)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x)))
        x = self.relu(self.second(x))
        return self.head(self.drop(x.mean((2, 3)))) * self.scale


def made(seed=0):
    torch.manual_seed(seed)
    return Net()


def trained(model, steps, around=None, inside=False):
    """Train with each step in the block `around`; the optimizer's step is `inside` or after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(1)
    for _ in range(steps):
        with around or nullcontext():
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X), Y).backward()
            if inside:
                optimizer.step()
        if not inside:
            optimizer.step()
    return model


def hooks_on(model):
    return len(hookviz.hooks(model))


def record_of(watch, layer, step=0, call=0, phase="train"):
    """Return the single record of this layer, step, call and phase."""
    wanted = {"layer": layer, "step": step, "call": call, "phase": phase}
    (found,) = [r for r in watch.records() if wanted.items() <= r.items()]
    return found


# The numbers of one tensor


def numbers_of(*tensors, scale=1.0):
    """Return the statistics, bins and channel means of all tensors together."""
    found = merged([[sums_of(tensor, 1) for tensor in tensors]], [scale])
    return found.statistics[0], found.bins[0], found.channels[0]


def same_weights(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def by_hand(values):
    values = np.asarray(values, np.float64).ravel()
    kept = values[np.isfinite(values)]
    return {
        "mean": kept.mean(),
        "std": kept.std(),
        "min": kept.min(),
        "max": kept.max(),
        "zeros": (values == 0).mean(),
        "nans": np.isnan(values).sum(),
        "infs": np.isinf(values).sum(),
        "count": values.size,
    }


def odd(tensor):
    tensor = tensor.clone()
    tensor[0, 0, :3, 0] = torch.tensor([math.nan, math.inf, -math.inf])
    return tensor.relu_().sub_(0.1)


MAPS = torch.randn(4, 6, 5, 7, generator=torch.Generator().manual_seed(2)).relu()


@pytest.mark.parametrize(
    "tensor",
    [
        MAPS.double() * 1e-3 + 1e6,
        MAPS.half() * 1000,
        MAPS.bfloat16(),
        MAPS.to(memory_format=torch.channels_last),
        MAPS[::2, :, ::2],
        odd(MAPS),
        MAPS * 1e30,
        torch.zeros(2, 6, 3, 3),
        MAPS[:, :, 0, 0],
        MAPS[:1, :, :1, :1],
        MAPS[:2, :4] + 1j,
        torch.ones(1, 1, 400, 400, dtype=torch.float16),  # their sum is Inf in half precision
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
@pytest.mark.parametrize("accelerator", [False, True])
def test_statistics_equal_numpys(tensor, accelerator, monkeypatch):
    if accelerator:  # which has no quick way, since it would have to wait for the sums
        monkeypatch.setattr(summary, "_quick_numbers", lambda *_: None)
    statistics, _, channels = numbers_of(tensor)
    tensor = tensor.abs() if tensor.is_complex() else tensor
    wanted = by_hand(tensor.double().numpy())
    found = dict(zip(STATISTICS, statistics.tolist(), strict=True))
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6 * (1 + abs(wanted["mean"])))
    axes = [axis for axis in range(tensor.ndim) if axis != 1]
    means = tensor.double().mean(axes).numpy()
    np.testing.assert_allclose(channels, means, rtol=1e-4, atol=1e-6)


class Reads(TorchDispatchMode):
    """Counts the numbers that are read from a device."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


def test_an_accelerator_is_not_read_from_while_a_layer_is_summed_up(monkeypatch):
    with Reads() as plain:
        sums_of(MAPS, 1)
    monkeypatch.setattr(summary, "_quick_numbers", lambda *_: None)
    with Reads() as reads:
        sums_of(MAPS, 1)
    assert (plain.count > 0, reads.count) == (True, 0)


def test_a_histogram_counts_every_nan_and_inf_of_a_large_tensor():
    """Of its other values it counts a part, and multiplies."""
    values = torch.tensor([[1.0, 1.99, math.nan, math.inf, -math.inf]])
    ends, one = [0, BINS.size - 2, BINS.size - 1], BINS.count + 2 + 40  # the bin from 1 to 2
    assert numbers_of(values)[1][[*ends, one]].tolist() == [1, 1, 1, 2]
    large = torch.ones(1, 1, 300, 300)
    large[0, 0, 7, 1:4] = values[0, 2:]
    assert numbers_of(large)[1][[*ends, one]].tolist() == [1, 1, 1, 90_000]


@pytest.mark.parametrize(
    "parts, scale", [(odd(MAPS).split([1, 3]), 1.0), ([odd(MAPS)[:1], odd(MAPS)[1:]], 1024.0)]
)
def test_parts_and_scales_of_several_tensors_are_merged(parts, scale):
    """Sums are computed immediately, so later changes to a tensor do not matter."""
    others = [MAPS.half(), MAPS.transpose(2, 3), torch.tensor([[1e-42, 0.0]])]
    copies = [part * scale for part in parts]
    sums = [[sums_of(each, 1) for each in copies], [], *([sums_of(each, 1)] for each in others)]
    for each in copies:
        each.zero_()
    found = merged(sums, [scale, *[1.0] * 4])
    for index, whole in enumerate([odd(MAPS), None, *others]):
        if whole is None:
            assert np.isnan(found.statistics[index]).all() and not found.channels[index].size
            continue
        statistics, bins, channels = numbers_of(whole)
        np.testing.assert_allclose(found.statistics[index], statistics, rtol=1e-5)
        np.testing.assert_allclose(found.channels[index], channels, rtol=1e-5, atol=1e-9)
        np.testing.assert_array_equal(found.bins[index], bins)


# A training


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("probe", [None, X[:1]])
def test_watching_does_not_change_the_trained_weights(inside, probe):
    alone = trained(made(), 12, inside=inside)
    model = made()
    watch = hookviz.watch(model, every=3, probe=probe)
    trained(model, 12, watch, inside)
    assert same_weights(model, alone)
    assert watch.steps == [0, 3, 6, 9]
    assert hooks_on(model) == 0


def test_records_equal_a_run_with_plain_hooks():
    model = made()
    twin = copy.deepcopy(model)
    watch = hookviz.watch(model)
    trained(model, 1, watch)
    seen, slopes = {}, {}

    def after(name, module, args, output):
        seen.setdefault(name, []).append(output.detach().clone())
        calls = slopes.setdefault(name, {})
        call = len(seen[name]) - 1
        output.register_hook(lambda gradient: calls.update({call: gradient.clone()}))

    for name in ("conv", "norm", "relu", "second", "drop", "head"):
        module = twin.get_submodule(name)
        module.register_forward_hook(lambda m, a, o, name=name: after(name, m, a, o))
    trained(twin, 1)
    for name, outputs in seen.items():
        for call, output in enumerate(outputs):
            record = record_of(watch, name, call=call)
            wanted = by_hand(output.numpy())
            assert {k: record[k] for k in wanted} == pytest.approx(wanted, rel=1e-4, abs=1e-6)
            wanted = by_hand(slopes[name][call].numpy())
            got = {key: record["gradient_" + key] for key in wanted}
            assert got == pytest.approx(wanted, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("inside", [False, True])
def test_norms_of_weights_gradients_and_updates_are_recorded(inside):
    model = made()
    before = model.conv.weight.detach().clone(), model.conv.bias.detach().clone()
    watch = hookviz.watch(model, every=2)
    trained(model, 1, watch, inside)
    after = model.conv.weight.detach(), model.conv.bias.detach()
    norm = math.hypot(*(b.norm() for b in before))
    away = math.hypot(*((a - b).norm() for a, b in zip(after, before, strict=True)))
    slope = math.hypot(model.conv.weight.grad.norm(), model.conv.bias.grad.norm())
    record = record_of(watch, "conv")
    assert record["weight_norm"] == pytest.approx(norm, rel=1e-5)
    assert record["weight_gradient_norm"] == pytest.approx(slope, rel=1e-5)
    assert record["update_ratio"] == pytest.approx(away / norm, rel=1e-4)
    with watch:  # the update is complete when the next step begins
        pass
    trained(model, 1)
    assert record_of(watch, "conv")["update_ratio"] == record["update_ratio"]


def test_weights_of_the_root_and_of_uncalled_layers_are_recorded():
    model = made()
    model.idle = nn.Linear(2, 2)
    watch = hookviz.watch(model)
    trained(model, 1, watch)
    assert record_of(watch, "")["mean"] is not None  # the root module has a parameter
    assert record_of(watch, "conv")["type"] == "Conv2d"
    idle = record_of(watch, "idle")
    known = [idle[name] for name in ("mean", "weight_gradient_norm", "update_ratio")]
    assert known == [None, None, 0] and idle["weight_norm"] > 0


def test_an_unrecorded_step_has_no_hooks():
    model = made()
    watch, counts = hookviz.watch(model, every=3), []
    for _ in range(4):
        with watch:
            counts.append(hooks_on(model))
            model(X).sum().backward()
    assert counts[0] > 5 and counts[1:3] == [0, 0] and counts[3] == counts[0]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_removes_the_hooks_and_keeps_the_records(error):
    model = made()
    watch = hookviz.watch(model, every=1)
    with pytest.raises(error), watch:
        model(X)
        raise error
    assert hooks_on(model) == 0 == len(_global_optimizer_post_hooks)
    assert watch.steps == [0] and record_of(watch, "conv")["gradient_mean"] is None
    assert watch.verdict.startswith("no NaN or Inf in 1 recorded step")
    trained(model, 1, watch)
    assert watch.steps == [0, 1]


def test_several_runs_in_one_block_are_merged():
    model, whole_batch = made().eval(), made().eval()
    for each in (model, whole_batch):
        each.training = True  # dropout and norm stay in eval mode, so that parts are independent
    watch, other = hookviz.watch(model), hookviz.watch(whole_batch)
    with watch:
        for part in X.split(4):
            model(part).square().sum().backward()
    with other:
        whole_batch(X).square().sum().backward()
    for layer in ("conv", "second", "head"):
        one, two = record_of(watch, layer), record_of(other, layer)
        numbers = [key for key, value in one.items() if isinstance(value, (int, float))]
        assert {k: one[k] for k in numbers} == pytest.approx({k: two[k] for k in numbers}, rel=1e-3)
        assert one["count"] == two["count"]


def test_validation_is_recorded_as_a_separate_phase():
    model = made()
    watch = hookviz.watch(model, every=2)
    for _ in range(3):
        trained(model, 2, watch)
        model.eval()
        with torch.no_grad():
            for part in X.split(2):  # only the first block of each validation is recorded
                with watch:
                    model(part)
        model.train()
    assert watch.steps == [0, 2, 4]
    assert [step.at for step in watch.history("eval").steps] == [2, 4, 6]
    record = record_of(watch, "conv", step=4, phase="eval")
    assert record["count"] == 2 * 6 * 36 and record["gradient_mean"] is None
    assert "3 validations" in watch.title
    with pytest.raises(ValueError, match="neither"):
        watch.history("test")


@pytest.mark.parametrize("fault", [20, 3])
def test_a_training_in_eval_mode_is_recorded_as_a_training(fault):
    model = made().eval()
    optimizer, watch = torch.optim.SGD(model.parameters(), 0.01), hookviz.watch(model, every=1)
    for step in range(6):
        with watch:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(X), Y) * (math.nan if step == fault else 1)
            loss.backward()
        optimizer.step() if step < fault else None
        with torch.no_grad(), watch:  # a validation
            model(X)
    assert (watch.steps, len(watch.history("eval").steps)) == ([*range(6)], 6)
    assert all(
        record_of(watch, "conv", step)["weight_gradient_norm"] is not None for step in (0, 5)
    )
    assert all(record_of(watch, "conv", step)["update_ratio"] > 0 for step in range(min(fault, 5)))
    assert [found.kind for found in watch.findings] == ["nan"] * (fault == 3)
    assert fault != 3 or watch.first_trouble.step == 3


@pytest.mark.parametrize("backward", [False, True])
def test_a_backward_in_a_validation_does_not_make_it_a_training(backward):
    model = made()
    watch = hookviz.watch(model, every=1)
    trained(model, 2, watch)
    model.eval()
    with watch:
        loss = model(X).square().sum()
        if backward:  # for an adversarial example, perhaps
            loss.backward()
    assert (watch.steps, len(watch.history("eval").steps)) == ([0, 1], 1)
    assert record_of(watch, "conv", 2, phase="eval")["weight_norm"] is None


@pytest.mark.parametrize(("value", "kinds"), [(1.0, []), (math.nan, ["nan"])])
def test_a_model_that_is_only_validated_has_findings(value, kinds):
    model = made().eval()
    watch = hookviz.watch(model)
    with torch.no_grad(), watch:
        model(X * value)
    assert [found.kind for found in watch.findings] == kinds
    assert (
        watch.findings.healthy is not bool(kinds) and "not looked at" not in watch.findings.text()
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_does_not_count_as_a_second_call(reentrant):
    def block(m, x):
        return m.relu(m.second(m.relu(x)))

    def run(m, x):
        x = m.first(x)
        return checkpoint(block, m, x, use_reentrant=reentrant) if m.on else block(m, x)

    parts = {"first": nn.Conv2d(3, 6, 3), "relu": nn.ReLU(), "second": nn.Conv2d(6, 6, 3)}
    found = []
    for on in (True, False):
        model = model_of(run, on=on, **parts)
        model.zero_grad()
        watch = hookviz.watch(model)
        with watch:
            model(X).square().sum().backward()
        found.append(watch.records())
    assert found[0] == found[1]
    assert [record["gradient_count"] > 0 for record in found[0]] == [True] * 4


def test_gradients_are_divided_by_the_scale_of_the_loss():
    model, plain = made(), made()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch, other = hookviz.watch(model, scaler=scaler), hookviz.watch(plain)
    torch.manual_seed(1)
    with watch:
        scaler.scale(nn.functional.cross_entropy(model(X), Y)).backward()
        scaler.step(optimizer)
        scaler.update()
    trained(plain, 1, other)
    for key in ("gradient_std", "weight_gradient_norm", "update_ratio"):
        assert record_of(watch, "conv")[key] == pytest.approx(record_of(other, "conv")[key], 1e-4)


def test_a_probe_under_autocast_does_not_change_the_training():
    """Autocast must not reuse the weights cast in the probe's run, which have no graph."""

    def train(model, watch=None):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16), watch or nullcontext():
                loss = nn.functional.cross_entropy(model(X), Y)
                loss.backward()
            optimizer.step()
        return model

    model = made()
    watch = hookviz.watch(model, every=1, probe=X[:1])
    assert same_weights(train(model, watch), train(made()))
    assert not watch.log.left_out


def test_a_compiled_model_runs_eagerly_while_it_is_recorded():
    calls = []

    def backend(graph, inputs):
        def run(*args):
            calls.append(1)
            return graph(*args)

        return run

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    compiled = torch.compile(model, backend=backend)
    compiled(X)
    watch, ran = hookviz.watch(compiled, every=2), []
    for _ in range(4):
        before = len(calls)
        with watch:
            compiled(X).sum().backward()
        ran.append(len(calls) > before)
    assert ran == [False, True, False, True]
    assert {record["layer"] for record in watch.records()} == {"0", "1"}


def test_a_layer_that_is_replaced_later_is_recorded():
    model = made()
    watch = hookviz.watch(model, every=1)
    trained(model, 2, watch)
    model.head = nn.Linear(6, 5)
    trained(model, 2, watch)
    before, after = (record_of(watch, "head", step) for step in (0, 2))
    assert (before["count"], after["count"]) == (8 * 4, 8 * 5)
    assert after["update_ratio"] > 0 and after["gradient_count"] == after["count"]


def test_layers_that_return_several_tensors_or_none_are_recorded():
    def run_odd(m, x):
        m.index(torch.arange(3))
        m.empty(x[:0])
        return m.lstm(x)[0].sum()

    model = model_of(
        run_odd, lstm=nn.LSTM(3, 5, batch_first=True), index=nn.Identity(), empty=nn.Identity()
    )
    watch = hookviz.watch(model)
    with watch:
        model(torch.randn(2, 4, 3)).backward()
    assert {(r["layer"], r["path"]) for r in watch.records()} == {
        ("lstm", path) for path in ("[0]", "[1][0]", "[1][1]")
    }


def test_an_error_while_recording_does_not_stop_the_training(monkeypatch):
    def refuse(*args):
        raise TypeError("no such tensor. Do this.")

    monkeypatch.setattr("hookviz.studies.watch.recorder.sums_of", refuse)
    model = made()
    watch = hookviz.watch(model)
    trained(model, 1, watch)
    assert "left out: conv (TypeError: no such tensor" in watch.title


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"scaler": 2.0}, r"scaler= is float, which has no get_scale\(\): give"),
        ({"max_bytes": 0}, "max_bytes=0"),
        ({"save_every": -1}, "save_every=-1 cannot be used"),
        ({"layers": "cnv"}, "No layer of Net is called 'cnv'"),
        ({"path": "none/run.npz"}, "Missing folder .*: make it"),
        ({"probe": torch.ones(1, 5, 8, 8)}, "conv"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        hookviz.watch(made(), **options)


@pytest.mark.parametrize("step", [-1, 2.5, "3", torch.tensor(2.5), True])
def test_steps_that_are_not_whole_numbers_are_refused(step):
    watch = hookviz.watch(made())
    with pytest.raises(ValueError, match=r"step=.* cannot be used: give a whole number from 0 up"):
        watch.step = step
    assert watch.step == 0


@pytest.mark.parametrize("whole", [int, np.int64, torch.tensor])
def test_steps_of_a_checkpoint_and_intervals_may_be_of_torch_and_numpy(whole, tmp_path):
    model, path = made(), tmp_path / "run.npz"
    watch = hookviz.watch(model, every=whole(2), path=path, save_every=0)
    watch.step = whole(4)
    trained(model, 3, watch)
    assert hookviz.load(path).steps == [4, 6]


def test_nested_blocks_are_refused():
    watch = hookviz.watch(made())
    with watch, pytest.raises(RuntimeError, match="already active"), watch:
        pass


def test_the_watch_says_that_nothing_ran_in_a_block():
    model, other = made(), made()
    watch = hookviz.watch(model)
    with watch:
        other(X)
    assert watch.steps == [] and "no watched layer ran" in repr(watch)
    watch = hookviz.watch(model)
    with watch:
        loss = model(X).sum()
    loss.backward()
    assert "call backward() within the block" in watch.title


# The first NaN


def test_the_first_nan_is_attributed_to_the_layer_that_produces_it():
    model = made()
    watch = hookviz.watch(model, every=1)
    trained(model, 2, watch)
    with torch.no_grad():
        model.second.weight[0, 0, 0, 0] = math.nan
    trained(model, 1, watch)
    trouble = watch.first_trouble
    assert (trouble.step, trouble.phase, trouble.layer, trouble.after) == (
        2,
        "forward",
        "second",
        1,
    )
    assert "NaN first seen at step 2, not yet at step 1, in what 'second' returned" in watch.title
    layers = ("conv", "norm", "second", "head")
    nans = {layer: record_of(watch, layer, step=2)["nans"] for layer in layers}
    assert nans == {"conv": 0, "norm": 0, "second": 8 * 16, "head": 32}
    step = watch.history().steps[-1]
    place = step.layout.rows.index(Row("second"))
    assert np.isnan(step.channels(place)[0]).tolist() == [True] + [False] * 5
    assert step.bins()[place, 0, -1] == 8 * 16


def test_the_first_nan_is_found_in_a_gradient():
    model = made()
    watch = hookviz.watch(model, every=1)
    with watch:
        (model(X).sum() * 0).sqrt().backward()  # sqrt has slope Inf at 0, and Inf times 0 is NaN
    trouble = watch.first_trouble
    assert (trouble.phase, trouble.layer) == ("backward", "")
    assert "the gradient of what the model returned" in str(trouble)
    assert "<td>32 NaN</td>" in watch._repr_html_()  # and not the deviation of no values


@pytest.mark.parametrize(("fault", "kinds"), [(1.0, []), (math.inf, ["inf"]), (math.nan, ["nan"])])
def test_a_mask_of_minus_inf_is_not_a_finding(fault, kinds):
    def run(m, x):
        return m.value(x) * m.softmax(m.mask(m.score(x)))

    causal = torch.ones(4, 4).triu(1).bool()
    mask = model_of(lambda m, x: x.masked_fill(causal, -math.inf))
    parts = {"value": nn.Linear(4, 4), "score": nn.Linear(4, 4), "softmax": nn.Softmax(-1)}
    model = model_of(run, mask=mask, **parts)
    watch, optimizer = hookviz.watch(model, every=1), torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        optimizer.zero_grad()
        with watch:
            if step == 3:
                model.score.weight.data[0, 0] *= fault
            model(torch.ones(2, 4, 4)).square().sum().backward()
        optimizer.step()
    assert [found.kind for found in watch.findings] == kinds
    assert not kinds or (watch.findings[0].layer, watch.first_trouble.step) == ("score", 3)


@pytest.mark.parametrize(
    ("steps", "fault", "severities"), [(1, 20, ["note"]), (20, 20, []), (20, 3, ["error"])]
)
def test_a_step_that_a_scaler_skips_is_healthy_unless_the_scale_cannot_help(
    steps, fault, severities
):
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-16)
    watch = hookviz.watch(model, every=1, scaler=scaler)
    for step in range(steps):
        optimizer.zero_grad()
        with watch:
            loss = nn.functional.cross_entropy(model(X), Y) * (math.nan if step >= fault else 9.0)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert [found.severity for found in watch.findings] == severities
    assert watch.findings.healthy is ("error" not in severities)
    assert ("GradScaler skips such a step" in watch.title) is (severities == ["note"])
    assert fault != 3 or "NaN first seen at step 3, not yet at step 2" in watch.verdict


def test_the_fraction_of_dead_channels_is_recorded():
    model = made()
    with torch.no_grad():
        model.norm.bias[:2] = -1e6
        model.norm.bias[2] = -1e-3
    watch = hookviz.watch(model)
    trained(model, 1, watch)
    assert record_of(watch, "relu")["dead"] == pytest.approx(2 / 6)


# The budget


def test_records_stay_within_their_budget():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    once = hookviz.watch(model, every=1)
    with once:
        model(torch.ones(1, 4)).sum().backward()
    watch = hookviz.watch(model, every=1, max_bytes=10.5 * once.nbytes)
    for _ in range(60):
        with watch:
            model(torch.ones(1, 4)).sum().backward()
        assert watch.nbytes <= 10.5 * once.nbytes
    assert watch.every == 8 and watch.steps == list(range(0, 60, 8))
    assert "60 steps, 8 recorded (every 8)" in watch.title
    assert watch.nbytes == sum(step.nbytes for step in watch.history().steps)


def test_the_first_nan_is_kept_when_steps_are_thinned_out():
    model = nn.Sequential(nn.Linear(4, 4))
    watch = hookviz.watch(model, every=1, max_bytes=5000)
    for number in range(40):
        with watch:
            model(torch.full((1, 4), math.nan if number == 3 else 1.0)).sum().backward()
    assert 3 not in watch.steps and watch.first_trouble.step == 3
    watch.step = 8
    assert watch.step == 8 and max(watch.steps) < 8


# Files


def test_a_saved_training_is_loaded_unchanged(tmp_path):
    model = made()
    watch = hookviz.watch(model, every=2, probe=X[:1])
    trained(model, 5, watch)
    model.eval()
    with watch:
        model(X)
    watch.save(tmp_path / "run.npz")
    loaded = hookviz.load(tmp_path / "run.npz")
    assert (loaded.records(), loaded.title) == (watch.records(), watch.title)
    for one, other in zip(loaded.history().steps, watch.history().steps, strict=True):
        assert one.layout == other.layout
        assert all(np.array_equal(one.arrays[k], other.arrays[k], True) for k in one.arrays)
    np.load(tmp_path / "run.npz", allow_pickle=False)  # raises if the file contains a pickle
    again = hookviz.watch(model.train(), every=2, probe=X[:1], path=tmp_path / "run.npz")
    assert again.steps == [0, 2, 4] and again.step == 5
    trained(model, 3, again)
    assert again.steps == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("change", "model", "options", "message"),
    [
        (lambda content: b"", Net, {}, "broken, or not a (survey or )?watch"),
        (lambda content: b"PK no zip", Net, {}, "broken, or not a (survey or )?watch"),
        (lambda content: content[:5000], Net, {}, "broken, or not a (survey or )?watch"),
        (bytes, lambda: nn.Sequential(nn.Linear(1, 1)), {}, "its model differs"),
        (bytes, Net, {"layers": "conv"}, "its layers differ"),
        (bytes, Net, {"every": 7}, "its every= differs"),
    ],
)
def test_a_broken_or_different_file_is_refused_and_not_overwritten(
    tmp_path, change, model, options, message
):
    path, own = tmp_path / "run.npz", made()
    watch = hookviz.watch(own)
    trained(own, 1, watch)
    watch.save(path)
    path.write_bytes(before := change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        hookviz.watch(model(), path=path, **options)
    assert path.read_bytes() == before
    if change is not bytes:
        with pytest.raises(ValueError, match=message):
            hookviz.load(path)


def test_the_file_is_written_immediately_and_then_once_a_minute(tmp_path, monkeypatch):
    path, model, now = tmp_path / "run.npz", made(), [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    watch, written = hookviz.watch(model, every=1, path=path, save_every=60.0), []
    for second in range(0, 150, 10):
        now[0] = float(second)
        trained(model, 1, watch)
        written.append(hookviz.load(path).steps[-1])
    assert written == [0] * 6 + [6] * 6 + [12] * 3


def test_a_full_disk_does_not_stop_the_training(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    model = made()
    watch = hookviz.watch(model, every=1, path=folder / "run.npz", save_every=0)
    folder.rmdir()
    with pytest.warns(RuntimeWarning, match="could not be written"):
        trained(model, 1, watch)
    assert watch.steps == [0]
    folder.mkdir()


# The probe


def test_probe_maps_are_recorded_before_the_step():
    model = made()
    watch = hookviz.watch(model, every=1, probe=X[:1])
    before = copy.deepcopy(model).eval()
    trained(model, 1, watch)
    levels, low, high = watch.history().steps[0].maps()["conv"]
    with torch.no_grad():
        maps = before.conv(X[:1])[0].numpy()
    assert levels.shape == (6, 6, 6) and set(watch.history().steps[0].maps()) == {"conv", "second"}
    most = np.abs(maps).max((1, 2))
    np.testing.assert_allclose(high, most, rtol=1e-6)
    np.testing.assert_allclose(low, -most, rtol=1e-6)
    back = low[:, None, None] + (levels + 0.5) * ((high - low) / 252)[:, None, None]
    np.testing.assert_allclose(back, maps, atol=float((high - low).max()) / 250)


def test_probe_maps_with_inf_show_the_finite_values_in_their_colours():
    model = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.constant_(model.weight, 1e10)
    picture = torch.linspace(1, 3, 64 * 64).reshape(1, 1, 64, 64)
    picture[..., :2, :4] = torch.tensor([1e30, -1e30, 1e30, 1e30])
    watch = hookviz.watch(model, every=1, probe=picture)
    with watch:
        model(torch.ones(1, 1, 8, 8)).sum().backward()
    ((levels, low, high),) = watch.history().steps[0].maps().values()
    blocks = nn.functional.avg_pool2d(1e10 * picture, 2)[0].numpy()
    finite = blocks[np.isfinite(blocks)]
    np.testing.assert_allclose([low[0], high[0]], [finite.min(), finite.max()])
    assert levels[0, 0, :2].tolist() == [NAN, PLUS_INF]
    np.testing.assert_array_equal(levels, to_levels(blocks, low[0], high[0]))


def test_a_probe_that_fails_later_does_not_stop_the_training():
    model = made()
    watch = hookviz.watch(model, every=1, probe=X[:1])
    model.conv = nn.Conv2d(5, 6, 3)
    with watch:
        model(torch.ones(2, 5, 8, 8)).sum().backward()
    assert "left out: probe (" in watch.title


# More than one process


def test_only_the_first_process_records(monkeypatch):
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    model = made()
    watch = hookviz.watch(model, every=1)
    trained(model, 2, watch)
    assert watch.steps == [] and "first one records" in watch.title


# Figures


def lit(axes):
    """Return the pixels of the first image in the axes, ``(rows, steps, RGBA)``."""
    return np.asarray(axes.images[0].get_array())


def test_a_strip_has_layers_as_rows_and_steps_as_columns():
    model = made()
    watch = hookviz.watch(model, every=2)
    trained(model, 6, watch)
    with torch.no_grad():
        model.second.weight[0, 0, 0, 0] = math.nan
    trained(model, 1, watch)
    figure = watch.figure(["std", "update_ratio"])
    strips = [axes for axes in figure.axes if axes.images]
    rows = watch.history().rows
    assert [lit(axes).shape[:2] for axes in strips] == [(len(rows), 4), (5, 4)]
    names = [label.get_text() for label in strips[0].get_yticklabels()]
    assert names[:3] == ["conv", "norm", "relu"] and "relu (call 1)" in names
    magenta = (lit(strips[0]) == (1, 0, 1, 1)).all(2)
    second = rows.index(Row("second"))
    assert magenta[:second].sum() == 0 and magenta[second:, 3].all()
    (cross,) = strips[0].lines
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (3, second)
    assert watch.figure("dead")._repr_png_().startswith(b"\x89PNG")


def test_tables_and_figures_agree_with_the_records():
    model = made()
    watch = hookviz.watch(model, every=1)
    trained(model, 3, watch)
    every = {(r["layer"], r["step"], r["call"]): r for r in watch.records()}
    assert len(every) == len(watch.records())
    for name in NAMES:
        rows, values, wrong = watch.history().table(name)
        assert values.shape == (len(rows), len(watch.steps)) == wrong.shape and not wrong.any()
        for row, numbers in zip(rows, values.tolist(), strict=True):
            wanted = [every[row.layer, step, row.call][name] for step in watch.steps]
            wanted = [np.nan if each is None else each for each in wanted]
            assert numbers == pytest.approx(wanted, nan_ok=True)
        assert lit(watch.figure(name).axes[0]).shape[1] == 3


def test_figures_and_pages_can_show_the_validation():
    model = made()
    watch = hookviz.watch(model, every=1)
    with pytest.raises(ValueError, match="No step of train has been recorded: put `with watch:`"):
        watch.figure()
    model.eval()
    with torch.no_grad(), watch:
        model(X)
    with pytest.raises(
        ValueError, match=r"pass phase='eval', of which .*, or call model.train\(\)"
    ):
        watch.figure()
    trained(model.train(), 3, watch)
    titles = [axes.get_title("left") for axes in watch.figure(phase="eval").axes]
    assert [title.partition(",")[0] for title in titles if title] == [
        "standard deviation",
        "gradient: standard deviation",
    ]
    for statistic, phase, message in (
        ("update_ratio", "eval", "No step of this phase has recorded update_ratio"),
        ("sdt", "train", "Unknown statistic 'sdt': there are mean"),
        ([], "train", "There is no statistic to draw: give one or more of mean"),
        ("std", "test", "phase='test' is neither"),
    ):
        with pytest.raises(ValueError, match=message):
            watch.figure(statistic, phase=phase)
    pages = [blocks(watch.to_html(phase=phase)) for phase in ("eval", "train")]
    assert [len(page["steps"]) for page in pages] == [1, 3]


def test_weights_that_were_made_in_inference_mode_do_not_stop_a_training():
    def forward(m, x):
        with torch.no_grad():
            y = m.still(x)
        return m.head(y)

    with torch.inference_mode():
        still = nn.Linear(4, 8)
    model = model_of(forward, still=still, head=nn.Linear(8, 2))
    optimizer, watch = torch.optim.SGD(model.head.parameters(), 0.1), hookviz.watch(model, every=1)
    for _ in range(3):
        with watch:
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    assert watch.findings.healthy and watch.findings.looked_at
