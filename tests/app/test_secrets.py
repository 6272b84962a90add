"""Tokens and passwords turn up nowhere: everything that a server lets out is searched for them."""

from __future__ import annotations

import io
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.access.callers import AccessFile
from tests.servers import Peer, ServerProcess, served, two_zones
from tests.telemetry.otlp import trace_receiver
from tests.waiting import PATIENCE, until
from topospread.access.authentication import new_token
from topospread.service.state.read import StateReader
from topospread.telemetry.logs import start_logging, without_secrets
from topospread_proto.v1 import cluster_state_service_pb2 as pb

STRANGE = [
    "tsp_{id}_{secret}x",
    "tsp_{id}_{secret} ",
    "tsp_{id}_{secret}, Bearer tsp_{id}_{secret}",
    "{secret}",
]


def callers(access: AccessFile) -> list[str]:
    """Authorizations, good ones and bad ones, all of which hold a secret."""
    token = access.tokens["admin"]
    secret = token.text.rpartition("_")[2] if "_" not in token.text[21:] else token.text[21:]
    spelled = [each.format(id=token.id, secret=secret) for each in STRANGE]
    texts = [token.text, new_token().text, *spelled]
    return [f"{scheme} {text}" for text in texts for scheme in ("Bearer", "Basic", "bearer")]


def searched(access: AccessFile, said: dict[str, str]) -> None:
    token = access.tokens["admin"]
    for where, text in said.items():
        assert token.text[21:] not in text, where
        assert token.sha256 not in text, where


def called(peer: Peer, authorization: str) -> str:
    """What gRPC tells a caller."""
    method: Any = peer.channel.unary_unary
    reported = []
    for path in (
        "ClusterStateService/ListClusters",
        "ClusterStateService/GetObject",
        "DecisionService/EvaluatePod",
    ):
        for raw in (b"", b"\xff"):
            try:
                answer, call = method(f"/topospread.v1.{path}").with_call(
                    raw, metadata=(("authorization", authorization),), timeout=PATIENCE
                )
                reported.append(f"{answer!r} {call.trailing_metadata()}")
            except grpc.RpcError as error:
                reported.append(str(error) + str(error.trailing_metadata()))
    return "\n".join(reported)


def browsed(url: str, authorization: str) -> str:
    """What HTTP tells a caller."""
    reported = []
    for path in ("/metrics", "/readyz", "/nothing", f"/{authorization.split()[-1]}"):
        request = urllib.request.Request(f"{url}{path}", headers={"Authorization": authorization})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                reported.append(f"{answer.headers}{answer.read().decode()}")
        except urllib.error.HTTPError as error:
            with error:
                reported.append(f"{error.headers}{error.read().decode()}")
    return "\n".join(reported)


def test_nothing_that_a_server_lets_out_holds_a_token(tmp_path, capfd):
    access = AccessFile(tmp_path / "access.yaml", admin=["admin"])
    tracing = {"OTEL_TRACES_SAMPLER": "always_on", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    said: dict[str, str] = {}
    with trace_receiver() as receiver:
        with ServerProcess(
            *("--store", f"sqlite:///{tmp_path}/state.db", "--http", "127.0.0.1:0"),
            *("--access-file", str(access), "--log-level", "debug"),
            **tracing,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint,
        ) as server:
            with Peer(server.address) as peer:
                request = pb.ApplyObjectsRequest(objects=two_zones())
                peer.state.ApplyObjects(request, metadata=access.bearer("admin"), timeout=PATIENCE)
                for shown in callers(access):
                    said[f"gRPC {shown}"] = called(peer, shown)
            for shown in callers(access):
                said[f"HTTP {shown}"] = browsed(server.http, shown)
            said["ps"] = Path(f"/proc/{server.process.pid}/cmdline").read_text()
            # One that is refused is complained of.
            broken = access.path.read_text()
            access.path.write_text(f"{broken}\n{access.tokens['admin'].text}: [")
            server.process.send_signal(signal.SIGHUP)
            said["log"] = ""

            def complained() -> bool:
                said["log"] += capfd.readouterr().err
                return "kept generation 1" in said["log"]

            until(complained, "the broken file is told")
            server.end()
        said["traces"] = "\n".join(map(str, receiver.spans(receiver.waiting())))
    said["log"] += capfd.readouterr().err
    assert "UNAUTHENTICATED" in said[f"gRPC Basic {access.tokens['admin'].text}"]
    assert "ListClusters" in said["traces"]
    assert "access.yaml" in said["ps"]
    searched(access, said)


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_crash_that_holds_a_token_is_logged_without_it(form, tmp_path, monkeypatch):
    access = AccessFile(tmp_path / "access.yaml", admin=["admin"])
    shown = dict(access.bearer("admin"))

    def crash(*_: object) -> object:
        try:
            raise KeyError(shown["authorization"].partition(" ")[2])
        except KeyError as cause:
            raise RuntimeError(f"{shown} of redis://user:hunter2@cache:6379/0") from cause

    monkeypatch.setattr(StateReader, "clusters", crash)
    stream = io.StringIO()
    output = start_logging("debug", form, stream)
    try:
        with (
            served(access_file=str(access)) as server,
            Peer(server.address) as peer,
            pytest.raises(grpc.RpcError) as failed,
        ):
            peer.state.ListClusters(
                pb.ListClustersRequest(), metadata=access.bearer("admin"), timeout=PATIENCE
            )
    finally:
        output.close()
    said = {"log": stream.getvalue(), "error": f"{failed.value} {failed.value.trailing_metadata()}"}
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert "RuntimeError" in said["log"]
    assert "hunter2" not in said["log"] + said["error"]
    searched(access, said)


@pytest.mark.parametrize("around", ["{}", "x {} y", "'{}'", '{{"a":"{}"}}', "id={},", "Bearer {}"])
def test_a_token_is_blanked_wherever_it_stands(around):
    for _ in range(50):
        token = new_token()
        shown = without_secrets(around.format(token.text))
        assert token.text[21:] not in shown
        assert "***" in shown
