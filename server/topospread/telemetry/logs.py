"""Log lines on stderr: JSON for machines, short lines for a person at a terminal.

Every line that a call causes carries its ``trace_id`` and ``span_id``; further fields are given as
``extra={"cluster": name}``. Passwords in addresses and bearer tokens are blanked out wherever they
turn up, tracebacks included. Texts are cut before anything looks through them, and no line is
longer than :data:`MAX_LINE`, whatever callers sent.

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
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TextIO

from typing_extensions import override

from topospread.telemetry.spans import current_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Format = Literal["auto", "json", "text"]

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# uvicorn repeats its message with colours.
_LEFT_OUT: Final = frozenset({"color_message"})

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

_SCANNED: Final = 4
"""Times its limit that a text is looked through: a secret is found though its end is cut off."""

# Each of these takes linear time, tests/telemetry/test_patterns.py sees to it: they run over what
# callers send. They match within a line of JSON, too, where a blank may be written as \n.
_SECRETS: Final = (
    (re.compile(r"://[^/\s\"']*@"), "://***@"),
    # Wherever a token of ours stands, its identifier says which it was.
    (re.compile(r"(tsp_[0-9a-f]{1,32}_)[A-Za-z0-9_-]+"), r"\1***"),
    (re.compile(r"(bearer(?:\s|\\[nrt])+)[^\s\"',]+", re.IGNORECASE), r"\1***"),
)

_PYTHON: Final = logging.getLogger("python")

_ESCAPED: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ESCAPED_IN_LINES: Final = re.compile(rf"(?!\n){_ESCAPED.pattern}")

_MORE: Final = "…"
_LONGEST_ESCAPE: Final = len(json.dumps("\U0001f600")) - 2

_OWN: Final = "topospread"
LINES_OF_A_LIBRARY: Final = 10
SECONDS_OF_A_LIBRARY: Final = 10.0
"""Lines that a library's logger may write at once, and seconds until it may write another one.

A library may warn of each thing that an unknown caller sends.
"""

# Loggers of libraries that log every step at INFO.
_QUIET: Final = ("uvicorn", "opentelemetry", "grpc", "asyncio")


def without_secrets(text: str) -> str:
    """The text with passwords in addresses and bearer tokens replaced by ``***``."""
    for secret, blank in _SECRETS:
        text = secret.sub(blank, text)
    return text


def start_logging(level: str, form: Format = "auto", stream: TextIO | None = None) -> LogOutput:
    """Write all loggers' lines to a stream; to be called by programs, never by libraries.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``; libraries log from warning on.
        form: ``auto`` is text on a terminal and JSON elsewhere.
        stream: where each line is written at once; default: stderr, through a queue.
    """
    out = sys.stderr if stream is None else stream
    as_text = form == "text" or (form == "auto" and out.isatty())
    file = _descriptor(out) if stream is None else None
    handler = logging.StreamHandler(out) if file is None else FileHandler(file)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    handler.addFilter(_RateLimit())
    return LogOutput(handler, logging.getLevelNamesMapping()[level.upper()])


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except io.UnsupportedOperation:  # it is no file
        return None


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
        """Queue a line."""
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


class LogOutput:
    """A destination of log lines, until :meth:`close`.

    While several are open, the level of the newest holds for all.
    """

    _open: ClassVar[list[LogOutput]] = []
    _lock: ClassVar = threading.Lock()
    _levels_before: ClassVar[dict[logging.Logger, int]] = {}
    _hook_before: ClassVar = staticmethod(sys.unraisablehook)

    def __init__(self, handler: logging.Handler, level: int) -> None:
        self._handler = handler
        self.level = level
        with self._lock:
            if not self._open:
                loggers = [logging.getLogger(), *map(logging.getLogger, _QUIET)]
                LogOutput._levels_before = {logger: logger.level for logger in loggers}
                LogOutput._hook_before = staticmethod(sys.unraisablehook)
                sys.unraisablehook = _unraisable
            self._open.append(self)
            logging.getLogger().addHandler(handler)
            self._set_levels()

    def close(self) -> None:
        """Remove the handler; with the last output, the loggers' former levels are restored."""
        with self._lock:
            if self not in self._open:
                return
            self._open.remove(self)
            logging.getLogger().removeHandler(self._handler)
            if self._open:
                self._set_levels()
            else:
                sys.unraisablehook = self._hook_before
                for logger, level in self._levels_before.items():
                    logger.setLevel(level)
        self._handler.close()

    def _set_levels(self) -> None:
        level = self._open[-1].level
        for logger in self._levels_before:
            library = logger is not logging.getLogger()
            logger.setLevel(max(level, logging.WARNING) if library else level)


class _RateLimit(logging.Filter):
    """Lets through all of this package's lines, and a limited number of each library's logger.

    The next one says how many were left out before it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        # By logger: lines that it may still write, as of when, and how many were left out.
        self._left: dict[str, tuple[float, float, int]] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == _OWN:
            return True
        now = self._clock()
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


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """Log an exception that Python cannot raise, and would write unescaped to stderr."""
    text = what.err_msg or "an exception was ignored in"
    _PYTHON.warning("%s %r: %r", text, what.object, what.exc_value)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, ids, extra fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage(), MAX_MESSAGE),
        }
        fields = {name: _bounded(value) for name, value in _fields(record).items()}
        if record.exc_info:
            fields["exception"] = _traceback(self.formatException(record.exc_info))
        text = without_secrets(json.dumps(line | fields, default=str))
        if len(text) > MAX_LINE:
            text = without_secrets(json.dumps({**line, "cut": True}))
        return text


class TextFormatter(logging.Formatter):
    """``12:00:03.123 INFO topospread.app: message cluster=default trace_id=…``."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        at = _time(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={_bounded(value)}" for name, value in _fields(record).items())
        # What callers sent must not move a terminal's cursor or begin a line of its own.
        text = _ESCAPED.sub(_escape, _cut(record.getMessage(), MAX_MESSAGE) + fields)
        line = f"{at} {record.levelname} {record.name}: {text[:MAX_LINE]}"
        if record.exc_info:
            traceback = _traceback(self.formatException(record.exc_info))
            line += "\n" + _ESCAPED_IN_LINES.sub(_escape, traceback)
        return without_secrets(line)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def _cut(text: str, most: int, *, begin: bool = True) -> str:
    """The beginning or the end of a text, as long as JSON writes it in so many bytes."""
    if len(text) * _LONGEST_ESCAPE <= most:
        return text
    if len(text) <= most and _written(text) <= most:
        return text
    scanned, limit = _SCANNED * most, most - _written(_MORE)
    # The secrets first: what is left of one that is cut might not be known for one.
    if begin:
        short = without_secrets(text[:scanned])
        return short[: _longest(lambda count: short[:count], limit)] + _MORE
    short = without_secrets(text[-scanned:])
    return _MORE + short[len(short) - _longest(lambda count: short[len(short) - count :], limit) :]


def _longest(part: Callable[[int], str], limit: int) -> int:
    """The number of characters that JSON writes in so many bytes."""
    counts = range(1, limit + 1)
    return bisect.bisect_right(counts, limit, key=lambda count: _written(part(count)))


def _written(text: str) -> int:
    return len(json.dumps(text)) - 2


def _bounded(value: object) -> object:
    """A field's value, short enough; a longer one that is no text becomes the beginning of one."""
    if isinstance(value, str):
        return _cut(value, MAX_FIELD)
    if value is None or isinstance(value, bool | int | float):
        return value
    written = json.dumps(value, default=str)
    return value if len(written) <= MAX_FIELD else _cut(written, MAX_FIELD)


def _traceback(text: str) -> str:
    """A traceback; of one that is too long the beginning and the end, which say where and what."""
    half = MAX_EXCEPTION // 2
    if len(text) <= half:
        return _cut(text, MAX_EXCEPTION)
    begin, end = text[: len(text) // 2], text[len(text) // 2 :]
    return _cut(begin, half) + _cut(end, half, begin=False)


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
