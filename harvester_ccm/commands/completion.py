"""Prints the script that completes commands and flags in a shell.

In bash: source <(harvester-ccm completion bash). The Python package installs the scripts of all shells below share/.
"""

from argparse import ArgumentParser
from collections.abc import Iterable
from importlib import import_module
from typing import Final

import shtab

from harvester_ccm.commands import COMMANDS, EXIT_OK, HELP
from harvester_ccm.commands.runner import OUTPUT, CommandContext, CommandSpec, Form
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags import FLAGS, Flag, FlagValues, Group, types
from harvester_ccm.flags.parser import describe_flags
from harvester_ccm.names import PROGRAM

SHELLS: Final = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """Return the completion script for one of ``SHELLS``."""
    parser = ArgumentParser(prog=PROGRAM, add_help=False)
    _add_flags(parser, (flag for flag in FLAGS if flag.group is not Group.ACCEPTED))
    commands = parser.add_subparsers()
    for command in COMMANDS:
        spec: CommandSpec = import_module(f"{__package__}.{command.name}").SPEC
        subparser = commands.add_parser(command.name, help=command.summary, add_help=False)
        _add_flags(subparser, spec.own)
        if spec.words:
            subparser.add_argument("words", choices=spec.words, nargs="?")
    names = [command.name for command in COMMANDS]
    commands.add_parser(HELP[0], help=HELP[1], add_help=False).add_argument("words", choices=names, nargs="?")
    return str(shtab.complete(parser, shell))


def _add_flags(parser: ArgumentParser, flags: Iterable[Flag]) -> None:
    describe_flags(parser, flags)
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of a parser's flags
        action.help = (action.help or "").partition(". ")[0]
        if action.metavar == types.FILE.name:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        if action.dest == OUTPUT.name:
            action.choices = tuple(Form)


def _check(flags: FlagValues) -> None:
    shell = " ".join(flags.arguments)
    if shell not in SHELLS:
        raise ConfigurationError([f"no completion for {shell!r}; expected one of: {', '.join(SHELLS)}"])


def _complete(context: CommandContext) -> int:
    context.output.write(script(*context.flags.arguments))
    return EXIT_OK


SPEC: Final = CommandSpec(
    meaning=__doc__,
    usage=f"completion {'|'.join(SHELLS)}",
    own=(),
    action=_complete,
    words=SHELLS,
    connection=(),
    check=_check,
)
