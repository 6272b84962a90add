from __future__ import annotations

import io
import json
import logging
import os
import sys
import textwrap
import time

import pytest

from topospread.telemetry import logs
from topospread.telemetry.logs import (
    MAX_FIELD,
    MAX_LINE,
    MAX_MESSAGE,
    FileHandler,
    JsonFormatter,
    TextFormatter,
    start_logging,
    without_secrets,
)
from topospread.telemetry.tracing import Sampling, Tracing

LOG = logging.getLogger("topospread.test")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def logged():
    """Logs into a stream; returns its lines so far."""
    outputs = []

    def make(level="info", form="json", stream=None):
        stream = io.StringIO() if stream is None else stream
        outputs.append(start_logging(level, form, stream))
        return lambda: stream.getvalue().splitlines()

    yield make
    for output in reversed(outputs):
        output.close()


def test_a_line_is_one_json_object(logged):
    lines = logged()
    LOG.info("loaded %d nodes", 5, extra={"cluster": "prod", "seconds": 0.25})
    (line,) = map(json.loads, lines())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "topospread.test",
        "message": "loaded 5 nodes",
        "cluster": "prod",
        "seconds": 0.25,
    }


def test_lines_of_a_call_carry_its_ids(logged):
    lines = logged()
    call = Tracing(Sampling.ratio(0.0), None).start("/a.B/C")
    LOG.warning("slow")
    call.end(0)
    LOG.warning("quiet again")
    during, after = map(json.loads, lines())
    assert (during["trace_id"], during["span_id"]) == (call.trace_id, call.span_id)
    assert "trace_id" not in after


def test_a_terminal_gets_text(logged):
    lines = logged(form="auto", stream=Terminal())
    LOG.warning("store out of reach", extra={"cluster": "prod"})
    (line,) = lines()
    assert line.endswith("WARNING topospread.test: store out of reach cluster=prod")


def test_text_of_callers_does_not_drive_the_terminal(logged):
    lines = logged(form="text")
    LOG.warning("no such cluster: %s", "a\x1b[2Jb\nINFO forged", extra={"pod": "x\r"})
    (line,) = lines()
    assert r"a\x1b[2Jb\nINFO forged pod=x\r" in line


def test_elsewhere_it_is_json(logged):
    lines = logged(form="auto")
    LOG.warning("x")
    assert json.loads(lines()[0])["message"] == "x"


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels(logged, level, heard):
    lines = logged(level=level)
    for said in ("debug", "info", "warning", "error"):
        LOG.log(logging.getLevelNamesMapping()[said.upper()], said)
    assert [json.loads(line)["message"] for line in lines()] == heard


@pytest.mark.parametrize("library", ["uvicorn.error", "opentelemetry.sdk", "grpc._server"])
def test_libraries_speak_from_warning_on(logged, library):
    lines = logged(level="debug")
    logging.getLogger(library).info("every step")
    logging.getLogger(library).warning("trouble")
    assert [json.loads(line)["message"] for line in lines()] == ["trouble"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_blanked_wherever_they_turn_up(logged, form):
    lines = logged(form=form)
    secret = "redis://user:hunter2@cache:6379/0"
    try:
        raise RuntimeError(f"cannot reach {secret}")
    except RuntimeError:
        LOG.exception("store %s", secret, extra={"store": secret, "more": [secret]})
    text = "\n".join(lines())
    assert "hunter2" not in text
    assert "RuntimeError" in text
    assert "cache:6379" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://u:p@h:1/0", "redis://***@h:1/0"),
        ("rediss://:p@ss@h", "rediss://***@h"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("redis://h:1 and mail a@b", "redis://h:1 and mail a@b"),
        ("http://h/x@y", "http://h/x@y"),
    ],
)
def test_secrets_are_blanked(text, shown):
    assert without_secrets(text) == shown


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("secret", ["tsp_01ab_hunter2", "Bearer hunter2", "bearer\thunter2"])
def test_secrets_are_blanked_at_the_begin_of_a_line(logged, form, secret):
    lines = logged(form=form)
    LOG.warning("headers:\n%s", secret)
    (line,) = lines()
    assert "hunter2" not in line
    assert "***" in line


SECRETS = (
    "redis://user:{}@cache:6379/0",
    "redis://user:a,{}@h b",
    "rediss://:{}@cache",
    "tsp_01ab_{}",
    "Authorization: Bearer {}",
    "authorization: bearer\t{}",
)
"""All kinds of secrets; what stands for `{}` must not be seen, not even a part of it."""

LIMITS = {"MAX_MESSAGE": 256, "MAX_FIELD": 128, "MAX_EXCEPTION": 512, "MAX_LINE": 2048}
MESSAGE, FIELD, EXCEPTION, LINE = LIMITS.values()
HALF = EXCEPTION // 2
LONG = 5 * EXCEPTION
OFTEN = 50
"""Characters of each field, where there are many of them."""

# Of what is logged: its length, and where it is cut, or would be if all of it were looked through.
CUTS = {
    "message": [(LONG, MESSAGE), (LONG, 4 * MESSAGE)],
    "field": [(LONG, FIELD), (LONG, 4 * FIELD)],
    "list": [(LONG, FIELD), (LONG, 4 * FIELD)],
    "fields": [(LONG, cut) for cut in (LINE - 400, LINE - 300, LINE - 200)],
    "exception": [
        (length, cut)
        for length in (EXCEPTION - 10, LONG)
        for cut in (HALF, length // 2, length - HALF, 4 * HALF, length - 4 * HALF)
        if 0 < cut < length
    ],
}


@pytest.fixture(params=[JsonFormatter, TextFormatter])
def formatter(request, monkeypatch):
    """A formatter with small limits, so that there is time for each offset."""
    for name, limit in LIMITS.items():
        monkeypatch.setattr(logs, name, limit)
    return request.param()


def record_of(place, text):
    """A record with a text in one place."""
    record = logging.makeLogRecord({"name": "topospread", "msg": "failed"})
    if place == "message":
        record.msg, record.args = "%s", (text,)
    elif place == "exception":
        record.exc_info = RuntimeError, RuntimeError(text), None
    elif place == "fields":
        for number, word in enumerate(text.split("\0")):
            setattr(record, f"f{number}", word)
    else:
        record.more = [text] if place == "list" else text
    return record


@pytest.mark.parametrize("place", CUTS)
@pytest.mark.parametrize("kind", SECRETS)
def test_no_piece_of_a_secret_is_left_at_a_cut(formatter, place, kind):
    secret = kind.format("Q" * 24)
    for length, cut in CUTS[place]:
        for offset in range(max(1, cut - len(secret) - 30), cut + 30):
            text = f"{'x' * (offset - 1)} {secret} "
            if place == "fields":
                text = "\0".join([*textwrap.wrap(text[:offset], OFTEN), text[offset:]])
            else:
                text += "y" * (length - len(text))
            assert "Q" not in formatter.format(record_of(place, text))


@pytest.mark.parametrize("place", ["message", "field", "exception"])
@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("length", [30, 200, 2 * LONG])
def test_blanks_make_no_piece_of_a_secret_seen(formatter, place, kind, length):
    """Where long ones are blanked, more of a text has room, up to where it is looked through."""
    secrets = f"{kind.format('Q' * length)} " * (2 * LONG // length)
    for offset in range(0, length, max(1, length // 60)):
        text = f"{secrets}{'x' * offset} {secrets}"
        assert "Q" not in formatter.format(record_of(place, text))


def bounded(lines):
    """The lines, each of them read, and each as long as a line may be."""
    assert all(len(line.encode()) <= MAX_LINE for line in lines)
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("letter", ["x", "\x00", "\u202e", "\U0001f600", "\ud800", '"', "\\"])
def test_lines_have_a_length(logged, letter):
    lines = logged()
    text = letter * 1_000_000
    LOG.warning("got %s", text, extra={"pod": text, "more": {"a": [text]}})
    LOG.warning("got", extra={f"field{number}": text for number in range(100)})
    first, second = bounded(lines())
    assert first["message"].startswith(f"got {letter}")
    assert first["message"].endswith("…")
    assert len(json.dumps(first["message"])) - 2 <= MAX_MESSAGE
    assert MAX_FIELD - 20 <= len(json.dumps(first["pod"])) - 2 <= MAX_FIELD
    assert len(json.dumps(first["more"])) - 2 <= MAX_FIELD
    assert (second["message"], second["cut"]) == ("got", True)


@pytest.mark.parametrize("letter", ["x", "\x00", "\U0001f600"])
def test_a_long_traceback_keeps_its_begin_and_its_end(logged, letter):
    lines = logged()
    try:
        raise ValueError(letter * 100_000) from RuntimeError("cause")
    except ValueError as inner:
        try:
            raise RuntimeError("the last word") from inner
        except RuntimeError:
            LOG.exception("failed")
    (line,) = bounded(lines())
    assert "RuntimeError: cause" in line["exception"]
    assert line["exception"].endswith("RuntimeError: the last word")


def test_text_has_a_length_and_no_control_characters_in_tracebacks(logged):
    lines = logged(form="text")
    try:
        raise ValueError("\x1b[2J\u202e\ud800" + "y" * 1_000_000)
    except ValueError:
        LOG.exception("%s", "z" * 1_000_000, extra={"pod": "\x9b" * 1_000_000})
    text = "\n".join(lines())
    assert len(text) <= MAX_LINE
    assert "ValueError: \\x1b[2J\\u202e\\ud800y" in text
    assert not any(letter in text for letter in "\x1b\x9b\u202e\ud800")


@pytest.mark.parametrize("text", ["a-", "a", "://", "tsp_a", "bearer ", "redis://a@", "\\n"])
def test_the_time_that_a_line_takes_is_bounded(logged, text):
    lines = logged()
    begun = time.thread_time()
    LOG.warning("%s", text * 2_000_000)
    LOG.warning("", extra={"pod": text * 2_000_000})
    # To write a megabyte takes some milliseconds; the first of these took hours.
    assert time.thread_time() - begun < 5
    assert len(bounded(lines())) == 2


def test_a_library_cannot_fill_the_log(logged):
    lines = logged()
    for _ in range(1000):
        logging.getLogger("opentelemetry.trace").warning("odd header")
        LOG.info("ours")
    reported = [json.loads(line)["logger"] for line in lines()]
    assert (reported.count("opentelemetry.trace"), reported.count("topospread.test")) == (10, 1000)
    logging.getLogger("uvicorn.error").warning("another's")
    assert json.loads(lines()[-1])["logger"] == "uvicorn.error"


def test_line_that_cannot_be_made_is_lost_and_counted(capfd):
    reading, writing = os.pipe()
    with open(reading, "rb") as lines, open(writing, "wb", buffering=0):
        handler = FileHandler(writing)
        wrong = logging.LogRecord("topospread", logging.INFO, "", 0, "%d", ("one",), None)
        for record in (wrong, logging.makeLogRecord({"msg": "right"})):
            handler.handle(record)
        assert lines.readline() == b"right\n"
        assert handler.lost == 1
        handler.close()
    assert capfd.readouterr().err == ""


def test_unraisable_exceptions_are_a_line(logged):
    class Odd:
        def __del__(self):
            raise ValueError("\x1b[31m" + "x" * 100_000)

    former, lines = sys.unraisablehook, logged()
    assert sys.unraisablehook is not former
    odd = Odd()
    del odd
    (line,) = bounded(lines())
    assert (line["logger"], line["level"]) == ("python", "warning")
    assert "__del__" in line["message"]


def test_values_unknown_to_json_are_written_as_text(logged):
    lines = logged()
    LOG.info("lone surrogate \ud800", extra={"path": {1}})
    assert json.loads(lines()[0])["path"] == "{1}"


def test_outputs_may_be_nested():
    root, library = logging.getLogger(), logging.getLogger("uvicorn")
    before = root.level, library.level, list(root.handlers), sys.unraisablehook
    outer, inner = (start_logging(level, "json", io.StringIO()) for level in ("error", "debug"))
    assert (root.level, library.level) == (logging.DEBUG, logging.WARNING)
    inner.close()
    assert (root.level, library.level) == (logging.ERROR, logging.ERROR)
    outer.close()
    assert (root.level, library.level, root.handlers, sys.unraisablehook) == before
