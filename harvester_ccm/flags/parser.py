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
from msgspec.structs import replace

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
    found = _values_of(namespace, flags)
    return replace(found, arguments=tuple(arguments), problems=(*problems, *found.problems))


def _values_of(namespace: argparse.Namespace, flags: Iterable[Flag]) -> FlagValues:
    """Return the values of the flags, of which the namespace has a list of texts each."""
    values: dict[str, Any] = {}
    given: dict[str, str] = {}
    ignored: list[str] = []
    problems: list[str] = []
    for flag in flags:
        default = flag.kind.parse(flag.default)
        values[flag.name] = default
        texts = getattr(namespace, flag.name)
        if not texts:
            continue
        try:
            values[flag.name] = _combined(flag, texts)
        except ValueError as error:
            problems.append(str(error))
            continue
        given[flag.name] = ",".join(texts) if flag.kind.appends else texts[-1]
        if flag.group is Group.ACCEPTED and values[flag.name] != default:
            ignored.append(f"--{flag.name} has no effect: {flag.meaning}")
    return FlagValues(values, given, tuple(ignored), problems=tuple(problems))


def _combined(flag: Flag, texts: Iterable[str | None]) -> Any:
    """Return the value of a flag that is set once for each text: the last one counts, and lists append."""
    parsed = [_parse(flag, text) for text in texts]
    return tuple(chain.from_iterable(parsed)) if flag.kind.appends else parsed[-1]


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
