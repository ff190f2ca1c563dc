"""``hookviz.watch``: a block around each step of a training, which records every n-th one."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from ...draw.document import check_size
from ...hooking.arguments import check_number, plain_index, whole_number
from ...hooking.interrupts import Block
from ...hooking.select import Layers, select_layers, type_name, unwrapped
from ...hooking.threads import open_block
from ...run.errors import first_sentence
from ..diagnosis.findings import Diagnosis
from ..diagnosis.loss_scale import check_scaler, factor_of
from .log import AutoSaver, History, TrainingLog, TrainingStep, step_of
from .probe import Maps, Probe
from .recorder import StepRecorder
from .training import Training
from .verdicts import lost_weights
from .weights import Weights, versions


def watch(
    model: nn.Module,
    layers: Layers = None,
    *,
    every: int = 50,
    probe: Any = None,
    max_bytes: float = 50e6,
    path: str | os.PathLike | None = None,
    scaler: Any = None,
    save_every: float = 60.0,
) -> Watch:
    """Record the statistics of every layer, step by step, while a model learns.

    The block goes around each step of a training, and one step in ``every`` is recorded. For each
    layer's output, and for the gradient that reaches it: mean, standard deviation, minimum,
    maximum, fraction of zeros, numbers of NaN and Inf, a histogram, and the mean of each channel.
    For its weights: their norm, the norm of their gradient, and the relative size of the update.
    Other steps run without any hook. The training is the same, to the bit.

    Parameters
    ----------
    model : torch.nn.Module
        Eager, or wrapped by ``DataParallel``, ``DistributedDataParallel`` or ``torch.compile``
        (a recorded step runs eagerly).
    layers : optional
        Which layers, as in `hookviz.capture`; but None is every layer that contains no layers, or
        has parameters itself.
    every : int
        Interval of the recorded steps; the first step is recorded.
    probe : optional
        A picture, or any input of `hookviz.explore`. Its maps are stored with each recorded step:
        those of the model in eval mode when the step begins.
    max_bytes : float
        Limit for the records, in bytes. When it is reached, every second recorded step is dropped,
        and ``every`` doubles.
    path : path, optional
        A file for the records. It is written with the first one, then at most every ``save_every``
        seconds, and when Python ends. If it exists, its training is continued.
    scaler : torch.amp.GradScaler, optional
        Gradients are divided by its scale; without it they are those of the scaled loss.
    save_every : float
        Seconds between two writes of the file. A training that is killed loses at most these.

    Returns
    -------
    Watch
        A context manager, and a `Training`: a table, `records`, `figure`, `save`.

    Raises
    ------
    ValueError
        Nothing matches ``layers``; ``every``, ``max_bytes``, ``scaler`` or ``save_every`` cannot be
        used; the folder of ``path`` is missing, or the file there is broken, or of another model,
        layers or ``every``; the model does not accept the probe.
    TypeError
        The model is not a module, or a layer is part of a ``ScriptModule``.

    Notes
    -----
    Forward and backward must run within the block; ``optimizer.step()`` may follow it. Several runs
    of the model within one block, as in gradient accumulation, are merged. A model in eval mode is
    recorded separately: the first block of each validation; but if the first block already has a
    backward in eval mode, such blocks are the training. Under torch.distributed the first
    process records its part of each batch, the others record nothing. A recorded step needs memory
    for a copy of the weights.

    Examples
    --------
    >>> import torch, hookviz
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> watch = hookviz.watch(model, every=2)
    >>> for step in range(5):
    ...     with watch:
    ...         loss = model(torch.ones(4, 3, 5, 5)).square().mean()
    ...         optimizer.zero_grad()
    ...         loss.backward()
    ...     optimizer.step()
    >>> watch.steps
    [0, 2, 4]
    >>> [record["layer"] for record in watch.records() if record["step"] == 0]
    ['0', '1', '2', '3']
    """
    return Watch(model, layers, every, probe, max_bytes, path, scaler=scaler, save_every=save_every)


class Watch(Block, Training):
    """A `Training` to which each block may add a step; `hookviz.watch` returns it."""

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        every: int,
        probe: Any,
        max_bytes: float,
        path: str | os.PathLike | None,
        *,
        scaler: Any,
        save_every: float = 60.0,
    ) -> None:
        every = whole_number("every", plain_index(every))
        check_scaler(scaler)
        check_size(max_bytes)
        check_number("save_every", save_every)
        Block.__init__(self)
        self._model, self._core = model, unwrapped(model)[0]
        chosen = select_layers(model, _layers if layers is None else layers)
        self._layers = {names[0]: module for module, names in chosen.items()}
        types = {name: type_name(module) for name, module in self._layers.items()}
        histories = {"train": History(every), "eval": History(1)}
        log = TrainingLog(type_name(self._core), types, int(max_bytes), every, histories)
        Training.__init__(self, log)
        self._probe = None if probe is None else Probe(model, probe, list(self._layers))
        if self._probe is not None:
            self._probe.maps()  # raises now what would fail in a step
        self._scaler = scaler
        # The last recorded step, until the next block begins.
        self._recorded: tuple[TrainingStep, Weights] | None = None
        self._versions: dict[int, int] = {}  # when the last block of training began
        self._validated = False  # True if the last block was of a validation
        self._learns_in_eval = False  # True if no block was in train mode, and a backward came
        self._uncalled = False
        self._shown: list[Any] = []
        self._keeper = None if path is None else AutoSaver(path, save_every)
        if self._keeper is not None:
            self._go_on(self._keeper)

    def _go_on(self, keeper: AutoSaver) -> None:
        """Continue the training in the file, if it exists."""
        if keeper.had is not None:
            if difference := keeper.had.difference(self.log):
                raise ValueError(
                    f"The file at path= is of another training: {difference}. It was not changed: "
                    "move it away, or give another path."
                )
            keeper.had.max_bytes = self.log.max_bytes
            self.log = keeper.had
        # Do not pass self: the finalizer would keep it alive.
        weakref.finalize(self, keeper.keep, self.log, now=True)

    @property
    def step(self) -> int:
        """The number of the next step; set it if a training continues from a checkpoint.

        Records of this step and later ones are dropped.
        """
        return self.log.histories["train"].seen

    @step.setter
    def step(self, number: int) -> None:
        number = whole_number("step", plain_index(number), 0)
        self._recorded = None
        for history in self.log.histories.values():
            history.cut(number)
        self.log.histories["train"].seen = number

    # The block

    def _begin(self) -> None:
        if rank():
            return
        if self._keeper is not None:
            self.exit_stack.callback(self._keeper.keep, self.log)
        # While another thread explores the model, it is in eval mode: wait before reading the mode.
        self.exit_stack.enter_context(open_block(self._core.modules()))
        training, validation = self.log.histories.values()
        graded = torch.is_grad_enabled()
        at, learns = training.seen, self._core.training or (self._learns_in_eval and graded)
        if not learns and self._validated:
            return
        self._validated = not learns
        if learns:  # a validation may run with other weights, such as their moving average
            self._measure_updates()
            self._recorded = None
        before = self._versions
        if learns:
            self._versions = versions(self._core.parameters())
        history = training if learns else validation
        number, should_record = history.seen, history.should_record
        history.seen += 1
        if should_record:
            modules = dict(self._core.named_modules(remove_duplicate=False))
            for name in self._layers.keys() & modules:  # a layer may have been replaced
                self._layers[name] = unwrapped(modules[name])[0]
            maps = self._maps() if learns else {}
            scale = factor_of(self._scaler)
            weights = learns or (graded and not self._versions)
            recorder = StepRecorder(
                self._model, self._layers, weights=weights, scale=scale, before=before
            )
            self.exit_stack.push(partial(self._conclude, (number, at), recorder, maps))
            self.exit_stack.enter_context(recorder)

    def _maps(self) -> Maps:
        try:
            return {} if self._probe is None else self._probe.maps()
        except Exception as error:  # errors while recording must not stop the training
            self.log.left_out["probe"] = f"{type(error).__name__}: {first_sentence(error)}"
            return {}

    def _conclude(
        self,
        place: tuple[int, int],
        recorder: StepRecorder,
        maps: Maps,
        kind: type[BaseException] | None,
        *error: object,
    ) -> None:
        """Add the step to the log; the hooks are off by now."""
        with suppress(*[] if kind is None else [Exception]):  # the user's error comes first
            self.log.left_out |= recorder.left_out
            if not recorder.rows:
                self._uncalled = True
                return
            if self._validated and recorder.weights.reached and not self._versions:
                place = self._begin_in_eval()
            summaries, norms = recorder.summaries(), {} if self._validated else recorder.norms()
            step = step_of(*place, recorder.rows, summaries, norms, maps)
            self.log.add("eval" if self._validated else "train", step, recorder.scale)
            if not self._validated:
                self.log.cut_off += recorder.has_graph and not step.has_gradients
                if recorder.weights.steps > 1:
                    self.log.merged = max(self.log.merged, recorder.weights.steps)
                self._recorded = step, recorder.weights
        for view in self._shown:
            try:
                view.push()
            except Exception as failure:  # errors while drawing must not stop the training
                message = f"{type(failure).__name__}: {first_sentence(failure)}"
                self.log.left_out["show()"] = message

    def _begin_in_eval(self) -> tuple[int, int]:
        """Count the block as a step of training: its backward reached weights in eval mode."""
        training, validation = self.log.histories.values()
        self._learns_in_eval, self._validated = True, False
        training.seen, validation.seen = training.seen + 1, validation.seen - 1
        return training.seen - 1, training.seen - 1

    def _measure_updates(self) -> None:
        """Measure the weight update of the last recorded step."""
        if self._recorded is not None:
            step, weights = self._recorded
            step.weights[:, -1] = weights.updates()
            self.log.carried[step.at] = weights.carried

    def show(self) -> Any:
        """As `Training.show`; new records appear in it while the training runs."""
        shown = super().show()
        self._shown = [*(each for each in self._shown if not each.closed), shown]
        return shown

    def history(self, phase: str = "train") -> History:
        self._measure_updates()  # provisional until the next block begins
        return super().history(phase)

    @property
    def findings(self) -> Diagnosis:
        """As `Training.findings`; it also finds weights that became NaN after the last record."""
        # Until the next step the weights may be others, such as those of the best checkpoint.
        if self._recorded is not None:
            self._recorded[0].weights[:, -1] = np.nan
        found, steps = super().findings, self.log.histories["train"].steps
        if steps and not found.worst("error") and (lost := Weights(self._layers).lost()):
            finite = dict(zip(steps[-1].layout.weighted, steps[-1].weights[:, 0], strict=True))
            if layers := [name for name in lost if np.isfinite(finite.get(name, np.nan))]:
                found.set_findings([lost_weights(layers, steps[-1].at), *found], found.looked_at)
        return found

    @property
    def title(self) -> str:
        facts, steps = [super().title], self.log.histories["train"].steps
        if number := rank():
            facts.append(f"this is process {number}: the first one records")
        if self._uncalled and not self.nbytes:
            facts.append("no watched layer ran within the block: call the model in it")
        elif steps and not steps[-1].has_gradients:
            facts.append("no gradient came: call backward() within the block")
        if self.log.merged:
            facts.append(
                f"a block held {self.log.merged:,} steps of the optimizer, merged into one: put "
                "`with watch:` around each step"
            )
        return "; ".join(facts)


def _layers(name: str, module: nn.Module) -> bool:
    """Return whether ``layers=None`` includes a layer."""
    if isinstance(module, torch.jit.ScriptModule):
        return False
    within = next(module.children(), None) is not None
    return not within or next(module.parameters(recurse=False), None) is not None


def rank() -> int:
    """Return the rank of this process in torch.distributed; 0 without it."""
    distributed = torch.distributed
    there = distributed.is_available() and distributed.is_initialized()
    return distributed.get_rank() if there else 0
