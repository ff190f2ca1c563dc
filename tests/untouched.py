"""Check that a model and its surroundings are unchanged: take a snapshot, compare afterwards."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_MISSING = object()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a model: objects for comparison by identity, and values as bits."""

    objects: dict[str, Any]
    bits: dict[str, Tensor]


def snapshot(model):
    """Store everything that a run might change.

    That is: every module's class and ``__dict__`` (hooks, training flags, parameters, buffers,
    submodules and other attributes), the contents of the dicts and lists in it, each
    tensor's bits, ``.grad``, ``requires_grad`` and hooks, torch's hooks for all modules, the
    states of the random generators, the grad and inference modes, the default dtype and the
    modes that take the place of torch's functions.
    """
    values = {key: _bits(tensor).clone() for key, tensor in _values(model)}
    return Snapshot(dict(_objects(model)), values)


def changes(model, before):
    """List the changes since the snapshot; empty if there are none."""
    objects, values = dict(_objects(model)), dict(_values(model))
    found = []
    for key in before.objects | objects:
        now, then = objects.get(key, _MISSING), before.objects.get(key, _MISSING)
        if not _same(now, then):
            found.append(f"{key} is {_said(now)}, was {_said(then)}")
    for key in before.bits | values:
        if key not in values or key not in before.bits:
            found.append(f"{key} is there on one side only")
        elif not torch.equal(_bits(values[key]), before.bits[key]):
            found.append(f"{key} is of other values")
    return found


def assert_untouched(model, before):
    """Fail with the names of what has changed since ``before``."""
    changed = changes(model, before)
    assert not changed, f"{len(changed)} things changed: " + "; ".join(changed[:10])


def _objects(model):
    """Yield everything that must be the identical object, or an equal plain value."""
    for name, module in model.named_modules():
        yield f"{name}.__class__", type(module)
        yield from _held(f"{name}.__dict__", module.__dict__)
    for kind, name, tensor in _tensors(model):
        yield f"requires_grad of {kind} {name}", tensor.requires_grad
        yield f".grad of {kind} {name}", tensor.grad if tensor.is_leaf else None
        yield from _held(f"hooks of {kind} {name}", tensor._backward_hooks or {})
    everywhere = vars(torch.nn.modules.module)
    for name in [name for name in everywhere if name.startswith("_global")]:
        yield from _held(f"torch's {name}", everywhere[name])
    yield "grad mode", torch.is_grad_enabled()
    yield "inference mode", torch.is_inference_mode_enabled()
    yield "default dtype", torch.get_default_dtype()
    yield "function modes", torch._C._len_torch_function_stack()
    yield "dispatch modes", torch._C._len_torch_dispatch_stack()
    yield "Python's random state", random.getstate()
    yield "numpy's random state", _numpy_state()


def _held(name, holder):
    """Yield the entries of a dict or list in order, also of those one level deeper."""
    if not isinstance(holder, dict):
        yield name, holder
        return
    yield f"the keys of {name}", tuple(holder)
    for key, value in holder.items():
        yield f"{name}[{key!r}]", value
        if isinstance(value, dict):
            yield f"the keys of {name}[{key!r}]", tuple(value)
            for inner, each in value.items():
                yield f"{name}[{key!r}][{inner!r}]", each
        elif isinstance(value, list):
            yield f"the entries of {name}[{key!r}]", tuple(value)


def _tensors(model):
    for name, parameter in model.named_parameters():
        yield "parameter", name, parameter
    for name, buffer in model.named_buffers():
        yield "buffer", name, buffer


def _values(model):
    """Yield the tensors that must be equal to the bit."""
    for kind, name, tensor in _tensors(model):
        yield f"{kind} {name}", tensor.detach()
        if tensor.is_leaf and tensor.grad is not None:
            yield f".grad of {kind} {name}", tensor.grad.detach()
    yield "torch's random state", torch.get_rng_state()


def _bits(tensor):
    """Return the bytes: NaN equals itself, 0.0 differs from -0.0; none for meta tensors."""
    if tensor.is_meta:
        return torch.empty(0, dtype=torch.uint8)
    if hasattr(tensor, "__tensor_flatten__"):  # a quantized one, of several
        return torch.cat([_bits(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]])
    return tensor.cpu().contiguous().flatten().view(torch.uint8)


def _numpy_state():
    kind, keys, *rest = np.random.get_state()
    return (kind, keys.tobytes(), *rest)


_PLAIN = (bool, int, float, str, bytes, type(None))


def _same(first, second):
    """Return whether these are the same object or equal plain values, also in tuples."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return isinstance(first, _PLAIN) and first == second


def _said(value):
    if value is _MISSING:
        return "not there"
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)}"
    said = repr(value)
    return said if len(said) < 60 else f"a {type(value).__name__}"
