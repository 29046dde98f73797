"""Reads command lines with argparse by the rules of Go's ``pflag``, and formats the help.

Flags and arguments can be mixed, ``--`` ends the flags, the last occurrence of a flag counts, lists append, and names
are never abbreviated. All errors of a command line are reported together.
"""

import argparse
import difflib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.flags.table import FLAGS, Flag, Group

SHORTHANDS: Final = {"n": "namespace", "A": "all-namespaces"}
"""Names of kubectl, to find the flag that is meant."""


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
    arguments = [word for word in others if word and word not in unknown]
    arguments += filter(None, behind)
    problems = [_unknown(word, flags) for word in unknown]
    # An argument behind an unknown flag is most likely its value.
    if arguments and not takes_arguments and not unknown:
        listed = " ".join(map(repr, arguments))
        problems.append(f"unexpected arguments {listed}; commands come first, and bool flags are written --flag=value")
    values = [_value(flag, getattr(namespace, flag.name)) for flag in flags]
    return FlagValues(
        values={value.flag.name: value.value for value in values},
        given={value.flag.name: value.given for value in values if value.given is not None},
        ignored=_texts(value.ignored for value in values),
        arguments=tuple(arguments),
        problems=_texts([*problems, *(value.problem for value in values)]),
    )


def _texts(messages: Iterable[str]) -> tuple[str, ...]:
    """Return the messages that are not empty."""
    return tuple(message for message in messages if message)


class _Value(Struct, frozen=True):
    """The value of one flag."""

    flag: Flag
    value: Any
    """Its default, if the command line does not set it or has an error."""
    given: str | None = None
    """The text that set it; None if it was not set, or not to a valid value."""
    problem: str = ""
    """The error in the command line; empty if there is none."""
    ignored: str = ""
    """The message about a flag without effect; empty if it has one, or its default."""


def _value(flag: Flag, texts: Sequence[str | None]) -> _Value:
    """Return the value of a flag, which is set once for each of the texts; None is a flag without a value."""
    default = flag.kind.parse(flag.default)
    if not texts:
        return _Value(flag, default)
    try:
        parsed = [_parse(flag, text) for text in texts]
    except ValueError as error:
        return _Value(flag, default, problem=str(error))
    # ``_parse`` has rejected a flag without a value.
    given = [text for text in texts if text is not None]
    combined = parsed[-1]
    if flag.kind.appends:
        combined = tuple(chain.from_iterable(parsed))
    else:
        given = given[-1:]
    ignored = ""
    if flag.group is Group.ACCEPTED and combined != default:
        ignored = f"--{flag.name} has no effect: {flag.meaning}"
    return _Value(flag, combined, ",".join(given), ignored=ignored)


def _options(flag: Flag) -> list[str]:
    options = [f"--{flag.name}"]
    if flag.shorthand:
        options.insert(0, f"-{flag.shorthand}")
    return options


def _join_values(words: Iterable[str], flags: Iterable[Flag]) -> tuple[list[str], list[str]]:
    """Return the words before ``--`` with every flag as ``--flag=value``, and the words behind it.

    argparse accepts a value that starts with "-" only in this form. It would use the argument behind a bool flag as
    the flag's value.
    """
    by_option = {option: flag for flag in flags for option in _options(flag)}
    joined: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        joined.append(_joined(word, by_option.get(word), rest))
    return joined, list(rest)


def _joined(word: str, flag: Flag | None, rest: Iterator[str]) -> str:
    """Return a word with the value of the flag that it is, which can be the next word."""
    if flag is None:
        return word
    if flag.kind.is_switch:
        return f"{word}=true"
    value = next(rest, None)
    return word if value is None else f"{word}={value}"


def _unknown(word: str, flags: Iterable[Flag]) -> str:
    name = word.partition("=")[0]
    written = name.lstrip("-").replace("_", "-")
    close = difflib.get_close_matches(SHORTHANDS.get(written, written), [flag.name for flag in flags], n=1)
    if not close:
        return f"unknown flag {name}"
    return f"unknown flag {name}; did you mean --{close[0]}?"


def _parse(flag: Flag, text: str | None) -> Any:
    if text is None:
        raise ValueError(f"--{flag.name} needs a value")
    try:
        return flag.kind.parse(text)
    except ValueError as error:
        raise ValueError(f"--{flag.name} is {text!r}; {error}") from None


def describe_flags(parser: argparse._ActionsContainer, flags: Iterable[Flag]) -> None:
    """Add flags to a parser that only prints the help or generates shell completion."""
    for flag in flags:
        meaning = flag.meaning
        if flag.default not in ("", "false"):
            meaning += f" (default {flag.default})"
        options: dict[str, Any] = {"metavar": flag.kind.name}
        if flag.kind.is_switch:
            options = {"action": "store_true"}
        parser.add_argument(*_options(flag), dest=flag.name, help=meaning.replace("%", "%%"), **options)


class _Formatter(argparse.HelpFormatter):
    """Keeps paragraphs, and breaks no name at its hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (self._split_lines(paragraph, width) for paragraph in text.split("\n\n"))
        return "\n\n".join("\n".join(lines) for lines in paragraphs)


def help_text(
    usage: str,
    meaning: str,
    sections: Mapping[str, Iterable[Flag]],
    *,
    commands: Iterable[tuple[str, str]] = (),
    end: str = "",
) -> str:
    """Return a help for this terminal: the flags of each section, after ``commands`` with their summaries."""
    parser = argparse.ArgumentParser(
        usage=usage, description=meaning, epilog=end, formatter_class=_Formatter, add_help=False
    )
    listed = parser.add_argument_group("Commands")
    for name, summary in commands:
        listed.add_argument(name, help=summary)
    for title, flags in sections.items():
        describe_flags(parser.add_argument_group(title), flags)
    return parser.format_help()
