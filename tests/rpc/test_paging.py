"""Pages: a token is bound to its list; invalid sizes are refused."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.errors.error_status import error_status
from tests.rpc.conftest import Running
from tests.servers import Peer, node, pod, served, two_zones
from tests.waiting import PATIENCE
from topospread_client import pod_from_manifest
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2, placement_service_pb2_grpc
from topospread_proto.v1 import placement_service_pb2 as placement_pb

if TYPE_CHECKING:
    from collections.abc import Iterator

PODS = 23


def labelled(**labels: str) -> kube.LabelSelector:
    return kube.LabelSelector(match_labels=labels)


class Lists:
    """The three lists of a server that has much of everything."""

    def __init__(self, running: Any) -> None:
        peer = running.peer
        self.executors = running.server.pools.executors
        places: Any = placement_service_pb2_grpc.PlacementServiceStub(peer.channel)
        for cluster in ("one", "two"):
            peer.apply(*two_zones()[:3], cluster=cluster)
            peer.apply(*(pod(f"p{n:02}", "a1") for n in range(PODS)), cluster=cluster)
            revision = peer.apply(node("c1", "c"), cluster=cluster)
            peer.await_revision(revision, cluster)
            for number in range(PODS):
                manifest = {
                    "metadata": {
                        "name": f"held-{number:02}",
                        "namespace": "default" if number else "another",
                        "labels": {"odd": str(number % 2)},
                    },
                    "kind": "Pod",
                    "apiVersion": "v1",
                }
                wanted = common_pb2.PodSource(object=pod_from_manifest(manifest))
                request = placement_pb.ReserveNodeRequest(cluster=cluster, pod=wanted, node="a1")
                self.last = places.ReserveNode(request, timeout=PATIENCE).meta.revision
            peer.await_revision(self.last, cluster)
        for number in range(PODS):
            peer.apply(node("n", "a"), cluster=f"c{number:02}")
        self.calls: dict[str, Any] = {
            "ListObjects": peer.state.ListObjects,
            "ListReservations": places.ListReservations,
            "ListClusters": peer.state.ListClusters,
        }


REQUESTS: dict[str, Any] = {
    "ListObjects": pb.ListObjectsRequest(cluster="one", kind=common_pb2.KIND_POD),
    "ListReservations": placement_pb.ListReservationsRequest(cluster="one"),
    "ListClusters": pb.ListClustersRequest(),
}

COUNTS = {"ListObjects": PODS, "ListReservations": PODS, "ListClusters": PODS + 3}


@pytest.fixture(scope="module")
def lists() -> Iterator[Lists]:
    """Of one server for all: nothing is written."""
    with served() as server, Peer(server.address) as peer:
        yield Lists(Running(server, peer))


def asked(name: str, **more: Any) -> Any:
    request = type(REQUESTS[name])()
    request.CopyFrom(REQUESTS[name])
    request.MergeFrom(type(request)(**more))
    return request


def content(answer: Any) -> list[Any]:
    (field,) = {"objects", "reservations", "clusters"} & set(answer.DESCRIPTOR.fields_by_name)
    return list(getattr(answer, field))


@pytest.mark.parametrize("name", ["ListObjects", "ListReservations"])
def test_lists_that_grow_with_the_cluster_have_threads_of_their_own(lists, name):
    before = lists.executors["lists"].arrived
    lists.calls[name](REQUESTS[name], timeout=PATIENCE)
    assert lists.executors["lists"].arrived == before + 1


@pytest.mark.parametrize("name", REQUESTS)
def test_pages_have_every_object_once_in_order_at_the_first_revision(lists, name):
    call = lists.calls[name]
    whole = content(call(REQUESTS[name], timeout=PATIENCE))
    assert len(whole) == COUNTS[name]
    found: list[Any] = []
    revisions = set()
    token = ""
    while not found or token:
        page = call(asked(name, page_size=5, page_token=token), timeout=PATIENCE)
        assert len(content(page)) <= 5
        found += content(page)
        revisions.add(page.meta.revision)
        token = page.next_page_token
    assert found == whole
    assert len(revisions) == 1


@pytest.mark.parametrize("name", REQUESTS)
def test_page_size_is_capped_and_may_change_between_pages(lists, name):
    """A caller that asks for more than a server gives is to get what there is."""
    call = lists.calls[name]
    assert len(content(call(asked(name, page_size=2**31 - 1), timeout=PATIENCE))) == COUNTS[name]
    first = call(asked(name, page_size=5), timeout=PATIENCE)
    rest = call(asked(name, page_size=5001, page_token=first.next_page_token), timeout=PATIENCE)
    assert len(content(first)) + len(content(rest)) == COUNTS[name]
    assert not rest.next_page_token


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"page_size": -1}, "pageSize"),
        ({"page_token": "nothing"}, "pageToken"),
        ({"page_token": "bm90aGluZw=="}, "pageToken"),
        ({"page_token": "§"}, "pageToken"),
    ],
)
def test_invalid_page_size_or_token_is_refused(lists, name, wrong, field):
    with pytest.raises(grpc.RpcError) as failed:
        lists.calls[name](asked(name, **wrong), timeout=PATIENCE)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (error_status(failed.value).reason, error_status(failed.value).paths) == (
        "INVALID_FIELDS",
        [field],
    )


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("ListObjects", {"cluster": "two"}),
    ("ListObjects", {"kind": common_pb2.KIND_NODE}),
    ("ListObjects", {"namespace": "default"}),
    ("ListObjects", {"label_selector": labelled(app="web")}),
    ("ListObjects", {"consistency": common_pb2.Consistency(fully_consistent=True)}),
    ("ListReservations", {"cluster": "two"}),
    ("ListReservations", {"namespace": "default"}),
    ("ListReservations", {"label_selector": labelled(odd="1")}),
    ("ListReservations", {"consistency": common_pb2.Consistency(fully_consistent=True)}),
]


@pytest.mark.parametrize(("name", "other"), OTHERS)
def test_page_token_of_another_list_is_refused(lists, name, other):
    """It would skip what that list does not have, and end with a last page that looks complete."""
    call = lists.calls[name]
    token = call(asked(name, page_size=5), timeout=PATIENCE).next_page_token
    call(asked(name, **other), timeout=PATIENCE)
    with pytest.raises(grpc.RpcError) as failed:
        call(asked(name, **other, page_token=token), timeout=PATIENCE)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_status(failed.value).reason == "PAGE_TOKEN_MISMATCH"
    assert error_status(failed.value).paths == ["pageToken"]


def test_page_token_of_another_method_is_refused(lists):
    tokens = {
        name: call(asked(name, page_size=5), timeout=PATIENCE).next_page_token
        for name, call in lists.calls.items()
    }
    for name, call in lists.calls.items():
        for other, token in tokens.items():
            if other != name:
                with pytest.raises(grpc.RpcError) as failed:
                    call(asked(name, page_token=token), timeout=PATIENCE)
                assert error_status(failed.value).reason == "PAGE_TOKEN_MISMATCH"
                assert error_status(failed.value).paths == ["pageToken"]


@pytest.mark.parametrize("name", ["ListObjects", "ListReservations"])
def test_invalid_revision_in_a_page_token_is_refused(lists, name):
    """It comes back as the answer's."""
    call = lists.calls[name]
    token = call(asked(name, page_size=5), timeout=PATIENCE).next_page_token
    digest, revision, *place = base64.urlsafe_b64decode(token).split(b"\0")
    assert revision
    for other in (b"garbage", b""):
        raw = b"\0".join((digest, other, *place))
        made_up = base64.urlsafe_b64encode(raw).decode()
        with pytest.raises(grpc.RpcError) as failed:
            call(asked(name, page_token=made_up), timeout=PATIENCE)
        assert (error_status(failed.value).reason, error_status(failed.value).paths) == (
            "INVALID_FIELDS",
            ["pageToken"],
        )


def test_empty_cluster_name_is_the_default_cluster(run):
    peer = run().peer
    first = pb.ListObjectsRequest(kind=common_pb2.KIND_POD, page_size=1)
    token = peer.state.ListObjects(first, timeout=PATIENCE).next_page_token
    second = pb.ListObjectsRequest(
        cluster="default", kind=common_pb2.KIND_POD, page_size=5, page_token=token
    )
    assert len(peer.state.ListObjects(second, timeout=PATIENCE).objects) == 2


def test_reservations_are_listed_by_namespace_and_labels(lists):
    call = lists.calls["ListReservations"]

    def names(**more: Any) -> list[str]:
        answer = call(asked("ListReservations", **more), timeout=PATIENCE)
        return [each.pod.name for each in answer.reservations]

    assert names(namespace="another") == ["held-00"]
    assert names(label_selector=labelled(odd="1")) == [
        f"held-{number:02}" for number in range(1, PODS, 2)
    ]


def test_get_reservation_of_one_pod(run):
    peer = run().peer
    places: Any = placement_service_pb2_grpc.PlacementServiceStub(peer.channel)
    manifest = {"kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "uid": "u-1"}}
    wanted = common_pb2.PodSource(object=pod_from_manifest(manifest))
    request = placement_pb.ReserveNodeRequest(pod=wanted, node="a1")
    made = places.ReserveNode(request, timeout=PATIENCE)
    fresh = common_pb2.Consistency(at_least_as_fresh=made.meta.revision)

    def get(**pod_ref: str) -> Any:
        request = placement_pb.GetReservationRequest(
            pod=common_pb2.PodReference(**pod_ref), consistency=fresh
        )
        return places.GetReservation(request, timeout=PATIENCE)

    for ref in (
        {"namespace": "shop", "name": "p"},
        {"namespace": "shop", "name": "p", "uid": "u-1"},
    ):
        held = get(**ref).reservation
        assert (held.node, held.pod.uid, held.reservation_id) == ("a1", "u-1", made.reservation_id)
    for ref in (
        {"name": "p"},
        {"namespace": "shop", "name": "q"},
        {"namespace": "shop", "name": "p", "uid": "u-2"},
    ):
        with pytest.raises(grpc.RpcError) as failed:
            get(**ref)
        assert failed.value.code() is grpc.StatusCode.NOT_FOUND
        assert error_status(failed.value).reason == "OBJECT_NOT_FOUND"
