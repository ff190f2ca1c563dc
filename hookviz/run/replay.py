"""Run a model many times with one layer changed, without repeating the modules before it.

One whole run records what each module returned that began and ended before the boundary, where the
first changed layer returns: of nested modules the outermost ones alone. In a replay the model's own
code runs as always, but each of these modules returns a copy of the recorded values at once.

Each recording is tested before its use: a replay without changes must return the recorded output to
the bit. If it does not, or if the modules run in another order, the whole model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..hooking.checkpoint import ModuleCallStack
from ..hooking.handles import Hook, HookManager
from ..hooking.tensors import map_tensors, tensors_in

T = TypeVar("T")
_Recording = list[tuple[nn.Module, Any]]
"""The modules in the order in which they ended, with their outputs."""


class Replay:
    """Runs of a model in which nothing changes before one of these layers has returned.

    Attributes
    ----------
    replayed, whole : int
        The numbers of runs that were replays, and of runs of the whole model.

    Examples
    --------
    >>> import hookviz
    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3))
    >>> x, replay = torch.ones(1, 1, 9, 9), Replay(model, [model[1]])
    >>> def silenced(channel):
    ...     with hookviz.edit(model, "1", 0, channels=channel):
    ...         return model(x)
    >>> with torch.no_grad():
    ...     without = [replay.run(lambda: silenced(c), lambda: model(x)) for c in (0, 1)]
    >>> replay.replayed, replay.whole
    (2, 0)
    >>> bool((without[1] == silenced(1)).all())
    True
    """

    def __init__(self, model: nn.Module, layers: Iterable[nn.Module]) -> None:
        self._model, self._layers = model, list(layers)
        self._recordings: dict[Hashable, _Recording | None] = {}  # of the latest key only
        self.replayed = self.whole = 0

    def run(self, changed: Callable[[], T], plain: Callable[[], Any], key: Hashable = None) -> T:
        """Run ``changed``, which runs the model once, without a graph.

        ``plain`` runs it on the same input without changes; it is called twice for each new
        ``key``. The key identifies everything else that a run depends on, such as the batch size.
        """
        if key not in self._recordings:
            self._recordings = {key: self._tested(plain)}
        recording = self._recordings[key]
        if recording is not None:
            try:
                with _replayed(recording):
                    result = changed()
            except _DivergedError:
                self._recordings[key] = None
            else:
                self.replayed += 1
                return result
        self.whole += 1
        return changed()

    def _tested(self, plain: Callable[[], Any]) -> _Recording | None:
        """Record a run; None unless its replay returns the same."""
        try:
            recorded, recording = self._recorded(plain)
            with _replayed(recording):
                replayed = plain()
        except (_DivergedError, Exception):  # a whole run will raise the model's own error
            return None
        return recording if _same(recorded, replayed) else None

    def _recorded(self, plain: Callable[[], Any]) -> tuple[Any, _Recording]:
        """Run the model; return its output, and the outputs of the modules before the boundary."""
        recording: _Recording = []
        running: ModuleCallStack[tuple[nn.Module, int]] = ModuleCallStack()
        passed = False

        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            running.begin(module, (module, len(recording)))

        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            nonlocal passed
            begun, passed = running.end(module), passed or module in self._layers
            if passed or begun is None:
                return
            _, begin = begun  # this output replaces those of the modules that ran within
            recording[begin:] = [(module, map_tensors(output, torch.clone))]
            parent, first = running.innermost() or (None, 0)
            if type(parent) is nn.Sequential and begin > first:
                # Only this module has read the previous output, so its values are not needed.
                before, read = recording[begin - 1]
                recording[begin - 1] = before, map_tensors(read, _without_values)

        modules = [m for m in self._model.modules() if not isinstance(m, torch.jit.ScriptModule)]
        hooks: list[Hook] = [(module, "forward_pre", enter) for module in modules]
        with HookManager([*hooks, *((module, "forward", leave) for module in modules)]):
            output = plain()
        if not passed:
            raise _DivergedError
        return output, recording


class _DivergedError(BaseException):
    """The replay diverged from the recording. No ``except Exception`` in a model catches this."""


@contextmanager
def _replayed(recording: _Recording) -> Iterator[None]:
    """Let the recorded modules return their recorded outputs, in the order of the recording."""
    remaining, real = list(reversed(recording)), 0

    def forward(module: nn.Module, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal real
        if real or not remaining:
            return original(*args, **kwargs)
        expected, output = remaining.pop()
        if expected is not module:
            raise _DivergedError
        if not _is_hooked(module):
            return map_tensors(output, torch.clone)
        real += 1
        try:
            return original(*args, **kwargs)
        finally:
            real -= 1

    # No hook can skip a forward. A session removes these attributes even if an interrupt comes.
    modules = {module: vars(module).get("forward") for module, _ in recording}
    try:
        for module in modules:
            vars(module)["forward"] = partial(forward, module, module.forward)
        yield
    finally:
        for module, own in modules.items():
            vars(module).pop("forward", None)
            if own is not None:
                vars(module)["forward"] = own
    if remaining:
        raise _DivergedError


def _without_values(tensor: Tensor) -> Tensor:
    """Return a tensor of NaN or zeros without memory, which the test of a recording notices."""
    value = torch.nan if tensor.is_floating_point() else 0
    return tensor.new_full((), value).expand(tensor.shape)


def _is_hooked(module: nn.Module) -> bool:
    """Return whether hooks wait for modules within this one, which must run for them."""
    inner = (part for part in module.modules() if part is not module)
    return any(part._forward_hooks or part._forward_pre_hooks for part in inner)


def _same(output: Any, other: Any) -> bool:
    """Return whether two outputs have equal values; NaN equals nothing."""
    one, two = dict(tensors_in(output)), dict(tensors_in(other))
    return list(one) == list(two) and all(torch.equal(one[path], two[path]) for path in one)
