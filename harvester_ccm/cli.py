"""The command line: from arguments and environment to a run, and from its end to an exit code.

The only module that reads ``sys.argv`` and the environment. A credential plugin inherits the environment.

The exit codes of the Go provider: 0 after SIGTERM, 255 when the file of --cloud-config cannot be used (the run
raises ``CredentialError``, only for Harvester), 1 for everything else. Commands have their own exit codes
(``harvester_ccm.commands``), also one that does not exist.
"""

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final

import structlog

from harvester_ccm import __version__
from harvester_ccm.commands import COMMANDS, EXIT_OK, EXIT_USAGE, HELP, Invocation
from harvester_ccm.config import Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags import FLAGS, Group, build_settings, help_text, parse_command_line
from harvester_ccm.kube.errors import CredentialError, KubeError
from harvester_ccm.logs import configure_logging, report
from harvester_ccm.names import PROGRAM, PROGRAM_NAMES

EXIT_FAILURE: Final = 1
EXIT_CLOUD_CONFIG: Final = 255
EXIT_CLOSED_PIPE: Final = 141
"""Exit code of a program that SIGPIPE ended, as shells report it."""

TITLES: Final = {**{name: name for name in PROGRAM_NAMES}, "kubectl-harvester_ccm": f"kubectl {PROGRAM}"}
"""Names of the executable, and the name in the help for each."""
OTHER_NAMES: Final = {"describe": "explain"}
"""Names that kubectl has for a command."""

log = structlog.get_logger(__name__)


def main(
    argv: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    proc: Path = Path("/proc"),
) -> int:
    """Run the controllers or a command and return the exit code. ``argv`` includes the name of the executable."""
    if argv is None:
        argv = sys.argv
    if environment is None:
        environment = os.environ
    program, *words = argv
    match words:
        case ["help", name, *_] if name != "help" and not name.startswith("-"):
            words = [name, "--help"]
        case ["help", *flags]:
            words = ["--help", *flags]
    words[:1] = [OTHER_NAMES.get(word, word) for word in words[:1]]
    command = next((command for command in COMMANDS if words[:1] == [command.name]), None)
    run = _run
    if command is not None:
        run = command.run
        words = words[1:]
    invocation = Invocation(
        program=TITLES.get(PurePath(program).name, PROGRAM),
        words=tuple(words),
        environment=environment,
        proc=proc,
    )
    try:
        code = run(invocation)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes standard output again when it exits, and would report the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CLOSED_PIPE
    return code


def _run(invocation: Invocation) -> int:
    """Run the controllers until SIGTERM, or print help or version."""
    problem = _problem_of_command(invocation.words)
    if problem:
        report([problem], _hint())
        return EXIT_USAGE
    flags = parse_command_line(invocation.words)
    if flags["help"] or (not invocation.words and _is_typed()):
        sys.stdout.write(_help(invocation))
        return EXIT_OK
    if flags["version"]:
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        return EXIT_OK
    try:
        settings = build_settings(flags, invocation.environment)
    except ConfigurationError as error:
        report(error.problems, _hint())
        if flags["show-full-help-on-error"]:
            sys.stderr.write(f"\n{_help(invocation)}")
        return EXIT_FAILURE
    configure_logging(settings.logging, environment=invocation.environment)
    log.info("flags read", given=dict(sorted(flags.given.items())))
    for problem in settings.warnings:
        log.warning("questionable setting", detail=problem)
    for problem in flags.ignored:
        log.warning("flag without effect", detail=problem)
    return _run_app(settings, invocation.environment)


def _is_container() -> bool:
    """Return whether a container started the program, as its first process."""
    return os.getpid() == 1


def _is_typed() -> bool:
    """Return whether a person at a terminal started the program."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not _is_container()


def _hint() -> str:
    """Return where the command line is explained; that of a container comes from the chart."""
    if _is_container():
        return "flags in .Values.extraArgs of the Helm chart are written --name=value"
    return "--help lists commands and flags"


def _problem_of_command(words: Sequence[str]) -> str:
    """Return what is wrong with a first argument that is no flag; empty without one."""
    if not words or not words[0] or words[0].startswith("-"):
        return ""
    names = [*(command.name for command in COMMANDS), HELP[0]]
    close = difflib.get_close_matches(words[0], names, n=1)
    if close:
        return f"unknown command {words[0]!r}; did you mean {close[0]}?"
    return f"unknown command {words[0]!r}; expected one of: {', '.join(names)}"


def _run_app(settings: Settings, environment: Mapping[str, str]) -> int:
    from harvester_ccm.app import run  # noqa: PLC0415 - help and errors in flags do not need the HTTP client

    try:
        return run(settings, environment)
    except CredentialError as error:
        report([f"cannot use --cloud-config: {error}"])
        return EXIT_CLOUD_CONFIG
    except ConfigurationError as error:
        report(error.problems)
    except KubeError as error:
        report([str(error)])
    except Exception:
        # The log redacts credentials, a traceback on standard error does not.
        log.exception("unexpected error")
    return EXIT_FAILURE


def _help(invocation: Invocation) -> str:
    ignored = sum(flag.group is Group.ACCEPTED for flag in FLAGS)
    shown = [group for group in Group if group is not Group.ACCEPTED]
    return help_text(
        f"{invocation.program} [command] [flags]",
        "Cloud controller manager for Kubernetes clusters whose nodes are Harvester VMs.",
        {group: [flag for flag in FLAGS if flag.group is group] for group in shown},
        commands=[*((command.name, command.summary) for command in COMMANDS), HELP],
        end=f"{ignored} more flags of the Go provider are accepted without effect. The log names those that are set.",
    )
