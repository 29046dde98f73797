"""``completion``: the script that lets a shell complete command lines of the program. Asks no cluster.

Made from the tables of flags and commands by shtab, which takes a parser of Python's standard library; that parser
reads no command line. Flags that do nothing, or only in a program that serves a cluster, are left out behind a command.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

import shtab

from harvester_ccm.commands import COMMANDS, EXIT_OK, HELP, VERSION
from harvester_ccm.commands.call import OUTPUT, Call, Manual, expect_arguments, refuse
from harvester_ccm.flags import FLAGS, Flag, Group
from harvester_ccm.names import PROGRAM

KUBECTL: Final = "kubectl"
SHELLS: Final = ("bash", "zsh", "fish", KUBECTL)

_FILES: Final = frozenset({"cloud-config", "kubeconfig"})
"""Flags whose value is a file of the user's."""
_OF_CLUSTERS: Final = frozenset({Group.HARVESTER, Group.SERVICES, Group.NODES, Group.GUEST})
"""Flags that matter to a command, too."""

_BASH: Final = """
# In COMP_WORDS a flag and its value, --flag=value, are three words.
_harvester_ccm() {
  local -a words=()
  local index word cword=0
  for index in "${!COMP_WORDS[@]}"; do
    word=${COMP_WORDS[index]}
    if [[ $word == = && ${COMP_WORDS[index - 1]} == --* ]]; then
      (( index == COMP_CWORD )) || continue
      word=
    fi
    (( index > COMP_CWORD )) || cword=${#words[@]}
    words+=("$word")
  done
  local COMP_CWORD=$cword
  local -a COMP_WORDS=("${words[@]}")
  _shtab_harvester_ccm
}

complete -o bashdefault -F _harvester_ccm harvester-ccm
"""
"""What shtab's function for bash does not know."""

_KUBECTL: Final = """
# kubectl runs this file with the words behind "kubectl harvester-ccm", and completes the last with what it prints.
COMP_WORDS=(harvester-ccm) before=
for word; do
  COMP_WORDS+=("$word") before=
  if [[ $word == --*=* ]]; then
    before=${word%%=*}= COMP_WORDS[${#COMP_WORDS[@]}-1]=${word%%=*}
    COMP_WORDS+=("${word#*=}")
  fi
done
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_shtab_harvester_ccm
(( ${#COMPREPLY[@]} )) || { echo :0; exit; }
printf -- "$before%s\\n" "${COMPREPLY[@]}"
echo :4
"""
"""The last line tells kubectl whether names of files are to follow (0) or not (4)."""


def script(shell: str) -> str:
    """Return the completion script for one of ``SHELLS``."""
    if shell == KUBECTL:
        return f"#!/usr/bin/env bash\n{_generated('bash')}\n{_KUBECTL}"
    return f"{_generated(shell)}\n" + (_BASH if shell == "bash" else "")


def _generated(shell: str) -> str:
    # A flag whose name ends with "=" is what zsh takes with its value behind that, too.
    return str(shtab.complete(_parser(ends="=" if shell == "zsh" else ""), shell))


def _parser(*, ends: str) -> ArgumentParser:
    """Return a parser with all commands; ``ends`` stands behind the name of a flag that needs a value."""
    parser = ArgumentParser(prog=PROGRAM, add_help=False)
    _add_flags(parser, (flag for flag in FLAGS if flag.effect is None), ends=ends)
    commands = parser.add_subparsers()
    summaries = {command.name: command.summary for command in COMMANDS}
    for name, summary in summaries.items():
        manual: Manual = import_module(f"{__package__}.{name}").MANUAL
        inherited = (one for one in FLAGS if one.effect is None and (one.group in _OF_CLUSTERS or one.name == "help"))
        sub = commands.add_parser(name, help=_summary(summary), add_help=False)
        _add_flags(sub, (*manual.own, *inherited), ends=ends, forms=manual.forms)
        _add_words(sub, manual.words)
    _add_words(commands.add_parser(HELP[0], help=_summary(HELP[1]), add_help=False), summaries)
    commands.add_parser(VERSION[0], help=_summary(VERSION[1]), add_help=False)
    return parser


def _add_flags(parser: ArgumentParser, flags: Iterable[Flag], *, ends: str, forms: Iterable[str] = ()) -> None:
    for flag in flags:
        short = [f"-{flag.shorthand}"] if flag.shorthand else []
        options: dict[str, Any] = {"help": _summary(flag.meaning), "dest": flag.name}
        if not flag.needs_value:
            parser.add_argument(*short, f"--{flag.name}", action="store_true", **options)
            continue
        choices = tuple(forms) if flag.name == OUTPUT.name else None
        action = parser.add_argument(*short, f"--{flag.name}{ends}", choices=choices, **options)
        if flag.name in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def _add_words(parser: ArgumentParser, words: Iterable[str]) -> None:
    listed = tuple(words)
    if listed:
        parser.add_argument("words", choices=listed, nargs="?", help="what is meant")


def _summary(text: str) -> str:
    """Return the first sentence, as argparse takes it literally."""
    return text.partition(". ")[0].rstrip(".").replace("%", "%%")


def _complete(call: Call) -> int:
    (shell,) = expect_arguments(call, ["|".join(SHELLS)])
    if shell not in SHELLS:
        raise refuse(f"there is no completion for {shell!r}; expected one of: {', '.join(SHELLS)}")
    call.output.program(script(shell))
    return EXIT_OK


MANUAL: Final = Manual(
    usages=(f"completion {'|'.join(SHELLS)}",),
    examples=(
        ("In every bash from now on.", "completion bash > ~/.local/share/bash-completion/completions/harvester-ccm"),
        ("In zsh, from a directory of its fpath.", "completion zsh > ~/.zfunc/_harvester-ccm"),
        ("In fish.", "completion fish > ~/.config/fish/completions/harvester-ccm.fish"),
        (
            "Behind kubectl; the file has to be executable and in PATH.",
            "completion kubectl > ~/.local/bin/kubectl_complete-harvester_ccm",
        ),
    ),
    meaning="""
        Prints the script that completes command lines of the program in a shell: commands, flags, and what they take.
        For kubectl it is the program that kubectl asks when the words behind "kubectl harvester-ccm" are to be
        completed; it needs bash. The Python package brings all of them, for shells that look into its share/.

        Exit codes: 0 printed, 2 the command line cannot be used.
    """,
    own=(),
    action=_complete,
    words=SHELLS,
    offline=lambda _flags: True,
)
