"""A program that is interrupted: it looks at a model again and again, and tells what it found.

``test_interrupts.py`` runs it, with kinds of work and how many rounds of each. For each round it
says how long the work takes, and works until a SIGINT comes, sometime; if that came between two
times of the work, it says so again. It answers with where it was and what is not as it was.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback

import torch
import torch._dynamo  # so that there is a compiler's stance to be put back
from torch import nn
from untouched import changes, snapshot

import hookviz

# What was started in the background, as by a script, would ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


TIMES = 300  # one interrupt comes within the first few, but for one that is lost
TRIES = 100  # on a busy machine many come before the work begins
PARENT = os.getppid()  # nobody would interrupt a program whose test has ended


class Restless(nn.Module):
    """Changes buffers and attributes, draws random numbers, works in place."""

    class_names = ("a", "b", "c")

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Dropout(0.5)
        )
        self.shared, self.head = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 3)
        self.register_buffer("count", torch.zeros(()))
        self.body[0].bias.requires_grad_(False)

    def forward(self, x):
        self.count += 1
        self.last = torch.rand(1)
        x = self.body(x)
        for _ in range(2):
            x = torch.relu_(self.shared(x))
        return self.head(x.mean((2, 3)))


class Capturing:
    """Forward and backward within the block; the model stays in eval mode, as it is its user's."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model, self.x = Restless().eval(), torch.rand(2, 2, 24, 24, requires_grad=True)

    def work(self) -> None:
        with hookviz.capture(self.model, (nn.Conv2d, nn.Linear), inputs=True) as cache:
            logits = self.model(self.x)
            torch.autograd.grad(logits.sum(), self.x)
        self.found = [cache[name].gradient.sum().item() for name in cache]

    def put_away(self) -> None:
        # The forward itself is the user's, and so is what it leaves.
        self.model.count.zero_()
        vars(self.model).pop("last", None)
        torch.manual_seed(1)


class Editing(Capturing):
    """Activations and gradients changed, of layers and parameters, in nested blocks."""

    def work(self) -> None:
        pulled = hookviz.edit(self.model, "*.weight", 0.5, gradient=True)
        with hookviz.edit(self.model, nn.Conv2d, torch.tanh, channels=[1]) as made, pulled:
            logits = self.model(self.x)
            asked = [each for each in self.model.parameters() if each.requires_grad]
            found = torch.autograd.grad(logits.sum(), asked)
        self.found = [made.count, pulled.count, *(each.sum().item() for each in found)]


class Exploring:
    """The explorer, a few of its settings, and the end of it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model, self.x = Restless().train(), torch.rand(2, 2, 24, 24)
        self.explorer = None

    def work(self) -> None:
        self.explorer = hookviz.explore(self.model, self.x)
        self.explorer.layer = "shared"
        self.explorer.target = 1
        self.found = [float(t.sum()) for t in self.explorer.heatmaps().values()]
        self.explorer.close()

    def put_away(self) -> None:
        if self.explorer is not None:  # one that its user never got is closed already
            self.explorer.close()


class Perturbing(Exploring):
    """What runs the model many times."""

    def work(self) -> None:
        found = hookviz.attribution.scorecam(self.model, self.x, "shared", batch_size=4)
        attributed = hookviz.attribute(self.model, self.x, method="smoothgrad", nt_samples=2)
        self.found = [float(found.sum()), float(attributed.sum())]


class Tracing(Exploring):
    """Every kind of hook on every module."""

    def work(self) -> None:
        events = hookviz.trace(self.model, self.x)
        self.found = [[event.kind, event.layer, event.call] for event in events]


KINDS = {
    "capture": Capturing,
    "edit": Editing,
    "explore": Exploring,
    "perturb": Perturbing,
    "trace": Tracing,
}


def tell(**answer) -> None:
    print(json.dumps(answer), flush=True)


def work_until_interrupted(worker, took: float) -> str:
    """Ask for the interrupt, which may come at once.

    Returns where in the work it was raised; nothing if it came between two times of it.
    """
    came: list[int] = []

    def note(number, frame):
        came.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        tell(took=took)
        for _ in range(TIMES):
            worker.work()
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            worker.put_away()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            if came or os.getppid() != PARENT:  # Python drops what is raised in a __del__
                break
    except KeyboardInterrupt as interrupt:
        frames = traceback.extract_tb(interrupt.__traceback__)
        if "work" in [frame.name for frame in frames]:
            last = [f for f in frames if f.name not in ("_interrupted", "note")][-1]
            return f"{last.filename}:{last.lineno} in {last.name}"
    return ""


def main(kind: str, rounds: int) -> None:
    worker = KINDS[kind]()
    for _ in range(3):  # what is imported and cached at first is so
        worker.work()
        worker.put_away()
    expected = worker.found
    for _ in range(rounds):
        for _ in range(TRIES):
            where, wrong = one_round(worker, expected)
            if where or wrong or os.getppid() != PARENT:
                break
        tell(where=where, wrong=wrong)


def one_round(worker, expected) -> tuple[str, list[str]]:
    """Work, be interrupted, and work once more: where that was, and what is not as it was."""
    before = snapshot(worker.model)
    began = time.perf_counter()
    worker.work()
    took = time.perf_counter() - began
    worker.put_away()
    where = work_until_interrupted(worker, took)
    worker.put_away()
    wrong = changes(worker.model, before)
    del worker.found
    worker.work()
    if worker.found != expected:
        wrong.append("what is found")
    worker.put_away()
    return where, wrong


if __name__ == "__main__":
    torch.set_num_threads(1)
    for kind, rounds in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        main(kind, int(rounds))
