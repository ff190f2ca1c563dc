"""Capture works in unusual situations, leaves the model unchanged, and refuses wrong arguments."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
import torch
from reference import assert_exact, true_outputs
from torch import Tensor, nn
from torch.distributions import Normal

import hookviz
from hookviz.hooking.select import CONVOLUTIONS
from hookviz.hooking.tensors import tensors_in


def small():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(inplace=True),
        nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        nn.Flatten(),
    )


X = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)


def registered_hooks(model):
    return [
        hook
        for module in model.modules()
        for key, value in module.__dict__.items()
        if "hooks" in key and value
        for hook in value
    ]


# Situations


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_activations_are_stored_without_gradients(around):
    model = small()
    with around(), hookviz.capture(model) as cache:
        out = model(X)
    assert cache["0"].gradient is None
    assert not cache["0"].activation.is_inference()
    cache["0"].activation.add_(1)  # not an inference tensor: in-place operations are allowed
    assert out.shape == (2, 64)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_captured_tensors_have_the_layers_dtype(dtype, autocast):
    model, x = (small(), X) if autocast else (small().to(dtype), X.to(dtype))
    with torch.autocast("cpu", dtype, enabled=autocast):
        with true_outputs(model) as truths:
            model(x).float().sum().backward()
        with hookviz.capture(model) as cache:
            model(x).float().sum().backward()
    assert cache["0"].activation.dtype == cache["0"].gradient.dtype == dtype
    assert_exact(cache, truths)


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # a warning of torch.compile
@pytest.mark.parametrize("when", ["fresh", "after it was compiled", "inner", "in place"])
def test_compiled_code_runs_eagerly_within_the_block(when):
    runs = []

    def counting(graph, example_inputs):
        def compiled_code(*args):
            runs.append(graph)
            return graph.forward(*args)

        return compiled_code

    class Own(nn.Sequential):  # a subclass, because torch 2.4 never compiles a Sequential in place
        def forward(self, x):
            for layer in self:
                x = layer(x)
            return x

    model = Own(*small()).eval()
    compiled = model
    if when == "inner":
        model[2] = torch.compile(model[2], backend=counting)
    elif when == "in place":
        model.compile(backend=counting)
    else:
        compiled = torch.compile(model, backend=counting)
    with torch.no_grad():
        expected = compiled(X) if when == "after it was compiled" else None
    before = len(runs)
    with hookviz.capture(compiled) as cache:
        out = compiled(X)
        out.sum().backward()
    assert list(cache) == ["0", "2.0"]
    assert cache["2.0"].gradient is not None
    assert expected is None or torch.equal(out, expected)
    assert not registered_hooks(model)
    assert len(runs) == before  # it ran eagerly within the block
    compiled(X)
    assert len(runs) > before  # and it runs compiled again after the block


def test_layers_within_data_parallel_have_names_with_and_without_module():
    model = nn.DataParallel(small())
    with hookviz.capture(model) as cache:
        model(X).sum().backward()
    assert list(cache) == ["0", "2.0"]
    assert cache["module.2.0"] is cache["2.0"]


def test_distributed_data_parallel_is_captured(tmp_path):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = f"file://{tmp_path / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        inner = small()
        model = nn.parallel.DistributedDataParallel(inner)
        with true_outputs(inner) as truths:
            inner(X).sum().backward()
        with hookviz.capture(model) as cache:
            model(X).sum().backward()
        assert_exact(cache, truths)
    finally:
        torch.distributed.destroy_process_group()


@dataclass
class Outputs:
    maps: Tensor
    extra: dict


class Structured(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        first, second = x * 2, x * 3
        return {
            "tuple": (first, None, second),
            "list": [first, [second]],
            "dict": {"out": first, "aux": {"deep": second}},
            "dataclass": Outputs(first, {"second": second}),
            "distribution": Normal(first, second, validate_args=False),
        }[self.kind]


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("tuple", ["[0]", "[2]"]),
        ("list", ["[0]", "[1][0]"]),
        ("dict", ["['out']", "['aux']['deep']"]),
        ("dataclass", [".maps", ".extra['second']"]),
        ("distribution", [".loc", ".scale"]),
    ],
)
def test_tensors_of_nested_outputs_have_paths(kind, paths):
    model = nn.Sequential(nn.Conv2d(3, 2, 1), Structured(kind))
    with hookviz.capture(model, "1") as cache:
        out = model(X)
        tensors = [tensor for _, tensor in tensors_in(out)]
        (tensors[0].sum() + 5 * tensors[1].sum()).backward()
    call = cache["1"].calls[0]
    assert [output.path for output in call.outputs] == paths
    assert torch.equal(call.activation, tensors[0])
    assert call.outputs[0].gradient.eq(1).all()
    assert call.outputs[1].gradient.eq(5).all()


def test_captures_whose_blocks_overlap_do_not_interfere():
    model = torch.compile(small(), backend="eager")
    first, second = hookviz.capture(model), hookviz.capture(model, "0", dtype=torch.float64)
    first.__enter__()
    second.__enter__()
    model(X).sum().backward()
    first.__exit__(None, None, None)
    model(X).sum().backward()
    second.__exit__(None, None, None)
    assert len(first["0"].calls) == 1
    assert len(second["0"].calls) == 2
    assert torch.equal(first["0"].activation.double(), second["0"].calls[0].activation)
    assert not registered_hooks(model)


# The model afterwards


# Selecting layers

MODEL = small()


@pytest.mark.parametrize(
    ("layers", "names"),
    [
        (None, ["0", "2.0"]),
        (nn.Conv2d, ["0", "2.0"]),
        ((nn.ReLU, nn.BatchNorm2d), ["1", "2.1", "2.2"]),
        ("2.*", ["2.0", "2.1", "2.2"]),
        ("*", ["0", "1", "2.0", "2.1", "2.2", "2", "3"]),
        (["0", "2.[12]"], ["0", "2.1", "2.2"]),
        (lambda name, module: name.endswith(".1"), ["2.1"]),
        ([MODEL[2][1], MODEL[0]], ["0", "2.1"]),
        (MODEL[1], ["1"]),
    ],
)
def test_layers_are_selected_in_every_form(layers, names):
    with hookviz.capture(MODEL, layers) as cache:
        MODEL(X)
    assert list(cache) == names


def test_a_single_convolution_is_its_own_layer():
    model = nn.Conv2d(3, 2, 1)
    with hookviz.capture(model) as cache:
        model(X)
    assert list(cache) == [""]
    assert "(model)" in repr(cache)


SCRIPTED = torch.jit.script(small())


@pytest.mark.parametrize(
    ("model", "options", "error", "words"),
    [
        (MODEL, {"layers": "2.00"}, ValueError, r"No layer .* '2.00'; close to it: '2.0'"),
        (MODEL, {"layers": ["0", "nope"]}, ValueError, "'nope'; there are: '0', '1'"),
        (MODEL, {"layers": nn.Conv3d}, ValueError, "no layer of type Conv3d; its layers are of"),
        (MODEL, {"layers": lambda name, module: False}, ValueError, "for which layers= is true"),
        (MODEL, {"layers": nn.Conv2d(1, 1, 1)}, ValueError, "not part of this Sequential"),
        (MODEL, {"layers": []}, ValueError, "no layer"),
        (MODEL, {"layers": 3}, TypeError, "layers=3 is not"),
        (MODEL, {"layers": [3]}, TypeError, "holds 3"),
        (MODEL, {"max_bytes": -1}, ValueError, "max_bytes=-1"),
        (MODEL, {"dtype": "float16"}, ValueError, "not a floating-point type"),
        (MODEL, {"dtype": torch.int32}, ValueError, "not a floating-point type"),
        (nn.Sequential(nn.Linear(2, 2)), {}, ValueError, r"no convolution layers.*layers='0'"),
        (MODEL, {"layers": torch.Tensor.relu}, TypeError, "layers=relu is a function, and only"),
        (SCRIPTED, {}, TypeError, "ScriptModule .*Sequential.* pass the eager model"),
        (nn.Sequential(SCRIPTED), {}, TypeError, "ScriptModule"),
        (nn.Conv2d, {}, TypeError, "must be a torch.nn.Module, not type"),
        (nn.Conv2d.forward, {}, TypeError, "not function: .*, a function that builds it"),
        (MODEL, {"layers": "Conv2d"}, ValueError, "is called 'Conv2d'; it is a type of layer"),
    ],
)
def test_wrong_arguments_are_refused(model, options, error, words):
    with pytest.raises(error, match=words):
        hookviz.capture(model, **options)


def test_every_convolution_class_of_torch_is_captured_by_default():
    base = torch.nn.modules.conv._ConvNd
    every = {
        kind
        for kind in vars(nn).values()
        if isinstance(kind, type) and issubclass(kind, base) and kind.__module__ == base.__module__
    }
    assert all(issubclass(kind, CONVOLUTIONS) for kind in every)


# Memory


def test_copies_have_the_requested_dtype():
    model = small()
    with hookviz.capture(model, device="cpu", dtype=torch.bfloat16) as cache:
        model(X).sum().backward()
    assert cache["0"].activation.dtype == cache["0"].gradient.dtype == torch.bfloat16
    assert cache["0"].calls[0].outputs[0].dtype == torch.float32  # the layer's dtype


def test_nbytes_counts_activations_and_gradients():
    model = small()
    with hookviz.capture(model) as cache:
        out = model(X)
        values = 4 * (2 * 4 * 6 * 6 + 2 * 4 * 4 * 4)
        assert cache.nbytes == values
        out.sum().backward()
    assert cache.nbytes == 2 * values


@pytest.mark.parametrize("budget", [0, 1000, 2048, 2304 + 1024, 10**6])
def test_the_budget_is_not_exceeded(budget):
    model = small()
    truth = hookviz.capture(model)
    with truth:
        model(X).sum().backward()
    capture = hookviz.capture(model, max_bytes=budget)
    needs = {"0": 2 * 4 * 2 * 4 * 36, "2.0": 2 * 4 * 2 * 4 * 16}
    over, left = [], budget
    for name, size in needs.items():
        if size > left:
            over.append(name)
        else:
            left -= size
    if over:
        with pytest.warns(RuntimeWarning, match=", ".join(over)) as warned, capture as cache:
            model(X).sum().backward()
        assert len(warned) == 1
    else:
        with capture as cache:
            model(X).sum().backward()
    assert cache.nbytes <= budget
    assert cache.over_budget == over
    for name in over:
        stored = cache[name].calls[0].outputs[0]
        exact = truth[name].calls[0].outputs[0]
        assert stored.shape == exact.shape
        assert stored.statistics == exact.statistics
        assert stored.gradient_statistics == exact.gradient_statistics
        with pytest.raises(RuntimeError, match=rf"max_bytes={budget} .*layers='{name}'"):
            _ = cache[name].activation
        with pytest.raises(RuntimeError, match="gradient of layer"):
            _ = cache[name].gradient
        assert "statistics only" in repr(cache)


# The mapping


def test_a_cache_is_a_mapping_and_prints_as_a_table():
    model = small()
    model.add_module("<b>bold</b>", nn.Conv1d(64, 2, 1))
    with hookviz.capture(model, ["0", "2.0", "<b>*"]) as cache:
        nn.Sequential.forward(model[:3], X).sum().backward()
    assert cache.not_called == ["<b>bold</b>"]
    assert len(cache) == 2
    assert "FeatureCache: 2 layers" in repr(cache)
    assert "1 never ran" in repr(cache)
    assert "<b>" not in cache._repr_html_()
    with pytest.raises(KeyError, match="did not run it"):
        cache["<b>bold</b>"]
    with pytest.raises(KeyError, match="close to it: '2.0'"):
        cache["2.0.0"]
    with pytest.raises(TypeError):
        cache["0"] = None
    assert repr(cache["0"]) == "LayerRecord('0', Conv2d, 1 call, (2, 4, 6, 6))"
    with pytest.raises(RuntimeError, match="inputs=True"):
        _ = cache["0"].input
