"""After Ctrl-C at any moment, the model and the process are unchanged."""

from __future__ import annotations

import dis
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import interrupted as interrupted_program
import pytest
import torch
from torch import nn
from untouched import changes, snapshot

import hookviz
from hookviz.hooking.handles import HookManager
from hookviz.hooking.interrupts import _State, defer_interrupts, stoppable
from hookviz.run.recorder import OperationRecorder

TESTS = Path(__file__).parent


def interrupted(works: list[tuple[str, int]], seed: int = 0) -> dict[str, list[dict]]:
    """Start a program, interrupt it once per round, and return its report.

    It does each kind of work for so many rounds, in turn.
    """
    draw = random.Random(seed)
    paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    answers: dict[str, list[dict]] = {kind: [] for kind, _ in works}
    given = [str(each) for work in works for each in work]
    with subprocess.Popen(
        [sys.executable, str(TESTS / "interrupted.py"), *given],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as child:
        try:
            for kind, rounds in works:
                for share in draw.sample(range(rounds), rounds):
                    while "took" in (answer := json.loads(child.stdout.readline())):
                        time.sleep(answer["took"] * (share + draw.random()) / rounds)
                        child.send_signal(signal.SIGINT)
                    answers[kind].append(answer)
        finally:
            if child.poll() is None:
                done = all(len(answers[kind]) == rounds for kind, rounds in works)
                child.wait() if done else child.kill()
    return answers


def few_and_many(cases: list[tuple[str, int, int]]) -> list:
    """Return cases with few moments and, marked heavy, with many."""
    few = [pytest.param(kind, few, id=f"{kind}-{few}") for kind, few, _ in cases]
    heavy = pytest.mark.heavy
    many = [pytest.param(kind, many, id=f"{kind}-{many}", marks=heavy) for kind, _, many in cases]
    return few + many


# One process, which imports torch once.
FEW = [("capture", 10), ("edit", 10), ("explore", 4), ("perturb", 4)]
MANY = [("capture", 50), ("edit", 50), ("explore", 50), ("perturb", 15)]


@pytest.mark.parametrize("works", [FEW, pytest.param(MANY, marks=pytest.mark.heavy)])
def test_interrupts_by_another_process_leave_nothing(works):
    for kind, answers in interrupted(works).items():
        assert [answer for answer in answers if answer["wrong"]] == [], kind
        assert all(answer["where"] for answer in answers), kind


# At every step

PACKAGE = Path(hookviz.__file__).parent
TRACED = ("contextlib.py", "_contextlib.py", "grad_mode.py", "random.py", "hooks.py")
CHECKS = ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")  # behind these Python looks for signals


class Interrupter:
    """Sends SIGINT at one of the moments at which Python checks for signals.

    Those are counted in the code that may be cut in two: hookviz's own and the context managers
    that it uses.
    """

    def __init__(self, at: int) -> None:
        self.at, self.moments = at, 0
        self._last: dict[FrameType, int] = {}

    def __enter__(self) -> Interrupter:
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable | None:
        path = Path(frame.f_code.co_filename)
        if path.name == "interrupts.py":
            return None
        if path.name not in TRACED and not path.is_relative_to(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._moment()
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Callable:
        if event == "opcode":
            before = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            if before is not None and dis.opname[frame.f_code.co_code[before]] in CHECKS:
                self._moment()
        elif event == "return":
            self._last.pop(frame, None)
        return self._step

    def _moment(self) -> None:
        self.moments += 1
        if self.moments == self.at:
            signal.raise_signal(signal.SIGINT)


def interrupt_each(worker, moments) -> tuple[int, list]:
    """Do the work once per moment, interrupted there; return the count and the faults."""
    worker.work()
    expected, count, wrong = worker.found, 0, []
    worker.put_away()
    for moment in moments:
        before = snapshot(worker.model)
        try:
            with Interrupter(moment):
                worker.work()
        except KeyboardInterrupt:
            count += 1
        worker.put_away()
        if changed := changes(worker.model, before):
            wrong.append((moment, changed))
    worker.work()
    worker.put_away()
    assert worker.found == expected
    return count, wrong


# Interrupted at one of every n moments.
STEPS = few_and_many(
    [
        ("capture", 53, 17),
        ("edit", 31, 7),
        ("perturb", 1601, 401),
        ("explore", 31981, 3989),
        ("trace", 3989, 997),
    ]
)


@pytest.mark.filterwarnings(
    "ignore:The edit of .* changed nothing",  # cut before it ran
    "ignore::pytest.PytestUnraisableExceptionWarning",  # cut while a generator was closed
)
@pytest.mark.parametrize(("kind", "every"), STEPS)
def test_an_interrupt_at_any_line_leaves_nothing(kind, every):
    worker = interrupted_program.KINDS[kind]()
    with Interrupter(0) as counting:
        worker.work()
    worker.put_away()
    moments = range(1, counting.moments, every)
    count, wrong = interrupt_each(worker, moments)
    assert wrong == []
    assert count > len(moments) / 2  # Python drops what is raised in a __del__ or a generator's end


def test_the_main_thread_passes_an_interrupt_on():
    """JupyterLab handles widget messages in a thread, while the idle kernel ignores SIGINT."""
    module, x = nn.Identity(), torch.zeros(1)
    todo: queue.SimpleQueue = queue.SimpleQueue()
    calls, ended = [], []

    def work():
        try:
            with (
                stoppable(todo.put),
                HookManager([(module, "forward", lambda *given: calls.append(1))]),
            ):
                while True:
                    module(x)
        except KeyboardInterrupt:
            ended.append(True)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        todo.get()()
        signal.raise_signal(signal.SIGINT)
        thread.join()
        todo.get()()
        assert (ended, signal.getsignal(signal.SIGINT)) == ([True], signal.SIG_IGN)
        assert not module._forward_hooks
        signal.raise_signal(signal.SIGINT)  # no thread works: ignored as before
        module(x)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("study", ["graph", "contributions"])
def test_an_interrupt_while_graph_sets_hooks_leaves_nothing(study, monkeypatch):
    model, x = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, 1)), torch.rand(1, 1, 4, 4)
    place = {"layer": "1", "channel": 0, "position": (0, 0)}
    arguments = place if study == "contributions" else {}
    begin, before, state = (
        OperationRecorder._begin,
        signal.getsignal(signal.SIGINT),
        snapshot(model),
    )

    def interrupted_begin(recorder):
        begin(recorder)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(OperationRecorder, "_begin", interrupted_begin)
    with pytest.raises(KeyboardInterrupt):
        getattr(hookviz, study)(model, x, **arguments)
    assert signal.getsignal(signal.SIGINT) is before
    assert _State.holds == 0
    assert changes(model, state) == []


def test_the_handler_is_set_again_where_other_code_replaced_it():
    """IPython sets its own handler for each cell, also while a block of an earlier cell is open."""
    begun, ended = [], []

    @defer_interrupts
    def work():
        begun.append(True)
        signal.raise_signal(signal.SIGINT)
        ended.append(True)

    before = signal.getsignal(signal.SIGINT)
    other = lambda number, frame: signal.default_int_handler(number, frame)  # noqa: E731
    model = nn.Sequential(nn.Conv2d(1, 2, 1))
    try:
        with hookviz.capture(model):
            signal.signal(signal.SIGINT, other)
            with pytest.raises(KeyboardInterrupt):
                work()
            assert (begun, ended) == ([True], [True])
        assert signal.getsignal(signal.SIGINT) is other
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert _State.holds == 0 and not model[0]._forward_hooks
    finally:
        signal.signal(signal.SIGINT, before)
