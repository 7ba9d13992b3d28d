"""Chromium and a web server, alone on a network of their own: nothing is there but this machine's loopback.

python offline.py FOLDER PORT CHROMIUM [ARGUMENT ...]
"""

import fcntl
import socket
import struct
import subprocess
import sys

SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def bring_up_loopback():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


if __name__ == "__main__":
    folder, port, *chromium = sys.argv[1:]
    if sys.platform == "linux":  # elsewhere there are no such networks; what leaves the machine is still seen
        bring_up_loopback()
    server = subprocess.Popen([sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1", "--directory", folder],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    code = subprocess.call(chromium, pass_fds=(3, 4))  # by which Playwright speaks to it
    server.terminate()
    sys.exit(code)
