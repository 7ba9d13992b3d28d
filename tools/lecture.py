"""Show the lecture on this machine, full screen with F11: python tools/lecture.py [options of Voila].

The talk remembers its scene. Where the server dies it is started again on the same port, so that a reload of the
page (F5) brings the scene back.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "lecture.ipynb"


def command(notebook, options):
    return [sys.executable, "-m", "voila", str(notebook), "--template=lecture", *options]


def environment():
    paths = [str(ROOT / "tools" / "jupyter"), os.environ.get("JUPYTER_PATH")]
    return os.environ | {"JUPYTER_PATH": os.pathsep.join(filter(None, paths))}  # where the template is


def serve(notebook, options):
    """Run Voila, and again where it ends by itself; stopped by hand it ends with 0. Gives up where it cannot start."""
    while True:
        began = time.monotonic()
        ended = subprocess.call(command(notebook, options), env=environment())
        if ended == 0 or time.monotonic() - began < 5:
            return ended
        print(
            f"{time.strftime('%H:%M:%S')}: the lecture's server ended ({ended}) and starts again. Press F5 in its page."
        )
        options = [option for option in options if option != "--no-browser"] + ["--no-browser"]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(serve(NOTEBOOK, sys.argv[1:]))
