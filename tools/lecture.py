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
PORT = "8866"


def command(options):
    return [sys.executable, "-m", "voila", str(ROOT / "notebooks" / "lecture.ipynb"), "--template=lecture",
            f"--port={PORT}", *options]  # fmt: skip


def environment():
    paths = [str(ROOT / "tools" / "jupyter"), os.environ.get("JUPYTER_PATH")]
    return os.environ | {"JUPYTER_PATH": os.pathsep.join(filter(None, paths))}  # where the template is


def serve(options):
    """Run Voila until it is stopped by hand; it then ends with 0, and else is started again."""
    while (ended := subprocess.call(command(options), env=environment())) != 0:
        began = time.strftime("%H:%M:%S")
        print(f"{began}: the lecture's server ended ({ended}) and is started again; press F5 in its page.", flush=True)
        options = [*options, "--no-browser"] if "--no-browser" not in options else options
        time.sleep(1)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(sys.argv[1:])
