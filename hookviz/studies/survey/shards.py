"""Many processes, one survey: who does what, where each keeps it, how all get the whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from .file import pack
from .fingerprint import Fingerprint, differences
from .survey import Survey, read, unpacked

T = TypeVar("T")


class Shards:
    """The processes of torch.distributed, if there are several, or one on its own.

    Parameters
    ----------
    path : path, optional
        Where the whole is to be written. Until then each process of several has a file beside it.
    mark : Mark
        What the files must be of.

    Raises
    ------
    ValueError
        There is no folder for the file; or a file is there that is broken, or of something else.
    """

    def __init__(self, path: str | os.PathLike | None, mark: Fingerprint) -> None:
        several = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if several else 0
        self.count = dist.get_world_size() if several else 1
        self.path, self._mark = None if path is None else Path(path), mark
        if self.path is not None and not self.path.parent.is_dir():
            raise ValueError(
                f"There is no folder {str(self.path.parent)!r} for path={str(path)!r}: make it."
            )
        self.had = self._had()
        self._wait()  # until all have read
        if self.rank == 0 and self.had is not None and self._parts():
            self._write_whole(self.had)
        self._wait()

    @property
    def own(self) -> Path | None:
        """The file of this process."""
        if self.path is None or self.count == 1:
            return self.path
        return self.path.with_name(
            f"{self.path.stem}.rank-{self.rank}-of-{self.count}{self.path.suffix}"
        )

    def share(self, batches: Sequence[T], which: tuple[int, int] | None = None) -> Sequence[T]:
        """Those of the batches that this process does, neighbours."""
        rank, count = which or (self.rank, self.count)
        return batches[len(batches) * rank // count : len(batches) * (rank + 1) // count]

    def keep(self, part: Survey) -> None:
        """Write what this process has done so far."""
        if self.own is not None:
            part.save(self.own)

    def whole(self, part: Survey) -> Survey:
        """What all processes found, in each of them."""
        if self.count == 1:
            return part
        self.keep(part)
        found = [unpacked(each) for each in self._together(lambda: all_bytes(pack(part)), part)]
        whole = reduce(add, found)
        if self.rank == 0 and self.path is not None:
            self._write_whole(whole)
        self._wait(part)
        return whole

    def _had(self) -> Survey | None:
        """What the files hold that are there already: the whole, and what processes left."""
        if self.path is None:
            return None
        paths = [self.path] * self.path.exists() + self._parts()
        found = [(read(path), path) for path in paths]
        whole: Survey | None = None
        for each, path in sorted(found, key=lambda one: -len(one[0].done)):
            if why := differences(each.mark, self._mark):
                raise ValueError(
                    f"{str(path)!r} is not of this survey: {why}. It was left as it is: move it "
                    "away, or give another path=."
                )
            if whole is None:
                whole = each
            elif len(whole.done | each.done) > len(whole.done):  # else left from putting together
                whole = whole + each
        return whole

    def _parts(self) -> list[Path]:
        if self.path is None:
            return []
        return sorted(self.path.parent.glob(f"{self.path.stem}.rank-*-of-*{self.path.suffix}"))

    def _write_whole(self, whole: Survey) -> None:
        assert self.path is not None
        whole.save(self.path)
        for part in self._parts():
            part.unlink()

    def _wait(self, part: Survey | None = None) -> None:
        if self.count > 1:
            self._together(lambda: all_bytes(b""), part)

    def _together(self, act: Callable[[], T], part: Survey | None) -> T:
        try:
            return act()
        except RuntimeError as error:
            kept = "nothing was kept, since no path= was given"
            if self.own is not None:
                kept = f"what this one did is in {str(self.own)!r}" if part else "nothing was lost"
            raise RuntimeError(
                f"Process {self.rank} of {self.count} waited for the others of this survey, and "
                f"one of them has ended: {kept}. See what that one says, and start again with the "
                "same path=: it goes on from there."
            ) from error


def all_bytes(own: bytes) -> list[bytes]:
    """What every process gave, in their order. As numbers: nothing is pickled."""
    device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
    count = dist.get_world_size()

    def gathered(tensor: Tensor) -> list[Tensor]:
        every = [torch.empty_like(tensor) for _ in range(count)]
        dist.all_gather(every, tensor)
        return every

    sizes = [int(each) for each in gathered(torch.tensor([len(own)], device=device))]
    room = torch.zeros(max(*sizes, 1), dtype=torch.uint8)
    room[: len(own)] = torch.frombuffer(bytearray(own or b"\0"), dtype=torch.uint8)[: len(own)]
    every = gathered(room.to(device))
    return [
        bytes(each[:size].cpu().numpy().tobytes()) for each, size in zip(every, sizes, strict=True)
    ]
