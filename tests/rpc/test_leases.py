"""LeaseService: acquiring, renewing and losing a lease, and fencing of former holders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.errors.error_status import error_status
from tests.servers import Peer, node, served
from tests.waiting import PATIENCE, until
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import lease_service_pb2 as pb
from topospread_proto.v1 import lease_service_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = grpc.StatusCode
MINUTE = Duration(seconds=60)


class Leases:
    """The calls, and the writes that they let through."""

    def __init__(self, peer: Peer) -> None:
        self.stub: Any = lease_service_pb2_grpc.LeaseServiceStub(peer.channel)
        self.peer = peer

    def acquire(self, holder: str, duration: Duration = MINUTE) -> pb.AcquireLeaseResponse:
        request = pb.AcquireLeaseRequest(holder_identity=holder, lease_duration=duration)
        answer: pb.AcquireLeaseResponse = self.stub.AcquireLease(request, timeout=PATIENCE)
        return answer

    def renew(self, holder: str, token: int, duration: Duration = MINUTE) -> pb.Lease:
        request = pb.RenewLeaseRequest(
            holder_identity=holder, fencing_token=token, lease_duration=duration
        )
        lease: pb.Lease = self.stub.RenewLease(request, timeout=PATIENCE).lease
        return lease

    def release(self, holder: str, token: int) -> None:
        request = pb.ReleaseLeaseRequest(holder_identity=holder, fencing_token=token)
        self.stub.ReleaseLease(request, timeout=PATIENCE)

    def get(self) -> pb.GetLeaseResponse:
        answer: pb.GetLeaseResponse = self.stub.GetLease(pb.GetLeaseRequest(), timeout=PATIENCE)
        return answer

    def write(self, token: int) -> None:
        request = state_pb.ApplyObjectsRequest(objects=[node("n", "a")], fencing_token=token)
        self.peer.state.ApplyObjects(request, timeout=PATIENCE)


@pytest.fixture(params=["memory", "redis"])
def leases(request: pytest.FixtureRequest) -> Iterator[Leases]:
    store = "memory:" if request.param == "memory" else request.getfixturevalue("redis_url")
    with served(store=store) as server, Peer(server.address) as peer:
        yield Leases(peer)


def test_one_of_many_acquires_the_lease_and_the_others_learn_who(leases):
    first = leases.acquire("one")
    assert first.acquired
    assert (first.lease.holder_identity, first.lease.lease_duration) == ("one", MINUTE)
    assert first.lease.fencing_token > 0
    assert 0 < first.lease.remaining.ToMilliseconds() <= 60_000
    assert first.lease.expire_time.seconds > 0
    second = leases.acquire("two")
    assert not second.acquired
    # Whoever knew the token could write as if it were the holder.
    assert second.lease.holder_identity == "one"
    assert not second.lease.HasField("fencing_token")


def is_free(leases: Leases) -> bool:
    """Whether holders has it."""
    try:
        leases.get()
    except grpc.RpcError as error:
        return (error.code(), error_status(error).reason) == (CODE.NOT_FOUND, "OBJECT_NOT_FOUND")
    return False


def test_get_lease_acquires_nothing(leases):
    """A monitor that had to ask for the lease would be the leader one day."""
    assert is_free(leases)
    token = leases.acquire("one").lease.fencing_token
    found = leases.get().lease
    assert found.holder_identity == "one"
    assert not found.HasField("fencing_token")
    assert found.lease_duration == MINUTE
    leases.release("one", token)
    assert is_free(leases)
    assert leases.acquire("two").acquired


def test_holder_renews_its_lease(leases):
    token = leases.acquire("one", Duration(seconds=20)).lease.fencing_token
    renewed = leases.renew("one", token, Duration(seconds=600))
    assert renewed.fencing_token == token
    assert renewed.remaining.seconds > 60


def lost(leases: Leases, holder: str, token: int) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        leases.renew(holder, token)
    assert failed.value.code() is CODE.FAILED_PRECONDITION
    assert error_status(failed.value).reason == "LEASE_LOST"


def test_former_holder_cannot_renew_a_lost_lease(leases):
    """It would go on writing what it read before, under a new token, without listing again."""
    token = leases.acquire("one").lease.fencing_token
    leases.release("one", token)
    other = leases.acquire("two").lease.fencing_token
    lost(leases, "one", token)
    leases.release("two", other)
    lost(leases, "one", token)
    assert is_free(leases)


def test_expired_lease_is_not_renewed(leases):
    token = leases.acquire("one", Duration(nanos=1_000_000)).lease.fencing_token
    until(lambda: is_free(leases), "the end of the lease")
    lost(leases, "one", token)


def test_holder_with_another_token_neither_renews_nor_releases(leases):
    """Two processes of one name are a mistake; the second must not end the first one's lease."""
    token = leases.acquire("one").lease.fencing_token
    lost(leases, "one", token + 1)
    leases.release("one", token + 1)
    leases.release("two", token)
    assert leases.get().lease.holder_identity == "one"
    leases.renew("one", token)


def test_writes_of_a_former_holder_are_refused(leases):
    token = leases.acquire("one").lease.fencing_token
    leases.write(token)
    leases.release("one", token)
    other = leases.acquire("two").lease.fencing_token
    assert other > token
    with pytest.raises(grpc.RpcError) as failed:
        leases.write(token)
    assert failed.value.code() is CODE.FAILED_PRECONDITION
    assert error_status(failed.value).reason == "FENCED"
    leases.write(other)


@pytest.mark.parametrize("token", [0, -1])
def test_unknown_fencing_token_is_refused(leases, token):
    """A 0 that somebody forgot to fill in must not mean that nothing is checked."""
    with pytest.raises(grpc.RpcError) as failed:
        leases.write(token)
    assert failed.value.code() is CODE.INVALID_ARGUMENT
    assert error_status(failed.value).paths == ["fencingToken"]


@pytest.mark.parametrize(
    ("holder", "duration", "field"),
    [
        ("", MINUTE, "holderIdentity"),
        ("a/b", MINUTE, "holderIdentity"),
        ("x" * 254, MINUTE, "holderIdentity"),
        ("one", Duration(), "leaseDuration"),
        ("one", Duration(seconds=-1), "leaseDuration"),
        ("one", Duration(seconds=3601), "leaseDuration"),
    ],
)
def test_invalid_lease_is_refused(leases, holder, duration, field):
    for call in (leases.acquire, lambda *both: leases.renew(both[0], 1, both[1])):
        with pytest.raises(grpc.RpcError) as failed:
            call(holder, duration)
        assert failed.value.code() is CODE.INVALID_ARGUMENT
        assert error_status(failed.value).paths == [field]


def test_leases_make_no_more_clusters_than_there_may_be():
    """Of ever new names they would fill the store, as clusters without a limit would."""
    with served(max_clusters=3) as server, Peer(server.address) as peer:
        stub = lease_service_pb2_grpc.LeaseServiceStub(peer.channel)

        def acquire(cluster: str) -> pb.AcquireLeaseResponse:
            request = pb.AcquireLeaseRequest(
                cluster=cluster, holder_identity="one", lease_duration=MINUTE
            )
            answer: pb.AcquireLeaseResponse = stub.AcquireLease(request, timeout=PATIENCE)
            return answer

        peer.apply(node("n", "a"), cluster="written")
        for cluster in ("second", "third", "written", "second"):
            assert acquire(cluster).acquired
        with pytest.raises(grpc.RpcError) as failed:
            acquire("fourth")
        assert failed.value.code() is CODE.RESOURCE_EXHAUSTED
        assert error_status(failed.value).reason == "TOO_MANY_CLUSTERS"
        request = pb.GetLeaseRequest(cluster="fourth")
        with pytest.raises(grpc.RpcError):
            stub.GetLease(request, timeout=PATIENCE)
        # What was acquired before goes on.
        peer.apply(node("n", "a"), cluster="second")
        assert acquire("third").acquired


@pytest.mark.parametrize("method", ["ApplyObjects", "DeleteObjects"])
def test_fencing_token_is_checked_where_nothing_is_written(leases, method):
    """A former leader is refused also a list without changes, cluster or not."""
    write = getattr(leases.peer.state, method)
    request = getattr(state_pb, f"{method}Request")
    token = leases.acquire("one").lease.fencing_token
    for wrong in (token - 1, token + 1):
        with pytest.raises(grpc.RpcError) as failed:
            write(request(fencing_token=wrong), timeout=PATIENCE)
        assert failed.value.code() is CODE.FAILED_PRECONDITION
        assert (error_status(failed.value).reason, error_status(failed.value).metadata) == (
            "FENCED",
            {"holder": "one"},
        )
    if method == "ApplyObjects":
        write(request(fencing_token=token), timeout=PATIENCE)
    listed = state_pb.ListClustersRequest()
    assert not leases.peer.state.ListClusters(listed, timeout=PATIENCE).clusters
