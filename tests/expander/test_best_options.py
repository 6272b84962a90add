"""cluster-autoscaler's expander protocol: bytes of a real one, the rule of choice, bad input."""

from __future__ import annotations

import logging
import time
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.access.callers import AccessFile
from tests.expander.requests import (
    HOST,
    METHOD,
    as_before_1_34,
    asked,
    best,
    groups,
    node,
    pod,
    sample,
    written,
)
from tests.servers import Peer, served
from tests.waiting import until
from topospread.errors import DeadlineExceeded
from topospread.generated.cluster_autoscaler import expander_pb2 as pb
from topospread.service.decisions.request import DecisionRequest
from topospread.service.simulation.scale_up import choose_options
from topospread.service.simulation.scale_up_outcomes import NodeGroupOption
from topospread_proto.v1.cluster_state_service_pb2 import ApplyObjectsRequest

ZONE = "topology.kubernetes.io/zone"
CODE = grpc.StatusCode


@pytest.fixture(scope="module")
def server():
    """Nodes in zones a and b that one web pod each fills up."""
    with served(expander_listen="127.0.0.1:0") as server:
        write(server, node("a1", cpu="1", zone="zone-a"), node("b1", cpu="1", zone="zone-b"))
        write(server, pod("on-a", "a1"), pod("on-b", "b1"))
        yield server


@pytest.fixture
def channel(server):
    """To the expander's own address."""
    with grpc.insecure_channel(server.expander_address) as channel:
        yield channel


def write(server, *manifests, cluster="default"):
    """Have the newest state contain objects."""
    with Peer(server.address) as peer:
        revision = peer.apply(*map(written, manifests), cluster=cluster)
        peer.await_revision(revision, cluster=cluster)


def refused(channel, request, **more):
    with pytest.raises(grpc.RpcError) as caught:
        best(channel, request, **more)
    return caught.value


# ------------------------------ real bytes


def test_recorded_autoscaler_request_is_answered_with_the_emptiest_zone(channel):
    answer = best(channel, sample())
    assert groups(answer) == ["ng-c"]
    debug = answer.options[0].debug
    assert debug.startswith(
        "chosen of 3 options by spread: ng-c places 1 of 1 pods with 1 node, skew 0. Others: "
    )
    assert "ng-a places 1 of 1 pods with 1 node, skew 2, 1 past maxSkew" in debug


def test_autoscalers_before_1_34_are_answered_alike(channel):
    older = as_before_1_34(sample())
    assert not older.node_bytes_map
    assert groups(best(channel, older)) == ["ng-c"]
    both = sample()
    both.MergeFrom(pb.BestOptionsRequest(node_map=older.node_map))
    assert groups(best(channel, both)) == ["ng-c"]


def test_newer_fields_win_over_older_ones(channel):
    both = sample()
    for option in both.options:
        option.pod.append(b"\xff\xff")
    both.node_map["ng-c"] = b"\xff\xff"
    assert groups(best(channel, both)) == ["ng-c"]


def test_expander_is_served_on_the_main_address(server):
    with grpc.insecure_channel(server.address) as channel:
        assert groups(best(channel, sample())) == ["ng-c"]


# ------------------------------ the rule


def test_option_that_places_most_pods_wins(channel):
    pods = [pod(f"p{number}", app="other") for number in range(6)]
    request = asked((node("small"), 1, pods), (node("large", cpu="8"), 3, pods))
    answer = best(channel, request)
    assert groups(answer) == ["large"]
    assert "small places 4 of 6 pods with 1 node, skew 0 (" in answer.options[0].debug
    assert "Insufficient cpu" in answer.options[0].debug


def test_option_with_fewest_nodes_wins_among_equals(channel):
    pods = [pod(f"p{number}", app="other") for number in range(4)]
    assert groups(best(channel, asked((node("two"), 2, pods), (node("one"), 1, pods)))) == ["one"]


def test_ties_are_all_returned_in_the_order_of_the_request(channel):
    pods = [pod("p", app="other")]
    request = asked((node("z"), 1, pods), (node("a"), 1, pods), (node("m"), 2, pods))
    answer = best(channel, request)
    assert groups(answer) == ["z", "a"]
    assert [option.node_count for option in answer.options] == [1, 1]


def test_option_with_fewer_pods_than_the_best_places_is_not_tried(channel):
    pods = [pod(f"p{number}", app="other") for number in range(3)]
    answer = best(channel, asked((node("few"), 1, pods[:1]), (node("all"), 1, pods)))
    assert groups(answer) == ["all"]
    assert "few has no more than 1 pods to place" in answer.options[0].debug


def test_nodes_of_one_template_are_hosts_of_their_own(channel):
    pods = [pod(f"p{number}", key=HOST, app="spread") for number in range(3)]
    answer = best(channel, asked((node("hosts", cpu="32"), 3, pods)))
    assert "hosts places 3 of 3 pods with 3 nodes, skew 1" in answer.options[0].debug


def test_pods_may_go_to_nodes_that_are_there():
    tiny = asked((node("tiny", cpu="100m"), 1, [pod("p", app="other")]))
    with served() as server, grpc.insecure_channel(server.address) as channel:
        write(server, node("room"))
        assert "tiny places 1 of 1 pods" in best(channel, tiny).options[0].debug


def test_all_options_are_returned_when_no_pod_fits(channel):
    pods = [pod("p", cpu="64", app="other")]
    request = asked((node("x"), 1, pods), (node("y"), 2, pods))
    assert groups(best(channel, request)) == ["x", "y"]


def test_expander_may_refuse_options_that_place_no_pod():
    flags = {"expander_veto": True, "expander_cluster": "prod"}
    with served(**flags) as server, grpc.insecure_channel(server.address) as channel:
        write(server, node("n"), cluster="prod")
        hopeless = asked((node("x"), 1, [pod("p", cpu="64")]))
        assert groups(best(channel, hopeless)) == []
        assert groups(best(channel, asked((node("x"), 1, [pod("p", cpu="1")])))) == ["x"]


def test_choice_is_logged(channel, caplog):
    with caplog.at_level(logging.INFO, "topospread.api.expander"):
        answer = best(channel, sample())
    assert f"expander: cluster default: {answer.options[0].debug}" in caplog.messages


# ------------------------------ bad input


def with_pod(encoded):
    request = sample()
    request.options[1].pod_bytes.append(encoded)
    return request


def with_template(encoded):
    request = sample()
    request.node_bytes_map["ng-b"] = encoded
    return request


def with_count(count):
    request = sample()
    request.options[0].node_count = count
    return request


def without_template():
    request = sample()
    del request.node_bytes_map["ng-a"]
    return request


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (with_pod(b"\xff\xff"), "options[1].podBytes[1]: the bytes do not parse as"),
        (with_template(b"\xff\xff"), "nodeBytesMap[ng-b]: the bytes do not parse as"),
        (with_count(-1), "options[0].nodeCount: must be between 0 and"),
        (with_count(1_000_000), "options[0].nodeCount: must be between 0 and"),
        (without_template(), "no template node is given for group 'ng-a'"),
        (pb.BestOptionsRequest(), "options: there is nothing to choose from"),
        (b"\xff\xff", "does not parse"),
    ],
)
def test_invalid_request_fails_the_call(channel, request_, text):
    error = refused(channel, request_)
    assert error.code() is CODE.INVALID_ARGUMENT
    assert text in error.details()


def test_unknown_cluster_fails_the_call():
    with served() as server, grpc.insecure_channel(server.address) as channel:
        assert refused(channel, sample()).code() is CODE.NOT_FOUND


def test_option_without_nodes_is_tried_on_the_present_nodes(channel):
    pods = [pod("p", cpu="64", app="other")]
    assert groups(best(channel, asked((node("none"), 0, pods)))) == ["none"]


def test_expired_deadline_is_an_error(server):
    template = server.parts.replicas.get("default").view.snapshot.nodes.node(0)
    pods = [bytes(one) for one in asked((node("x"), 1, many(20))).options[0].pod_bytes]
    with pytest.raises(DeadlineExceeded):
        choose_options(
            server.parts.engine,
            DecisionRequest(deadline=time.monotonic() - 1),
            [NodeGroupOption("x", 1, pods, template)],
        )


def many(count):
    return [pod(f"p{number}", app="other") for number in range(count)]


# ------------------------------ its own address


def test_large_requests_need_the_expanders_own_address(server, channel):
    request = sample()
    # What the trimmed messages do not know is passed over, however long.
    unknown = b"\x82\xfa\x01" + varint(20 << 20) + b"x" * (20 << 20)
    request.options[0].pod_bytes[0] += unknown
    assert groups(best(channel, request)) == ["ng-c"]
    with grpc.insecure_channel(server.address) as main:
        assert refused(main, request).code() is CODE.RESOURCE_EXHAUSTED


def varint(number):
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def test_health_is_served_on_the_expanders_address(channel):
    health: Any = health_pb2_grpc.HealthStub(channel)
    answer = health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_callers_that_send_nothing_keep_no_autoscaler_out(server, channel):
    with Peer(server.expander_address) as peer:
        silent: list[Any] = [peer.silent_call(METHOD) for _ in range(6)]
        until(lambda: sum(call.done() for call in silent) >= 2, "two are carried out, two wait")
        assert best(channel, sample()).options
        ended = [call for call in silent if call.done()]
        assert {call.code() for call in ended} == {CODE.RESOURCE_EXHAUSTED}
        for call in silent:
            call.cancel()


def test_expander_asks_for_neither_token_nor_certificate(tmp_path):
    authority = trustme.CA()
    pem = {name: tmp_path / name for name in ("ca", "cert", "key")}
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(pem["ca"])
    issued.cert_chain_pems[0].write_to_path(pem["cert"])
    issued.private_key_pem.write_to_path(pem["key"])
    access = AccessFile(tmp_path / "access.json", known=["decide@prod", "write"])
    access.add("other", "decide@other")
    access.write()
    flags = {
        "tls_cert": str(pem["cert"]),
        "tls_key": str(pem["key"]),
        "access_file": str(access),
        "expander_cluster": "prod",
    }
    trusts = grpc.ssl_channel_credentials(pem["ca"].read_bytes())
    with served(**flags, expander_listen="127.0.0.1:0") as server:
        with Peer(server.address, trusts) as peer:
            objects = [written(node("n"))]
            request = ApplyObjectsRequest(cluster="prod", objects=objects)
            peer.state.ApplyObjects(request, metadata=access.bearer("known"))
        with grpc.secure_channel(server.expander_address, trusts) as channel:
            assert len(groups(best(channel, sample()))) == 3
        with grpc.secure_channel(server.address, trusts) as main:
            assert refused(main, sample()).code() is CODE.UNAUTHENTICATED
            other = refused(main, sample(), metadata=access.bearer("other"))
            assert other.code() is CODE.PERMISSION_DENIED
            assert len(groups(best(main, sample(), metadata=access.bearer("known")))) == 3
