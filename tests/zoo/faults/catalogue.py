"""All faults: each of the files imported here plants those of one kind."""

from . import backward, checkpointed, forward, half, held, maps, nested, parts, reused, shapes
from .fault import FAULTS

__all__ = [
    "FAULTS",
    "backward",
    "checkpointed",
    "forward",
    "half",
    "held",
    "maps",
    "nested",
    "parts",
    "reused",
    "shapes",
]
