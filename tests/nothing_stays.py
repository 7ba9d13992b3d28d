"""Run a command, and fail where a process that it started is still there afterwards; only Linux can tell.

python nothing_stays.py COMMAND [ARGUMENT ...]
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import time

import psutil

PR_SET_CHILD_SUBREAPER, PATIENCE = 36, 5


def watched(command):
    """The command's exit status, and what is left of it: orphans become children of this process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    running = subprocess.Popen(command)
    while (ended := os.wait())[0] != running.pid:
        pass  # an orphan's end
    until = time.monotonic() + PATIENCE
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.05)
    return os.waitstatus_to_exitcode(ended[1]), left


if __name__ == "__main__":
    if sys.platform != "linux":
        sys.exit(subprocess.call(sys.argv[1:]))
    status, left = watched(sys.argv[1:])
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            print(f"still running: {process.pid} {' '.join(process.cmdline())[:200]}", file=sys.stderr)
            process.kill()
    sys.exit(status or bool(left))
