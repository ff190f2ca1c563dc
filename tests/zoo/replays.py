"""Compare replays bitwise with full runs on classifiers: ``python -m tests.zoo.replays``.

In each model, three channels are off in a layer of the first quarter of its convolutions and in one
of the last. Where a replay cannot be proved right, the whole model runs, which is counted.
"""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

import torch

import hookviz
from hookviz.hooking.edit import LayerEdit
from hookviz.run.inputs import prepare_input
from hookviz.run.replay import Replay
from hookviz.run.session import Session
from hookviz.run.target import logits_of
from zoo.models import Case, classifiers
from zoo.report import table

MOST = 125
"""How many classifiers of pictures: all of torchvision's, and 45 of timm's."""


@dataclass(frozen=True)
class Found:
    """Counts for one model: edited runs that were replays, full runs, and not bitwise equal."""

    name: str
    replayed: int
    whole: int
    wrong: int


def look(case: Case) -> Found:
    """Edit two layers of a model, three channels each."""
    model = case.build()
    session = Session(model, prepare_input(case.input(), model))
    with hookviz.capture(model) as cache, session.active(grad=False):
        session.call(*session.inputs.args, **session.inputs.kwargs)
    names = [record.name for record in cache.values()]
    replayed = whole = wrong = 0
    for name in dict.fromkeys((names[len(names) // 8], names[-1 - len(names) // 8])):
        replay = Replay(model, [model.get_submodule(name)])
        for channel in range(min(3, cache[name].module.out_channels)):
            edit = LayerEdit(name, 0, channel)
            got = logits_of(session.edited([edit]).replayed(replay))
            with session.edited([edit]).active(grad=False):
                wanted = logits_of(session.call(*session.inputs.args, **session.inputs.kwargs))
            wrong += not torch.equal(got, wanted)
        replayed, whole = replayed + replay.replayed, whole + replay.whole
    return Found(case.name, replayed, whole, wrong)


def written(found: list[Found]) -> str:
    """Return the page."""
    total = [sum(getattr(each, name) for each in found) for name in ("replayed", "whole", "wrong")]
    lines = [
        "# Replays",
        "",
        "Written by `python -m tests.zoo.replays`. Six edited runs a model, three channels off in",
        "each of two layers: how many were replays, how many ran whole for want of a proof, and",
        "how many were not equal to the bit to an edited run of the whole model.",
        "",
        f"**{len(found)} models: {total[0]} replayed, {total[1]} whole, {total[2]} wrong.**",
        "",
        *table(["model", "replayed", "whole", "wrong"], map(astuple, found)),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    found = []
    pictures = [case for case in classifiers().values() if case.kind != "video"]
    for case in pictures[:MOST]:
        found.append(look(case))
        print(found[-1], flush=True)
    Path(__file__).with_name("REPLAYS.md").write_text(written(found))
    return int(any(each.wrong for each in found))


if __name__ == "__main__":
    sys.exit(main())
