"""Servers with an access file: who is let in, to what, and what strangers learn."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.access.callers import AccessFile
from tests.app.all_calls import methods_of_the_api
from tests.app.certificates import Mint
from tests.errors.error_status import error_status
from tests.servers import (
    Peer,
    node,
    replacement,
    served,
    two_zones,
)
from tests.waiting import PATIENCE, until
from topospread.generated.internal.v1 import frames_pb2
from topospread_client import (
    BadConnection,
    Client,
    Connection,
    Unauthenticated,
)
from topospread_proto.v1 import cluster_state_service_pb2

CODE = grpc.StatusCode
ROLES = {
    "DecisionService": "decide",
    "PlannerService": "decide",
    "InspectorService": "read",
    "PlacementService": "place",
    "PlacementService/GetReservation": "read",
    "PlacementService/ListReservations": "read",
    "ServerService": "read",
    "ClusterStateService": "read",
    "ClusterStateService/ApplyObjects": "write",
    "ClusterStateService/DeleteObjects": "write",
    "ClusterStateService/ReplaceObjects": "write",
    "ClusterStateService/DeleteCluster": "admin",
}
CALLS = [
    (f"/topospread.v1.{name}", ROLES.get(name) or ROLES[name.partition("/")[0]])
    for name in methods_of_the_api()
]
UNKNOWN = ["/topospread.v1.ClusterStateService/Nothing", "/nothing.Nothing/Nothing", "/a/b/c"]
LIST = "/topospread.v1.ClusterStateService/ListClusters"
OF_ALL = ("/ListClusters", "/GetServerInfo")
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
BELOW = {"read": None, "decide": "write", "place": "decide", "write": "decide", "admin": "write"}
"""A role that does not include the one that is asked for."""


@pytest.fixture(scope="module")
def access(tmp_path_factory):
    return AccessFile(
        tmp_path_factory.mktemp("access") / "access.yaml",
        read=["read"],
        decide=["decide"],
        place=["place"],
        write=["write"],
        admin=["admin"],
        none=["admin@elsewhere"],
        bound=["admin@ours", "read@shown"],
    )


@pytest.fixture(scope="module")
def server(access):
    with (
        served(access_file=str(access), http="127.0.0.1:0") as server,
        Peer(server.address) as peer,
    ):
        for cluster in ("default", "ours", "shown"):
            request = cluster_state_service_pb2.ApplyObjectsRequest(
                cluster=cluster, objects=two_zones()
            )
            peer.state.ApplyObjects(request, metadata=access.bearer("admin"), timeout=PATIENCE)
        yield server


@pytest.fixture(scope="module")
def peer(server):
    with Peer(server.address) as peer:
        yield peer


def ended(peer: Peer, path: str, metadata, raw: bytes | None = b"") -> Any:
    """A call with one message, or none, after at most one answer; ``answer`` holds that."""
    method: Any = peer.channel.stream_stream(path)
    call = method(iter([] if raw is None else [raw]), timeout=PATIENCE, metadata=metadata)
    call.path = path
    try:
        call.answer = next(call, None)
    except grpc.RpcError:
        call.answer = None
    else:
        call.cancel()
    return call


def answered(call) -> bool:
    """Whether the caller was let in and got an answer, after which it may have hung up."""
    return call.answer is not None and call.code() in {CODE.OK, CODE.CANCELLED}


def about(path: str, cluster: str) -> bytes:
    """A request about a cluster, and otherwise empty."""
    if path.endswith("/ReplaceObjects"):
        return replacement(cluster=cluster)[0].SerializeToString()
    if path.endswith("/WatchObjects"):
        # One that ends at once.
        request = cluster_state_service_pb2.WatchObjectsRequest(cluster=cluster, revision="none")
        return request.SerializeToString()
    return frames_pb2.ClusterFrame(cluster=cluster).SerializeToString()


UNAUTHENTICATED_CALLERS = {
    "nothing": (),
    "empty": (("authorization", ""),),
    "no scheme": (("authorization", "tsp_0000000000000000_x"),),
    "unknown": (("authorization", "Bearer tsp_0000000000000000_x"),),
    "basic": (("authorization", "Basic YTpi"),),
    "other header": (("x-token", "Bearer x"),),
}


@pytest.mark.parametrize("shown", UNAUTHENTICATED_CALLERS.values(), ids=UNAUTHENTICATED_CALLERS)
def test_an_unauthenticated_caller_learns_nothing_but_health(peer, shown):
    stub: Any = health_pb2_grpc.HealthStub(peer.channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(), metadata=shown, timeout=PATIENCE)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    for path in [*(path for path, _ in CALLS), *UNKNOWN, REFLECTION]:
        for raw in (b"", b"\xff", None):
            call = ended(peer, path, shown, raw)
            assert call.code() is CODE.UNAUTHENTICATED
            assert call.details() == "a valid token or client certificate is needed"
            trailers = {key for key, _ in call.trailing_metadata()}
            assert trailers <= {"traceparent", "grpc-status-details-bin"}
            found = error_status(call)
            found.check("CREDENTIALS_MISSING")
            assert found.metadata == {}


@pytest.mark.parametrize(("path", "role"), CALLS)
def test_each_call_needs_its_role(peer, access, path, role):
    allowed = ended(peer, path, access.bearer(role), about(path, "nowhere"))
    assert allowed.code() not in {CODE.PERMISSION_DENIED, CODE.UNAUTHENTICATED}
    if (below := BELOW[role]) is not None:
        refused = ended(peer, path, access.bearer(below))
        assert (refused.code(), refused.details()) == (
            CODE.PERMISSION_DENIED,
            f"the role {role} is missing",
        )


@pytest.mark.parametrize(("path", "role"), [each for each in CALLS if not each[0].endswith(OF_ALL)])
def test_a_role_of_one_cluster_is_worth_nothing_in_another(peer, access, path, role):
    there = ended(peer, path, access.bearer("admin"), about(path, "nowhere"))
    if there.code() is CODE.UNIMPLEMENTED:
        pytest.skip("this version does not have it")
    for cluster, named in (("", "default"), ("other", "other")):
        call = ended(peer, path, access.bearer("bound"), about(path, cluster))
        said = f"the role {role} is missing for cluster {named!r}"
        assert (call.code(), call.details()) == (CODE.PERMISSION_DENIED, said)
    if not path.endswith("DeleteCluster"):
        call = ended(peer, path, access.bearer("bound"), about(path, "ours"))
        assert call.code() not in {CODE.PERMISSION_DENIED, CODE.UNAUTHENTICATED}
    if role != "read":
        call = ended(peer, path, access.bearer("bound"), about(path, "shown"))
        assert call.code() is CODE.PERMISSION_DENIED


def test_a_cluster_that_is_named_twice_is_judged_as_it_is_read(peer, access):
    # Of a field that comes twice the last one holds, for the check as well as for the call.
    raw = about("", "ours") + about("", "default")
    call = ended(
        peer, "/topospread.v1.ClusterStateService/GetNodeTable", access.bearer("bound"), raw
    )
    assert call.code() is CODE.PERMISSION_DENIED
    call = ended(
        peer,
        "/topospread.v1.ClusterStateService/GetNodeTable",
        access.bearer("bound"),
        b"\x0a\x01\xff",
    )
    assert call.code() is CODE.INVALID_ARGUMENT


def test_clusters_are_listed_as_far_as_they_may_be_read(peer, access):
    def listed(name):
        answer = peer.state.ListClusters(
            cluster_state_service_pb2.ListClustersRequest(),
            metadata=access.bearer(name),
            timeout=PATIENCE,
        )
        return {cluster.name for cluster in answer.clusters}

    assert listed("read") >= {"default", "ours", "shown"}
    assert listed("bound") == {"ours", "shown"}
    assert listed("none") == set()


def test_reflection_takes_the_role_read(peer, access):
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(peer.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = stub.ServerReflectionInfo(
        iter([request]), metadata=access.bearer("read"), timeout=PATIENCE
    )
    assert len(next(iter(answers)).list_services_response.service) >= 5


@pytest.mark.parametrize("path", UNKNOWN)
def test_an_unknown_method_is_unimplemented_for_known_callers(peer, access, path):
    assert ended(peer, path, access.bearer("read")).code() is CODE.UNIMPLEMENTED


REASONS = {401: "CREDENTIALS_MISSING", 403: "ROLE_MISSING", 404: "METHOD_NOT_SERVED"}


def text_of(error: dict[str, Any], reason: str) -> str:
    """The text of an error that says no more than its reason."""
    (detail,) = error.pop("Details")
    assert detail["reason"] == reason
    (text,) = error.values()
    return str(text)


def page(server, path: str, token: str | None = None) -> tuple[int, str, str]:
    """Status, text and challenge of a page."""
    request = urllib.request.Request(f"http://{server.http_address}{path}")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode(), ""
    except urllib.error.HTTPError as error:
        with error:
            body = error.read().decode()
            if error.headers["Content-Type"] == "application/json":
                body = text_of(json.loads(body), REASONS[error.code])
            return error.code, body, error.headers.get("WWW-Authenticate", "")


@pytest.mark.parametrize("path", ["/", "/metrics", "/metrics/", "/nothing", "//livez", "/livez/x"])
def test_pages_but_health_need_authentication(server, access, path):
    for token in (None, "", "tsp_0000000000000000_x", "x" * 4000):
        said = (401, "a valid token or client certificate is needed", "Bearer")
        assert page(server, path, token) == said
    assert page(server, path, access.tokens["admin"].text)[0] in {200, 404}


def test_health_is_open_and_says_no_more_than_that(server):
    assert page(server, "/livez")[:2] == (200, "ok\n")
    assert page(server, "/readyz")[:2] == (200, "ok\n")


def test_reasons_are_for_those_who_may_read(access, tmp_path):
    with served(access_file=str(access), http="127.0.0.1:0") as server:
        server._ready = False
        assert page(server, "/readyz")[:2] == (503, "not well\n")
        assert page(server, "/readyz", access.tokens["bound"].text)[:2] == (503, "not well\n")
        assert page(server, "/readyz", access.tokens["read"].text)[:2] == (503, "loading\n")


def test_metrics_name_all_clusters_and_need_read_in_all(server, access):
    assert page(server, "/metrics", access.tokens["read"].text)[0] == 200
    refused = page(server, "/metrics", access.tokens["bound"].text)
    assert refused[:2] == (403, "the role read is missing for all clusters")


def test_paths_of_others_need_decide(server, access):
    assert page(server, "/filter", access.tokens["decide"].text)[0] == 404
    assert page(server, "/filter", access.tokens["read"].text)[:2] == (
        403,
        "the role decide is missing",
    )


# ------------------------------ changes


def test_tokens_come_and_go_while_the_server_runs(tmp_path):
    access = AccessFile(tmp_path / "access.yaml", first=["read"])
    with served(access_file=str(access)) as server, Peer(server.address) as peer:

        def code(name):
            call = ended(peer, LIST, access.bearer(name))
            return CODE.OK if answered(call) else call.code()

        access.add("second", "read")
        assert (code("first"), code("second")) == (CODE.OK, CODE.UNAUTHENTICATED)
        access.write()
        assert server.reload()
        assert (code("first"), code("second")) == (CODE.OK, CODE.OK)
        access.remove("first")
        access.write()
        until(lambda: code("first") is CODE.UNAUTHENTICATED, "the file is read again by itself")
        access.path.write_text("broken")
        assert not server.reload()
        assert code("second") is CODE.OK


def test_watch_of_a_revoked_token_ends(tmp_path):
    access = AccessFile(tmp_path / "access.yaml", watcher=["read"], w=["write"])
    with served(access_file=str(access)) as server, Peer(server.address) as peer:
        applied = cluster_state_service_pb2.ApplyObjectsRequest(objects=two_zones())
        peer.state.ApplyObjects(applied, metadata=access.bearer("w"), timeout=PATIENCE)
        watch = peer.state.WatchObjects(
            cluster_state_service_pb2.WatchObjectsRequest(),
            metadata=access.bearer("watcher"),
            timeout=PATIENCE,
        )
        access.remove("watcher")
        access.write()
        assert server.reload()
        with pytest.raises(grpc.RpcError) as failed:
            for _ in watch:
                pass
        assert failed.value.code() is CODE.UNAUTHENTICATED


# ------------------------------ certificates


def test_certificates_are_identified_by_their_names(tmp_path):
    mint, access = Mint(tmp_path), AccessFile(tmp_path / "access.yaml", token=["admin"])
    access.certificate("decide", commonName="scheduler")
    access.certificate("read", alternativeName="reader.example.org")
    access.certificate("read", commonName="prometheus")
    access.write()
    with served(**mint.flags, access_file=str(access), http="127.0.0.1:0") as server:

        def code(path: str, shown, metadata=()):
            with Peer(server.address, mint.credentials(shown)) as peer:
                raw = about(path, "default")
                call = ended(peer, f"/topospread.v1.{path}", metadata, raw)
                return CODE.OK if answered(call) else call.code()

        scheduler = mint.client(common_name="scheduler")
        assert code("DecisionService/EvaluatePod", scheduler) is CODE.INVALID_ARGUMENT
        assert code("ClusterStateService/ApplyObjects", scheduler) is CODE.PERMISSION_DENIED
        reader = mint.client("reader.example.org")
        assert code("ClusterStateService/ListClusters", reader) is CODE.OK
        assert code("DecisionService/EvaluatePod", reader) is CODE.PERMISSION_DENIED
        unauthenticated = mint.client("other.example.org", common_name="reader.example.org")
        assert code("ClusterStateService/ListClusters", unauthenticated) is CODE.UNAUTHENTICATED
        # What a token says goes before what a certificate says, for better or worse.
        found = code("ClusterStateService/DeleteCluster", reader, access.bearer("token"))
        assert found is CODE.NOT_FOUND  # there is no cluster
        bad = (("authorization", "Bearer nothing"),)
        assert code("ClusterStateService/ListClusters", reader, bad) is CODE.UNAUTHENTICATED
        for name, status in (("prometheus", 200), ("other", 401)):
            shown = mint.context(mint.client(common_name=name))
            with httpx.Client(verify=shown, trust_env=False, timeout=PATIENCE) as browser:
                answer = browser.get(f"https://{server.http_address}/metrics")
            assert answer.status_code == status


# ------------------------------ the client


def test_the_client_shows_its_token_with_each_call(server, access, tmp_path):
    token = access.tokens["admin"].text
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    for connection in (
        Connection(server.address, token=token),
        Connection(server.address, token_file=file),
    ):
        assert token not in repr(connection)
        with Client(connection) as client:
            assert list(client.list_clusters())
            client.apply_objects([node("more", "a")], cluster="client")
            assert list(client.list_objects("NODE", cluster="client"))
            found = client.evaluate_pod({"metadata": {"name": "p"}}, cluster="client")
            assert found.node_count == 1
    with Client(server.address) as client, pytest.raises(Unauthenticated, match="valid token"):
        client.get_server_info()


def test_a_client_takes_up_an_exchanged_token(server, access, tmp_path):
    file = tmp_path / "token"
    file.write_text("not-yet")
    with Client(Connection(server.address, token_file=file)) as client:
        with pytest.raises(Unauthenticated):
            list(client.list_clusters())
        file.write_text(access.tokens["read"].text)
        assert list(client.list_clusters())
        file.unlink()
        assert list(client.list_clusters())


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff", b"a\0b", b"a\nb"])
def test_a_file_that_holds_no_token_is_refused_without_showing_it(content, tmp_path):
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(BadConnection, match="token") as refused:
        Client(Connection("127.0.0.1:1", token_file=file))
    assert "two words" not in str(refused.value)
    with pytest.raises(BadConnection, match="cannot be read"):
        Client(Connection("127.0.0.1:1", token_file=tmp_path / "nothing"))
    with pytest.raises(BadConnection, match="one of them"):
        Client(Connection("127.0.0.1:1", token="x", token_file=file))
