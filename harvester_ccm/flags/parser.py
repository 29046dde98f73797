"""Reads a command line by the rules of Go's ``pflag``, so that arguments written for the Go provider keep working.

Flags and other words may be mixed, ``--`` ends the flags, the last occurrence of a flag wins, lists append. Unlike
``pflag``, which stops at the first fault, all faults of a command line are reported. The program itself takes flags
only; a command takes them too, and its own, and words (its arguments).
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct

from harvester_ccm.flags.definition import Flag, FlagValue, FlagValues, UsageError
from harvester_ccm.flags.table import FLAGS
from harvester_ccm.flags.values import go_quote, parse_bool, parse_value


class Grammar(Struct, frozen=True, dict=True):
    """What a command line may consist of."""

    flags: tuple[Flag, ...]
    takes_arguments: bool = False
    """Whether words that are no flags mean something."""

    @cached_property
    def by_name(self) -> Mapping[str, Flag]:
        """The flags by their names."""
        return {flag.name: flag for flag in self.flags}

    @cached_property
    def by_shorthand(self) -> Mapping[str, Flag]:
        """The flags that have one, by their letter."""
        return {flag.shorthand: flag for flag in self.flags if flag.shorthand}

    @cached_property
    def defaults(self) -> Mapping[str, FlagValue]:
        """The values of all flags when none is given."""
        return {flag.name: parse_value(flag.kind, flag.default) for flag in self.flags}


PROGRAM: Final = Grammar(FLAGS)
"""The command line without a command."""


def parse_command_line(words: Iterable[str], grammar: Grammar = PROGRAM) -> FlagValues:
    """Return the values of all flags, and the arguments. Raises UsageError with every fault."""
    reading = _Reading(words, grammar)
    reading.read()
    values = {**grammar.defaults, **reading.given}
    flags = FlagValues(
        values=values,
        explicit=frozenset(reading.given),
        ignored=tuple(
            f"--{flag.name} has no effect here: {flag.effect}"
            for flag in grammar.flags
            if flag.effect and values[flag.name] != grammar.defaults[flag.name]
        ),
        arguments=tuple(reading.arguments),
    )
    if reading.problems:
        raise UsageError(reading.problems, flags=flags, unknown_flag=reading.unknown_flag)
    return flags


def wants_full_help(words: Iterable[str]) -> bool:
    """Tell whether ``--show-full-help-on-error`` is on, also in a command line that cannot be read."""
    flag, *values = "--show-full-help-on-error", False
    for word in words:
        name, _, value = word.partition("=")
        if name == flag:
            values.append(_is_true(value or "true"))
    return values[-1]


def _is_true(value: str) -> bool:
    try:
        return parse_bool(value)
    except ValueError:
        return False


class _Reading:
    """One pass over the words."""

    def __init__(self, words: Iterable[str], grammar: Grammar) -> None:
        self.words = deque(words)
        self.grammar = grammar
        self.given: dict[str, FlagValue] = {}
        self.arguments: list[str] = []
        self.problems: list[str] = []
        self.unknown_flag = False

    def read(self) -> None:
        others: list[str] = []
        while self.words:
            word = self.words.popleft()
            if word == "--":
                others.extend(self.words)
                break
            if len(word) < 2 or word[0] != "-":
                others.append(word)
            elif word[1] == "-":
                self._read_long(word)
            else:
                self._read_short(word)
        if self.grammar.takes_arguments:
            self.arguments = others
        # The framework lets empty words pass; charts make them.
        elif any(others):
            self.problems.append(_positional(others))

    def _read_long(self, word: str) -> None:
        name, equals, value = word[2:].partition("=")
        if not name or name[0] == "-":
            self._unknown(f"bad flag syntax: {word}")
            return
        flag = self.grammar.by_name.get(name)
        if flag is None:
            self._unknown(f"unknown flag: --{name}{self._suggestion(name)}")
            if not equals and self.words and not self.words[0].startswith("-"):
                self.words.popleft()  # its value, most likely
        elif equals:
            self._set(flag, value)
        elif not flag.needs_value:
            self._set(flag, "true")
        else:
            self._set_next(flag, word)

    def _read_short(self, word: str) -> None:
        letters = word[1:]
        while letters:
            flag = self.grammar.by_shorthand.get(letters[0])
            if flag is None:
                name = word[1:].partition("=")[0]
                hint = f"; did you mean --{name}?" if name in self.grammar.by_name else ""
                self._unknown(f"unknown shorthand flag: '{letters[0]}' in -{letters}{hint}")
                return
            if len(letters) > 2 and letters[1] == "=":
                self._set(flag, letters[2:])
                return
            if flag.needs_value and len(letters) > 1:
                self._set(flag, letters[1:])
                return
            if flag.needs_value:
                self._set_next(flag, f"'{letters}' in -{letters}")
                return
            self._set(flag, "true")
            letters = letters[1:]

    def _set_next(self, flag: Flag, given: str) -> None:
        """Take the next word as the value."""
        if self.words:
            self._set(flag, self.words.popleft())
        else:
            self.problems.append(f"flag needs an argument: {given}")

    def _set(self, flag: Flag, text: str) -> None:
        try:
            value = parse_value(flag.kind, text)
        except ValueError as error:
            title = f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"
            self.problems.append(f"invalid argument {go_quote(text)} for {go_quote(title)} flag: {error}")
            return
        earlier = self.given.get(flag.name)
        if isinstance(earlier, tuple) and isinstance(value, tuple):
            value = earlier + value
        self.given[flag.name] = value

    def _unknown(self, problem: str) -> None:
        self.problems.append(problem)
        self.unknown_flag = True

    def _suggestion(self, name: str) -> str:
        close = difflib.get_close_matches(name.replace("_", "-"), self.grammar.by_name, n=1)
        return f"; did you mean --{close[0]}?" if close else ""


def _positional(words: list[str]) -> str:
    listed = " ".join(go_quote(word) for word in words)
    sentence = f'"cloud-controller-manager" does not take any arguments, got [{listed}]'
    if any(word.lower() in ("true", "false") for word in words):
        return f"{sentence}; a boolean flag takes its value after '=': --flag=false"
    return sentence
