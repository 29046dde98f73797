"""The command line: from arguments and environment to a run, and from its end to an exit code.

The only module that reads ``sys.argv`` and the environment, and hands on what of them is needed; a credential plugin
inherits the environment as it is. Faults of the operator's are one line each on standard error; the log starts when the
settings are known to be good.

Exit codes are those of the Go provider: 0 after a run that was asked to stop, 255 when the file of ``--cloud-config``
cannot be used (a ``CredentialError`` out of the run), 1 for everything else. A run therefore raises ``CredentialError``
for the Harvester side only and reports a guest kubeconfig that cannot be used as ``ConfigurationError``. Commands have
exit codes of their own (``harvester_ccm.commands``).
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final

import structlog

from harvester_ccm import __version__
from harvester_ccm.commands import COMMANDS, HELP, VERSION, Command, Invocation
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, ConfigurationError, CredentialError
from harvester_ccm.flags import (
    FlagValues,
    UsageError,
    build_settings,
    help_text,
    help_width,
    parse_command_line,
    wants_full_help,
)
from harvester_ccm.flags.values import go_quote
from harvester_ccm.logs import configure_logging
from harvester_ccm.names import PROGRAM, PROGRAM_NAMES
from harvester_ccm.redaction import one_line

EXIT_OK: Final = 0
EXIT_FAILURE: Final = 1
EXIT_CLOUD_CONFIG: Final = 255

EXIT_CLOSED_PIPE: Final = 141
"""What shells report for a program whose output nobody reads any more."""

KUBECTL_PLUGIN: Final = "kubectl-harvester_ccm"
"""File name by which kubectl finds a plugin that is called ``kubectl harvester-ccm``."""

HELM_HINT: Final = "check .Values.extraArgs of the Helm chart: flags are written --name=value"

log = structlog.get_logger(__name__)


def main(
    argv: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    proc: Path = Path("/proc"),
) -> int:
    """Run the program and return its exit code. ``argv`` includes the program's name."""
    program, *given = sys.argv if argv is None else argv
    words = _as_flags(given)
    command = next((command for command in COMMANDS if words[:1] == [command.name]), None)
    invocation = Invocation(
        program=_title(PurePath(program).name),
        words=tuple(words[1:] if command else words),
        environment=os.environ if environment is None else environment,
        proc=proc,
    )
    try:
        code = _dispatch(command, invocation)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python must not complain about it at its end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CLOSED_PIPE
    return code


def _as_flags(words: list[str]) -> list[str]:
    """Return the words with ``help`` and ``version`` as the flags that they mean."""
    match words:
        case ["help", command, *_] if not command.startswith("-"):
            return [command, "--help"]
        case ["help" | "version" as word, *flags]:
            return [f"--{word}", *flags]
    return words


def _dispatch(command: Command | None, invocation: Invocation) -> int:
    try:
        return command.run(invocation) if command else _run(invocation)
    except UsageError as error:
        hint = HELM_HINT if error.unknown_flag else _late_command(invocation.words)
        return _refuse(_with_all_problems(error, invocation), invocation, hint=hint)
    except ConfigurationError as error:
        hint = None if invocation.words else f"{invocation.program} --help lists the commands and flags"
        return _refuse(error, invocation, hint=hint)
    except CredentialError as error:
        for problem in (f"cannot use --cloud-config: {error}", *getattr(error, "__notes__", ())):
            _report(problem)
        return EXIT_CLOUD_CONFIG
    except CCMError as error:
        _report(str(error))
        return EXIT_FAILURE


def _run(invocation: Invocation) -> int:
    """Do what a call without a command does: print what was asked for, or serve until told to stop."""
    first = invocation.words[0] if invocation.words else ""
    if first and not first.startswith("-"):
        raise ConfigurationError([_unknown_command(first)])
    flags = parse_command_line(invocation.words)
    if flags.read("help", bool):
        sys.stdout.write(_help(invocation))
        return EXIT_OK
    if flags.read("version", bool):
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        return EXIT_OK
    settings = build_settings(flags, invocation.environment)
    configure_logging(settings.logging, environment=invocation.environment)
    _log_configuration(settings, flags)
    try:
        return _run_app(settings, invocation.environment)
    except CCMError:
        raise
    except Exception:
        # Through the log and not as a bare traceback, because the log removes credentials.
        log.exception("stopped by an unexpected error")
        return EXIT_FAILURE


def _title(name: str) -> str:
    """Return how the program is called by whoever started the file of this name."""
    if name == KUBECTL_PLUGIN:
        return f"kubectl {PROGRAM}"
    return name if name in PROGRAM_NAMES else PROGRAM


def _unknown_command(word: str) -> str:
    names = (*(command.name for command in COMMANDS), HELP[0], VERSION[0])
    close = difflib.get_close_matches(word, names, n=1)
    guess = f"; did you mean {close[0]}?" if close else "."
    return f"unknown command {go_quote(word)}{guess} Commands: {', '.join(names)}"


def _late_command(words: Sequence[str]) -> str | None:
    """Return the hint for a command behind flags."""
    late = next((command.name for command in COMMANDS if command.name in words), None)
    return f"the command comes first: {PROGRAM} {late} --name=value" if late else None


def _run_app(settings: Settings, environment: Mapping[str, str]) -> int:
    from harvester_ccm.app import run  # noqa: PLC0415 - help, version and refusals answer without the HTTP client

    return run(settings, environment)


def _log_configuration(settings: Settings, flags: FlagValues) -> None:
    given = {name: flags.values[name] for name in sorted(flags.explicit)}
    log.info("flags read", given=given)
    for sentence in settings.warnings:
        log.warning("setting works badly", detail=sentence)
    for sentence in settings.ignored:
        log.warning("flag without effect", detail=sentence)


def _with_all_problems(error: UsageError, invocation: Invocation) -> ConfigurationError:
    """Return the error with what is wrong with the flags that could be read."""
    try:
        build_settings(error.flags, invocation.environment)
    except ConfigurationError as more:
        return ConfigurationError([*error.problems, *more.problems])
    return error


def _refuse(error: ConfigurationError, invocation: Invocation, *, hint: str | None = None) -> int:
    for problem in error.problems:
        _report(problem)
    if hint:
        sys.stderr.write(f"{PROGRAM}: hint: {one_line(hint)}\n")
    if wants_full_help(invocation.words):
        sys.stderr.write(f"\n{_help(invocation)}")
    return EXIT_FAILURE


def _report(problem: str) -> None:
    sys.stderr.write(f"{PROGRAM}: error: {one_line(' '.join(problem.splitlines()))}\n")


def _help(invocation: Invocation) -> str:
    listed = [*((command.name, command.summary) for command in COMMANDS), HELP, VERSION]
    return help_text(program=invocation.program, width=help_width(), commands=listed)
