"""Findings of `hookviz.diagnose` as text and HTML, and the lines of code that they name."""

import json
import linecache

import pytest
import torch
from torch import nn

import hookviz
from hookviz.results import Diagnosis, Finding

CELL = """
class Entropy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        scores = self.head(x)
        return -torch.log(scores.relu() * 0)
"""


def entropy(file):
    """Build a model as if it were defined in a file or a notebook cell."""
    names = {"nn": nn, "torch": torch, "__name__": "__main__"}
    linecache.cache[file] = (len(CELL), None, CELL.splitlines(True), file)
    exec(compile(CELL, file, "exec"), names)
    return names["Entropy"]()


X = torch.ones(2, 4)


@pytest.mark.parametrize(
    "file, line",
    [
        ("/home/me/net.py", "net.py:9"),
        ("<ipython-input-3-aa>", "In[3], line 9"),
        ("/tmp/ipykernel_12/4025613212.py", "a notebook cell, line 9"),
    ],
)
def test_a_finding_names_and_shows_its_line_of_code(file, line):
    found = hookviz.diagnose(entropy(file), X)
    assert found[0].where == f"the model itself, log, {line}"
    assert found[0].code == "return -torch.log(scores.relu() * 0)"
    title = f"inf in the model itself, log, {line}"
    assert found.verdict.startswith("Entropy: 1 error")
    assert found.verdict.endswith(f"worst: {title}")
    text = repr(found).splitlines()
    assert text[:4] == [
        found.verdict, "", f"[0] error: {title}", "    return -torch.log(scores.relu() * 0)"
    ]  # fmt: skip
    assert "ipykernel" not in repr(found) + found._repr_html_()


def test_a_finding_outside_the_model_names_the_function_that_the_user_called():
    """Not the layer "", which is the model itself, and not an operation within the function."""
    model = torch.nn.Linear(4, 3)
    losses = {
        "loss outside the model, cross_entropy, test_findings.py:": lambda out: (
            torch.nn.CrossEntropyLoss()(out.softmax(1), torch.tensor([0, 1]))
        ),
        "nan outside the model, log, test_findings.py:": lambda out: (out * 0 - 1).log().sum(),
    }
    for title, loss in losses.items():
        with hookviz.diagnose(model) as guarded:
            loss(model(X)).backward()
        for found in (guarded[0], hookviz.diagnose(model, X, loss)[0]):
            assert found.title.startswith(title), found
            operation = title.split(", ")[1]
            assert found.message.startswith((f"{operation} (", f"{operation} made NaN"))


def test_to_json_is_complete_and_worst_filters_by_severity():
    """``to_json`` is complete, for scripts; ``worst`` leaves out less severe findings."""
    found = hookviz.diagnose(entropy("/home/me/net.py").train(), X)
    whole = json.loads(found.to_json())
    assert sorted(whole) == ["findings", "healthy", "looked_at", "model", "verdict"]
    assert (whole["model"], whole["healthy"], whole["verdict"]) == ("Entropy", False, found.verdict)
    assert whole["findings"] == found.records() and whole["looked_at"] == found.looked_at
    severities = [finding.severity for finding in found]
    assert severities[0] == "error" and found.worst("note") == list(found)
    assert found.worst("error") == found[: severities.count("error")]


def test_an_error_is_located_in_the_users_code():
    found = hookviz.diagnose(entropy("<ipython-input-3-aa>"), torch.ones(2, 5))
    assert (found[0].kind, found[0].layer) == ("shape", "head")
    assert found[0].at == "In[3], line 8"
    assert found[0].code == "scores = self.head(x)"


def test_the_source_of_a_wrong_shape_is_named_with_its_cell():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = entropy("<ipython-input-7-aa>"), nn.Linear(4, 2)

        def forward(self, x):
            return self.second(self.first(x))

    found = hookviz.diagnose(Two(), X)
    assert "made by neg in 'first' at In[7], line 9" in found[0].message


def test_a_healthy_diagnosis_lists_what_was_checked():
    found = hookviz.diagnose(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), X)
    verdict, looked_at = repr(found).split("\n\n")
    assert (verdict, found.healthy) == ("Sequential: healthy", True)
    assert looked_at.startswith("Looked at: whether the model runs; ")
    assert ">healthy</span>" in found._repr_html_()
    assert "whether the model runs" in found._repr_html_()


def test_the_html_escapes_names_and_counts_findings():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("<b>", nn.Linear(2, 2))
            self.used = nn.Linear(4, 3)

        def forward(self, x):
            return self.used(x)

    found = hookviz.diagnose(Two(), X)
    page = found._repr_html_()
    assert ">1 warning</span>" in page and ">unused</span>" in page
    assert page.count("<b>") == 2 and "&lt;b&gt;" in page
    assert page.count("<tr>") == len(found) == 1


def test_the_worst_findings_come_first_and_the_others_are_folded():
    """A terminal shows at most 25 lines, a notebook five findings; `text` has all."""
    findings = Diagnosis("Net")
    kinds = ["training mode", "dead", "in place", "nan", "unused", "saturated", "loss"]
    severity = {"nan": "error", "dead": "warning", "unused": "warning", "loss": "warning"}
    findings.set_findings(
        [
            Finding(kind, severity.get(kind, "note"), "A sentence. " * 12, "Change it.", kind)
            for kind in kinds
        ],
        ["the mode"],
    )
    assert [each.kind for each in findings][:4] == ["nan", "dead", "unused", "loss"]
    shown = repr(findings).splitlines()
    assert len(shown) <= 25 and shown[2].startswith("[0] error: nan")
    assert "print(findings.text()) shows all." in " ".join(shown[-2:])
    assert all(f"in layer {kind!r}" in findings.text() for kind in kinds)
    first, _, more = findings._repr_html_().partition("<summary>2 more</summary>")
    assert first.count("<tr>") == 5 and more.count("<tr>") == 2


def test_a_guard_without_a_call_is_not_healthy():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    findings = hookviz.diagnose(model)
    assert "not looked at" in findings.verdict and not findings.healthy
    assert "not looked at" in findings._repr_html_()
    with findings:
        pass
    assert "not looked at" in repr(findings) and not findings.healthy
    with hookviz.diagnose(model) as findings:
        model(X)
    assert findings.healthy
    assert findings.looked_at[0] == "NaN and Inf in outputs of the model, in 1 call"


@pytest.mark.parametrize("change", [lambda x: x > 0, lambda x: torch.tensor(x.tolist())])
def test_a_graph_that_a_hook_cuts_is_reported_once(change):
    """The layer returns a tensor without a graph, so the layer before it has no gradient either."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    model[1].register_forward_hook(lambda module, args, output: change(output).float())
    (found,) = [e for e in hookviz.diagnose(model, X) if e.severity != "note"]
    assert found.kind == "no gradient" and sorted(found.layers) == ["0", "1"]
    assert "test_findings.py" in found.at


def test_show_opens_at_the_nearest_layer_with_maps():
    class Surprise(nn.Module):
        def __init__(self, *body):
            super().__init__()
            self.body = nn.Sequential(*body)
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return (self.body(x).flatten(1).mean(1) * self.scale) / 0

    x = torch.rand(2, 3, 8, 8)
    found = hookviz.diagnose(Surprise(nn.Conv2d(3, 4, 3), nn.ReLU()), x)
    assert found[0].layer == ""
    explorer = found.show()
    assert explorer.layer == "body.1"
    explorer.close()
    with pytest.raises(ValueError, match="Unknown finding 9"):
        found.show(9)
    with pytest.raises(ValueError, match="neither the model itself nor a layer before it"):
        hookviz.diagnose(Surprise(nn.Flatten(0), nn.Unflatten(0, (2, 3, 8, 8, 1, 1))), x).show()
