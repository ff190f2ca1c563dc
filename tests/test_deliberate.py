"""Parts that deliberately do not learn are healthy: critics, target networks, stop-gradients."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookviz


def encoder():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 16),
    )  # fmt: skip


class NamedParts(nn.Module):
    """A module of named parts, with a forward that gets all of them."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x):
        return self.run(self, x)


def gan(run):
    made = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))
    critic = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    return NamedParts(run, generator=made, critic=critic)


def fake_pictures(parts, x):
    return parts.generator(torch.randn(len(x), 8)).detach()


def with_target_network(run):
    online = encoder()
    target = copy.deepcopy(online)
    with torch.no_grad():
        for parameter in target.parameters():  # as after some steps of a moving average
            parameter.mul_(0.9).add_(0.02 * torch.randn_like(parameter))
    head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    return NamedParts(run, online=online, target=target, predictor=head)


def without_graph(part, x):
    with torch.no_grad():
        return part(x)


def quantised(parts, x):
    z = parts.encoder(x)
    q = parts.book(torch.cdist(z, parts.book.weight).argmin(1))
    extra = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
    return parts.decoder(z + (q - z).detach()), extra


def simsiam(parts, x):
    one, two = parts.encoder(x), parts.encoder(x.flip(3))
    return parts.head(one), parts.head(two), two.detach(), one.detach()


def similarity_loss(output):
    half = len(output) // 2
    pairs = zip(output[:half], output[half:], strict=True)
    return -sum((F.cosine_similarity(a, b).mean() for a, b in pairs), torch.zeros(()))


def critic_loss(output):
    real, made = output if isinstance(output, tuple) else output.chunk(2)
    return (F.softplus(-real) + F.softplus(made)).mean()


def with_two_heads(run):
    return NamedParts(run, body=encoder(), head=nn.Linear(16, 10), beside=nn.Linear(16, 10))


def two_heads(parts, x):
    features = parts.body(x)
    return parts.head(features), parts.beside(features.detach())


Y = torch.arange(32) % 10


def classification_loss(output):
    outputs = output if isinstance(output, tuple) else (output,)
    return sum((F.cross_entropy(each, Y) for each in outputs), torch.zeros(()))


HEALTHY = {
    "a critic's step": (
        lambda: gan(lambda m, x: (m.critic(x.flatten(1)), m.critic(fake_pictures(m, x)))),
        critic_loss,
    ),
    "a critic's step, put together": (
        lambda: gan(lambda m, x: m.critic(torch.cat([x.flatten(1), fake_pictures(m, x)]))),
        critic_loss,
    ),
    "a target network": (
        lambda: with_target_network(
            lambda m, x: (m.predictor(m.online(x)), m.target(x.flip(3)).detach())
        ),
        similarity_loss,
    ),
    "BYOL": (
        lambda: with_target_network(
            lambda m, x: (m.predictor(m.online(x)), without_graph(m.target, x.flip(3)))
        ),
        similarity_loss,
    ),
    "SimSiam": (
        lambda: NamedParts(simsiam, encoder=encoder(), head=nn.Sequential(
            nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))),
        similarity_loss,
    ),
    "VQ-VAE": (
        lambda: NamedParts(quantised, encoder=encoder(), book=nn.Embedding(32, 16),
                      decoder=nn.Linear(16, 64)),
        lambda output: output[0].square().mean() + output[1],
    ),
    "a head beside, behind a stopped gradient": (
        lambda: with_two_heads(two_heads), classification_loss,
    ),
}  # fmt: skip
NEED_OPTIMIZER = {
    "a critic's step on made ones alone": (
        lambda: gan(lambda m, x: m.critic(fake_pictures(m, x))),
        lambda output: F.softplus(output).mean(),
        "critic",
    ),
    "a head on a body that stays": (
        lambda: NamedParts(lambda m, x: m.head(m.body(x).detach()), body=encoder(),
                      head=nn.Linear(16, 10)),
        classification_loss,
        "head",
    ),
}  # fmt: skip
"""Cases that only an optimizer distinguishes from a fault, and the part that it updates."""


def warnings_of(form, model, loss, optimizer=None):
    x = torch.randn(32, 1, 8, 8)
    if form == "call":
        findings = hookviz.diagnose(model, x, loss, optimizer=optimizer)
    else:
        with hookviz.diagnose(model, optimizer=optimizer) as findings:
            loss(model(x)).backward()
    return [each for each in findings if each.severity != "note"]


@pytest.mark.parametrize("form", ["call", "guard"])
@pytest.mark.parametrize("name", HEALTHY)
def test_parts_that_deliberately_do_not_learn_are_healthy(name, form):
    build, loss = HEALTHY[name]
    assert warnings_of(form, build().train(), loss) == []


@pytest.mark.parametrize("form", ["call", "guard"])
@pytest.mark.parametrize("name", NEED_OPTIMIZER)
def test_an_optimizer_decides_which_part_should_learn(name, form):
    build, loss, part = NEED_OPTIMIZER[name]
    model = build().train()
    (finding,) = warnings_of(form, model, loss)
    assert finding.kind == "no gradient"
    assert "optimizer=" in finding.advice
    assert finding.line
    optimizer = torch.optim.SGD(model.get_submodule(part).parameters(), 0.01)
    assert warnings_of(form, model, loss, optimizer=optimizer) == []


@pytest.mark.parametrize("form", ["call", "guard"])
@pytest.mark.parametrize("name", NEED_OPTIMIZER)
def test_several_optimizers_decide_which_part_should_learn(name, form):
    build, loss, part = NEED_OPTIMIZER[name]
    model = build().train()
    steps = [torch.optim.SGD(each.parameters(), 0.01) for each in model.children()]
    assert warnings_of(form, model, loss, optimizer=steps) == []
    together = torch.optim.SGD(model.parameters(), 0.01)  # one optimizer of all parts: a fault
    (finding,) = warnings_of(form, model, loss, optimizer=together)
    assert finding.kind == "no gradient" and part not in finding.layers


@pytest.mark.parametrize("form", ["call", "guard"])
def test_parts_of_another_optimizer_need_not_learn_in_this_step(form):
    """In a generator's step the gradient passes through the critic, which has its own optimizer."""
    model = gan(lambda parts, x: parts.critic(parts.generator(x.flatten(1)[:, :8]))).train()
    step = torch.optim.SGD(model.generator.parameters(), 0.01)
    fool = lambda output: nn.functional.softplus(-output).mean()  # noqa: E731
    (finding,) = warnings_of(form, model, fool, optimizer=step)
    assert finding.kind == "optimizer" and "critic.0" in finding.layers
    assert "optimizer=[one, other]" in finding.advice
    other = torch.optim.SGD(model.critic.parameters(), 0.01)
    assert warnings_of(form, model, fool, optimizer=[step, other]) == []
    (finding,) = warnings_of(form, model, fool, optimizer=[other])
    assert finding.kind == "optimizer" and "generator.0" in finding.layers


@pytest.mark.parametrize("form", ["call", "guard"])
def test_equal_layers_in_a_sequence_are_not_target_networks(form):
    layer = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    row = nn.Sequential(*(copy.deepcopy(layer) for _ in range(4)))
    cut = NamedParts(lambda m, x: m.row[2:](m.row[:2](x.flatten(1)[:, :16]).detach()), row=row)
    found = warnings_of(form, cut, lambda output: output.square().mean())
    assert {"row.0", "row.1"} <= {name for each in found for name in each.layers}


@pytest.mark.parametrize("form", ["call", "guard"])
def test_a_layer_of_the_same_shape_is_not_a_target_network(form):
    cut = NamedParts(
        lambda m, x: m.second(m.first(x.flatten(1)[:, :16]).detach()),
        first=nn.Linear(16, 16),
        second=nn.Linear(16, 16),
    )
    (finding,) = warnings_of(form, cut, lambda output: output.square().mean())
    assert (finding.kind, finding.layer) == ("no gradient", "first")
