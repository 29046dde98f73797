"""The flags of the controller in the same container, which are the defaults of a command.

``kubectl exec`` starts a command in the container of the controller, which is process 1 there.
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
"""Path at which the charts mount the kubeconfig for Harvester."""

_NOT_INHERITED: Final = frozenset(flag.name for flag in FLAGS if flag.group in (Group.LOGGING, Group.GENERAL))
"""Flags of the process itself, such as those of its log."""
_MEANT_WITH: Final[Mapping[str, frozenset[str]]] = {
    "cloud-config": frozenset({"cloud-config-context"}),
    "kubeconfig": frozenset({"context", "master"}),
    "cluster-name": frozenset({"former-cluster-name"}),
}
"""Flags that are not inherited if another flag, which they depend on, is given."""


def running_flags(proc: Path) -> FlagValues | None:
    """Return the flags of process 1 in ``proc``; None if it is another program, or a command of this one."""
    try:
        line = (proc / "1" / "cmdline").read_bytes()
    except OSError:
        return None
    words = line.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
    names = [PurePath(word).name for word in words]
    # The name can follow an interpreter or an init process.
    start = next((at for at, name in enumerate(names, 1) if name in (*PROGRAM_NAMES, "harvester_ccm")), None)
    if start is None or words[start : start + 1] in [[command.name] for command in COMMANDS]:
        return None
    flags = parse_command_line(words[start:])
    return None if flags.problems else flags


def with_defaults(flags: FlagValues, given: FlagValues | None, usual: Path = USUAL_CLOUD_CONFIG) -> FlagValues:
    """Return a command's flags, with those of the controller, ``given``, for flags that are not set.

    ``usual`` is the --cloud-config if neither sets it and the file exists.
    """
    values = dict(flags.values)
    if given is not None:
        others = {meant for name, with_it in _MEANT_WITH.items() if name in flags.given for meant in with_it}
        values |= {name: given[name] for name in given.given.keys() - flags.given.keys() - _NOT_INHERITED - others}
    # Path.exists raises an error if the user cannot enter the directory.
    if values["cloud-config"] is None and os.path.exists(usual):
        values["cloud-config"] = usual
    return replace(flags, values=values)
