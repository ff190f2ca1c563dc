"""The model and the process are unchanged after a call, an error and Ctrl-C at any moment."""

import dis
import importlib
import pkgutil
import queue
import random
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from heavy import heavy_but
from torch import nn
from untouched import assert_untouched, changes, snapshot

import hookviz
from hookviz import attribution, metrics
from hookviz.hooking.handles import HookManager
from hookviz.hooking.interrupts import Block, _State, defer_interrupts, is_deferred, stoppable
from hookviz.run.session import Session

# Python ignores an interrupt while it closes a generator or runs a __del__.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:The edit of .* changed nothing",  # interrupted before the layer ran
    "ignore:The survey was interrupted",
)


class RandomAndStateful(nn.Module):
    """A model that changes buffers and attributes, draws random numbers and works in place."""

    class_names = ("a", "b", "c")

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Dropout(0.5)
        )
        self.shared, self.head = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 3)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("range", torch.zeros(2))
        self.register_buffer("square", torch.arange(4))
        self.body[0].bias.requires_grad_(False)

    def forward(self, x):
        self.count += 1
        self.last = torch.rand(1)
        self.range.resize_(2, 3).fill_(1)  # as a quantization observer does
        self.square.resize_(2, 2)
        x = self.body(x)
        for _ in range(2):
            x = torch.relu_(self.shared(x))
        tokens = nn.functional.adaptive_avg_pool2d(x, 2).flatten(2).transpose(1, 2)
        return self.head(self.attention(tokens, tokens, tokens)[0].mean(1))


def model_and_input():
    torch.manual_seed(0)
    model, x = RandomAndStateful(), torch.rand(2, 3, 12, 12)
    model.body[1].running_var.fill_(1.5)
    return model, x


POSITION = {"layer": "shared", "channel": 0, "position": (1, 1)}


def explored(model, x):
    explorer = hookviz.explore(model, x)
    explorer.layer, explorer.target = "shared", 1
    found = [float(each.sum()) for each in explorer.heatmaps().values()]
    explorer.close()
    return found


def surveyed(model, x):
    found = hookviz.survey(
        model, list(x), "shared", batch_size=1
    )  # an interrupted survey covers only some inputs
    return [layer.mean.tolist() for layer in found.values()]


def scored(model, x):
    curve = metrics.deletion_curve(model, x, x[:, 0], steps=4)
    check = metrics.sanity_check(model, x, "activation", "shared", steps=2)
    return [curve.scores.tolist(), check.correlations.tolist(), check.similarities.tolist()]


def attributed(model, x):
    few = {"smoothgrad": {"nt_samples": 2}, "integrated_gradients": {"n_steps": 2}}
    return [
        float(hookviz.attribute(model, x, method=method, **few.get(method, {})).sum())
        for method in attribution.ATTRIBUTIONS
    ]


def hooked(model, x):
    model.head.register_forward_hook(lambda *given: None)
    hookviz.remove_hooks(model)
    return len(hookviz.hooks(model))


CALLS = {
    "explore": explored,
    "trace": lambda model, x: [[e.kind, e.layer, e.call] for e in hookviz.trace(model, x)],
    "diagnose": lambda model, x: [f.kind for f in hookviz.diagnose(model, x)],
    "survey": surveyed,
    "compare": lambda model, x: len(hookviz.compare(model, model, x)),
    "similarity": lambda model, x: hookviz.similarity(
        model, model, [x.repeat(2, 1, 1, 1)], "body.0"
    ).matrix.tolist(),
    "graph": lambda model, x: len(hookviz.graph(model, x).records()),
    "contributions": lambda model, x: len(hookviz.contributions(model, x, **POSITION).records()),
    "attribute": attributed,
    "attention": lambda model, x: len(hookviz.attention(model, x).records()),
    "receptive_field": lambda model, x: float(
        hookviz.receptive_field(model, x, "shared").effective(x).sum()
    ),
    "scorecam and ablationcam": lambda model, x: [
        float(method(model, x, "shared").sum())
        for method in (attribution.scorecam, attribution.ablationcam)
    ],
    "occlusion": lambda model, x: float(attribution.occlusion(model, x, window=6).sum()),
    "metrics": scored,
    "remove_hooks": hooked,
}
"""Functions that run the model themselves, and leave it unchanged."""


def captured(model, x):
    with hookviz.capture(model, (nn.Conv2d, nn.Linear), inputs=True) as cache:
        torch.autograd.grad(model(x.requires_grad_()).sum(), x)
    return [cache[name].gradient.sum().item() for name in cache]


def edited(model, x):
    pulled = hookviz.edit(model, "*.weight", 0.5, gradient=True)
    with hookviz.edit(model, nn.Conv2d, torch.tanh, channels=[1]) as edit, pulled:
        loss = model(x).sum()
        found = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    return [edit.count, pulled.count, *(each.sum().item() for each in found)]


def watched(model, x):
    watch = hookviz.watch(model.train(), every=1)
    with watch:
        torch.autograd.grad(model(x).sum(), [p for p in model.parameters() if p.requires_grad])
    return len(watch.records())


def guarded(model, x):
    with hookviz.diagnose(model) as findings:
        torch.autograd.grad(model(x).sum(), model.head.weight)
    return [finding.kind for finding in findings]


BLOCKS = {"capture": captured, "edit": edited, "watch": watched, "guard": guarded}
"""Blocks around a forward of the user, which itself may change the model."""

WORKS = CALLS | BLOCKS
NO_HOOKS = {
    "hooks",
    "heatmap",
    "output",
    "pretrained",
    "load",
    "grade",
    "demo_model",
    "demo_images",
}


def test_every_public_function_that_sets_hooks_is_tested():
    public = {name for name in hookviz.__all__ if callable(getattr(hookviz, name))}
    elsewhere = {"feature_visualization"}  # it needs a model of colour pictures
    assert public - WORKS.keys() == NO_HOOKS | elsewhere


@pytest.mark.parametrize(
    ("error", "run"), [(None, 0), (KeyboardInterrupt, 1), (ArithmeticError, 2)]
)
@pytest.mark.parametrize("kind", [kind for kind in CALLS if kind != "remove_hooks"])
def test_a_call_leaves_the_model_unchanged_also_if_the_model_raises(kind, error, run):
    """The model raises in its first or second run; a part is frozen, a part is in eval mode."""
    (model, x), runs = model_and_input(), []

    def fail(module, args):
        runs.append(error)
        if len(runs) == run:
            raise error

    model.train().body[1].eval()
    model.shared.weight.grad = torch.full_like(model.shared.weight, 2.0)
    model.head.register_forward_pre_hook(fail)
    before, given, relu = snapshot(model), x.clone(), torch.relu
    with suppress(KeyboardInterrupt, RuntimeError, ArithmeticError):
        CALLS[kind](model, x)
    assert runs
    assert_untouched(model, before)
    assert torch.equal(x, given) and x.grad is None and not x.requires_grad
    assert torch.relu is relu


class Worker:
    """Runs one kind of work with a model; `put_away` undoes the effects of the user's forward."""

    def __init__(self, kind):
        (self.model, self.x), self.kind = model_and_input(), kind
        self.model.train(kind not in ("capture", "edit", "guard"))
        torch.manual_seed(1)
        for _ in range(2):  # the first run imports and caches
            self.found = self.work()
            self.put_away()
        # After the first runs, since libraries add filters when they are imported.
        self.before, self.filters = snapshot(self.model), [*warnings.filters]

    def work(self):
        return WORKS[self.kind](self.model, self.x.detach().clone())

    def put_away(self):
        norm = self.model.body[1]
        if (
            self.kind == "remove_hooks"
        ):  # an interrupted call may leave the hook that it should remove
            self.model.head._forward_hooks.clear()
        if self.kind in BLOCKS:
            self.model.count.zero_(), norm.num_batches_tracked.zero_()
            norm.running_mean.zero_(), norm.running_var.fill_(1.5)
            vars(self.model).pop("last", None)
            torch.manual_seed(1)

    def faults(self):
        """List what an interrupted call has changed, and whether the next call fails."""
        self.put_away()
        found = changes(self.model, self.before)
        found += ["other filters of warnings"] * (warnings.filters != self.filters)
        found += ["a hold on interrupts"] * (_State.holds != 0)
        found += ["the next call finds something else"] * (self.work() != self.found)
        self.put_away()
        return found


@pytest.fixture
def interrupts():
    """Install a handler that raises KeyboardInterrupt; return the list of interrupts."""
    came = []

    def handler(number, frame):
        came.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    yield came
    installed = signal.getsignal(signal.SIGINT)
    # A failed test must not make others fail.
    signal.signal(signal.SIGINT, before)
    torch.set_grad_enabled(True)
    _State.holds = 0
    assert installed is handler


@pytest.mark.parametrize("moments", [1, pytest.param(50, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("kind", WORKS)
def test_an_interrupt_at_a_random_moment_leaves_nothing(kind, moments, interrupts):
    """The moment is a random fraction of the duration of a call, often below a millisecond."""
    worker, draw = Worker(kind), random.Random(f"{kind} {moments}")
    began = time.perf_counter()
    worker.work()
    took = time.perf_counter() - began
    worker.put_away()
    former = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    hit = 0
    try:
        for _ in range(moments):
            interrupts.clear()
            with suppress(KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-6, draw.random() * took))
                    worker.work()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            hit += len(interrupts)
            assert worker.faults() == []
    finally:
        signal.signal(signal.SIGALRM, former)
    assert hit or moments < 10


# At every step

PACKAGE = Path(hookviz.__file__).parent
SWITCHES = ("__enter__", "__exit__", "_pop_mode_temporarily", "fork_rng")
BLOCK_FILES = (
    *("contextlib.py", "warnings.py"),
    *("_contextlib.py", "grad_mode.py", "overrides.py", "random.py", "_python_dispatch.py"),
)
CALLERS = 5  # lines that tell two moments apart
TRACED = ("contextlib.py", "_contextlib.py", "grad_mode.py", "random.py", "hooks.py")
CHECKS = (
    "CALL",
    "CALL_FUNCTION_EX",
    "JUMP_BACKWARD",
)  # Python checks for signals after these instructions


class Interrupter:
    """Sends SIGINT at one of the moments at which Python checks for signals.

    The moments are counted in hookviz and in the context managers that it uses.
    """

    def __init__(self, at):
        self.at, self.moments = at, 0
        self._last = {}

    def __enter__(self):
        sys.settrace(self._called)
        return self

    def __exit__(self, *error):
        sys.settrace(None)

    def _called(self, frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if path.name == "interrupts.py":
            return None
        if path.name not in TRACED and not path.is_relative_to(PACKAGE):
            return None
        return self._follow(frame)

    def _follow(self, frame):
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._moment(frame)
        return self._step

    def _step(self, frame, event, argument):
        if event == "opcode":
            before = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            if before is not None and dis.opname[frame.f_code.co_code[before]] in CHECKS:
                self._moment(frame)
        elif event == "return":
            self._last.pop(frame, None)
        return self._step

    def _moment(self, frame):
        self.moments += 1
        if self.moments == self.at:
            signal.raise_signal(signal.SIGINT)


class SwitchInterrupter(Interrupter):
    """Sends SIGINT while a block of Python or torch begins or ends, and nothing defers it.

    One moment is enough of those to which the same lines of hookviz lead; `seen` has the lines of
    earlier runs.
    """

    def __init__(self, seen):
        super().__init__(None)
        self.seen, self.lines = seen, None

    def _called(self, frame, event, argument):
        code = frame.f_code
        switches = code.co_name in SWITCHES and Path(code.co_filename).name in BLOCK_FILES
        return self._follow(frame) if switches else None

    def _moment(self, frame):
        if self.lines is not None or is_deferred(frame):
            return
        lines = [(frame.f_code.co_name, frame.f_lasti)]
        while frame := frame.f_back:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE) or path == Path(__file__):
                lines.append((path.name, frame.f_lineno))
        if (key := tuple(lines[:CALLERS])) not in self.seen:
            self.seen.add(key)
            self.lines = lines
            signal.raise_signal(signal.SIGINT)


EVERY = {"capture": (53, 17), "edit": (31, 7), "watch": (2999, 151), "graph": (3989, 499)}
"""Kind of work -> step between interrupted moments: for the quick and for the heavy test."""


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("kind", EVERY)
def test_an_interrupt_at_any_step_leaves_nothing(kind, many, interrupts):
    worker = Worker(kind)
    with Interrupter(0) as counting:
        worker.work()
    worker.put_away()
    moments = range(1, counting.moments, EVERY[kind][many])
    for moment in moments:
        with suppress(KeyboardInterrupt), Interrupter(moment):
            worker.work()
        assert worker.faults() == [], moment
    assert len(interrupts) > len(moments) / 2


ALL_DEFERRED = {
    *("survey", "similarity", "graph", "contributions", "attention", "remove_hooks"),
    *("capture", "edit", "watch"),
}
"""Calls that may defer an interrupt at each such moment."""


@pytest.mark.parametrize(
    "kind", heavy_but({"trace", "diagnose", "similarity", "receptive_field", "metrics"}, WORKS)
)
def test_an_interrupt_as_a_block_begins_or_ends_leaves_nothing(kind, interrupts):
    worker, seen = Worker(kind), set()
    while True:
        with suppress(KeyboardInterrupt), SwitchInterrupter(seen) as interrupter:
            worker.work()
        if interrupter.lines is None:
            break
        assert worker.faults() == [], interrupter.lines
    assert seen or kind in ALL_DEFERRED


@pytest.mark.parametrize("step", ["trace", "export"])
def test_an_interrupt_waits_until_torch_has_exported_a_network(step, interrupts, monkeypatch):
    """Torch's tracing, cut short, would go on for ever; for its exporter output is redirected."""
    pytest.importorskip("onnxscript", reason="the oldest versions have no export")
    onnx_graph = importlib.import_module("hookviz.export.network.onnx_graph")
    ended, export, outputs = [], torch.onnx.export, (sys.stdout, sys.stderr)

    class Network(nn.Sequential):
        def forward(self, x):
            if step == "trace" and torch._C._len_torch_dispatch_stack():
                signal.raise_signal(signal.SIGINT)
                ended.append(step)
            return super().forward(torch.relu(x))

    def exporting(*args, **kwargs):
        if step == "export":
            signal.raise_signal(signal.SIGINT)
            ended.append(step)
        return export(*args, **kwargs)

    network = Network(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    session, before = Session.of(network, torch.rand(1, 3, 8, 8)), snapshot(network)
    monkeypatch.setattr(torch.onnx, "export", exporting)
    with pytest.raises(KeyboardInterrupt):
        onnx_graph.to_onnx(onnx_graph.trace_network(session, ["0"]), "network")
    assert ended == [step]
    assert changes(network, before) == [] and (sys.stdout, sys.stderr) == outputs


def test_no_block_overrides_enter_or_exit():
    """An interrupt before the first line of such a method would leave its effects in place."""
    for module in pkgutil.walk_packages(hookviz.__path__, "hookviz."):
        with suppress(ImportError):  # some libraries are not installed
            importlib.import_module(module.name)
    blocks, found = [Block], []
    for block in blocks:
        blocks += block.__subclasses__()
        if block is not Block and {"__enter__", "__exit__"} & vars(block).keys():
            found.append(block.__qualname__)
    assert len(blocks) > 8 and not found


def test_an_interrupt_stops_work_in_another_thread():
    """JupyterLab handles widget messages in a thread, while the idle kernel ignores SIGINT."""
    module, x = nn.Identity(), torch.zeros(1)
    todo = queue.SimpleQueue()
    calls, ended = [], []

    def work():
        try:
            with (
                stoppable(todo.put),
                HookManager([(module, "forward", lambda *given: calls.append(1))]),
            ):
                while True:
                    module(x)
        except KeyboardInterrupt:
            ended.append(True)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        todo.get()()
        signal.raise_signal(signal.SIGINT)
        thread.join()
        todo.get()()
        assert (ended, signal.getsignal(signal.SIGINT)) == ([True], signal.SIG_IGN)
        assert not module._forward_hooks
        signal.raise_signal(
            signal.SIGINT
        )  # no thread is working, so the signal is ignored as before
        module(x)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_other_code_installed_is_respected():
    """IPython installs its handler for each cell, even if a block of an earlier cell is open."""
    begun, ended = [], []

    @defer_interrupts
    def work():
        begun.append(True)
        signal.raise_signal(signal.SIGINT)
        ended.append(True)

    before = signal.getsignal(signal.SIGINT)
    other = lambda number, frame: signal.default_int_handler(number, frame)  # noqa: E731
    model = nn.Sequential(nn.Conv2d(1, 2, 1))
    try:
        with hookviz.capture(model):
            signal.signal(signal.SIGINT, other)
            with pytest.raises(KeyboardInterrupt):
                work()
            assert (begun, ended) == ([True], [True])
        assert signal.getsignal(signal.SIGINT) is other
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert _State.holds == 0 and not model[0]._forward_hooks
    finally:
        signal.signal(signal.SIGINT, before)
