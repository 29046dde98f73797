"""The frame of every command: its flags and help, settings, output, and the exit code for an error."""

import asyncio
import sys
import textwrap
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

import structlog
from msgspec import Struct

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS, EXIT_USAGE, Invocation
from harvester_ccm.commands.render import UNLIMITED, Form, Output
from harvester_ccm.config import LogFormat, LoggingSettings, Settings
from harvester_ccm.errors import CCMError, ConfigurationError, Unauthorized
from harvester_ccm.flags import FLAGS, Flag, FlagValues, Group, build_settings, parse_command_line, types
from harvester_ccm.flags.parser import describe_flags
from harvester_ccm.logs import configure_logging, wants_colours
from harvester_ccm.names import PROGRAM, PROGRAM_NAMES
from harvester_ccm.redaction import one_line, redact_text

EXIT_INTERRUPTED: Final = 130
"""Exit code that shells report after Ctrl-C."""

_EXIT_CODES: Final = """\
Exit codes: 0 all is well, or there is nothing to do; 1 there is a problem, or a cluster cannot be read; 2 the command
line, or a file that it names, cannot be used."""

HINT: Final = (
    "--help shows the command line. In the pod of the controller, no flags are needed: "
    f"kubectl -n kube-system exec deploy/harvester-cloud-provider -- {PROGRAM} ..."
)

log = structlog.get_logger(__name__)


def flag(name: str, meaning: str, *, shorthand: str = "") -> Flag:
    """Return a flag that only a command has."""
    return Flag(name, types.TEXT, "", Group.GENERAL, meaning, shorthand)


def switch(name: str, meaning: str, *, shorthand: str = "") -> Flag:
    """Return a flag that only a command has and that is off unless given."""
    return Flag(name, types.SWITCH, "false", Group.GENERAL, meaning, shorthand)


_FORMS: Final = types.one_of({form: form for form in Form})
OUTPUT: Final = Flag("output", _FORMS, Form.TEXT, Group.GENERAL, "Form of the output: text, json or yaml.", "o")


class Call(Struct, frozen=True):
    """A command line that was understood."""

    arguments: tuple[str, ...]
    flags: FlagValues
    settings: Settings
    environment: Mapping[str, str]
    output: Output


class Manual(Struct, frozen=True):
    """A command with its flags and its function."""

    usages: tuple[str, ...]
    """Command lines without the name of the executable."""
    meaning: str
    """Docstring of the module."""
    own: tuple[Flag, ...]
    """The flags that only this command has."""
    action: Callable[[Call], int | Coroutine[Any, Any, int]]
    """Returns the exit code."""
    words: tuple[str, ...] = ()
    """Values of the first argument; empty if the command takes no arguments."""
    offline: bool = False
    """Whether the command connects to no cluster and needs no cloud-config."""


def perform(invocation: Invocation, manual: Manual) -> int:
    """Run a command and return its exit code; each error is one line on standard error."""
    environment = invocation.environment
    try:
        words = (*container_flags(invocation.proc), *invocation.words)
        flags = parse_command_line(words, (*FLAGS, *manual.own), takes_arguments=bool(manual.words))
        if flags["help"]:
            sys.stdout.write(_help(invocation, manual))
            return EXIT_OK
        settings = build_settings(flags, environment, offline=manual.offline)
        configure_logging(settings.logging, environment=environment)
        width = None if sys.stdout.isatty() or "COLUMNS" in environment else UNLIMITED
        form = flags.values.get(OUTPUT.name, Form.TEXT)
        output = Output(sys.stdout, form, width=width, colors=wants_colours(sys.stdout, environment))
        code = manual.action(Call(flags.arguments, flags, settings, environment, output))
        return code if isinstance(code, int) else asyncio.run(code)
    except ConfigurationError as error:
        _report(error.problems, HINT)
        return EXIT_USAGE
    except CCMError as error:
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


def container_flags(proc: Path) -> list[str]:
    """Return the flags of the controller in this container, which are the defaults of a command.

    ``kubectl exec`` starts a command in the container of the controller, which is process 1 there. Empty if process 1
    is another program. Flags of the process itself, such as those of its log, are left out.
    """
    try:
        words = (proc / "1" / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        return []
    names = [PurePath(word).name for word in words]
    # The name can follow an interpreter or an init process.
    start = next((at for at, name in enumerate(names, 1) if name in (*PROGRAM_NAMES, "harvester_ccm")), len(words))
    flags = parse_command_line(words[start:])
    own = {flag.name for flag in FLAGS if flag.group in (Group.LOGGING, Group.GENERAL)}
    return [] if flags.problems else [f"--{name}={text}" for name, text in flags.given.items() if name not in own]


def _report_failure(error: CCMError) -> None:
    """Report the error of a server, with the cluster that it belongs to and what helps."""
    where = {"guest": "guest cluster: ", "harvester": "Harvester: "}.get(error.cluster, "")
    remedy = f". {error.remedy}" if isinstance(error, Unauthorized) else ""
    hint = f"{PROGRAM} preflight checks both clusters and names the remedy" if where and not remedy else ""
    _report([f"{where}{error}{remedy}", *getattr(error, "__notes__", ())], hint)


def _report(problems: Iterable[str], hint: str) -> None:
    for problem in problems:
        sys.stderr.write(f"{PROGRAM}: error: {one_line(redact_text(' '.join(problem.splitlines())))}\n")
    if hint:
        sys.stderr.write(f"{PROGRAM}: hint: {hint}\n")


def _help(invocation: Invocation, manual: Manual) -> str:
    parser = ArgumentParser(
        usage="\n       ".join(f"{invocation.program} {line}" for line in manual.usages),
        description="\n\n".join(textwrap.fill(one, 80) for one in (*manual.meaning.split("\n\n"), _EXIT_CODES)),
        epilog=f"{invocation.program} --help lists the flags of the controller.",
        formatter_class=RawDescriptionHelpFormatter,
        add_help=False,
    )
    if manual.own:
        describe_flags(parser.add_argument_group("flags"), manual.own)
    return parser.format_help()
