"""Certificates that change while a server runs, that are wrong, and connections that break off."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
import trustme

from tests.app.certificates import NOTHING, Mint
from tests.servers import Peer, ServerProcess, served
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread.rpc import server as grpc_server
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

CODE = grpc.StatusCode
FILES = "topospread_file_last_reload_successful"


def asked(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    """How a call over a new connection ends."""
    with Peer(address, credentials) as peer:
        try:
            peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return CODE.OK


def browsed(address: str, context: ssl.SSLContext) -> str:
    """What /livez says over a new connection, or the kind of error."""
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE) as raw,
            context.wrap_socket(raw, server_hostname=host) as connection,
        ):
            connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            said = b""
            while more := connection.recv(4096):
                said += more
            return said.decode().splitlines()[-1] if said else "closed"
    except (ssl.SSLError, ConnectionError) as error:
        return type(error).__name__


@pytest.fixture
def mint(tmp_path: Path) -> Mint:
    return Mint(tmp_path)


def test_new_certificates_hold_for_new_connections_and_old_ones_go_on(mint):
    old, mine = mint.authority, mint.client()
    with (
        served(**mint.flags, http="127.0.0.1:0") as server,
        Peer(server.address, mint.credentials(mine)) as before,
    ):
        before.apply()
        new = mint.renew()
        assert server.reload()
        # Neither the server's certificate nor the client's is looked at again.
        before.apply()
        for trusted, shown, ends in (
            (new, mint.client(), CODE.OK),
            (old, mint.client(), CODE.UNAVAILABLE),
            (new, mine, CODE.UNAVAILABLE),
        ):
            assert asked(server.address, mint.credentials(shown, trusted=trusted)) is ends
            said = browsed(server.http_address, mint.context(shown, trusted=trusted))
            assert (said == "ok") is (ends is CODE.OK)
        before.apply()


def test_new_certificates_are_found_without_a_signal(mint):
    with served(**mint.flags, http="127.0.0.1:0") as server:
        mint.renew()
        mine = mint.client()
        until(
            lambda: asked(server.address, mint.credentials(mine)) is CODE.OK,
            "gRPC shows the new one",
        )
        until(lambda: browsed(server.http_address, mint.context(mine)) == "ok", "HTTP, too")


def test_invalid_certificates_leave_the_old_ones(mint):
    mine = mint.client()
    good = {name: Path(path).read_bytes() for name, path in mint.flags.items()}
    with served(**mint.flags, http="127.0.0.1:0") as server:

        def in_force() -> float:
            found = value(server.metrics.expose()[0], FILES, files="certificates")
            assert found is not None
            return found

        other = trustme.CA().issue_cert("127.0.0.1").private_key_pem.bytes()
        for name, content in (
            ("key.pem", other),
            ("key.pem", b"no pem"),
            ("cert.pem", b""),
            ("cert.pem", b"\xff"),
            ("ca.pem", b"-----BEGIN CERTIFICATE-----\n"),
        ):
            mint.put(name, content)
            assert not server.reload()
            assert in_force() == 0.0
            assert asked(server.address, mint.credentials(mine)) is CODE.OK
            assert browsed(server.http_address, mint.context(mine)) == "ok"
            for flag, each in (("tls_key", "key"), ("tls_cert", "cert"), ("client_ca", "ca")):
                mint.put(f"{each}.pem", good[flag])
        assert server.reload()
        assert in_force() == 1.0


# ------------------------------ what clients show


def wrong_papers(mint: Mint) -> dict[str, tuple[bytes, bytes]]:
    now = datetime.now(UTC)
    day = timedelta(days=1)
    other = trustme.CA()
    issued = other.issue_cert("me.example.org")
    return {
        "expired": mint.client(not_before=now - 2 * day, not_after=now - day),
        "not yet": mint.client(not_before=now + day, not_after=now + 2 * day),
        "of another authority": mint.client(authority=other),
        "with a stranger's chain": (
            issued.private_key_pem.bytes(),
            issued.cert_chain_pems[0].bytes() + mint.authority.cert_pem.bytes(),
        ),
    }


def test_wrong_certificates_are_refused_by_both_listeners(mint):
    with served(**mint.flags, http="127.0.0.1:0") as server:
        for what, shown in {**wrong_papers(mint), "nothing": NOTHING}.items():
            assert asked(server.address, mint.credentials(shown)) is CODE.UNAVAILABLE, what
            assert browsed(server.http_address, mint.context(shown)) != "ok", what
        mine = mint.client()
        assert asked(server.address, mint.credentials(mine)) is CODE.OK
        assert browsed(server.http_address, mint.context(mine)) == "ok"


def test_probes_may_be_let_in_without_a_certificate(mint):
    with served(**mint.flags, http_client_ca="none", http="127.0.0.1:0") as server:
        assert browsed(server.http_address, mint.context()) == "ok"
        assert asked(server.address, mint.credentials()) is CODE.UNAVAILABLE


def test_servers_are_known_by_their_authority(mint):
    """Also where all may reach them, and only by those who speak TLS."""
    with served(**mint.tls, listen="0.0.0.0:0", http="127.0.0.1:0") as server:
        address, other = f"127.0.0.1:{server.address.rpartition(':')[2]}", trustme.CA()
        assert asked(address, mint.credentials()) is CODE.OK
        assert asked(address, mint.credentials(trusted=other)) is CODE.UNAVAILABLE
        assert asked(address, None) is CODE.UNAVAILABLE
        assert browsed(server.http_address, mint.context()) == "ok"
        assert browsed(server.http_address, mint.context(trusted=other)) != "ok"


def test_plain_text_for_others_is_served_where_it_is_spelled_out():
    with served(listen="0.0.0.0:0", insecure=True) as server:
        port = server.address.rpartition(":")[2]
        assert asked(f"127.0.0.1:{port}", None) is CODE.OK


# ------------------------------ how it is spoken


def handshake(address: str, limit: Callable[[ssl.SSLContext], None]) -> str:
    """The version and cipher that a client with these limits gets, or the kind of error."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    limit(context)
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE) as raw,
            context.wrap_socket(raw) as connection,
        ):
            return f"{connection.version()} {(connection.cipher() or '?')[0]}"
    except (ssl.SSLError, ConnectionError) as error:
        return type(error).__name__


def at_most(version: ssl.TLSVersion) -> Callable[[ssl.SSLContext], None]:
    def limit(context: ssl.SSLContext) -> None:
        context.minimum_version = min(version, ssl.TLSVersion.TLSv1_2)
        context.maximum_version = version
        context.set_ciphers("DEFAULT@SECLEVEL=0")

    return limit


def with_ciphers(names: str) -> Callable[[ssl.SSLContext], None]:
    def limit(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(f"{names}:@SECLEVEL=0")

    return limit


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_versions_and_ciphers_are_of_current_practice(mint):
    tls = ssl.TLSVersion
    with served(**mint.tls, http="127.0.0.1:0") as server:
        for address in (server.address, server.http_address):
            assert handshake(address, at_most(tls.TLSv1_3)).startswith("TLSv1.3 TLS_")
            assert handshake(address, at_most(tls.TLSv1_2)).startswith("TLSv1.2 ECDHE-")
            for old in (tls.TLSv1, tls.TLSv1_1):
                assert handshake(address, at_most(old)).endswith("Error"), (address, old)
            for weak in ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA", "ALL:!ECDHE"):
                assert handshake(address, with_ciphers(weak)).endswith("Error"), (address, weak)
            assert "GCM" in handshake(address, with_ciphers("ECDHE+AESGCM"))


def test_handshakes_that_break_off_delay_no_others(mint):
    """Half a handshake, garbage, plain HTTP: each connection is left open or cut."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    hello = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    whole = outgoing.read()
    pieces = [whole[:cut] for cut in (1, 5, 6, 50, len(whole) - 1, len(whole))]
    pieces += [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\x16\x03\x01\xff\xff" + bytes(100)]
    pieces += [whole[:20] + bytes([whole[20] ^ 0xFF]) + whole[21:], whole * 3]
    with served(**mint.tls, http="127.0.0.1:0") as server:
        opened = []
        for address in (server.address, server.http_address):
            host, _, port = address.rpartition(":")
            for piece in pieces * 3:
                raw = socket.create_connection((host, int(port)), timeout=PATIENCE)
                raw.sendall(piece)
                opened.append(raw)
            for number, raw in enumerate(opened):
                if number % 3 == 0:
                    raw.close()
        assert asked(server.address, mint.credentials()) is CODE.OK
        for raw in opened:
            raw.close()
        assert asked(server.address, mint.credentials()) is CODE.OK
        assert browsed(server.http_address, mint.context(mint.client())) == "ok"


def test_a_handshake_that_never_ends_is_ended_by_grpc(mint, monkeypatch):
    monkeypatch.setattr(grpc_server, "HANDSHAKE_MS", 300)
    with served(**mint.tls) as server, ExitStack() as opened:
        host, _, port = server.address.rpartition(":")
        for begin in (b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x02\x00\x01" + bytes(100)):
            raw = opened.enter_context(
                socket.create_connection((host, int(port)), timeout=PATIENCE)
            )
            raw.sendall(begin)
            with suppress(ConnectionError):
                while raw.recv(4096):
                    pass
        # A handshake that does go on may be late as well, on a busy machine.
        until(
            lambda: asked(server.address, mint.credentials()) is CODE.OK,
            "others are served",
        )


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_unauthenticated_callers_fill_no_log(mint, tmp_path, capfd):
    flags = ("--tls-cert", mint.cert, "--tls-key", mint.key, "--client-ca", mint.ca)
    store = f"sqlite:///{tmp_path}/state.db"
    with ServerProcess("--store", store, "--http", "127.0.0.1:0", *flags) as server:
        http = server.http.removeprefix("https://")
        capfd.readouterr()
        for _ in range(20):
            for address in (server.address, http):
                assert handshake(address, at_most(ssl.TLSVersion.TLSv1_1)).endswith("Error")
                host, _, port = address.rpartition(":")
                with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw:
                    raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    with suppress(OSError):  # it may be cut off already
                        raw.shutdown(socket.SHUT_WR)
                    with suppress(ConnectionError):
                        raw.recv(4096)
        assert asked(server.address, mint.credentials(mint.client())) is CODE.OK
        assert capfd.readouterr().err == ""
