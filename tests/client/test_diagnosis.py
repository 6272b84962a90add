"""Why calls reach no server: told from the options, in words and by a reason."""

from __future__ import annotations

import asyncio

import pytest

from tests.servers import served
from tests.waiting import PATIENCE
from tests.wrong_peers import (
    NAME,
    Certificates,
    Drip,
    answer,
    banner,
    hang_up,
    listening,
    silence,
)
from topospread_client import BadConnection, Connection, Tls, Unavailable


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def tls(certificates):
    """TLS options from names of the certificates."""

    def options(**named):
        name = named.pop("server_name", None)
        return Tls(
            **{what: certificates.file(file) for what, file in named.items()}, server_name=name
        )

    return options


OURS = {"ca": "ca.pem"}
SHOWN = {**OURS, "cert": "client.pem", "key": "client.key"}
FOREIGN = {**OURS, "cert": "foreign.pem", "key": "foreign.key"}

UNFIT = {
    "TLS to plain text": ({}, OURS, "TLS_NOT_SERVED", "speaks plain text"),
    "plain text to TLS": ({"certificate": "server"}, None, "TLS_REQUIRED", "speaks TLS only"),
    "plain text to mutual TLS": (
        {"certificate": "server", "mutual": True},
        None,
        "TLS_REQUIRED",
        "speaks TLS only",
    ),
    "another CA": (
        {"certificate": "server"},
        {"ca": "foreign-ca.pem"},
        "SERVER_CERTIFICATE_NOT_TRUSTED",
        "is not trusted by the CA in .*foreign-ca.pem",
    ),
    "no CA": (
        {"certificate": "server"},
        {},
        "SERVER_CERTIFICATE_NOT_TRUSTED",
        "is not trusted by gRPC's built-in CAs",
    ),
    "another name": (
        {"certificate": "other-name"},
        OURS,
        "SERVER_CERTIFICATE_FOR_OTHER_NAME",
        f"is for {NAME}, and not for 127.0.0.1",
    ),
    "another name is given": (
        {"certificate": "server"},
        {**OURS, "server_name": NAME},
        "SERVER_CERTIFICATE_FOR_OTHER_NAME",
        f"is for 127.0.0.1, and not for {NAME}",
    ),
    "a name that none is for": (
        {"certificate": "server"},
        {**OURS, "server_name": "a..b"},
        "SERVER_CERTIFICATE_FOR_OTHER_NAME",
        "a..b is no name that a certificate can be for",
    ),
    "expired": (
        {"certificate": "expired"},
        OURS,
        "SERVER_CERTIFICATE_EXPIRED",
        "not valid now: certificate has expired",
    ),
    "no client certificate": (
        {"certificate": "server", "mutual": True},
        OURS,
        "CLIENT_CERTIFICATE_REQUIRED",
        "asks for a client certificate, and none is given",
    ),
    "another authority's client certificate": (
        {"certificate": "server", "mutual": True},
        FOREIGN,
        "CLIENT_CERTIFICATE_REFUSED",
        "does not accept the client certificate in .*foreign.pem",
    ),
}


@pytest.mark.parametrize(("server", "options", "reason", "text"), UNFIT.values(), ids=UNFIT)
def test_options_that_do_not_fit_the_server_are_distinguished(
    connect, certificates, tls, server, options, reason, text
):
    with served(**(certificates.server(**server) if server else {})) as running:
        connection = Connection(
            running.address, None if options is None else tls(**options), retries=False
        )
        with pytest.raises(Unavailable):
            connect(connection).get_server_info()
        found = connection.diagnose(PATIENCE)
    assert isinstance(found, BadConnection)
    assert found.reason == reason
    with pytest.raises(BadConnection, match=text):
        raise found


def test_roots_that_cannot_be_read_are_no_reason(monkeypatch, certificates):
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", certificates.file("missing.pem"))
    with served(**certificates.server("server")) as running:
        found = Connection(running.address, Tls()).diagnose(PATIENCE)
    assert found is not None
    assert found.reason == "SERVER_CERTIFICATE_NOT_TRUSTED"
    assert "gRPC's built-in CAs" in str(found)


FIT = {
    "plain text": ({}, None),
    "TLS": ({"certificate": "server"}, OURS),
    "the name is given": ({"certificate": "other-name"}, {**OURS, "server_name": NAME}),
    "mutual TLS": ({"certificate": "server", "mutual": True}, SHOWN),
}


@pytest.mark.parametrize(("server", "options"), FIT.values(), ids=FIT)
def test_nothing_is_found_where_calls_are_answered(connect, certificates, tls, server, options):
    with served(**(certificates.server(**server) if server else {})) as running:
        connection = Connection(running.address, None if options is None else tls(**options))
        assert connect(connection).get_server_info().version
        assert connection.diagnose(PATIENCE) is None


OTHERS = {
    "HTTP/1": (
        answer(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        "an HTTP/1 server",
    ),
    "a store": (answer(b"-ERR unknown command 'PRI'\r\n"), "no gRPC server"),
    "a short answer": (answer(b"-ERR\n"), "no gRPC server"),
    "mail": (banner, "no gRPC server"),
}


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain text", "TLS"])
@pytest.mark.parametrize(("peer", "text"), OTHERS.values(), ids=OTHERS)
def test_other_servers_are_named(tls, peer, text, encrypted):
    with listening(peer) as address:
        found = Connection(address, tls(**OURS) if encrypted else None).diagnose(PATIENCE)
    assert isinstance(found, BadConnection)
    assert found.reason == "NOT_GRPC"
    assert text in str(found)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain text", "TLS"])
def test_the_port_for_metrics_is_no_grpc_server(certificates, tls, encrypted):
    settings = certificates.server("server") if encrypted else {}
    with served(http="127.0.0.1:0", **settings) as running:
        address = str(running.http_address)
        found = Connection(address, tls(**OURS) if encrypted else None).diagnose(PATIENCE)
    assert found is not None
    assert found.reason == "NOT_GRPC"
    assert "an HTTP/1 server answers" in str(found)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain text", "TLS"])
@pytest.mark.parametrize(
    ("peer", "text"), [(silence, "nothing is said"), (hang_up, "closed without a word")]
)
def test_a_peer_that_says_nothing_is_out_of_reach(tls, peer, text, encrypted):
    with listening(peer) as address:
        found = Connection(address, tls(**OURS) if encrypted else None).diagnose(0.5)
    assert isinstance(found, Unavailable)
    assert found.reason == "OUT_OF_REACH"
    # On a busy machine the time may end before it is certain that the peer is silent.
    assert text in str(found) or "no answer in time" in str(found)


def test_a_peer_that_speaks_byte_by_byte_is_not_heard_to_the_end():
    peer = Drip()
    with listening(peer) as address:
        found = Connection(address).diagnose(1.5)
    assert found is not None
    # A frame's head has nine bytes, and each comes within the time for one.
    assert peer.sent < 9


@pytest.mark.parametrize("port", ["99999", "²", "9" * 5000])
def test_port_that_is_no_number_of_one_is_refused(port):
    with pytest.raises(BadConnection, match="is no port"):
        Connection(f"localhost:{port}").diagnose()
    found = Connection(f"dns:///localhost:{port}").diagnose(PATIENCE)
    assert isinstance(found, Unavailable)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1:1", "127.0.0.1:1: Connection refused"),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", "127.0.0.1:1: Connection refused"),
        ("dns:///127.0.0.1:1", "127.0.0.1:1: Connection refused"),
        ("ipv6:[::1]:1", "[::1]:1: "),
        ("unix:///no/such.sock", "/no/such.sock: No such file"),
        ("no-such-host.invalid:1", "no-such-host.invalid:1: "),
    ],
)
def test_closed_ports_are_reported(address, text):
    found = Connection(address, insecure=True).diagnose(PATIENCE)
    assert isinstance(found, Unavailable)
    assert found.reason == "OUT_OF_REACH"
    assert str(found).startswith(text)


def test_one_server_of_several_that_answers_is_enough():
    with served() as running:
        address = f"ipv4:127.0.0.1:1,{running.address}"
        assert Connection(address).diagnose(PATIENCE) is None


def test_options_are_found_wrong_before_servers_are_found_away(tls):
    with served() as running:
        connection = Connection(f"ipv4:127.0.0.1:1,{running.address}", tls(**OURS))
        found = connection.diagnose(PATIENCE)
    assert found is not None
    assert found.reason == "TLS_NOT_SERVED"


def test_nothing_is_claimed_of_what_goes_by_a_proxy(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    connection = Connection("no-such-host.invalid:1", insecure=True)
    assert connection.diagnose(PATIENCE) is None
    monkeypatch.setenv("no_proxy", "example.org,.invalid")
    assert connection.diagnose(PATIENCE) is not None


def test_diagnosis_runs_beside_an_event_loop():
    async def look():
        return await asyncio.to_thread(Connection("127.0.0.1:1").diagnose)

    assert "Connection refused" in str(asyncio.run(look()))
