"""Log output: structlog with its own renderers, one line per entry on standard error, without credentials.

Messages are constant; everything variable is in fields. Warnings and errors of libraries (standard ``logging``,
``warnings``) pass through the same processors.
"""

import logging
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from harvester_ccm.config import LogFormat, LoggingSettings
from harvester_ccm.names import PROGRAM
from harvester_ccm.redaction import MAX_TRACEBACK, end_of, one_line, redact, redact_text

DEBUG_VERBOSITY: Final = 4
"""klog level from which on debug lines are written."""


def wants_colours(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether the stream is a terminal that may get colours (see no-color.org)."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def configure_logging(
    settings: LoggingSettings,
    stream: TextIO | None = None,
    *,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Send all log output to ``stream``, standard error by default, in colours unless ``environment`` forbids them."""
    output = stream or sys.stderr
    level = logging.INFO
    if settings.verbosity >= DEBUG_VERBOSITY:
        level = logging.DEBUG
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            _remove_secrets,
            _sorted_for_people,
            *_renderers(settings.format, colors=wants_colours(output, environment)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(_Lasting(output)),  # type: ignore[arg-type]
    )
    logging.basicConfig(handlers=[_LibraryHandler(logging.WARNING)], level=logging.WARNING, force=True)
    logging.captureWarnings(True)


def report(problems: Iterable[str], hint: str = "") -> None:
    """Print errors of a command line to standard error, each in one line without credentials, and a hint."""
    stream = _Lasting(sys.stderr)
    for problem in problems:
        stream.write(f"{PROGRAM}: error: {one_line(redact_text(' '.join(problem.splitlines())))}\n")
    if hint:
        stream.write(f"{PROGRAM}: hint: {hint}\n")


def _renderers(log_format: LogFormat, *, colors: bool) -> list[Processor]:
    if log_format is LogFormat.JSON:
        return [structlog.processors.JSONRenderer()]
    console = structlog.dev.ConsoleRenderer(
        colors=colors,
        event_key="message",
        timestamp_key="time",
        pad_event_to=0,
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )
    return [_remove_line_ends, console]


def _remove_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    # A traceback is longer than other fields, and its end names the error.
    traceback = event.pop("exception", None)
    fields: EventDict = {key: redact(value, key) for key, value in event.items()}
    if traceback is not None:
        fields["exception"] = redact_text(end_of(str(traceback), MAX_TRACEBACK))
    return fields


def _sorted_for_people(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put first what people look for: they also read lines of JSON as they are."""
    first = {key: event[key] for key in ("time", "level", "message") if key in event}
    return {**first, **event}


def _remove_line_ends(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Write out control characters in text, and indent tracebacks: no line of another program looks like an entry."""
    for key, value in event.items():
        if key == "exception":
            event[key] = "\n".join(f"  {one_line(line)}" for line in str(value).split("\n"))
        elif isinstance(value, str):
            event[key] = one_line(value)
    return event


class _Lasting:
    """A stream without errors: on a full disk, lines are lost, and the controllers go on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write a line, if that is possible."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush the stream, if that is possible."""
        with suppress(OSError):
            self._stream.flush()


class _LibraryHandler(logging.Handler):
    """Passes records of standard logging to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().log(
                record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
            )
        except Exception:  # the contract of logging.Handler: a record that cannot be written never raises
            self.handleError(record)
