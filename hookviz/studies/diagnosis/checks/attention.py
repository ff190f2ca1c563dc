"""Attention modules all of whose heads look at one token, or everywhere alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ....attribution.attention import has_collapsed, head_records, is_uniform
from ....attribution.attention_listener import Attended, AttentionListener
from ....attribution.heads import may_attend
from ....run.recorder import Listener
from ..check import Check, RunRecord
from ..findings import Finding


@dataclass
class AttentionHeads(Check):
    """Note heads that look at one token whatever the query, or everywhere alike.

    Notes, since either may be right: trained language models often attend to a first token in order
    to attend to nothing, and small weights, as before training, spread attention evenly.
    """

    recorded: list[AttentionListener] = field(default_factory=list)

    def listeners(self, model: nn.Module) -> Iterable[Listener]:
        if may_attend(model):
            self.recorded.append(AttentionListener(model, reduce=_heads))
        return self.recorded

    def looked_at(self, run: RunRecord) -> str:
        count = sum(map(len, self._heads().values()))
        return f"where {count} heads of attention look" if count else ""

    def _heads(self) -> dict[str, list[dict[str, Any]]]:
        """Return the heads by module; several calls of a module belong to it."""
        modules: dict[str, list[dict[str, Any]]] = {}
        for attended in (each for listener in self.recorded for each in listener.found):
            name = attended.name.partition("#")[0]
            modules.setdefault(name, []).extend(attended.reduced or ())
        return modules

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        several = {
            name: [each for each in heads if each["keys"] >= 4 and each["queries"] > 1]
            for name, heads in self._heads().items()
        }
        modules = {name: heads for name, heads in several.items() if heads}
        uniform = [name for name, heads in modules.items() if all(map(is_uniform, heads))]
        for name, heads in modules.items():
            many = len(heads) > 1
            count = f"All {len(heads)} heads of {name!r} look" if many else (
                f"The head of {name!r} looks"
            )  # fmt: skip
            if all(map(has_collapsed, heads)):
                yield _collapsed(name, count, heads)
            elif name in uniform:
                yield _uniform(name, count, heads, whole=len(uniform) == len(modules))


def _collapsed(name: str, count: str, heads: list[dict[str, Any]]) -> Finding:
    keys = sorted({each["key"] for each in heads})
    least = min(each["fraction"] for each in heads)
    tokens = f"token{'s' * (len(keys) > 1)} {', '.join(map(str, keys[:4]))}"
    return Finding(
        "attention",
        "note",
        f"{count} at one token whatever the query: {100 * least:.0f} % of the weight or more goes "
        f"to {tokens}.",
        "See hookviz.attention(model, inputs) on other inputs, too: in trained language models it "
        "is common that many heads look at a first token.",
        name,
        evidence={"fraction": least, "keys": keys},
        cause="collapsed",
    )


def _uniform(name: str, count: str, heads: list[dict[str, Any]], *, whole: bool) -> Finding:
    where = ", as in all of this model, and as before training." if whole else "."
    return Finding(
        "attention",
        "note",
        f"{count} everywhere alike: the entropy is 99 % of the largest possible or more{where}",
        "Train the model, or load its weights, if it should attend to something."
        if whole
        else "Look at the scale of its queries and keys: hookviz.capture has their values.",
        name,
        evidence={"entropy": min(each["entropy"] for each in heads)},
        cause="uniform",
    )


def _heads(attended: Attended, weights: Tensor) -> list[dict[str, Any]]:
    return head_records(attended.name, weights.detach())
