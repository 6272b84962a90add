"""Where a client connects to, what protects the connection, and why it fails: gRPC's own text, a
hint, and a reason for programs.
"""

from __future__ import annotations

import math
from contextlib import contextmanager

import grpc
import pytest
import trustme

from bench.campaigns.proxy import Proxy
from tests.client.scripted import scripted
from tests.servers import served
from tests.wrong_peers import Certificates, answer, listening
from topospread_client import BadConnection, Connection, NotFound, Tls, Unavailable
from topospread_client import _connection as connections
from topospread_client._connection import is_local
from topospread_client._methods import METHODS
from topospread_proto.v1.server_service_pb2 import GetServerInfoResponse

ANSWER = GetServerInfoResponse(version="1.2.3")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A CA, a server's certificate for another name than its address, and a client's."""
    folder = tmp_path_factory.mktemp("pki")
    ca = trustme.CA()
    server, client = ca.issue_cert("topospread.example"), ca.issue_cert("caller@example.org")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name, issued in (("server", server), ("client", client)):
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        for number, part in enumerate(issued.cert_chain_pems):
            part.write_to_path(folder / f"{name}.pem", append=number > 0)
    (folder / "text").write_text("no certificate")
    return folder


def server_credentials(files, *, mutual):
    pair = ((files / "server.key").read_bytes(), (files / "server.pem").read_bytes())
    roots = (files / "ca.pem").read_bytes() if mutual else None
    return grpc.ssl_server_credentials([pair], roots, require_client_auth=mutual)


@pytest.mark.parametrize("mutual", [False, True], ids=["server certificate", "both certificates"])
def test_tls_checks_the_servers_name_and_shows_the_clients(connect, files, mutual):
    tls = Tls(
        ca=files / "ca.pem",
        cert=files / "client.pem" if mutual else None,
        key=files / "client.key" if mutual else None,
        server_name="topospread.example",
    )
    with scripted(server_credentials(files, mutual=mutual)) as script:
        script.answer(METHODS["GetServerInfo"], ANSWER)
        assert connect(Connection(script.address, tls)).get_server_info().version == "1.2.3"


@pytest.mark.parametrize(
    "tls",
    [
        pytest.param(lambda files: Tls(ca=files / "ca.pem"), id="another name"),
        pytest.param(lambda files: Tls(server_name="topospread.example"), id="unknown CA"),
        pytest.param(lambda files: None, id="plain text"),
    ],
)
def test_connection_that_fails_verification_is_not_used(connect, files, tls):
    with scripted(server_credentials(files, mutual=False)) as script:
        script.answer(METHODS["GetServerInfo"], ANSWER)
        with pytest.raises(Unavailable):
            connect(Connection(script.address, tls(files), retries=False)).get_server_info()
        assert script.calls(METHODS["GetServerInfo"]) == 0


def test_a_server_that_asks_for_a_certificate_gets_no_call_without_one(connect, files):
    tls = Tls(ca=files / "ca.pem", server_name="topospread.example")
    with scripted(server_credentials(files, mutual=True)) as script:
        script.answer(METHODS["GetServerInfo"], ANSWER)
        with pytest.raises(Unavailable):
            connect(Connection(script.address, tls, retries=False)).get_server_info()
        assert script.calls(METHODS["GetServerInfo"]) == 0


@pytest.mark.parametrize(
    ("connection", "complaint"),
    [
        (lambda files: Connection("10.0.0.7:7946"), "not on this machine"),
        (lambda files: Connection("  "), "write HOST:PORT"),
        (lambda files: Connection("h:1", Tls(ca=files / "none.pem")), "No such file"),
        (lambda files: Connection("h:1", Tls(ca=files / "text")), "not a PEM file"),
        (lambda files: Connection("h:1", Tls(cert=files / "client.pem")), "cert is given without"),
        (lambda files: Connection("h:1", Tls(key=files / "client.key")), "key is given without"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(connect, files, connection, complaint):
    with pytest.raises(BadConnection, match=complaint):
        connect(connection(files))


def test_a_key_that_is_not_the_certificates_is_refused_with_the_reason(connect, tmp_path):
    for name in ("one", "two"):
        issued = trustme.CA().issue_cert("caller@example.org")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    tls = Tls(cert=tmp_path / "one.pem", key=tmp_path / "two.key")
    with pytest.raises(BadConnection, match=r"(?i)key.values.mismatch"):
        connect(Connection("h:1", tls))


def test_plain_text_to_another_machine_must_be_asked_for(connect):
    assert connect(Connection("10.0.0.7:7946", insecure=True))


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:7946", True),
        ("127.8.9.1:1", True),
        ("localhost:7946", True),
        ("localhost", True),
        ("[::1]:7946", True),
        ("::1", True),
        ("unix:/run/topospread.sock", True),
        ("dns:///localhost:7946", True),
        ("ipv4:127.0.0.1:7946", True),
        ("ipv4:127.0.0.1:7946,127.0.0.2:7946", True),
        ("ipv6:[::1]:7946,[::1]:7947", True),
        ("ipv4:127.0.0.1:7946,10.0.0.1:7946", False),
        ("10.0.0.1:7946", False),
        ("dns:///topospread.prod:7946", False),
        ("dns:7946", False),
        ("[2001:db8::1]:7946", False),
        ("localhost.example.org:7946", False),
    ],
)
def test_local_addresses_are_recognized(address, local):
    assert is_local(address) is local


@pytest.mark.parametrize("option", ["connect_timeout", "max_reconnect_backoff", "keepalive"])
@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_invalid_times_of_a_connection_are_refused(connect, option, seconds):
    with pytest.raises(BadConnection, match=option):
        connect(Connection("127.0.0.1:1", **{option: seconds}))


def _issue(folder, authority, *believed):
    """A client's certificate, and the authorities that everybody believes."""
    issued = authority.issue_cert("caller@example.org")
    (folder / "client.key").write_bytes(issued.private_key_pem.bytes())
    (folder / "client.pem").write_bytes(issued.cert_chain_pems[0].bytes())
    (folder / "ca.pem").write_bytes(b"".join(each.cert_pem.bytes() for each in believed))


@contextmanager
def _certified(folder, authority):
    """A server with a certificate of an authority, which believes callers that it signed."""
    issued = authority.issue_cert("127.0.0.1")
    pair = (issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())
    roots = authority.cert_pem.bytes()
    credentials = grpc.ssl_server_credentials([pair], roots, require_client_auth=True)
    with scripted(credentials) as script:
        script.answer(METHODS["GetServerInfo"], ANSWER)
        yield script


def test_replaced_certificates_are_used(connect, tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "RELOAD_INTERVAL", 0.0)
    old, new = trustme.CA(), trustme.CA()
    _issue(tmp_path, old, old)
    tls = Tls(tmp_path / "ca.pem", tmp_path / "client.pem", tmp_path / "client.key")
    with _certified(tmp_path, old) as first, _certified(tmp_path, new) as second:
        client = connect(Connection(f"ipv4:{first.address}", tls, retries=False, keepalive=60))
        both = connect(Connection(second.address, tls, retries=False))
        assert client.get_server_info().version == "1.2.3"
        with pytest.raises(Unavailable):
            both.get_server_info()
        _issue(tmp_path, new, old, new)
        assert both.get_server_info(timeout=60).version == "1.2.3"


def test_half_written_files_leave_the_former_ones_in_use(connect, tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "RELOAD_INTERVAL", 0.0)
    authority = trustme.CA()
    _issue(tmp_path, authority, authority)
    names = ("ca.pem", "client.pem", "client.key")
    tls = Tls(*(tmp_path / name for name in names))
    with _certified(tmp_path, authority) as script:
        client = connect(Connection(script.address, tls, retries=False))
        assert client.get_server_info()
        for name in names:
            whole = (tmp_path / name).read_bytes()
            for written in (b"", whole[: len(whole) // 2], b"no PEM"):
                (tmp_path / name).write_bytes(written)
                assert client.get_server_info().version == "1.2.3"
            (tmp_path / name).unlink()
            assert client.get_server_info().version == "1.2.3"
            (tmp_path / name).write_bytes(whole)
        other = trustme.CA().issue_cert("caller@example.org")
        (tmp_path / "client.key").write_bytes(other.private_key_pem.bytes())
        assert client.get_server_info().version == "1.2.3"


def test_a_token_file_that_is_being_written_leaves_the_former_token(connect, script, tmp_path):
    script.answer(METHODS["GetServerInfo"], ANSWER)
    path = tmp_path / "token"
    path.write_text("first")
    client = connect(Connection(script.address, token_file=path))
    client.get_server_info()
    with path.open("w") as file:
        client.get_server_info()
        file.write("\n")
        file.flush()
        client.get_server_info()
    path.unlink()
    client.get_server_info()
    path.write_text("second")
    client.get_server_info()
    shown = [metadata["authorization"] for _, _, metadata in script.seen]
    assert shown == ["Bearer first"] * 4 + ["Bearer second"]


def test_silent_connection_is_closed(connect):
    with served() as server, Proxy(server.address) as proxy:
        connection = Connection(proxy.address, keepalive=5, keepalive_timeout=2)
        client = connect(connection, timeout=60)
        client.get_server_info()
        proxy.silence()
        watch = client.watch_objects(timeout=60)
        with pytest.raises(NotFound):
            next(watch)
        assert client.get_server_info()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("pki"))


OURS = {"ca": "ca.pem"}
FOREIGN = {**OURS, "cert": "foreign.pem", "key": "foreign.key"}
SERVER = {"certificate": "server"}
MUTUAL = {"certificate": "server", "mutual": True}

FAILED = {
    "TLS to plain text": ({}, OURS, "TLS_NOT_SERVED", "does not speak TLS"),
    "another CA": (
        SERVER,
        {"ca": "foreign-ca.pem"},
        "SERVER_CERTIFICATE_NOT_TRUSTED",
        "not of the CA that is given",
    ),
    "expired": (
        {"certificate": "expired"},
        OURS,
        "SERVER_CERTIFICATE_NOT_TRUSTED",
        "has expired.*not valid now",
    ),
    "another name": (
        {"certificate": "other-name"},
        OURS,
        "SERVER_CERTIFICATE_FOR_OTHER_NAME",
        "for another name",
    ),
    "plain text to TLS": (SERVER, None, "CONNECTION_CLOSED", "speaks TLS alone"),
    "no client certificate": (MUTUAL, OURS, "CONNECTION_CLOSED", "client's certificate"),
    "another client certificate": (MUTUAL, FOREIGN, "CONNECTION_CLOSED", "client's certificate"),
}


@pytest.mark.parametrize(("server", "options", "reason", "hint"), FAILED.values(), ids=FAILED)
def test_a_failed_connection_has_a_reason_and_a_hint(
    connect, certificates, server, options, reason, hint
):
    tls = options and Tls(**{key: certificates.file(name) for key, name in options.items()})
    with (
        served(**(certificates.server(**server) if server else {})) as running,
        pytest.raises(Unavailable, match=hint) as failed,
    ):
        connect(Connection(running.address, tls, retries=False)).get_server_info()
    assert (failed.value.reason, failed.value.reached) == (reason, False)


def test_a_server_for_http_is_no_grpc_server(connect):
    peer = answer(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    with listening(peer) as address, pytest.raises(Unavailable, match="speaks HTTP/1") as failed:
        connect(Connection(address, retries=False)).get_server_info()
    assert failed.value.reason == "NOT_GRPC"


def test_a_closed_port_has_no_reason(connect):
    with pytest.raises(Unavailable, match="Connection refused") as failed:
        connect(Connection("127.0.0.1:1", retries=False)).get_server_info()
    assert failed.value.reason is None
