#!/usr/bin/env python3
"""Compiles every module that the program imports, the standard library's too, into the directory given.

Images of Python often come without the standard library's bytecode, and a container with a read-only file system
would compile it at every start. Modules are never checked against their source: both are fixed in the image.
"""

from __future__ import annotations

import compileall
import importlib
import sys
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

ENTRY_POINTS: Final = (
    "harvester_ccm.cli",
    "harvester_ccm.app",
    # Imported only where the server is not switched off; the last one by a process of its own.
    "harvester_ccm.telemetry.server",
    "harvester_ccm.telemetry.auth",
    "harvester_ccm.telemetry.issuer",
)


def main(directory: str) -> int:
    """Compile into ``directory``; the exit code is 1 when a module could not be compiled."""
    sys.pycache_prefix = directory
    for name in ENTRY_POINTS:
        importlib.import_module(name)
    files = (getattr(module, "__file__", None) for name, module in sys.modules.items() if name != "__main__")
    sources = sorted({file for file in files if file and Path(file).suffix == ".py"})
    mode = PycInvalidationMode.UNCHECKED_HASH
    done = [compileall.compile_file(source, quiet=1, force=True, invalidation_mode=mode) for source in sources]
    return 0 if done and all(done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
