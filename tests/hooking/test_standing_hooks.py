"""All hooks of a model are listed with their owner; all but those torch needs can be removed."""

import copy
import functools
import io
import linecache
import pickle

import captum.attr
import pytest
import torch
import torchcam.methods
from pytorch_grad_cam import GradCAM
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations, prune
from torchvision.models import resnet18

import hookviz
from hookviz.studies.hook_table import KINDS

SETTERS = {
    "forward_pre": "register_forward_pre_hook",
    "forward": "register_forward_hook",
    "full_backward_pre": "register_full_backward_pre_hook",
    "full_backward": "register_full_backward_hook",
    "backward": "register_backward_hook",
    "state_dict_pre": "register_state_dict_pre_hook",
    "state_dict_post": "_register_state_dict_hook",  # public since torch 2.5
    "load_state_dict_pre": "_register_load_state_dict_pre_hook",
    "load_state_dict_post": "register_load_state_dict_post_hook",
}
X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
        )


def outcome(model):
    """Return the results of a forward and a backward."""
    output = model(X)
    return [output.detach(), *torch.autograd.grad(output.square().sum(), [*model.parameters()])]


def assert_like_fresh(model):
    for got, expected in zip(outcome(model), outcome(net()), strict=True):
        assert torch.equal(got, expected)


def assert_nothing_left(module):
    """Assert that no hook, no options of hooks and no flag of backward hooks remain."""
    assert not any(value for name, value in vars(module).items() if "hook" in name)


def summaries(found):
    return [(hook.kind, hook.layer, hook.function) for hook in found]


class Fires:
    """A hook of any kind that counts its calls."""

    count = 0

    def __call__(self, *given):
        self.count += 1


@pytest.fixture
def no_global_hooks():
    """Torch's hooks for all modules, empty before and after."""
    stores = [
        value
        for name, value in vars(torch_module).items()
        if name.startswith("_global") and isinstance(value, dict)
    ]
    yield
    for each in stores:
        each.clear()
    torch_module._global_is_full_backward_hook = None


# Every kind


@pytest.mark.parametrize("kind", SETTERS)
def test_a_hook_on_a_module_is_found_and_removed(kind):
    model, fires = net(), Fires()
    handle = getattr(model[2], SETTERS[kind])(fires)
    assert summaries(hookviz.hooks(model)) == [(kind, "2", "Fires")]
    assert hookviz.hooks(model)[0].type == "ReLU"
    removed = hookviz.remove_hooks(model)
    assert summaries(removed) == [(kind, "2", "Fires")]
    assert not removed.left
    assert not len(hookviz.hooks(model))
    assert_like_fresh(model)
    model.load_state_dict(model.state_dict())
    assert not fires.count
    assert_nothing_left(model[2])
    handle.remove()


@pytest.mark.parametrize("kind", ["tensor", "post_accumulate_grad"])
def test_a_hook_on_a_parameter_is_found_and_removed(kind):
    model, fires = net(), Fires()
    name = "register_hook" if kind == "tensor" else f"register_{kind}_hook"
    handle = getattr(model[0].weight, name)(fires)
    model(X).sum().backward()
    assert fires.count == 1
    assert summaries(hookviz.hooks(model)) == [(kind, "0.weight", "Fires")]
    assert summaries(hookviz.remove_hooks(model)) == [(kind, "0.weight", "Fires")]
    model(X).sum().backward()
    assert fires.count == 1
    handle.remove()
    getattr(model[0].weight, name)(fires)
    model(X).sum().backward()
    assert fires.count == 2


GLOBAL_SETTERS = {
    f"global {kind}": f"register_module_{kind}_hook"
    for kind in (
        *("forward_pre", "forward", "full_backward_pre", "full_backward", "backward"),
        *("module_registration", "parameter_registration", "buffer_registration"),
    )
}


@pytest.mark.parametrize("kind", GLOBAL_SETTERS)
def test_a_global_hook_is_found_and_stays_unless_named(kind, no_global_hooks):
    model, fires = net(), Fires()
    handle = getattr(torch_module, GLOBAL_SETTERS[kind])(fires)
    (found,) = hookviz.hooks(model)
    assert (found.kind, found.name, found.why) == (kind, "(all models)", "is on all models")
    assert summaries(hookviz.remove_hooks(model).left) == [(kind, "", "Fires")]
    assert summaries(hookviz.remove_hooks(model, kinds=kind)) == [(kind, "", "Fires")]
    model(X).sum().backward()
    model.register_buffer("more", torch.zeros(1))
    model.more, model.extra = nn.Parameter(torch.zeros(1)), nn.ReLU()
    assert not fires.count
    assert torch_module._global_is_full_backward_hook is None
    handle.remove()


def test_all_kinds_of_hooks_are_listed():
    assert {*SETTERS, "tensor", "post_accumulate_grad", *GLOBAL_SETTERS} == set(KINDS)


def test_global_hooks_are_removed_by_group_and_function(no_global_hooks):
    for chosen in ({"kinds": "global"}, {"of": plain}):
        torch_module.register_module_forward_hook(plain, always_call=True)
        assert len(hookviz.remove_hooks(net(), **chosen)) == 1
        assert not torch_module._global_forward_hooks_always_called


# Functions and their owners


class Recorder:
    def save(self, module, args, output):
        pass


def decorated(function):
    @functools.wraps(function)
    def around(*given):
        return function(*given)

    return around


def plain(*given):
    pass


@pytest.mark.parametrize(
    ("hook", "name", "code"),
    [
        (plain, "plain", plain),
        (functools.partial(plain, 1), "plain", plain),
        (decorated(plain), "plain", plain),
        (functools.partial(decorated(functools.partial(plain, 1))), "plain", plain),
        (torch.no_grad()(plain), "plain", plain),
        (Recorder().save, "Recorder.save", Recorder.save),
        (Fires(), "Fires", Fires.__call__),
        (print, "print", None),
        ([].append, "list.append", None),
        (torch.clamp, "clamp", None),
        (torch.relu_, "relu_", None),
    ],
)
def test_hooks_are_listed_with_their_functions_names(hook, name, code):
    model = net()
    model[0].register_forward_hook(hook)
    model[0]._register_load_state_dict_pre_hook(hook, with_module=True)
    for found in hookviz.hooks(model):
        assert (found.function, found.origin) == (name, "user")
        assert found.file == (__file__ if code else "")
        assert found.line == (code.__code__.co_firstlineno if code else None)


def test_a_hook_on_several_parameters_has_its_function_name():
    model = net()
    torch.autograd.graph.register_multi_grad_hook([*model.parameters()], plain)
    found = hookviz.hooks(model)
    assert {(hook.function, hook.origin) for hook in found} == {("plain", "user")}
    assert [hook.layer for hook in found] == [name for name, _ in model.named_parameters()]
    assert len(hookviz.remove_hooks(model)) == len(found)


def test_hooks_of_other_libraries_have_their_names():
    model = resnet18(num_classes=3).eval()
    before = copy.deepcopy(model.state_dict())
    torchcam.methods.GradCAM(model, "layer4")
    grad_cam = GradCAM(model, [model.layer3])  # it removes its hooks when it is deleted
    guided = captum.attr.GuidedBackprop(model)
    model.apply(guided._register_hooks)
    makers = {hook.origin for hook in hookviz.hooks(model)}
    assert makers == {"torchcam", "pytorch_grad_cam", "captum"}
    only = hookviz.remove_hooks(model, of="torchcam")
    assert {hook.origin for hook in only} == {"torchcam"}
    assert {hook.origin for hook in only.left} == {"pytorch_grad_cam", "captum"}
    assert only[0].where.startswith("torchcam/methods/")
    assert not hookviz.remove_hooks(model).left
    guided._remove_hooks(), grad_cam.activations_and_grads.release()
    assert list(model.state_dict()) == list(before)


def test_hookviz_hooks_stay_unless_named():
    model = net()
    with hookviz.capture(model) as cache, hookviz.capture(model):
        model[2].register_forward_hook(plain)
        removed = hookviz.remove_hooks(model)
        assert summaries(removed) == [("forward", "2", "plain")]
        assert {(hook.origin, hook.repeated) for hook in removed.left} == {("hookviz", False)}
        model(X)
        assert len(hookviz.remove_hooks(model, of="hookviz")) == 2
        model(X)
    assert len(cache["0"].calls) == 1 and not hookviz.hooks(model)


# What torch needs


def spectral(model):
    nn.utils.spectral_norm(model[0])


def weight(model):
    nn.utils.weight_norm(model[0])


def parametrized(model):
    parametrizations.weight_norm(model[0])
    parametrizations.spectral_norm(model[4])


class OwnWay(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return default_mask * (t > 0)


def pruned(model):
    prune.l1_unstructured(model[0], "weight", 0.5)
    OwnWay.apply(model[4], "weight")


def checkpointed(model):
    model[0] = checkpoint_wrapper(model[0])


@pytest.mark.filterwarnings("ignore:`?torch.nn.utils.weight_norm")
@pytest.mark.parametrize("needed", [spectral, weight, parametrized, pruned, checkpointed])
def test_hooks_that_torch_needs_stay(needed):
    model, twin = net().train(), net().train()
    needed(model), needed(twin)
    twin.load_state_dict(model.state_dict())
    standing = summaries(hookviz.hooks(model))
    assert standing
    model[0].register_forward_hook(plain)
    every = [*KINDS]
    removed = hookviz.remove_hooks(model, kinds=every)
    assert [hook.function for hook in removed] == ["plain"]
    assert {hook.why for hook in removed.left} == {"torch needs it"}
    for of in ("torch", removed.left, [hook.function for hook in removed.left]):
        assert not hookviz.remove_hooks(model, of=of)
    assert summaries(hookviz.hooks(model)) == standing
    for _ in range(2):
        for got, expected in zip(outcome(model), outcome(twin), strict=True):
            assert torch.equal(got, expected)
    again = net()
    needed(again)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.eval()(X), model.eval()(X))


class Saves(nn.Module):
    """A model that registers hooks and depends on them."""

    def __init__(self):
        super().__init__()
        self.conv, self.seen, self.scale = nn.Conv2d(3, 4, 3), None, nn.ReLU()
        self.conv.register_forward_hook(self.save)
        self.scale.register_forward_hook(lambda module, args, output: output * 2)

    def save(self, module, args, output):
        self.seen = output

    def forward(self, x):
        self.conv(x)
        return self.scale(self.seen)


def test_hooks_of_the_models_class_stay_unless_named():
    model = Saves()
    expected = model(X)
    model.conv.register_forward_hook(plain)
    removed = hookviz.remove_hooks(model)
    assert [hook.function for hook in removed] == ["plain"]
    assert {hook.why for hook in removed.left} == {"the model's own"}
    assert torch.equal(model(X), expected)
    assert summaries(hookviz.remove_hooks(model, of="save")) == [("forward", "conv", "Saves.save")]


# A cell that ran twice

CELL = """
def save(module, args, output):
    seen.append(output)

model[0].register_forward_hook(save)
model[0].register_forward_hook(lambda module, args, output: None)
model[2].register_forward_hook(save)
"""


def run_cell(names, code, file):
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    exec(compile(code, file, "exec"), names)


def test_hooks_of_a_repeated_cell_are_reported():
    names = {"model": net(), "seen": [], "__name__": "__main__"}
    run_cell(names, CELL, "ipykernel_12/34.py")
    assert not hookviz.hooks(names["model"]).repeated
    run_cell(names, CELL, "ipykernel_12/34.py")
    run_cell(names, CELL.replace("seen.append", "# seen\n    seen.append"), "<ipython-input-9-aa>")
    found = hookviz.hooks(names["model"])
    times = [(hook.layer, hook.function, hook.times) for hook in found]
    assert times == [("0", "save", 3), ("0", "<lambda>", 2)] * 2 + [
        ("0", "save", 3), ("0", "<lambda>", 1), *[("2", "save", 3)] * 3
    ]  # fmt: skip
    assert len(found.repeated) == 8
    assert {hook.file for hook in found} == {"a notebook cell", "In[9]"}
    assert found.title == (
        "9 hooks on Sequential; several times: save, <lambda>. Was a cell run twice?"
    )
    assert "registered 3 times" in repr(found)
    # The function of the last run also selects those of the earlier runs.
    assert len(hookviz.remove_hooks(names["model"], of=names["save"])) == 6
    assert len(hookviz.remove_hooks(names["model"])) == 3
    assert_like_fresh(names["model"])


# Choosing hooks


CHOSEN = {
    "all": ({}, []),
    "user": ({"of": "user"}, []),
    "none": ({"kinds": []}, ["pre", "save", "plain", "tensor"]),
    "captum": ({"of": "captum"}, ["pre", "save", "plain", "tensor"]),
    "a kind": ({"kinds": "forward"}, ["pre", "tensor"]),
    "kinds": ({"kinds": ["tensor", "forward_pre"]}, ["save", "plain"]),
    "a name": ({"of": "save"}, ["pre", "plain", "tensor"]),
    "a method": ({"of": Recorder().save}, ["pre", "plain", "tensor"]),
    "a function": ({"of": [plain]}, ["save"]),
    "both": ({"kinds": "forward", "of": plain}, ["pre", "save", "tensor"]),
}


@pytest.mark.parametrize(("chosen", "left"), CHOSEN.values(), ids=CHOSEN)
def test_hooks_are_selected_by_kind_and_owner(chosen, left):
    def hooked():
        model = net()
        model[0].register_forward_pre_hook(plain)
        model[0].register_forward_hook(Recorder().save)
        model[0].register_forward_hook(plain)
        model[0].weight.register_hook(plain)
        return model

    names = {"forward_pre": "pre", "tensor": "tensor"}
    removed = hookviz.remove_hooks(hooked(), **chosen)
    assert [names.get(each.kind, each.function.rpartition(".")[2]) for each in removed.left] == left
    model = hooked()
    rest = hookviz.remove_hooks(model, of=hookviz.hooks(model)[1:3]).left
    assert [hook.kind for hook in rest] == ["forward_pre", "tensor"]


def test_invalid_arguments_are_refused_with_a_remedy():
    model = net()
    model[0].register_forward_hook(plain)
    with pytest.raises(
        ValueError, match=r"kinds='forwards' is not a kind of hook; the kinds are: forwar"
    ):
        hookviz.remove_hooks(model, kinds="forwards")
    with pytest.raises(TypeError, match=r"of=3 does not name a hook: give the function"):
        hookviz.remove_hooks(model, of=3)
    for ask in (hookviz.hooks, hookviz.remove_hooks):
        with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, not type"):
            ask(nn.ReLU)
    assert len(hookviz.hooks(model)) == 1


def test_hooks_have_tables_records_and_can_be_pickled():
    model = nn.utils.spectral_norm(net()[0])
    model.register_forward_hook(plain)
    model.weight_orig.register_hook(plain)
    found = hookviz.hooks(model)
    assert isinstance(found[0:1], type(found)) and not found.repeated
    pickle.dump(found, io.BytesIO())
    assert {"layer", "function", "origin", "times", "removable"} <= {*found.records()[0]}
    removed = hookviz.remove_hooks(model)
    assert repr(removed).startswith("Removed 2 hooks from Conv2d; ") and "Left:\nhook" in repr(
        removed
    )
    assert "torch needs it" in removed._repr_html_()
    assert repr(hookviz.hooks(nn.ReLU())) == "No hooks on ReLU"
    assert hookviz.hooks(nn.ReLU())._repr_html_() == "<p>No hooks on ReLU</p>"
