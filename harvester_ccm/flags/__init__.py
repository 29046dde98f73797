"""The command line: every flag in one table, a parser that follows Go's rules, the help, and the way to settings."""

from __future__ import annotations

from harvester_ccm.flags.definition import Flag, FlagValue, FlagValues, Group, Kind, UsageError
from harvester_ccm.flags.help import command_help, help_text, help_width
from harvester_ccm.flags.parser import Grammar, parse_command_line, wants_full_help
from harvester_ccm.flags.settings import build_settings
from harvester_ccm.flags.table import FLAGS

__all__ = [
    "FLAGS",
    "Flag",
    "FlagValue",
    "FlagValues",
    "Grammar",
    "Group",
    "Kind",
    "UsageError",
    "build_settings",
    "command_help",
    "help_text",
    "help_width",
    "parse_command_line",
    "wants_full_help",
]
