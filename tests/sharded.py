"""Two processes share a model by FSDP, look into it, and go on training; each prints what it saw.

``python sharded.py fsdp1`` or ``fsdp2``; the parent prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import hookviz

CPU = torch.device("cpu")


def net():
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(inplace=True))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), inner, *head).eval()


def sharded(kind):
    model = net()
    if kind == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        fully_shard(model[2], mesh=mesh)
        return fully_shard(model, mesh=mesh)
    from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp

    model[2] = Fsdp(model[2], device_id=CPU, use_orig_params=True)
    return Fsdp(model, device_id=CPU, use_orig_params=True)


def look(rank, kind, folder, answers):
    torch.set_num_threads(1)
    store = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    plain, model = net(), sharded(kind)
    x = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    expected = plain(x)
    found = {}
    for name, ask in {
        "explore": lambda net: hookviz.explore(net, x).cache,
        "trace": lambda net: hookviz.trace(net, x),
        "capture": lambda net: captured(net, x),
    }.items():
        seen, true = ask(model), ask(plain)
        if name == "trace":
            same = [e.layer for e in seen if e.fired] != []
        else:
            same = list(seen) == list(true) and all(
                torch.equal(seen[layer].activation, true[layer].activation) for layer in true
            )
        found[name] = [same, *works(model, x, expected)]
    model.register_forward_hook(lambda module, args, output: output * 0)
    removed = hookviz.remove_hooks(model)
    same = len(removed) == 1 and {hook.origin for hook in removed.left} == {"torch"}
    found["remove_hooks"] = [same, *works(model, x, expected)]
    answers.put((rank, found))  # type: ignore[attr-defined]
    # Neither leaves while the other still talks to it, and neither tears down gloo's threads, which
    # now and then aborts a process that has answered.
    dist.barrier()
    os._exit(0)


def works(model, x, expected):
    after = torch.equal(model(x), expected)
    model.zero_grad()
    model(x).sum().backward()
    return after, all(p.grad is not None for p in model.parameters() if p.numel())


def captured(model, x):
    with hookviz.capture(model) as cache:
        model(x)
    return cache


if __name__ == "__main__":
    answers = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(look, (sys.argv[1], folder, answers), nprocs=2)
    print(json.dumps(dict(answers.get() for _ in range(2))))
