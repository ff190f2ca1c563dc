"""The stopwatch: contenders take turns within one run, and their medians are compared.

Times on a shared machine drift by more than what is to be measured, so absolute numbers
of different runs tell little. Contenders that take turns meet the same drift, and their
ratio holds.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch


def race(
    contenders: Mapping[str, Callable[[], Any]],
    rounds: int,
    warmups: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time every contender once a round.

    Parameters
    ----------
    contenders : mapping of str to callable
        Name -> what is timed; the first one is the baseline.
    rounds : int
    warmups : int
        Rounds before these that do not count.
    clock : callable
        ``time.process_time`` for what takes so long that others have the processor in between.

    Returns
    -------
    dict of str to list of float
        Seconds of each round.
    """
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with one_thread():
        for number in range(-warmups, rounds):
            for name in turns(names, number):
                passed = _time(contenders[name], clock)
                if number >= 0:
                    seconds[name].append(passed)
    return seconds


def turns(names: Sequence[str], number: int) -> list[str]:
    """Who runs when in a round: another one first each time, and forth and back in turn.

    Back, too, because a contender inherits the caches and the heap of the one before it,
    which in a mere rotation would always be the same.

    Examples
    --------
    >>> [turns("abc", number) for number in range(3)]
    [['a', 'b', 'c'], ['a', 'c', 'b'], ['b', 'c', 'a']]
    """
    turn, back = divmod(number, 2)
    first = turn % len(names)
    order = [*names[first:], *names[:first]]
    return [order[0], *reversed(order[1:])] if back else order


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: two collapse as soon as anything else wants a core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _time(contender: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    result = contender()
    passed = clock() - start
    del result  # after the clock has stopped: whoever keeps tensors wants to look at them
    return passed


def print_table(title: str, seconds: Mapping[str, Sequence[float]]) -> None:
    """Print each contender's median, and how many times that is the first one's.

    Parameters
    ----------
    title : str
    seconds : mapping of str to sequence of float
        As from `race`.
    """
    rounds = len(next(iter(seconds.values())))
    baseline = statistics.median(next(iter(seconds.values())))
    wide = max(map(len, seconds))
    print(f"\n{title} ({rounds} rounds)")
    print(f"  {'':{wide}}  median ms   ratio  9 of 10 within")
    for name, times in seconds.items():
        median = statistics.median(times)
        within = sorted(times)[math.ceil(0.9 * len(times)) - 1]
        print(
            f"  {name:{wide}}  {1000 * median:9.2f}  {median / baseline:6.2f}  "
            f"{1000 * within:11.2f} ms",
            flush=True,
        )
