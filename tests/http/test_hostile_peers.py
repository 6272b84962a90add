"""Peers that send without end, take nothing, or never come to the point: bounded and counted."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.app.certificates import Mint
from tests.waiting import PATIENCE, until
from topospread.config.files import PemFiles
from topospread.http import server
from topospread.http.app import make_app
from topospread.http.server import HttpServer
from topospread.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from starlette.requests import Request

MIB = 1 << 20
LONG = "x" * 16 * MIB


async def echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def long(_: Request) -> Response:
    return PlainTextResponse(LONG)


def app():
    return make_app(
        version="1.2.3",
        metrics=Metrics("1.2.3").expose,
        live=lambda: (True, ()),
        ready=lambda: (True, ()),
        max_body_bytes=4 * MIB,
        routes=[Route("/echo", echo, methods=["POST"]), Route("/long", long)],
    )


class Run:
    """A server, and why it ended connections."""

    def __init__(self, **more) -> None:
        self.ended: Counter[str] = Counter()
        self.server = HttpServer(
            app(), "127.0.0.1", 0, on_dropped=lambda why: self.ended.update([why]), **more
        )

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop(1)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE)

    def idle(self) -> bool:
        return not self.server.server_state.connections

    def works(self) -> bool:
        url = f"http://127.0.0.1:{self.server.port}/livez"
        return httpx.get(url, trust_env=False, timeout=PATIENCE).text == "ok\n"


@pytest.fixture
def run():
    with Run() as run:
        yield run


def answers(run: Run, *pieces: bytes) -> bytes:
    """What a server says to these bytes before it closes the connection."""
    said = b""
    with run.connect() as raw, suppress(ConnectionError):
        for piece in pieces:
            raw.sendall(piece)
        while part := raw.recv(1 << 16):
            said += part
    return said


HEAD = b"POST /echo HTTP/1.1\r\nhost: x\r\n"
ENDLESS = {
    "one line": (b"GET /", *[b"a" * 4096] * 600),
    "one header": (HEAD, b"x: ", *[b"a" * 4096] * 600),
    "one name": (HEAD, *[b"a" * 4096] * 600),
    "many headers": (HEAD, *[b"x: y\r\n" * 1000] * 400),
    "trailers": (
        HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
        *[b"x: y\r\n" * 1000] * 400,
    ),
    "chunks of nothing but frame": (
        HEAD + b"transfer-encoding: chunked\r\n\r\n",
        *[b"1\r\na\r\n" * 1000] * 400,
    ),
    "a chunk's extension": (
        HEAD + b"transfer-encoding: chunked\r\n\r\n1;",
        *[b"a" * 4096] * 600,
    ),
}


@pytest.mark.parametrize("pieces", ENDLESS.values(), ids=ENDLESS)
def test_endless_requests_are_refused(run, pieces):
    said = answers(run, *pieces)
    assert said == b"" or said.startswith(b"HTTP/1.1 400 ")
    until(run.idle, "the connection is closed")
    assert run.ended == {"malformed": 1}
    assert run.works()


def test_a_body_in_small_chunks_is_read(run):
    chunks = [b"64\r\n" + b"a" * 100 + b"\r\n"] * 20_000
    head = HEAD + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    said = answers(run, head + b"".join(chunks) + b"0\r\n\r\n")
    assert said.endswith(b"\r\n\r\n2000000")
    assert not run.ended


def test_requests_before_their_answers_are_bounded(run):
    answers(run, b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n" * 10_000)
    until(run.idle, "the connection is closed")
    assert run.ended["malformed"] == 1
    assert run.works()


def test_some_requests_before_their_answers_are_answered(run):
    said = answers(
        run,
        b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" * 10
        + b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    assert said.count(b"HTTP/1.1 200 ") == 11
    assert not run.ended


@pytest.mark.parametrize("ending", [b"", b"connection: close\r\n"])
def test_a_response_that_is_not_read_is_dropped(monkeypatch, run, ending):
    monkeypatch.setattr(server, "RESPONSE_SECONDS", 0.2)
    with run.connect() as raw:
        raw.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\n" + ending + b"\r\n")
        until(lambda: bool(run.ended), "it is given up")
        until(run.idle, "the connection is closed")
    assert run.ended == {"slow": 1}
    monkeypatch.undo()
    assert run.works()


def test_an_answer_that_is_taken_slowly_but_in_time_is_whole(monkeypatch, run):
    monkeypatch.setattr(server, "RESPONSE_SECONDS", 10 * PATIENCE)
    with run.connect() as raw:
        raw.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        size = 0
        while part := raw.recv(1 << 14):
            size += len(part)
    assert size > len(LONG)
    assert not run.ended


GARBAGE = {
    "no request": b"nonsense\r\n\r\n",
    "no version": b"GET / HTTP/9.9\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00",
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "bad path": b"GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n",
    "nul": b"GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a\0b\r\n\r\n",
    "two lengths": HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\na",
    "length and chunks": HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_counted_and_not_logged(run, caplog, garbage):
    for _ in range(5):
        assert answers(run, garbage).startswith(b"HTTP/1.1 400 ")
    assert run.ended == {"malformed": 5}
    assert run.works()
    assert not [each for each in caplog.records if each.levelname != "INFO"]


@pytest.mark.parametrize("to", [b"websocket", b"h2c"])
def test_a_wish_for_another_protocol_is_passed_over_quietly(run, caplog, to):
    with run.connect() as raw:
        raw.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: " + to)
        raw.sendall(b"\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert not [each for each in caplog.records if each.levelname != "INFO"]


# ------------------------------ connections without a request


@pytest.mark.parametrize(
    "said", [b"", b"GET /livez HTTP/1.1\r\nhost", b"GET /livez HTTP/1.1\r\n\r\n"]
)
def test_newcomers_are_answered_beside_connections_without_a_request(said):
    with Run(max_connections=5) as run, ExitStack() as opened:
        for _ in range(5):
            raw = opened.enter_context(run.connect())
            raw.sendall(said)
        assert run.works()
        assert run.ended == {"over_limit": 1}


def test_a_request_under_way_is_not_closed_for_a_newcomer():
    with Run(max_connections=3) as run, ExitStack() as opened:
        busy = [opened.enter_context(run.connect()) for _ in range(3)]
        for raw in busy:
            raw.sendall(HEAD + b"content-length: 2\r\nexpect: 100-continue\r\n\r\na")
            assert raw.recv(4096).startswith(b"HTTP/1.1 100 ")
        with run.connect() as late, suppress(ConnectionError):
            assert not late.recv(100)
        assert run.ended == {"over_limit": 1}
        for raw in busy:
            raw.sendall(b"a")
            assert raw.recv(4096).startswith(b"HTTP/1.1 200 ")


# ------------------------------ handshakes


@pytest.fixture(scope="module")
def mint(tmp_path_factory):
    return Mint(tmp_path_factory.mktemp("pem"))


def tls_run(mint, **more):
    return Run(tls=PemFiles(mint.cert, mint.key), **more)


def greeted(run: Run, mint) -> str:
    url = f"https://127.0.0.1:{run.server.port}/livez"
    return httpx.get(url, verify=mint.context(), trust_env=False, timeout=PATIENCE).text


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_handshake_that_does_not_end_is_given_up(monkeypatch, mint, begin):
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.2)
    with tls_run(mint) as run, run.connect() as raw:
        raw.sendall(begin)
        with suppress(ConnectionError):
            assert not raw.recv(100)
        until(lambda: run.ended == {"handshake": 1}, "it is counted")
        monkeypatch.undo()
        assert greeted(run, mint) == "ok\n"


def test_handshakes_count_as_connections(monkeypatch, mint):
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 10 * PATIENCE)
    with tls_run(mint, max_connections=5) as run, ExitStack() as opened:
        for _ in range(30):
            opened.enter_context(run.connect())
        until(lambda: run.ended["over_limit"] == 25, "those past the limit are closed")
        opened.close()
        until(lambda: run.ended["handshake"] == 5, "the others have gone")
        assert greeted(run, mint) == "ok\n"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_nothing_is_kept_of_connections_that_were_reset(mint, tls):
    trusting = mint.context()
    with tls_run(mint) if tls else Run() as run:
        for _ in range(10):
            raw = run.connect()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if tls:
                raw = trusting.wrap_socket(raw, server_hostname="127.0.0.1")
            with raw:
                raw.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
                assert raw.recv(4096).startswith(b"HTTP/1.1 200 ")

        def kept() -> int:
            gc.collect()
            return sum(type(each) is server.BoundedProtocol for each in gc.get_objects())

        until(lambda: not kept(), "all of them are forgotten")


@pytest.mark.parametrize("cut", [1, 5, 60, 200, 400])
def test_tls_that_is_cut_off_delays_no_others(mint, caplog, cut):
    trusting = mint.context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = trusting.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    said = outgoing.read()
    with tls_run(mint) as run:
        for _ in range(20):
            with run.connect() as raw:
                raw.sendall(said[:cut])
        until(lambda: run.ended["handshake"] == 20, "they are counted")
        assert greeted(run, mint) == "ok\n"
    assert not [each for each in caplog.records if each.levelname != "INFO"]


def test_a_server_stops_while_handshakes_last(mint):
    run = tls_run(mint)
    run.server.start()
    with run.connect() as raw:
        raw.sendall(b"\x16")
        run.server.stop(1)
        with suppress(ConnectionError):
            assert not raw.recv(100)
