"""The callback for the Trainer of transformers, with the real library if it is installed."""

import pytest
import torch
from torch import nn

import hookviz
import hookviz.transformers

try:
    import transformers
except ImportError:
    transformers = None

needed = pytest.mark.skipif(transformers is None, reason="transformers is not installed")
quiet = pytest.mark.filterwarnings("ignore")  # transformers' own warnings


class Classifier(nn.Module):
    """A model called like those of transformers, which returns the loss with the logits."""

    def __init__(self, fault=""):
        super().__init__()
        torch.manual_seed(1)
        layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
        self.net, self.fault = nn.Sequential(*layers), fault

    def forward(self, pixel_values, labels=None):
        if self.fault == "raises":
            raise ValueError("broken")
        logits = self.net(pixel_values)
        if self.fault == "log":
            logits = (logits - logits.max() - 1).log()
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, place):
        x = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(place))
        return {"pixel_values": x, "labels": place % 2}


def trainer(model, folder, *callbacks, accumulates=1):
    arguments = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulates,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    return transformers.Trainer(
        model, arguments, train_dataset=Pairs(), eval_dataset=Pairs(), callbacks=list(callbacks)
    )


@quiet
@needed
@pytest.mark.parametrize("accumulates", [1, 2])
def test_the_callback_records_a_training_without_changing_it(tmp_path, accumulates):
    callback = hookviz.transformers.TrainerWatchCallback(every=4, diagnose=True)
    watched, alone = Classifier(), Classifier()
    trainer(watched, tmp_path, callback, accumulates=accumulates).train()
    trainer(alone, tmp_path, accumulates=accumulates).train()
    pairs = zip(watched.parameters(), alone.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert callback.watch.steps == ([0, 4, 8] if accumulates == 1 else [0, 4])
    assert not hookviz.hooks(watched)
    rows = [each for each in callback.watch.records() if each["layer"] == "net.0"]
    assert {each["phase"] for each in rows} == {"train"}
    assert callback.watch.step == 12 // accumulates
    assert all(row["update_ratio"] > 0 and row["gradient_std"] > 0 for row in rows)
    assert callback.findings.healthy and "call" in callback.findings.looked_at[0]


@needed
def test_the_callback_diagnoses_the_first_step(tmp_path):
    callback = hookviz.transformers.TrainerWatchCallback(diagnose=True)
    with pytest.warns(RuntimeWarning, match="of the first step: .*1 error.*worst: nan"):
        trainer(Classifier("log"), tmp_path, callback).train()
    found = callback.findings[0]
    assert (found.kind, found.operation) == ("nan", "log")


@quiet
@needed
def test_an_error_leaves_no_hook(tmp_path):
    callback, model = hookviz.transformers.TrainerWatchCallback(diagnose=True), Classifier("raises")
    with pytest.raises(ValueError, match="broken"), callback:
        trainer(model, tmp_path, callback).train()
    assert not callback.watch.active and not hookviz.hooks(model)
    assert callback.findings[0].kind == "error" and "broken" in callback.findings[0].message


@quiet
@needed
def test_gradients_are_divided_by_the_scale_of_the_accelerator(tmp_path):
    found = []

    class Scaled(hookviz.transformers.TrainerWatchCallback):
        def on_train_begin(self, *events, optimizer=None, **known):
            # None: training on a CPU has no scaler.
            assert optimizer.scaler is run.accelerator.scaler
            optimizer.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            super().on_train_begin(*events, optimizer=optimizer, **known)
            optimizer.scaler = None

    for kind in (Scaled, hookviz.transformers.TrainerWatchCallback):
        callback = kind()
        run = trainer(Classifier(), tmp_path, callback)
        run.train()
        found.append([each["gradient_std"] for each in callback.watch.records()])
    scaled, plain = found
    assert [1024 * each for each in scaled] == pytest.approx(plain, rel=1e-4)


@pytest.mark.skipif(transformers is not None, reason="transformers is installed")
def test_the_error_names_the_missing_library():
    with pytest.raises(ImportError, match="pip install transformers"):
        hookviz.transformers.TrainerWatchCallback()
