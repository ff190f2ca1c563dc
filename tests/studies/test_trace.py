"""A trace lists every kind of hook in the order in which torch calls them."""

import copy
import warnings

import numpy as np
import pytest
import torch
from architectures import model_of
from seen import framed, registered
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.studies.trace.events import Event, sample_of

IN_PLACE = (
    "was not set: the module's {} is overwritten in place, as by nn.ReLU(inplace=True) or x += y, "
    "and PyTorch forbids that under a full backward hook; a tensor hook works"
)


def fired(trace):
    return [(event.kind, event.name) for event in trace if event.fired]


def unfired(trace):
    return {(event.kind, event.name): event.note for event in trace if not event.fired}


def order(text):
    """Parse hooks written as a sign for the kind and the module's name; M is the model."""
    kinds = {
        ">": "forward_pre",
        "<": "forward",
        "(": "full_backward_pre",
        ")": "full_backward",
        "~": "tensor",
    }
    return [(kinds[each[0]], each[1:].replace("M", "(model)")) for each in text.split()]


def plain_sequential():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten())


def run_residual(m, x):
    """Two convolutions, an in-place ReLU that runs twice, and an in-place addition."""
    out = m.conv2(m.relu(m.conv1(x)))
    out += m.side(x)
    return m.relu(out)


def classifier():
    block = model_of(
        run_residual,
        conv1=nn.Conv2d(2, 2, 3, padding=1),
        conv2=nn.Conv2d(2, 2, 3, padding=1),
        side=nn.Conv2d(2, 2, 1),
        relu=nn.ReLU(inplace=True),
    )
    pool = nn.AdaptiveAvgPool2d(1)
    return model_of(lambda m, x: m.pool(m.block(x)).flatten(1), block=block, pool=pool)


# The order of the hooks


def test_order_in_a_sequential():
    trace = hookviz.trace(plain_sequential(), torch.rand(1, 1, 5, 5))
    # In the backward, a module's gradient passes its end (full_backward_pre), its output tensor
    # (tensor), and its start (full_backward).
    assert fired(trace) == order(">M >0 <0 >1 <1 >2 <2 <M (M ~M (2 ~2 )2 (1 ~1 )1 (0 ~0 )0 )M")
    assert unfired(trace) == {}


def test_order_in_a_residual_block():
    trace = hookviz.trace(classifier(), torch.rand(1, 2, 6, 6))
    forward = (
        ">M >block >block.conv1 <block.conv1 >block.relu <block.relu >block.conv2 <block.conv2 "
        ">block.side <block.side >block.relu <block.relu <block >pool <pool <M "
    )
    # conv1, conv2 and relu touch overwritten tensors; side, block and pool do not. The backward
    # takes the branch that ran last first, and the two gradients of the block's input are added
    # at its start. The last ReLU and the block return the same tensor, whose hooks run in the
    # order in which they were registered.
    backward = (
        "(M ~M (pool ~pool )pool (block ~block.relu ~block (block.side ~block.side )block.side "
        "~block.conv2 ~block.relu ~block.conv1 )block )M"
    )
    assert fired(trace) == order(forward + backward)
    cannot = {"block.conv1", "block.conv2", "block.relu"}
    kinds = ("full_backward_pre", "full_backward")
    assert set(unfired(trace)) == {(kind, name) for kind in kinds for name in cannot}
    assert set(unfired(trace).values()) == {IN_PLACE.format(each) for each in ("input", "output")}
    assert trace.title.endswith("6 hooks did not fire: the notes say why")
    relu = [event.call for event in trace if event.name == "block.relu" and event.fired]
    assert relu == [0, 0, 1, 1, 1, 0]
    depths = {event.name: event.depth for event in trace}
    assert depths == {"(model)": 0, "block": 1, "pool": 1} | dict.fromkeys(cannot, 2) | {
        "block.side": 2
    }


def test_call_numbers_are_right_if_only_the_first_call_gets_a_gradient():
    def run_twice(m, x):
        first = m.fc(x)
        m.fc(2 * x)
        return first

    trace = hookviz.trace(model_of(run_twice, fc=nn.Linear(3, 3)), torch.rand(1, 3))
    backward = [event for event in trace if event.layer == "fc" and event.backward]
    assert [(event.kind, event.call) for event in backward if event.fired] == [
        ("full_backward_pre", 0),
        ("tensor", 0),
        ("full_backward", 0),
    ]
    (silent,) = [event for event in backward if not event.fired]
    assert (silent.kind, silent.call) == ("tensor", 1)


# The values that hooks receive


def test_values_equal_those_of_autograd():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    values = [torch.randn(1, 2, requires_grad=True)]
    for layer in model:
        values.append(layer(values[-1]))
    gradients = torch.autograd.grad(values[-1][0, 0], values)
    trace = hookviz.trace(model, values[0].detach(), target=0)
    wanted = {}
    for name, start, end in (("0", 0, 1), ("1", 1, 2), ("2", 2, 3), ("(model)", 0, 3)):
        wanted |= {("forward_pre", name): values[start], ("forward", name): values[end]}
        wanted |= {(kind, name): gradients[end] for kind in ("full_backward_pre", "tensor")}
        wanted["full_backward", name] = gradients[start]
    for event in trace:
        value = wanted.pop((event.kind, event.name)).detach()
        assert torch.equal(torch.from_numpy(event.sample), value)
        assert (event.shapes, event.dtypes) == ((tuple(value.shape),), ("float32",))
        known = event.statistics
        assert (known.min, known.max) == (value.min(), value.max())
        assert known.zeros == pytest.approx(float((value == 0).float().mean()))
        assert known.norm == pytest.approx(float(value.norm()))
    assert not wanted


def test_traces_of_in_place_networks_equal_capture_and_name_refused_hooks():
    model = classifier().train().requires_grad_(False)
    x = torch.rand(2, 2, 6, 6)
    before = snapshot(model)
    trace = hookviz.trace(model, x, target=1)
    assert_untouched(model, before)

    # Capture, which other tests compare with copies made without hooks, has the same numbers.
    with hookviz.capture(model.eval(), lambda name, module: True) as cache:
        model(x.requires_grad_())[:, 1].sum().backward()
    for event in trace:
        if event.kind in ("forward", "tensor"):
            call = cache[event.layer].calls[event.call].outputs[0]
            value = call.value if event.kind == "forward" else call.gradient
            assert np.array_equal(event.sample, sample_of(value))
            assert event.statistics.max == float(value.max())
    for layer in {event.layer for event in trace if not event.fired}:  # torch refuses them, too
        handle = model.get_submodule(layer).register_full_backward_hook(lambda *_: None)
        with pytest.raises(RuntimeError, match="modified inplace|modified by an inplace"):
            model(x).sum().backward()
        handle.remove()


def test_event_samples_are_small_copies_of_the_first_sample_and_channel():
    value = torch.arange(2.0 * 3 * 130 * 20).reshape(2, 3, 130, 20)
    assert np.array_equal(sample_of(value), value[0, 0, ::3].numpy())
    assert sample_of(value).base is None
    assert sample_of(torch.arange(5.0)).tolist() == [[0, 1, 2, 3, 4]]
    assert sample_of(torch.tensor(7)).tolist() == [[7]]
    shapes = {(3, 1000): (1, 500), (1, 2, 3, 4, 5): (4, 5)}
    assert {size: sample_of(torch.zeros(size)).shape for size in shapes} == shapes
    assert sample_of(torch.zeros(2, 0)) is None


# Models of all kinds


def test_outputs_in_dicts_and_tuples_are_traced():
    def several(m, x):
        out = m.split(m.fc(x))
        return {"logits": out[0] * 2, "rest": [out[1]["b"], None]}

    split = model_of(lambda m, x: (x[:, :2], {"b": x[:, 2:]}))
    trace = hookviz.trace(model_of(several, fc=nn.Linear(3, 4), split=split), torch.rand(1, 3))
    returned = {event.name: event.shapes for event in trace if event.kind == "forward"}
    assert returned == {
        "fc": ((1, 4),),
        "split": ((1, 2), (1, 2)),
        "(model)": ((1, 2), (1, 2)),
    }
    paths = [(e.name, e.path, e.fired) for e in trace if e.kind == "tensor"]
    assert paths == [
        ("(model)", "['logits']", True),
        ("split", "[0]", True),
        ("fc", "", True),
        ("split", "[1]['b']", False),
        ("(model)", "['rest'][0]", False),
    ]
    code = next(e.code for e in trace if e.path == "['logits']")
    assert code.startswith("handle = output['logits'].register_hook(hook)")
    note = "did not fire: PyTorch calls it only if the output is a tensor or a tuple, not a dict"
    assert unfired(trace)["full_backward", "(model)"] == note


def test_a_note_says_that_an_integer_input_has_no_gradient():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(8, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = hookviz.trace(model, torch.tensor([[1, 2]]))
    (event,) = [e for e in trace if e.kind == "full_backward" and e.name == "0"]
    assert event.note.startswith("grad_input has no tensor")
    assert (event.shapes, event.sample) == ((), None)
    assert trace[0].dtypes == ("int64",)


@pytest.mark.parametrize(("reentrant", "stop"), [(True, True), (False, True), (False, False)])
def test_activation_checkpointing_is_traced(reentrant, stop):
    """Without an early stop, a block that runs again returns what got its gradient before."""

    def checkpointed(m, x):
        for _ in range(2):
            x = checkpoint(m.body, x, use_reentrant=reentrant)
        return x

    model = model_of(checkpointed, body=nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    x = torch.rand(1, 3)
    before = snapshot(model)
    with set_checkpoint_early_stop(stop):
        trace = hookviz.trace(model, x)
    assert_untouched(model, before)
    again = [e for e in trace if "run again" in e.note]
    assert {e.name for e in again} == {"body", "body.0", "body.1"}
    assert [e.call for e in again if (e.kind, e.name) == ("forward_pre", "body")] == [1, 0]
    assert {name for kind, name in fired(trace) if kind == "tensor"} >= {"body.0", "body.1"}
    assert not [name for kind, name in unfired(trace) if kind == "tensor"]


def test_modules_that_accept_no_hook_get_a_note():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU()))
        trace = hookviz.trace(nn.Sequential(scripted, nn.Flatten()), torch.rand(1, 1, 2, 2))
    notes = unfired(trace)
    assert set(notes) == {
        (kind, name)
        for kind in ("forward_pre", "forward", "full_backward_pre", "full_backward")
        for name in ("0", "0.0", "0.1")
    }
    assert all("not supported on ScriptModules" in note for note in notes.values())
    assert ("full_backward", "1") in fired(trace)


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning")
def test_a_note_names_the_old_style_hook_that_prevents_a_full_backward_hook():
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    model[0].register_backward_hook(lambda *_: None)
    x = torch.rand(1, 2)
    before = snapshot(model)
    trace = hookviz.trace(model, x)
    assert_untouched(model, before)
    assert list(unfired(trace)) == [("full_backward", "0")]
    assert "regular backward hooks" in unfired(trace)["full_backward", "0"]


def test_a_note_says_whether_the_score_depends_on_the_input_or_the_output():
    # The last layer returns a parameter, whatever its input is.
    notes = unfired(
        hookviz.trace(
            nn.Sequential(
                nn.Linear(3, 3),
                model_of(lambda m, x: 2 * m.weight, weight=nn.Parameter(torch.ones(1, 3))),
            ),
            torch.rand(1, 3),
        )
    )
    assert notes["full_backward", "1"].endswith("the score does not depend on its input")
    assert notes["full_backward", "0"].endswith("the score does not depend on its output")


def test_full_backward_hooks_are_left_out_where_they_raise():
    model = model_of(
        lambda m, x: m.last(m.max(m.fc(x)).values),
        fc=nn.Linear(3, 3),
        # It returns a named tuple, which a full backward hook cannot rebuild.
        max=model_of(lambda m, x: torch.max(x, 1, keepdim=True)),
        last=nn.Linear(1, 2),
    )
    x = torch.rand(1, 3)
    before = snapshot(model)
    trace = hookviz.trace(model, x)
    assert_untouched(model, before)
    assert set(unfired(trace)) == {("full_backward_pre", "max"), ("full_backward", "max")}
    assert ("full_backward", "fc") in fired(trace)


def test_all_full_backward_hooks_are_left_out_if_one_is_not_enough():
    def suspicious(m, x):
        """Overwrite a tensor only if a hook has touched it."""
        out = m.fc(x)
        return out.mul_(2) if "BackwardHook" in out.grad_fn.name() else out * 2

    trace = hookviz.trace(model_of(suspicious, fc=nn.Linear(3, 3)), torch.rand(1, 3))
    assert fired(trace) == order(">M >fc <fc <M ~M ~fc")
    assert len(unfired(trace)) == 4


def test_shared_modules_have_one_name_and_wrapped_ones_their_full_path():
    shared = nn.Linear(3, 3)
    trace = hookviz.trace(
        nn.DataParallel(nn.Sequential(shared, nn.Sequential(nn.Tanh(), shared))), torch.rand(1, 3)
    )
    events = [event for event in trace if event.name == "0"]
    calls = [0, 0, 1, 1, 1, 1, 1, 0, 0, 0]  # the backward goes through the last call first
    assert [event.call for event in events] == calls
    kinds = ["full_backward_pre", "tensor", "full_backward"]
    assert [event.kind for event in events[4:]] == 2 * kinds
    assert 'model.get_submodule("module.0").register_forward_hook(hook)' in events[1].code


def test_the_code_of_each_event_registers_the_hook():
    """The code of an event registers a hook that gets as many arguments as its comment lists."""
    model, x = plain_sequential(), torch.rand(1, 1, 5, 5)
    trace = hookviz.trace(model, x)
    for event in trace:
        got = []
        names = {"model": model, "hook": lambda *given, got=got: got.append(len(given))}
        if event.kind == "tensor":
            outer = model.get_submodule(event.layer)
            outer.register_forward_hook(
                lambda m, a, output, event=event, names=names: exec(
                    event.code, names | {"output": output}
                )
            )
        else:
            exec(event.code, names)
        model(x.clone().requires_grad_()).sum().backward()
        hookviz.remove_hooks(model)
        wanted = event.code.rpartition("# hook(")[2].partition(")")[0].count(",") + 1
        assert got == [wanted], event.code


# Errors


def test_errors_leave_the_model_as_it_was():
    model = plain_sequential()
    x, bad = torch.rand(1, 1, 5, 5), torch.rand(1, 5, 5, 5)
    lazy = nn.Sequential(nn.LazyLinear(2))
    before = snapshot(model)
    with pytest.raises(ValueError, match="does not fit layer '0'"):
        hookviz.trace(model, bad)
    with pytest.raises(ValueError, match="target=99 is not a class of this model"):
        hookviz.trace(model, x, target=99)
    with pytest.raises(ZeroDivisionError):
        hookviz.trace(model, x, target=lambda output: 1 / 0)
    with pytest.raises(KeyboardInterrupt):
        hookviz.trace(model, x, target=_interrupt)
    with pytest.raises(TypeError, match="must be a torch.nn.Module, not type"):
        hookviz.trace(nn.Linear, x)
    with pytest.raises(ValueError, match="is lazy"):
        hookviz.trace(lazy, x)
    assert_untouched(model, before)


def _interrupt(output):
    raise KeyboardInterrupt


def test_the_title_says_that_there_is_no_backward_without_class_scores():
    trace = hookviz.trace(nn.Conv2d(1, 2, 1), torch.rand(1, 1, 3, 3))
    assert fired(trace) == order(">M <M")
    assert "no class scores, so no backward" in trace.title
    whole = hookviz.trace(nn.Conv2d(1, 2, 1), torch.rand(1, 1, 3, 3), target=torch.sum)
    assert fired(whole) == order(">M <M (M ~M )M")


# The sequence and its tables


@pytest.fixture(scope="module")
def residual():
    return hookviz.trace(classifier(), torch.rand(1, 2, 6, 6))


def test_a_trace_is_a_sequence_with_flat_plain_records(residual):
    assert isinstance(residual[0], Event)
    assert [event.index for event in residual] == list(range(len(residual)))
    part = residual[3:6]
    assert isinstance(part, hookviz.results.Trace) and [event.index for event in part] == [3, 4, 5]
    with pytest.raises(IndexError, match=f"Event 999 .*: this trace has {len(residual)}"):
        residual[999]
    rows = residual.records()
    assert len(rows) == len(residual)
    row = rows[2]
    assert (row["kind"], row["layer"], row["shape"]) == ("forward_pre", "block.conv1", [1, 2, 6, 6])
    assert row["max"] == residual[2].statistics.max
    assert rows[-1]["time"] is None and rows[-1]["mean"] is None


def test_modules_that_were_not_called_are_listed():
    model = nn.Sequential(nn.Linear(2, 2))
    model.spare = nn.Sequential()
    model.forward = lambda x: model[0](x)
    model.many = nn.ModuleList([nn.Tanh()])
    assert hookviz.trace(model, torch.rand(1, 2)).not_called == ["spare", "many.0"]


@pytest.mark.filterwarnings("ignore:.*(torch.ao|quantiz|TypedStorage)")
def test_the_packed_weights_of_quantized_layers_are_not_modules_that_did_not_run():
    torch.backends.quantized.engine = torch.backends.quantized.supported_engines[-1]
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)), {nn.Linear})
    assert hookviz.trace(model.eval(), torch.rand(1, 2)).not_called == []


def test_the_table_of_a_trace_has_all_hooks_and_notes(residual):
    lines = repr(residual).splitlines()
    assert sum(line.split()[0].isdigit() for line in lines) == len(residual)
    assert lines[0].startswith("Trace of Model: 32 hooks fired, 16 in the forward and 16")
    inner, outer = (
        next(line for line in lines if f" {name} " in line) for name in ("block.conv1", "block")
    )
    assert inner.index("block.conv1") == outer.index("block") + 2
    notes = " ".join(" ".join(lines).split())
    assert all(event.note in notes for event in residual)
    assert residual._repr_html_().count("<tr>") == len(residual) + 1
    long = hookviz.trace(nn.Sequential(*[nn.Tanh() for _ in range(60)]), torch.rand(1, 2))
    assert len(repr(long).splitlines()) < 130
    assert "…" in repr(long)


# The player


def test_the_player_contains_all_events_and_frees_its_widgets(residual):
    before = registered()
    player = residual.show()
    assert residual.show() is player
    assert len(framed(player)["events"]) == len(residual)
    data = residual._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == player.model_id
    assert data["text/html"].startswith("<div") and data["text/plain"] == repr(residual)
    assert copy.deepcopy(residual).records() == residual.records()
    residual.close()
    assert player.closed and registered() == before
    assert residual.show() is not player
    residual.close()
    assert set(residual[:0]._repr_mimebundle_()) == {"text/plain", "text/html"}
    with pytest.raises(ValueError, match="is empty"):
        residual[:0].show()
