"""Shows that the schedules find what was wrong once: its mend is taken out of a copy of the program.

    python -m tests.simulation.holes            # all
    python -m tests.simulation.holes turn       # those with this word in their name

Ends with 1 when the text of a mend is not found exactly once any more, or when no schedule finds the hole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants import PRODUCT, ROOT

COPIED: Final = ("harvester_ccm", "devenv", "tests", "benchmarks", "pyproject.toml")
SEEDS: Final = 10_000
"""So many schedules are played at most for one hole."""


@dataclass(frozen=True)
class Edit:
    """A part of a mend, and what stands in its place without it."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Hole:
    """What was wrong once."""

    name: str
    edits: tuple[Edit, ...]


HOLES: Final = (
    Hole(
        "404 pages count as the object being gone",
        (
            Edit("errors.py", "    404: NotServed,", "    404: NotFound,"),
            Edit(
                "controllers/service_writes.py",
                "            # That it is gone is for the watch to say.\n",
                "            key = f'{request.namespace}/{request.name}'\n"
                "            if self._services.get(key) is not None:\n"
                "                self._services._deliver(self._services._store(key, None))\n",
            ),
            Edit("controllers/orphans.py", "            await self._guest.confirm()\n", ""),
        ),
    ),
    Hole(
        "a secondary keeps the address of a primary whose type changed",
        (
            Edit(
                "plan/service/shared_address.py",
                "held = gets_it_back and primary.metadata.has_finalizer(SERVICE_FINALIZER)",
                "held = gets_it_back or True",
            ),
        ),
    ),
    Hole(
        "the primary takes no turn",
        (
            Edit(
                "controllers/service.py",
                "return (primary_reference(service) if service is not None else None) or key",
                'return (primary_reference(service) if service is not None else None) or key + " itself"',
            ),
            Edit("controllers/service.py", "and is_older and not again:", "and is_older and False:"),
        ),
    ),
    Hole(
        "what a copy of another name makes is taken for its own",
        (
            Edit(
                "plan/service/ownership.py",
                "    if label is not None and label not in cluster.names:\n",
                "    if label is not None and False:\n",
            ),
        ),
    ),
    Hole(
        "a server that went back to older data is not noticed",
        (Edit("kube/store.py", "rewound = listed < newest or any(", "rewound = False and any("),),
    ),
)


def find(hole: Hole) -> bool:
    """Play schedules of a program with a hole until one fails; return whether one did, and print it."""
    print(f"{hole.name}:", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        for edit in hole.edits:
            file = copy / PRODUCT / edit.file
            text = file.read_text()
            if text.count(edit.old) != 1:
                print(f"  the mend stands {text.count(edit.old)} times in {edit.file}")
                return False
            file.write_text(text.replace(edit.old, edit.new))
        command = [sys.executable, "-m", "tests.simulation.soak", "--first-only", "--seeds", str(SEEDS)]
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        found = subprocess.run(command, cwd=copy, env=environment, check=False, capture_output=True, text=True)
    print("\n".join(f"  {line}" for line in (found.stdout + found.stderr).splitlines()), flush=True)
    return found.returncode == 1 and "failed" in found.stdout


def main(words: list[str]) -> int:
    """Look for all holes with these words in their names; return 1 when one was not found."""
    chosen = [hole for hole in HOLES if all(word in hole.name for word in words)]
    found = [find(hole) for hole in chosen]
    return int(not all(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
