"""A list counts when its sender said that it is whole: in every other case nothing is changed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.servers import PATIENCE, Peer, node, pod, replacement, served, until
from topospread.transports.grpc.cluster_state import OBJECT_BYTES
from topospread_client.errors import ReplaceIncomplete
from topospread_client.status import error_of
from topospread_proto.v1 import cluster_state_pb2 as pb
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


def names(peer: Peer) -> set[str]:
    request = pb.ListRequest(kind=pb.KIND_NODE)
    response = peer.state.List(request, timeout=PATIENCE)
    return {each.node.metadata.name for each in response.objects}


def refused(peer: Peer, messages: Sequence[pb.ReplaceRequest]) -> Any:
    """How a Replace fails; it must not have changed anything."""
    before = names(peer)
    with pytest.raises(grpc.RpcError) as failed:
        peer.state.Replace(iter(messages), timeout=PATIENCE)
    assert names(peer) == before
    return failed.value


def step(**one: Any) -> pb.ReplaceRequest:
    return pb.ReplaceRequest(**one)


START, BATCH, COMMIT = replacement(*OTHERS, kind=pb.KIND_NODE)


def test_a_list_takes_the_place_of_what_was_there(peer):
    answer = peer.state.Replace(iter([START, BATCH, COMMIT]), timeout=PATIENCE)
    assert (answer.created, answer.deleted) == (3, 5)
    assert names(peer) == {"other-0", "other-1", "other-2"}


def test_an_empty_list_is_a_start_and_a_commit(peer):
    messages = replacement(kind=pb.KIND_NODE)
    assert len(messages) == 2
    assert peer.state.Replace(iter(messages), timeout=PATIENCE).deleted == 5
    assert names(peer) == set()


@pytest.mark.parametrize("count", range(3))
def test_a_list_without_its_commit_changes_nothing(peer, count):
    error = refused(peer, [START, BATCH, COMMIT][:count])
    objects = 3 if count == 2 else 0
    assert error.code() is CODE.ABORTED
    assert error.details() == (
        f"the list ended after {objects} objects without a commit: nothing was changed: send the"
        " whole list again"
    )
    known = error_of(error)
    assert isinstance(known, ReplaceIncomplete)
    assert known.retry_after is not None
    details = common_pb2.RpcStatus.FromString(
        dict(error.trailing_metadata())["grpc-status-details-bin"]
    )
    info = common_pb2.ErrorInfo.FromString(details.details[0].value)
    assert (info.reason, info.domain) == ("REPLACE_INCOMPLETE", "topospread")


WRONG = {
    "batch first": ([BATCH, START, COMMIT], "start: the first message"),
    "commit first": ([COMMIT], "start: the first message"),
    "two starts": ([START, START, BATCH, COMMIT], "start: only the first"),
    "a late start": ([START, BATCH, START, COMMIT], "start: only the first"),
    "nothing first": ([step(), START, BATCH, COMMIT], "start: the first message"),
    "nothing between": ([START, step(), BATCH, COMMIT], "step: each message"),
    "two commits": ([START, BATCH, COMMIT, COMMIT], "commit: it must be in the last message"),
    "a batch behind": ([START, COMMIT, BATCH], "commit: it must be in the last message"),
    "nothing behind": ([START, BATCH, COMMIT, step()], "commit: it must be in the last message"),
    "more said": (
        [START, BATCH, step(commit=pb.ReplaceCommit(object_count=4))],
        "commit.objectCount: it says 4, but 3 objects have arrived",
    ),
    "less said": (
        [START, BATCH, step(commit=pb.ReplaceCommit(object_count=2))],
        "commit.objectCount: it says 2, but 3 objects have arrived",
    ),
    "no number": (
        [START, BATCH, step(commit=pb.ReplaceCommit())],
        "commit.objectCount: it says 0, but 3 objects have arrived",
    ),
    "a batch missing": ([START, COMMIT], "it says 3, but 0 objects have arrived"),
}


@pytest.mark.parametrize(("messages", "text"), WRONG.values(), ids=WRONG)
def test_messages_that_are_no_list_are_refused(peer, messages, text):
    error = refused(peer, messages)
    assert error.code() is CODE.INVALID_ARGUMENT
    assert text in error.details()


def old_list() -> list[bytes]:
    """What clients sent before there was a commit: a header, then objects."""
    begin = pb.ReplaceStart(kind=pb.KIND_NODE).SerializeToString()
    one = OTHERS[0].SerializeToString()
    return [b"\x0a" + bytes([len(begin)]) + begin, b"\x12" + bytes([len(one)]) + one]


def test_a_client_from_before_there_were_commits_is_refused(peer):
    call: Any = peer.channel.stream_unary("/topospread.v1.ClusterState/Replace")
    with pytest.raises(grpc.RpcError) as failed:
        call(iter(old_list()), timeout=PATIENCE)
    assert failed.value.code() is CODE.INVALID_ARGUMENT
    assert len(names(peer)) == 5


def test_the_memory_of_lists_is_bounded_for_all_of_them_together():
    most = 1 << 20
    fit = most // (OBJECT_BYTES + 1024)
    release = threading.Event()
    together = (
        "objects: more than 1048576 bytes in calls at once (--max-replace-bytes): try again later"
    )

    def slow() -> Iterator[pb.ReplaceRequest]:
        start, batch, commit = replacement(*(named(i) for i in range(fit)), kind=pb.KIND_POD)
        yield from (start, batch)
        release.wait(PATIENCE)
        yield commit

    def named(number: int) -> pb.Object:
        made = pod(f"p{number}", "a1")
        made.pod.metadata.labels["long"] = "x" * 600
        return made

    with served(max_replace_bytes=most) as server, Peer(server.address) as peer:
        peer.apply(*NODES)
        too_many = replacement(*(named(i) for i in range(fit * 2)), kind=pb.KIND_POD)
        error = refused(peer, too_many)
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert error.details() == (
            "objects: more than 1048576 bytes in one call (--max-replace-bytes)"
        )
        # What was refused keeps nothing any more; what is under way does.
        first = peer.state.Replace.future(slow(), timeout=PATIENCE)
        second = replacement(*(named(i) for i in range(fit)), kind=pb.KIND_POD, cluster="b")

        def crowded() -> bool:
            nonlocal first
            if first.done():  # a call of ours was there before it
                first = peer.state.Replace.future(slow(), timeout=PATIENCE)
            call = peer.state.Replace.future(iter(second), timeout=PATIENCE)
            return call.details() == together

        until(crowded, "the batch of the first one has arrived")
        release.set()
        assert first.result().created == fit
        answer = peer.state.Replace(iter(second), timeout=PATIENCE)
        assert answer.created + answer.unchanged == fit
