"""Changes on their way: the last of each object counts, and they wait while the state is away."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tests.apiserver.server import ApiServer
from tests.counting import Counting
from tests.kubernetes.syncing import kubeconfig, pod, small_cluster
from tests.waiting import until
from topospread.app.stores import open_store
from topospread.errors import StoreUnavailable
from topospread.kubernetes.api_server import ApiServer as Reached
from topospread.kubernetes.api_server import ClusterAccess
from topospread.kubernetes.cluster_sync import ClusterSync
from topospread.kubernetes.delta_queue import DeltaQueue
from topospread.kubernetes.objects import DeletedObject
from topospread.kubernetes.sink import Sink
from topospread.replica.replicas import Replicas
from topospread.replica.state import ReplicaOptions
from topospread.service.state.write import StateWriter
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from topospread.store.model import Applied
    from topospread.telemetry.families import KindGauges


def gone(name: str, version: str = "1", kind: Kind = Kind.POD) -> DeletedObject:
    return DeletedObject(Key(kind, "" if kind is Kind.NODE else "default", name), version)


def test_the_last_change_of_an_object_counts_in_the_order_of_the_first() -> None:
    pending = DeltaQueue()
    for change in (gone("a", "1"), gone("b", "2"), gone("a", "3")):
        pending.add(change)
    assert list(pending.take(10)) == [gone("a", "3"), gone("b", "2")]


def test_not_more_is_taken_than_is_asked_for() -> None:
    pending = DeltaQueue()
    for number in range(5):
        pending.add(gone(str(number)))
    assert len(pending.take(3)) == 3
    assert len(pending.take(3)) == 2


def test_adding_waits_while_the_queue_is_full() -> None:
    pending = DeltaQueue(max_objects=2)

    def add() -> None:
        for number in range(5):
            pending.add(gone(str(number)))

    with ThreadPoolExecutor(1) as adding:
        done = adding.submit(add)
        taken = 0
        while taken < 5:
            taken += len(pending.take(1))
        done.result(20)


def test_changes_that_follow_on_a_take_come_together() -> None:
    """A burst's events are a few writes: each one voids the places that are sought meanwhile."""
    pending = DeltaQueue(gather_seconds=3600.0)
    pending.add(gone("a"))
    assert pending.take(10) == [gone("a")], "what comes alone does not wait"
    pending.add(gone("b"))
    with ThreadPoolExecutor(1) as writing:
        taken = writing.submit(pending.take, 3)
        pending.add(gone("c"))
        pending.add(gone("d"))
        assert taken.result(20) == [gone("b"), gone("c"), gone("d")]


def test_a_list_waits_for_what_was_taken_of_its_kind_and_drops_the_rest() -> None:
    pending = DeltaQueue()
    pending.add(gone("a"))
    assert pending.take(1) == [gone("a")]
    pending.add(gone("b"))
    pending.add(gone("n", kind=Kind.NODE))
    pending.drop(Kind.NODE)  # nothing of it was taken
    with ThreadPoolExecutor(1) as listing:
        dropped = listing.submit(pending.drop, Kind.POD)
        assert pending.age(Kind.POD) > 0
        pending.done()
        dropped.result(20)
    assert pending.age(Kind.POD) == 0
    pending.add(gone("c"))
    assert pending.take(9) == [gone("c")]


def test_a_version_is_reported_when_all_changes_before_it_were_taken() -> None:
    """Else somebody would be told that a pod counts which still waits here."""
    pending = DeltaQueue(progress_seconds=0)
    pending.add(gone("a"))
    pending.add(gone("b"))
    pending.read(Kind.POD, "7")
    pending.read(Kind.NODE, "9")
    assert list(pending.take(1)) == [gone("a")]
    assert pending.observed() == {Kind.NODE: "9"}
    assert list(pending.take(1)) == [gone("b")]
    assert pending.observed() == {Kind.POD: "7"}
    assert pending.observed() == {}, "once"


def test_a_version_is_reported_when_nothing_changes() -> None:
    pending = DeltaQueue(progress_seconds=0)
    pending.read(Kind.POD, "7")
    pending.read(Kind.POD, "8")
    assert list(pending.take(10)) == []
    assert pending.observed() == {Kind.POD: "8"}


def test_a_list_waits_until_the_version_before_it_is_reported() -> None:
    """Told after the list, it would stand for more than a restored API server has."""
    pending = DeltaQueue(progress_seconds=0)
    pending.read(Kind.POD, "7")
    assert list(pending.take(10)) == []
    assert pending.observed() == {Kind.POD: "7"}
    pending.read(Kind.POD, "8")
    with ThreadPoolExecutor(1) as listing:
        dropped = listing.submit(pending.drop, Kind.POD)
        pending.done()
        dropped.result(20)
    assert pending.observed() == {}


def test_closing_lets_everybody_go() -> None:
    pending = DeltaQueue(max_objects=1)
    pending.add(gone("a"))
    with ThreadPoolExecutor(2) as waiting:
        adding = waiting.submit(pending.add, gone("b"))
        pending.close()
        adding.result(20)
        assert waiting.submit(pending.take, 1).result(20) == []


class Leaving(Counting):
    """A store that writes nothing while it is away."""

    away = False

    def apply(self, *arguments: Any, **others: Any) -> Applied:
        if self.away:
            self.calls["refused"] += 1
            raise StoreUnavailable("away")
        return self._store.apply(*arguments, **others)


def test_changes_wait_while_the_store_is_away(tmp_path: Path) -> None:
    objects = small_cluster()
    listed = threading.Event()
    with ApiServer(objects) as api, ExitStack() as opened:
        store = Leaving(open_store(f"sqlite://{tmp_path}/state.db", {}))
        opened.callback(store.close)
        replicas = Replicas(store, ReplicaOptions())
        opened.callback(replicas.close)
        sync = ClusterSync(
            "default",
            Reached(ClusterAccess(kubeconfig(tmp_path, api.url))),
            Sink(StateWriter(store, replicas), store, "default", "one"),
            lease_duration=1.0,
            excluded_namespaces=(),
            on_listed=listed.set,
            on_standby=lambda: None,
        )
        opened.callback(sync.stop)

        def of_pods() -> KindGauges:
            return next(kind for kind in sync.gauges().kinds if kind.kind == "Pod")

        def pods() -> set[str]:
            return {each.key.name for each in store.scan("default", Kind.POD).objects}

        sync.start()
        assert listed.wait(60)
        until(lambda: of_pods().watching, "a watch")
        store.away = True
        objects.put(pod("web-2", "a1"))
        objects.remove("Pod", "web-0", "default")
        until(lambda: store.calls["refused"] > 1, "two tries")
        assert of_pods().lag_seconds > 0
        assert pods() == {"web-0", "web-1"}
        store.away = False
        until(lambda: pods() == {"web-1", "web-2"}, "what had to wait")
        until(lambda: of_pods().lag_seconds == 0, "no lag")
        assert api.lists("pods") == 1
