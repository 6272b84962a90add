"""ReplaceObjects: a list counts when it is committed; otherwise nothing is changed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from tests.errors.error_status import error_status
from tests.servers import Peer, node, pod, replacement, served, violations
from tests.waiting import PATIENCE, until
from topospread.api.cluster_state_writes import OBJECT_BYTES
from topospread.store.model import MAX_APPLY_BYTES, MAX_OBJECT_BYTES, Kind
from topospread.store.values import OBJECT_KINDS
from topospread_client import ReplaceIncomplete
from topospread_client._status import error_of
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CODE = grpc.StatusCode
NODES = [node(f"n{number}", "a") for number in range(5)]
OTHERS = [node(f"other-{number}", "b") for number in range(3)]


@pytest.fixture
def peer() -> Iterator[Peer]:
    """Of a server that has NODES."""
    with served() as server, Peer(server.address) as peer:
        peer.apply(*NODES)
        yield peer


@pytest.fixture(scope="module")
def unchanged() -> Iterator[Peer]:
    """Of one server that has NODES for all lists that are refused."""
    with served() as server, Peer(server.address) as peer:
        peer.apply(*NODES)
        yield peer


def names(peer: Peer) -> set[str]:
    request = pb.ListObjectsRequest(kind=common_pb2.KIND_NODE)
    response = peer.state.ListObjects(request, timeout=PATIENCE)
    return {each.node.metadata.name for each in response.objects}


def refused(peer: Peer, messages: Sequence[pb.ReplaceObjectsRequest]) -> Any:
    """How a ReplaceObjects fails; it must not have changed anything."""
    before = names(peer)
    with pytest.raises(grpc.RpcError) as failed:
        peer.state.ReplaceObjects(iter(messages), timeout=PATIENCE)
    assert names(peer) == before
    return failed.value


def step(**one: Any) -> pb.ReplaceObjectsRequest:
    return pb.ReplaceObjectsRequest(**one)


START, BATCH, COMMIT = replacement(*OTHERS, kind=common_pb2.KIND_NODE)


def test_list_replaces_all_objects_of_its_kind(peer):
    answer = peer.state.ReplaceObjects(iter([START, BATCH, COMMIT]), timeout=PATIENCE)
    assert (answer.created_count, answer.deleted_count) == (3, 5)
    assert names(peer) == {"other-0", "other-1", "other-2"}


def test_empty_list_is_a_start_and_a_commit(peer):
    messages = replacement(kind=common_pb2.KIND_NODE)
    assert len(messages) == 2
    assert peer.state.ReplaceObjects(iter(messages), timeout=PATIENCE).deleted_count == 5
    assert names(peer) == set()


@pytest.mark.parametrize("named", [(), (common_pb2.KIND_NODE, common_pb2.KIND_POD)], ids=str)
def test_kind_that_a_feed_may_lack_is_listed_whatever_the_feed_names(peer, named):
    """A feeder of an older version may name fewer kinds than it lists by now."""
    optional: list[Any] = [kind.value for kind in Kind if kind in OBJECT_KINDS]
    assert common_pb2.KIND_PERSISTENT_VOLUME in optional
    for kind in optional:
        start = pb.ReplaceStart(resource_version="7", kinds=named)
        start.kind = kind
        list_ = [step(start=start), step(commit=pb.ReplaceCommit())]
        peer.state.ReplaceObjects(iter(list_), timeout=PATIENCE)
    newest = common_pb2.Consistency(fully_consistent=True)
    asked = pb.GetClusterRequest(consistency=newest)
    found = peer.state.GetCluster(asked, timeout=PATIENCE).cluster
    assert not found.unknown_kinds
    assert {each.kind for each in found.observed} == set(optional)


@pytest.mark.parametrize("count", range(3))
def test_list_without_its_commit_changes_nothing(unchanged, count):
    error = refused(unchanged, [START, BATCH, COMMIT][:count])
    objects = 3 if count == 2 else 0
    assert error.code() is CODE.ABORTED
    assert error.details() == (
        f"the list ended after {objects} objects without a commit: nothing was changed: send the"
        " whole list again"
    )
    known = error_of(error)
    assert isinstance(known, ReplaceIncomplete)
    assert known.retry_after is not None
    details = status_pb2.Status.FromString(
        dict(error.trailing_metadata())["grpc-status-details-bin"]
    )
    info = error_details_pb2.ErrorInfo.FromString(details.details[0].value)
    assert (info.reason, info.domain) == ("REPLACE_INCOMPLETE", "topospread.io")


WRONG = {
    "batch first": ([BATCH, START, COMMIT], "start: the first message must have it"),
    "commit first": ([COMMIT], "start: the first message must have it"),
    "two starts": ([START, START, BATCH, COMMIT], "start: only the first message may have it"),
    "a late start": ([START, BATCH, START, COMMIT], "start: only the first message may have it"),
    "nothing first": ([step(), START, BATCH, COMMIT], "start: the first message must have it"),
    "nothing between": ([START, step(), BATCH, COMMIT], "batch: give a batch, or the commit"),
    "two commits": ([START, BATCH, COMMIT, COMMIT], "commit: it must be in the last message"),
    "a batch behind": ([START, COMMIT, BATCH], "commit: it must be in the last message"),
    "nothing behind": ([START, BATCH, COMMIT, step()], "commit: it must be in the last message"),
    "more said": (
        [START, BATCH, step(commit=pb.ReplaceCommit(object_count=4))],
        "commit.objectCount: 3 objects arrived: nothing was changed",
    ),
    "less said": (
        [START, BATCH, step(commit=pb.ReplaceCommit(object_count=2))],
        "commit.objectCount: 3 objects arrived: nothing was changed",
    ),
    "no number": (
        [START, BATCH, step(commit=pb.ReplaceCommit())],
        "commit.objectCount: 3 objects arrived: nothing was changed",
    ),
    "a batch missing": ([START, COMMIT], "commit.objectCount: 0 objects arrived"),
}


@pytest.mark.parametrize(("messages", "text"), WRONG.values(), ids=WRONG)
def test_messages_out_of_order_are_refused(unchanged, messages, text):
    error = refused(unchanged, messages)
    assert error.code() is CODE.INVALID_ARGUMENT
    assert text in error.details()


def wrong_second(field: str, value: str) -> list[pb.ReplaceObjectsRequest]:
    """A list of two batches, of which the second one has an object that cannot be stored."""
    objects = [node(f"listed-{number}", "a") for number in range(700)]
    setattr(objects[650].node.metadata, field, value)
    return replacement(*objects, kind=common_pb2.KIND_NODE)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "a/b"), ("name", ""), ("resource_version", "abc"), ("uid", "no uid")],
)
def test_list_with_an_invalid_object_changes_nothing(unchanged, field, value):
    error = refused(unchanged, wrong_second(field, value))
    assert error.code() is CODE.INVALID_ARGUMENT
    (wrong,) = violations(error)
    camel = {"resource_version": "resourceVersion"}.get(field, field)
    assert wrong.field == f"batch.objects[150].node.metadata.{camel}"
    assert wrong.description.endswith("(batch 2)")


def test_list_with_an_oversized_object_changes_nothing(unchanged):
    objects = [node(f"listed-{number}", "a") for number in range(501)]
    objects[500].node.metadata.labels["large"] = "x" * MAX_OBJECT_BYTES
    error = refused(unchanged, replacement(*objects, kind=common_pb2.KIND_NODE))
    assert error.code() is CODE.RESOURCE_EXHAUSTED
    quota = error_status(error).details["QuotaFailure"].violations[0]
    assert quota.subject == "batch.objects[0].node"
    assert quota.quota_value == MAX_OBJECT_BYTES


@pytest.mark.parametrize(
    ("second", "field", "text"),
    [
        ([node("x", "a"), OTHERS[1]], "batch.objects[1]", "node other-1 is given twice (batch 2)"),
        ([pod("p", "n1")], "batch.objects[0]", "pod default/p is of another kind"),
        ([node("x", "a"), pb.ClusterObject()], "batch.objects[1]", "(batch 2)"),
    ],
)
def test_invalid_object_of_a_list_is_named(unchanged, second, field, text):
    batch = step(batch=pb.ReplaceBatch(objects=second))
    commit = step(commit=pb.ReplaceCommit(object_count=len(OTHERS) + len(second)))
    (wrong,) = violations(refused(unchanged, [START, BATCH, batch, commit]))
    assert wrong.field == field
    assert text in wrong.description


def test_list_of_large_objects_is_written_in_pieces(peer):
    """Five hundred of them are more than the store takes at once."""

    def large(number: int) -> pb.ClusterObject:
        made = node(f"large-{number}", "b")
        for label in range(500):
            made.node.metadata.labels[f"label-{label:058}"] = "x" * 63
        return made

    objects = [large(number) for number in range(300)]
    assert sum(each.ByteSize() for each in objects) > MAX_APPLY_BYTES
    start, commit = replacement(kind=common_pb2.KIND_NODE)
    commit.commit.object_count = len(objects)
    batches = [
        step(batch=pb.ReplaceBatch(objects=objects[at : at + 50])) for at in range(0, 300, 50)
    ]
    answer = peer.state.ReplaceObjects(iter([start, *batches, commit]), timeout=PATIENCE)
    assert (answer.created_count, answer.deleted_count) == (300, 5)


def old_list() -> list[bytes]:
    """What clients sent before there was a commit: a header, then objects."""
    begin = pb.ReplaceStart(kind=common_pb2.KIND_NODE).SerializeToString()
    one = OTHERS[0].SerializeToString()
    return [b"\x0a" + bytes([len(begin)]) + begin, b"\x12" + bytes([len(one)]) + one]


def test_client_that_sends_no_commit_is_refused(unchanged):
    call: Any = unchanged.channel.stream_unary("/topospread.v1.ClusterStateService/ReplaceObjects")
    with pytest.raises(grpc.RpcError) as failed:
        call(iter(old_list()), timeout=PATIENCE)
    assert failed.value.code() is CODE.INVALID_ARGUMENT
    assert len(names(unchanged)) == 5


def test_memory_of_all_lists_together_is_bounded():
    most = 1 << 20
    fit = most // (OBJECT_BYTES + 1024)
    release = threading.Event()
    together = (
        "too much is kept for this caller's calls: more than 1048576 bytes (--max-held-bytes):"
        " try again later"
    )

    def slow() -> Iterator[pb.ReplaceObjectsRequest]:
        *batches, commit = replacement(*(named(i) for i in range(fit)), kind=common_pb2.KIND_POD)
        yield from batches
        release.wait(PATIENCE)
        yield commit

    def named(number: int) -> pb.ClusterObject:
        made = pod(f"p{number}", "a1")
        made.pod.metadata.labels["long"] = "x" * 600
        return made

    with served(max_held_bytes=2 * most) as server, Peer(server.address) as peer:
        peer.apply(*NODES)
        too_many = replacement(*(named(i) for i in range(fit * 2)), kind=common_pb2.KIND_POD)
        error = refused(peer, too_many)
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert error.details() == "more than 1048576 bytes in one call (--max-held-bytes)"
        # What was refused keeps nothing any more; what is under way does.
        first = peer.state.ReplaceObjects.future(slow(), timeout=PATIENCE)
        second = replacement(*(named(i) for i in range(fit)), kind=common_pb2.KIND_POD, cluster="b")

        def crowded() -> bool:
            nonlocal first
            if first.done():  # a call of ours was there before it
                first = peer.state.ReplaceObjects.future(slow(), timeout=PATIENCE)
            call = peer.state.ReplaceObjects.future(iter(second), timeout=PATIENCE)
            return call.details() == together

        until(crowded, "the batch of the first one has arrived")
        release.set()
        assert first.result().created_count == fit
        answer = peer.state.ReplaceObjects(iter(second), timeout=PATIENCE)
        assert answer.created_count + answer.unchanged_count == fit
