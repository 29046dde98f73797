"""What a target needs of the machine: checked before anything is built, so that nobody waits for an error.

``python -m devenv.machine TARGET PROGRAM=PACKAGE...`` checks for programs, and for Linux and root.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Final

from devenv.process import DevenvError

NETWORK_TOOLS: Final = {"unshare": "util-linux", "ip": "iproute2"}
"""Programs for network namespaces, and their Debian packages."""


def require_root(target: str) -> None:
    """Raise DevenvError if this is not Linux, or not root."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise DevenvError(f"{target} needs Linux and root: it creates namespaces and network devices")


def require_tools(tools: Mapping[str, str]) -> None:
    """Raise DevenvError with a command that helps if programs are missing; ``tools`` maps them to Debian packages."""
    missing = {package for tool, package in tools.items() if shutil.which(tool) is None}
    if missing:
        raise DevenvError(f"programs are missing; on Debian: apt-get install {' '.join(sorted(missing))}")


def main() -> int:
    """Entry point. Returns the exit code."""
    _, target, *tools = sys.argv
    try:
        require_root(target)
        require_tools(dict(tool.split("=") for tool in tools) or NETWORK_TOOLS)
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
