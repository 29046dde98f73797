"""Log output: structlog, one line per entry on standard error, nothing secret in it.

Text lines read ``2026-11-21T08:46:12.123Z INFO  message key=value``; JSON lines carry ``time``, ``level`` and
``message``. The level is decided in the bound logger, so that a debug call below the level costs next to nothing.
Warnings and errors of libraries (standard ``logging``, ``warnings``) come out through the same processors.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from harvester_ccm.config import LogFormat, LoggingSettings
from harvester_ccm.redaction import one_line, redact

DEBUG_VERBOSITY: Final = 4
"""klog level from which on debug lines are written."""

_TITLES: Final[Mapping[str, str]] = {"warning": "WARN", "critical": "ERROR"}
_COLOURS: Final[Mapping[str, str]] = {"DEBUG": "\x1b[2m", "WARN": "\x1b[33m", "ERROR": "\x1b[31m"}
_RESET: Final = "\x1b[0m"
_JSON: Final = structlog.processors.JSONRenderer(default=str, ensure_ascii=False)


def wants_colours(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether the stream is a terminal that may get colours (see no-color.org)."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def configure_logging(
    settings: LoggingSettings,
    stream: TextIO | None = None,
    *,
    environment: Mapping[str, str] = MappingProxyType({}),
    cache: bool = True,
) -> None:
    """Send all log output to ``stream``, standard error by default, in colours unless ``environment`` forbids them.

    ``cache`` lets every logger keep what is configured at its first use; only tests, which configure more than once,
    turn it off.
    """
    output = stream if stream is not None else sys.stderr
    level = logging.DEBUG if settings.verbosity >= DEBUG_VERBOSITY else logging.INFO
    structlog.configure(
        processors=list(_processors(settings.format, colours=wants_colours(output, environment))),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=cache,
    )
    logging.basicConfig(handlers=[_LibraryHandler(logging.WARNING)], level=logging.WARNING, force=True)
    logging.captureWarnings(True)


def _processors(log_format: LogFormat, *, colours: bool) -> tuple[Processor, ...]:
    is_json = log_format is LogFormat.JSON
    return (
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        _put_in_order,
        remove_secrets,
        *((_JSON, _inert) if is_json else (_indent_traceback, _text_renderer(colours))),
    )


def _inert(_logger: WrappedLogger, _method: str, line: str) -> str:
    return one_line(line)


def _indent_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    # No line of what somebody raised may look like one of ours.
    if "exception" in event:
        event["exception"] = "\n".join(f"  {one_line(line)}" for line in str(event["exception"]).split("\n"))
    return event


def remove_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace what looks like a credential in any value, exceptions included."""
    return {key: redact(value, key) for key, value in event.items()}


def _put_in_order(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    # structlog's own stamp has microseconds.
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": time, "level": event.pop("level"), "message": event.pop("event"), **event}


def _text_renderer(colours: bool) -> Processor:
    """Return the renderer of text lines. Those of structlog leave line ends and control characters in a value."""

    def title(key: str, value: object) -> str:
        word = _TITLES.get(str(value), str(value).upper())
        colour = _COLOURS.get(word) if colours else None
        return f"{colour}{word:<5}{_RESET}" if colour else f"{word:<5}"

    return structlog.dev.ConsoleRenderer(
        columns=[
            structlog.dev.Column("time", lambda key, value: str(value)),
            structlog.dev.Column("level", title),
            structlog.dev.Column("message", lambda key, value: one_line(str(value))),
            structlog.dev.Column("", lambda key, value: f"{key}={_field(value)}"),
        ],
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )


def _field(value: object) -> str:
    """Return a value in one word, or in JSON notation when it would not be one word."""
    if isinstance(value, (dict, list)):
        return one_line(json.dumps(value, default=str, ensure_ascii=False))
    text = str(value)
    plain = text.isprintable() and text != "" and not any(character in text for character in ' "=')
    return text if plain else one_line(json.dumps(text, ensure_ascii=False))


class _LibraryHandler(logging.Handler):
    """Hands records of standard logging to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().log(
                record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
            )
        except Exception:  # the contract of logging.Handler: a record that cannot be written never raises
            self.handleError(record)
