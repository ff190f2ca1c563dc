"""The graph of a run: a layer is a source of another if a change of its output reaches it.

A tensor has one set of sources. If parts of a tensor come from different layers, a slice of it has
the sources of all parts: it may have too many sources, but never too few.
"""

import json

import pytest
import torch
import torchvision
from architectures import MODELS, QUICK, built, model_of
from heavy import heavy_but
from perturbed import randomize
from torch import nn
from torch.nn import functional as F
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.hooking.tensors import map_tensors, tensors_in

# The oracle: change the output of one layer, hold all others, and see whose inputs change


class Oracle:
    """Finds the sources of layers by changing one output at a time and holding all others."""

    def __init__(self, model, args, layers):
        self.model, self.args, self.layers = model, args, layers
        self.outputs, self.inputs = {}, {}
        self.changed_input = None
        self.outputs, self.inputs = self.run(None)

    def run(self, changed, seed=0):
        """Return outputs and inputs by layer and call; one output changes, all others are held."""
        generator = torch.Generator().manual_seed(seed)
        calls = dict.fromkeys(self.layers, 0)
        outputs, inputs = {}, {}

        def noisy(tensor):
            if not tensor.is_floating_point():
                return tensor.clone()
            noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
            # Larger in each round, since a ReLU may stop a small change of a single channel.
            return tensor + noise * 10**seed * (1 + tensor.abs().max())

        def before(name, args, kwargs):
            inputs[name, calls[name]] = [t.clone() for _, t in tensors_in((args, kwargs))]

        def after(name, output):
            place = name, calls[name]
            calls[name] += 1
            if not self.outputs:
                outputs[place] = map_tensors(output, torch.clone)
                return map_tensors(output, torch.clone)
            held = self.outputs[place]
            return map_tensors(held, noisy if place == changed else torch.clone)

        handles = []
        for name in self.layers:
            module = self.model.get_submodule(name)
            handles.append(
                module.register_forward_pre_hook(
                    lambda module, args, kwargs, name=name: before(name, args, kwargs),
                    with_kwargs=True,
                )
            )
            handles.append(
                module.register_forward_hook(
                    lambda module, args, output, name=name: after(name, output)
                )
            )
        args = [
            noisy(each) if changed == ("input", number) else each.clone()
            for number, each in enumerate(self.args)
        ]
        try:
            with torch.no_grad():
                self.model(*args)
        finally:
            for handle in handles:
                handle.remove()
        return outputs, inputs

    def sources(self, rounds=3):
        """Return the layers and inputs whose change arrives, by layer and call."""
        places = [*(("input", n) for n in range(len(self.args))), *self.outputs]
        found = {place: set() for place in self.inputs}
        for source in places:
            for seed in range(rounds):
                _, inputs = self.run(source, seed)
                for place, tensors in inputs.items():
                    pairs = zip(tensors, self.inputs[place], strict=True)
                    if not all(torch.equal(one, other) for one, other in pairs):
                        found[place].add(source)
        return found


def check_against_oracle(model, *args, layers=None, rounds=3, exact=True):
    """Compare a graph with the oracle; return it. If not ``exact``, it may have more sources."""
    model, args = model.double().eval(), [each.double() for each in args]
    randomize(model, torch.Generator().manual_seed(0), biases=True)
    inputs = args[0] if len(args) == 1 else tuple(args)
    graph = hookviz.graph(model, inputs, layers)
    assert graph.error == ""
    names = dict.fromkeys(node.layer for node in graph.nodes if node.layer not in ("", "input"))
    truth = Oracle(model, args, list(names)).sources(rounds)
    sources = {place: set(graph.sources(*place)) for place in truth}
    pairs = {place: (sources[place], truth[place]) for place in truth}
    assert {place: pair for place, pair in pairs.items() if not pair[0] >= pair[1]} == {}
    if exact:
        assert {place: pair for place, pair in pairs.items() if pair[0] != pair[1]} == {}
    assert len(truth) == sum(node.layer not in ("", "input") for node in graph.nodes)
    return graph


@pytest.mark.parametrize("name", heavy_but(QUICK, MODELS))
def test_sources_in_torchvision_models_are_right(name):
    # ShuffleNet splits concatenated tensors, which gives too many sources.
    shuffles = name.startswith("shuffle")
    check_against_oracle(*built(name), rounds=3 if shuffles else 1, exact=not shuffles)


class Net(nn.Module):
    """Four convolutions a to d of 4 channels, with a forward from the test."""

    def __init__(self, forward):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Conv2d(4, 4, 1) for _ in "abcd")
        self.run = forward

    def forward(self, *args):
        return self.run(self, *args)


def twice(net, x):
    return net.b(net.a(net.a(x)))


def swapped(net, x):
    joined = torch.cat([net.a(x), net.b(x)], 1)
    first, second = joined.roll(4, 1).chunk(2, 1)
    return net.c(first), net.d(second * 2)


def partly_overwritten(net, x):
    y = net.a(x)
    y[:, :2] = net.b(x)[:, 2:]
    return net.c(y[:, :2].repeat(1, 2, 1, 1)), net.d(y[:, 2:].repeat(1, 2, 1, 1))


def whole_overwritten(net, x):
    y = net.a(x)
    y.copy_(net.b(x))
    return net.c(y)


def gated(net, x):
    y = net.a(x)
    return net.c(y * net.b(y.mean((2, 3), keepdim=True)).sigmoid())


def by_views(net, x):
    y = net.a(x)
    half = y[:, :2]
    half.add_(net.b(x)[:, :2])
    return net.c(y)


def pooled_apart(net, x):
    joined = F.max_pool2d(torch.cat([net.a(x), net.b(x)], 1), 2)
    joined = F.batch_norm(joined, torch.zeros(8).to(x), torch.ones(8).to(x))
    return net.c(joined[:, 4:]), net.d(F.interpolate(joined, scale_factor=2.0)[:, :4])


def unused_layer(net, x):
    net.b(x)
    return net.c(net.a(x))


def zeros_like(net, x):
    return net.c(torch.zeros_like(net.a(x)) + net.b(x))


def unrolled(net, x):
    y = x
    for _ in range(3):
        y = y + net.a(y).relu_()
    return net.b(y)


def by_a_number(net, x):
    y = net.a(x)
    found = torch.cat([y.flatten(), x.flatten()])
    return net.c(y * found[2].clone() + found[-1].clone())


def filled_by_two_layers(net, x):
    y = x.new_zeros(2, 4, 6, 6)
    y[:, :2] = net.a(x)[:, :2]
    y[:, 2:] = net.b(x)[:, 2:]
    return net.c(y)


EXACT = [twice, whole_overwritten, gated, by_views, unused_layer, zeros_like, unrolled]
EXACT += [filled_by_two_layers]
IN_PARTS = [swapped, partly_overwritten, pooled_apart, by_a_number]


@pytest.mark.parametrize("forward", EXACT, ids=lambda forward: forward.__name__)
def test_sources_are_what_a_change_reaches(forward):
    check_against_oracle(Net(forward), torch.randn(2, 4, 6, 6))


@pytest.mark.parametrize("forward", IN_PARTS, ids=lambda forward: forward.__name__)
def test_a_part_of_a_tensor_has_the_sources_of_all_parts(forward):
    graph = check_against_oracle(Net(forward), torch.randn(2, 4, 6, 6), exact=False)
    assert len(graph.sources("c")) == 2


def edges_by_name(graph):
    names = [node.name for node in graph.nodes]
    return {(names[start], names[end]) for start, end in graph.edges}


def test_both_layers_that_fill_a_buffer_are_connected():
    graph = hookviz.graph(Net(filled_by_two_layers), torch.randn(2, 4, 6, 6))
    edges = edges_by_name(graph)
    assert edges >= {("a", "copy"), ("b", "copy"), ("copy", "c")}


def test_no_edge_for_a_tensor_of_which_only_the_shape_is_used():
    graph = hookviz.graph(Net(zeros_like), torch.randn(2, 4, 6, 6))
    assert edges_by_name(graph) == {("input", "a"), ("input", "b"), ("b", "c"), ("c", "output")}


def test_each_input_is_a_node():
    def forward(net, x, y):
        return net.c(net.a(x) + net.b(y))

    graph = check_against_oracle(Net(forward), torch.randn(1, 4, 5, 5), torch.randn(1, 4, 5, 5))
    assert graph.sources("a") == [("input", 0)]
    assert graph.sources("b") == [("input", 1)]
    assert [node.name for node in graph.nodes[:2]] == ["input", "input#1"]


def test_layers_can_be_selected_including_containers():
    """One layer returns its input unchanged, and one contains others."""

    def forward(net, x):
        y = net.a(x)
        return net.c(y + net.drop(y))

    net = Net(forward)
    net.drop = nn.Sequential(nn.Dropout(), nn.Identity())
    graph = check_against_oracle(net, torch.randn(1, 4, 5, 5), layers=["a", "c", "drop", "drop.*"])
    assert graph.sources("c") == [("a", 0), ("drop", 0)]
    assert graph.sources("drop.1") == [("drop.0", 0)]


def test_sources_of_a_call_and_errors_of_wrong_names():
    graph = hookviz.graph(Net(twice), torch.randn(1, 4, 5, 5))
    assert graph.sources("a", call=0) == [("input", 0)]
    assert graph.sources("a") == graph.sources("a", call=1) == [("a", 0)]
    with pytest.raises(ValueError, match=r"'a' ran 2 times: call=2 is out of range"):
        graph.sources("a", call=2)
    with pytest.raises(ValueError, match=r"'d' did not run"):
        graph.sources("d")
    with pytest.raises(ValueError, match=r"No layer 'e' is in this graph"):
        graph.after("e")


def test_views_are_left_out_of_the_operations_after_a_layer():
    net = Net(lambda net, x: net.b(net.a(x).unsqueeze_(0).squeeze(0).relu()))
    assert hookviz.graph(net, torch.randn(1, 4, 5, 5)).after("a") == ["relu"]


def test_graph_records_and_page_of_a_resnet():
    model = torchvision.models.resnet18().eval()
    x = torch.randn(1, 3, 32, 32)
    before = snapshot(model)
    graph = hookviz.graph(model, x)
    assert_untouched(model, before)
    assert graph.after("layer1.0.conv1") == ["batch_norm", "relu"]
    assert graph.after("layer1.0.conv2") == ["batch_norm", "add", "relu"]
    assert ("layer1.1.conv2", 0) in graph.sources("layer2.0.conv1")
    assert sum(node.operation == "add" for node in graph.nodes) == 8
    names = [node.name for node in graph.nodes]
    assert len(set(names)) == len(names)
    assert all(start < end for start, end in graph.edges)
    assert [each["name"] for each in graph.records()] == names
    page = graph.to_html()
    assert all(f">{name}<" in page for name in names)


def test_a_failed_forward_has_a_graph_up_to_its_error():
    def forward(net, x):
        return net.b(net.a(x)[:, :3])

    graph = hookviz.graph(Net(forward), torch.randn(1, 4, 5, 5))
    assert graph.failed.name == "b"
    assert graph.sources("b") == [("a", 0)]
    assert "failed" in graph.verdict
    assert "✗ b" in repr(graph)
    assert 'class="failed"' in graph.to_html()


def test_only_the_layers_and_the_model_have_hooks():
    """Hooks on all modules would take as long as a small network's operations."""
    hooked = []

    def forward(net, x):
        x = net.b(net.relu(net.a(x)))
        hooked.extend(name for name, module in net.named_modules() if module._forward_hooks)
        return x

    net = Net(forward)
    net.relu = nn.ReLU()
    hookviz.graph(net, torch.randn(1, 4, 5, 5))
    assert hooked == ["", "a", "b", "c", "d"]


def test_an_error_between_layers_names_the_module_that_raised():
    """It may be a module that is not a layer of the graph, and may raise before any operation."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(nn.BatchNorm1d(2)), nn.Conv2d(2, 1, 1))
    graph = hookviz.graph(model, torch.randn(1, 1, 4, 4))
    assert (graph.failed.module, graph.unused) == ("1.0", ["2"])
    assert edges_by_name(graph) >= {("0", graph.failed.name)}


def test_a_join_has_the_name_of_the_module_that_ran_it():
    net = Net(lambda net, x: net.c(net.inner["sum"](net.a(x), net.b(x))))
    net.inner = nn.ModuleDict({"sum": model_of(lambda m, x, y: x + y)})
    graph = hookviz.graph(net, torch.randn(1, 4, 5, 5))
    assert [node.module for node in graph.nodes if node.operation == "add"] == ["inner.sum"]


# torch 2.4 cannot pad the second kind.
NESTED = [torch.strided, *([torch.jagged] if torch.__version__ >= (2, 5) else [])]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", NESTED)
def test_a_nested_tensor_has_no_shape(layout):
    """Its samples differ in size."""

    def run_packed(m, *samples):
        packed = torch.nested.as_nested_tensor(list(samples), layout=layout)
        return torch.nested.to_padded_tensor(m.two(m.one(packed).relu()), 0.0)

    samples = torch.randn(2, 4), torch.randn(3, 4)
    graph = hookviz.graph(model_of(run_packed, one=nn.Linear(4, 3), two=nn.Linear(3, 2)), samples)
    assert graph.error == "" and graph.sources("two") == [("one", 0)]
    shapes = {node.name: node.shape for node in graph.nodes}
    assert shapes == shapes | {"one": None, "two": None, "output": (2, 3, 2)}
    nested = torch.nested.nested_tensor(list(samples), layout=layout)
    graph = hookviz.graph(nn.Sequential(nn.Linear(4, 3)), nested)
    assert json.loads(json.dumps(graph.records()))[1]["shape"] is None


def test_an_empty_selection_has_no_sources():
    """A detector selects nothing if no score is high enough."""

    def forward(net, x):
        scores = torch.cat([net.a(x), net.b(x)], 1).flatten()
        return net.c(x) + scores[scores > scores.max()].sum()

    graph = hookviz.graph(Net(forward), torch.randn(1, 4, 5, 5))
    assert graph.error == ""
    assert graph.sources("c") == [("input", 0)]


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_graph_with_scripted_layers_is_refused():
    """They would look as if they had not run."""
    model = nn.Sequential(nn.Conv2d(3, 3, 1), torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3))))
    with pytest.raises(TypeError, match=r"Layer '1.0' is a ScriptModule \(Conv2d\)"):
        hookviz.graph(model, torch.rand(1, 3, 6, 6))


@pytest.mark.filterwarnings("ignore:.*(torch.ao|quantiz|TypedStorage)")
def test_dynamically_quantized_layers_are_nodes():
    torch.backends.quantized.engine = torch.backends.quantized.supported_engines[-1]
    model = model_of(
        lambda m, x: m.head(m.lstm(m.embed(x))[0].relu()),
        embed=nn.Linear(3, 4),
        lstm=nn.LSTM(4, 4),
        head=nn.Linear(4, 2),
    )
    model = torch.ao.quantization.quantize_dynamic(model.eval(), {nn.Linear, nn.LSTM})
    graph = hookviz.graph(model, torch.rand(2, 1, 3))
    assert [node.name for node in graph.nodes] == ["input", "embed", "lstm", "head", "output"]
    assert graph.sources("head") == [("lstm", 0)] and graph.unused == []


def test_weights_that_attention_uses_itself_are_not_reported_as_not_called():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    graph = hookviz.graph(model, torch.rand(1, 5, 8))
    assert graph.unused == [] and "not called" not in graph.verdict
