"""Time contenders that take turns within one run, and compare their medians.

Times on a shared machine drift by more than the differences to measure, so times of different
runs cannot be compared. Contenders that take turns drift together, and their ratio is stable.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Contender = TypeVar("Contender")
Contenders = Mapping[str, Callable[[], Any]]
"""Name -> the function to time; the first one is the baseline."""


@dataclass(frozen=True)
class Table:
    """A benchmark's results."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  #: a sentence below the table

    def markdown(self):
        """Return the table in Markdown."""
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join([f"**{self.title}**", table, *filter(None, [self.note])])


def raced(title, contenders, rounds, warmups=1):
    """Let contenders race, and return their medians and ratios as a table."""
    return timed(title, race(contenders, rounds, warmups))


def timed(title, seconds):
    """Return each contender's median time, and its ratio to that of the first contender."""
    baseline = statistics.median(next(iter(seconds.values())))
    rows = []
    for name, times in seconds.items():
        median = statistics.median(times)
        within = sorted(times)[math.ceil(0.9 * len(times)) - 1]
        rows.append(
            [name, f"{1e3 * median:.2f}", f"{median / baseline:.3g}", f"{1e3 * within:.2f}"]
        )
    return Table(title, ["", "median ms", "ratio", "9 of 10 within, ms"], rows)


def race(contenders, rounds, warmups=1, clock=time.process_time):
    """Time every contender once per round, after some rounds that do not count.

    The default clock is processor time, since other processes may take the processor meanwhile.
    """
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-warmups, rounds):
        for name in turns(names, number):
            start = clock()
            result = contenders[name]()
            passed = clock() - start
            del result  # after the clock has stopped: it may hold many tensors
            if number >= 0:
                seconds[name].append(passed)
    return seconds


def turns(contenders, number):
    """Return the order of a round: two rounds start with each, the second one backwards.

    A contender inherits the caches and the heap of the one before it. In a mere rotation that
    would be the same one in every round.

    Examples
    --------
    >>> [turns("abc", number) for number in range(3)]
    [['a', 'b', 'c'], ['a', 'c', 'b'], ['b', 'c', 'a']]
    """
    turn, back = divmod(number, 2)
    first = turn % len(contenders)
    order = [*contenders[first:], *contenders[:first]]
    return [order[0], *reversed(order[1:])] if back else order


@contextmanager
def one_thread():
    """Run torch on one thread: two slow down badly if another process needs a core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
