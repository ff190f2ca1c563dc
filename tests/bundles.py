"""Bundle `web/` into `hookviz/static/`.

The bundles are committed, so that hookviz installs without deno and npm.

Run ``make face`` after a change of a file in `web/`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from deno import find_deno_bin

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
STATIC = ROOT / "hookviz" / "static"
MODULES = ("widget.ts", "live.ts")  # anywidget reads their default export
# Each bundle is wrapped in a function because one file holds the runtime and the worker.
SCRIPTS = (
    "page.ts",
    "networkPage.ts",
    "networkWorker.ts",
    "survey.tsx",
    "trace.tsx",
    "training.ts",
)
SHEETS = ("face.css", "survey.css", "trace.css", "steps.css")


def build(folder):
    """Write all bundles into a folder."""
    for name in (*MODULES, *SCRIPTS, *SHEETS):
        kind = "css" if name in SHEETS else "js"
        command = [find_deno_bin(), "bundle", "--quiet", "--config", f"{WEB}/deno.json"]
        command += ["--platform", "browser", "--minify"]
        command += ["--format", "iife" if name in SCRIPTS else "esm"]
        command += ["--output", f"{folder}/{Path(name).stem}.min.{kind}", f"{WEB}/{name}"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    build(STATIC)
