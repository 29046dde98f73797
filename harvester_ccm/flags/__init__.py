"""The command line: table of flags, types of their values, parser, help, and the way to ``Settings``."""

from harvester_ccm.flags.parser import FlagValues, help_text, parse_command_line
from harvester_ccm.flags.settings import build_settings
from harvester_ccm.flags.table import FLAGS, Flag, Group

__all__ = ["FLAGS", "Flag", "FlagValues", "Group", "build_settings", "help_text", "parse_command_line"]
