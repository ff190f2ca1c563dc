"""Make the environment that this Python belongs to a replica of Colab, then install hookviz in it.

First comes what Colab has, then hookviz as a user installs it there, then what tests need: it is
an error if one of the last two moves a version of the first.
"""

from __future__ import annotations

import json
import subprocess
import sys

from environments import PINS, ROOT, normal

COLAB = "torch torchvision numpy matplotlib pillow ipywidgets ipython ipykernel traitlets notebook"


def run(*command):
    done = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
    return done.stdout if not done.returncode else sys.exit(done.returncode)


def versions():
    listed = json.loads(run("pip", "list", "--format=json", "--disable-pip-version-check"))
    return {normal(package["name"]): package["version"] for package in listed}


def moved(before, after):
    """What is no longer as it was."""
    return [
        f"{name} {version} -> {after.get(name, 'gone')}"
        for name, version in before.items()
        if after.get(name) != version
    ]


def check(before, what):
    after = versions()
    if changes := moved(before, after):
        sys.exit(f"{what} changed versions that Colab has: {', '.join(changes)}.")
    added = sorted(set(after) - set(before))
    print(f"{what}: {len(before)} versions as before, {len(added)} added: {', '.join(added)}")


def main():
    uv = ("uv", "pip", "install", "--quiet", "--python", sys.executable, "-c", str(PINS["colab"]))
    run(*uv, *COLAB.split())
    before = versions()
    run("pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT))
    check(before, "pip install hookviz")
    run(*uv, "-e", f"{ROOT}[test]")
    check(before, "what tests need")


if __name__ == "__main__":
    main()
