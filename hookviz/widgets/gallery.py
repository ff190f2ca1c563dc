"""The pictures that an explorer was given: thumbnails in the browser, to go back to."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from ..draw.overlay import picture_of
from ..run.inputs import ModelInput, Transform
from ..run.pictures import FileBytes
from ..view.messages import Thumbnail

SIDE = 64
"""The longest side of a thumbnail, in pixels."""

SAMPLES, GIVEN, THUMBNAILS = 24, 12, 48
"""The most thumbnails of one input's samples, the most inputs, and the most thumbnails in all.

Beyond them the second oldest input goes: the first one stays.
"""


@dataclass(frozen=True, eq=False)
class Given:
    """The inputs of an explorer and how they are prepared, as for `hookviz.explore`."""

    image: Any
    weights: Any = None
    transform: Transform | None = None


@dataclass(eq=False)
class _Entry:
    """One of the inputs, and thumbnails of its samples once it has been explored."""

    given: Any
    name: str
    urls: list[str] = field(default_factory=list)


class Gallery:
    """An explorer's inputs, in the order in which they were given; the browser names them by key.

    What the browser sends comes in parts, see `received`.
    """

    def __init__(self) -> None:
        self._count = 0
        self._entries: dict[int, _Entry] = {}
        self._parts: list[bytes] = []
        self._replaced = -1  # the key that goes once its input is no longer explored

    def received(
        self, name: str, part: int, parts: int, data: bytes, again: bool = False
    ) -> bytes | None:
        """Add a part of a file; return the whole file once all its parts are there.

        With ``again`` it takes the place of the latest one, if that has the same name: a camera's
        frames are one picture, and push no other out.
        """
        self._parts = [*self._parts[:part], data] if part else [data]
        if len(self._parts) < parts:
            return None
        whole, self._parts = FileBytes(b"".join(self._parts)), []
        whole.name = name
        latest = next(reversed(self._entries), None)
        if again and latest is not None and self._entries[latest].name == name:
            self._replaced = latest
        self._add(whole, name)
        return whole

    def given(self, key: int) -> Any:
        """Return what was given."""
        return self._entries[key].given

    def thumbnails(self, given: Any, inputs: ModelInput) -> list[Thumbnail]:
        """Return thumbnails of each sample of each input."""
        entries = self._entries
        now = next((key for key, entry in entries.items() if entry.given is given), None)
        if now is None:
            is_file = isinstance(given, (str, PathLike, list, tuple))
            now = self._add(given, inputs.name if is_file else f"picture {self._count + 1}")
        if self._replaced != now:
            entries.pop(self._replaced, None)
        entries[now].urls = entries[now].urls or list(_thumbnails(inputs))
        for key in list(entries)[1:]:
            count = sum(len(entry.urls) for entry in entries.values())
            if key != now and (len(entries) > GIVEN or count > THUMBNAILS):
                del entries[key]
        found = []
        for key, entry in entries.items():
            for sample, url in enumerate(entry.urls):
                label = _sample_name(entry.given, entry.name, sample, len(entry.urls))
                found.append(Thumbnail(key=key, sample=sample, name=label, now=key == now, url=url))
        return found

    def pair_names(self, other: tuple[int, int], given: Any, sample: int) -> tuple[str, str]:
        """Return the names of a picture, by key and sample, and of the one that it is beside."""
        now = next((key for key, entry in self._entries.items() if entry.given is given), other[0])
        names = []
        for key, number in (other, (now, sample)):
            entry = self._entries[key]
            name = "" if key == other[0] == now else entry.name
            names.append(_sample_name(entry.given, name, number, len(entry.urls)))
        first, second = names
        return (first, second) if first and first != second else ("other", "this")

    def _add(self, given: Any, name: str) -> int:
        key = self._count
        self._count += 1
        self._entries[key] = _Entry(given, name)
        return key


def sample_of(given: Any, sample: int) -> Any:
    """Return one picture of a list or batch of them; what is one picture is returned as it is.

    >>> sample_of(["cat.png", "dog.png"], 1), sample_of("cat.png", 0)
    ('dog.png', 'cat.png')
    """
    if isinstance(given, (list, tuple)) and sample < len(given):
        return given[sample]
    if getattr(given, "ndim", 0) == 4 and len(given) > 1:
        return given[sample : sample + 1]
    return given


def with_sample(given: Any, sample: int, picture: Any) -> Any:
    """Return a list or batch with another picture as a sample; one picture is replaced whole.

    >>> with_sample(["cat.png", "dog.png"], 1, "cow.png"), with_sample("cat.png", 0, "cow.png")
    (['cat.png', 'cow.png'], 'cow.png')
    """
    if isinstance(given, (list, tuple)) and sample < len(given):
        return [*given[:sample], picture, *given[sample + 1 :]]
    if getattr(given, "ndim", 0) == 4 and len(given) > 1 and type(picture) is type(given):
        batch = given.clone() if isinstance(given, Tensor) else np.array(given)
        batch[sample : sample + 1] = picture
        return batch
    return picture


def _thumbnails(inputs: ModelInput) -> Iterator[str]:
    main = inputs.main
    if main is None or main.ndim != 4 or picture_of(inputs)[0] is None:
        return
    for sample in range(min(len(main), SAMPLES)):
        if len(inputs.pictures) == len(main):
            picture = inputs.pictures[sample].convert("RGB")
        else:
            pixels, _ = picture_of(inputs, sample)
            assert pixels is not None  # the first sample is a picture
            picture = Image.fromarray(pixels)
        small = picture.copy()
        small.thumbnail((SIDE, SIDE))
        file = io.BytesIO()
        small.save(file, "JPEG", quality=85)
        yield "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _sample_name(given: Any, name: str, sample: int, samples: int) -> str:
    """Return a file's name, where files were given; else the sample's number.

    >>> _sample_name(["a/cat.png", "b/dog.png"], "2 pictures", 1, 2), _sample_name(None, "x", 0, 1)
    ('dog.png', 'x')
    """
    if isinstance(given, (list, tuple)) and len(given) == samples:
        own = given[sample]
        if isinstance(own, (str, PathLike)):
            return PurePath(fspath(own)).name
    return name if samples == 1 else f"sample {sample} of {name}" if name else f"sample {sample}"
