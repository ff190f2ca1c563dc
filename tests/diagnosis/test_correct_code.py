"""Correct code is healthy: parts that begin at zero, are pruned, or deliberately do not learn."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.utils.prune
from architectures import model_of
from test_faults import (
    LABELS,
    ONE_HOT,
    Around,
    Between,
    faults_of,
    findings_in,
    rows,
)
from torch import nn
from torch.nn import functional as F

import hookviz

FORMS = pytest.mark.parametrize("form", ["call", "guard"])


def entropy(output):
    outputs = output if isinstance(output, tuple) else (output,)
    return sum((F.cross_entropy(each, LABELS) for each in outputs), torch.zeros(()))


class WithTemperature(nn.Module):
    """Scores with a learned temperature that has reached its limit."""

    def __init__(self):
        super().__init__()
        self.body, self.scale = nn.Linear(8, 4), nn.Parameter(torch.tensor(9.0))

    def forward(self, x):
        return self.scale.exp().clamp(max=100.0) * F.normalize(self.body(x), dim=1) / 50


class TwoOutputs(Around):
    def forward(self, x):
        return self.second(self.first(x)), self.branch(self.first(x))


class Remembering(Between):
    """A model that stores computed tensors as plain attributes."""

    def forward(self, x):
        with torch.no_grad():
            self.mean = x.mean(0, keepdim=True)
        self.seen = self.first(x - self.mean)
        return self.second(self.seen)


def sum_of_words(m, words, mask):
    return m.head((m.words(words) * mask[..., None]).sum(1))


def masked_attention(m, x):
    q, k, v = m.qkv(x[:, None].expand(-1, 5, -1)).chunk(3, -1)
    mask = torch.full((5, 5), -torch.inf).triu(1)
    scores = (q @ k.mT + mask).masked_fill(mask < 0, float("-inf"))
    return (scores.softmax(-1) @ v).mean(1)[:, :4]


def masked(output):
    """Mask scores with −Inf before a logsumexp."""
    hidden = output.masked_fill(ONE_HOT == 0, -torch.inf)
    return output.logsumexp(1).mean() - hidden.logsumexp(1).mean()


def loss_that_is_logged(output):
    loss = entropy(output)
    assert loss.detach().item() > 0 and not loss.detach().requires_grad
    return loss


def nearly_constant():
    model = Between()
    model.second.weight.data *= 1e-3
    return model


# Parts that begin at zero, or were pruned


def zero_head():
    model = Between(lambda x: x + (x.round() - x).detach())
    model.second.weight.data.zero_()
    return model


class WithGain(nn.Conv2d):
    """A convolution that standardizes its kernel, with a gain that starts at 0."""

    def __init__(self, *given):
        super().__init__(*given)
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight * self.gain, None)


class GatedBranch(nn.Module):
    """A residual branch that starts at zero, gated by a layer on the channels' means."""

    def __init__(self, swapped):
        super().__init__()
        self.conv, self.gate = WithGain(8, 8, 3, 1, 1), nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.swapped = swapped

    def forward(self, x):
        y = self.conv(x)
        gate = self.gate(y.mean((2, 3))[:, None]).sigmoid().view(len(x), -1, 1, 1)
        return x + (gate * y if self.swapped else y * gate.expand_as(y))


def gated(swapped):
    branches = GatedBranch(swapped), GatedBranch(swapped)
    ends = nn.Flatten(), nn.Linear(8 * 36, 4)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.SiLU(), *branches, *ends)


class ReZero(nn.Module):
    """A residual branch whose factor starts at 0."""

    def __init__(self, *shape):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.factor = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        return x + self.factor * self.branch(x)


def rezero_network(*shape):
    return nn.Sequential(*[ReZero(*shape) for _ in range(6)], nn.Linear(8, 4))


def skipgram(m, word, other):
    """A word2vec model: two embeddings, one of which starts at zero."""
    return [(m.words(word) * m.contexts(each)).sum(1) for each in (other, other.flip(0))]


def near_and_far(output):
    return F.softplus(-output[0]).mean() + F.softplus(output[1]).mean()


def pruned():
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 4)
    )
    nn.utils.prune.ln_structured(model[0], "weight", 0.6, n=2, dim=0)
    return model


def dropout_of_nothing():
    model = Between(nn.Dropout(0.0)).eval()
    model.change.train()
    return model


# Parts that deliberately do not learn


def encoder():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 16),
    )  # fmt: skip


def gan(run):
    made = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))
    critic = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    return model_of(run, generator=made, critic=critic)


def fake_pictures(parts, x):
    return parts.generator(torch.randn(len(x), 8)).detach()


def with_target_network(run):
    online = encoder()
    target = copy.deepcopy(online)
    with torch.no_grad():
        for parameter in target.parameters():  # as after some steps of a moving average
            parameter.mul_(0.9).add_(0.02 * torch.randn_like(parameter))
    head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    return model_of(run, online=online, target=target, predictor=head)


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


def two_heads(parts, x):
    features = parts.body(x)
    return parts.head(features), parts.beside(features.detach())


def digits():
    return torch.randn(16, 1, 8, 8)


# Name -> a model, its loss, and its input if it is not vectors.
HEALTHY = {
    "a branch without weight yet": (
        partial(Around, torch.tanh), lambda out: entropy(out) + 0 * out.square().mean(),
    ),
    "a part of the loss without weight yet": (
        TwoOutputs, lambda out: entropy(out[0]) + 0 * out[1].sum(),
    ),
    "a branch that is dropped at random": (
        lambda: Around(lambda y: y * float(torch.rand(()) < 0.5)), entropy,
    ),
    "a limit of one number": (WithTemperature, entropy),
    "a slope that is passed on": (
        lambda: Between(lambda x: x + (x.round() - x).detach()), entropy,
    ),
    "a slope that is passed on before a layer that begins at zero": (zero_head, entropy),
    "a mask": (lambda: Between(lambda x: x * (x > 0)), entropy),
    "a mask of ones beside words": (
        lambda: model_of(sum_of_words, words=nn.Embedding(192, 8), head=nn.Linear(8, 4)),
        entropy, lambda: (torch.arange(192).view(16, 12), torch.ones(16, 12)),
    ),
    "an attention mask of −Inf": (
        lambda: model_of(masked_attention, qkv=nn.Linear(8, 24)), entropy,
    ),
    "kl_div": (
        Between, lambda out: F.kl_div(out.log_softmax(1), ONE_HOT, reduction="batchmean"),
    ),
    "cross entropy by hand": (Between, lambda out: -(ONE_HOT * out.log_softmax(1)).sum(1).mean()),
    "masked with −Inf": (Between, masked),
    "a number for the log": (Between, loss_that_is_logged),
    "a state": (Remembering, entropy),
    "a margin that all answers keep": (
        Between, lambda out: F.relu(out - out.detach() - 1.0).mean(),
    ),
    "a margin beyond which no channel is": (
        nearly_constant, lambda out: (F.relu(out - 2.0) + F.relu(0.9 - out)).mean(),
    ),
    "a gated branch from zero": (partial(gated, False), entropy, digits),
    "a gated branch from zero, swapped": (partial(gated, True), entropy, digits),
    "ReZero": (partial(rezero_network, 1), entropy),
    "SkipInit": (rezero_network, entropy),
    "word2vec": (
        lambda: model_of(
            skipgram, words=nn.Embedding(50, 8),
            contexts=nn.Embedding.from_pretrained(torch.zeros(50, 8), freeze=False),
        ),
        near_and_far, lambda: (torch.arange(16), torch.arange(16) + 20),
    ),
    "pruned": (pruned, entropy, digits),
    "a dropout of everything in eval mode": (lambda: Between(nn.Dropout(1.0)).eval(), entropy),
    "a dropout of nothing in another mode": (dropout_of_nothing, entropy),
    "a critic's step": (
        lambda: gan(lambda m, x: (m.critic(x.flatten(1)), m.critic(fake_pictures(m, x)))),
        critic_loss, digits,
    ),
    "a critic's step, put together": (
        lambda: gan(lambda m, x: m.critic(torch.cat([x.flatten(1), fake_pictures(m, x)]))),
        critic_loss, digits,
    ),
    "a target network": (
        lambda: with_target_network(
            lambda m, x: (m.predictor(m.online(x)), m.target(x.flip(3)).detach())
        ),
        similarity_loss, digits,
    ),
    "BYOL": (
        lambda: with_target_network(
            lambda m, x: (m.predictor(m.online(x)), without_graph(m.target, x.flip(3)))
        ),
        similarity_loss, digits,
    ),
    "SimSiam": (
        lambda: model_of(simsiam, encoder=encoder(), head=nn.Sequential(
            nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))),
        similarity_loss, digits,
    ),
    "VQ-VAE": (
        lambda: model_of(quantised, encoder=encoder(), book=nn.Embedding(32, 16),
                      decoder=nn.Linear(16, 64)),
        lambda output: output[0].square().mean() + output[1], digits,
    ),
    "a head beside, behind a stopped gradient": (
        lambda: model_of(
            two_heads, body=encoder(), head=nn.Linear(16, 10), beside=nn.Linear(16, 10)
        ),
        entropy, digits,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_correct_code_is_healthy(name):
    build, loss, given = (*HEALTHY[name], rows)[:3]
    torch.manual_seed(0)
    model, x = build(), given()
    for form in ("call", "guard"):
        findings = findings_in(form, model, x, loss)
        assert findings.healthy, findings


NEED_OPTIMIZER = {
    "a critic's step on made ones alone": (
        lambda: gan(lambda m, x: m.critic(fake_pictures(m, x))),
        lambda output: F.softplus(output).mean(),
        "critic",
    ),
    "a head on a body that stays": (
        lambda: model_of(lambda m, x: m.head(m.body(x).detach()), body=encoder(),
                      head=nn.Linear(16, 10)),
        entropy,
        "head",
    ),
}  # fmt: skip
"""Cases that only an optimizer distinguishes from a fault, and the part that it updates."""


def step_of(part):
    return torch.optim.SGD(part.parameters(), 0.01)


@FORMS
@pytest.mark.parametrize("name", NEED_OPTIMIZER)
def test_optimizers_decide_which_part_should_learn(name, form):
    build, loss, part = NEED_OPTIMIZER[name]
    model = build().train()
    faults = lambda optimizer: faults_of(findings_in(form, model, digits(), loss, optimizer))  # noqa: E731
    (finding,) = faults(None)
    assert finding.kind == "no gradient" and finding.line and "optimizer=" in finding.advice
    assert not faults(step_of(model.get_submodule(part)))
    assert not faults([step_of(each) for each in model.children()])
    (finding,) = faults(step_of(model))  # one optimizer of all parts: a fault
    assert finding.kind == "no gradient" and part not in finding.layers


@FORMS
def test_parts_of_another_optimizer_need_not_learn_in_this_step(form):
    """In a generator's step the gradient passes through the critic, which has its own optimizer."""
    model = gan(lambda parts, x: parts.critic(parts.generator(x.flatten(1)[:, :8]))).train()
    one, other = step_of(model.generator), step_of(model.critic)
    fool = lambda output: F.softplus(-output).mean()  # noqa: E731
    faults = lambda optimizer: faults_of(findings_in(form, model, digits(), fool, optimizer))  # noqa: E731
    (finding,) = faults(one)
    assert finding.kind == "optimizer" and "critic.0" in finding.layers
    assert "optimizer=[one, other]" in finding.advice
    assert not faults([one, other])
    (finding,) = faults([other])
    assert finding.kind == "optimizer" and "generator.0" in finding.layers


def in_sequence():
    layer = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    return nn.Sequential(*(copy.deepcopy(layer) for _ in range(4)))


@FORMS
def test_layers_of_the_same_shape_are_not_target_networks(form):
    """Equal layers in a sequence, or layers whose weights differ."""
    row = model_of(lambda m, x: m.row[2:](m.row[:2](x).detach()), row=in_sequence())
    pair = model_of(
        lambda m, x: m.second(m.first(x).detach()), first=nn.Linear(8, 8), second=nn.Linear(8, 8)
    )
    for model, cut in ((row, {"row.0", "row.1"}), (pair, {"first"})):
        found = faults_of(findings_in(form, model, rows(), lambda output: output.square().mean()))
        assert {each.kind for each in found} == {"no gradient"}
        assert cut <= {name for each in found for name in each.layers}


def test_a_step_that_trains_another_network_is_healthy():
    """Neither a generator during its critic's step nor a model in inference gets gradients."""
    made, critic = Between(), nn.Linear(4, 1)
    with hookviz.diagnose(made) as findings:
        critic(made(rows()).detach()).sigmoid().log().mean().neg().backward()
    assert findings.healthy, findings
    with hookviz.diagnose(made) as findings, torch.no_grad():
        made(rows())
    assert findings.healthy, findings


def experts(count):
    return nn.ModuleList(nn.Linear(8, 4) for _ in range(count))


def two_of_three(m, x):
    return torch.cat([m.experts[0](x[:5]), m.experts[1](x[5:])])


class EarlyExit(nn.Module):
    """A second layer that runs only where the first one's scores say so."""

    def __init__(self, looks_at):
        super().__init__()
        self.first, self.second = nn.Linear(8, 4), nn.Linear(4, 4)
        self.looks_at = looks_at

    def forward(self, x):
        y = self.first(x)
        return y if (y if self.looks_at == "scores" else x).abs().max() < 1e6 else self.second(y)


def mixture_of_experts(m, x):
    """Two experts, the first of which gets all tokens of all samples."""
    tokens = torch.cat([x, x.flip(0)])
    scores = (m.gate(tokens) + torch.tensor([100.0, 0.0])).softmax(1)
    chosen, y = scores.argmax(1), tokens.new_zeros(len(tokens), 4)
    for number, expert in enumerate(m.experts):
        if len(places := (chosen == number).nonzero()[:, 0]):
            y = y.index_add(0, places, expert(tokens[places]) * scores[places, number, None])
    return y[: len(x)]


def heads(*which):
    """Build a network with three heads in a dict, of which some run."""
    return model_of(
        lambda m, x: sum(m.heads[each](x) for each in which),
        heads=nn.ModuleDict({each: nn.Linear(8, 4) for each in "abc"}),
    )


def with_frozen_spare():
    model = Between()
    model.spare = nn.Linear(4, 4).requires_grad_(False)
    return model


def rounding():
    return Between(lambda x: F.one_hot(x.argmax(1), 8).float()).eval()


NOTES = {
    "an expert without samples": (
        lambda: model_of(two_of_three, experts=experts(3)), "unused", "experts.2",
    ),
    "an expert without tokens": (
        lambda: model_of(mixture_of_experts, gate=nn.Linear(8, 2), experts=experts(2)),
        "unused", "experts.1",
    ),
    "a layer behind an early exit": (partial(EarlyExit, "scores"), "unused", "second"),
    "one head of a dict, by its key": (partial(heads, "b"), "unused", "heads.a"),
    "a frozen layer that never runs": (with_frozen_spare, "unused", "spare"),
    "an argmax in eval mode": (rounding, "no gradient", "first"),
    "an in-place activation": (
        lambda: nn.Sequential(nn.Linear(8, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)),
        "in place", "0",
    ),
}  # fmt: skip


def test_a_state_that_begins_at_zero_is_healthy():
    def fixed_point(m, x):
        z = torch.zeros_like(x)
        for _ in range(4):
            z = m.conv(z).relu().mean(1, keepdim=True) + x
        return m.head(m.conv(z).mean((2, 3)))

    model = model_of(fixed_point, conv=nn.Conv2d(1, 4, 3, padding=1), head=nn.Linear(4, 4))
    model.conv.bias.data.fill_(-0.1)
    assert hookviz.diagnose(model, torch.randn(16, 1, 8, 8), entropy).healthy


def attention_in_windows(m, x):
    """Mask attention as a Swin network does: with −100."""
    mask = -100.0 * (torch.arange(16)[:, None] // 4 != torch.arange(16) // 4)
    query = m.body(x)
    return m.head((query @ query.T + mask).float().softmax(1).to(query.dtype) @ query)


def doubled_half(m, x):
    y = m.body(x)
    y[:, :3] *= 2
    return m.head(y)


def spectral(m, x):
    return m.head(m.scaled(m.body(x)))


HALF = {
    "a gate that is broadcast": lambda m, x: m.head(m.body(x) * m.head(x)[:, :1]),
    "a part that is scaled in place": doubled_half,
    "spectral norm": spectral,
    "an attention mask of −100": attention_in_windows,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALF)
def test_correct_code_in_half_precision_is_healthy(name, dtype):
    torch.manual_seed(0)
    scaled = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    model = model_of(HALF[name], body=nn.Linear(8, 8), head=nn.Linear(8, 4), scaled=scaled)
    if name != "spectral norm":
        del model.scaled
    for half in (model, copy.deepcopy(model).to(dtype)):
        autocast = torch.autocast("cpu", dtype, enabled=half is model)
        x = rows() if half is model else rows().to(dtype)
        for form in ("call", "guard"):
            with autocast:
                found = findings_in(form, half, x, lambda out: entropy(out.float()))
            assert found.healthy and "not examined" not in [e.kind for e in found], (form, found)


@pytest.mark.parametrize("name", NOTES)
def test_what_may_be_deliberate_is_a_note(name):
    build, kind, layer = NOTES[name]
    findings = hookviz.diagnose(build(), rows(), entropy)
    assert findings.healthy and (kind, layer) in [(each.kind, each.layer) for each in findings]


def test_a_check_of_the_input_does_not_excuse_a_layer_that_never_runs():
    findings = hookviz.diagnose(EarlyExit("input"), rows(), entropy)
    assert [(each.kind, each.layer) for each in faults_of(findings)] == [("unused", "second")]


def test_a_head_that_a_loop_over_the_others_forgets_is_a_fault():
    findings = hookviz.diagnose(heads("a", "b"), rows(), entropy)
    assert [(each.kind, each.layer) for each in faults_of(findings)] == [("unused", "heads.c")]


class Policy(nn.Module):
    def __init__(self, make, learns):
        super().__init__()
        self.make, self.learns = make, learns
        self.body, self.choice, self.value = nn.Linear(8, 32), nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x):
        features = self.body(x).tanh()
        logits = self.choice(features)
        made = self.make(logits=logits if self.learns else logits.detach())
        return made, self.value(features)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("name", ["Categorical", "OneHotCategorical", "Bernoulli"])
def test_gradients_pass_the_distribution_that_a_model_returns(name, learns):
    torch.manual_seed(0)
    model = Policy(getattr(torch.distributions, name), learns)
    faults = faults_of(hookviz.diagnose(model, rows()))
    assert [each.layer for each in faults] == ([] if learns else ["choice"])


def test_nan_in_the_gradient_of_the_targets_is_healthy():
    """A model computes its loss, and the gradient of the targets is not used."""

    def run_own(m, truth, x):
        weight = m.prepare(truth).square().sqrt()
        return (m.net(x) * weight).sum()

    given = torch.tensor([[0.0, 1.0, 2.0]]), rows()
    assert hookviz.diagnose(
        model_of(run_own, prepare=nn.Identity(), net=nn.Linear(8, 3)), given, lambda loss: loss
    ).healthy
