"""Prints the version."""

from typing import Final

from rich.text import Text

from harvester_ccm import __version__
from harvester_ccm.commands import EXIT_OK
from harvester_ccm.commands.runner import OUTPUT, CommandContext, CommandSpec
from harvester_ccm.names import PROGRAM


def _show(context: CommandContext) -> int:
    context.output.answer({"version": __version__}, lambda shown: [Text(f"{PROGRAM} {shown['version']}")])
    return EXIT_OK


SPEC: Final = CommandSpec(meaning=__doc__, usage="version [flags]", own=(OUTPUT,), action=_show, connection=())
