"""Sessions: wrappers, layer names, dtypes, replacements of the input, threads and errors."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from architectures import model_of
from heavy import heavy_but
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.run import session as sessions
from hookviz.run.session import FirstLayer, Session

WRAPPERS = {
    "DataParallel": nn.DataParallel,
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "compiled DataParallel": lambda model: torch.compile(nn.DataParallel(model), backend="eager"),
    "DataParallel of compiled": lambda model: nn.DataParallel(torch.compile(model)),
}


@pytest.fixture(params=heavy_but({"DataParallel", "compiled"}, WRAPPERS))
def wrapped(request):
    return WRAPPERS[request.param](hookviz.demo_model())


PICTURE = hookviz.demo_images()[6]


def test_explore_sees_the_model_inside_wrappers(wrapped):
    explorer = hookviz.explore(wrapped, PICTURE, target="moon")
    plain = hookviz.explore(hookviz.demo_model(), PICTURE, target="moon")
    assert explorer.inputs.args[0].shape == (1, 3, 112, 112)
    assert torch.equal(explorer.inputs.args[0], plain.inputs.args[0])
    for name in plain.cache:
        assert torch.equal(explorer.cache[name].gradient, plain.cache[name].gradient)


@pytest.mark.parametrize(("model_dtype", "dtype"), [("bfloat16", "float32"), ("float32", "double")])
def test_a_dtype_that_differs_from_the_weights_is_reported(model_dtype, dtype):
    model = hookviz.demo_model().to(getattr(torch, model_dtype))
    x = torch.rand(1, 3, 112, 112, dtype=getattr(torch, dtype))
    has, got = model_dtype, {"double": "float64"}.get(dtype, dtype)
    expected = (
        rf"'stem.0' \(Conv2d\) has weights in {has} and was given {got}: .*x.to\(torch.{has}\)"
    )
    for call in (hookviz.explore, hookviz.trace, hookviz.attribute):
        with pytest.raises(ValueError, match=expected):
            call(model, x)


def test_a_wrong_number_of_channels_is_reported():
    with pytest.raises(ValueError, match=r"shape \(1, 4, 9, 9\), .* 'stem.0' .* \(N, 3, H, W\)"):
        hookviz.explore(hookviz.demo_model(), torch.rand(1, 4, 9, 9))


class Normed(nn.Module):
    """Takes only batches, or with ``squeezes`` also single samples."""

    def __init__(self, squeezes=False):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.squeezes = squeezes

    def forward(self, x):
        x = x.unsqueeze(0) if self.squeezes and x.ndim == 3 else x
        return self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))


def forwards(model, look):
    """Return the number of completed forwards during a function call."""
    completed = []
    handle = model.register_forward_hook(lambda *given: completed.append(1))
    try:
        result = look()
        if hasattr(result, "close"):
            result.close()
    finally:
        handle.remove()
    return len(completed)


LOOKS = {
    "explore": lambda model, x: hookviz.explore(model, x),
    "trace": lambda model, x: hookviz.trace(model, x),
    "compare": lambda model, x: hookviz.compare(model, model, x),
    "diagnose": lambda model, x: hookviz.diagnose(model, x),
}


@pytest.mark.parametrize("squeezes", [False, True])
@pytest.mark.parametrize("shape", [(3, 9, 9), (2, 3, 9, 9)])
@pytest.mark.parametrize("look", LOOKS)
def test_the_model_runs_only_as_often_as_needed(look, shape, squeezes):
    model, x = Normed(squeezes).eval(), torch.rand(shape)
    count = forwards(model, lambda: LOOKS[look](model, x))
    # The explorer follows a batch through the model, to find the picture of each row.
    twice = look == "compare" or (look == "explore" and len(shape) == 4)
    assert count == 1 + twice


@pytest.mark.parametrize("name", ["norm.weight", "a renamed layer"])
def test_a_comparison_runs_each_model_once(name):
    one, two, x = Normed().eval(), Normed().eval(), torch.rand(3, 9, 9)
    if name == "norm.weight":
        two.load_state_dict(one.state_dict())
    else:
        two.other, two.conv = two.conv, nn.Sequential(two.conv)  # the layer that runs is conv.0
    assert forwards(one, lambda: hookviz.compare(one, two, x)) == 1


def test_if_neither_input_shape_fits_the_error_is_about_the_users_input():
    model = Normed().eval()
    model.fc = nn.Linear(3, 5)
    for look in (hookviz.explore, hookviz.trace):
        with pytest.raises(RuntimeError, match=r"layer 'norm' .*given \(4, 7, 7\)"):
            look(model, torch.rand(3, 9, 9))
    found = hookviz.diagnose(model, torch.rand(3, 9, 9))
    assert found[0].layer == "norm"
    assert "(4, 7, 7)" in found[0].message


def test_an_error_of_the_target_is_raised_unchanged():
    model, shapes = Normed(squeezes=True).eval(), []

    def target(output):
        shapes.append(tuple(output.shape))
        raise ValueError("no")

    with pytest.raises(ValueError, match="^no$"):
        hookviz.explore(model, torch.rand(3, 9, 9), target=target)
    assert shapes == [(1, 5)]


class Recurrent(nn.Module):
    """A recurrent network that notes in each forward whether cuDNN is on."""

    def __init__(self, seen):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.note = lambda: seen.append(torch.backends.cudnn.enabled)

    def forward(self, x):
        self.note()
        return self.lstm(x)[0]


@pytest.mark.parametrize("devices, seen", [({"cpu"}, False), ({"cuda"}, True)])
def test_cudnn_does_not_run_recurrent_layers_of_which_it_has_no_gradient(
    monkeypatch, devices, seen
):
    monkeypatch.setattr("hookviz.run.session._CUDNN", devices)
    seen_by = []
    model = Recurrent(seen_by).eval()
    hookviz.attribute(model, torch.randn(1, 5, 3), lambda output: output.sum())
    hookviz.trace(model, torch.randn(1, 5, 3), lambda output: output.sum())
    assert seen_by and set(seen_by) == {seen} and torch.backends.cudnn.enabled


def test_another_thread_waits_until_a_run_has_ended():
    """JupyterLab handles widget messages in a separate thread while a cell runs."""
    todo, begun = [], []

    def meets(m, x):
        """A model that starts another thread during its next run."""
        out = m.conv(x)
        if todo:
            begun.append(threading.Thread(target=todo.pop()))
            begun[0].start()
            begun[0].join(0.5)  # without the lock, the thread would finish within this time
        return out.mean((2, 3))

    model, first, second = (
        model_of(meets, conv=nn.Conv2d(3, 4, 3)),
        torch.rand(1, 3, 8, 8),
        torch.rand(1, 3, 8, 8),
    )
    explorer = hookviz.explore(model, first)
    todo.append(lambda: setattr(explorer, "image", second))
    why = hookviz.contributions(model, first, "conv", channel=0, position=(0, 0))
    begun[0].join()
    with torch.no_grad():
        maps = [model.conv(x) for x in (first, second)]
    assert why.value == float(maps[0][0, 0, 0, 0])
    assert len(explorer.cache["conv"].calls) == 1
    assert torch.equal(explorer.cache["conv"].activation, maps[1])


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text")


def raises_unprintable(m, x):
    m.conv(x)
    raise Unprintable


def test_an_exception_whose_text_raises_is_still_reported():
    model, x = model_of(raises_unprintable, conv=nn.Conv2d(3, 2, 1)), torch.rand(1, 3, 4, 4)
    with pytest.raises(RuntimeError, match=r"raised Unprintable in .*: Unprintable\(\)") as error:
        hookviz.explore(model, x)
    assert isinstance(error.value.__cause__, Unprintable)
    assert "Unprintable" in hookviz.diagnose(model, x)[0].message
    findings = hookviz.diagnose(model)
    with pytest.raises(Unprintable), findings:
        model(x)
    assert "Unprintable" in findings[0].message


class MomentumEncoder(nn.Module):
    """Its forward moves the weights of a second encoder."""

    def __init__(self):
        super().__init__()
        self.encoder, self.slow = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3).requires_grad_(False)

    def forward(self, x):
        pairs = zip(self.slow.parameters(), self.encoder.parameters(), strict=True)
        for slow, parameter in pairs:
            slow.data = slow.data * 0.9 + parameter.data * 0.1
        return (self.encoder(x) * self.slow(x)).mean((2, 3))


def test_frozen_weights_that_the_forward_overwrites_in_place_are_named():
    class InPlace(MomentumEncoder):
        def forward(self, x):
            with torch.no_grad():
                for slow, own in zip(
                    self.slow.parameters(), self.encoder.parameters(), strict=True
                ):
                    slow.lerp_(own, self.share)
            return self.encoder(x).mean((2, 3)), self.slow(x)

    model, x = InPlace(), torch.rand(2, 1, 8, 8)
    model.share = 0.1
    with pytest.warns(RuntimeWarning, match=r"overwritten in place \(slow\.weight, slow\.bias\)"):
        hookviz.attention(model, x)
    model.share = 0.0  # writes the same values
    hookviz.attention(model, x)


def decodes_in_place(m, x):  # the boxes of a YOLOv5
    y = m.conv(x).sigmoid()
    y[..., :2] = y[..., :2] * 2
    return y


@pytest.mark.parametrize("study", [hookviz.explore, hookviz.trace, hookviz.attribute])
def test_a_gradient_that_needs_overwritten_values_is_explained(study):
    model, x = model_of(decodes_in_place, conv=nn.Conv2d(3, 2, 1)), torch.rand(1, 3, 4, 4)
    words = f"^{type(model).__name__}, or the target, overwrites .*diagnose.* names the line.*clone"
    with pytest.raises(RuntimeError, match=words) as error:
        study(model, x, target=lambda output: output.sum())
    assert "sigmoid" in str(error.value.__cause__).lower()
    (finding,) = hookviz.diagnose(model, x, lambda output: output.sum())
    assert finding.kind == "in place" and finding.file == __file__


@pytest.mark.parametrize("study", [hookviz.explore, hookviz.attribute])
def test_weights_changed_by_another_thread_are_the_reason_of_a_failed_backward(study):
    def forward(m, x):
        y = m.last(m.first(x))
        with torch.no_grad():
            m.last.weight += 1  # as an optimizer's step in another thread
        return y

    model = model_of(forward, first=nn.Conv2d(3, 2, 1), last=nn.Conv2d(2, 2, 1))
    x = torch.rand(1, 3, 4, 4)
    with pytest.raises(RuntimeError, match=r"^The weights were changed while the model ran"):
        study(model, x, target="output.sum()")
    (finding,) = hookviz.diagnose(model, x, lambda output: output.sum())
    assert finding.kind == "in place" and finding.file == __file__


@pytest.mark.parametrize("study", [hookviz.explore, hookviz.attribute])
def test_a_failed_gradient_within_the_forward_names_the_layer(study):
    def forward(m, x):
        y = x.sigmoid()
        y += 1
        return x + torch.autograd.grad(y.sum(), x)[0]

    model, x = nn.Sequential(nn.Conv2d(3, 2, 1), model_of(forward)), torch.rand(1, 3, 4, 4)
    with pytest.raises(RuntimeError, match=r"raised RuntimeError in layer '1'.*inplace operation"):
        study(model, x, target="output.sum()")


def test_weights_that_the_forward_replaces_are_restored():
    model = MomentumEncoder()
    before = [parameter.clone() for parameter in model.parameters()]
    hookviz.graph(model, torch.rand(2, 1, 8, 8))
    hookviz.diagnose(model, torch.rand(2, 1, 8, 8))
    assert all(map(torch.equal, model.parameters(), before))


class Overwriting(nn.Module):
    """A model that overwrites its input, of pixels or of whole numbers."""

    def __init__(self):
        super().__init__()
        self.words, self.conv = nn.Embedding(9, 3), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        x += 1
        return self.conv(x if x.is_floating_point() else self.words(x).movedim(3, 1)).mean((2, 3))


@pytest.mark.parametrize("x", [torch.zeros(2, 3, 8, 8), torch.zeros(2, 8, 8, dtype=torch.long)])
def test_an_input_that_the_model_overwrites_is_unchanged(x):
    findings = hookviz.diagnose(Overwriting(), x)
    assert findings.looked_at and not x.any()


def test_reading_the_input_of_a_session_runs_the_model_on_a_copy():
    """The first read runs the model, to see if a single picture needs a batch dimension."""
    x = torch.zeros(3, 8, 8)
    session = Session.of(Overwriting(), x)
    assert session.inputs.args[0] is session.inputs.args[0]
    assert not session.inputs.args[0].any() and not x.any()


def test_a_gradient_that_the_forward_takes_itself_is_not_that_of_the_score():
    """An energy network returns the gradient of its layers' sum at a detached input."""

    def forward(model, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = model.b(model.a(x).tanh()).square().sum()
            return torch.autograd.grad(energy, x, create_graph=True)[0]

    model = model_of(forward, a=nn.Conv2d(1, 4, 3, padding=1), b=nn.Conv2d(4, 4, 3, padding=1))
    x, number = torch.randn(1, 1, 8, 8), hookviz.output[0, 0, 3, 3]
    shown = hookviz.explore(model, x, number)
    with hookviz.capture(model) as own:
        model(x)[0, 0, 3, 3].backward()
    for name in "ab":
        assert torch.allclose(shown.cache[name].gradient, own[name].gradient, atol=1e-6)
    assert hookviz.explore(model, x).cache["a"].gradient is None  # there is no score


def flagged(change=lambda x: x, then=lambda x: x):
    """Return a model that sets ``requires_grad`` of what a function makes of its input."""

    def forward(model, x):
        x = change(x)
        x.requires_grad = True
        return model.b(then(model.a(x)))

    return model_of(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 2))


@pytest.mark.parametrize("change", [lambda x: x, lambda x: x[:, None], lambda x: x.add_(1)])
def test_a_model_may_set_requires_grad_of_its_input(change):
    model, x = flagged(change), torch.rand(5, 3)
    with hookviz.diagnose(model) as guarded:
        model(x.clone()).sum().backward()
    model(x.clone())[0].sum().backward()
    assert guarded.healthy and hookviz.diagnose(model, x).healthy
    model.zero_grad()
    with hookviz.capture(model, nn.Linear) as own:
        model(x.clone()).sum().backward()
    shown = hookviz.explore(model, x, lambda output: output.sum(), layers=nn.Linear)
    for layer in "ab":
        assert torch.equal(shown.cache[layer].gradient, own[layer].gradient)


def test_faults_of_a_model_that_sets_requires_grad_of_its_input_have_a_line():
    found = hookviz.diagnose(flagged(then=lambda x: x.detach()), torch.rand(5, 3))
    assert [(e.layer, e.operation) for e in found] == [("a", "detach")] and found[0].line


def test_requires_grad_of_a_layers_output_cannot_be_set():
    layer = nn.Linear(3, 3)
    found = hookviz.diagnose(flagged(layer), torch.rand(5, 3))
    assert found[0].severity == "error" and "requires_grad flags of leaf" in found[0].message


def test_an_input_made_in_inference_mode_gets_a_gradient():
    with torch.inference_mode():
        x = torch.rand(2, 3, 8, 8)
    assert hookviz.explore(Overwriting(), x, layers="conv").cache["conv"].gradient is not None


def with_gradients(run):
    return [name for name, record in run.cache.items() if record.calls[-1].outputs[0].has_gradient]


def test_a_first_layer_is_shown_while_backward_goes_on_to_the_others():
    session, shown = Session.of(hookviz.demo_model(), PICTURE), []

    def show(run):
        shown.append((run, with_gradients(run)))
        raise ValueError("an error in what shows it")

    run = session.run(first=FirstLayer("layer3.1.conv1", show))
    plain = session.run()
    names = list(plain.cache)
    assert shown == [(run, names[names.index("layer3.1.conv1") :])]
    assert with_gradients(run) == names == list(run.cache)
    for name in names:
        assert torch.equal(run.cache[name].activation, plain.cache[name].activation)
        assert torch.equal(run.cache[name].gradient, plain.cache[name].gradient)
    assert torch.equal(run.logits, plain.logits)


def test_the_model_does_not_run_within_its_own_backward():
    model = hookviz.demo_model()
    session, tried = Session.of(model, PICTURE), []
    before = snapshot(model)

    def show(run):
        tried.append("before")
        with suppress(Exception):  # as a study may, which takes it for an error of the model
            session.run()
        tried.append("after")

    run = session.run(first=FirstLayer("layer3.1.conv1", show))
    assert tried == ["before"] and len(with_gradients(run)) == len(run.cache)
    assert_untouched(model, before)
    assert session.run().scored  # afterwards it may


def test_a_first_layer_that_runs_twice_is_shown_with_both_gradients():
    shared, shown = nn.Conv2d(2, 2, 1), []
    model = nn.Sequential(shared, nn.Tanh(), shared, nn.Flatten())

    def show(run):
        shown.extend(call.gradient is not None for call in run.cache["0"].calls)

    Session.of(model, torch.rand(1, 2, 3, 3)).run(first=FirstLayer("0", show))
    assert shown == [True, True]


def test_nothing_is_shown_from_the_thread_of_a_devices_backward(monkeypatch):
    shown, run_backward = [], sessions.run_backward

    def elsewhere(*given):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(run_backward, *given).result()

    monkeypatch.setattr(sessions, "run_backward", elsewhere)
    run = Session.of(hookviz.demo_model(), PICTURE).run(first=FirstLayer("stem.0", shown.append))
    assert shown == [] and with_gradients(run) == list(run.cache)
