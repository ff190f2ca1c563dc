"""Networks that learn scikit-learn's digits in seconds: healthy models at each stage of training.

`NETS` maps names to networks. Each defines its model, input and loss; `Trained` stores a network
before the first step, after an epoch and at the end.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 64
STAGES = ("step 0", "an epoch", "the end")


@cache
def digits():
    """Return training pictures ``(N, 1, 8, 8)`` centred on zero with labels, and a test set."""
    from sklearn.datasets import load_digits

    pictures, labels = load_digits(return_X_y=True)
    x = (torch.tensor(pictures, dtype=torch.float32).view(-1, 1, 8, 8) - 4.9) / 6.0
    y = torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    learn, judge = order[:1400], order[1400:]
    return x[learn], y[learn], x[judge], y[judge]


def cross_entropy(output, pictures, labels):
    return F.cross_entropy(output.float(), labels)


def one_hot_bce(output, pictures, labels):
    """Binary cross entropy of probabilities: the network's last layer is a sigmoid."""
    return F.binary_cross_entropy(output, F.one_hot(labels, 10).float())


def rebuilt(output, pictures, labels):
    return F.mse_loss(output, ink(pictures))


def ink(pictures):
    """Scale pictures to 0 (paper) to 1 (ink)."""
    return (pictures * 6.0 + 4.9) / 16.0


def inked(output, pictures, labels):
    """Return segmentation targets: each pixel is paper or has the class of its digit."""
    truth = torch.where(ink(pictures)[:, 0] > 0.5, labels[:, None, None] + 1, 0)
    return F.cross_entropy(output, truth)


ADAM = partial(torch.optim.Adam, lr=3e-3)


@dataclass(frozen=True)
class Net:
    """How one network is built and trained."""

    build: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor, Tensor], Tensor] = cross_entropy
    given: Callable[[Tensor], Tensor] = lambda pictures: pictures
    optimizer: Callable[..., torch.optim.Optimizer] = ADAM
    epochs: int = 6
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    correct: bool = True  # whether it predicts classes
    least: float = 0.93


@dataclass
class Trained:
    """A network at several stages of its training."""

    net: Net
    stages: dict[str, nn.Module] = field(default_factory=dict)

    def accuracy(self):
        """The fraction of correct predictions at the end."""
        _, _, x, y = digits()
        model = self.stages["the end"].eval()
        with torch.no_grad(), self.net.around():
            return (model(self.net.given(x)).argmax(1) == y).float().mean().item()


@cache
def trained(name):
    """Train a network reproducibly."""
    net = NETS[name]
    torch.manual_seed(0)
    model, (x, y, _, _) = net.build(), digits()
    learns = [each for each in model.parameters() if each.requires_grad]
    optimizer, found = net.optimizer(learns), Trained(net, {STAGES[0]: copy.deepcopy(model)})
    for epoch in range(net.epochs):
        model.train()
        if epoch == 1:
            found.stages[STAGES[1]] = copy.deepcopy(model)
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            with net.around():
                loss = net.loss(model(net.given(x[batch])), x[batch], y[batch])
            loss.backward()
            optimizer.step()
    found.stages[STAGES[2]] = model
    return found


# The networks.


def _plain(*norm, width=16):
    def stage(before, after):
        return [nn.Conv2d(before, after, 3, padding=1), *(n(after) for n in norm), nn.ReLU()]

    return nn.Sequential(
        *stage(1, width), *stage(width, width), nn.MaxPool2d(2), *stage(width, 2 * width),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * width, 10),
    )  # fmt: skip


class Around(nn.Module):
    """A residual connection around a scaled branch."""

    def __init__(self, *branch, scale=None):
        super().__init__()
        self.branch = nn.Sequential(*branch)
        self.scale = None if scale is None else nn.Parameter(scale)

    def forward(self, x):
        y = self.branch(x)
        return x + (y if self.scale is None else self.scale * y)


class ChannelsLast(nn.Module):
    """LayerNorm over channels, as in ConvNeXt."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _pooled(width):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


def convnext():
    """Build a ConvNeXt whose LayerScale starts at 1e-6."""

    def block():
        return Around(
            nn.Conv2d(32, 32, 7, padding=3, groups=32), ChannelsLast(32), nn.Conv2d(32, 128, 1),
            nn.GELU(), nn.Conv2d(128, 32, 1), scale=torch.full((32, 1, 1), 1e-6),
        )  # fmt: skip

    stem = [nn.Conv2d(1, 32, 2, 2), ChannelsLast(32)]
    return nn.Sequential(*stem, block(), block(), ChannelsLast(32), *_pooled(32))


def depthwise():
    """Build a MobileNet: inverted bottlenecks with ReLU6."""

    def block(width, wide):
        return Around(
            nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(inplace=True), nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    stem = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()]
    return nn.Sequential(*stem, block(16, 64), nn.MaxPool2d(2), block(16, 64), *_pooled(16))


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width):
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))


def squeeze_excite():
    def stage(before, after):
        return [
            nn.Conv2d(before, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.SiLU(),
            Gate(after),
        ]

    return nn.Sequential(
        *stage(1, 16), *stage(16, 32), nn.MaxPool2d(2), *stage(32, 32), *_pooled(32)
    )


def resnet():
    """Build a ResNet whose last BatchNorm in each branch starts with a scale of 0."""

    def block():
        last = nn.BatchNorm2d(16)
        nn.init.zeros_(last.weight)
        return Around(
            nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3, padding=1, bias=False), last,
        )  # fmt: skip

    stem = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    body = [each for _ in range(4) for each in (block(), nn.ReLU(inplace=True))]
    return nn.Sequential(*stem, *body, *_pooled(16))


class Recurrent(nn.Module):
    """A recurrent layer that reads a picture row by row."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.layer(x[:, 0])[0][:, -1])


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        parts = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class Vit(nn.Module):
    """A ViT with a class token, four attention blocks, and a head that starts at zero."""

    def __init__(self, width=32):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks = nn.Sequential(*[each for _ in range(2) for each in self._block(width)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def _block(self, width):
        yield Around(nn.LayerNorm(width), Attention(width))
        yield Around(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 16), nn.Tanh(),
        nn.Linear(16, 256), nn.ReLU(), nn.Unflatten(1, (16, 4, 4)),
        nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Sigmoid(),
    )  # fmt: skip


class Segmenter(nn.Module):
    """Downsampling, upsampling and a skip connection, as in a U-Net."""

    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.deep = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
            nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width), nn.ReLU(),
            nn.Upsample(scale_factor=4, mode="bilinear"),
        )  # fmt: skip
        self.head = nn.Conv2d(2 * width, 11, 1)

    def forward(self, x):
        x = self.first(x)
        return self.head(torch.cat([x, self.deep(x)], 1))


def frozen():
    """Build a frozen, trained network with a new head."""
    model = copy.deepcopy(trained("batchnorm").stages["the end"])
    model.requires_grad_(False)
    model[-1] = nn.Linear(model[-1].in_features, 10)
    return model


def sigmoids():
    """Build a perceptron with sigmoids."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 64),
        nn.Sigmoid(),
        nn.Linear(64, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


class Averaged(nn.Module):
    """A frozen teacher that is a moving average of its student and runs without a graph."""

    def __init__(self):
        super().__init__()
        self.pupil = _plain(nn.BatchNorm2d)
        self.teacher = copy.deepcopy(self.pupil).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for own, other in zip(self.teacher.parameters(), self.pupil.parameters(), strict=True):
                own.lerp_(other, 0.05 if self.training else 0.0)
            taught = self.teacher(x)
        return self.pupil(x + 0.1 * torch.randn_like(x)), taught


def consistent(output, pictures, labels):
    own, taught = output
    alike = F.kl_div(own.log_softmax(1), taught.softmax(1), reduction="batchmean")
    return F.cross_entropy(own, labels) + 0.1 * alike


class Tasks(nn.Module):
    """Three heads: the digit, whether it is even, and the amount of ink."""

    def __init__(self):
        super().__init__()
        self.body = _plain(nn.BatchNorm2d)[:-1]
        self.digit, self.even, self.ink = nn.Linear(128, 10), nn.Linear(128, 1), nn.Linear(128, 1)

    def forward(self, x):
        x = self.body(x)
        return {"digit": self.digit(x), "even": self.even(x)[:, 0], "ink": self.ink(x)[:, 0]}


def tasks(output, pictures, labels):
    even = F.binary_cross_entropy_with_logits(output["even"], (labels % 2 == 0).float())
    much = F.smooth_l1_loss(output["ink"], ink(pictures).mean((1, 2, 3)))
    return F.cross_entropy(output["digit"], labels) + 0.5 * even + 0.1 * much


class DropPath(nn.Module):
    """Residual branches that are dropped at random, per sample or for the whole batch."""

    def __init__(self, branch, share, whole):
        super().__init__()
        self.branch, self.share, self.whole = branch, share, whole

    def forward(self, x):
        if not self.training:
            return x + self.branch(x)
        if self.whole:
            return x if torch.rand(()) < self.share else x + self.branch(x)
        kept = (torch.rand(len(x), 1, 1, 1) >= self.share).float() / (1 - self.share)
        return x + kept * self.branch(x)


def droppath(whole):
    def block():
        inner = nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()
        return DropPath(nn.Sequential(*inner), 0.3, whole)

    stem = [nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU()]
    return nn.Sequential(*stem, block(), block(), nn.MaxPool2d(2), block(), *_pooled(24))


def frozen_norms():
    """Build a network for fine-tuning whose BatchNorm statistics and scales are frozen."""

    class Kept(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            for each in self:
                if isinstance(each, nn.BatchNorm2d):
                    each.eval().requires_grad_(False)
            return self

    return Kept(*copy.deepcopy(trained("batchnorm").stages["the end"])).train()


def twice(pictures):
    """Return two views of each picture; the second is shifted and noisy."""
    moved = pictures.roll(1, -1) + 0.1 * torch.randn_like(pictures)
    return torch.cat([pictures, moved])


class Contrastive(nn.Module):
    """An encoder to unit vectors, with a learned temperature."""

    def __init__(self):
        super().__init__()
        self.body = _plain(nn.BatchNorm2d)[:-1]
        self.project = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return F.normalize(self.project(self.body(x)), dim=1) * self.scale.exp().sqrt()


def info_nce(output, pictures, labels):
    """InfoNCE: identify each view's partner among all views, with the diagonal masked."""
    alike = output @ output.T
    alike = alike.masked_fill(torch.eye(len(output), dtype=torch.bool), -torch.inf)
    return F.cross_entropy(alike, torch.arange(len(output)).roll(len(output) // 2))


def ending_in_a_norm():
    """Build a network with BatchNorm as its last layer before the pooling."""
    return nn.Sequential(
        nn.BatchNorm2d(1), nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.BatchNorm2d(16),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.SiLU(inplace=True),
        nn.BatchNorm2d(32), *_pooled(32),
    )  # fmt: skip


class Rounded(nn.Module):
    """Fake quantization whose buffer of limits is empty until the first batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("most", torch.zeros(0))

    def forward(self, x):
        largest = x.detach().abs().amax((0, 2, 3))
        if not self.most.numel():
            self.most.resize_(len(largest)).zero_()
        if self.training:
            self.most.copy_(torch.maximum(self.most, largest))
        step = self.most[:, None, None] / 127 + 1e-8
        return x + ((x / step).round().clamp(-128, 127) * step - x).detach()


def quantized():
    """Build a network for quantization-aware training."""
    layers = [*_plain(nn.BatchNorm2d)]
    return nn.Sequential(Rounded(), *layers[:3], Rounded(), *layers[3:])


def bfloat16():
    return torch.autocast("cpu", torch.bfloat16)


NETS: dict[str, Net] = {
    "plain": Net(_plain),
    "batchnorm": Net(lambda: _plain(nn.BatchNorm2d)),
    "convnext": Net(convnext, epochs=10, least=0.9),
    "depthwise": Net(depthwise),
    "squeeze-excite": Net(squeeze_excite, epochs=8),
    "resnet": Net(resnet, epochs=12, optimizer=partial(torch.optim.Adam, lr=2e-3)),
    "gru": Net(lambda: Recurrent(nn.GRU(8, 48, batch_first=True)), epochs=10),
    "vit": Net(Vit, epochs=14, least=0.9),
    "bce": Net(lambda: nn.Sequential(_plain(nn.BatchNorm2d), nn.Sigmoid()), loss=one_hot_bce),
    "autoencoder": Net(autoencoder, loss=rebuilt, correct=False),
    "segmentation": Net(Segmenter, loss=inked, correct=False),
    "bf16": Net(lambda: _plain(nn.BatchNorm2d), around=bfloat16),
    "weights in bf16": Net(
        lambda: _plain(nn.BatchNorm2d).to(torch.bfloat16), given=lambda x: x.to(torch.bfloat16)
    ),
    "decayed": Net(
        lambda: _plain(nn.BatchNorm2d, width=32),
        optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=2e-2),
        epochs=20, least=0.9,
    ),
    "decayed without a norm": Net(
        lambda: _plain(width=24),
        optimizer=partial(torch.optim.AdamW, lr=3e-3, weight_decay=3.0),
        epochs=14, least=0.9,
    ),
    "frozen": Net(frozen),
    "sigmoids": Net(sigmoids, epochs=12),
    "teacher": Net(Averaged, loss=consistent, correct=False),
    "three heads": Net(Tasks, loss=tasks, correct=False),
    "drop path": Net(lambda: droppath(whole=False), epochs=8),
    "layer drop": Net(lambda: droppath(whole=True), epochs=8),
    "frozen norms": Net(frozen_norms, epochs=3),
    "ending in a norm": Net(ending_in_a_norm, epochs=8),
    "quantized": Net(quantized, epochs=3),
    "contrastive": Net(Contrastive, loss=info_nce, given=twice, correct=False),
}  # fmt: skip
