"""The frame around every command: its own flags, flags to settings, help, quiet logs, faults to exit codes."""

from __future__ import annotations

import asyncio
import logging
import sys
import textwrap
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog
from msgspec import Struct

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS, EXIT_USAGE, Invocation
from harvester_ccm.commands.local_process import running_flags, with_defaults
from harvester_ccm.commands.render import Form, Output
from harvester_ccm.config import LogFormat, LoggingSettings, Settings
from harvester_ccm.errors import CCMError, ConfigurationError, Forbidden, Unauthorized
from harvester_ccm.flags import FLAGS, Flag, FlagValues, Group, build_settings, parse_command_line, types
from harvester_ccm.flags.parser import describe_flags
from harvester_ccm.logs import DEBUG_VERBOSITY, configure_logging, wants_colours
from harvester_ccm.names import PROGRAM
from harvester_ccm.redaction import one_line, redact_text

EXIT_INTERRUPTED: Final = 130
"""What shells report for a program that was ended with Ctrl-C."""


def flag(name: str, meaning: str, *, default: str = "", shorthand: str = "") -> Flag:
    """Return a flag of a command's own."""
    return Flag(name, types.TEXT, default, Group.GENERAL, meaning, shorthand)


def switch(name: str, meaning: str, *, shorthand: str = "") -> Flag:
    """Return a flag of a command's own that is off unless given."""
    return Flag(name, types.SWITCH, "false", Group.GENERAL, meaning, shorthand)


OUTPUT: Final = flag(
    "output", "Form of the answer: text for people, json or yaml for scripts. Without it: text.", shorthand="o"
)

IN_THE_POD: Final = (
    "no flags are needed in the program's pod: kubectl -n kube-system exec deploy/harvester-cloud-provider -- "
    f"{PROGRAM} ..."
)
WHAT_TO_DO: Final = f"{PROGRAM} preflight checks both clusters and says what to do"
MISSING_RIGHTS: Final = f"{PROGRAM} preflight names all rights that are missing"
_OF_CLUSTER: Final = {"guest": "guest cluster: ", "harvester": "Harvester: "}
"""What stands in front of an error, so that nobody looks at the wrong one of two API servers."""

log = structlog.get_logger(__name__)


class Call(Struct, frozen=True):
    """A command line that was understood."""

    arguments: tuple[str, ...]
    flags: FlagValues
    settings: Settings
    environment: Mapping[str, str]
    output: Output


class Manual(Struct, frozen=True):
    """What a command takes, does, and says of itself."""

    usages: tuple[str, ...]
    """Command lines without the program's name."""
    examples: tuple[tuple[str, str], ...]
    """What somebody wants, and the command line for it without the program's name."""
    meaning: str
    """Paragraphs, with an empty line between two."""
    own: tuple[Flag, ...]
    """The flags that only this command has, --output included."""
    action: Callable[[Call], int | Coroutine[Any, Any, int]]
    """Returns the exit code."""
    forms: tuple[str, ...] = tuple(Form)
    """What --output may be."""
    words: tuple[str, ...] = ()
    """What the first argument may be, for shells that complete it."""
    offline: bool = False
    """Whether the command connects to no cluster and needs no cloud-config."""
    rights: str = ""
    """What a command that asks Harvester alone has to do there. Neither the program's pod nor preflight are for it."""


def perform(invocation: Invocation, manual: Manual) -> int:
    """Run a command and return its exit code; faults are told in one line each on standard error."""
    try:
        flags = parse_command_line(invocation.words, (*FLAGS, *manual.own), takes_arguments=True)
        if flags["help"]:
            sys.stdout.write(_help(invocation, manual))
            return EXIT_OK
        flags = with_defaults(flags, running_flags(invocation.proc))
        settings = _settings(flags, invocation.environment, manual)
        form = _form(flags, manual)
        _quiet(settings.logging, invocation.environment)
        output = Output(sys.stdout, form=form, paint=_paint(form, invocation.environment))
        code = manual.action(Call(flags.arguments, flags, settings, invocation.environment, output))
        return code if isinstance(code, int) else asyncio.run(code)
    except ConfigurationError as error:
        _report(error.problems)
        _hint(*getattr(error, "__notes__", ()))
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        _report_failure(_alone(error), manual)
        return EXIT_PROBLEMS


def _settings(flags: FlagValues, environment: Mapping[str, str], manual: Manual) -> Settings:
    try:
        return build_settings(flags, environment, offline=manual.offline)
    except ConfigurationError as error:
        if flags["cloud-config"] is None and not manual.rights:
            error.add_note(IN_THE_POD)
        raise


def _alone(error: Exception) -> Exception:
    """Return the error itself where it comes out of a group of tasks."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _report_failure(error: Exception, manual: Manual) -> None:
    notes = getattr(error, "__notes__", ())
    match error:
        case Unauthorized():
            _report([f"{error}. {error.remedy}", *notes])
        case CCMError():
            _report([f"{_OF_CLUSTER.get(error.cluster, '')}{error}", *notes])
            _hint(*_hints(error, manual))
        case BrokenPipeError():
            raise error
        case _:
            # Through the log and not as a bare traceback, because the log removes credentials. So it has to be ours:
            # what the library does by itself shows the values of variables.
            if not structlog.is_configured():
                configure_logging(LoggingSettings(LogFormat.TEXT, verbosity=0))
            log.error("stopped by an unexpected error", exc_info=error)


def _hints(error: CCMError, manual: Manual) -> Iterator[str]:
    """Yield what helps against an error of a server."""
    match error:
        case Forbidden() if manual.rights:
            yield f"the credential has to {manual.rights}"
        case Forbidden():
            yield MISSING_RIGHTS
        case _ if error.cluster and not manual.rights:
            yield WHAT_TO_DO


def refuse(problem: str) -> ConfigurationError:
    """Return the error to raise for a command line that cannot be used."""
    return ConfigurationError([problem])


def expect_arguments(call: Call, names: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments. Raises ConfigurationError when they are not one per name."""
    given = call.arguments
    if len(given) != len(names):
        wanted, listed = " ".join(names) or "no arguments", " ".join(given) or "none"
        raise refuse(f"expected {wanted}, got {listed}; --help shows the command lines")
    return given


def _form(flags: FlagValues, manual: Manual) -> Form:
    """Return the form of the answer; forms that only one command has are text."""
    text = flags.values.get(OUTPUT.name, "")
    if text not in ("", *manual.forms):
        raise refuse(f"--output is {text!r}; expected one of: {', '.join(manual.forms)}")
    return Form(text) if text in tuple(Form) else Form.TEXT


def _paint(form: Form, environment: Mapping[str, str]) -> Callable[[str], str] | None:
    """Return what puts colours into lines, on a terminal that may have some."""
    if form is not Form.TEXT or not wants_colours(sys.stdout, environment):
        return None
    from harvester_ccm.commands.paint import painter  # noqa: PLC0415 - a library that pipes have no use for

    return painter(sys.stdout)


def _quiet(settings: LoggingSettings, environment: Mapping[str, str]) -> None:
    """Send warnings and errors to standard error, and all the rest only where debug lines were asked for."""
    configure_logging(settings, environment=environment)
    if settings.verbosity < DEBUG_VERBOSITY:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def _hint(*hints: str) -> None:
    for hint in hints:
        sys.stderr.write(f"{PROGRAM}: hint: {hint}\n")


def _report(problems: Sequence[str]) -> None:
    for problem in problems:
        sys.stderr.write(f"{PROGRAM}: error: {one_line(redact_text(' '.join(problem.splitlines())))}\n")


def _help(invocation: Invocation, manual: Manual) -> str:
    paragraphs = (" ".join(paragraph.split()) for paragraph in manual.meaning.strip().split("\n\n"))
    examples = (f"  # {wish}\n  {invocation.program} {words}" for wish, words in manual.examples)
    parser = ArgumentParser(
        usage="\n       ".join(f"{invocation.program} {line}" for line in manual.usages),
        description="\n\n".join(textwrap.fill(paragraph, 80) for paragraph in paragraphs),
        epilog="\n".join(
            ["examples:", *examples, "", f"{invocation.program} --help lists the flags of the controller."]
        ),
        formatter_class=RawDescriptionHelpFormatter,
        add_help=False,
    )
    if manual.own:
        describe_flags(parser.add_argument_group("flags"), manual.own)
    return parser.format_help()
