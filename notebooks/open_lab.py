"""Open JupyterLab on the tour; where there is no browser to open, print the address."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parent


def has_browser() -> bool:
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def main() -> None:
    options = [] if has_browser() else ["--no-browser"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    lab = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={NOTEBOOKS}"]
    # So that the address that is printed is the tour's, too.
    lab.append("--LabApp.default_url=/lab/tree/explore_resnet.ipynb")
    os.execv(sys.executable, [*lab, *options, *sys.argv[1:]])


if __name__ == "__main__":
    main()
