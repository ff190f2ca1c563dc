"""The peak memory of one task: run as a script, it does the task and prints the result as JSON.

Each measurement has a separate process, since a process's peak never goes down. The operating
system's numbers count, since tensors are not in Python's memory. "plain" is without hookviz.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def measure(kind, name, batch, side, max_bytes=None):
    """Measure one task in a new process.

    Parameters
    ----------
    kind : {"plain", "capture", "explore", "guard", "diagnose", "capture all", "compare"}
        One forward and one backward to the input: without hookviz, captured, in an explorer, in a
        `diagnose` block, diagnosed, with every module captured, and compared with itself.
    name : str
        A network of networks.py.
    batch, side : int
        The number of pictures, and their side in pixels.
    max_bytes : int, optional
        Budget of the capture.

    Returns
    -------
    dict
        ``peak``, bytes above the memory with only network and input; ``nbytes``, the size that
        the cache reports; ``live``, the bytes of all storages created since.
    """
    root = Path(__file__).resolve().parents[2]
    asked = json.dumps([kind, name, batch, side, max_bytes])
    path = os.pathsep.join([str(root), str(root / "tests")])
    variables = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, asked],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{asked} ended with {done.returncode}: was there memory enough?")
    return json.loads(done.stdout.splitlines()[-1])


def _measure_here(kind, name, batch, side, max_bytes):
    import gc  # import hookviz and its dependencies before the first reading

    from limits.networks import network, pictures
    from limits.resources import resident, storages

    import hookviz

    model, x = network(name), pictures(batch, side)
    before, held = resident() or _peak(), storages()
    _forget_peak()
    budget = {} if max_bytes is None else {"max_bytes": max_bytes}
    kept = WORK[kind](hookviz, model, x, **budget)
    peak = _peak() - before
    gc.collect()
    live = sum(size for key, size in storages().items() if key not in held)
    cache = getattr(kept, "cache", kept)  # an explorer has one
    return {"peak": peak, "nbytes": getattr(cache, "nbytes", 0), "live": live}


def _plain(model, x):
    import torch

    torch.autograd.grad(model(x.requires_grad_()).amax(1).sum(), x)


def _within(block, model, x):
    with block as result:
        _plain(model, x)
    return result


# Each gets hookviz, the model, the input and the options of a budget; its result is kept.
WORK: dict[str, Callable[..., Any]] = {
    "plain": lambda hookviz, *given: _plain(*given),
    "capture": lambda hookviz, model, x, **budget: _within(
        hookviz.capture(model, **budget), model, x
    ),
    "capture all": lambda hookviz, model, x, **budget: _within(
        hookviz.capture(model, lambda name, module: True, **budget), model, x
    ),
    "guard": lambda hookviz, model, x: _within(hookviz.diagnose(model), model, x),
    "diagnose": lambda hookviz, *given: hookviz.diagnose(*given),
    "explore": lambda hookviz, *given, **budget: hookviz.explore(*given, **budget),
    "compare": lambda hookviz, model, x: hookviz.compare(model, model, x),
}


def _peak():
    """Return the peak memory in bytes. Linux's ru_maxrss may still be the parent's, so avoid it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _forget_peak():
    """Reset the peak to the current memory, if the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    print(json.dumps(_measure_here(*json.loads(sys.argv[1]))))
