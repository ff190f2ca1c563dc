"""Find a small set of channels without which the model predicts another class."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch

from ..hooking.arguments import check_number
from ..hooking.edit import LayerEdit
from ..run.replay import Replay
from ..run.session import Session
from ..run.target import needed_logits, probabilities


class Flip:
    """Switch a layer's channels off until the prediction changes; the work is done in parts.

    First the channels are switched off one after another, in the given order, until the top class
    changes. Then each of them is switched on again, the latest first, and stays on if the top class
    is still a different one. None of the remaining channels can be left out, but a smaller set may
    exist outside of the order's beginning.

    Parameters
    ----------
    session : Session
        Its edits are made, too.
    off : callable
        Channels -> the edit that switches them off.
    channels : sequence of int
        In the order in which they are switched off.
    sample : int
        The sample whose prediction is to change.

    Attributes
    ----------
    answer, flipped : int, int or None
        The top class before and after; ``flipped`` is None until it changes.
    curve : list of float
        The probability of ``answer`` with 0, 1, 2, … channels off.
    channels : list of int
        Those that are off when the prediction changes: the smallest set found so far.

    Raises
    ------
    ValueError
        The model gives no scores for two or more classes.

    Examples
    --------
    >>> import torch
    >>> head = torch.nn.Linear(3, 2)
    >>> head.weight.data = torch.tensor([[0.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    >>> head.bias.data = torch.tensor([0.0, 1.0])
    >>> model = torch.nn.Sequential(torch.nn.Identity(), head)
    >>> session = Session.of(model, torch.ones(1, 3))
    >>> flip = Flip(session, lambda channels: LayerEdit("0", 0, channels), range(3))
    >>> while flip.work(seconds=0) < 1:
    ...     pass
    >>> flip.answer, flip.flipped, flip.channels
    (0, 1, [1, 2])
    """

    def __init__(
        self,
        session: Session,
        off: Callable[[list[int]], LayerEdit],
        channels: Sequence[int],
        sample: int = 0,
    ) -> None:
        self._session, self._off, self._sample = session, off, sample
        self._order = [int(each) for each in channels]
        edits = [*session.edits, off(self._order)]
        modules = (module for edit in edits for module in edit.changed_modules(session.given))
        self._replay = Replay(session.model, modules)
        shares = self._shares([])
        self.answer = int(shares.argmax())
        self.curve, self.channels = [float(shares[self.answer])], list[int]()
        self.flipped: int | None = None
        self._untried: list[int] = []  # after the change: those that may be left out

    def __repr__(self) -> str:
        tried = len(self.curve) - 1
        if self.flipped is None:
            return f"Flip(class {self.answer} with {tried} channels off)"
        few = f"{len(self.channels)} of the first {tried} channels off: {self.channels}"
        return f"Flip(class {self.answer} -> {self.flipped}, {few})"

    def work(self, seconds: float = math.inf) -> float:
        """Run the model once or more; return the fraction done, 0 to 1."""
        check_number("seconds", seconds)
        end = time.monotonic() + seconds
        while self._fraction < 1:
            if self.flipped is None:
                self._one_more()
            else:
                self._one_less()
            if time.monotonic() >= end:
                break
        return self._fraction

    @property
    def _fraction(self) -> float:
        if self.flipped is not None:
            return 1 - len(self._untried) / (2 * len(self.curve))
        off = len(self.curve) - 1
        return 1.0 if off == len(self._order) else off / (2 * len(self._order))

    def _one_more(self) -> None:
        """Switch the next channel off."""
        off = self._order[: len(self.curve)]
        shares = self._shares(off)
        self.curve.append(float(shares[self.answer]))
        if (answer := int(shares.argmax())) != self.answer:
            self.channels, self.flipped, self._untried = off, answer, off[:-1]

    def _one_less(self) -> None:
        """Switch one of the channels on again, and leave it on if it is not needed."""
        tried = self._untried.pop()
        fewer = [each for each in self.channels if each != tried]
        if (answer := int(self._shares(fewer).argmax())) != self.answer:
            self.channels, self.flipped = fewer, answer

    def _shares(self, channels: list[int]) -> torch.Tensor:
        """Return the classes' probabilities, ``(K,)``, with these channels off."""
        off = [self._off(channels)] if channels else []
        session = self._session.edited([*self._session.edits, *off])
        logits = needed_logits(session.replayed(self._replay), None)
        if logits.shape[1] < 2:
            raise ValueError("The model has one output, so it cannot predict another class.")
        row = min(self._sample, len(logits) - 1)
        return probabilities(logits[row : row + 1])[0]
