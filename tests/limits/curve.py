"""The growth of a quantity over the steps of a long run, and a figure of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parents[2] / "test-output" / "limits"


def growth(values: list[int]) -> float:
    """Return the growth over the second half, fitted with a straight line.

    The first half fills caches such as those of matplotlib and of the allocator.

    Examples
    --------
    >>> growth([0, 7, 9, 10, 10, 10, 10]), round(growth([0, 1, 2, 3, 4, 5, 6]), 6)
    (0.0, 3.0)
    """
    half = np.asarray(values[len(values) // 2 :], float)
    steps = np.arange(len(half))
    return float(round(np.polyfit(steps, half, 1)[0] * steps[-1], 6)) + 0.0


def draw(name: str, unit: str, counts: list[dict[str, int]], memory: list[int]) -> Path:
    """Write the curves to ``test-output/limits``.

    Parameters
    ----------
    name, unit : str
        The name of the file, and the unit of the steps between two readings.
    counts : list of dict
        The result of `limits.resources.census` at each reading.
    memory : list of int
        Bytes of memory at each reading.
    """
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(np.array(memory) / 1e6, marker=".")
    above.set(ylabel="resident memory, MB", ylim=(0, 1.2 * max(memory) / 1e6), title=name)
    for what in counts[0]:
        values = [reading[what] for reading in counts]
        below.plot(np.array(values) / max(values[-1], 1), marker=".", label=what)
    below.set(xlabel=unit, ylabel="÷ the last reading", ylim=(0, None))
    below.legend(ncols=4, fontsize="small")
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name.replace(' ', '-')}.png"
    figure.savefig(path)
    return path
