"""Log lines on stderr: JSON for machines, short lines for a person at a terminal.

Every line that a call causes carries its ``trace_id`` and ``span_id``; further fields are given as
``extra={"cluster": name}``. Passwords in addresses and bearer tokens are blanked out wherever they
turn up, tracebacks included, and no line is longer than :data:`MAX_LINE`, whatever callers sent.

A thread of its own writes to stderr: a pipe that nobody reads must hold up neither calls nor the
end of the process. Lines that there is no room for meanwhile are counted.
"""

from __future__ import annotations

import bisect
import io
import json
import logging
import os
import re
import select
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal, TextIO

from typing_extensions import override

from topospread.telemetry.spans import current_call

if TYPE_CHECKING:
    from collections.abc import Callable

Format = Literal["auto", "json", "text"]

MAX_MESSAGE: Final = 4096
MAX_FIELD: Final = 1024
MAX_EXCEPTION: Final = 16 << 10
MAX_LINE: Final = 32 << 10
"""Bytes, as they are written, of a message, of another value, of a traceback, and of a whole line.

On a terminal, where a traceback has lines of its own, they are about as much.
"""

MAX_QUEUED: Final = 2048
"""Lines that wait to be written to stderr: some 600 KiB, and 64 MiB if all are of the largest."""

CLOSE_SECONDS: Final = 1.0
"""For the lines that are queued when the process ends."""

LINES_OF_A_LIBRARY: Final = 10
SECONDS_OF_A_LIBRARY: Final = 10.0
"""Lines that a library's logger may write at once, and seconds until it may write another one.

A library may warn of each thing that an unknown caller sends.
"""

_SCANNED: Final = 4
"""Times its limit that a text is looked through for secrets: so that takes no longer, whatever was
sent, and the secrets of what is left are whole."""

# Each of these takes linear time, tests/telemetry/test_patterns.py sees to it: they run over what
# callers send. They match within a line of JSON, too, where a blank may be written as \n.
_SECRETS: Final = (
    (re.compile(r"://[^/\s\"']*@"), "://***@"),
    # Wherever a token of ours stands, its identifier says which it was.
    (re.compile(r"(tsp_[0-9a-f]{1,32}_)[A-Za-z0-9_-]+"), r"\1***"),
    (re.compile(r"(bearer(?:\s|\\[nrt])+)[^\s\"',]+", re.IGNORECASE), r"\1***"),
)

# What may be half of a secret, of any length, at the end and at the begin of a part of a text.
_CUT_AT_END: Final = re.compile(r"://[^/\s\"']*\Z")
_CUT_AT_BEGIN: Final = re.compile(r"\A\s*\S*\s*(?:\S*bearer\s+)?\S*", re.IGNORECASE)

_ESCAPED: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ESCAPED_IN_LINES: Final = re.compile(rf"(?!\n){_ESCAPED.pattern}")

_MORE: Final = "…"

# uvicorn repeats its message with colours.
_NO_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "taskName", "color_message")
}

_OWN: Final = "topospread"
_PYTHON: Final = logging.getLogger("python")

# Loggers of libraries that log every step at INFO.
_QUIET: Final = ("uvicorn", "opentelemetry", "grpc", "asyncio")


def without_secrets(text: str) -> str:
    """The text with passwords in addresses and bearer tokens replaced by ``***``."""
    for secret, blank in _SECRETS:
        text = secret.sub(blank, text)
    return text


class LogOutput:
    """A destination of all loggers' lines, until :meth:`close`: for programs, never for libraries.

    Args:
        handler: writes lines.
        level: of what is logged; libraries log from warning on.
    """

    def __init__(self, handler: logging.Handler, level: int) -> None:
        self._handler = handler
        root = logging.getLogger()
        libraries = [logging.getLogger(name) for name in _QUIET]
        self._levels_before = {logger: logger.level for logger in (root, *libraries)}
        self._hook_before = sys.unraisablehook
        sys.unraisablehook = _unraisable
        root.addHandler(handler)
        root.setLevel(level)
        for library in libraries:
            library.setLevel(max(level, logging.WARNING))

    def close(self) -> None:
        """Remove the handler, and restore the loggers' former levels."""
        logging.getLogger().removeHandler(self._handler)
        sys.unraisablehook = self._hook_before
        for logger, level in self._levels_before.items():
            logger.setLevel(level)
        self._handler.close()


def start_logging(level: str, form: Format = "auto", stream: TextIO | None = None) -> LogOutput:
    """Write all loggers' lines to a stream.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        form: ``auto`` is text on a terminal and JSON elsewhere.
        stream: where each line is written at once; default: stderr, through a queue.
    """
    out = sys.stderr if stream is None else stream
    handler: logging.Handler = logging.StreamHandler(out)
    if stream is None:
        with suppress(io.UnsupportedOperation):  # it is no file
            handler = FileHandler(out.fileno())
    as_text = form == "text" or (form == "auto" and out.isatty())
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    handler.addFilter(_RateLimit())
    return LogOutput(handler, logging.getLevelNamesMapping()[level.upper()])


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """Log an exception that Python cannot raise, and would write unescaped to stderr."""
    text = what.err_msg or "an exception was ignored in"
    _PYTHON.warning("%s %r: %r", text, what.object, what.exc_value)


class FileHandler(logging.Handler):
    """Writes lines to an open file by a thread of its own; past a bound of them they are lost.

    Args:
        file: its descriptor. Python's own stream is not used: at the end of the process Python
            takes the lock of stderr, which a thread that waits to write would hold.
    """

    def __init__(self, file: int) -> None:
        super().__init__()
        self._file = file
        self._dropped = self._failed = 0
        # Not queue.Queue: a finalizer that runs within its put() may log, too.
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_lines, name="log", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Lines that there was no room for, or that could not be written."""
        return self._dropped + self._failed

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() >= MAX_QUEUED:
            self._dropped += 1
            return
        try:
            # On this thread, whose call the line names.
            self._lines.put(self.format(record))
        except Exception:  # noqa: BLE001 - a wrong line ends no call, and stderr may be full
            self._failed += 1

    @override
    def close(self) -> None:
        """Write what is queued, as far as that does not take long."""
        self._lines.put(None)
        self._thread.join(CLOSE_SECONDS)
        super().close()

    def _write_lines(self) -> None:
        reported = 0
        while (line := self._lines.get()) is not None:
            if not self._write(line):
                self._failed += 1
            elif (lost := self.lost) > reported and self._lines.empty():
                self._write(self._report(lost - reported))
                reported = lost

    def _report(self, lost: int) -> str:
        record = logging.LogRecord(
            __name__, logging.WARNING, "", 0, "%d lines of the log were lost", (lost,), None
        )
        record.lost = lost
        return self.format(record)

    def _write(self, line: str) -> bool:
        left = f"{line}\n".encode(errors="backslashreplace")
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except BlockingIOError:
                select.select((), (self._file,), ())
            except OSError:  # a closed pipe, a full disk
                return False
        return True


def lost_lines() -> int:
    """Return how many lines were lost because stderr was not read, or could not be written."""
    handlers = logging.getLogger().handlers
    return sum(each.lost for each in handlers if isinstance(each, FileHandler))


class _RateLimit(logging.Filter):
    """Lets through all of this package's lines, and a limited number of each library's logger.

    The next one says how many were left out before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        # By logger: lines that it may still write, as of when, and how many were left out.
        self._left: dict[str, tuple[float, float, int]] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == _OWN:
            return True
        now = time.monotonic()
        with self._lock:
            left, at, left_out = self._left.get(record.name, (LINES_OF_A_LIBRARY, now, 0))
            left = min(LINES_OF_A_LIBRARY, left + (now - at) / SECONDS_OF_A_LIBRARY)
            if left < 1:
                self._left[record.name] = left, now, left_out + 1
                return False
            self._left[record.name] = left - 1, now, 0
        if left_out:
            record.left_out = left_out
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, ids, extra fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _begin(record.getMessage(), MAX_MESSAGE),
        }
        fields = _fields(record)
        if record.exc_info:
            fields["exception"] = _traceback(self.formatException(record.exc_info))
        text = without_secrets(json.dumps(line | fields, default=str))
        return text if len(text) <= MAX_LINE else json.dumps({**line, "cut": True})


class TextFormatter(logging.Formatter):
    """``12:00:03.123 INFO topospread.app: message cluster=default trace_id=…``."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        # What callers sent must not move a terminal's cursor or begin a line of its own.
        text = _begin(record.getMessage(), MAX_MESSAGE) + without_secrets(fields)
        text = _ESCAPED.sub(_escape, text)[:MAX_LINE]
        line = f"{at} {record.levelname} {record.name}: {text}"
        if record.exc_info:
            traceback = _traceback(self.formatException(record.exc_info))
            line += "\n" + _ESCAPED_IN_LINES.sub(_escape, traceback)
        return line


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The fields beside the message, and the ids of the call that the thread works for."""
    fields = {
        name: _bounded(value) for name, value in vars(record).items() if name not in _NO_FIELDS
    }
    if (call := current_call()) is not None:
        fields["trace_id"] = call.trace_id
        fields["span_id"] = call.span_id
    return fields


def _bounded(value: object) -> object:
    """A field's value, short enough; a longer one that is no text becomes the beginning of one."""
    if isinstance(value, str):
        return _begin(value, MAX_FIELD)
    if value is None or isinstance(value, bool | int | float):
        return value
    written = json.dumps(value, default=str)
    return value if len(written) <= MAX_FIELD else _begin(written, MAX_FIELD)


def _traceback(text: str) -> str:
    """A traceback; of one that is too long the beginning and the end, which say where and what."""
    if len(text) <= MAX_EXCEPTION and _written(text) <= MAX_EXCEPTION:
        return without_secrets(text)
    half = MAX_EXCEPTION // 2
    return _begin(text, half) + _end(text, half)


def _begin(text: str, most: int) -> str:
    """The beginning of a text without secrets, as long as JSON writes it in so many bytes."""
    scanned = text[: _SCANNED * most]
    if len(scanned) < len(text):
        scanned = _CUT_AT_END.sub("", scanned)
    scanned = without_secrets(scanned)
    if len(text) <= most and _written(scanned) <= most:
        return scanned
    return scanned[: _longest(lambda count: scanned[:count], most)] + _MORE


def _end(text: str, most: int) -> str:
    """The end of a text, likewise."""
    scanned = text[-_SCANNED * most :]
    if len(scanned) < len(text):
        scanned = _CUT_AT_BEGIN.sub("", scanned)
    scanned = without_secrets(scanned)
    start = len(scanned) - _longest(lambda count: scanned[-count:], most)
    return _MORE + scanned[max(0, start) :]


def _longest(part: Callable[[int], str], most: int) -> int:
    """How many characters JSON writes in so many bytes, less those of the mark of a cut."""
    limit = most - _written(_MORE)
    counts = range(1, limit + 1)
    return bisect.bisect_right(counts, limit, key=lambda count: _written(part(count)))


def _written(text: str) -> int:
    return len(json.dumps(text)) - 2
