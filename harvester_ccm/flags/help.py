"""Texts made from the table of flags: the help on the terminal and the reference page. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from harvester_ccm.flags.definition import Flag, Group
from harvester_ccm.flags.table import FLAGS

_PAGE_HEAD = """\
# Flags

This page is made from the table in `harvester_ccm/flags` by `python -m harvester_ccm.flags`.

Values are written as for the Go provider: `--flag=value` or `--flag value`, a bare boolean flag means true, durations
are like `1h2m3.5s`, lists are comma separated and grow with each occurrence. The last occurrence of any other flag
counts. All problems are reported together, one on a line, and the exit code is 1; it is 255 when the file of
`--cloud-config` cannot be used.
"""
_ACCEPTED_NOTE = "These flags are accepted, so that arguments for the Go provider keep working."


def help_text(*, program: str, width: int, commands: Iterable[tuple[str, str]] = ()) -> str:
    """Return the help for a terminal of ``width`` characters; ``commands`` are names with their summaries."""
    listed = tuple(commands)
    usage = f"Usage: {program} [command] [flags]" if listed else f"Usage: {program} [flags]"
    intro = _wrap(
        "Cloud controller manager for a Kubernetes cluster whose nodes are Harvester virtual machines: load balancers, "
        "node addresses and the life of nodes.",
        width,
        "",
    )
    blocks = [usage, intro]
    if listed:
        blocks.append("Commands:\n" + "\n".join(_entry(name, summary, width) for name, summary in listed))
    blocks += [_help_section(group, width) for group in Group]
    return "\n\n".join(blocks) + "\n"


def command_help(
    *, program: str, usages: Iterable[str], meaning: Sequence[str], own: Sequence[Flag], width: int
) -> str:
    """Return the help of a command; ``meaning`` are paragraphs, ``own`` the flags that only this command has."""
    usage = "\n".join(f"  {program} {line}" for line in usages)
    blocks = [f"Usage:\n{usage}", *(_wrap(paragraph, width, "") for paragraph in meaning)]
    if own:
        entries = "\n".join(_entry(_title(flag), _help_meaning(flag), width) for flag in own)
        blocks.append(f"Flags of this command:\n{entries}")
    blocks.append(_wrap(f"All flags of the program are accepted too; {program} --help lists them.", width, ""))
    return "\n\n".join(blocks) + "\n"


def flags_page() -> str:
    """Return the reference page of all flags in Markdown."""
    return "\n".join([_PAGE_HEAD, *(_page_section(group) for group in Group)]).rstrip() + "\n"


def _of_group(group: Group) -> tuple[Flag, ...]:
    return tuple(flag for flag in FLAGS if flag.group is group)


def _help_section(group: Group, width: int) -> str:
    if group is Group.ACCEPTED:
        return f"{group}:\n{_wrap(_ACCEPTED_NOTE, width, '  ')}\n{_accepted_entries(width)}"
    return f"{group}:\n" + "\n".join(_entry(_title(flag), _help_meaning(flag), width) for flag in _of_group(group))


def _accepted_entries(width: int) -> str:
    """Return the reasons, each with the flags that it holds for."""
    names: dict[str, list[str]] = {}
    for flag in _of_group(Group.ACCEPTED):
        names.setdefault(flag.effect or "", []).append(f"--{flag.name}")
    return "\n".join(
        f"{_wrap(f'{_capital(reason)}:', width, '  ')}\n{_wrap(', '.join(listed), width, ' ' * 8)}"
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


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _page_section(group: Group) -> str:
    if group is Group.ACCEPTED:
        head = (
            f"## {group}\n\n{_ACCEPTED_NOTE} Setting one to another value than its default is reported once at start."
        )
        table = "| Flag | Kind | Default | Why it has no effect |"
    else:
        head, table = f"## {group}", "| Flag | Kind | Default | Meaning |"
    rows = [_page_row(flag) for flag in _of_group(group)]
    return "\n".join([f"{head}\n", table, "| --- | --- | --- | --- |", *rows, ""])


def _page_row(flag: Flag) -> str:
    names = f"`-{flag.shorthand}`, `--{flag.name}`" if flag.shorthand else f"`--{flag.name}`"
    default = f"`{flag.default}`" if flag.default else "empty"
    meaning = flag.meaning if flag.effect is None else f"{_capital(flag.effect)}."
    return f"| {names} | {flag.kind} | {default} | {meaning.replace('|', '&#124;').replace('*', chr(92) + '*')} |"
