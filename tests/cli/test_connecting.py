"""A server that is not reached: one line says why and what to do, the code whose mistake it is."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.cli.conftest import check_document
from tests.cli.processes import run, serving
from tests.servers import served
from tests.wrong_peers import NAME, Certificates, answer, listening, silence

DONE, BAD_INPUT, OUT_OF_REACH = 0, 2, 3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("pki"))


OURS = ("--tls-ca", "ca.pem")
SERVER = {"certificate": "server"}
MUTUAL = {"certificate": "server", "mutual": True}
MISTAKES = {
    "TLS to plain text": ({}, OURS, "TLS_NOT_SERVED", "leave out --tls"),
    "another CA": (
        SERVER,
        ("--tls-ca", "foreign-ca.pem"),
        "SERVER_CERTIFICATE_NOT_TRUSTED",
        "not trusted (unable to get local issuer certificate): name the CA that issued it",
    ),
    "another name": (
        {"certificate": "other-name"},
        OURS,
        "SERVER_CERTIFICATE_FOR_OTHER_NAME",
        "--tls-server-name",
    ),
    "expired": (
        {"certificate": "expired"},
        OURS,
        "SERVER_CERTIFICATE_NOT_TRUSTED",
        "not trusted (certificate has expired)",
    ),
}
CLOSING = {
    "plain text to TLS": (SERVER, ()),
    "no client certificate": (MUTUAL, OURS),
    "another client certificate": (
        MUTUAL,
        (*OURS, "--tls-cert", "foreign.pem", "--tls-key", "foreign.key"),
    ),
}
"""Mistakes of which gRPC says no more than that the server closed the connection."""


def asked(bare, certificates, server, options):
    paths = [certificates.file(each) if "." in each else each for each in options]
    with served(**(certificates.server(**server) if server else {})) as running:
        said = bare("status", "--address", running.address, *paths, "-o", "json")
    error = json.loads(said.err)["error"]
    assert running.address in error["message"]
    return said.code, error


@pytest.mark.parametrize(("server", "options", "reason", "text"), MISTAKES.values(), ids=MISTAKES)
def test_tls_mistakes_are_bad_input_with_a_reason(
    bare, certificates, server, options, reason, text
):
    code, error = asked(bare, certificates, server, options)
    assert (code, error["reason"]) == (BAD_INPUT, reason)
    assert text in error["message"]


@pytest.mark.parametrize(("server", "options"), CLOSING.values(), ids=CLOSING)
def test_a_closed_connection_points_to_the_tls_options(bare, certificates, server, options):
    code, error = asked(bare, certificates, server, options)
    assert (code, error["reason"]) == (OUT_OF_REACH, "CONNECTION_CLOSED")
    assert "needs --tls-ca" in error["message"]
    assert "--tls-cert" in error["message"]


def test_another_kind_of_server_is_bad_input(bare):
    with listening(answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address:
        said = bare("status", "--address", address)
    assert said.code == BAD_INPUT
    assert said.err == (
        f"topospread: the server at {address} speaks HTTP/1, and not gRPC: name the port for"
        " gRPC (7946 unless the server was told otherwise; 7947 is for metrics and health)\n"
    )


def test_a_grpc_server_without_the_call_may_be_another_one(bare):
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        said = bare("status", "--address", f"127.0.0.1:{port}")
    finally:
        other.stop(None).wait()
    assert said.code == BAD_INPUT
    assert "it is another one, or an older version" in said.err


def test_a_silent_peer_is_out_of_reach(bare):
    with listening(silence) as address:
        said = bare("status", "--address", address, "--timeout", "1")
    assert said.code == OUT_OF_REACH
    assert said.err.startswith(f"topospread: the server at {address} did not answer in time")


@pytest.mark.parametrize("form", ["dns:///{}", "ipv4:{}", "ipv4:127.0.0.1:1,{}"])
def test_targets_of_grpc_are_addresses(bare, address, form):
    assert bare("status", "--address", form.format(address)).code == DONE


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--tls-ca", "server.key"), "server.key has no PEM certificates"),
        (("--tls-cert", "client.pem"), "a cert is given without its key"),
        (("--tls-cert", "client.pem", "--tls-key", "foreign.key"), "that belong together"),
    ],
)
def test_files_that_cannot_be_used_are_bad_input(bare, address, certificates, options, text):
    paths = [certificates.file(each) if "." in each else each for each in options]
    said = bare("status", "--address", address, *paths)
    assert said.code == BAD_INPUT
    assert text in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("token", ["", "unknown"])
def test_unknown_callers_are_pointed_to_the_token_options(bare, tmp_path, monkeypatch, token):
    access = tmp_path / "access.yaml"
    assert bare("token", "new", "--file", access, "--name", "x", "--role", "read").code == DONE
    monkeypatch.setenv("TOPOSPREAD_TOKEN", token)
    with served(access_file=str(access)) as running:
        said = bare("status", "--address", running.address, "-o", "json")
    error = json.loads(said.err)["error"]
    assert (said.code, error["code"]) == (BAD_INPUT, "UNAUTHENTICATED")
    assert "name a token with --token-file or TOPOSPREAD_TOKEN" in error["message"]


@pytest.mark.parametrize(
    "options",
    [("--tls-ca", "foreign-ca.pem"), ("--tls-ca", "ca.pem", "--tls-server-name", NAME), ("--tls",)],
    ids=" ".join,
)
def test_grpc_writes_nothing_beside_the_error(certificates, tmp_path, options):
    paths = [certificates.file(each) if ".pem" in each else each for each in options]
    files = ("--tls-cert", certificates.file("server.pem"), "--tls-key")
    with serving(
        *files, certificates.file("server.key"), "--http", "off", "--store", "memory:"
    ) as (
        _,
        address,
    ):
        said = run("status", "--address", address, *paths, "-o", "json", HOME=str(tmp_path))
    assert said.returncode == BAD_INPUT
    assert said.stderr.count("\n") == 1
    check_document(json.loads(said.stderr))


def test_no_time_out_is_inf(bare, address):
    assert bare("status", "--address", address, "--timeout", "inf").code == DONE
