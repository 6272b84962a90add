"""Connections that fail: gRPC's own text, a hint, and a reason for programs."""

from __future__ import annotations

import pytest

from tests.servers import served
from tests.wrong_peers import Certificates, answer, listening
from topospread_client import Connection, Tls, Unavailable


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
