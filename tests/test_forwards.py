"""With unusual kinds of forward each function is correct, or refuses in one sentence."""

import copy
import warnings
from functools import cache

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from untouched import assert_untouched, snapshot

import hookviz

X = torch.rand(4, 3, 9, 9, generator=torch.Generator().manual_seed(0))
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(torch.jit|torch.ao|deprecat|quantiz|TorchScript)", "ignore:.*left out"
)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3)
        self.head = nn.Linear(6, 5)

    def features(self, x):
        return self.second(self.conv(x).relu()).relu().mean((2, 3))

    def logits(self, x):
        return self.head(self.features(x))

    def forward(self, x):
        return self.logits(x)


class InputGradient(Plain):
    """A model that adds the gradient of its energy with respect to the input."""

    def forward(self, x):
        x = x if x.requires_grad else x.view_as(x).requires_grad_()  # so that X stays as it is
        (force,) = torch.autograd.grad(self.logits(x).square().sum(), x, create_graph=True)
        return self.logits(x) + force.mean((1, 2, 3))[:, None]


class InputFlag(Plain):
    """A model that has its input require a gradient, as Wav2Vec2 does in training."""

    def forward(self, x):
        x = x if x.requires_grad else x.view_as(x)
        x.requires_grad = True
        return self.logits(x)


class InputForces(InputFlag):
    def forward(self, x):
        x = x if x.requires_grad else x.view_as(x)
        x.requires_grad = True
        (force,) = torch.autograd.grad(self.logits(x).square().sum(), x, create_graph=True)
        return self.logits(x) + force.mean((1, 2, 3))[:, None]


class Vmapped(Plain):
    def forward(self, x):
        return torch.vmap(lambda one: self.logits(one[None])[0])(x)


class Ensemble(Plain):
    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList([nn.Linear(6, 5) for _ in range(2)])

    def forward(self, x):
        weights, _ = torch.func.stack_module_state(list(self.members))

        def one(weights, x):
            return torch.func.functional_call(self.members[0], weights, (x,))

        return torch.vmap(one, (0, None))(weights, self.features(x)).mean(0)


class HiddenEnsemble(Plain):
    """An ensemble as in PyTorch's tutorial, which calls a module that is not part of the model."""

    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList([Plain() for _ in range(2)])
        self.conv = self.second = self.head = None
        self.__dict__["base"] = copy.deepcopy(self.members[0]).to("meta")

    def forward(self, x):
        weights, _ = torch.func.stack_module_state(list(self.members))
        return torch.vmap(lambda w: torch.func.functional_call(self.base, w, (x,)))(weights).mean(0)


class Tangent(Plain):
    def forward(self, x):
        value, tangent = torch.func.jvp(self.logits, (x,), (torch.ones_like(x),))
        return value + tangent


class Dual(Plain):
    def forward(self, x):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            value, tangent = forward_ad.unpack_dual(self.logits(dual))
        return value + tangent


class Gradient(Plain):
    def forward(self, x):
        slope = torch.func.grad(lambda y: self.logits(y).square().sum())(x)
        return self.logits(x) + slope.mean((1, 2, 3))[:, None]


class Curvature(Plain):
    """A model that computes a Hessian per sample, through a module or only its weights."""

    def __init__(self, by_module):
        super().__init__()
        self.by_module = by_module

    def forward(self, x):
        def energy(one):
            return (self.head(one) if self.by_module else self.head.weight @ one).tanh().sum()

        features = self.features(x)
        curvature = torch.vmap(torch.func.hessian(energy))(features)
        return self.head(features) + curvature.sum((1, 2))[:, None]


class Complex(Plain):
    """A network with a complex first convolution, as for MRI or radar."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, dtype=torch.complex64)

    def features(self, x):
        return self.second(self.conv(torch.complex(x, x.square())).abs()).relu().mean((2, 3))


class StaticallyQuantized(Plain):
    def __init__(self):
        super().__init__()
        self.quantize = torch.ao.quantization.QuantStub()
        self.dequantize = torch.ao.quantization.DeQuantStub()

    def forward(self, x):
        maps = self.second(self.conv(self.quantize(x)))
        return self.dequantize(self.head(maps.mean((2, 3))))


def quantized():
    model = StaticallyQuantized().eval()
    torch.backends.quantized.engine = torch.backends.quantized.supported_engines[-1]
    model.qconfig = torch.ao.quantization.get_default_qconfig(torch.backends.quantized.engine)
    torch.ao.quantization.prepare(model, inplace=True)
    model(X)
    return torch.ao.quantization.convert(model, inplace=True)


SCRIPT = "is a ScriptModule .*runs outside Python .* pass the eager model"
PROGRAM = "whose layers are functions|layers of this graph .* are functions"
NO_GRADIENT = "is quantized, and whole numbers have no gradient"
VMAP, JVP, GRAD = "within torch.vmap", "within torch.func.jvp|torch.func.jvp or", "torch.func.grad"
DUAL, HESSIAN = "within forward-mode differentiation", "torch.func.jvp|torch.vmap"

ALL = "all"
RECORDED = {"diagnose", "graph", "contributions", "receptive_field", "attention"}
CAPTURED = {"explore", "capture", "compare", "similarity"}
EVERY_LAYER = {"trace", "sanity_check"}
HOOKED = RECORDED | CAPTURED | EVERY_LAYER | {"survey"}

KINDS = {
    "plain": (Plain, {}),
    "forces": (InputGradient, {"similarity": "ran 2 times"}),
    "a flag of the input": (InputFlag, {}),
    "forces by a flag of the input": (InputForces, {"similarity": "ran 2 times"}),
    "complex": (Complex, {"contributions": "computes with complex numbers"}),
    "vmap": (Vmapped, dict.fromkeys(HOOKED, VMAP)),
    # The ensemble comes after the convolutions.
    "an ensemble": (
        Ensemble,
        dict.fromkeys(RECORDED - {"receptive_field"} | EVERY_LAYER | {"compare"}, VMAP),
    ),
    "jvp": (Tangent, dict.fromkeys(HOOKED, JVP)),
    "forward mode": (Dual, dict.fromkeys(HOOKED - CAPTURED, DUAL)),
    "func.grad": (
        Gradient, dict.fromkeys(HOOKED - CAPTURED, GRAD) | {"similarity": "ran 2 times"},
    ),
    "a Hessian of a module": (
        lambda: Curvature(True),
        dict.fromkeys(RECORDED | EVERY_LAYER | {"compare"}, HESSIAN),
    ),
    "a Hessian": (lambda: Curvature(False), dict.fromkeys(RECORDED, DUAL)),
    "torch.jit.script": (lambda: torch.jit.script(Plain().eval()), {ALL: SCRIPT}),
    "torch.jit.trace": (lambda: torch.jit.trace(Plain().eval(), X), {ALL: SCRIPT}),
    "torch.jit.freeze": (
        lambda: torch.jit.freeze(torch.jit.script(Plain().eval())), {ALL: SCRIPT},
    ),
    "torch.export": (lambda: torch.export.export(Plain().eval(), (X,)).module(), {ALL: PROGRAM}),
    "an exported program": (lambda: torch.export.export(Plain().eval(), (X,)), {ALL: PROGRAM}),
    "dynamic quantization": (
        lambda: torch.ao.quantization.quantize_dynamic(Plain().eval(), {nn.Linear}),
        dict.fromkeys(("diagnose", "guard", "attribute", "sanity_check"), NO_GRADIENT),
    ),
    "static quantization": (
        quantized,
        dict.fromkeys(("diagnose", "guard", "attribute", "sanity_check"), NO_GRADIENT)
        | {"contributions": "is quantized: it rounds"},
    ),
}  # fmt: skip
"""Kind of forward -> a function that builds it, and the refusals by function."""


OTHER = Plain()


@cache
def refused_everywhere(kind):
    """Build a model once for all functions: exporting takes a second, and nothing runs it."""
    return KINDS[kind][0]()


def loss(output):
    return F.cross_entropy(output, torch.arange(4))


def step(model):
    output = model(X)
    if output.requires_grad:
        loss(output).backward()


def explore(model):
    with torch.enable_grad(), hookviz.capture(model) as cache:
        model(X.clone())
    explorer = hookviz.explore(model, X)
    for name, record in explorer.cache.items():
        here, there = record.activation, cache[name].activation
        assert here.is_quantized or torch.equal(here, there)
    explorer.edit("conv", 0.5)
    explorer.close()


def capture(model):
    with hookviz.capture(model) as cache:
        step(model)
    assert cache["conv"].calls


def edit(model):
    with hookviz.edit(model, "conv", lambda output: output.clone()):
        same = model(X)
    with hookviz.edit(model, "conv", 0.5):
        other = model(X)
    assert torch.equal(model(X), same) and not torch.equal(other, same)


def guard(model):
    with hookviz.diagnose(model) as findings:
        step(model)
    assert not [finding for finding in findings if finding.kind in ("nan", "inf", "error")]


def watch(model):
    watch = hookviz.watch(model, every=1)
    with watch:
        step(model)
    assert watch.records() or watch.log.left_out


def attribute(model):
    attribution = hookviz.attribute(model, X, method="saliency", abs=False)
    x = X.clone().requires_grad_()
    output = model(x)
    (exact,) = torch.autograd.grad(output[torch.arange(4), output.argmax(1)].sum(), x)
    torch.testing.assert_close(attribution, exact)


def survey(model):
    assert hookviz.survey(model, list(X), batch_size=2).records() is not None


def contributions(model):
    hookviz.contributions(model, X, "conv", channel=1, position=(1, 1))


def receptive_field(model):
    field = hookviz.receptive_field(model, X)["second"]
    assert field.status == "unknown" or field.size == (5, 5)


FUNCTIONS = {
    "explore": explore,
    "capture": capture,
    "edit": edit,
    "trace": lambda model: hookviz.trace(model, X),
    "diagnose": lambda model: hookviz.diagnose(model, X, loss).raise_if("error"),
    "guard": guard,
    "watch": watch,
    "survey": survey,
    "compare": lambda model: hookviz.compare(model, OTHER, X),
    "graph": lambda model: hookviz.graph(model, X),
    "contributions": contributions,
    "attribute": attribute,
    "attention": lambda model: hookviz.attention(model, X),
    "similarity": lambda model: hookviz.similarity(model, model, [X]),
    "receptive_field": receptive_field,
    "sanity_check": lambda model: hookviz.metrics.sanity_check(model, X, layer="conv", steps=1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_is_correct_or_refuses_in_one_sentence(name, kind):
    make, refused = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = refused_everywhere(kind) if ALL in refused else make()
    if isinstance(model, nn.Module) and "export" not in kind:
        model.eval()
    before = snapshot(model) if isinstance(model, nn.Module) else None
    reason = refused.get(name, refused.get(ALL))
    if reason is None:
        FUNCTIONS[name](model)
    else:
        with pytest.raises((RuntimeError, ValueError, TypeError), match=reason) as error:
            FUNCTIONS[name](model)
        assert "\n" not in str(error.value) and str(error.value).count(". ") == 0
    writes_gradients = name in ("capture", "guard", "watch")
    if before is not None and not writes_gradients:
        assert_untouched(model, before)


def test_calls_of_a_forward_that_takes_gradients_are_counted_once():
    """A first run without gradients fails halfway, and its calls must not count."""
    model = InputGradient().eval()
    layers = [node.layer for node in hookviz.graph(model, X).nodes]
    assert [layers.count(name) for name in ("conv", "second", "head")] == [2, 2, 2]


def test_an_ensemble_of_members_that_are_not_called_is_not_called_examined():
    model = HiddenEnsemble().eval()
    with pytest.raises(RuntimeError, match=VMAP):
        hookviz.graph(model, X)
    (found,) = [each for each in hookviz.diagnose(model, X) if each.kind == "not examined"]
    assert found.layers[:3] == ["members.0.conv", "members.0.second", "members.0.head"]
    assert found.message.startswith("No layer was called") and len(found.layers) == 6


@pytest.mark.parametrize(
    "kind, transform",
    [
        ("plain", None), ("forces", None), ("vmap", "torch.vmap"), ("jvp", "torch.func.jvp"),
        ("forward mode", "forward-mode differentiation"), ("func.grad", "torch.func.grad"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_a_guard_notes_layers_that_a_transform_hides(kind, transform):
    model = KINDS[kind][0]().eval()
    with hookviz.diagnose(model) as findings:
        step(model)
    notes = [each for each in findings if each.kind == "not examined"]
    assert len(notes) == (transform is not None)
    assert all(each.severity == "note" and transform in each.message for each in notes)
