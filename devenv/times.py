"""The program with other times than those built into it: where a test would only wait for one of them.

``python -m devenv.times TIMES MODULE ARGUMENTS...`` runs a module so; TIMES is JSON, an object with seconds by name. A
name is that of a module and its constant, such as ``plan.service.orphans.ORPHAN_GRACE``. What the built-in time is,
and that it is kept, is shown where time jumps.
"""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from collections.abc import Mapping
from typing import Final

PROGRAM: Final = "harvester_ccm"


def put(times: Mapping[str, float]) -> None:
    """Put these times into the program that is, or will be, loaded in this process; for good.

    Raises KeyError when it has no such time. What was made of a time when its module was loaded stays as it was.
    """
    for name, seconds in times.items():
        home, _, constant = f"{PROGRAM}.{name}".rpartition(".")
        built_in = vars(importlib.import_module(home))[constant]
        users = [module for module in list(sys.modules.values()) if module.__name__.startswith(f"{PROGRAM}.")]
        for module in users:
            if vars(module).get(constant) is built_in:
                setattr(module, constant, seconds)


def main() -> None:
    """Entry point."""
    _, times, module, *arguments = sys.argv
    put(json.loads(times))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
