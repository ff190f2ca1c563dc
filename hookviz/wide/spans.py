"""Which indices of a data set have been taken in, as runs of neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Spans:
    """A set of whole numbers from 0, as few runs of neighbours; ``len`` counts the numbers.

    Examples
    --------
    >>> done = Spans([(0, 4), (8, 10)]) | Spans([(4, 6)])
    >>> done, len(done), done & Spans([(5, 9)])
    (0 to 5, 8 to 9, 8, 5, 8)
    >>> list(done.missing(12))
    [(6, 8), (10, 12)]
    """

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self.runs: list[tuple[int, int]] = []  # (start, stop), ascending, none touches the next
        for start, stop in sorted(runs):
            if self.runs and start <= self.runs[-1][1]:
                self.runs[-1] = self.runs[-1][0], max(stop, self.runs[-1][1])
            elif stop > start:
                self.runs.append((start, stop))

    def __len__(self) -> int:
        return sum(stop - start for start, stop in self.runs)

    def __or__(self, other: Spans) -> Spans:
        return Spans([*self.runs, *other.runs])

    def __and__(self, other: Spans) -> Spans:
        pairs = [(a, b) for a in self.runs for b in other.runs]
        return Spans([(max(a[0], b[0]), min(a[1], b[1])) for a, b in pairs])

    def missing(self, length: int) -> Iterator[tuple[int, int]]:
        """The runs of what is not in it, of the numbers below ``length``."""
        start = 0
        for run in [*self.runs, (length, length)]:
            if start < run[0]:
                yield start, run[0]
            start = run[1]

    def batches(self, length: int, size: int) -> list[range]:
        """What is not in it, cut where whole batches begin: the same ones, whatever is in it."""
        return [
            range(max(start, at), min(stop, at + size))
            for start, stop in self.missing(length)
            for at in range(start // size * size, stop, size)
        ]

    def __repr__(self) -> str:
        said = [str(a) if b - a == 1 else f"{a} to {b - 1}" for a, b in self.runs]
        return ", ".join(said) or "none"
