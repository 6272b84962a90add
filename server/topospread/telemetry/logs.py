"""Log lines on stderr: JSON for machines, short lines for a person at a terminal.

Every line that a call causes carries its ``trace_id`` and ``span_id``; further fields are given as
``extra={"cluster": name}``. Passwords in addresses and bearer tokens are blanked out wherever they
turn up, tracebacks included.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TextIO

from typing_extensions import override

from topospread.telemetry.tracing import current_call

if TYPE_CHECKING:
    from collections.abc import Mapping

Format = Literal["auto", "json", "text"]

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# uvicorn repeats its message with colours.
_LEFT_OUT: Final = frozenset({"color_message"})

_SECRETS: Final = (
    (re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s\"']*@", re.IGNORECASE), r"\1***@"),
    # Wherever a token of ours stands, its identifier says which it was.
    (re.compile(r"\b(tsp_[0-9a-f]{1,32}_)[A-Za-z0-9_-]+"), r"\1***"),
    (re.compile(r"\b(bearer\s+)[^\s\"',]+", re.IGNORECASE), r"\1***"),
)

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

# Loggers of libraries that tell of every step at INFO.
_QUIET: Final = ("uvicorn", "opentelemetry", "grpc", "asyncio")


def without_secrets(text: str) -> str:
    """The text with passwords in addresses and bearer tokens replaced by ``***``."""
    for secret, blank in _SECRETS:
        text = secret.sub(blank, text)
    return text


def start_logging(level: str, form: Format = "auto", stream: TextIO | None = None) -> LogOutput:
    """Send what all loggers say to a stream; to be called by programs, never by libraries.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``; libraries speak from warning on.
        form: ``auto`` is text on a terminal and JSON elsewhere.
        stream: default stderr.
    """
    out = sys.stderr if stream is None else stream
    as_text = form == "text" or (form == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    return LogOutput(handler, logging.getLevelNamesMapping()[level.upper()])


class LogOutput:
    """The way out for log lines, until :meth:`close`."""

    def __init__(self, handler: logging.Handler, level: int) -> None:
        self._handler = handler
        loggers = [logging.getLogger(), *map(logging.getLogger, _QUIET)]
        self._former = [(logger, logger.level) for logger in loggers]
        loggers[0].addHandler(handler)
        loggers[0].setLevel(level)
        for logger in loggers[1:]:
            logger.setLevel(max(level, logging.WARNING))

    def close(self) -> None:
        """Give the loggers their former levels back."""
        logging.getLogger().removeHandler(self._handler)
        for logger, level in self._former:
            logger.setLevel(level)
        self._handler.close()


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, ids, extra fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return without_secrets(json.dumps(line, default=str))


class TextFormatter(logging.Formatter):
    """``12:00:03.123 INFO topospread.app: message cluster=default trace_id=…``."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        time = _time(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        # What callers sent must not move a terminal's cursor or begin a line of its own.
        text = _CONTROL.sub(lambda match: repr(match[0])[1:-1], record.getMessage() + fields)
        line = f"{time} {record.levelname} {record.name}: {text}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return without_secrets(line)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields = {
        name: value
        for name, value in vars(record).items()
        if name not in _STANDARD and name not in _LEFT_OUT
    }
    if (call := current_call()) is not None:
        fields["trace_id"] = call.trace_id
        fields["span_id"] = call.span_id
    return fields
