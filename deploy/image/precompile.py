#!/usr/bin/env python3
"""Compiles the controller, its packages and the parts of the standard library that they import into a directory.

Images of Python often come without the standard library's bytecode, and a container with a read-only file system
would compile it at every start. Modules are never checked against their source: both are fixed in the image.
"""

import compileall
import importlib
import pkgutil
import sys
import sysconfig
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

IMPORTED_LATE: Final = ("encodings.idna", "asyncio.unix_events", "multiprocessing.resource_tracker")
"""By the standard library itself, when it is first needed."""


def main(directory: str) -> int:
    """Compile into ``directory``; the exit code is 1 when a module could not be compiled."""
    sys.pycache_prefix = directory
    program = importlib.import_module("harvester_ccm")
    modules = (one.name for one in pkgutil.walk_packages(program.__path__, "harvester_ccm."))
    for name in (*IMPORTED_LATE, *(name for name in modules if not name.endswith("__main__"))):
        importlib.import_module(name)
    files = (getattr(module, "__file__", None) for name, module in sys.modules.items() if name != "__main__")
    sources = {Path(file) for file in files if file and Path(file).suffix == ".py"}
    sources |= set(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    mode = PycInvalidationMode.UNCHECKED_HASH
    done = [compileall.compile_file(source, quiet=1, force=True, invalidation_mode=mode) for source in sorted(sources)]
    return 0 if done and all(done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
