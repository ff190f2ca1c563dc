"""Edit a layer of every classifier of the zoo and write EDITS.md; exit with 1 if one is wrong.

Each model has its own process. Results are stored in test-output/edits, a file per model; a second
run repeats only missing or wrong ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

from zoo.edits.check import check
from zoo.models import classifiers
from zoo.report import NAME, Report
from zoo.runner import Runner

EDITS = Report(
    "Edits",
    "One layer of each of the zoo's classifiers, chosen by the model's name, edited in five ways. "
    "Written by `make edits`.",
    "Right: the logits, and a randomly weighted sum's gradients by the input and by every "
    "parameter, equal to the bit those of a model with the edit in its own code: a module in the "
    "layer's place, with no hook and without hookviz (`tests/zoo/edits/written.py`). The layer is "
    "a convolution, a linear layer or a norm. Scale: a third of its channels times 0.3. Replace: "
    "those channels by random numbers. Function: `torch.tanh` of an output, `torch.relu` of a "
    "gradient. Weights are random, and every edit has an effect.",
    {
        "edits": lambda result: result.calls,
        "models wrong, to the bit": lambda result: bool(result.wrong),
        "models on which an edit raised": lambda result: bool(result.raised),
        "models changed": lambda result: bool(result.touched),
        "models that could not be checked": lambda result: bool(result.error),
    },
    {
        **NAME,
        "layer": lambda result: result.layer,
        "chosen from": lambda result: result.ran,
        "hookviz": lambda result: result.verdict,
    },
)

if __name__ == "__main__":
    page = Path(__file__).parents[1] / "EDITS.md"
    runner = Runner(Path("test-output/edits"), check)
    sys.exit(runner.main(__doc__, classifiers(), page, EDITS))
