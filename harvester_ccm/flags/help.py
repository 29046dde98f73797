"""The help on the terminal, made from the table of flags. Pure."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence

from harvester_ccm.flags.definition import Flag, Group
from harvester_ccm.flags.table import FLAGS

ACCEPTED_NOTE = "These flags are accepted, so that arguments for the Go provider keep working."


def help_width() -> int:
    """Return the characters of a line of help on this terminal."""
    return min(max(shutil.get_terminal_size(fallback=(100, 24)).columns, 40), 120)


def help_text(*, program: str, width: int, commands: Iterable[tuple[str, str]]) -> str:
    """Return the help for a terminal of ``width`` characters; ``commands`` are names with their summaries."""
    intro = _wrap(
        "Cloud controller manager for a Kubernetes cluster whose nodes are Harvester virtual machines: load balancers, "
        "node addresses and the life of nodes.",
        width,
        "",
    )
    listed = "\n".join(_entry(name, summary, width) for name, summary in commands)
    sections = (_help_section(group, width) for group in Group)
    return "\n\n".join([f"Usage: {program} [command] [flags]", intro, f"Commands:\n{listed}", *sections]) + "\n"


def command_help(
    *,
    program: str,
    usages: Iterable[str],
    examples: Iterable[tuple[str, str]],
    meaning: Sequence[str],
    own: Sequence[Flag],
    width: int,
) -> str:
    """Return the help of a command; ``meaning`` are paragraphs, ``own`` the flags that only this command has.

    Of ``examples`` each is what somebody wants, and the words after the program's name.
    """
    usage = "\n".join(f"  {program} {line}" for line in usages)
    blocks = [f"Usage:\n{usage}", *(_wrap(paragraph, width, "") for paragraph in meaning)]
    shown = "\n".join(f"  # {wish}\n  {program} {words}" for wish, words in examples)
    blocks.append(f"Examples:\n{shown}")
    if own:
        entries = "\n".join(_entry(_title(flag), _help_meaning(flag), width) for flag in own)
        blocks.append(f"Flags of this command:\n{entries}")
    beside = (
        f"All flags of the program are accepted too; {program} --help lists them. In the pod of the program, those "
        "that it runs with are the defaults."
    )
    blocks.append(_wrap(beside, width, ""))
    return "\n\n".join(blocks) + "\n"


def of_group(group: Group) -> tuple[Flag, ...]:
    """Return the flags of one section of the help."""
    return tuple(flag for flag in FLAGS if flag.group is group)


def _help_section(group: Group, width: int) -> str:
    if group is Group.ACCEPTED:
        return f"{group}:\n{_wrap(ACCEPTED_NOTE, width, '  ')}\n{_accepted_entries(width)}"
    return f"{group}:\n" + "\n".join(_entry(_title(flag), _help_meaning(flag), width) for flag in of_group(group))


def _accepted_entries(width: int) -> str:
    """Return the reasons, each with the flags that it holds for."""
    names: dict[str, list[str]] = {}
    for flag in of_group(Group.ACCEPTED):
        names.setdefault(flag.effect or "", []).append(f"--{flag.name}")
    return "\n".join(
        f"{_wrap(f'{capital(reason)}:', width, '  ')}\n{_wrap(', '.join(listed), width, ' ' * 8)}"
        for reason, listed in names.items()
    )


def _title(flag: Flag) -> str:
    shorthand = f"-{flag.shorthand}, " if flag.shorthand else ""
    return f"{shorthand}--{flag.name}" + (f"={flag.kind}" if flag.needs_value else "")


def _help_meaning(flag: Flag) -> str:
    return f"{flag.meaning} (default {flag.default})" if flag.default not in ("", "false") else flag.meaning


def _entry(title: str, meaning: str, width: int) -> str:
    return f"  {title}\n{_wrap(meaning, width, ' ' * 8)}"


def _wrap(text: str, width: int, indent: str) -> str:
    return textwrap.fill(
        text,
        width=width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def capital(sentence: str) -> str:
    """Return the sentence with a capital at its beginning."""
    return sentence[:1].upper() + sentence[1:]
