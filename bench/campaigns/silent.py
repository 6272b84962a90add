"""Callers and probes beside connections that say nothing and come again when they are closed."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
import grpc
import httpx
import trustme

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
    "gRPC, nothing": None,
    "gRPC, a handshake": b"",
    "gRPC, a greeting": http2._PREFACE + http2._frame(http2._SETTINGS, 0, 0, b""),
    "HTTP, nothing": None,
    "HTTP, a handshake": b"",
    "HTTP, half a head": b"GET /livez HTTP/1.1\r\nhost",
    "HTTP, one request": b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n",
}
"""What silent connections begin with, after the handshake of TLS; None: not even that is made."""


@dataclass(frozen=True, slots=True)
class Tls:
    """What callers of a server with TLS use.

    Attributes:
        flags: of the server.
        authority: who signed its certificate.
    """

    flags: tuple[str, ...]
    authority: trustme.CA

    @classmethod
    def made(cls, folder: str) -> Tls:
        """A certificate for 127.0.0.1."""
        authority, pem = trustme.CA(), Path(folder, "server.pem")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
        return cls(("--tls-cert", str(pem), "--tls-key", str(pem)), authority)

    def context(self, protocol: str) -> ssl.SSLContext:
        """How clients that speak a protocol connect."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        context.set_alpn_protocols([protocol])
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """The same for gRPC."""
        return grpc.ssl_channel_credentials(self.authority.cert_pem.bytes())


class Silent:
    """So many connections that say one thing, made again when the server closes them.

    Args:
        address: of the server.
        said: what they begin with.
        many: of them.
        tls: None: they begin without a handshake.

    Attributes:
        made: connections so far.
    """

    def __init__(
        self, address: str, said: bytes, many: int, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._said = said
        self._tls = tls
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
                if self._tls is not None:
                    host, _ = self._address
                    again = self._open[at] = self._tls.wrap_socket(again, server_hostname=host)
                again.sendall(self._said)
                again.setblocking(False)


def _is_open(raw: socket.socket) -> bool:
    try:
        while raw.recv(1 << 16):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False
    return False


def _calls(server: ServerProcess, tls: Tls | None) -> bool:
    """Whether a new caller of gRPC is answered."""
    try:
        with Peer(server.address, tls.credentials() if tls else None) as caller:
            caller.engine.EvaluatePod(evaluate_request(), timeout=SECONDS)
    except grpc.RpcError:
        return False
    return True


def _probed(server: ServerProcess, tls: Tls | None) -> bool:
    """Whether a probe is."""
    verify = True if tls is None else tls.context("http/1.1")
    try:
        url = f"{server.http}/livez"
        answer = httpx.get(url, trust_env=False, timeout=SECONDS, verify=verify)
    except httpx.HTTPError:
        return False
    return answer.status_code == httpx.codes.OK


def beside(name: str, silent: int, newcomers: int, tls: Tls | None) -> dict[str, int]:
    """Count who is answered beside silent connections of one kind."""
    flags = ("--store", "memory:", "--http", "127.0.0.1:0", *(tls.flags if tls else ()))
    over_grpc, said = name.startswith("gRPC"), SAID[name]
    context = None
    if tls is not None and said is not None:
        context = tls.context("h2" if over_grpc else "http/1.1")
    with ServerProcess(*flags, **AS_SHIPPED) as server:
        with Peer(server.address, tls.credentials() if tls else None) as peer:
            peer.apply(*two_zones())
        address = server.address if over_grpc else server.http.rpartition("/")[2]
        attack = Silent(address, said or b"", silent, context)
        answered = 0
        with attack.kept():
            time.sleep(1.0)
            for _ in range(newcomers):
                answered += _calls(server, tls) if over_grpc else _probed(server, tls)
                time.sleep(0.5)
    return {"answered": answered, "of": newcomers, "connections": attack.made}


@campaign(
    "silent",
    click.option("--silent", type=click.IntRange(1), default=1100, show_default=True),
    click.option("--newcomers", type=click.IntRange(1), default=20, show_default=True),
    click.option("--tls/--no-tls", default=None, help="[default: both, one after the other]"),
)
def command(silent: int, newcomers: int, tls: bool | None) -> Outcome:
    """Open connections that say nothing, and again when closed; call and probe beside them.

    docs/security.md promises that 19 of 20 new callers of gRPC and 20 of 20 probes are answered.
    """
    open_files()
    figures, broken = {}, []
    with TemporaryDirectory() as folder:
        made = Tls.made(folder)
        kinds = [
            (kind, made if encrypted else None) for encrypted in (False, True) for kind in SAID
        ]
        for kind, used in kinds:
            if (used is None and kind.endswith("handshake")) or tls not in (None, used is not None):
                continue
            name = kind if used is None else f"{kind}, TLS"
            note(f"silent: {name}")
            figures[name] = beside(kind, silent, newcomers, used)
            answered = figures[name]["answered"]
            if answered < (newcomers * 19 // 20 if name.startswith("gRPC") else newcomers):
                broken.append(f"{name}: {answered} of {newcomers} newcomers were answered")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
