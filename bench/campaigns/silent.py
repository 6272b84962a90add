"""Callers and probes beside connections that say nothing and come again when they are closed."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import click
import grpc
import httpx

from bench import http2
from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.measured import AS_SHIPPED
from bench.campaigns.memory import open_files
from tests.servers import Peer, ServerProcess, evaluate_request, two_zones

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 5.0
"""For an answer to a newcomer."""

PAUSE: Final = 0.05
"""Seconds between two rounds in which closed connections are made again."""

SAID: Final = {
    "gRPC, nothing": b"",
    "gRPC, a greeting": http2._PREFACE + http2._frame(http2._SETTINGS, 0, 0, b""),
    "HTTP, nothing": b"",
    "HTTP, half a head": b"GET /livez HTTP/1.1\r\nhost",
    "HTTP, one request": b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n",
}
"""What silent connections begin with."""


class Silent:
    """So many connections that say one thing, made again when the server closes them.

    Attributes:
        made: connections so far.
    """

    def __init__(self, address: str, said: bytes, many: int) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._said = said
        self._open: list[socket.socket | None] = [None] * many
        self._over = threading.Event()
        self.made = 0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While they are there."""
        self._round()
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            for raw in self._open:
                if raw is not None:
                    raw.close()

    def _run(self) -> None:
        while not self._over.wait(PAUSE):
            self._round()

    def _round(self) -> None:
        for at, raw in enumerate(self._open):
            if raw is not None and _is_open(raw):
                continue
            if raw is not None:
                raw.close()
            self._open[at] = None
            with suppress(OSError):
                again = self._open[at] = socket.create_connection(self._address, SECONDS)
                self.made += 1
                again.sendall(self._said)
                again.setblocking(False)


def _is_open(raw: socket.socket) -> bool:
    try:
        while raw.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _calls(server: ServerProcess) -> bool:
    """Whether a new caller of gRPC is answered."""
    try:
        with Peer(server.address) as caller:
            caller.engine.EvaluatePod(evaluate_request(), timeout=SECONDS)
    except grpc.RpcError:
        return False
    return True


def _probed(server: ServerProcess) -> bool:
    """Whether a probe is."""
    try:
        url = f"{server.http}/livez"
        return httpx.get(url, trust_env=False, timeout=SECONDS).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


@campaign(
    "silent",
    click.option("--silent", type=click.IntRange(1), default=1100, show_default=True),
    click.option("--newcomers", type=click.IntRange(1), default=20, show_default=True),
)
def command(silent: int, newcomers: int) -> Outcome:
    """Open connections that say nothing, and again when closed; call and probe beside them.

    docs/security.md promises that 19 of 20 new callers of gRPC and 20 of 20 probes are answered.
    """
    open_files()
    figures, broken = {}, []
    for name, said in SAID.items():
        note(f"silent: {name}")
        flags = ("--store", "memory:", "--http", "127.0.0.1:0")
        with ServerProcess(*flags, **AS_SHIPPED) as server:
            with Peer(server.address) as peer:
                peer.apply(*two_zones())
            over_grpc = name.startswith("gRPC")
            address = server.address if over_grpc else server.http.rpartition("/")[2]
            attack = Silent(address, said, silent)
            answered = 0
            with attack.kept():
                time.sleep(1.0)
                for _ in range(newcomers):
                    answered += _calls(server) if over_grpc else _probed(server)
                    time.sleep(0.5)
            figures[name] = {"answered": answered, "of": newcomers, "connections": attack.made}
            if answered < (newcomers * 19 // 20 if over_grpc else newcomers):
                broken.append(f"{name}: {answered} of {newcomers} newcomers were answered")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
