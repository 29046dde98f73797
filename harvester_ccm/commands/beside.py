"""The flags of the running program, which are the defaults of a command in the same container.

``kubectl exec`` starts a command in the container of the program, which is process 1 there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final

from msgspec.structs import replace

from harvester_ccm.commands import COMMANDS
from harvester_ccm.flags import FLAGS, FlagValues, Group, parse_command_line
from harvester_ccm.names import PROGRAM_NAMES

USUAL_CLOUD_CONFIG: Final = Path("/etc/kubernetes/cloud-config")
"""Where the charts put the kubeconfig for Harvester."""

_PACKAGE: Final = "harvester_ccm"
_OF_ITS_OWN: Final = frozenset(flag.name for flag in FLAGS if flag.group in (Group.LOGGING, Group.GENERAL))
"""Flags that say how a process speaks, not what it does."""
_MEANT_WITH: Final[Mapping[str, frozenset[str]]] = {
    "cloud-config": frozenset({"cloud-config-context"}),
    "kubeconfig": frozenset({"context", "master"}),
    "cluster-name": frozenset({"former-cluster-name"}),
}
"""Which flags mean nothing, or the wrong thing, beside another value of a flag."""


def running_flags(proc: Path) -> FlagValues | None:
    """Return the flags of process 1, which ``proc`` shows; None if it is another program or a command of this one."""
    try:
        line = (proc / "1" / "cmdline").read_bytes()
    except OSError:
        return None
    words = _words_of_program(line.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0"))
    if words is None or words[:1] in [[command.name] for command in COMMANDS]:
        return None
    flags = parse_command_line(words)
    return None if flags.problems else flags


def with_defaults(flags: FlagValues, given: FlagValues | None, usual: Path = USUAL_CLOUD_CONFIG) -> FlagValues:
    """Return a command's flags with those of the running program, ``given``, where the command line says nothing.

    ``usual`` is the --cloud-config where neither says one, if there is such a file.
    """
    values = dict(flags.values)
    if given is not None:
        others = {meant for name, with_it in _MEANT_WITH.items() if name in flags.given for meant in with_it}
        values |= {name: given[name] for name in given.given.keys() - flags.given.keys() - _OF_ITS_OWN - others}
    # Path.exists raises an error if the user cannot enter the directory.
    if values["cloud-config"] is None and os.path.exists(usual):
        values["cloud-config"] = usual
    return replace(flags, values=values)


def _words_of_program(line: list[str]) -> list[str] | None:
    """Return what stands behind the program's name in a command line; None in that of another program.

    A script is started by its interpreter: ``python3 /usr/bin/harvester-cloud-provider --flag``.

    >>> _words_of_program(["/opt/bin/python3", "-u", "/usr/bin/harvester-cloud-provider", "--v=2"])
    ['--v=2']
    >>> _words_of_program(["python3", "-m", "harvester_ccm"])
    []
    """
    interpreted = PurePath(line[0]).name.startswith("python")
    for position, word in enumerate(line):
        is_package = interpreted and word == _PACKAGE and line[position - 1] == "-m"
        if is_package or PurePath(word).name in PROGRAM_NAMES:
            return line[position + 1 :]
        if not interpreted or (position and not word.startswith("-")):
            return None
    return None
