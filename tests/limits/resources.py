"""Count what may leak: memory, tensors, objects, widgets, comms, figures, hooks."""

from __future__ import annotations

import ctypes
import gc
import resource
from contextlib import suppress
from pathlib import Path

import torch
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from hookviz.widgets.lifecycle import living


def storages():
    """Return address -> bytes of the storage of every live tensor; views are not counted twice."""
    return _storages(_tensors(gc.get_objects()))


def _tensors(objects):
    # Compare types: isinstance() would load lazy modules to ask for their class.
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, torch.Tensor)}
    # From models compiled in other tests; they hold no memory.
    kinds -= {FakeTensor, FunctionalTensor}
    return [each for each in objects if type(each) in kinds]


def _storages(tensors):
    storages = [each.untyped_storage() for each in tensors if not each.is_meta]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def resident():
    """Return the bytes of memory that the process holds, after returning free memory."""
    gc.collect()
    with suppress(OSError):  # a C library without malloc_trim
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # otherwise free memory would count as used
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0  # known only on Linux; the counts below work everywhere


def census(model):
    """Count everything that may leak. There are comms only in a kernel."""
    gc.collect()
    modules = list(model.modules())
    tensors, objects = _tensors(every := gc.get_objects()), len(every)
    del every
    return {
        "widgets": len(living()),
        "comms": _comms(),
        "tensors": len(tensors),
        "tensor bytes": sum(_storages(tensors).values()),
        "objects": objects,
        "figures": _figures(),
        "hooks": sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules),
    }


def _comms():
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return len(kernel.comm_manager.comms) if kernel else 0


def _figures():
    from matplotlib import pyplot

    return len(pyplot.get_fignums())
