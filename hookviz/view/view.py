"""A run at some settings: the layer's maps, their order, their colours, and their context."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch

from ..attribution.attention import Attention
from ..attribution.cam import HEATMAPS
from ..attribution.flip import Flip
from ..attribution.heads import (
    AttentionRecord,
    attention_beside,
    attention_in,
    head_scores,
    with_attention,
)
from ..attribution.perturbation import Ablation, ablation_scores
from ..draw.colours import DIVERGING, FAINT, SEQUENTIAL, colour_ranges, faint, robust_end, to_numpy
from ..draw.overlay import picture_of
from ..hooking.edit import Change, Channels, LayerEdit, Where
from ..hooking.maps import as_maps
from ..hooking.records import Call, CapturedTensor, LayerRecord
from ..hooking.select import Layers, module_names
from ..run.inputs import ModelInput
from ..run.origins import (
    UNKNOWN,
    CallOrigin,
    PictureSource,
    call_origins,
    picture_tensors,
    single_picture,
)
from ..run.progress import Progress
from ..run.session import Run, Session
from ..run.stages import RETURNED, stages_of, tensor_after, words_after
from ..run.target import Target
from ..studies.diagnosis.values import zeroed
from ..studies.receptive_field.field import ReceptiveField, receptive_fields
from ..tables import number
from .answer import ShownOutput, read_answer
from .frame import Panel, Prediction, are_classes, class_labels, ranked, target_name
from .layer import (
    CONTRIBUTION,
    FIXED,
    SCORE_DROP,
    SIMILARITY,
    Cell,
    ChannelStatistics,
    HealthSummary,
    LayerView,
    LayerWords,
    channel_order,
    layer_overview,
    layer_view,
    layer_words,
    scores_here,
    showable,
    similarities,
    values_of,
    verdict,
)
from .settings import INDICES, Settings, heatmap_names
from .transform import TransformWords, transform_words_of


class Memo:
    """A cache that holds one value for each name, with its key.

    So its size is bounded. A cached method would hold its view, and so a run with all its maps, for
    as long as the class lives. The key is everything that the value depends on and that may change
    while the memo lives.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[Hashable, Any]] = {}

    def get(self, name: str, key: Hashable) -> Any:
        """Return the value for this key; None if it is not cached."""
        found = self._made.get(name)
        return found[1] if found is not None and found[0] == key else None

    def get_or_compute(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value for this key; call ``make`` only if the key has changed.

        >>> memo = Memo()
        >>> [memo.get_or_compute("square", x, lambda x=x: print("made") or x * x) for x in (2, 2)]
        made
        [4, 4]
        """
        if name not in self._made or self._made[name][0] != key:
            self._made[name] = (key, make())
        return self._made[name][1]


def run_session(
    session: Session, target: Target, layers: Layers, max_bytes: int | None = None
) -> Run:
    """Run one forward and one backward, with a progress bar if they take long.

    What attends is a layer, too.
    """
    given = with_attention(session.given, layers)
    beside = attention_beside(session, layers)
    with Progress() as bar:
        return session.run(
            target, layers=given, max_bytes=max_bytes, on_progress=bar.update, beside=beside
        )


class View:
    """A session's run at some settings. Cheap to copy: results are cached.

    `memo` caches results of the run, `input_memo` results of the inputs alone. `original` is a view
    of the run without the session's edits, if it has any.
    """

    which = ""  # the name of the run beside pictures, if there are two
    run_names: tuple[str, str] = ("original", "edited")  # names of the two runs
    opened: Mapping[str, str] = MappingProxyType({})  # where it opened by itself: layer -> reason
    edited: View | None = None  # the edited run, if this is shown in its place

    def __init__(
        self,
        at: Settings,
        session: Session,
        run: Run,
        input_memo: Memo | None = None,
        original: View | None = None,
    ) -> None:
        self.settings, self.session, self.run, self.cache = at, session, run, run.cache
        self.memo, self.input_memo, self.original = Memo(), input_memo or Memo(), original
        # By layer: drops of the score without each channel, (N, C); those of an earlier run, and
        # what has changed since.
        self.drops: dict[str, np.ndarray] = {}
        self.old_drops: dict[str, tuple[np.ndarray, str]] = {}

    def with_settings(self, settings: Settings | None = None, **changes: Any) -> Self:
        """Return the same run at these settings, with these changes."""
        twin = copy.copy(self)
        twin.settings = replace(settings or self.settings, **changes)
        return twin

    def with_run(self, run: Run) -> Self:
        """Return a new run at the same settings."""
        twin = copy.copy(self)
        twin.run, twin.cache, twin.memo = run, run.cache, Memo()
        twin.drops = self.drops if run is self.run else {}
        return twin

    def remembering(self, before: View, why: str) -> Self:
        """Return this view with the drops of an earlier run, ``why`` of which are now old."""
        twin = copy.copy(self)
        twin.old_drops = before.old_drops | {k: (drops, why) for k, drops in before.drops.items()}
        return twin

    def fitted(self) -> Self:
        """Return a view with all indices in range, for example after a change of the layer.

        Grad-CAM replaces a heatmap that the user has removed from ``HEATMAPS``.
        """
        call = min(self.settings.call, len(self.cache[self.settings.layer].calls) - 1)
        heatmap = self.settings.heatmap
        known = heatmap in HEATMAPS or heatmap in heatmap_names(self)
        view = self.with_settings(call=call, heatmap=heatmap if known else "gradcam")
        ends = {name: min(getattr(view.settings, name), n - 1) for name, n in view.counts().items()}
        ends["reference_channel"] = min(view.settings.reference_channel, len(view.layer.maps) - 1)
        return view.with_settings(**ends)

    # The layer

    @property
    def layers(self) -> list[str]:
        """The layers that can be shown as maps."""
        return self.memo.get_or_compute("layers", None, lambda: showable(self.cache))

    @property
    def layer_name(self) -> str:
        return self.settings.layer or "(model)"

    @property
    def record(self) -> LayerRecord:
        """The shown layer; if it was over the budget, from a run for it alone.

        Attention is seen from the chosen query.
        """
        whole, query = self.whole_record, self.query
        if not isinstance(whole, AttentionRecord):
            return whole
        key = (self.settings.layer, query)
        return self.memo.get_or_compute("seen record", key, lambda: whole.seen_from(query))

    @property
    def whole_record(self) -> LayerRecord:
        """The shown layer, and of attention all queries."""
        return self.memo.get_or_compute("record", self.settings.layer, self._record)

    @property
    def query(self) -> int | None:
        """The query whose attention is shown; None for other layers, and for a matrix."""
        whole, at = self.whole_record, self.settings
        if not isinstance(whole, AttentionRecord):
            return None
        return whole.query(at.place, at.depth, at.call)

    @property
    def attends(self) -> bool:
        """True if the shown layer is attention."""
        return isinstance(self.cache[self.settings.layer], AttentionRecord)

    def edit(
        self, layer: str, change: Change, channels: Channels = None, where: Where = None
    ) -> LayerEdit:
        """Return the edit of a layer, or of attention's heads."""
        record = self.cache.get(layer)
        if isinstance(record, AttentionRecord) and layer == record.name:
            return record.edit(change, channels, where)
        return LayerEdit(layer, change, channels, where)

    @property
    def has_attention(self) -> bool:
        """True if attention is among the layers."""
        return any(isinstance(each, AttentionRecord) for each in self.cache.values())

    @property
    def attention(self) -> Attention | None:
        """All attention of the run; None where nothing attends."""
        if not self.has_attention:
            return None
        make = lambda: attention_in(self.session, self.cache, self.settings.target)  # noqa: E731
        return self.input_memo.get_or_compute("attention", weakref.ref(self.cache), make)

    @property
    def channel_word(self) -> str:
        """The name of what a channel is here."""
        return "head" if self.attends else "channel"

    @property
    def token_names(self) -> tuple[list[str], list[str]]:
        """The words of the rows and of the columns of a matrix of attention; empty if unknown."""
        names = self.session.token_names
        if not names or not self.attends or self.query is not None:
            return [], []
        rows, columns = self.layer.maps.shape[1:]
        return names * (len(names) == rows), names * (len(names) == columns)

    @property
    def beside(self) -> dict[str, np.ndarray]:
        """The chosen query's weights at keys that are not patches, by their names: ``(heads,)``."""
        whole = self.whole_record
        if not isinstance(whole, AttentionRecord) or whole.prefix(self.settings.call) is None:
            return {}
        found = whole.beside(self.query, self.settings.call)
        if found is None:
            return {}
        rows = to_numpy(found[min(self.settings.sample, len(found) - 1)])
        return dict(zip(whole.beside_names, rows.T, strict=False))

    @property
    def query_words(self) -> str:
        """The query in words; empty for other layers."""
        whole = self.whole_record
        if not isinstance(whole, AttentionRecord):
            return ""
        return whole.query_words(self.query, self.settings.call)

    def _record(self) -> LayerRecord:
        record = self.cache[self.settings.layer]
        if record.name not in self.memo.get_or_compute(
            "dropped", None, lambda: set(self.cache.over_budget)
        ):
            return record
        return run_session(self.session, self.settings.target, record.module).cache[record.name]

    @property
    def call(self) -> Call:
        """The shown call."""
        return self.record.calls[self.settings.call]

    @property
    def layer(self) -> LayerView:
        """Maps and gradients of the layer, call, sample and depth."""
        at = self.settings

        def make() -> LayerView:
            call = self.call
            tensors = call.activation, call.gradient
            own = layer_view(*tensors, call.module, at.sample, at.depth, call.grid)
            tensor = tensor_after(self.later_outputs, at.shown_after)
            if tensor is None:
                return own
            staged = layer_view(tensor, None, call.module, at.sample, at.depth, call.grid)
            return replace(own, maps=staged.maps)

        key = (at.layer, at.call, at.sample, at.depth, self.query, at.shown_after)
        return self.memo.get_or_compute("layer", key, make)

    @property
    def order(self) -> str:
        """The order that the channels are in: by number, where it needs what is not known."""
        # Ablating another layer's channels would take hundreds of runs, for a step of a slider.
        order = self.settings.order
        return "index" if order not in FIXED and self.order_scores is None else order

    @property
    def order_scores(self) -> np.ndarray | None:
        """The scores that the channels are sorted by, ``(C,)``; None if unknown, or for others."""
        at = self.settings
        if at.order in FIXED:
            return None
        if at.order == SCORE_DROP:
            return self.ablation_scores
        if at.order == SIMILARITY:
            maps = self.layer.maps
            reference = min(at.reference_channel, len(maps) - 1)
            make = lambda: similarities(maps, reference)  # noqa: E731
            return self.memo.get_or_compute("similarities", (self.layer, reference), make)
        return None if at.place is None else self.scores_here()

    def scores_here(self) -> np.ndarray | None:
        """Compute the scores of the order at the chosen position, see `layer.scores_here`."""
        # Gradients are those of the output, also where the maps are shown after something else.
        own = self.settings.order == CONTRIBUTION
        view = self.with_settings(shown_after=RETURNED) if own else self
        return scores_here(view.layer, self.settings.order, *place_of(view))

    @property
    def later_outputs(self) -> dict[str, torch.Tensor]:
        """The outputs after the normalization and the activation; empty for maps as returned."""
        at, record = self.settings, self.whole_record
        if at.shown_after == RETURNED or isinstance(record, AttentionRecord):
            return {}
        make = lambda: stages_of(self.session, record.module)  # noqa: E731
        every = self.memo.get_or_compute("stages", at.layer, make)
        return every[at.call] if at.call < len(every) else {}

    @property
    def shown_after_words(self) -> str:
        """The setting ``shown_after`` in words; empty for maps as returned."""
        at = self.settings
        return "" if at.shown_after == RETURNED else words_after(self.later_outputs, at.shown_after)

    @property
    def channels(self) -> np.ndarray:
        """Channel numbers, in the order of the slider and the mosaic."""
        layer, order, scores = self.layer, self.order, self.order_scores
        key = (layer, order, None if scores is None else scores.tobytes())
        return self.memo.get_or_compute("order", key, lambda: channel_order(layer, order, scores))

    def ablate(self, seconds: float | None = None) -> float:
        """Compute `ablation_scores`: the model runs once for every channel.

        Parameters
        ----------
        seconds : float, optional
            About the longest that it takes; the next call goes on. None is until all is done.

        Returns
        -------
        float
            The fraction done, 0 to 1.
        """
        at, whole = self.settings, self.whole_record
        if at.layer in self.drops:
            return 1.0
        if isinstance(whole, AttentionRecord):
            drops = head_scores(self.session, whole, at.target)
        elif seconds is None:
            drops = ablation_scores(self.session, at.layer, at.target)
        else:
            make = lambda: Ablation(self.session, at.layer, at.target)  # noqa: E731
            parts = self.memo.get_or_compute("ablation", at.layer, make)
            share = parts.work(seconds)
            if share < 1:
                return share
            drops = parts.scores()
        self.drops[at.layer] = to_numpy(drops)
        return 1.0

    def flip(self, channels: Sequence[int]) -> Flip:
        """Return the work of switching channels off, in this order, until the answer changes."""
        at, sample = self.settings, self.input_sample
        off = lambda those: self.edit(at.layer, 0, those)  # noqa: E731
        make = lambda: Flip(self.session, off, channels, sample)  # noqa: E731
        return self.memo.get_or_compute("flip", (at.layer, sample, tuple(channels)), make)

    @property
    def ablation_scores(self) -> np.ndarray | None:
        """The drop of the target's score without each channel, ``(C,)``; None until `ablate`.

        That of an earlier run stands until then, see `ablation_age`.
        """
        layer = self.settings.layer
        old, _ = self.old_drops.get(layer, (None, ""))
        every = self.drops.get(layer, old)
        if every is None or every.shape[1] != len(self.layer.maps):
            return None
        return every[min(self.input_sample, len(every) - 1)]

    @property
    def ablation_age(self) -> str:
        """The change since the run whose drops are shown; empty if they are of this run."""
        layer = self.settings.layer
        return "" if layer in self.drops else self.old_drops.get(layer, (None, ""))[1]

    @property
    def position(self) -> int:
        """The index of the channel in `channels`."""
        return int(np.flatnonzero(self.channels == self.settings.channel)[0])

    def counts(self) -> dict[str, int]:
        """Return the number of channels, calls, samples and slices."""
        layer, calls = self.layer, len(self.record.calls)
        found = (len(layer.maps), calls, layer.samples, layer.depths)
        return dict(zip(INDICES, found, strict=True))

    @property
    def magnitudes(self) -> str:
        """The note beside pictures and numbers of complex tensors."""
        return ", absolute values" if self.call.outputs[0].dtype.is_complex else ""

    # Input and output

    @property
    def source(self) -> PictureSource | str:
        """The input sample that the shown maps were computed from, or why none can be named."""
        return self.source_of(self.whole_record.module, self.settings.call, self.layer.samples)

    def source_of(self, module: torch.nn.Module, call: int, rows: int) -> PictureSource | str:
        """Return the source of the shown sample in a call of a layer that has this many rows."""
        single = single_picture(self.session)
        if single is not None:
            return single

        def make() -> dict[torch.nn.Module, list[CallOrigin]]:
            session = self.session.edited(())
            names = {module: each[0] for module, each in module_names(session.model).items()}
            shown = {each.module: names[each.module] for each in self.cache.values()}
            try:
                found = call_origins(session, shown.values())
            except (ValueError, TypeError, RuntimeError):
                return {}
            return {
                module: [origin for (layer, _), origin in sorted(found.items()) if layer == name]
                for module, name in shown.items()
            }

        origins = self.input_memo.get_or_compute("origins", None, make).get(module, [])
        if call >= len(origins) or len(origins[call].rows) != rows:
            return UNKNOWN
        sample = self.settings.sample
        return origins[call].rows[sample] if sample < rows else UNKNOWN

    def shares_picture(self, name: str) -> bool:
        """Return True if a layer's last call is of the picture beside the shown maps."""
        record = self.cache[name]
        return self.source == self.source_of(
            record.module, len(record.calls) - 1, _samples(record.last)
        )

    @property
    def input_sample(self) -> int:
        """The sample of the input, and of the output, that the layer's shown sample belongs to.

        If it cannot be named, it is taken that each sample has the same number of rows, in order.
        """
        if isinstance(source := self.source, PictureSource):
            return source.sample
        rows, batch = self.layer.samples, self.session.inputs.samples
        return self.settings.sample * batch // rows if rows % batch == 0 else 0

    @property
    def of_parts(self) -> bool:
        """True if the layer's samples are windows or boxes cut from the inputs."""
        main = self.session.inputs.main
        return main is not None and self.layer.samples > len(main)

    @property
    def layers_of_parts(self) -> set[str]:
        """The layers that are `of_parts`."""
        main = self.session.inputs.main
        if main is None:
            return set()
        count = len(main)

        def make() -> set[str]:
            return {name for name in self.layers if _samples(self.cache[name].last) > count}

        return self.memo.get_or_compute("parts", None, make)

    @property
    def depth_share(self) -> float:
        """The relative depth of the slice, 0 to 1, for volumes with another number of slices."""
        return self.settings.depth / max(self.layer.depths - 1, 1)

    @property
    def picture(self) -> np.ndarray | None:
        """The input of the shown sample; of a volume, the slice at the same relative depth."""
        return self.picture_and_words[0]

    @property
    def picture_and_words(self) -> tuple[np.ndarray | None, str]:
        """The picture, and a note on the normalization; None if its source is unknown."""
        at = self.picture_at
        return (None, "") if at is None else self.picture_of(*at)

    @property
    def picture_at(self) -> tuple[int, float, int] | None:
        """The sample, the relative depth and the input tensor of the picture beside the maps."""
        source = self.source
        if not isinstance(source, PictureSource):
            return None
        return source.sample, self.depth_share, source.input

    @property
    def no_picture(self) -> str:
        """Why there is no picture beside the maps, in a sentence; empty if there is one."""
        if isinstance(source := self.source, str) and picture_tensors(self.session.inputs):
            return f"No picture is shown beside this map: {source}."
        return ""

    def picture_of(self, sample: int, depth: float, tensor: int) -> tuple[np.ndarray | None, str]:
        """Return a sample of an input tensor, at a relative depth, and a note on normalization."""
        key, inputs = (sample, depth, tensor), self.shown_inputs
        memo = self.input_memo if inputs is self.session.inputs else self.memo
        return memo.get_or_compute("picture", key, lambda: picture_of(inputs, *key))

    @property
    def shown_inputs(self) -> ModelInput:
        """The input of the run, after the edits that change it."""
        if not any(each.of_input for each in self.session.edits):
            return self.session.inputs
        return self.memo.get_or_compute("inputs", None, lambda: self.session.edited_inputs)

    @property
    def transform(self) -> TransformWords | None:
        """The transform in words; None where no picture was given."""
        make = lambda: transform_words_of(self.session)  # noqa: E731
        return self.input_memo.get_or_compute("transform", None, make)

    @property
    def predictions(self) -> list[Prediction]:
        """The sample's top classes."""
        sample, names, logits = self.input_sample, self.session.class_names, self.run.logits
        classes = are_classes(self.session.model, logits, names)
        before = None if self.original is None else self.original.run.logits
        make = lambda: ranked(logits, sample, names, classes, before)  # noqa: E731
        return self.memo.get_or_compute("ranked", sample, make)

    @property
    def answer(self) -> ShownOutput:
        """The parts of the output that are pictures; false of a classifier."""
        main, sample, names = self.session.inputs.main, self.input_sample, self.session.class_names
        if main is None or main.ndim < 3 or not self.run.leaves:
            return ShownOutput([], [])
        size = (*(1,) * (4 - main.ndim), *main.shape)
        make = lambda: read_answer(self.run.leaves, size, sample, names)  # noqa: E731
        return self.memo.get_or_compute("answer", sample, make)

    @property
    def target_name(self) -> str:
        """The name of the target."""
        names, logits = self.session.class_names, self.run.logits
        if self.settings.target is None and logits is not None and not self.predictions:
            return "NaN scores" if logits.numel() else "nothing"
        return target_name(self.settings.target, self.input_sample, names, self.predictions)

    @property
    def classes(self) -> list[str]:
        """The names of all classes; empty without a classifier."""
        logits, names = self.run.logits, self.session.class_names
        count = 0 if logits is None else logits.shape[1]
        return self.memo.get_or_compute("classes", None, lambda: class_labels(count, names))

    @property
    def layer_overview(self) -> list[Cell]:
        """One cell per layer."""
        return self.memo.get_or_compute(
            "overview", None, lambda: layer_overview(self.cache, self.layers)
        )

    @property
    def verdict(self) -> HealthSummary:
        """The summary of the network's health."""
        inputs = self.session.inputs
        main, samples, kind = inputs.main, inputs.samples, "input"
        if main is not None and main.ndim == 4 and main.shape[1] in (1, 3):
            kind = "picture"

        def make() -> HealthSummary:
            cells = self.layer_overview
            blocked = any(cell.gradient == 0 for cell in cells)
            return verdict(cells, samples, kind, zeroed(self.session.given) if blocked else ())

        return self.memo.get_or_compute("verdict", None, make)

    @property
    def words(self) -> dict[str, LayerWords]:
        """The description of each layer."""
        make = lambda: {name: layer_words(self.cache[name]) for name in self.layers}  # noqa: E731
        return self.memo.get_or_compute("words", None, make)

    def describe(self) -> str:
        """Return this view in words, the alt text of its pictures."""
        maps, kind = self.layer.maps, type(self.record.module).__name__
        seen = f", query: {self.query_words}" if self.query_words else ""
        return (
            f"{self.channel_word} {self.settings.channel} of {len(maps)} of layer "
            f"{self.layer_name} ({kind}), a map of {map_size(maps)}{seen}, in {self.session.name}"
        )


def for_layer(view: View, **changes: Any) -> View:
    """Return the same run at other settings; keeps the shown layer's cache."""
    return view.with_run(view.run).with_settings(**changes).fitted()


def place_of(view: View) -> tuple[int, int]:
    """Return row and column of the chosen position, or of the middle."""
    down, right = view.settings.place or (0.5, 0.5)
    height, width = view.layer.maps.shape[-2:]
    return min(int(down * height), height - 1), min(int(right * width), width - 1)


def field_of(view: View) -> ReceptiveField | str:
    """Return the layer's receptive field, or why it has none; one run serves all layers."""
    session, call = view.session, view.settings.call

    def make() -> dict[str, ReceptiveField] | str:
        modules = [
            view.cache[name].module
            for name in view.layers
            if not isinstance(view.cache[name], AttentionRecord)
        ]
        try:
            return receptive_fields(session.given, session.inputs, modules, call=call)
        except (ValueError, TypeError, RuntimeError) as error:
            return str(error)

    every = view.input_memo.get_or_compute("fields", call, make)
    return every if isinstance(every, str) else every.get(view.settings.layer, "it has no places")


class ShownMaps:
    """The feature map of a view and its gradient, and their colours."""

    def __init__(self, view: View) -> None:
        self.view = view

    def colours(self) -> tuple[str, np.ndarray, np.ndarray]:
        """Return the colormap, and low and high for each channel."""
        diverging = self.view.settings.cmap == "auto" and self.view.layer.signed
        name = (
            (DIVERGING if diverging else SEQUENTIAL)
            if self.view.settings.cmap == "auto"
            else self.view.settings.cmap
        )
        return name, *self._ranges(
            False, self.view.layer.maps, self.view.layer.statistics, diverging
        )

    def _ranges(
        self, gradients: bool, maps: np.ndarray, statistics: ChannelStatistics, diverging: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        normalize, ends = self.view.settings.normalize, (statistics.min, statistics.max)

        def make() -> tuple[np.ndarray, np.ndarray]:
            whole = self.network_range(gradients) if normalize == "network" else (0.0, 0.0)
            return colour_ranges(maps, *ends, normalize, diverging=diverging, network=whole)

        name = "gradient colours" if gradients else "colours"
        return self.view.memo.get_or_compute(name, (self.view.layer, normalize, diverging), make)

    def network_range(self, gradients: bool) -> tuple[float, float]:
        """Return the least and largest finite value of all layers' activations or gradients."""

        def make() -> tuple[float, float]:
            every = [self.view.cache[name].last.outputs[0] for name in self.view.layers]
            ends = [each for tensor in every if (each := _ends(tensor, gradients)) is not None]
            return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else (0.0, 0.0)

        return self.view.memo.get_or_compute(
            "network gradients" if gradients else "network", None, make
        )

    def panels(self) -> list[Panel]:
        """Return the panels of the feature map and, if any, its gradient."""
        layer, here = self.view.layer, self.view.settings.channel
        cmap, low, high = self.colours()
        words = self.view.describe()
        values = layer.maps[here]
        name = f"{self.view.channel_word} {here}"
        shown = [self._panel(name, words, "map", values, cmap, low, high)]
        gradients = layer.gradient_statistics
        if layer.gradients is not None and gradients is not None:
            low, high = self._ranges(True, layer.gradients, gradients, True)
            name, values = f"gradient of {self.view.target_name}", layer.gradients[here]
            alt = f"{name}: {words}"
            shown.append(self._panel(name, alt, "gradient", values, DIVERGING, low, high))
        return shown

    def _panel(
        self,
        name: str,
        alt: str,
        role: str,
        values: np.ndarray,
        cmap: str,
        lows: np.ndarray,
        highs: np.ndarray,
    ) -> Panel:
        low, high = (ends[self.view.settings.channel] for ends in (lows, highs))
        gradients, note = role == "gradient", ""
        if gradients and self.view.settings.normalize == "channel":
            end = robust_end(values, float(high))
            if end is not None:
                note = f"colours end at {number(end)}, the largest is {number(float(high))}"
                low, high = -end, end
        note = (
            note
            or (gradients and FLAT[self._flatness(values)])
            or self._stretched(gradients, low, high)
        )
        if role == "map" and self.view.shown_after_words:
            note = "; ".join(filter(None, (self.view.shown_after_words, note)))
        if role == "map" and self.view.no_picture:
            note = "; ".join(filter(None, (note, self.view.no_picture)))
        if role == "map" and self.view.query_words:
            note = "; ".join(filter(None, (f"query: {self.view.query_words}", note)))
        return Panel(
            name=name,
            detail=f"{map_size(values)}{self.view.magnitudes}{self.view.which}",
            alt=alt,
            role=role,
            values=values,
            cmap=cmap,
            low=low,
            high=high,
            note=note,
            tokens=self.view.token_names,
        )

    def _flatness(self, values: np.ndarray) -> int:
        """Return how flat a channel's gradient is, see `flatness`."""
        kind, every = int(flatness(values[None])[0]), self.view.layer.gradients
        return 1 if kind == 4 and every is not None and every.any() else kind

    def _stretched(self, gradients: bool, low: float, high: float) -> str:
        """Return a warning for a map that is constant or nearly so; else empty."""
        statistics = (
            self.view.layer.gradient_statistics if gradients else self.view.layer.statistics
        )
        here = self.view.settings.channel
        if statistics is None:
            return ""
        if statistics.constant[here]:
            return f"{'zero' if statistics.silent[here] else 'the same'} everywhere"
        most = np.fmax(np.abs(statistics.min), np.abs(statistics.max))
        known = [
            cell.gradient if gradients else cell.activation for cell in self.view.layer_overview
        ]
        scales = {
            "layer": float(np.fmax.reduce(most)),
            "network": max((each for each in known if each and math.isfinite(each)), default=0.0),
        }
        for name, scale in scales.items():
            if faint(low, high, scale):
                return f"stretched: less than {FAINT:g} of the {name}'s scale"
        return ""


def flatness(gradients: np.ndarray) -> np.ndarray:
    """Return the index in `FLAT` for each channel's gradient ``(C, H, W)``: ``(C,)``.

    Before an average all positions of a map count the same; behind a closed ReLU none counts, and
    in no channel where no gradient arrives; of one place's score few count. 0 where the gradient is
    not flat.

    Examples
    --------
    >>> flatness(np.array([[[0.0, 2.0, 2.0]], [[1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]])).tolist()
    [3, 0, 1]
    >>> flatness(np.zeros((2, 1, 3))).tolist()
    [4, 4]
    """
    flat = gradients.reshape(len(gradients), -1)
    if flat.shape[1] < 2:
        return np.zeros(len(flat), np.uint8)
    count, most = np.count_nonzero(flat, 1), np.where(flat.max(1) > 0, flat.max(1), flat.min(1))
    one_value = ((flat == 0) | (flat == most[:, None])).all(1)  # NaN is neither
    kind = np.where(count == flat.shape[1], 2, np.where(count > 1, 3, 0))
    kind = np.where(one_value & (kind > 0), kind, np.where(100 * count <= flat.shape[1], 5, 0))
    return np.where(count == 0, 1 if count.any() else 4, kind).astype(np.uint8)


FLAT = (
    "",
    "no gradient in this channel, as if the ReLU after it were off everywhere",
    "flat, as before average pooling: try an earlier layer",
    "flat, as before a ReLU and average pooling: try an earlier layer",
    "no gradient reaches this layer: it is zero in all channels",
    "zero at 99 % of the positions or more",
)
"""Notes on flat gradients, see `flatness`."""


def _ends(tensor: CapturedTensor, gradients: bool) -> tuple[float, float] | None:
    """Return the least and largest finite value of a tensor or its gradient; None if none."""
    if gradients and not tensor.has_gradient:
        return None
    if (values := values_of(tensor, gradients)) is not None:
        low, high = values.aminmax()  # many times faster than all statistics
        if low.isfinite() and high.isfinite():
            return low.item(), high.item()
    known = tensor.gradient_statistics if gradients else tensor.statistics
    return None if known is None or math.isnan(known.min) else (known.min, known.max)


def _samples(call: Call) -> int:
    """Return how many samples a layer ran on; the shape says it, without the values."""
    return len(as_maps(torch.empty(call.outputs[0].shape, device="meta"), call.module, call.grid))


def map_size(maps: np.ndarray) -> str:
    """Format height and width of maps ``(..., H, W)``, or a 1d layer's length."""
    height, width = maps.shape[-2:]
    return f"{height}×{width}" if height > 1 else str(width)
