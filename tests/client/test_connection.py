"""Where a client connects to, and what protects the connection."""

from __future__ import annotations

import grpc
import pytest
import trustme

from tests.client.scripted import scripted
from topospread_client import rpcs
from topospread_client.connection import Connection, Tls, is_local
from topospread_client.errors import BadConnection, Unavailable
from topospread_proto.v1.cluster_state_pb2 import ListClustersResponse

ANSWER = ListClustersResponse(server_version="1.2.3")


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
        script.answer(rpcs.LIST_CLUSTERS, ANSWER)
        assert connect(Connection(script.address, tls)).clusters().server_version == "1.2.3"


@pytest.mark.parametrize(
    "tls",
    [
        pytest.param(lambda files: Tls(ca=files / "ca.pem"), id="another name"),
        pytest.param(lambda files: Tls(server_name="topospread.example"), id="unknown CA"),
        pytest.param(lambda files: None, id="plain text"),
    ],
)
def test_a_connection_that_is_not_what_was_asked_for_is_not_used(connect, files, tls):
    with scripted(server_credentials(files, mutual=False)) as script:
        script.answer(rpcs.LIST_CLUSTERS, ANSWER)
        with pytest.raises(Unavailable):
            connect(Connection(script.address, tls(files), retries=False)).clusters()
        assert script.calls(rpcs.LIST_CLUSTERS) == 0


def test_a_server_that_asks_for_a_certificate_gets_no_call_without_one(connect, files):
    tls = Tls(ca=files / "ca.pem", server_name="topospread.example")
    with scripted(server_credentials(files, mutual=True)) as script:
        script.answer(rpcs.LIST_CLUSTERS, ANSWER)
        with pytest.raises(Unavailable):
            connect(Connection(script.address, tls, retries=False)).clusters()
        assert script.calls(rpcs.LIST_CLUSTERS) == 0


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
def test_which_addresses_are_this_machine(address, local):
    assert is_local(address) is local
