"""``hookviz.load``: every file that hookviz saved, whatever it holds."""

from __future__ import annotations

import os
from typing import Any

from torch import nn

from ..files import read_arrays
from ..run.inputs import Transform
from .survey import survey as surveys
from .survey.survey import Survey
from .watch import log as watch_log
from .watch.training import Training

FORMATS: dict[str, Any] = {
    **surveys.FORMATS,
    watch_log.FORMAT: watch_log.unpack_log,
}


def load(
    path: str | os.PathLike,
    inputs: Any = None,
    *,
    model: nn.Module | None = None,
    transform: Transform | None = None,
) -> Survey | Training:
    """Read a file that a result's ``save``, or the ``path=`` of `hookviz.watch`, has written.

    Parameters
    ----------
    path : path
    inputs : optional
        The data set of a survey, to see its pictures: the file has none.
    model, transform : optional
        As in `hookviz.survey`. Give one of them if the items of the data set are pictures.

    Returns
    -------
    Survey or Training
        What the file holds; the model of a training is not needed.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    ValueError
        The file is broken, a folder or not hookviz's; a survey is of another data set, model or
        transform; or ``inputs`` is given for a result that is not a survey.

    Examples
    --------
    >>> import hookviz, tempfile
    >>> pictures, folder = hookviz.demo_images()[:4], tempfile.mkdtemp()
    >>> survey = hookviz.survey(hookviz.demo_model(), pictures, "stem.0")
    >>> survey.save(f"{folder}/stem.npz")
    >>> again = hookviz.load(f"{folder}/stem.npz")
    >>> again["stem.0"].top(3) == survey["stem.0"].top(3)
    True
    """
    found = read_arrays(path, FORMATS, "survey or watch of hookviz")
    if isinstance(found, Survey):
        return found if inputs is None else surveys.with_data(found, inputs, model, transform)
    if inputs is not None:
        raise ValueError(f"{str(path)!r} holds a watched training: leave inputs= out.")
    return Training(found)
