"""The frame of every command: its flags and help, settings, output, and the exit code for an error.

The document of a command is printed as JSON or YAML for scripts, or in the layout of ``kubectl describe`` for people.
Text is wrapped at the width of the terminal and nowhere else, so that lines can be searched in a pipe. A command
to paste comes only from the field ``command`` of a document, and has a line of its own; text never becomes one.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any, Final, TextIO

import rich.console
import structlog
import yaml
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS, EXIT_USAGE, Invocation
from harvester_ccm.config import LogFormat, LoggingSettings, Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags import FLAGS, Flag, FlagValues, Group, build_settings, help_text, parse_command_line, types
from harvester_ccm.flags.settings import TO_HARVESTER
from harvester_ccm.kube.errors import (
    CredentialError,
    Forbidden,
    KubeError,
    Unauthorized,
    Unreachable,
)
from harvester_ccm.logs import configure_logging, report, wants_colours
from harvester_ccm.names import PROGRAM, PROGRAM_NAMES
from harvester_ccm.redaction import MAX_LOG_FIELD, one_line, redact_text, start_of
from harvester_ccm.remedies import guest_rbac_hint, remedy_of

EXIT_INTERRUPTED: Final = 130
"""Exit code that shells report after Ctrl-C."""

_EXIT_CODES: Final = """\
Exit codes: 0 all is well, or there is nothing to do; 1 there is a problem, or a cluster or the cloud-config cannot be
read; 2 the command line or, except by preflight, the kubeconfig of the guest cluster cannot be used."""

_POD_HINT: Final = (
    ". In the pod of the controller, no flags are needed: "
    f"kubectl -n kube-system exec deploy/harvester-cloud-provider -- {PROGRAM} ..."
)

Document = dict[str, Any]
"""A JSON value."""

CLUSTER_NAME: Final = "cluster-name"
"""The flag whose default is only a guess outside the pod of the controller."""
TO_BOTH: Final = (*TO_HARVESTER, CLUSTER_NAME, "kubeconfig", "context")
"""Flags of the controller that lead to the clusters."""
COMMAND: Final = "command"
"""Key of a command in a document."""
UNLIMITED: Final = 100_000
"""Width without a terminal, where lines are not wrapped."""
_ACRONYMS: Final = frozenset({"id", "ip", "ipam", "uid", "vm"})
KEY_WIDTH: Final = 16
"""Minimum width of the keys of a document, with the colon."""
_STYLES: Final = {
    **dict.fromkeys(("failed", "Blocked"), "bold red"),
    **dict.fromkeys(("warning", "Pending", "Degraded", "Orphaned"), "yellow"),
    **dict.fromkeys(("ok", "Ready"), "green"),
}
"""Styles of cells by their text."""

log = structlog.get_logger(__name__)


def flag(name: str, meaning: str, *, shorthand: str = "") -> Flag:
    """Return a flag that only a command has."""
    return Flag(name, types.TEXT, "", Group.GENERAL, meaning, shorthand)


def switch(name: str, meaning: str, *, shorthand: str = "") -> Flag:
    """Return a flag that only a command has and that is off unless given."""
    return Flag(name, types.SWITCH, "false", Group.GENERAL, meaning, shorthand)


class Form(StrEnum):
    """The form of the output."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Output:
    """Where a command prints, and in which form."""

    def __init__(
        self, stream: TextIO, form: Form = Form.TEXT, *, width: int | None = None, colors: bool = False
    ) -> None:
        """``width`` None is that of the terminal."""
        self.form = form
        self.console = Console(
            file=stream,
            width=width,
            color_system="auto" if colors else None,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def answer(self, document: Document, layout: Callable[[Document], Iterable[RenderableType]] | None = None) -> None:
        """Print a document; ``layout`` is its text, by default the keys with their values."""
        document = sanitize_document(document)
        match self.form:
            case Form.TEXT:
                self.show((layout or describe)(document))
            case Form.YAML:
                self.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=UNLIMITED).rstrip())
            case Form.JSON:
                self.write(json.dumps(document, indent=2, ensure_ascii=False))

    def show(self, lines: Iterable[RenderableType]) -> None:
        """Print lines at once."""
        with self.console.capture() as captured:
            self.console.print(rich.console.Group(*lines), crop=False)
        self.write("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def write(self, text: str) -> None:
        """Print a text as it is."""
        self.console.file.write(f"{text}\n")
        self.console.file.flush()


_FORMS: Final = types.one_of({form: form for form in Form})
OUTPUT: Final = Flag("output", _FORMS, Form.TEXT, Group.GENERAL, "Form of the output: text, json or yaml.", "o")


class CommandContext(Struct, frozen=True):
    """A command line that was understood."""

    flags: FlagValues
    settings: Settings
    environment: Mapping[str, str]
    output: Output
    settings_with: Callable[[Iterable[str]], Settings]
    """Returns the settings with more flags of the controller, which the command line precedes."""
    is_in_pod: bool
    """Whether the flags of the controller in this container are used."""

    @property
    def is_named(self) -> bool:
        """Whether the name of the cluster is certain."""
        return self.is_in_pod or CLUSTER_NAME in self.flags.given


class CommandSpec(Struct, frozen=True):
    """A command with its flags and its function."""

    usage: str
    """The command line without the name of the executable."""
    meaning: str
    """Docstring of the module."""
    own: tuple[Flag, ...]
    """The flags of this command. One with the name of a flag of the controller replaces it: neither its default nor its
    value in the container of the controller is used."""
    action: Callable[[CommandContext], int | Coroutine[Any, Any, int]]
    """Returns the exit code."""
    words: tuple[str, ...] = ()
    """Values of the first argument; empty if the command takes no arguments."""
    connection: tuple[str, ...] = TO_BOTH
    """The flags of the controller that the command needs; empty if it connects to no cluster."""
    check: Callable[[FlagValues], object] = lambda _flags: None
    """Raises ConfigurationError if it cannot use its arguments or its own flags."""


def run_command(invocation: Invocation, spec: CommandSpec) -> int:
    """Run a command and return its exit code; each error is one line on standard error."""
    try:
        return _run(invocation, spec)
    except ConfigurationError as error:
        in_pod = _POD_HINT if spec.connection == TO_BOTH else ""
        report(error.problems, f"--help shows the command line{in_pod}")
        return EXIT_USAGE
    except KubeError as error:
        _report_failure(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception:
        # The log removes credentials; a traceback on standard error does not.
        if not structlog.is_configured():
            configure_logging(LoggingSettings(LogFormat.TEXT, verbosity=0))
        log.exception("stopped by an unexpected error")
    return EXIT_PROBLEMS


def _run(invocation: Invocation, spec: CommandSpec) -> int:
    """Run a command, or print its help, and return its exit code. Raises what the command raises."""
    own = {flag.name for flag in spec.own}
    shared = [flag for flag in FLAGS if flag.name not in own]
    of_controller = container_flags(invocation.proc, without=own)

    def read(defaults: Iterable[str]) -> FlagValues:
        words = (*defaults, *invocation.words)
        return parse_command_line(words, (*shared, *spec.own), takes_arguments=bool(spec.words))

    flags = read(of_controller or ())
    if flags["help"]:
        sys.stdout.write(_help(invocation, spec))
        return EXIT_OK
    environment = invocation.environment
    flags = replace(flags, problems=(*flags.problems, *_misuse(spec, flags)))
    settings = build_settings(flags, environment, offline=not spec.connection)
    configure_logging(settings.logging, environment=environment)
    has_width = sys.stdout.isatty() or "COLUMNS" in environment
    width = None if has_width else UNLIMITED
    form = flags.values.get(OUTPUT.name, Form.TEXT)
    output = Output(sys.stdout, form, width=width, colors=wants_colours(sys.stdout, environment))
    context = CommandContext(
        flags,
        settings,
        environment,
        output,
        settings_with=lambda words: build_settings(read(words), environment),
        is_in_pod=of_controller is not None,
    )
    code = spec.action(context)
    return code if isinstance(code, int) else asyncio.run(code)


def _misuse(spec: CommandSpec, flags: FlagValues) -> Sequence[str]:
    """Return what is wrong with the arguments of a command and its own flags."""
    try:
        spec.check(flags)
    except ConfigurationError as error:
        return error.problems
    return ()


def container_flags(proc: Path, *, without: Collection[str] = ()) -> list[str] | None:
    """Return the flags of the controller in this container, which are the defaults of a command.

    ``kubectl exec`` starts a command in the container of the controller, which is process 1 there. None if process 1 is
    another program. Flags of the process itself, such as those of its log, are left out, and those in ``without``.
    """
    try:
        words = (proc / "1" / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        return None
    names = [PurePath(word).name for word in words]
    # The name can follow an interpreter or an init process.
    start = next((at for at, name in enumerate(names, 1) if name in (*PROGRAM_NAMES, "harvester_ccm")), None)
    if start is None:
        return None
    flags = parse_command_line(words[start:])
    if flags.problems:
        return None
    left_out = {flag.name for flag in FLAGS if flag.group in (Group.LOGGING, Group.GENERAL)}.union(without)
    return [f"--{name}={text}" for name, text in flags.given.items() if name not in left_out]


def _report_failure(error: KubeError) -> None:
    """Report the error of a server, with the cluster that it belongs to and what helps."""
    where = {"guest": "guest cluster: ", "harvester": "Harvester: "}.get(error.cluster, "")
    fix = ""
    if isinstance(error, CredentialError):
        # That of the guest cluster is an error of the command line.
        where = "cannot use --cloud-config: "
        fix = ". Correct the file, or create a new one (generate_addon.sh, or Rancher)"
    elif isinstance(error, Forbidden) and error.cluster == "guest" and error.is_of_account:
        fix = f". {guest_rbac_hint()}"
    elif isinstance(error, Unauthorized) or (isinstance(error, Unreachable) and error.cluster == "guest"):
        fix = f". {remedy_of(error)}"
    is_explained = not error.cluster or isinstance(error, Unauthorized)
    hint = "" if is_explained else f"{PROGRAM} preflight checks both clusters and prints the fix"
    report([f"{where}{error}{fix}", *getattr(error, "__notes__", ())], hint)


def _help(invocation: Invocation, spec: CommandSpec) -> str:
    end = ""
    if spec.connection:
        end = f"In the pod of the controller, its flags are used. {invocation.program} --help lists all of them."
    return help_text(
        f"{invocation.program} {spec.usage}",
        f"{spec.meaning}\n\n{_EXIT_CODES}",
        {"Flags": spec.own, "Connection": [flag for flag in FLAGS if flag.name in spec.connection]},
        end=end,
    )


def sanitize_document(value: Any, key: str = "") -> Any:
    """Return a document without credentials, line ends and control characters: objects contain what users wrote.

    A text is cut, except a command, which this program made: a part of one would do something else.
    """
    match value:
        case str():
            return one_line(value) if key == COMMAND else one_line(redact_text(start_of(value, MAX_LOG_FIELD)))
        case Mapping():
            return {name: sanitize_document(entry, name) for name, entry in value.items()}
        case list() | tuple():
            return [sanitize_document(entry, key) for entry in value]
    return value


def describe(document: Mapping[str, Any], indent: int = 0) -> Iterator[RenderableType]:
    """Yield the lines of a document, without empty values. A list of flat mappings is a table."""
    for key, value in document.items():
        if value not in (None, "", [], {}):
            name = _words(key) if key.isalpha() else key
            yield from _described(Text(f"{name}:", "bold"), value, indent)


def _described(title: Text, value: Any, indent: int) -> Iterator[RenderableType]:
    """Yield the lines of one key: its values, its table, or the lines of its documents."""
    blocks = value if isinstance(value, list) else [value]
    if not isinstance(blocks[0], Mapping):
        yield from _described_values(title, blocks, indent)
        return
    yield from row([title], indent=indent)
    if isinstance(value, list) and _is_flat(blocks[0]):
        yield from table(blocks, indent + 2)
        return
    for block in blocks:
        yield from describe(block, indent + 2)


def _described_values(title: Text, values: Sequence[object], indent: int) -> Iterator[RenderableType]:
    """Yield the values of a key, each in a line of its own, with the title before the first one."""
    widths = [max(KEY_WIDTH - indent, len(title))]
    first, *others = values
    yield from row([title, str(first)], widths, indent)
    for value in others:
        yield from row(["", str(value)], widths, indent)


def _is_flat(block: Mapping[str, Any]) -> bool:
    return not any(isinstance(value, list) for value in block.values())


def _words(key: str) -> str:
    """Return the words of a key in camel case: ``Provider ID`` for ``providerId``."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key).lower().split()
    text = " ".join(word.upper() if word in _ACRONYMS else word for word in words)
    return f"{text[0].upper()}{text[1:]}"


def table(rows: Sequence[Mapping[str, Any]], indent: int = 0, below: Sequence[str] = ()) -> Iterator[RenderableType]:
    """Yield a table of rows with the same keys, without empty columns; ``below`` has a text for each row.

    The command of a row is printed below it, and a colon is in front of it.
    """
    keys = [key for key in rows[0] if key != COMMAND]
    columns = [[_words(key).upper(), *(str(entry[key] or "-") for entry in rows)] for key in keys]
    filled = [cells for cells in columns if set(cells[1:]) != {"-"}]
    widths = [max(map(len, cells)) for cells in filled[:-1]]
    heading, *others = zip(*filled, strict=True)
    yield from row([Text(title, "bold") for title in heading], widths, indent)
    texts = below or [""] * len(rows)
    for cells, text, entry in zip(others, texts, rows, strict=True):
        command = entry.get(COMMAND, "")
        if text:
            yield from row(cells, widths, indent)
            yield from row([_introducing(text, command)], indent=indent + 4)
        else:
            yield from row([*cells[:-1], _introducing(cells[-1], command)], widths, indent)
        yield from command_line(command, indent + 4)


def _introducing(text: str | Text, command: str) -> str | Text:
    """Return the text in front of a command, or without one."""
    return f"{text}:" if command else text


def row(cells: Sequence[str | Text], widths: Sequence[int] = (), indent: int = 0) -> Iterator[RenderableType]:
    """Yield the lines of one row; ``widths`` are those of all cells but the last, which wraps."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for width in widths:
        grid.add_column(width=width, overflow="fold")
    grid.add_column(overflow="fold")
    *others, last = (cell if isinstance(cell, Text) else Text(cell, _STYLES.get(cell, "")) for cell in cells)
    grid.add_row(*others, last)
    yield Padding(grid, (0, 0, 0, indent), expand=False)


def command_line(command: str, indent: int = 0) -> Iterator[RenderableType]:
    """Yield a command on a line of its own, which is not wrapped; nothing for an empty one."""
    if command:
        yield Text(f"{' ' * indent}{command}", no_wrap=True, overflow="ignore")
