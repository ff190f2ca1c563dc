"""Models that a tool has changed: traced, exported, quantized, compiled, wrapped, trained."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from .cases import Foreign
from .huggingface import _PATCHES, _as, _pretrained, _resnet

PICTURE = (2, 3, 32, 32)


def cases():
    """Yield all models of this file."""
    tools: dict[str, Callable[[nn.Module], nn.Module]] = {
        "fx.symbolic_trace": torch.fx.symbolic_trace,
        "fx.experimental.optimization.fuse": _fused,
        "compile": partial(torch.compile, backend="eager"),
        "DataParallel": nn.DataParallel,
        "AveragedModel": torch.optim.swa_utils.AveragedModel,
        "channels_last": lambda model: model.to(memory_format=torch.channels_last),
        "bfloat16": lambda model: nn.Sequential(_Cast(torch.bfloat16), model.bfloat16()),
        "float64": lambda model: nn.Sequential(_Cast(torch.float64), model.double()),
        "deepcopy": copy.deepcopy,
        "weight_norm": partial(_on_convolutions, nn.utils.parametrizations.weight_norm),
        "old weight_norm": partial(_on_convolutions, nn.utils.weight_norm),
        "spectral_norm": partial(_on_convolutions, nn.utils.parametrizations.spectral_norm),
        "prune": partial(_on_convolutions, _prune),
        "replaced forward": _forward_replaced,
    }
    for name, tool in tools.items():
        yield Foreign(f"torch/{name}", PICTURE, _resnet, finish=tool)
    unhookable: dict[str, tuple[Callable[[nn.Module], nn.Module], str]] = {
        "export": (_exported, "functions, not modules"),
        "export, unflattened": (_unflattened, "convolution"),
        "jit.script": (torch.jit.script, "ScriptModule"),
        "jit.trace": (lambda m: torch.jit.trace(m, torch.randn(PICTURE)), "ScriptModule"),
    }
    for name, (tool, said) in unhookable.items():
        yield Foreign(f"torch/{name}", PICTURE, _resnet, finish=tool, refused=said)
    vit = _pretrained("ViTForImageClassification", **_PATCHES)
    weights = partial(_torchao, "Int8WeightOnlyConfig")  # other configurations pass no gradient on
    yield Foreign("torchao/Int8WeightOnlyConfig", PICTURE, vit, _as("pixel_values"), finish=weights)
    yield Foreign(
        "torchao/Int8WeightOnlyConfig, fc of resnet18",
        PICTURE,
        _resnet,
        finish=weights,
    )
    yield Foreign("lightning/LightningModule", PICTURE, _lightning)
    yield Foreign("lightning/LightningModule, fitted", PICTURE, _lightning, finish=_fit)


class _Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


def _on_convolutions(change, model):
    for module in list(model.modules()):
        if isinstance(module, nn.Conv2d):
            change(module)
    return model


def _prune(module):
    from torch.nn.utils import prune

    prune.l1_unstructured(module, "weight", amount=0.3)


def _forward_replaced(model):
    """Replace the forward of an instance, like libraries that patch models."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.forward = partial(_scaled, module.forward)
    return model


def _scaled(forward, x):
    return forward(x) * 1.01


def _fused(model):
    from torch.fx.experimental.optimization import fuse

    return fuse(model)


def _exported(model):
    return torch.export.export(model, (torch.randn(PICTURE),)).module()


def _unflattened(model):
    return torch.export.unflatten(torch.export.export(model, (torch.randn(PICTURE),)))


def _torchao(name, model):
    import torchao.quantization

    torchao.quantization.quantize_(model, getattr(torchao.quantization, name)())
    return model


def _lightning():
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters()
            self.net = _resnet()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            x, y = batch
            loss = nn.functional.cross_entropy(self(x), y)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    return Classifier()


def _fit(model):
    """Train for one step; the model then refers to its trainer, optimizers and log."""
    import lightning

    data = [(torch.randn(3, 32, 32), torch.tensor(1)) for _ in range(2)]
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(accelerator="cpu", max_steps=1, enable_model_summary=False, **quiet)
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=2))
    return model.eval()
