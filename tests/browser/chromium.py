"""Find a Chromium for the browser tests; run as a script, install one if none is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Chromium uses only the last such list, so it repeats Playwright's. The last two are the
# address bar's menus, which every window would load as separate pages for a third of a second.
WITHOUT = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,PaintHolding,"
    "ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,"
    "NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch,"
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup"
)
FLAGS = [
    f"--disable-features={WITHOUT}",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A fake camera that shows a test picture and needs no permission.
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]


def executable() -> str | None:
    """Return the path of an installed browser; None for Playwright's own."""
    return os.environ.get("HOOKVIZ_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


def main() -> None:
    if executable():
        print(f"browser: {executable()}")
        return
    as_root = shutil.which("apt-get") and os.geteuid() == 0
    apt = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    if as_root:
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        if not subprocess.run([*apt, "chromium", "fonts-dejavu-core"], check=False).returncode:
            return
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


if __name__ == "__main__":
    main()
