"""Large lists: pages that any client can receive, a few made at once, other calls not blocked."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from tests.errors.error_status import error_status
from tests.servers import node, pod, two_zones
from tests.waiting import PATIENCE, until
from topospread.app.capacity import LIST_QUEUE, LIST_THREADS
from topospread.service.state.read import PAGE_BYTES, StateReader
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

CLIENTS_TAKE = 4 << 20
"""A client's default limit on the bytes of a message."""

EVERYTHING = pb.ListObjectsRequest(kind=common_pb2.KIND_POD, page_size=5000)


@pytest.fixture(params=["sqlite", "redis"])
def store(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    return request.getfixturevalue("redis_url")


def test_page_of_large_objects_ends_before_it_is_too_large(run, store):
    peer = run(store=store).peer
    many = []
    for number in range(1200):
        one = pod(f"large-{number:04}", "a1", "other")
        one.pod.metadata.labels.update({f"label-{n}": "x" * 63 for n in range(60)})
        many.append(one)
    for at in range(0, len(many), 300):
        peer.apply(*many[at : at + 300])

    pages: list[list[str]] = []
    token = ""
    while not pages or token:
        request = pb.ListObjectsRequest(kind=common_pb2.KIND_POD, page_size=5000, page_token=token)
        page = peer.state.ListObjects(request, timeout=PATIENCE)
        pages.append([found.pod.metadata.name for found in page.objects])
        assert page.ByteSize() < CLIENTS_TAKE
        token = page.next_page_token

    assert len(pages) == -(-1200 * 60 * 70 // PAGE_BYTES)
    expected = [one.pod.metadata.name for one in many]
    assert [name for page in pages for name in page if name.startswith("large-")] == expected


def test_list_of_a_history_that_ended_is_out_of_range_and_says_what_to_do(run):
    peer = run().peer
    first = pb.ListObjectsRequest(kind=common_pb2.KIND_POD, page_size=1)
    answer = peer.state.ListObjects(first, timeout=PATIENCE)
    peer.state.DeleteCluster(pb.DeleteClusterRequest(cluster="default"), timeout=PATIENCE)
    peer.apply(*two_zones())
    second = pb.ListObjectsRequest(page_token=answer.next_page_token)
    second.MergeFrom(first)
    with pytest.raises(grpc.RpcError, match="begin it anew, without a page token") as refused:
        peer.state.ListObjects(second, timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert error_status(refused.value).reason == "REVISION_OF_OTHER_HISTORY"


def test_page_may_be_empty_before_the_last_one(run, monkeypatch):
    monkeypatch.setattr("topospread.service.state.read.READ_OBJECTS", 100)
    peer = run().peer
    peer.apply(*(pod(f"p-{n:03}", "a1", "many") for n in range(300)))
    peer.apply(pod("z", "a1", "one"))
    request = pb.ListObjectsRequest(kind=common_pb2.KIND_POD, page_size=50)
    request.label_selector.match_labels["app"] = "one"
    pages: list[list[str]] = []
    while not pages or request.page_token:
        page = peer.state.ListObjects(request, timeout=PATIENCE)
        pages.append([found.pod.metadata.name for found in page.objects])
        request.page_token = page.next_page_token
    assert pages == [[], [], [], ["z"]]


class Slow:
    """Lists that go on until they are let go.

    Attributes:
        under_way, most: at once, now and ever.
        made: begun in all.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way = self.most = self.made = 0
        self._lock = threading.Lock()
        self._let_go = threading.Event()
        self._list = StateReader.list
        monkeypatch.setattr(StateReader, "list", lambda *arguments: self(*arguments))

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            self.under_way += 1
            self.made += 1
            self.most = max(self.most, self.under_way)
        try:
            assert self._let_go.wait(PATIENCE)
            return self._list(*arguments)
        finally:
            with self._lock:
                self.under_way -= 1

    def let_go(self) -> None:
        self._let_go.set()


def test_lists_made_at_once_are_few_and_block_no_other_call(run, monkeypatch):
    slow = Slow(monkeypatch)
    running = run()
    peer = running.peer
    lists = [peer.state.ListObjects.future(EVERYTHING, timeout=PATIENCE) for _ in range(12)]
    until(lambda: slow.under_way == LIST_THREADS, "the first are under way")
    for number in range(5):
        peer.apply(node(f"more-{number}", "a"))
    assert slow.most == LIST_THREADS
    assert not any(one.done() for one in lists)
    slow.let_go()
    counts = {len(one.result(PATIENCE).objects) for one in lists}
    assert len(counts) == 1
    assert slow.most == LIST_THREADS


def test_more_lists_than_may_wait_are_refused(run, monkeypatch):
    slow = Slow(monkeypatch)
    peer = run().peer
    many = LIST_THREADS + LIST_QUEUE + 6
    lists = [peer.state.ListObjects.future(EVERYTHING, timeout=PATIENCE) for _ in range(many)]
    until(lambda: sum(one.done() for one in lists) == 6, "some are refused")
    # There still are threads for others.
    peer.apply(*two_zones())
    slow.let_go()
    codes = [one.code() for one in lists]
    assert codes.count(grpc.StatusCode.OK) == many - 6
    assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 6


def test_a_list_whose_caller_has_gone_is_not_made(run, monkeypatch):
    slow = Slow(monkeypatch)
    running = run()
    peer = running.peer
    begun = [
        peer.state.ListObjects.future(EVERYTHING, timeout=PATIENCE) for _ in range(LIST_THREADS)
    ]
    until(lambda: slow.under_way == LIST_THREADS, "all threads are taken")
    waiting = peer.state.ListObjects.future(EVERYTHING, timeout=PATIENCE)
    lists = running.server.pools.executors["lists"]
    until(lambda: lists.depth == 1, "another one waits")
    waiting.cancel()
    slow.let_go()
    assert [one.code() for one in begun] == [grpc.StatusCode.OK] * LIST_THREADS
    until(lambda: not lists.busy and not lists.depth, "all are over")
    assert slow.made == LIST_THREADS
