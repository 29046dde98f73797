"""Namespaces of processes, mounts, networks and names, and the process that runs in them.

The first process in a namespace of processes is like init: when it ends, the kernel kills all others there, also
containers and whatever detached itself from its parent. The kernel kills this one when its parent ends. So nothing
outlives ``make e2e-cluster``, however that ends, and the mounts and networks go with their last process.

``python -I -S capsule.py COMMAND...`` is this first process. It starts the command and collects ended processes.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

REQUIRED = ("unshare", "nsenter", "ip", "mount")
"""Programs of the machine that the capsule and the nodes need."""


def capsule_command(command: Sequence[str | Path]) -> list[str | Path]:
    """Return the command that runs another one in new namespaces. Requires root."""
    unshare = shutil.which("unshare")
    assert unshare is not None, "unshare is not on PATH"
    namespaces = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
    first = (sys.executable, "-I", "-S", Path(__file__))
    return [unshare, *namespaces, *first, *command]


def main(command: list[str]) -> int:
    """Run a command, collect every process that loses its parent, and return the exit code of the command."""
    pid = os.posix_spawn(command[0], command, os.environ)
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # A negative code is the signal that ended the command.
    sys.exit(code if code >= 0 else 1)
