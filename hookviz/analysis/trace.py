"""Every kind of hook on every module, for one forward and one backward, in the order they fire."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, overload

from torch import Tensor, nn

from ..hooking.capture import eager
from ..hooking.interrupts import breakable, unbroken
from ..hooking.select import check_model, module_names
from ..run.inputs import ModelInput, Transform, class_names_of, prepare_input
from ..run.session import (
    Goal,
    backward,
    differentiable,
    explained,
    innermost_call,
    refuse_lazy,
    untouched,
)
from ..run.targets import Target, check_target, score_of
from ..widgets import lifecycle as cells
from ..widgets.player import Player
from .events import Event, html_table, text_table, type_name
from .inplace import Overwrites
from .recorder import FULL, Names, Recorder, Refused, first_line


def trace(
    model: nn.Module,
    x: Any,
    target: Target = None,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
) -> Trace:
    """See which hook fires when, and what it receives, in one forward and one backward.

    On every module go a forward_pre, a forward, a full_backward_pre and a full_backward hook, and
    on every tensor that it returns a tensor hook. Each writes down what it received and changes
    nothing. As in `hookviz.explore`, the model runs in eval mode, on a copy of the input that asks
    for a gradient, and is as before afterwards, to the bit.

    Parameters
    ----------
    model : torch.nn.Module
    x
        What the model takes: whatever `hookviz.explore` does.
    target : optional
        What the gradient is of, as in `hookviz.explore`: None is each sample's top class.
    weights, transform, class_names : optional
        As in `hookviz.explore`.

    Returns
    -------
    Trace
        A sequence of `hookviz.analysis.events.Event`. At the end of a notebook cell it is a player.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError, RuntimeError
        As `hookviz.explore`: each in one sentence that says what to do.

    Notes
    -----
    A full backward hook hands the module, and who called it, views of the tensors they asked for,
    and torch makes it an error to overwrite these in place, as ``nn.ReLU(inplace=True)`` does.
    A first forward looks for such modules. They go without these two hooks; an event at the end
    of the trace says so, as it does for every other hook that could not be set or did not fire.

    Parameters' own hooks are not set.

    Examples
    --------
    >>> import torch, hookviz
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    >>> for event in hookviz.trace(model, torch.ones(1, 1, 3, 3)):
    ...     print(event.kind, event.name)
    forward_pre (model)
    forward_pre 0
    forward 0
    forward_pre 1
    forward 1
    forward (model)
    full_backward_pre (model)
    tensor (model)
    full_backward_pre 1
    tensor 1
    full_backward 1
    full_backward_pre 0
    tensor 0
    full_backward 0
    full_backward (model)
    """
    check_target(target)
    check_model(model)
    refuse_lazy(model)
    inputs = prepare_input(x, model, weights=weights, transform=transform)
    names = module_names(model)
    recorder = _record(model, inputs, names, target, class_names_of(model, weights, class_names))
    tree = [(known[0], type_name(module)) for module, known in names.items()]
    return Trace(recorder.events(), tree, recorder.missed, recorder.scored)


class Trace(Sequence[Event]):
    """The events of one forward and one backward, in the order in which the hooks fired.

    Made by `hookviz.trace`. A slice of it is a trace, too. After the events come those hooks that
    could not be set or did not fire: their ``time`` is None and their ``note`` says why.

    Attributes
    ----------
    missed : list of str
        Modules that did not run.
    scored : bool
        Whether there was a score to go backward from.
    """

    def __init__(
        self,
        events: Sequence[Event],
        tree: Sequence[tuple[str, str]],
        missed: Sequence[str] = (),
        scored: bool = True,
    ) -> None:
        self._events, self._tree = tuple(events), tuple(tree)
        self.missed, self.scored = list(missed), scored
        self._player: Player | None = None

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> Trace: ...
    def __getitem__(self, place: int | slice) -> Event | Trace:
        if isinstance(place, slice):
            return Trace(self._events[place], self._tree, self.missed, self.scored)
        try:
            return self._events[place]
        except IndexError:
            raise IndexError(f"There is no event {place}: this trace has {len(self)}.") from None

    def records(self) -> list[dict[str, Any]]:
        """Every event as a flat dict of plain values: ``pandas.DataFrame(trace.records())``.

        Returns
        -------
        list of dict
            With the keys index, time, kind, module, type, call, depth, path, note, code, shape
            (``"1×64×56×56"``, several with spaces between), dtype, and min, max, mean, zeros, nans,
            infs, norm, which are None where the hook received no tensor.
        """
        return [event.record() for event in self]

    def player(self) -> Player:
        """The widget that a notebook shows for this trace; its trait ``event`` can be set.

        Raises
        ------
        ValueError
            A trace without events.
        """
        if self._player is None or self._player.closed:
            self._player = Player(self, self._tree, self.title)
        return self._player

    def close(self) -> None:
        """Release the player's widgets; the events stay."""
        if self._player is not None:
            self._player.close()
            self._player = None

    @property
    def title(self) -> str:
        """Model, number of events, and what there is to be known about all of them."""
        fired = [event for event in self if event.fired]
        back = sum(event.backward for event in fired)
        facts = [
            f"{self._tree[0][1]}: {len(fired)} hooks fired, {len(fired) - back} in the forward "
            f"and {back} in the backward",
        ]
        if unfired := len(self) - len(fired):
            facts.append(f"{unfired} could not be set or did not fire")
        if self.missed:
            modules = "module" + "s" * (len(self.missed) != 1)
            facts.append(f"{len(self.missed)} {modules} did not run")
        if not self.scored:
            facts.append("no class scores, so no backward: give target=output -> scalar")
        return "; ".join(facts)

    def __repr__(self) -> str:
        return text_table(f"Trace of {self.title}", self)

    def _repr_html_(self) -> str:
        return html_table(f"Trace of {self.title}", self)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_player": None}  # a widget can be neither copied nor pickled

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The player, and the table for places without a kernel, such as GitHub."""
        data: dict[str, Any] = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if len(self):
            player = self.player()
            cells.shown(player)
            data["application/vnd.jupyter.widget-view+json"] = player.view()
        return data


@unbroken
def _record(
    model: nn.Module, inputs: ModelInput, names: Names, target: Target, class_names: Sequence[str]
) -> Recorder:
    """Run the model and write down every hook that fires.

    A full backward hook that the first forward did not find out about may still be an error: then
    the layer in which it arose goes without, and, should that not help, all do.

    Raises
    ------
    ValueError, RuntimeError
        What the model raises without any hooks, or a target that is not there.
    """
    refused = _overwritten(model, inputs, names)
    for blame_one in (True, False):
        try:
            return _record_once(model, inputs, names, target, class_names, refused)
        except Exception as error:
            cause = error.__cause__ or error  # without what `explained` says
            call = innermost_call(cause, names)
            blamed = call[0] if call else next(iter(names))
            for module in [blamed] if blame_one else names:
                for kind in FULL:
                    refused.setdefault((module, kind), first_line(cause))
    return _record_once(model, inputs, names, target, class_names, refused)


def _record_once(
    model: nn.Module,
    inputs: ModelInput,
    names: Names,
    target: Target,
    class_names: Sequence[str],
    refused: Refused,
) -> Recorder:
    goal: Goal | None = "inputs"
    while goal is not None:
        recorder = Recorder(model, names, refused)
        with _running(model, inputs) as (args, kwargs, sources), recorder:
            output = _call(model, inputs, args, kwargs)
            score = breakable(score_of, output, target, class_names)
            recorder.scored = score is not None
            again = None if score is None else backward(score, sources, model, goal)
        learns = any(parameter.requires_grad for parameter in model.parameters())
        if again is None and goal == "inputs" and recorder.scored and learns:
            # Not all layers depend on the input: a learned query, an embedding.
            again = "parameters" if recorder.waiting else None
        goal = again
    return recorder


@contextmanager
def _running(
    model: nn.Module, inputs: ModelInput
) -> Iterator[tuple[list[Any], dict[str, Any], list[Tensor]]]:
    with ExitStack() as around:
        around.enter_context(untouched(model))
        around.enter_context(eager())
        around.enter_context(warnings.catch_warnings())
        # Torch's own, about hooks that it will not call or calls early: an event says it.
        for start in ("For backward hooks to be called", "Full backward hook is firing"):
            warnings.filterwarnings("ignore", message=start)
        yield differentiable(model, inputs, around)


def _call(model: nn.Module, inputs: ModelInput, args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return breakable(model, *args, **kwargs)
    except Exception as error:
        raise explained(error, model, inputs) from error


def _overwritten(model: nn.Module, inputs: ModelInput, names: Names) -> Refused:
    """Which modules cannot take a full backward hook, as one forward without any shows."""
    watch = Overwrites(names)
    with _running(model, inputs) as (args, kwargs, _), watch:
        _call(model, inputs, args, kwargs)
    refused: Refused = {}
    for module, why in watch.found().items():
        for kind in FULL:
            refused[module, kind] = (
                f"{why} in place, an error under a full backward hook, not under a tensor hook"
            )
    return refused
