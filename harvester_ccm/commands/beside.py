"""The running program beside a command: the process of it in the same container, whose flags a command goes by.

``kubectl exec`` starts a command in the container of the program, which is its process 1. Where a shell, an init or the
pause container of a shared process namespace is process 1, the program is the one process of it in our own mount
namespace; that is looked for in pods only, because elsewhere several programs may run for several clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands import COMMANDS
from harvester_ccm.flags import FLAGS, FlagValues, Group, UsageError, parse_command_line
from harvester_ccm.names import PROGRAM_NAMES

PROC: Final = Path("/proc")
USUAL_CLOUD_CONFIG: Final = Path("/etc/kubernetes/cloud-config")
"""Where the charts put the kubeconfig for Harvester."""

_PACKAGE: Final = "harvester_ccm"
_OF_ITS_OWN: Final = frozenset(flag.name for flag in FLAGS if flag.group in (Group.LOGGING, Group.GENERAL))
"""Flags that say how a process speaks, not what it does."""
_OF_THE_PROGRAM: Final = frozenset(flag.name for flag in FLAGS) - _OF_ITS_OWN
_MEANT_WITH: Final[Mapping[str, frozenset[str]]] = {
    "cloud-config": frozenset({"cloud-config-context"}),
    "kubeconfig": frozenset({"context", "master"}),
    "cluster-name": frozenset({"former-cluster-name"}),
}
"""Which flags mean nothing, or the wrong thing, beside another value of a flag."""


class RunningProgram(Struct, frozen=True):
    """A process of the program."""

    directory: Path
    """Of the process under /proc."""
    flags: FlagValues
    """What its command line says."""


def find_program(environment: Mapping[str, str], proc: Path = PROC) -> RunningProgram | None:
    """Return the running program of our own container; None where there is none, or no telling which."""
    first = proc / "1"
    home, there = _mount_namespace(proc / "self"), _mount_namespace(first)
    # The process of another container may be the first one, too; its files are not ours.
    found = _program(first) if not (home and there) or home == there else None
    if found is not None or not environment.get("KUBERNETES_SERVICE_HOST") or not home:
        return found
    others = [one for one in _processes(proc) if one != first and _mount_namespace(one) == home]
    programs = [one for one in map(_program, others) if one is not None]
    return programs[0] if len(programs) == 1 else None


def with_defaults(flags: FlagValues, program: RunningProgram | None, usual: Path = USUAL_CLOUD_CONFIG) -> FlagValues:
    """Return a command's flags with those of the running program where the command line says nothing.

    ``usual`` is the --cloud-config where neither says one, if there is such a file.
    """
    given = program.flags if program is not None else None
    others = {meant for name, with_it in _MEANT_WITH.items() if name in flags.explicit for meant in with_it}
    taken = (given.explicit - flags.explicit - _OF_ITS_OWN - others) if given is not None else frozenset()
    values = {**flags.values, **{name: given.values[name] for name in taken if given is not None}}
    if not values["cloud-config"] and _is_there(usual):
        values["cloud-config"] = str(usual)
    return replace(flags, values=values)


def _is_there(file: Path) -> bool:
    """Return whether there is a file that may be looked at: not every user may enter its directory."""
    try:
        return file.exists()
    except OSError:
        return False


def goes_by(flags: FlagValues) -> bool:
    """Return whether a command line leaves it to the program beside it which clusters and whose objects are meant.

    What that program says is no answer otherwise, and a token for another cluster is none to show it.
    """
    return not flags.explicit & _OF_THE_PROGRAM


def _processes(proc: Path) -> Iterator[Path]:
    yield from (one for one in sorted(proc.iterdir()) if one.name.isdecimal())


def _mount_namespace(process: Path) -> str:
    """Return what names the mount namespace of a process; empty when that may not be seen."""
    try:
        return str((process / "ns" / "mnt").readlink())
    except OSError:
        return ""


def _program(process: Path) -> RunningProgram | None:
    """Return the program that a process runs; None for another one, for a command of it, and for one that is gone."""
    try:
        line = (process / "cmdline").read_bytes()
    except OSError:
        return None
    words = _words_of_program(line.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0"))
    if words is None or words[:1] in [[command.name] for command in COMMANDS]:
        return None
    try:
        return RunningProgram(process, parse_command_line(words))
    except UsageError:
        return None


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
