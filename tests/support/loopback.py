"""A loopback network for each test worker, so that workers use the same virtual addresses and ports side by side.

Emulators listen on fixed addresses such as 127.77.0.2, and tests say which. Linux gives a process that asks for it, and
is allowed to, a network namespace with nothing but a loopback of its own.
"""

import ctypes
import fcntl
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1
_INTERFACE_REQUEST: Final = "16sh14x"


def own_loopback_is_granted() -> bool:
    """Return whether ``take_own_loopback`` would move this process."""
    unshare = shutil.which("unshare")
    if sys.platform != "linux" or unshare is None:
        return False
    return subprocess.run([unshare, "--net", "true"], check=False, capture_output=True).returncode == 0


def take_own_loopback() -> None:
    """Move this process, and what it starts from now on, to a fresh loopback where that is granted."""
    if sys.platform != "linux" or ctypes.CDLL(None).unshare(_CLONE_NEWNET) != 0:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack(_INTERFACE_REQUEST, b"lo", _IFF_UP))


@contextmanager
def free_port() -> Iterator[int]:
    """Reserve a TCP port of 127.0.0.1 for the time of the block, for a server in this process.

    On Linux, it is bound, and a server can still listen on it by its number.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        number: int = held.getsockname()[1]
        if sys.platform != "linux":
            held.close()
        yield number


def open_connections(url: str) -> int:
    """Return the number of this process's sockets that are connected to the server with this URL."""
    found = 0
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                found += connection.getpeername()[1:] == (int(url.rpartition(":")[2]),)
    return found
