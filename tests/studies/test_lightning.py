"""The callback for Lightning, tested with the library if it is installed."""

import pytest
import torch
from torch import nn

import hookviz
import hookviz.lightning

try:
    import lightning
except ImportError:
    lightning = None

# Lightning uses a function that torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
needed = pytest.mark.skipif(lightning is None, reason="Lightning is not installed")


def learner(fails_at=-1, last=nn.Identity):
    class Learner(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2), last()
            self.net = nn.Sequential(*layers)

        def loss(self, batch):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def training_step(self, batch, number):
            if number == fails_at:
                raise ValueError("broken")
            return self.loss(batch)

        def validation_step(self, batch, number):
            self.log("loss", self.loss(batch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    torch.manual_seed(1)
    return Learner()


def fit(model, folder, *callbacks):
    torch.manual_seed(0)
    pairs = torch.utils.data.TensorDataset(torch.randn(24, 3, 8, 8), torch.arange(24) % 2)
    batches = torch.utils.data.DataLoader(pairs, batch_size=4)
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=list(callbacks),
        default_root_dir=folder,
        **dict.fromkeys(quiet, False),
    ).fit(model, batches, batches)
    return model


@needed
@pytest.mark.parametrize("diagnosed", [False, True])
def test_the_callback_records_a_fit_and_does_not_change_it(tmp_path, diagnosed):
    callback = hookviz.lightning.WatchCallback(every=4, diagnose=diagnosed)
    watched, alone = fit(learner(), tmp_path, callback), fit(learner(), tmp_path)
    pairs = zip(watched.parameters(), alone.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert callback.watch.steps == [0, 4, 8] and not hookviz.hooks(watched)
    # Validation runs before the first step, as a check, and after each epoch.
    assert [step.at for step in callback.watch.history("eval").steps] == [0, 6, 12]
    rows = [r for r in callback.watch.records() if (r["layer"], r["phase"]) == ("net.0", "train")]
    assert all(row["update_ratio"] > 0 and row["gradient_std"] > 0 for row in rows)
    if diagnosed:
        assert callback.findings.healthy and "1 call" in callback.findings.looked_at[0]


@needed
def test_an_error_in_a_step_leaves_no_hook(tmp_path):
    callback, model = hookviz.lightning.WatchCallback(every=2), learner(fails_at=2)
    with pytest.raises(ValueError, match="broken"):
        fit(model, tmp_path, callback)
    assert not callback.watch.active and not hookviz.hooks(model)


@needed
@pytest.mark.parametrize("which", [True, "net"])
def test_a_fault_in_the_first_batch_gives_a_warning(tmp_path, which):
    callback = hookviz.lightning.WatchCallback(diagnose=which)
    with pytest.warns(RuntimeWarning, match="of the first step: .*1 warning; worst: loss"):
        fit(learner(last=lambda: nn.Softmax(1)), tmp_path, callback)
    (found,) = callback.findings
    # A step is only watched, and the layer of the softmax is within the model.
    assert (found.kind, found.layer) == ("loss", "")


@needed
def test_an_error_in_the_first_batch_is_a_finding(tmp_path):
    callback = hookviz.lightning.WatchCallback(diagnose=True)
    with (
        pytest.warns(RuntimeWarning, match="of the first step"),
        pytest.raises(ValueError, match="broken"),
    ):
        fit(learner(fails_at=0), tmp_path, callback)
    assert callback.findings[0].kind == "error"


@pytest.mark.skipif(lightning is not None, reason="Lightning is installed")
def test_a_missing_lightning_is_reported():
    with pytest.raises(ImportError, match="pip install lightning"):
        hookviz.lightning.WatchCallback()
