"""A page that runs the network: the face of all pages, with numbers computed in the browser."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...draw.document import script
from ...hooking.maps import as_maps
from ...hooking.records import Call
from ...hooking.select import Layers
from ...tables import megabytes, number
from ...view.layer import SCORE_DROP
from ...view.maps import for_layer
from ...view.messages import as_json
from ...view.payload import field_payload, layer_payload, picture_payload, target_number
from ...view.predictions import output_of
from ...view.settings import PRODUCT
from ...view.source import picture_at
from ...view.view import View
from ..lesson import Step
from ..packing import Stream, raw
from ..packing import picture as packed_picture
from ..page import (
    NO_TARGET,
    begin_page,
    chosen_layers,
    packed_block,
    page_map,
    replace_fact,
    set_map_size,
)
from ..walk import page_kernels
from .onnx_graph import (
    ExportedNetwork,
    Precision,
    check_precision,
    export_network,
    target_weights,
)
from .runtime import LICENCE, VERSION, load_runtime
from .transform import is_transformed, page_transform

THUMBNAILS = 12
"""The most pictures of a batch that are in the page, to choose from."""
_NO_WALK = "this page computes its numbers in the browser and holds no answers."
_CLICK = "no class scores: click a pixel of the output to choose what to explain"
CAMS = "gradcam", "gradcam++", "hirescam", "xgradcam", "layercam", "gradient", "activation"
"""The heatmaps that the page computes from maps and gradients, see ``web/cams.ts``."""
OCCLUSION = "occlusion"
"""The heatmap for which the page runs its network many times, see ``web/running.ts``."""


def write_network_page(
    view: View,
    *,
    layers: Layers = None,
    title: str | None = None,
    steps: Sequence[Step] = (),
    precision: Precision = "float32",
    on_progress: Callable[[float], object] = lambda fraction: None,
) -> str:
    """Write the explorer as a page that runs its network.

    Parameters
    ----------
    view : View
        The view at which the page begins.
    layers, title, steps, precision
        As for `hookviz.export.page.write_page` and `hookviz.widgets.Explorer.to_html`.
    on_progress : callable
        Called with the fraction of the work that is done, 0 to 1.

    Raises
    ------
    ValueError
        The network cannot be exported.
    FileNotFoundError
        The runtime is missing.
    ImportError
        A package of the extra ``network`` is missing.
    """
    check_precision(precision)
    # Attention is shown beside the layers, and is not what one of them returned.
    names = [n for n in chosen_layers(view, layers) if not hasattr(view.cache[n], "attends")]
    if not names:
        raise ValueError("A page's network has no attention: choose layers that return maps.")
    begun = begin_page(view, names, (*CAMS, PRODUCT), title, computes=True)
    view, facts = begun.view, begun.facts
    at, session = view.settings, view.session
    facts |= {"edits": [], "run_names": [], "net": {}}
    if view.run.logits is not None:
        facts["choices"]["order"].append(SCORE_DROP)
        if begun.picture is not None:
            facts["choices"]["heatmap"].append(OCCLUSION)
    begun.ask(steps)  # a wrong one is refused before the export, which takes seconds
    runtime = load_runtime()
    on_progress(0.05)
    answers = [each.at for each in output_of(view).maps]
    network = export_network(
        session,
        view.run,
        names,
        sample=at.sample,
        target=at.target,
        precision=precision,
        answers=answers,
    )
    on_progress(0.8)
    batch = session.inputs.args[0].detach()
    transform, note = page_transform(session.inputs, batch[at.sample : at.sample + 1])
    inputs = _inputs(view, batch, transform)
    own = target_weights(session, view.run, at.sample, at.target)
    facts["net"] = {
        "inputs": {name: list(shape) for name, shape in network.inputs.items()},
        "outputs": network.outputs,
        "answers": [str(each) for each in answers],
        "forward": network.forward,
        # The runtime's optimizations restore once what is stored in fewer bytes, instead of in each
        # run; without such weights they only delay the start.
        "level": "disabled" if precision == "float32" else "all",
        "layers": _layer_facts(view, network, facts),
        "classes": None if own is None else own[0].tolist(),
        "number": target_number(view),
        "target": facts["target"],
        "follows": at.target is None,
        "pictures": list(inputs),
        "transform": transform,
        "reason": network.note,
        "notes": [*filter(None, (_measured(network), network.note, note))],
    }
    facts["notes"] = facts["net"]["notes"]
    if any(name.startswith("weights:") for name in network.inputs):
        replace_fact(facts, NO_TARGET, _CLICK)
    facts["why"] = {"output": None}
    weights, tiles = page_kernels(view, names)
    held = {"answers": [], "weights": weights, "none": _NO_WALK}
    drawn, _ = page_map(view, names)
    texts = {
        **inputs,
        "why": packed_block(held, [Stream.of(tiles)]),
        "map": packed_block(drawn, []),  # without pictures: the page draws its own
        "program": _packed(_worker(runtime.script).encode()),
        "runtime": _runtime_text(runtime.binary),
    }
    on_progress(1.0)
    late = {"model": _packed(network.model)}
    return begun.written("networkPage", texts, computes=True, late=late)


def _inputs(view: View, batch: Tensor, transform: dict[str, Any] | None) -> dict[str, Any]:
    """Return blocks of the shown sample's input, ``"input"``, and of a batch's first pictures."""
    sample, at = view.settings.sample, picture_at(view)
    pictures = view.session.inputs.pictures[:THUMBNAILS] if at is not None else ()
    blocks = {}
    for index in sorted({sample, *range(len(pictures))}):
        values = batch[index : index + 1].cpu().numpy()
        found = None if at is None else picture_payload(view, (index, *at[1:]))
        header, pixels = found or (None, None)
        arrays = [packed_picture("pixels", pixels)] if pixels is not None else []
        # The picture takes a quarter of the space, and usually determines the values to the bit.
        if pixels is None or not is_transformed(pixels, values[0], transform):
            arrays.append(raw("input", values, planes=True))
        name = "input" if index == sample else f"input-{index}"
        blocks[name] = packed_block(as_json(header) if header else {}, [Stream.of(arrays)])
    return blocks


def _measured(network: ExportedNetwork) -> str:
    """Return how far the page's network is from the notebook's, in words."""
    said = (
        f"This page runs the network: weights in {network.precision}, "
        f"{megabytes(len(network.model))}. Maps differ from the notebook's by "
        f"at most {_percent(network.difference)} of a layer's largest value"
    )
    said += f" ({network.farthest})" if network.farthest else ""
    if network.gradient_difference == network.gradient_difference:
        said += f", gradients by {_percent(network.gradient_difference)} of their norm"
    return said + "."


def _percent(share: float) -> str:
    """Return an upper limit of a share in per cent, with two digits.

    >>> _percent(0.0112), _percent(1.93e-7)
    ('1.1 %', '0.0001 %')
    """
    return f"{number(max(float(f'{100 * share:.1e}'), 1e-4))} %"


def _layer_facts(
    view: View, network: ExportedNetwork, facts: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the page's facts about each call of each layer."""
    found, headers = [], {}
    for each in network.layers:
        call = view.cache[each.layer].calls[each.call]
        if each.layer not in headers:
            own = for_layer(view, layer=each.layer)
            set_map_size(facts, own)
            header = as_json(layer_payload(own)[0])
            counts = header["counts"] | {"sample": 1}
            words = {"counts": counts, "sample": 0, "notes": [], "field": field_payload(own)}
            headers[each.layer] = header | words
        header = headers[each.layer] | {"call": each.call}
        found.append({**vars(each), "header": header, **places_of(call, each.shape)})
    return found


def places_of(call: Call, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return where the maps' values stand in a layer's output, as an offset and strides.

    Examples
    --------
    >>> import hookviz
    >>> from torch import nn
    >>> model = nn.Conv2d(1, 2, 1)
    >>> with hookviz.capture(model) as cache:
    ...     _ = model(torch.zeros(1, 1, 4, 5))
    >>> places_of(cache[""].last, (1, 2, 4, 5))
    {'offset': 0, 'strides': [20, 5, 1], 'shape': [2, 4, 5]}
    """
    count = int(np.prod(shape))
    numbered: Tensor = torch.arange(count, dtype=torch.float64).reshape(shape)
    maps = as_maps(numbered, call.module, call.grid)[0]
    first = maps[(0,) * maps.ndim]
    strides = []
    for axis, size in enumerate(maps.shape):
        second = [0] * maps.ndim
        second[axis] = min(1, size - 1)
        strides.append(int(maps[tuple(second)] - first))
    return {"offset": int(first), "strides": strides, "shape": list(maps.shape)}


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 6)).decode()


@lru_cache(maxsize=1)
def _runtime_text(binary: bytes) -> str:
    return _packed(binary)


def _worker(runtime: str) -> str:
    """Return the worker's program: the runtime, whose exports become an object, and our own."""
    listed = re.search(r"export\s*\{([^}]*)\}\s*;?\s*$", runtime)
    if listed is None:
        raise ValueError(f"onnxruntime-web {VERSION} ends without a list of its exports.")
    pairs = [each.split(" as ") for each in listed.group(1).split(",")]
    fields = ", ".join(f"{pair[-1].strip()}: {pair[0].strip()}" for pair in pairs)
    own = script("networkWorker")
    licence = f"/*\nonnxruntime-web {VERSION}\n\n{LICENCE}*/\n"
    # From a file, Chromium starts no worker that is a module; a classic one has no import.meta.
    body = runtime[: listed.start()].replace("import.meta.url", "globalThis.location.href")
    return f"{licence}{body}\nglobalThis.ort = {{ {fields} }};\n{own}"
