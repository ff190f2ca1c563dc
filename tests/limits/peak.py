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

KINDS = ("plain", "capture", "explore", "guard", "diagnose", "capture all", "compare")


def measure(kind: str, name: str, batch: int, side: int, max_bytes: int | None = None) -> dict:
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


def _measure_here(kind: str, name: str, batch: int, side: int, max_bytes: int | None) -> dict:
    import gc  # import hookviz and its dependencies before the first reading

    from limits.networks import network, pictures
    from limits.resources import storages

    import hookviz

    model, x = network(name), pictures(batch, side)
    gc.collect()
    held, before = storages(), _resident()
    _forget_peak()
    kept, nbytes = WORK[kind](hookviz, model, x, max_bytes)
    peak = _peak() - before
    gc.collect()
    live = sum(size for key, size in storages().items() if key not in held)
    del kept
    return {"peak": peak, "nbytes": nbytes, "live": live}


def _plain(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    import torch

    top = model(x.requires_grad_()).amax(1).sum()
    torch.autograd.grad(top, x)
    return None, 0


def _capture(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    with hookviz.capture(model, max_bytes=max_bytes) as cache:
        _plain(hookviz, model, x, None)
    return cache, cache.nbytes


def _explore(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    explorer = hookviz.explore(model, x, max_bytes=max_bytes)
    return explorer, explorer.cache.nbytes


def _guard(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    with hookviz.diagnose(model) as findings:
        _plain(hookviz, model, x, None)
    return findings, 0


def _diagnose(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    return hookviz.diagnose(model, x), 0


def _capture_all(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    with hookviz.capture(model, lambda name, module: True, max_bytes=max_bytes) as cache:
        _plain(hookviz, model, x, None)
    return cache, cache.nbytes


def _compare(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    found = hookviz.compare(model, model, x)
    assert all(row.output.equal for row in found)
    return found, 0


def _forward(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    import torch

    with torch.no_grad():
        model(x)
    return None, 0


def _attention(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    maps = hookviz.attention(model, x, max_bytes=max_bytes)
    return maps, sum(each.nbytes for each in maps.values())


def _graded(hookviz: Any, model: Any, x: Any, max_bytes: int | None) -> tuple[Any, int]:
    maps = hookviz.attention(model, x, target=0, max_bytes=max_bytes)
    return maps, 2 * sum(each.nbytes for each in maps.values())


WORK: dict[str, Callable[..., tuple[Any, int]]] = {
    "plain": _plain,
    "capture": _capture,
    "explore": _explore,
    "guard": _guard,
    "diagnose": _diagnose,
    "capture all": _capture_all,
    "compare": _compare,
    "forward": _forward,
    "attention": _attention,
    "attention and gradients": _graded,
}


def _resident() -> int:
    """Return the bytes of memory that the process holds now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return _peak()


def _peak() -> int:
    """Return the peak memory in bytes. Linux's ru_maxrss may still be the parent's, so avoid it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _forget_peak() -> None:
    """Reset the peak to the current memory, if the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    print(json.dumps(_measure_here(*json.loads(sys.argv[1]))))
