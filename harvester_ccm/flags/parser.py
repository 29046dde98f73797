"""Reads command lines with argparse by the rules of Go's ``pflag``, and formats the help.

Flags and arguments can be mixed, ``--`` ends the flags, the last occurrence of a flag counts, lists append, and names
are never abbreviated. All errors of a command line are reported together.
"""

import argparse
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.flags import types
from harvester_ccm.flags.table import FLAGS, Flag, Group

REFERENCE: Final = "docs/reference/flags.md"


class FlagValues(Struct, frozen=True):
    """A parsed command line."""

    values: Mapping[str, Any]
    """Values of all flags, including defaults."""
    given: Mapping[str, str] = {}
    """Names and texts of the flags that were set."""
    ignored: tuple[str, ...] = ()
    """A message for each flag without effect that is set to another value than its default."""
    arguments: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Errors of the command line. Flags with an invalid value have their default."""
    replaced: tuple[str, ...] = ()
    """A message for each flag whose value was replaced by the nearest sensible one."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def parse_command_line(
    words: Iterable[str], flags: Sequence[Flag] = FLAGS, *, takes_arguments: bool = False
) -> FlagValues:
    """Return values of the flags, arguments and errors of a command line without the name of the executable."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in flags:
        parser.add_argument(*_options(flag), dest=flag.name, action="append", nargs="?", default=[])
    before, behind = _join_values(words, flags)
    namespace, others = parser.parse_known_args(before)
    unknown = [word for word in others if word.startswith("-") and word != "-"]
    arguments = [word for word in others if word and word not in unknown] + list(filter(None, behind))
    problems = [_unknown(word, flags) for word in unknown]
    # An argument behind an unknown flag is most likely its value.
    if arguments and not takes_arguments and not unknown:
        listed = " ".join(map(repr, arguments))
        problems.append(f"unexpected arguments {listed}; commands come first, and bool flags are written --flag=value")
    values, given = {}, {}
    ignored, replaced = [], []
    for flag in flags:
        values[flag.name] = default = flag.kind.parse(flag.default)
        texts = getattr(namespace, flag.name)
        try:
            parsed = [_parse(flag, text) for text in texts]
        except ValueError as error:
            problems.append(str(error))
            continue
        if parsed:
            value = sum(parsed, ()) if flag.kind.appends else parsed[-1]
            values[flag.name], message = _sensible(flag, value, texts[-1])
            replaced.append(message)
            given[flag.name] = ",".join(texts if flag.kind.appends else texts[-1:])
        if flag.group is Group.ACCEPTED and values[flag.name] != default:
            ignored.append(f"--{flag.name} has no effect: {flag.meaning}")
    return FlagValues(values, given, tuple(ignored), tuple(arguments), tuple(problems), tuple(filter(None, replaced)))


def _options(flag: Flag) -> list[str]:
    return [f"-{flag.shorthand}", f"--{flag.name}"] if flag.shorthand else [f"--{flag.name}"]


def _join_values(words: Iterable[str], flags: Iterable[Flag]) -> tuple[list[str], list[str]]:
    """Return the words before ``--`` with every flag as ``--flag=value``, and the words behind it.

    argparse accepts a value that starts with "-" only in this form. It would use the argument behind a bool flag as
    the flag's value.
    """
    by_option = {option: flag for flag in flags for option in _options(flag)}
    joined, rest = [], iter(words)
    for word in rest:
        if word == "--":
            break
        flag = by_option.get(word)
        value = None if flag is None else "true" if flag.kind.is_switch else next(rest, None)
        joined.append(word if value is None else f"{word}={value}")
    return joined, list(rest)


def _unknown(word: str, flags: Iterable[Flag]) -> str:
    name = word.partition("=")[0]
    close = difflib.get_close_matches(name.lstrip("-").replace("_", "-"), [flag.name for flag in flags], n=1)
    return f"unknown flag {name}" + (f"; did you mean --{close[0]}?" if close else "")


def _parse(flag: Flag, text: str | None) -> Any:
    if text is None:
        raise ValueError(f"--{flag.name} needs a value")
    try:
        return flag.kind.parse(text)
    except ValueError as error:
        raise ValueError(f"--{flag.name} is {text!r}; {error}") from None


def _sensible(flag: Flag, value: Any, text: str) -> tuple[Any, str]:
    """Return the value to use, and a message if it is not the one in the command line."""
    nearest = value if flag.kind.nearest is None else flag.kind.nearest(value)
    if nearest == value:
        return value, ""
    unit = "s" if flag.kind.name == types.DURATION.name else ""
    return nearest, f"--{flag.name} is {text!r}; {nearest:g}{unit} is used"


def describe_flags(parser: argparse._ActionsContainer, flags: Iterable[Flag]) -> None:
    """Add flags to a parser that only prints the help or generates shell completion."""
    for flag in flags:
        default = f" (default {flag.default})" if flag.default not in ("", "false") else ""
        meaning = (flag.meaning + default).replace("%", "%%")
        options: dict[str, Any] = {"action": "store_true"} if flag.kind.is_switch else {"metavar": flag.kind.name}
        parser.add_argument(*_options(flag), dest=flag.name, help=meaning, **options)


def help_text(program: str, commands: Iterable[tuple[str, str]]) -> str:
    """Return the help for this terminal; ``commands`` are names with their summaries."""
    ignored = sum(flag.group is Group.ACCEPTED for flag in FLAGS)
    parser = argparse.ArgumentParser(
        program,
        usage="%(prog)s [command] [flags]",
        description="Cloud controller manager for Kubernetes clusters whose nodes are Harvester VMs.",
        epilog=f"{ignored} more flags of the Go provider are accepted without effect: {REFERENCE}",
        add_help=False,
    )
    section = parser.add_argument_group("commands")
    for name, summary in commands:
        section.add_argument(name, help=summary)
    for group in Group:
        if group is not Group.ACCEPTED:
            describe_flags(parser.add_argument_group(group), [flag for flag in FLAGS if flag.group is group])
    return parser.format_help()
