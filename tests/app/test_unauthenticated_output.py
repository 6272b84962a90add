"""What strangers send does not reach a server's stdout or stderr as they sent it."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme

from tests.access.callers import AccessFile
from tests.app.certificates import Mint
from tests.app.handshakes import FORGED, hello
from tests.cli.processes import environment
from tests.servers import Peer
from tests.waiting import PATIENCE
from topospread.telemetry.logs import MAX_LINE
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMES = 60
"""Connections of each kind to each listener."""

LINES = 120
"""That a server may write meanwhile: of strangers 100 at once, and ten a second."""


def hellos() -> Iterator[bytes]:
    for name in (FORGED + b"\x1b[31m", b"\x9b\x00\x07\r\n" + FORGED, b"\xff" * 200):
        for protocols in (["h2"], ["http/1.1"], ["\x1b[31m\n" + "x" * 200], ["h2", "grpc-exp"]):
            yield hello(name, protocols)
    yield b"\x16\x03\x01" + b"\xff" * 4000
    yield FORGED + b"\n\x1b[31m\n\n"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x04\xff\xff\x7f\xff\xff\xff\x1b[31"


FRAMES = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x06\x04\x00\x00\x00\x00\x01\x1b[31m\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    b"\x00\x00\x08\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\x1b[31",
    b"GET /\x1b[31m\x9b" + FORGED + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA\x00\x1b: " + FORGED + b"\r\n\r\n",
    b"POST /extender/v1/filter HTTP/1.1\r\nHost: x\r\nContent-Length: -\x1b\r\n\r\n",
    b"GET /" + b"\x1b" * 70_000 + b" HTTP/1.1\r\n\r\n",
    FORGED * 1000,
]
METADATA = [
    (("grpc-timeout", "9" * 8 + "S"),),
    (("x-bin", b"\x00\x1b\x9b" * 1000),),
    (("authorization", "Bearer " + FORGED.decode()),),
    (("user-agent", "x" * 4000), ("grpc-encoding", "nothing"), ("grpc-accept-encoding", "x" * 99)),
    (("traceparent", "00-" + "g" * 3000),),
]
PATHS = [
    "/a/b",
    "/" + "x" * 6000,
    "/topospread.v1.ClusterStateService/\u2028\u202e",
    "//",
    "/\x7f/\x7f",
]


def sent(address: str, data: bytes, context: ssl.SSLContext | None = None) -> None:
    """Send bytes, within TLS or not, and hang up."""
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), PATIENCE) as connection:
        if context is None:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
            return
        with context.wrap_socket(connection) as secure:
            secure.sendall(data)
            secure.settimeout(0.2)
            secure.recv(1)


def contexts(directory: Path, protocol: str) -> Iterator[ssl.SSLContext]:
    """Of callers without a certificate, and with one of an authority that nobody knows."""
    for foreign in (False, True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([protocol])
        if foreign:
            own = trustme.CA().issue_cert("x.org", common_name="evil\x1b[31m" + "x" * 40)
            own.private_key_and_cert_chain_pem.write_to_path(str(directory / "own.pem"))
            context.load_cert_chain(str(directory / "own.pem"))
        yield context


@pytest.mark.parametrize("asks", [False, True], ids=["tls", "mutual tls"])
def test_unauthenticated_callers_write_nothing(tmp_path, asks):
    mint = Mint(tmp_path)
    access = AccessFile(tmp_path / "access.yaml", admin=["admin"])
    flags = ["--tls-cert", mint.cert, "--tls-key", mint.key]
    flags += ["--client-ca", mint.ca] if asks else []
    flags += ["--access-file", str(access), "--log-format", "json"]
    flags += ["--store", f"sqlite:///{tmp_path}/state.db", "--extender", "filter"]
    for listener in ("--listen", "--http", "--extender-listen", "--expander-listen"):
        flags += [listener, "127.0.0.1:0"]
    with (
        (tmp_path / "stderr").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "topospread", "serve", *flags],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(5)]
            places = [line.split()[-1].split("//")[-1].partition("/")[0] for line in said[:4]]
            first = list(hellos())
            for address in places:
                for number in range(TIMES):
                    for data in first if number == 0 else first[:1]:
                        sent(address, data)
                for protocol in ("h2", "http/1.1"):
                    for context in contexts(tmp_path, protocol):
                        for data in FRAMES:
                            sent(address, data, context)
            strange(places[0], mint)
        finally:
            process.terminate()
            rest = process.stdout.read() if process.stdout is not None else ""
            process.wait(PATIENCE)
    assert [line for line in rest.splitlines() if line] == []
    written = (tmp_path / "stderr").read_bytes().splitlines()
    assert len(written) <= LINES
    for line in written:
        assert len(line) <= MAX_LINE
        assert not any(byte < 0x20 or byte >= 0x7F for byte in line), line
        reported = json.loads(line)
        assert {"time", "level", "logger", "message"} <= set(reported)
        assert reported.get("caller") != "root"


def strange(address: str, mint: Mint) -> None:
    """Calls of an unauthenticated caller, or of one whose certificate has no usable names."""
    raw = pb.ListClustersRequest().SerializeToString()
    with Peer(address, mint.credentials(mint.client())) as peer:
        for metadata in METADATA:
            for path in ("/topospread.v1.ClusterStateService/ListClusters", *PATHS):
                with suppress(grpc.RpcError, ValueError, UnicodeError):
                    call: Any = peer.channel.unary_unary(path)
                    call(raw, metadata=metadata, timeout=PATIENCE)
