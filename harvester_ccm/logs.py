"""Log output: structlog, one line per entry on standard error, nothing secret in it.

Text lines read ``2026-11-21T08:46:12.123Z INFO  message key=value``; JSON lines carry ``time``, ``level`` and
``message``. The level is decided in the bound logger, so that a debug call below the level costs next to nothing.
Warnings and errors of libraries (standard ``logging``, ``warnings``) come out through the same processors.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from harvester_ccm.config import LogFormat, LoggingSettings
from harvester_ccm.redaction import redact

DEBUG_VERBOSITY: Final = 4
"""klog level from which on debug lines are written."""

_LEVELS: Final[Mapping[str, str]] = {"warning": "WARN", "critical": "ERROR"}
_COLOURS: Final[Mapping[str, str]] = {"DEBUG": "\x1b[2m", "WARN": "\x1b[33m", "ERROR": "\x1b[31m"}
_RESET: Final = "\x1b[0m"


def configure_logging(settings: LoggingSettings, stream: TextIO | None = None, *, cache: bool = True) -> None:
    """Send all log output to ``stream``, standard error by default.

    ``cache`` lets every logger keep what is configured at its first use; only tests, which configure more than once,
    turn it off.
    """
    output = stream if stream is not None else sys.stderr
    level = logging.DEBUG if settings.verbosity >= DEBUG_VERBOSITY else logging.INFO
    structlog.configure(
        processors=list(_processors(settings.format, colours=output.isatty())),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=cache,
    )
    _route_library_logs()


def _processors(log_format: LogFormat, *, colours: bool) -> tuple[Processor, ...]:
    render: Processor = _render_json if log_format is LogFormat.JSON else _text_renderer(colours=colours)
    return (
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _add_time,
        remove_secrets,
        render,
    )


def remove_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace what looks like a credential in any value, exceptions included."""
    return {key: redact(value, key) for key, value in event.items()}


def _add_time(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["time"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _render_json(_logger: WrappedLogger, _method: str, event: MutableMapping[str, object]) -> str:
    line = {"time": event.pop("time"), "level": event.pop("level"), "message": event.pop("event"), **event}
    return json.dumps(line, default=str, ensure_ascii=False)


def _text_renderer(*, colours: bool) -> Callable[[WrappedLogger, str, MutableMapping[str, object]], str]:
    def render(_logger: WrappedLogger, _method: str, event: MutableMapping[str, object]) -> str:
        time, level = event.pop("time"), str(event.pop("level"))
        message = _one_line(str(event.pop("event")))
        blocks = [str(block) for key in ("exception", "stack") if (block := event.pop(key, None))]
        title = f"{_LEVELS.get(level, level.upper()):<5}"
        colour = _COLOURS.get(title.strip()) if colours else None
        shown = f"{colour}{title}{_RESET}" if colour else title
        fields = "".join(f" {key}={_field(value)}" for key, value in event.items())
        return "\n".join([f"{time} {shown} {message}{fields}", *blocks])

    return render


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1]


def _field(value: object) -> str:
    """Return a value in one word, or in JSON notation when it would not be one word."""
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str, ensure_ascii=False)
    text = str(value)
    plain = text.isprintable() and text != "" and not any(character in text for character in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)


class _LibraryHandler(logging.Handler):
    """Hands records of standard logging to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().log(
                record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
            )
        except Exception:  # the contract of logging.Handler: a record that cannot be written never raises
            self.handleError(record)


def _route_library_logs() -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _LibraryHandler):
            root.removeHandler(handler)
    root.addHandler(_LibraryHandler(logging.WARNING))
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
