"""A model and its gradients as one ONNX file, whose weights are stored as small as is asked for.

`export_network` traces, translates and measures: what the file returns is compared with the maps
and gradients that the notebook shows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from itertools import compress
from operator import not_
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ...hooking.interrupts import Block, uninterrupted
from ...run.output import Output
from ...run.session import Run, Session
from ...run.target import Target, sample_scores
from ...studies.compare.difference import TensorDifference, difference
from .traced import (
    NetworkError,
    NetworkLayer,
    TracedNetwork,
    operation_in,
    refusal,
    trace_network,
)
from .values import refuse_baked_values

Precision = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
NEEDED = "onnx", "onnxscript", "onnxruntime"
OPSET = 18


@dataclass(frozen=True, eq=False)
class ExportedNetwork:
    """A network as an ONNX file.

    Attributes
    ----------
    model : bytes
        The file. Its inputs are ``input`` ``(1, …)``, for a classifier with gradients ``classes``
        ``(1, K)``, ``scales`` ``(S,)``, and the weights of `TracedNetwork`; its outputs ``logits``
        ``(1, K)``, and for each layer ``activation:NAME`` and ``gradient:NAME``; ``answer:0`` and
        so on.
    layers : list of NetworkLayer
        Each call of each layer.
    inputs : dict of str to tuple of int
        The shapes of the inputs.
    outputs : list of str
    precision : str
        Of the weights.
    difference : float
        The largest difference from the notebook's maps, as a fraction of the layer's largest
        value, over all layers.
    gradient_difference : float
        The largest distance of a layer's gradients from the notebook's, ``|g - g'| / |g|`` in the
        Euclidean norm; NaN without any. Where rounded weights move a value across a ReLU's zero,
        its gradient comes or goes as a whole.
    farthest : str
        The layer with the largest difference of maps.
    forward : int
        The first so many bytes of ``model`` are a model too, without the gradients.
    note : str
        Why gradients are missing; empty if they are not.
    """

    model: bytes
    layers: list[NetworkLayer]
    inputs: dict[str, tuple[int, ...]]
    outputs: list[str]
    precision: Precision
    difference: float
    gradient_difference: float
    farthest: str
    forward: int
    note: str = ""


def check_precision(precision: str) -> None:
    """Raise ``ValueError`` for an unknown precision.

    >>> check_precision("float8")
    Traceback (most recent call last):
    ...
    ValueError: precision='float8' is not one of 'float32', 'float16', 'int8'.
    """
    if precision not in PRECISIONS:
        known = ", ".join(map(repr, PRECISIONS))
        raise ValueError(f"precision={precision!r} is not one of {known}.")


def check_installed() -> None:
    """Raise ``ImportError`` if a package of the extra ``network`` is missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"A page that runs the network needs {' and '.join(missing)}: "
            "pip install 'hookviz[network]'."
        )


def export_network(
    session: Session,
    run: Run,
    names: Sequence[str],
    *,
    sample: int = 0,
    target: Target = None,
    precision: Precision = "float32",
    answers: Sequence[Output] = (),
) -> ExportedNetwork:
    """Export a session's model, with the outputs and the gradients of these layers.

    Where only the backward cannot be exported, the file has the forward alone, and ``note`` says
    why.

    Parameters
    ----------
    session : Session
    run : Run
        The run that the file is compared with.
    names : sequence of str
        Layers that have run.
    sample : int
        The index of the sample whose values are compared.
    target : optional
        The target of ``run``.
    precision : str
        Of the weights: ``"float32"``; ``"float16"``; or ``"int8"``, in 255 steps for each output
        channel. The network computes in float32 in any case.
    answers : sequence of Output
        As in `trace_network`.

    Raises
    ------
    NetworkError
        The model cannot be exported; the message names the operation.
    ImportError
        onnx, onnxscript or onnxruntime is missing.
    """
    check_installed()
    options: dict[str, Any] = {"sample": sample, "target": target, "answers": answers}
    note = ""
    refuse_baked_values(session)
    try:
        traced = trace_network(session, names, **options)
        model = to_onnx(traced, session.name)
    except NetworkError as error:
        try:
            traced = trace_network(session, names, backward=False, **options)
            model = to_onnx(traced, session.name)
        except NetworkError as first:
            raise first from None
        reason = f" ({error.operation})" if error.operation else ""
        note = f"The gradients of this network cannot be computed in a page{reason}."
    _shrink(model, precision)
    written, forward = _forward_first(model)
    shapes = {name: tuple(each.shape) for name, each in traced.inputs.items()}
    returned = _run(written, traced, target_weights(session, run, sample, target))
    maps, gradients = _differences(returned, traced.layers, run, sample)
    farthest = max(maps, key=maps.__getitem__) if maps else ""
    return ExportedNetwork(
        written,
        traced.layers,
        shapes,
        traced.outputs,
        precision,
        maps.get(farthest, 0.0),
        max(gradients.values()) if gradients else float("nan"),
        farthest,
        forward,
        note,
    )


def to_onnx(traced: TracedNetwork, name: str) -> Any:
    """Translate a graph into an ONNX model, with the names of its inputs and outputs.

    Raises
    ------
    NetworkError
        ONNX has no such operation.
    """
    quiet = StringIO()
    try:
        # An interrupt must not leave the output redirected.
        with Block([warnings.catch_warnings(), redirect_stdout(quiet), redirect_stderr(quiet)]):
            warnings.simplefilter("ignore")
            program = uninterrupted(
                torch.onnx.export,
                traced.graph,
                tuple(traced.inputs.values()),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
            )
    except Exception as error:
        every: BaseException | None = error
        operation = ""
        while every is not None and not operation:
            operation = operation_in(str(every))
            every = every.__cause__ or every.__context__
        why = "ONNX lacks an operation" if operation else str(error).partition("\n")[0]
        raise refusal(name, why, operation) from error
    assert program is not None
    model = program.model_proto
    _rename(model.graph, list(traced.inputs), traced.outputs)
    _share_transposed(model.graph)
    return model


def _rename(graph: Any, inputs: list[str], outputs: list[str]) -> None:
    """Give inputs and outputs their names; an output that has one already gets a copy."""
    import onnx

    names = {each.name: name for each, name in zip(graph.input, inputs, strict=True)}
    produced = {each for node in graph.node for each in node.output}
    copies = []
    for output, name in zip(graph.output, outputs, strict=True):
        if output.name in produced and output.name not in names:
            names[output.name] = name
        else:
            copies.append((names.get(output.name, output.name), name))
        output.name = name
    for each in graph.input:
        each.name = names[each.name]
    for node in graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(each, each) for each in side]
    graph.node.extend(onnx.helper.make_node("Identity", [one], [other]) for one, other in copies)
    del graph.value_info[:]  # by their former names
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""


def _share_transposed(graph: Any) -> None:
    """Store a matrix once where its transpose is stored too, as of a linear layer's backward."""
    import onnx
    from onnx import numpy_helper

    matrices = [each for each in graph.initializer if len(each.dims) == 2 and each.raw_data]
    kept: dict[tuple[int, ...], list[Any]] = {}
    nodes = []
    for tensor in matrices:
        values = numpy_helper.to_array(tensor)
        if values.size < 1024:
            continue
        others = kept.setdefault(values.shape[::-1], [])
        found = next((name for name, other in others if np.array_equal(other.T, values)), None)
        if found is None:
            kept.setdefault(values.shape, []).append((tensor.name, values))
        else:
            nodes.append(onnx.helper.make_node("Transpose", [found], [tensor.name], perm=[1, 0]))
    made = {node.output[0] for node in nodes}
    _replace(graph.initializer, [each for each in graph.initializer if each.name not in made])
    _replace(graph.node, [*nodes, *graph.node])


def _replace(field: Any, items: list[Any]) -> None:
    """Give a list of a protocol buffer other items."""
    del field[:]
    field.extend(items)


def _shrink(model: Any, precision: Precision) -> None:
    """Store weights in fewer bytes; a node before their use restores float32.

    Of weights of two dimensions and more: the others are few, and a small variance would become 0.
    """
    import onnx
    from onnx import numpy_helper

    if precision == "float32":
        return
    graph = model.graph
    kept, nodes = [], []
    for tensor in graph.initializer:
        large = tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1
        values = numpy_helper.to_array(tensor) if large else np.zeros(0, np.float32)
        if values.size < 64 or not np.isfinite(values).all():
            kept.append(tensor)
            continue
        name = tensor.name
        if precision == "float16":
            if not 1e-3 <= np.abs(values).max() <= 6e4:
                kept.append(tensor)
                continue
            kept.append(numpy_helper.from_array(values.astype(np.float16), f"{name} half"))
            nodes.append(
                onnx.helper.make_node("Cast", [f"{name} half"], [name], to=onnx.TensorProto.FLOAT)
            )
            continue
        most = np.abs(values).reshape(len(values), -1).max(1)
        step = np.where(most > 0, most / 127, 1).astype(np.float32)
        whole = np.rint(values / step.reshape(-1, *[1] * (values.ndim - 1))).astype(np.int8)
        kept += [
            numpy_helper.from_array(whole, f"{name} steps"),
            numpy_helper.from_array(step, f"{name} step"),
        ]
        nodes.append(
            onnx.helper.make_node(
                "DequantizeLinear", [f"{name} steps", f"{name} step"], [name], axis=0
            )
        )
    _replace(graph.initializer, kept)
    _replace(graph.node, [*nodes, *graph.node])


def _forward_first(model: Any) -> tuple[bytes, int]:
    """Return a model's bytes, and how many of the first of these are a model of its forward.

    A runtime computes all nodes of a model, whatever is asked for; a backward takes most of the
    time. Protocol buffers that stand one behind the other are one message, whose lists are joined:
    so the backward's nodes, weights, inputs and outputs follow the forward's, and share them.
    """
    import onnx

    needed = {each.name for each in model.graph.output if not each.name.startswith("gradient:")}
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            needed.update(filter(None, node.input))
    rest = onnx.ModelProto()
    for name in ("node", "initializer", "input", "output"):
        every = getattr(model.graph, name)
        own = [bool(needed.intersection(getattr(each, "output", (each.name,)))) for each in every]
        getattr(rest.graph, name).extend(compress(every, map(not_, own)))
        _replace(every, [*compress(every, own)])
    begins = model.SerializeToString()
    return begins + rest.SerializeToString(), len(begins)


def target_weights(session: Session, run: Run, sample: int, target: Target) -> np.ndarray | None:
    """Return the weight of each class in the target's score, ``(1, K)``; None if it has none."""
    if run.logits is None or callable(target):
        return None
    target = target[sample] if isinstance(target, list) else target
    logits = run.logits[sample : sample + 1].detach().clone()
    if target is None:
        target = int(logits.argmax())  # of several equally large ones, a gradient has shares
    with torch.enable_grad():
        score = sample_scores(logits.requires_grad_(), target, session.class_names)
        (weights,) = torch.autograd.grad(score, logits)
    return weights.cpu().numpy()


def _run(model: bytes, traced: TracedNetwork, classes: np.ndarray | None) -> dict[str, np.ndarray]:
    """Run the file on the traced sample."""
    import onnxruntime

    given = {name: each.detach().cpu().numpy() for name, each in traced.inputs.items()}
    if classes is not None and "classes" in given:
        given["classes"] = classes.astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        ran = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise NetworkError(
            f"The exported network cannot be run ({str(error).partition(chr(10))[0]}): write the "
            "page with network=False."
        ) from error
    taken = {each.name for each in ran.get_inputs()}
    values: Any = ran.run(traced.outputs, {name: given[name] for name in given if name in taken})
    return dict(zip(traced.outputs, values, strict=True))


def _differences(
    returned: dict[str, np.ndarray], layers: list[NetworkLayer], run: Run, sample: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return each layer's largest difference from the run, of its maps and of its gradients."""
    maps, gradients = {}, {}
    for each in layers:
        call = run.cache[each.layer].calls[each.call]
        if not call.outputs[0].kept:
            continue
        found, wanted = _compared(returned[f"activation:{each.name}"], call.activation, sample)
        largest = math.inf if found.nonfinite_mismatch else found.largest
        most = float(wanted.abs().nan_to_num(0, 0).max()) if wanted.numel() else 0.0
        maps[each.name] = largest / (most or 1.0)
        if each.graded and call.gradient is not None:
            found, _ = _compared(returned[f"gradient:{each.name}"], call.gradient, sample)
            zero = math.isinf(found.relative)  # the sample's gradient is
            gradients[each.name] = found.largest if zero else found.relative
    return maps, gradients


def _compared(found: np.ndarray, wanted: Tensor, sample: int) -> tuple[TensorDifference, Tensor]:
    """Return the difference of a file's values from the sample's, and the sample's values."""
    own = wanted[sample : sample + 1].detach().float().cpu()
    return difference(own, torch.from_numpy(found)), own
