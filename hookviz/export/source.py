"""The explorer's view as plain PyTorch: the shortest code that computes and draws it.

The code is put together of pieces, each there only where the view needs it: what it takes, the
input, the hook, the run, the maps, the heatmap, the pictures. Names and texts go in by `quoted`,
so that no layer's, file's or class's name can be read as code.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Mapping
from keyword import iskeyword
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..attribution.cam import HEATMAPS
from ..attribution.gradients import ATTRIBUTIONS
from ..hooking.layout import as_maps
from ..hooking.select import unwrapped
from ..render.overlay import heat_colours
from ..run.targets import Target, class_index
from ..view.frame import Panel
from ..view.heatmaps import ShownHeatmap
from ..view.settings import PRODUCT
from ..view.view import View
from .source_input import Given, Origin, origin_of, quoted

_WIDTH = 88


def listing(scene: View, given: Given) -> str:
    """What computes and draws a scene's feature map, gradient and heatmap, without hookviz.

    Returns
    -------
    str
        Python source. What it takes stands in comments at its beginning.

    Raises
    ------
    ValueError
        A few lines cannot do it; the message says why.
    """
    return _Listing(scene, given).text()


# Each formula ends in a heatmap (N, *spatial). A and G are what the docstrings in heatmaps.py call
# so; {d} are the places' dimensions.
_WEIGHTED = "(weights * activation).sum(1).relu()"
_COMPONENT = (
    "places = {maps}[{row}].flatten(1).T  # one row of channels for each place",
    "places = places - places.mean(0)",
    "_, _, directions = torch.linalg.svd(places, full_matrices=False)",
    "heatmap = (places @ directions[0]).unflatten(0, activation.shape[2:])",
    "peak = heatmap.flatten()[heatmap.abs().argmax()]",
    "heatmap = heatmap{cut} * peak.sign()  # a component's sign is arbitrary",
)
_FORMULAS: dict[str, tuple[str, ...]] = {
    "gradcam": (
        "weights = gradient.mean({d}, keepdim=True)",
        f"heatmap = {_WEIGHTED}[{{at}}]",
    ),
    "gradcam++": (
        "total = activation.sum({d}, keepdim=True)",
        "alpha = (1 / (2 + total * gradient)).where(gradient != 0, 0)",
        "weights = (alpha * gradient.relu()).sum({d}, keepdim=True)",
        f"heatmap = {_WEIGHTED}[{{at}}]",
    ),
    "hirescam": ("heatmap = (gradient * activation).sum(1)[{at}]",),
    "xgradcam": (
        "total = activation.sum({d}, keepdim=True)",
        "weights = (gradient * activation).sum({d}, keepdim=True) / total",
        "weights = weights.where(total != 0, 0)",
        f"heatmap = {_WEIGHTED}[{{at}}]",
    ),
    "layercam": ("heatmap = (gradient.relu() * activation).sum(1).relu()[{at}]",),
    "eigencam": tuple(line.replace("{maps}", "activation") for line in _COMPONENT),
    "eigengradcam": tuple(line.replace("{maps}", "(gradient * activation)") for line in _COMPONENT),
    "gradient": ("heatmap = gradient.mean(1)[{at}]",),
    "activation": ("heatmap = activation.mean(1)[{at}]",),
}
_RUN_AGAIN = ("smoothgrad", "integrated_gradients", "guided_backprop")
_BUILT_IN = dict(HEATMAPS)  # before the user adds or replaces any

_GUIDED = """
class GuidedReLUs(TorchFunctionMode):  # ReLUs pass on positive gradients only
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.__name__ in ("relu", "relu_") and result.requires_grad:
            result.register_hook(lambda gradient: gradient.clamp(min=0))
        return result
"""


class _Listing:
    """The pieces. Each returns its lines and notes what it imports and takes."""

    def __init__(self, scene: View, given: Given) -> None:
        self.scene, self.at, self.session = scene, scene.at, scene.session
        self.run = scene.run
        self.given, self.heat = given, ShownHeatmap(scene)
        self.call = scene.call
        self.method = self.at.heatmap if self.heat.values is not None else None
        self.graded = self.call.gradient is not None
        self.scored = self.graded or self.method in ATTRIBUTIONS
        self.imports = {"import matplotlib.pyplot as plt", "import torch"}
        self.takes: list[str] = []
        self.model = _unwrapped(self.session.given)
        self.calling, self.x, self.x_at = _call_of(self.session.inputs, self.model[0])
        self.origin = self._origin()
        self._refuse()

    def _refuse(self) -> None:
        """Raise for what would take more than a few lines."""
        name, module = self.scene.record.name, self.scene.record.module
        core = self.model[1]
        if any(hasattr(part, "_orig_mod") for part in core.modules()):
            raise ValueError(
                "There is no short code for a model of which parts are compiled, since hooks do "
                "not reach into those: explore the model before torch.compile."
            )
        if name and core.get_submodule(name) is not module:
            raise ValueError(f"There is no short code for layer {name!r}: the model hides it.")
        if self.run.goal == "everything":
            raise ValueError(
                "There is no short code for reentrant checkpointing, which runs each layer twice: "
                "give checkpoint(..., use_reentrant=False)."
            )
        if self.call.activation.is_complex():
            raise ValueError(f"There is no short code for layer {name!r}: its maps are complex.")
        if self.method in ATTRIBUTIONS and self.x is None:
            raise ValueError(
                f"There is no short code for {self.method!r} of a model with several arguments: "
                "wrap the model so that it takes one tensor."
            )

    def text(self) -> str:
        running, heatmap, back = self._running(), self._heatmap(), self._mode_back()
        if self.method in _RUN_AGAIN:
            heatmap += back
        else:
            running += back
        body = [*self._input(), *self._hook(), "", *running, "", *self._maps(), *heatmap, ""]
        body += self._drawing()
        return "\n".join([*self.takes, *_imports(self.imports), "", *body]) + "\n"

    # What goes in

    def _origin(self) -> Origin | None:
        x, inputs = self.x, self.session.inputs
        if x is None or self.calling != f"{self.model[0]}(x)" or len(x) != 1:
            return None
        key = (inputs, self.given)
        make = lambda: origin_of(self.given, x, self.session.given)  # noqa: E731
        return self.scene.input_memo.once("origin", key, make)

    def _input(self) -> list[str]:
        lines = self._model_lines()
        asks = self.scored and self.differentiable
        asking = ".requires_grad_()" if asks else ""
        if self.origin is not None:
            self.imports |= set(self.origin.imports)
            if not isinstance(self.given.image, (str, PathLike)):
                self._take("image", "the picture that you gave")
            return [*lines, *self.origin.lines, f"x = {self.origin.last}{asking}"]
        if self.x is None:
            for name in ("args", *(["kwargs"] if self.session.inputs.kwargs else [])):
                self._take(name, f"what went in: explorer.inputs.{name}")
            return lines
        shape = tuple(self.x.shape)
        self._take("x", f"what went in, shape {shape}: explorer.inputs.{self.x_at}")
        return [*lines, *([f"x = x.clone(){asking}"] if asks else [])]

    def _model_lines(self) -> list[str]:
        name, weights = self.given.name, self.given.weights
        if name is None:
            self._take("model", f"your {type(self.session.given).__name__}")
            return []
        self.imports.add("from torchvision.models import get_model")
        return [f"model = get_model({quoted(name)}, weights={quoted(weights.name)})"]

    def _take(self, name: str, what: str) -> None:
        line = f"# {name}: {what}"
        if line not in self.takes:
            self.takes.append(line)

    # The hook

    def _hook(self) -> list[str]:
        calls, several = self.scene.record.calls, len(self.scene.record.calls) > 1
        path = self.call.outputs[0].path
        lists = "activations, gradients = [], []" if self.graded else "activations = []"
        lines = ["calls = []" if several else lists, "", "def keep(module, args, output):"]
        if path:
            lines.append(f"    output = output{_checked_path(path)}")
        why = "  # before in-place ReLUs overwrite it"
        if several:
            lines += ['    call = {"activation": output.detach().clone()}' + why]
            lines += ["    calls.append(call)"]
        else:
            lines += ["    activations.append(output.detach().clone())" + why]
        if not self.graded:
            return lines
        arrived = (
            "lambda gradient: call.update(gradient=gradient)" if several else "gradients.append"
        )
        watch = f"output.register_hook({arrived})"
        if any(each.outputs[0].watched_in is None for each in calls):
            return [*lines, "    if output.requires_grad:", f"        {watch}"]
        lines.append(f"    {watch}")
        if _is_unbatched(self.call.activation, self.scene.record.module):
            # What overwrites a view in place takes the view's hook out of the graph.
            lines.append("    return output.clone()")
        return lines

    # The run

    def _running(self) -> list[str]:
        model, core = self.model
        lines = []
        if len({module.training for module in core.modules()}) > 1:
            every = f"for module in {model}.modules()"
            lines.append(f"training = {{module: module.training {every}}}")
        name = self.scene.record.name
        layer = f"{model}.get_submodule({quoted(name)})" if name else model
        lines += [f"{model}.requires_grad_()"] if self.thawed else []
        # The handle takes the hook off at the end of the block, also if the model raises.
        lines += [f"{model}.eval()"]
        hooked = f"with {layer}.register_forward_hook(keep):"
        if not self.scored:
            hooked = hooked.replace("with ", "with torch.no_grad(), ")
            return [*lines, hooked, f"    {self.calling}"]
        lines += [hooked, *(f"    {line}" for line in self._score(self.at.target))]
        return [*lines, *self._backward()]

    def _mode_back(self) -> list[str]:
        model, core = self.model
        flags = {module.training for module in core.modules()}
        if flags == {True}:
            return [f"{model}.train()"]
        if flags == {False}:
            return []
        return ["for module, was in training.items():", "    module.training = was"]

    def _backward(self) -> list[str]:
        why = "  # sets off the hook; no .grad is touched" if self.graded else ""
        if self.differentiable and self.run.goal == "inputs":
            slopes = "(slopes,) = " if self.method == "saliency" else ""
            return [f"{slopes}torch.autograd.grad(score, x){why}"]
        model, core = self.model
        every = f"{model}.parameters()"
        if self.thawed or all(parameter.requires_grad for parameter in core.parameters()):
            sources = f"[x, *{every}]" if self.differentiable else f"list({every})"
        else:
            start = "x, *(p" if self.differentiable else "p"
            sources = f"[{start} for p in {every} if p.requires_grad{')' * self.differentiable}]"
        slopes = "slopes, *_ = " if self.method == "saliency" else ""
        lines = [
            f"sources = {sources}",
            f"{slopes}torch.autograd.grad(score, sources, allow_unused=True){why}",
        ]
        return [*lines, f"{model}.requires_grad_(False)"] if self.thawed else lines

    @property
    def differentiable(self) -> bool:
        """Whether the gradient can be asked of the input."""
        return self.x is not None and self.x.is_floating_point()

    @property
    def thawed(self) -> bool:
        """Whether the parameters, all frozen, must be asked instead."""
        frozen = not any(parameter.requires_grad for parameter in self.model[1].parameters())
        return self.scored and frozen and not self.differentiable

    # The score

    def _score(self, target: Target) -> list[str]:
        """``score = ...``, a scalar."""
        if callable(target):
            name = getattr(target, "__name__", type(target).__name__)
            self._take("target", f"your function {quoted(name)}: explorer.target")
            return [f"score = target({self.calling})"]
        if isinstance(target, list):
            terms = [self._term(each, str(row)) for row, each in enumerate(target)]
            rows = [f"    {term},{comment}" for term, comment in terms]
            return [f"logits = {self._logits()}", "score = sum([", *rows, "])"]
        if self.run.logits is not None and len(self.run.logits) == 1:
            term, comment = self._term(target, "0")
        else:
            term, comment = self._term(target, ":")
            term = f"{term}.sum()" if " " not in term.replace(", ", ",") else f"({term}).sum()"
        return self._with_logits("score = ", term, comment)

    def _term(self, target: Target, row: str) -> tuple[str, str]:
        """One sample's score, or with ``row=":"`` each sample's ``(N,)``; and a comment."""
        if target is None:
            top = "logits.amax(1)" if row == ":" else f"logits[{row}].max()"
            return top, "  # the top class" + (" of each sample" if row == ":" else "")
        names, width = self.session.class_names, self._width()
        classes: Any = target if isinstance(target, tuple) else (target,)
        first, *others = (class_index(each, width, names) for each in classes)
        said = " against ".join(quoted(names[i]) for i in (first, *others) if i < len(names))
        comment = f"  # {said}" if said else ""
        if not others:
            return f"logits[{row}, {first}]", comment
        if len(others) == 1:
            return f"logits[{row}, {first}] - logits[{row}, {others[0]}]", comment
        mean = "mean(1)" if row == ":" else "mean()"
        return f"logits[{row}, {first}] - logits[{row}, {others}].{mean}", comment

    def _with_logits(self, start: str, term: str, comment: str) -> list[str]:
        """The term with the model's answer in it, in one line if it is needed once."""
        if term.count("logits") == 1:
            return [start + term.replace("logits", self._logits()) + comment]
        return [f"logits = {self._logits()}", start + term + comment]

    def _logits(self) -> str:
        returned = self.run.returned
        if issubclass(returned, Tensor):
            return self.calling
        return self.calling + ('["logits"]' if issubclass(returned, Mapping) else ".logits")

    def _width(self) -> int:
        assert self.run.logits is not None  # there is no score of classes without
        return self.run.logits.shape[1]

    # Maps

    def _maps(self) -> list[str]:
        """``activation`` and ``gradient``, arranged as ``(N, C, *spatial)``."""
        call, module = self.call, self.scene.record.module
        several = len(self.scene.record.calls) > 1
        arranged = _arrangement(call.activation, module, call.grid)
        arranged += ".float()" if call.activation.dtype in (torch.half, torch.bfloat16) else ""
        arranged += ".cpu()" if call.activation.device.type != "cpu" else ""
        names = ["activation", *(["gradient"] if self.graded else [])]
        place = f'calls[{self.at.call}]["{{}}"]' if several else "{}s[0]"
        values = [place.format(name) + arranged for name in names]
        whole = f"{', '.join(names)} = {', '.join(values)}"
        if not arranged and len(whole) <= _WIDTH:
            return [whole]
        return [f"{name} = {value}" for name, value in zip(names, values, strict=True)]

    @property
    def _shape(self) -> torch.Size:
        call = self.call
        empty = torch.empty(call.activation.shape, device="meta")
        return as_maps(empty, self.scene.record.module, call.grid).shape

    @property
    def _spatial(self) -> int:
        return len(self._shape) - 2

    def _index(self, *indices: int) -> str:
        """Of a map in the layer; of a volume, with the slice."""
        depth = [self.at.depth] if self._spatial == 3 else []
        return ", ".join(map(str, [*indices, *depth]))

    # Heatmaps

    def _heatmap(self) -> list[str]:
        method, sample = self.method, self.at.sample
        if method is None:
            return []
        if method in ATTRIBUTIONS:
            return self._attribution(method)
        if method == PRODUCT:
            return [f"heatmap = (activation * gradient)[{self._index(sample, self.at.channel)}]"]
        if HEATMAPS[method] is not _BUILT_IN.get(method):
            return self._own_method(method)
        places = tuple(range(2, 2 + self._spatial))
        words = {
            "d": str(places) if len(places) > 1 else str(places[0]),
            "at": self._index(sample),
            "row": str(sample),
            "cut": f"[{self.at.depth}]" if self._spatial == 3 else "",
        }
        return [line.format(**words) for line in _FORMULAS[method]]

    def _own_method(self, method: str) -> list[str]:
        self._take("method", f"your function: hookviz.HEATMAPS[{quoted(method)}]")
        alone = len(inspect.signature(HEATMAPS[method]).parameters) == 1
        given = "activation" if alone or not self.graded else "activation, gradient"
        given += ", None" if not alone and not self.graded else ""
        return [f"heatmap = method({given})[{self._index(self.at.sample)}]"]

    def _attribution(self, method: str) -> list[str]:
        assert self.x is not None
        sample = min(self.at.sample, len(self.x) - 1)
        at = str(sample)
        if self.x.ndim == 5:
            at += f", {round(self.scene.depth_share * (self.x.shape[2] - 1))}"
        end = f"[{at}]" + (".float()" if self.x.dtype in (torch.half, torch.bfloat16) else "")
        end += ".cpu()" if self.x.device.type != "cpu" else ""
        if method == "saliency":
            return [f"heatmap = slopes.abs().amax(1){end}"]
        if method == "guided_backprop":
            self.imports.add("from torch.overrides import TorchFunctionMode")
            lines = [f"    {line}" for line in self._score(self.at.target)]
            return [
                *_GUIDED.rstrip("\n").split("\n"),
                "",
                "with GuidedReLUs():",
                *lines,
                "(slopes,) = torch.autograd.grad(score, x)",
                f"heatmap = slopes.sum(1){end}",
            ]
        given = "x.detach()"
        if len(self.x) > 1 and not callable(self.at.target):
            # The sample by itself is the batch now.
            given += f"[{sample}:{sample + 1}]"
            end = f"[{', '.join(['0', *at.split(', ')[1:]])}]"
        function, target = self._forward(sample)
        if method == "integrated_gradients":
            self.imports.add("from captum.attr import IntegratedGradients")
            rows = len(self.x) if callable(self.at.target) else 1
            made = f"IntegratedGradients({{}}).attribute(\n    {given}, {target}"
            made += f"internal_batch_size={rows}\n)"
        else:
            self.imports.add("from captum.attr import NoiseTunnel, Saliency")
            made = f"NoiseTunnel(Saliency({{}})).attribute(\n    {given}, {target}abs=False,"
            made += " nt_samples=25, nt_samples_batch_size=1,\n    stdevs="
            part = given.replace(".detach()", "")
            made += f"0.15 * ({part}.max() - {part}.min()).item(),\n)"
            function = [*function, "torch.manual_seed(0)"]
        name = "score_of" if any(line.startswith("def score_of") for line in function) else None
        call = f"slopes = {made.format(name or self.model[0])}"
        return [*function, *call.split("\n"), f"heatmap = slopes.sum(1){end}"]

    def _forward(self, sample: int) -> tuple[list[str], str]:
        """What captum is given: the model and a target, or a function of our own and none."""
        target = self.at.target
        if callable(target):
            body = [f"return target({self.calling}).reshape(1)"]
        else:
            target = target[sample] if isinstance(target, list) else target
            if target is None:  # the class of the picture itself, whatever noise is added
                assert self.run.logits is not None
                target = int(self.run.logits[sample].argmax())
            plain = issubclass(self.run.returned, Tensor) and self.calling == f"{self.model[0]}(x)"
            if plain and not isinstance(target, tuple):
                number = class_index(target, self._width(), self.session.class_names)
                return [], f"target={number}, "
            body = self._with_logits("return ", *self._term(target, ":"))
        return ["", "def score_of(x):", *(f"    {line}" for line in body), ""], ""

    # Drawing

    def _drawing(self) -> list[str]:
        panels = self.scene.panels()
        if len(panels) == 1 and self.method is None:
            return [f"plt.{self._panel('activation', panels[0])}", "plt.show()"]
        lines = []
        for place, (name, panel) in enumerate(
            zip(("activation", "gradient"), panels, strict=False)
        ):
            lines.append(f"axes[{place}].{self._panel(name, panel)}")
        count = len(panels)
        if self.method is not None:
            lines += self._draw_heatmap(f"axes[{count}]")
            count += 1
        return [f"_, axes = plt.subplots(1, {count})", *lines, "plt.show()"]

    def _panel(self, name: str, panel: Panel) -> str:
        values = f"{name}[{self._index(self.at.sample, self.at.channel)}]"
        if self._spatial == 1:
            return f"plot({values})"
        colours = self._colours(panel.values, panel.low, panel.high)
        return f"imshow({values}, {quoted(panel.cmap)}{colours})"

    def _colours(self, values: np.ndarray, low: float, high: float) -> str:
        """The range of colours as arguments: matplotlib's own choice where it is the same."""
        if np.isfinite(values).all() and low < high:
            if high == -low == np.abs(values).max():
                self.imports.add("from matplotlib.colors import CenteredNorm")
                return ", norm=CenteredNorm()"
            if (low, high) == (values.min(), values.max()):
                return ""
        return f", vmin={low:.7g}, vmax={high:.7g}"

    def _draw_heatmap(self, axes: str) -> list[str]:
        values = self.heat.values
        assert values is not None
        if len(values) == 1 and (self._spatial == 1 or self.method in ATTRIBUTIONS):
            return [f"{axes}.plot(heatmap)"]
        colours = heat_colours(values)
        if self.heat.alone or self.x is None or self.x.ndim < 4:
            name, low, high = colours or ("viridis", 0.0, 1.0)
            return [f"{axes}.imshow(heatmap, {quoted(name)}{self._heat_range(values, low, high)})"]
        lines = self._picture(axes)
        if colours is None:
            return [*lines, f'{axes}.set_title("heatmap: zero everywhere")']
        name, low, high = colours
        heatmap, size = "heatmap", tuple(self.x.shape[-2:])
        if values.shape != size:
            heatmap = "large"
            self.imports.add("from torch.nn.functional import interpolate")
            enlarge = 'interpolate(heatmap[None, None], x.shape[-2:], mode="bilinear")[0, 0]'
            lines.append(f"large = {enlarge}")
        limits = self._heat_range(values, low, high, of=heatmap)
        return [*lines, *_draw(f"{axes}.imshow({heatmap}, {quoted(name)}{limits}", self.at.alpha)]

    def _heat_range(self, values: np.ndarray, low: float, high: float, of: str = "heatmap") -> str:
        if not np.isfinite(values).all() or not values.any():
            return f", vmin={low:.7g}, vmax={high:.7g}"
        if low == 0:
            return ", vmin=0" + ("" if of == "heatmap" else ", vmax=heatmap.max()")
        self.imports.add("from matplotlib.colors import CenteredNorm")
        half = "" if of == "heatmap" else "halfrange=heatmap.abs().max()"
        return f", norm=CenteredNorm({half})"

    def _picture(self, axes: str) -> list[str]:
        """The input as the network saw it, the normalization undone."""
        if self.origin is not None and self.origin.picture is not None:
            gray = ', "gray", vmin=0, vmax=255' if self.session.inputs.args[0].shape[1] == 1 else ""
            return [f"{axes}.imshow({self.origin.picture}{gray})"]
        assert self.x is not None
        x, sample = self.x, self.scene.input_sample
        cut, at = x[sample], str(sample)
        if x.ndim == 5:
            depth = round(self.scene.depth_share * (x.shape[2] - 1))
            cut, at = cut[:, depth], f"{sample}, :, {depth}"
        own = ".detach()" if self.scored else ""
        own += ".float()" if x.dtype in (torch.half, torch.bfloat16) else ""
        own += ".cpu()" if x.device.type != "cpu" else ""
        lines = [f"picture = x[{at}]{own}.permute(1, 2, 0)", *self._undone(cut)]
        if x.shape[1] == 3:
            return [*lines, f"{axes}.imshow(picture)"]
        return [*lines, f'{axes}.imshow(picture.mean(2), "gray", vmin=0, vmax=1)']

    def _undone(self, cut: Tensor) -> list[str]:
        """What brings one sample ``(C, H, W)`` to 0..1, as `hookviz.picture_of` does."""
        values, inputs = cut.detach().float().cpu(), self.session.inputs
        if values.min() >= 0 and values.max() <= 1:
            return []
        mean, std = inputs.mean, inputs.std
        if len(mean) in (1, len(values)):
            shape = (-1, 1, 1)
            undone = values * torch.tensor(std).view(shape) + torch.tensor(mean).view(shape)
            if undone.min() > -0.02 and undone.max() < 1.02:
                if len({*mean}) == len({*std}) == 1:
                    return [f"picture = (picture * {std[0]} + {mean[0]}).clip(0, 1)"]
                return [
                    f"mean, std = torch.tensor([{list(mean)}, {list(std)}])",
                    "picture = (picture * std + mean).clip(0, 1)",
                ]
        return ["picture = (picture - picture.min()) / (picture.max() - picture.min())"]


def _imports(lines: set[str]) -> list[str]:
    """Sorted, and those from the same module in one line."""
    plain = sorted(line for line in lines if line.startswith("import"))
    names: dict[str, list[str]] = {}
    for line in sorted(lines.difference(plain), key=str.lower):
        module, _, name = line.removeprefix("from ").partition(" import ")
        names.setdefault(module, []).append(name)
    return [*plain, *(f"from {module} import {', '.join(n)}" for module, n in names.items())]


def _draw(call: str, alpha: float) -> list[str]:
    """A call of imshow with its opacity, over two lines if it is long."""
    whole = f"{call}, alpha={alpha:g})"
    if len(whole) <= _WIDTH:
        return [whole]
    start, _, rest = call.partition("(")
    return [f"{start}(", f"    {rest}, alpha={alpha:g}", ")"]


def _unwrapped(model: nn.Module) -> tuple[str, nn.Module]:
    """How to reach the model that is inside wrappers, from ``model``."""
    core, path = unwrapped(model)
    return ".".join(filter(None, ("model", path))), core


def _call_of(inputs: Any, model: str) -> tuple[str, Tensor | None, str]:
    """The call of the model as source, its one tensor, and where in the inputs that is."""
    tensors, words = [], []
    for place, value in [*enumerate(inputs.args), *inputs.kwargs.items()]:
        named = isinstance(place, str)
        if isinstance(value, Tensor):
            tensors.append((value, f"kwargs[{quoted(place)}]" if named else f"args[{place}]"))
            text = "x"
        elif isinstance(value, (bool, int, float, str, type(None))) and _plain(value):
            text = quoted(value) if isinstance(value, str) else repr(value)
        else:
            break
        if named and (not place.isidentifier() or iskeyword(place)):
            break
        words.append(f"{place}={text}" if named else text)
    else:
        if len(tensors) == 1:
            return f"{model}({', '.join(words)})", *tensors[0]
    return f"{model}(*args{', **kwargs' if inputs.kwargs else ''})", None, ""


def _plain(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _checked_path(path: str) -> str:
    """Where in its output a layer's tensor is, if Python can read that back."""
    try:
        node: Any = ast.parse(f"output{path}", mode="eval").body
    except SyntaxError:
        node = None
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            break
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError(
            f"There is no short code for a tensor at {path!r} of what a layer returns."
        )
    return path


def _is_unbatched(activation: Tensor, module: nn.Module) -> bool:
    return _arrangement(activation, module, None) == "[None]"


def _arrangement(tensor: Tensor, module: nn.Module, grid: tuple[int, ...] | None) -> str:
    """What `hookviz.hooking.layout.as_maps` does to a tensor, as source."""
    empty = torch.empty(tensor.shape, device="meta")
    maps = as_maps(empty, module, grid)
    if maps.shape == empty.shape and maps.stride() == empty.stride():
        return ""
    if maps.shape == (1, *empty.shape):
        return "[None]"
    if empty.ndim == 2:
        return "[..., None]"
    if empty.ndim == 4:
        return ".movedim(-1, 1)"
    places = tuple(maps.shape[2:])
    before = empty.shape[1] - math.prod(places)
    return f"{f'[:, {before}:]' if before else ''}.mT.unflatten(2, {places})"
