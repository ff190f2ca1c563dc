"""Locate errors in a model and its code: the layer that raised, and the running line."""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..hooking.select import all_modules, dimensions, is_convolution, module_names, type_name
from ..hooking.tensors import tensors
from .error_messages import fix_of, message_of


def located_error(
    error: Exception,
    model: nn.Module,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    advice: str = "",
) -> Exception:
    """Return an exception that says in which layer the model's error arose, and on which input.

    ``arguments`` are the model's, positional and by name. ``advice`` says what to do; without it a
    frequent error gets that of PyTorch's message. The layer is found in the error's traceback.
    """
    names = module_names(model)
    layer, (args, kwargs) = innermost_call(error, names) or (model, arguments)
    name = names.get(layer, [""])[0]
    where = f"layer {name!r} ({type_name(layer)})" if name else type_name(layer)
    received = tensors(args, kwargs)
    of_torch = isinstance(error, RuntimeError)
    if of_torch and (mismatch := _dtypes_differ(layer, received)):
        return ValueError(f"{where[0].upper()}{where[1:]} {_followed(mismatch, advice)}")
    floating = (t for t in tensors(arguments) if t.is_floating_point())
    shape = next((tuple(tensor.shape) for tensor in floating), None)
    if of_torch and is_convolution(layer) and shape in [tuple(t.shape) for t in received]:
        reason = _convolved_shape(layer, shape) or first_line(error)
        return ValueError(
            f"The input, shape {shape}, does not fit {where}, which takes {takes(layer)}: "
            f"{_followed(reason, advice)}"
        )
    shapes = [str(tuple(tensor.shape)) for tensor in tensors(args)]
    shapes += [f"{key}={tuple(t.shape)}" for key, value in kwargs.items() for t in tensors(value)]
    wants = f", which takes {takes(layer)}" if takes(layer) else ""
    reason = _followed(first_line(error), advice or fix_of(error))
    return RuntimeError(
        f"The model raised {type(error).__name__} in {where}{wants}, given "
        f"{_joined(shapes) or _kinds(args, kwargs)}: {reason}"
    )


def _followed(reason: str, advice: str) -> str:
    return f"{reason.rstrip('.')}. {advice}" if advice else reason


def _convolved_shape(layer: nn.Module, shape: tuple[int, ...]) -> str:
    """Say which shape a convolution takes if this one has other dimensions or channels.

    >>> _convolved_shape(nn.Conv1d(2, 8, 3), (1, 9)), _convolved_shape(nn.Conv1d(2, 8, 3), (2, 9))
    ('give a tensor (N, 2, L).', '')
    >>> _convolved_shape(nn.Conv2d(3, 8, 3), (1, 1, 9, 9))
    'give a tensor (N, 3, H, W); tensor.expand(-1, 3, -1, -1) repeats a grey picture.'
    >>> _convolved_shape(nn.Conv2d(3, 8, 3), (4, 2, 3, 9, 9))
    'give a tensor (N, 3, H, W); tensor.flatten(0, 1) makes one batch of several.'
    """
    axes = "L" if dimensions(layer) == 1 else "DHW"[-dimensions(layer) :]
    channels, batched = layer.in_channels, len(shape) == len(axes) + 2
    if (batched or len(shape) == len(axes) + 1) and shape[-len(axes) - 1] == channels:
        return ""
    how = ""
    if axes == "HW" and channels == 3 and batched and shape[1] == 1:
        how = "; tensor.expand(-1, 3, -1, -1) repeats a grey picture"
    elif len(shape) == len(axes) + 3 and shape[2] == channels:
        how = "; tensor.flatten(0, 1) makes one batch of several"
    return f"give a tensor (N, {channels}, {', '.join(axes)}){how}."


def _kinds(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Describe arguments without tensors by their types.

    >>> _kinds((["cat.jpg", "dog.jpg"],), {"size": 3}), _kinds((), {})
    ('a list of 2 and size=int', 'nothing')
    """
    named = [*(("", value) for value in args), *((f"{key}=", kwargs[key]) for key in kwargs)]
    words = [
        f"{name}a list of {len(value)}" if isinstance(value, list) else name + type(value).__name__
        for name, value in named
    ]
    return _joined(words) or "nothing"


def _joined(words: list[str]) -> str:
    """Join words for a sentence, and count those after the first few.

    >>> _joined(["int", "str"]), _joined(["(3,)"] * 11)
    ('int and str', '(3,) and (3,) and (3,) and (3,) and 7 more')
    """
    rest = len(words) - 4
    return " and ".join([*words[:4], f"{rest} more"] if rest > 1 else words)


def takes(layer: nn.Module) -> str:
    """Describe the input that a layer's attributes require; empty if unknown.

    >>> takes(nn.Conv2d(3, 8, 3)), takes(nn.Linear(4, 2)), takes(nn.ReLU())
    ('3 channels in 2d', '4 features in the last dimension', '')
    """
    if is_convolution(layer):
        count: Any = layer.in_channels
        return f"{count} channel{'s' * (count != 1)} in {dimensions(layer)}d"
    if isinstance(layer, nn.Linear):
        count = layer.in_features
        return f"{count} feature{'s' * (count != 1)} in the last dimension"
    if isinstance(layer, (nn.modules.batchnorm._NormBase, nn.GroupNorm)):
        count = layer.num_channels if isinstance(layer, nn.GroupNorm) else layer.num_features
        return f"{count} channel{'s' * (count != 1)} in dimension 1"
    if isinstance(layer, nn.LayerNorm):
        return f"{'×'.join(map(str, layer.normalized_shape))} in the last dimensions"
    return ""


def innermost_call(
    error: BaseException, names: Container[nn.Module]
) -> tuple[nn.Module, tuple[Sequence[Any], Mapping[str, Any]]] | None:
    """Return the innermost module that was running when the error arose, and its arguments.

    The arguments are the positional ones and those by name.
    """
    innermost, traceback = None, error.__traceback__
    while traceback is not None:
        module = _called_by(traceback.tb_frame)
        if module is not None and module in names:
            variables = traceback.tb_frame.f_locals
            innermost = module, (variables.get("args", ()), variables.get("kwargs", {}))
        traceback = traceback.tb_next
    return innermost


def running_module(frame: FrameType | None, among: Container[nn.Module]) -> nn.Module | None:
    """Return the innermost of some modules that is running around a frame."""
    while frame is not None:
        module = _called_by(frame)
        if module is not None and module in among:
            return module
        frame = frame.f_back
    return None


def _called_by(frame: FrameType) -> nn.Module | None:
    """Return the module that this frame calls, if it is the frame of torch's call of a module."""
    return frame.f_locals.get("self") if frame.f_code.co_name == "_call_impl" else None


def refuse_without_weights(model: nn.Module) -> None:
    """Raise ``ValueError`` for a layer that has no weights, or whose weights have no values."""
    modules = all_modules(model)
    weights = (p for module in modules for p in module._parameters.values())
    if not any(is_lazy(p) or p.is_meta for p in weights if p is not None):
        return
    without = {name: p for name, p in model.named_parameters() if is_lazy(p) or p.is_meta}
    for name, parameter in without.items():
        if is_lazy(parameter):
            raise ValueError(
                f"Layer {name.rpartition('.')[0]!r} is lazy and has no weights yet: run "
                "model(x) once to make them."
            )
    for name in without:
        # Offloaded weights (accelerate) are on the meta device, too, until the layer runs.
        if not any(hasattr(module, "_hf_hook") for module in modules):
            raise ValueError(
                f"{name!r} is on the meta device and has no values: load the weights first, for "
                "example with model.to_empty(device='cpu') and model.load_state_dict(...)."
            )


def refuse_quantized(model: nn.Module) -> None:
    """Raise ``ValueError`` for a model with quantized layers, whose gradients do not exist."""
    for name, module in model.named_modules():
        if "quantized" in type(module).__module__.split("."):
            raise ValueError(
                f"Layer {name!r} ({type_name(module)}) is quantized, and whole numbers have no "
                "gradient: take the float model that was quantized."
            )


def needs_gradient(error: BaseException) -> bool:
    """Return whether the error arose because a model that takes gradients ran without them."""
    return isinstance(error, RuntimeError) and "does not require grad" in str(error)


def _dtypes_differ(layer: nn.Module, tensors: list[Tensor]) -> str:
    """Return a message if a layer's input and its weights differ in dtype; else empty."""
    weight = next((p for p in layer.parameters(recurse=False) if p.is_floating_point()), None)
    tensor = next((t for t in tensors if t.is_floating_point()), None)
    if weight is None or tensor is None or tensor.dtype == weight.dtype:
        return ""
    has, got = (str(one.dtype).removeprefix("torch.") for one in (weight, tensor))
    return (
        f"has weights in {has} and was given {got}: give the input as {has}, x.to(torch.{has}), "
        f"or turn the model into {got}, model.to(torch.{got})."
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; its type, `Type()`, if it has none."""
    line = message_of(error).strip().partition("\n")[0] or f"{type(error).__name__}()"
    return line.removesuffix(", but expected one of:")  # torch lists signatures below this line


def first_sentence(error: BaseException) -> str:
    return first_line(error).partition(". ")[0]


# The line of the user's code

_OURS, _TORCHS = str(Path(__file__).parents[1]), str(Path(torch.__file__).parent) + "/"
# The user's code calls what stands in for torch's functions, as it calls torch.
_STANDING_IN = [
    f"{_OURS}/{name}.py" for name in ("hooking/functions", "hooking/interrupts", "run/leaves")
]


def users_line(frame: FrameType | None) -> tuple[str, int]:
    """Return file and line of the innermost code that is neither torch's nor hookviz's.

    Return ``("", 0)`` if hookviz did not call that code, since it is not the model's then.
    """
    for users in _users_frames(frame):
        return users.f_code.co_filename, users.f_lineno
    return "", 0


def no_grad_line(frame: FrameType | None) -> tuple[str, int]:
    """Return file and line of the innermost ``torch.no_grad()`` in the user's code around a frame.

    A ``with`` block or a decorator; ``("", 0)`` if the source has none.
    """
    for users in _users_frames(frame):
        file, line = users.f_code.co_filename, users.f_lineno
        blocks = _without_graph("".join(linecache.getlines(file)))
        if enclosing := [block for block in blocks if block[0] <= line <= block[1]]:
            return file, min(enclosing, key=lambda block: block[1] - block[0])[2]
    return "", 0


def _users_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of neither torch nor hookviz, the innermost first, that hookviz called."""
    while frame is not None and (whose := _whose(frame.f_code.co_filename)) != "hookviz":
        if whose == "user":
            yield frame
        frame = frame.f_back


def caller() -> FrameType | None:
    """Return the innermost running frame that is not hookviz's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _whose(frame.f_code.co_filename) == "hookviz":
        frame = frame.f_back
    return frame


@lru_cache(maxsize=64)
def _without_graph(source: str) -> list[tuple[int, int, int]]:
    r"""List the blocks of a source that run without a graph: first, last and switching line.

    >>> _without_graph("with torch.no_grad():\n    x = f(x)\n")
    [(1, 2, 1)]
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a notebook's cell with a magic
        return []
    blocks = []
    for node in ast.walk(tree):
        switches: list[ast.expr] = []
        if isinstance(node, ast.With):
            switches = [item.context_expr for item in node.items]
        elif isinstance(node, ast.FunctionDef):
            switches = node.decorator_list
        for switch in switches:
            if _SWITCHES.search(ast.unparse(switch)):
                assert isinstance(node, (ast.With, ast.FunctionDef))
                blocks.append((node.lineno, node.end_lineno or node.lineno, switch.lineno))
    return blocks


_SWITCHES = re.compile(r"no_grad|inference_mode|set_grad_enabled")


@cache
def _whose(file: str) -> str:
    if file.startswith((_TORCHS, *_STANDING_IN, "<frozen")):
        return "torch"
    return "hookviz" if file.startswith(_OURS) else "user"


def legible(file: str) -> str:
    """Return a file's name; for a notebook's cell its number, if that is known."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    cell = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file)
    if cell:
        return str(cell[1])
    if number := re.search(r"ipython-input-(\d+)-", file):  # IPython 7, as in Colab
        return f"In[{number[1]}]"
    return "a notebook cell" if re.search(r"ipykernel_|ipython-input|__marimo__", file) else file


def line_of(file: str, line: int) -> str:
    """Format the location of a line of code; empty without a file.

    >>> line_of("/home/me/net.py", 12), line_of("<ipython-input-3-aa>", 5), line_of("", 0)
    ('net.py:12', 'In[3], line 5', '')
    """
    if not file:
        return ""
    path = Path(legible(file))
    return f"{path.name}:{line}" if path.suffix else f"{path}, line {line}"
