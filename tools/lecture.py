"""Show the lecture on this machine, full screen with F11: python tools/lecture.py [options of Voila].

The talk remembers its scene. Where the server dies it is started again on the same port, so that a reload of the
page (F5) brings the scene back. However this program ends, the server and its kernels end with it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "lecture.ipynb"
SERVER = "--server"  # said to this file when it is to be the server itself


def command(notebook, options):
    return [sys.executable, __file__, SERVER, str(notebook), "--template=lecture", *options]


def environment():
    paths = [str(ROOT / "tools" / "jupyter"), os.environ.get("JUPYTER_PATH")]
    return os.environ | {"JUPYTER_PATH": os.pathsep.join(filter(None, paths))}  # where the template is


def serve(notebook, options):
    """Run Voila, and again where it ends by itself; gives up where it cannot start."""
    signal.signal(signal.SIGTERM, _leave)
    # nohup asks for SIGHUP, and for the end of whoever started this, not to matter.
    stays = not hasattr(signal, "SIGHUP") or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    if not stays:
        signal.signal(signal.SIGHUP, _leave)
    parent = None if stays else os.getppid()
    while True:
        began, ended = time.monotonic(), run(command(notebook, options), parent)
        if ended == 0 or time.monotonic() - began < 5:
            return ended
        print(
            f"{time.strftime('%H:%M:%S')}: the lecture's server ended ({ended}) and starts again. Press F5 in its page."
        )
        options = [option for option in options if option != "--no-browser"] + ["--no-browser"]


def _leave(number, frame):
    sys.exit(128 + number)


def run(command, parent):
    """Run the server until it ends, or until this program does, or the one that started it."""
    # In a session of its own, so that a closed terminal does not end it before it has ended its kernels.
    server = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, start_new_session=True)
    try:
        while parent in (None, os.getppid()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return server.wait(0.5)
        return 0
    finally:
        server.stdin.close()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def be_server(arguments):
    """Voila, for as long as its standard input is open: the system closes that with whoever started it."""
    from voila.app import main

    def watch():
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    main(arguments)


if __name__ == "__main__":
    if SERVER in sys.argv:
        be_server(sys.argv[2:])
    else:
        with contextlib.suppress(KeyboardInterrupt):
            sys.exit(serve(NOTEBOOK, sys.argv[1:]))
