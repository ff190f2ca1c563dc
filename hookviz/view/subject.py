"""Who is explored: a model, what it was given, and what it answered, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..hooking.records import megabytes
from ..run.inputs import ModelInput
from ..run.session import Run
from ..run.targets import Target, probabilities

TOP = 5


class Memo:
    """Remembers, for each name, what was made last and for which key."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[tuple, Any]] = {}

    def once(self, name: str, key: tuple, make: Callable[[], Any]) -> Any:
        """What ``make`` returned for this key; made anew only when the key changes.

        Examples
        --------
        >>> memo = Memo()
        >>> [memo.once("square", (x,), lambda x=x: print("made") or x * x) for x in (2, 2)]
        made
        [4, 4]
        """
        if name not in self._made or self._made[name][0] != key:
            self._made[name] = (key, make())
        return self._made[name][1]

    def forget(self, name: str) -> None:
        """Let go of what was made last."""
        self._made.pop(name, None)

    def keep(self, name: str) -> None:
        """Let go of all else: of another run, whose tensors the keys would hold, too."""
        self._made = {each: made for each, made in self._made.items() if each == name}


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, its input and the latest run of it.

    Attributes
    ----------
    model : torch.nn.Module
    inputs : ModelInput
    class_names : list of str
        May be shorter than there are classes, or empty.
    run : Run
    again : callable
        Runs the model once more and captures the one module it is given, whatever its size.
    """

    model: nn.Module
    inputs: ModelInput
    class_names: list[str]
    run: Run
    again: Callable[[nn.Module], Run]

    @property
    def name(self) -> str:
        return type(getattr(self.model, "_orig_mod", self.model)).__name__

    @property
    def batch(self) -> int:
        """How many samples the input has."""
        main = self.inputs.main
        return 1 if main is None else len(main)

    def ranked(self, sample: int) -> list[tuple[int, str, float]]:
        """A sample's top five classes: number, name and probability; none of no classifier."""
        logits = self.run.logits
        if logits is None:
            return []
        row = probabilities(logits[min(sample, len(logits) - 1)][None])[0]
        best = row.topk(min(TOP, len(row)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [(index, self.class_name(index), share) for index, share in pairs]

    def class_name(self, index: int) -> str:
        return self.class_names[index] if index < len(self.class_names) else f"class {index}"

    def target_name(self, target: Target, sample: int) -> str:
        """What the gradient of a sample is of."""
        if isinstance(target, list):
            target = target[min(sample, len(target) - 1)]
        if callable(target):
            return getattr(target, "__name__", "a function")
        if target is None:
            ranked = self.ranked(sample)
            return ranked[0][1] if ranked else "nothing"
        classes: Any = target if isinstance(target, tuple) else (target,)
        first, *others = (c if isinstance(c, str) else self.class_name(c) for c in classes)
        return f"{first} against {' and '.join(others)}" if others else first

    def facts(self) -> list[str]:
        """What the title line says beside the model's name."""
        main, cache = self.inputs.main, self.run.cache
        parameter = next(self.model.parameters(), None)
        facts = [
            f"{len(cache)} layers",
            *(["input " + "×".join(map(str, main.shape))] if main is not None else []),
            *([str(parameter.device)] if parameter is not None else []),
            f"{megabytes(cache.nbytes)} kept",
        ]
        if not self.run.scored:
            facts.append("no class scores, so no gradient: give target=output -> scalar")
        return facts
