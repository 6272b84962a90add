"""TLS and mutual TLS on both listeners, and what is refused without."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme

from tests.servers import Peer, served, settings
from tests.waiting import PATIENCE
from topospread.errors import ConfigError
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb

if TYPE_CHECKING:
    from collections.abc import Iterator

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class Papers:
    """Certificates of one authority, as files and as bytes.

    Attributes:
        ca: the authority's certificate.
        flags: for a server that shows the authority's certificate for 127.0.0.1.
    """

    def __init__(self, directory: Path, name: str) -> None:
        authority = trustme.CA()
        server, caller = authority.issue_cert("127.0.0.1"), authority.issue_cert("me@example.org")
        files = {
            "ca": authority.cert_pem,
            "server": server.private_key_and_cert_chain_pem,
            "caller": caller.private_key_and_cert_chain_pem,
        }
        self.paths = {what: str(directory / f"{name}-{what}.pem") for what in files}
        for what, blob in files.items():
            blob.write_to_path(self.paths[what])
        self.ca = authority.cert_pem.bytes()
        self._caller = Path(self.paths["caller"]).read_bytes()
        self.flags = {"tls_cert": self.paths["server"], "tls_key": self.paths["server"]}

    def trusting(self, shown: Papers | None = None) -> grpc.ChannelCredentials:
        """Of a caller that trusts this authority, and shows a certificate of another, or none."""
        own = (None, None) if shown is None else (shown._caller, shown._caller)
        return grpc.ssl_channel_credentials(self.ca, *own)

    def context(self, shown: Papers | None = None) -> ssl.SSLContext:
        """The same for HTTP."""
        context = ssl.create_default_context(cafile=self.paths["ca"])
        if shown is not None:
            context.load_cert_chain(shown.paths["caller"])
        return context


@pytest.fixture
def ours(tmp_path: Path) -> Papers:
    return Papers(tmp_path, "ours")


@pytest.fixture
def foreign(tmp_path: Path) -> Papers:
    return Papers(tmp_path, "foreign")


def ask(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    """The status of a call to a server with these credentials."""
    with Peer(address, credentials) as peer:
        try:
            peer.state.ListClusters(state_pb.ListClustersRequest(), timeout=PATIENCE)
        except grpc.RpcError as error:
            return code_of(error)
    return grpc.StatusCode.OK


def code_of(error: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = error.code()
    return code


def browse(address: str, context: ssl.SSLContext) -> int:
    """The status of a page, 0 when the server hung up."""
    try:
        with urllib.request.urlopen(
            f"https://{address}/livez", timeout=PATIENCE, context=context
        ) as answer:
            status: int = answer.status
            return status
    except (urllib.error.URLError, ssl.SSLError, ConnectionError):
        return 0


def test_a_server_with_a_certificate_speaks_to_those_who_trust_it(ours, foreign):
    with served(**ours.flags, http="127.0.0.1:0") as server:
        assert ask(server.address, ours.trusting()) is grpc.StatusCode.OK
        assert ask(server.address, foreign.trusting()) is UNAVAILABLE
        assert ask(server.address, None) is UNAVAILABLE
        assert browse(server.http_address, ours.context()) == 200
        assert browse(server.http_address, foreign.context()) == 0


@pytest.fixture
def mutual(ours: Papers) -> Iterator[tuple[str, str]]:
    flags = {**ours.flags, "client_ca": ours.paths["ca"], "http": "127.0.0.1:0"}
    with served(**flags) as server:
        yield server.address, server.http_address


def test_with_a_client_ca_only_those_it_signed_may_call(mutual, ours, foreign):
    grpc_address, http_address = mutual
    assert ask(grpc_address, ours.trusting(ours)) is grpc.StatusCode.OK
    assert ask(grpc_address, ours.trusting()) is UNAVAILABLE
    assert ask(grpc_address, ours.trusting(foreign)) is UNAVAILABLE
    assert browse(http_address, ours.context(ours)) == 200
    assert browse(http_address, ours.context()) == 0
    assert browse(http_address, ours.context(foreign)) == 0


def test_probes_may_be_let_in_without_a_certificate(ours):
    flags = {**ours.flags, "client_ca": ours.paths["ca"], "http_client_ca": "none"}
    with served(**flags, http="127.0.0.1:0") as server:
        assert browse(server.http_address, ours.context()) == 200
        assert ask(server.address, ours.trusting()) is UNAVAILABLE


@pytest.mark.parametrize("flag", ["listen", "http"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:7946", "example.org:7946"])
def test_plain_text_that_others_can_reach_must_be_spelled_out(flag, address):
    with pytest.raises(ConfigError, match=r"can be reached from other machines.*--insecure"):
        settings(**{flag: address})
    assert settings(**{flag: address, "insecure": True}).insecure


def test_spelled_out_it_is_served():
    with served(listen="0.0.0.0:0", insecure=True) as server:
        port = server.address.rpartition(":")[2]
        assert ask(f"127.0.0.1:{port}", None) is grpc.StatusCode.OK


def test_with_tls_other_machines_may_reach_it(ours):
    with served(**ours.flags, listen="0.0.0.0:0") as server:
        port = server.address.rpartition(":")[2]
        assert ask(f"127.0.0.1:{port}", ours.trusting()) is grpc.StatusCode.OK
