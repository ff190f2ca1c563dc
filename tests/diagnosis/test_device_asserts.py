"""What would abort a CUDA kernel is found before it runs, as an error that names the value.

The CPU is the reference: it raises an error for the same arguments.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookviz
from hookviz.run.error_messages import fix_of
from hookviz.run.recorder import Listener, Operation, OperationRecorder
from hookviz.studies.diagnosis import device_asserts

SCORES, ROWS = torch.randn(3, 4), torch.arange(3)


def index(*values):
    return torch.tensor(values)


CALLS = {
    "labels": lambda i: F.cross_entropy(SCORES, index(0, i, 1)),
    "ignored labels": lambda i: F.cross_entropy(SCORES, index(0, i, 1), ignore_index=4),
    "a label of one sample": lambda i: F.cross_entropy(SCORES[0], torch.tensor(i)),
    "labels of pixels": lambda i: F.cross_entropy(
        torch.randn(1, 4, 2, 2), torch.full((1, 2, 2), i)
    ),
    "embedding": lambda i: F.embedding(index(i), torch.randn(4, 2)),
    "gather": lambda i: SCORES.gather(1, index(i)[None]),
    "scatter": lambda i: SCORES.scatter(1, index(i)[None], 1.0),
    "scatter_add": lambda i: SCORES.scatter_add(1, index(i)[None], torch.ones(1, 1)),
    "index_select": lambda i: SCORES.index_select(1, index(i)),
    "index": lambda i: SCORES[:, index(i)],
    "two indices": lambda i: SCORES[ROWS, index(0, i, 1)],
    "a mask and an index": lambda i: torch.randn(2, 2, 4)[torch.ones(2, 2).bool(), index(i)],
    "index_put": lambda i: SCORES.index_put((ROWS, index(0, i, 1)), torch.tensor(1.0)),
    "probabilities": lambda i: F.binary_cross_entropy(index(i / 3.0), index(1.0)),
    "targets": lambda i: F.binary_cross_entropy(index(0.5), index(i / 3.0)),
}


class Asked(Listener):
    """Keeps the first error that is expected of an operation."""

    error = None

    def before(self, operation):
        self.error = self.error or device_asserts.error_of(operation)


@pytest.fixture
def asserting_cpu(monkeypatch):
    monkeypatch.setattr(device_asserts, "DEVICES", {"cpu"})


@pytest.mark.parametrize("value", [-5, -1, 0, 3, 4, 5])
@pytest.mark.parametrize("name", CALLS)
def test_an_error_is_expected_exactly_where_the_cpu_raises_one(asserting_cpu, name, value):
    asked, raised = Asked(), None
    with OperationRecorder(asked):
        try:
            CALLS[name](value)
        except (IndexError, RuntimeError) as error:
            raised = error
    assert bool(asked.error) == bool(raised), (asked.error, raised)
    if raised is not None and "INDICES" not in str(raised):  # index_select has other words
        # The CPU moves indexed dimensions to the front before it counts them.
        assert str(asked.error).partition(" for ")[0] in str(raised)


def test_diagnose_does_not_run_a_loss_that_would_abort(asserting_cpu, monkeypatch):
    run = Operation.run
    monkeypatch.setattr(
        Operation, "run", lambda operation: ran.append(operation.name) or run(operation)
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    ran, y = [], torch.tensor([0, 3])
    found = hookviz.diagnose(model, torch.randn(2, 4), lambda output: F.cross_entropy(output, y))
    assert "Target 3 is out of bounds." in found[0].message and found[0].severity == "error"
    assert "from 0 to 2" in found[0].advice and found[0].phase == "forward"
    assert "addmm" in ran and "nll_loss_forward" not in ran


def test_an_asserted_kernel_has_a_fix():
    error = RuntimeError("CUDA error: device-side assert triggered")
    assert "Restart the kernel" in fix_of(error)


def test_nothing_is_computed_for_operations_on_other_devices():
    asked = Asked()
    with OperationRecorder(asked), pytest.raises(IndexError):
        CALLS["labels"](9)
    assert asked.error is None
