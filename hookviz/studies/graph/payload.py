"""A graph as plain JSON, for a browser that folds it at the modules."""

from __future__ import annotations

from typing import Any

from torch import nn

from .graph import Graph


def graph_payload(graph: Graph, model: nn.Module) -> dict[str, Any]:
    """Return a graph's nodes, edges and modules as JSON values.

    Returns
    -------
    dict
        ``nodes``, in the order in which they ran: ``name layer call operation shape after``,
        ``path`` (the module that the node is, or in whose code it ran), ``sources`` (indices of
        nodes, None where the node is no layer) and ``failed``; ``edges``, pairs of indices;
        ``modules``, the class by the name of each module that holds a node; ``verdict``.

    Examples
    --------
    >>> import hookviz, torch
    >>> model = nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 1)), nn.Conv2d(2, 1, 1))
    >>> found = graph_payload(hookviz.graph(model, torch.ones(1, 1, 4, 4)), model)
    >>> [node["name"] for node in found["nodes"]], found["modules"]
    (['input', '0.0', '1', 'output'], {'0': 'Sequential', '0.0': 'Conv2d', '1': 'Conv2d'})
    >>> found["edges"], found["nodes"][2]["sources"]
    ([[0, 1], [1, 2], [2, 3]], [1])
    """
    records = graph.records()
    known = {(each["layer"], each["call"]): each["index"] for each in records if each["layer"]}
    nodes, paths = [], set()
    for each in records:
        given = not each["module"]
        node = {key: each[key] for key in ("name", "layer", "call", "operation", "shape", "failed")}
        node["path"] = "" if given else each["module"]
        node["after"] = each["after"] or []
        sources = each["sources"]
        node["sources"] = sources and [known[tuple(source)] for source in sources]
        nodes.append(node)
        parts = node["path"].split(".")
        paths |= {".".join(parts[: n + 1]) for n in range(len(parts))}
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    return {
        "nodes": nodes,
        "edges": [list(edge) for edge in graph.edges],
        "modules": {name: kinds[name] for name in sorted(paths) if name and name in kinds},
        "verdict": graph.verdict,
    }
