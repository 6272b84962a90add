"""Lists and watches read no more than they need; a cluster that is looked for is not there."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.counting import Counting
from tests.heads import CHANGES, Heads
from tests.service.world import CLUSTER, World, node
from topospread.checkpoints import Computation, computing_for
from topospread.errors import ClusterNotFound, DeadlineExceeded, RevisionUnavailable
from topospread.replica.replicas import Replicas
from topospread.replica.state import ReplicaOptions
from topospread.service.state.log import WatchRequest, watch
from topospread.service.state.pages import PageRequest
from topospread.service.state.read import StateReader
from topospread.store.model import Kind

if TYPE_CHECKING:
    from topospread.store.api import Store
    from topospread.store.model import Head


def test_a_list_ends_with_its_deadline(three_zones: World) -> None:
    reads = StateReader(three_zones.store, three_zones.engine.replicas)
    late = Computation(time.monotonic() - 1.0, lambda: True)
    with computing_for(late), pytest.raises(DeadlineExceeded):
        reads.list(CLUSTER, Kind.NODE, "", lambda _: True, PageRequest())


def test_watch_of_small_kinds_does_not_begin_with_a_read_of_the_pods(three_zones: World) -> None:
    counting = Counting(three_zones.store)
    asked = WatchRequest(CLUSTER, {Kind.NODE, Kind.SERVICE}, initial=True)
    events = watch(cast("Any", counting), asked, lambda: False)
    assert [entry.key.name for event in events for entry in event.entries] == ["n-a", "n-b", "n-c"]
    assert counting.objects == 3


@CHANGES
def test_watch_does_not_begin_with_what_two_histories_have(three_zones: World, change: Any) -> None:
    head = three_zones.store.head(CLUSTER)
    store = Heads(three_zones.store, head, change(head))
    with pytest.raises(RevisionUnavailable):
        next(watch(cast("Any", store), WatchRequest(CLUSTER, initial=True), lambda: True))


def test_watch_does_not_begin_with_a_cluster_that_is_made_anew_meanwhile(
    three_zones: World,
) -> None:
    class Dropped(Counting):
        def scan(self, *arguments: Any, **others: Any) -> Any:
            if not self.calls["scan"]:
                three_zones.store.drop(CLUSTER)
                three_zones.apply(node("n-new"))
            return super().scan(*arguments, **others)

    store = Dropped(three_zones.store)
    with pytest.raises(RevisionUnavailable):
        next(watch(cast("Any", store), WatchRequest(CLUSTER, initial=True), lambda: True))


class HeldBack(Counting):
    """A store that says how far a cluster is only once it may."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.released = threading.Event()

    def head(self, cluster: str, timeout: float | None = None) -> Head:
        assert self.released.wait(30.0)
        return self._store.head(cluster, timeout=timeout)


def test_a_cluster_that_is_only_looked_for_is_not_there(three_zones: World) -> None:
    source = HeldBack(three_zones.store)
    with closing(Replicas(cast("Store", source), ReplicaOptions())) as replicas:
        replicas._started("nobodys")
        try:
            reads = StateReader(three_zones.store, replicas)
            with pytest.raises(ClusterNotFound):
                reads.cluster("nobodys")
            found, _ = reads.clusters(lambda _: True, PageRequest())
            assert [each.name for each in found] == ["prod"]
        finally:
            source.released.set()
