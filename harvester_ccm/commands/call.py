"""The frame of every command: its flags and help, settings, output, and the exit code for an error."""

from __future__ import annotations

import asyncio
import logging
import sys
import textwrap
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import structlog
from msgspec import Struct

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS, EXIT_USAGE, Invocation
from harvester_ccm.commands.local_process import running_flags, with_defaults
from harvester_ccm.commands.render import UNLIMITED, Form, Output
from harvester_ccm.config import LogFormat, LoggingSettings, Settings
from harvester_ccm.errors import CCMError, ConfigurationError, Forbidden, Unauthorized
from harvester_ccm.flags import FLAGS, Flag, FlagValues, Group, build_settings, parse_command_line, types
from harvester_ccm.flags.parser import describe_flags
from harvester_ccm.logs import DEBUG_VERBOSITY, configure_logging, wants_colours
from harvester_ccm.names import PROGRAM
from harvester_ccm.redaction import one_line, redact_text

EXIT_INTERRUPTED: Final = 130
"""Exit code that shells report after Ctrl-C."""

_EXIT_CODES: Final = """\
Exit codes: 0 all is well, or there is nothing to do; 1 there is a problem, or a cluster cannot be read; 2 the command
line, or a file that it names, cannot be used."""

log = structlog.get_logger(__name__)


def flag(name: str, meaning: str, *, default: str = "", shorthand: str = "") -> Flag:
    """Return a flag that only a command has."""
    return Flag(name, types.TEXT, default, Group.GENERAL, meaning, shorthand)


def switch(name: str, meaning: str, *, shorthand: str = "") -> Flag:
    """Return a flag that only a command has and that is off unless given."""
    return Flag(name, types.SWITCH, "false", Group.GENERAL, meaning, shorthand)


OUTPUT: Final = flag("output", "Form of the output: text, json or yaml.", default=Form.TEXT, shorthand="o")


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
    examples: tuple[tuple[str, str], ...]
    """A purpose, and the command line for it without the name of the executable."""
    meaning: str
    """Docstring of the module."""
    own: tuple[Flag, ...]
    """The flags that only this command has."""
    action: Callable[[Call], int | Coroutine[Any, Any, int]]
    """Returns the exit code."""
    words: tuple[str, ...] = ()
    """Values of the first argument, for shell completion."""
    offline: bool = False
    """Whether the command connects to no cluster and needs no cloud-config."""
    permissions: str = ""
    """Permissions that the credential for Harvester needs, if the command does not use the controller's."""


def perform(invocation: Invocation, manual: Manual) -> int:
    """Run a command and return its exit code; each error is one line on standard error."""
    try:
        flags = parse_command_line(invocation.words, (*FLAGS, *manual.own), takes_arguments=True)
        if flags["help"]:
            sys.stdout.write(_help(invocation, manual))
            return EXIT_OK
        flags = with_defaults(flags, running_flags(invocation.proc))
        settings = _settings(flags, invocation.environment, manual)
        output = _output(flags, invocation.environment)
        _configure_log(settings.logging, invocation.environment)
        code = manual.action(Call(flags.arguments, flags, settings, invocation.environment, output))
        return code if isinstance(code, int) else asyncio.run(code)
    except ConfigurationError as error:
        _report(error.problems, getattr(error, "__notes__", ()))
        return EXIT_USAGE
    except CCMError as error:
        _report_failure(error, manual)
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


def _settings(flags: FlagValues, environment: Mapping[str, str], manual: Manual) -> Settings:
    try:
        return build_settings(flags, environment, offline=manual.offline)
    except ConfigurationError as error:
        if flags["cloud-config"] is None and not manual.permissions:
            pod = f"kubectl -n kube-system exec deploy/harvester-cloud-provider -- {PROGRAM} ..."
            error.add_note(f"no flags are needed in the pod of the controller: {pod}")
        raise


def _output(flags: FlagValues, environment: Mapping[str, str]) -> Output:
    form = flags.values.get(OUTPUT.name, Form.TEXT)
    if form not in tuple(Form):
        raise refuse(f"--output is {form!r}; expected one of: {', '.join(Form)}")
    has_width = sys.stdout.isatty() or "COLUMNS" in environment
    colors = wants_colours(sys.stdout, environment)
    return Output(sys.stdout, Form(form), width=None if has_width else UNLIMITED, colors=colors)


def _configure_log(settings: LoggingSettings, environment: Mapping[str, str]) -> None:
    """Log warnings and errors, and the rest only with debug verbosity."""
    configure_logging(settings, environment=environment)
    if settings.verbosity < DEBUG_VERBOSITY:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def _report_failure(error: CCMError, manual: Manual) -> None:
    """Report the error of a server, with the cluster that it belongs to and what helps."""
    notes, hints = getattr(error, "__notes__", ()), list[str]()
    where = {"guest": "guest cluster: ", "harvester": "Harvester: "}.get(error.cluster, "")
    match error:
        case Unauthorized():
            _report([f"{error}. {error.remedy}", *notes])
            return
        case Forbidden() if manual.permissions:
            hints.append(f"the credential must be allowed to {manual.permissions}")
        case Forbidden():
            hints.append(f"{PROGRAM} preflight names all missing permissions")
        case _ if error.cluster and not manual.permissions:
            hints.append(f"{PROGRAM} preflight checks both clusters and names the remedy")
    _report([f"{where}{error}", *notes], hints)


def refuse(problem: str) -> ConfigurationError:
    """Return the error to raise for a command line that cannot be used."""
    return ConfigurationError([problem])


def expect_arguments(call: Call, names: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments. Raises ConfigurationError if they are not one per name."""
    given = call.arguments
    if len(given) != len(names):
        wanted, listed = " ".join(names) or "no arguments", " ".join(given) or "none"
        raise refuse(f"expected {wanted}, got {listed}; --help shows the command lines")
    return given


def _report(problems: Sequence[str], hints: Sequence[str] = ()) -> None:
    for problem in problems:
        sys.stderr.write(f"{PROGRAM}: error: {one_line(redact_text(' '.join(problem.splitlines())))}\n")
    for hint in hints:
        sys.stderr.write(f"{PROGRAM}: hint: {hint}\n")


def _help(invocation: Invocation, manual: Manual) -> str:
    examples = (f"  # {purpose}\n  {invocation.program} {words}" for purpose, words in manual.examples)
    parser = ArgumentParser(
        usage="\n       ".join(f"{invocation.program} {line}" for line in manual.usages),
        description="\n\n".join(textwrap.fill(one, 80) for one in (*manual.meaning.split("\n\n"), _EXIT_CODES)),
        epilog="\n".join(
            ["examples:", *examples, "", f"{invocation.program} --help lists the flags of the controller."]
        ),
        formatter_class=RawDescriptionHelpFormatter,
        add_help=False,
    )
    if manual.own:
        describe_flags(parser.add_argument_group("flags"), manual.own)
    return parser.format_help()
