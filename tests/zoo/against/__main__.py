"""Compare today's hookviz with 0.3; exit with 1 if something differs that is not intended."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

from zoo.against.compare import Difference, differences, known
from zoo.against.measure import cases, file_of

ROOT = Path(__file__).parents[3]

SAMPLE = (
    "demo",
    "demo transformer",
    "small/twins",
    "small/reused",
    "small/signals",
    "small/text",
    "torchvision/resnet18",
    "torchvision/squeezenet1_1",
    "torchvision/shufflenet_v2_x0_5",
    "torchvision/swin_t",
    "torchvision/lraspp_mobilenet_v3_large",
    "torchvision/ssdlite320_mobilenet_v3_large",
    "timm/densenet121",
    "timm/vit_tiny_patch16_224",
    "fault/root of negative",
    "fault/where around a log",
    "fault/nan in a weight",
    "fault/about to overflow",
    "fault/cat of other sizes",
    "fault/bias far below zero",
    "fault/block left out",
    "fault/dropout in eval",
    "fault/activation in two places",
)
"""What is compared by default: a model of each sort, and a fault of each sort."""

SHOWN = 6
"""Number of differences of one model and subject that are printed."""


def main():
    """Run the measurements in both environments, compare them, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", type=Path, help="of the environment with 0.3")
    parser.add_argument("names", nargs="*", help="or pattern, as 'timm/*'; all; a sample if none")
    parser.add_argument("--folder", type=Path, default=Path("build/against"))
    options = parser.parse_args()
    names = chosen(options.names)
    if not names:
        parser.error(f"no model or fault is called {' or '.join(options.names)}")
    begun = time.monotonic()
    before, now = options.folder / "0.3", options.folder / "today"
    # The script's folder comes first on the path; only today's run may import the package there.
    running = [
        measuring([str(options.python)], before, names, PYTHONPATH=""),
        measuring([sys.executable], now, names, PYTHONPATH=str(ROOT)),
    ]
    for process in running:
        process.wait()
    print(f"Measured in {time.monotonic() - begun:.0f} s.")
    return report(names, before, now, known())


def chosen(patterns):
    """Return the names that match the patterns, in order; the sample without patterns."""
    wanted = ["*" if pattern == "all" else pattern for pattern in patterns or SAMPLE]
    return [
        name
        for name in cases()
        if any(fnmatchcase(name, each) or fnmatchcase(name, f"*/{each}") for each in wanted)
    ]


def measuring(python, folder, names, **environment):
    """Start the measurement in one environment, without earlier results."""
    for name in names:
        file_of(folder, name).unlink(missing_ok=True)
    script = Path(__file__).with_name("measure.py")
    single = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.Popen(
        [*python, script, folder, *names], env=os.environ | single | environment
    )


def report(names, before, now, intended):
    """Compare the stored results and print the differences; return the exit status."""
    paths = [(folder / "hookviz.txt").read_text() for folder in (before, now)]
    print(f"0.3 is {paths[0]}, today's code is {paths[1]}.")
    if paths[0] == paths[1]:
        print("They are the same: nothing was compared.")
        return 1
    found: list[Difference] = []
    for name in names:
        files = [file_of(folder, name) for folder in (before, now)]
        if dead := [file.parent.name for file in files if not file.exists()]:
            ended = f"the process died with {' and '.join(dead)}"
            differing = [Difference(name, "all", "measuring", ended)]
        else:
            results = (torch.load(file, weights_only=True) for file in files)
            differing = [*differences(name, *results, intended)]
        show(name, differing)
        found += differing
    unexpected = [each for each in found if not each.reason]
    if len(found) > len(unexpected):
        count = len(found) - len(unexpected)
        print(f"\n{count} differences are intended, see tests/zoo/against/known.toml.")
    if not unexpected:
        print(f"\nNothing differs unexpectedly from 0.3 on {len(names)} models and faults.")
        return 0
    by_subject = Counter(each.subject for each in unexpected)
    counts = ", ".join(f"{subject} {count}" for subject, count in by_subject.items())
    models = len({each.model for each in unexpected})
    print(f"\nUNEXPECTED on {models} of {len(names)} models and faults: {counts}.")
    return 1


def show(name, found):
    """Print the first differences of one model in each subject."""
    if found:
        print(f"\n{name}")
    counts: Counter[tuple[str, str]] = Counter()
    for each in found:
        counts[each.subject, each.reason] += 1
        if counts[each.subject, each.reason] <= SHOWN:
            print(f"  {each}" + f"  [{each.reason}]" * bool(each.reason))
    for (subject, _), count in counts.items():
        if count > SHOWN:
            print(f"  {subject:<10} … and {count - SHOWN} more")


if __name__ == "__main__":
    sys.exit(main())
