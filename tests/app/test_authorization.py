"""Every way into a server: what strangers get, each role, and who belongs to one cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml
from google.protobuf.json_format import ParseDict
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.access.callers import AccessFile
from tests.app.all_calls import Call, all_calls, messages
from tests.expander.requests import sample
from tests.servers import Peer, incoming, node, pod, served, two_zones
from tests.waiting import PATIENCE
from topospread_client import pod_from_manifest
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    server_service_pb2,
    server_service_pb2_grpc,
)
from topospread_proto.v1 import decision_service_pb2 as engine_pb

CASES = yaml.load((Path(__file__).parent / "authorization.yaml").read_text(), yaml.CSafeLoader)
CALLERS = ("unauthenticated", "read", "decide", "place", "write", "admin", "ours")
SECRET = "hidden"
"""The name of a cluster, and part of the name of all that is in it."""
ABSENT = "absent"
"""As long, and the name of none."""


@pytest.fixture(scope="module")
def access(tmp_path_factory):
    return AccessFile(
        tmp_path_factory.mktemp("access") / "access.yaml",
        read=["read"],
        decide=["decide"],
        place=["place"],
        write=["write"],
        admin=["admin"],
        ours=["admin@ours"],
    )


@pytest.fixture(scope="module")
def server(access):
    """One with all of its watcher, that has two clusters."""
    listening = dict.fromkeys(("http", "expander_listen"), "127.0.0.1:0")
    with (
        served(
            **listening, access_file=str(access), extender="filter", expander_cluster=SECRET
        ) as server,
        Peer(server.address) as peer,
    ):
        fill(peer, access)
        yield server


@pytest.fixture(scope="module")
def beside(access):
    """One whose extender has an address of its own."""
    with served(extender_listen="127.0.0.1:0", access_file=str(access)) as server:
        yield server


def fill(peer: Peer, access: AccessFile) -> None:
    nodes = [node(f"{SECRET}-{name}", f"{SECRET}-zone") for name in "ab"]
    hidden = [*nodes, pod(f"{SECRET}-pod", f"{SECRET}-a")]
    for cluster, objects in (("ours", two_zones()), (SECRET, hidden)):
        request = cluster_state_service_pb2.ApplyObjectsRequest(cluster=cluster, objects=objects)
        peer.state.ApplyObjects(request, metadata=access.bearer("admin"), timeout=PATIENCE)


def bearer(access: AccessFile, caller: str) -> tuple[tuple[str, str], ...]:
    return () if caller == "unauthenticated" else access.bearer(caller)


# ------------------------------ one by one


def cases(case: str, what: str) -> list[Any]:
    return [
        pytest.param(each[what], caller, each[caller], id=f"{each[what]} {caller}")
        for each in CASES[case]
        for caller in CALLERS
        if caller in each
    ]


def status_of_page(address: str, path: str, access: AccessFile, caller: str) -> int:
    headers = dict(bearer(access, caller))
    url = f"http://{address}{path}"
    return httpx.get(url, headers=headers, trust_env=False, timeout=PATIENCE).status_code


@pytest.mark.parametrize(("path", "caller", "status"), cases("pages", "path"))
def test_pages(server, access, path, caller, status):
    assert status_of_page(server.http_address, path, access, caller) == status


@pytest.mark.parametrize(("path", "caller", "status"), cases("extender", "path"))
def test_pages_of_the_extenders_own_address(beside, access, path, caller, status):
    assert status_of_page(beside.extender_address, path, access, caller) == status


REQUESTS = {
    "ServerReflectionInfo": reflection_pb2.ServerReflectionRequest(list_services=""),
    "Check": health_pb2.HealthCheckRequest(),
    "Watch": health_pb2.HealthCheckRequest(),
    "BestOptions": sample(),
}


def end_of_call(address: str, call: str, metadata: Any) -> str:
    request = REQUESTS.get(call.rpartition("/")[2])
    raw = b"" if request is None else request.SerializeToString()
    with Peer(address) as peer:
        method: Any = peer.channel.stream_stream(f"/{call}")
        answers = method(iter([raw]), metadata=metadata, timeout=PATIENCE)
        try:
            next(answers)
        except grpc.RpcError:
            code: str = answers.code().name
            return code
        answers.cancel()
    return "answers"


@pytest.mark.parametrize(("call", "caller", "end"), cases("calls", "call"))
def test_calls(server, access, call, caller, end):
    assert end_of_call(server.address, call, bearer(access, caller)) == end


@pytest.mark.parametrize(("call", "caller", "end"), cases("expander", "call"))
def test_calls_of_the_expanders_own_address(server, access, call, caller, end):
    assert end_of_call(server.expander_address, call, bearer(access, caller)) == end


def test_an_expander_port_without_authentication_is_logged_at_the_start(access, caplog):
    more = {"access_file": str(access), "insecure": True, "expander_cluster": SECRET}
    with served(**more, expander_listen="127.0.0.1:0"):
        pass
    assert "without a token" not in caplog.text
    with served(**more, expander_listen="0.0.0.0:0"):
        pass
    assert f"answers about cluster {SECRET} without a token" in caplog.text


# ------------------------------ one cluster's own


NONE = {"revision": "none"}
"""What stands for that which answers reported."""


def of_cluster(request: dict[str, Any], cluster: str) -> dict[str, Any]:
    """The same request about another cluster, and at no revision in particular."""
    found: dict[str, Any] = {key: NONE.get(key, each) for key, each in request.items()}
    if "start" in found:
        found["start"] = {**found["start"], "cluster": cluster}
    if "evaluate" in found:
        found["evaluate"] = of_cluster(found["evaluate"], cluster)
    return found | ({"cluster": cluster} if "cluster" in found else {})


def heard(peer: Peer, step: Call, cluster: str, metadata: Any) -> list[str]:
    """All that comes back of a call about a cluster."""
    sent, answered = messages(step.call)
    asked = [of_cluster(each, cluster) for each in step.requests]
    requests = [ParseDict(each, sent()) for each in asked]
    method: Any = peer.channel.stream_stream(f"/{step.call}")
    raws = iter([each.SerializeToString() for each in requests])
    call = method(raws, metadata=metadata, timeout=PATIENCE)
    found = []
    try:
        for answer in call:
            message = answered.FromString(answer)
            found.append(f"{answer!r} {message}")
            if "/Watch" in step.call:
                call.cancel()  # it does not end by itself
    except grpc.RpcError:
        pass
    return [*found, f"{call.code()} {call.details()} {call.trailing_metadata()}"]


def asked_by_our_own() -> list[Call]:
    """All calls but what ends a cluster, and what is about no cluster of ours."""
    left_out = ("DeleteCluster", "BestOptions")
    return [step for step in all_calls() if not step.call.endswith(left_out)]


def test_callers_of_one_cluster_learn_of_no_other(server, access):
    with Peer(server.address) as peer:
        ours = access.bearer("ours")
        answered = 0
        for step in asked_by_our_own():
            texts = heard(peer, step, "ours", ours)
            assert SECRET not in "".join(texts), step.call
            answered += len(texts) > 1
    assert answered > 20, "it is no caller to whom all is closed"
    headers = dict(ours)
    with httpx.Client(base_url=f"http://{server.http_address}", trust_env=False) as browser:
        for path in ("/", "/metrics", "/livez", "/readyz", "/nothing", "/extender/v1/ours/filter"):
            for ask in (browser.get, browser.post):
                page = ask(path, headers=headers, timeout=PATIENCE)
                assert SECRET not in f"{page.text} {page.headers}", path


def test_of_a_cluster_that_is_not_theirs_they_hear_what_they_asked_and_no_more(server, access):
    """Whether it is there is told as little: another one is refused in the same words."""
    metadata = access.bearer("ours")
    with Peer(server.address) as peer:
        for step in asked_by_our_own():
            if step.call.endswith(("ListClusters", "GetServerInfo")):
                continue
            there, elsewhere = (
                heard(peer, step, cluster, metadata) for cluster in (SECRET, ABSENT)
            )
            plain = [without_trace(each.replace(SECRET, ABSENT)) for each in there]
            assert plain == list(map(without_trace, elsewhere)), step.call
            # What holds both kinds of quotes is shown with backslashes.
            assert f"is missing for cluster {ABSENT!r}" in plain[0].replace("\\", ""), step.call


def without_trace(text: str) -> str:
    return re.sub(r"[0-9a-f]{32}-[0-9a-f]{16}", "", text)


def test_pages_about_all_clusters_need_the_role_for_all(server, access):
    with Peer(server.address) as peer:
        servers: Any = server_service_pb2_grpc.ServerServiceStub(peer.channel)
        for caller, everything in (("read", True), ("ours", False)):
            reported = servers.GetServerInfo(
                server_service_pb2.GetServerInfoRequest(),
                metadata=access.bearer(caller),
                timeout=PATIENCE,
            )
            assert bool(reported.store) is everything


def test_a_cycle_of_another_cluster_is_as_good_as_none(server, access):
    with Peer(server.address) as peer:
        asked = engine_pb.PreFilterRequest(
            cluster=SECRET, pod=common_pb2.PodSource(object=pod_from_manifest(incoming()))
        )
        begun = peer.engine.PreFilter(asked, metadata=access.bearer("admin"), timeout=PATIENCE)
        stolen = engine_pb.FilterRequest(cluster="ours", cycle=begun.cycle)
        with pytest.raises(grpc.RpcError) as refused:
            peer.engine.Filter(stolen, metadata=access.bearer("ours"), timeout=PATIENCE)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_page_of_another_cluster_leads_into_ones_own(server, access):
    with Peer(server.address) as peer:
        listed = cluster_state_service_pb2.ListObjectsRequest(
            cluster=SECRET, kind=common_pb2.KIND_NODE, page_size=1
        )
        page = peer.state.ListObjects(listed, metadata=access.bearer("admin"), timeout=PATIENCE)
        assert page.next_page_token
        step = Call(
            "topospread.v1.ClusterStateService/ListObjects",
            [{"cluster": "", "kind": "KIND_NODE", "page_token": page.next_page_token}],
        )
        for text in heard(peer, step, "ours", access.bearer("ours")):
            assert SECRET not in text
