"""What concerns plain hooks: outputs that are overwritten, and hooks that were left behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from torch.utils.hooks import RemovableHandle

from ..analysis.standing import HookTable, hooks
from .examination import Examination
from .findings import Finding


def in_place(seen: Examination) -> Iterator[Finding]:
    """Layers whose output is overwritten: a plain hook that keeps it shows the wrong thing."""
    found = [look for look in seen.looks if look.overwritten is not None]
    if not found:
        return
    first, by = found[0], found[0].overwritten
    assert by is not None
    names = list(dict.fromkeys(look.layer for look in found))
    yield Finding(
        "in place",
        "note",
        f"The outputs of {len(names)} layers are overwritten in place, that of {first.layer!r} by "
        f"{by.name} in {by.layer!r}: a plain forward hook that keeps them without a copy shows "
        "what came after.",
        "Use hookviz.capture, which copies, or clone() in a hook of your own.",
        **by.place | {"layer": first.layer, "call": first.call},
        evidence={"layers": names},
    )


def hooks_left_behind(seen: Examination) -> Iterator[Finding]:
    """Hooks that are set more than once, and hooks that nobody can take off by their handle."""
    standing = hooks(seen.model)
    known = standing.repeated
    if known:
        yield _told(known, "warning", "is set {0} times", "A cell that sets it was run again: ")
    held = {each.id for each in gc.get_objects() if type(each) is RemovableHandle}
    left = [hook for hook in standing.removable if hook.key not in held and hook not in list(known)]
    if left:
        yield _told(HookTable(left, ""), "note", "stands without a handle", "To be rid of it, ")


def _told(found: HookTable, severity: str, what: str, why: str) -> Finding:
    first = found[0]
    others = len({(hook.module, hook.kind, hook.function) for hook in found}) - 1
    more = f", and {others} more like it" if others else ""
    return Finding(
        "hooks left behind",
        severity,
        f"The {first.kind} hook {first.function} on {first.name} {what.format(first.times)}{more}.",
        f"{why}hookviz.remove_hooks(model, of={first.function!r}); hookviz.hooks(model) lists all.",
        first.module,
        file=first.file,
        line=first.line or 0,
        evidence={"hooks": len(found)},
    )
