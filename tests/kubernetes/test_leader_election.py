"""One of many servers leads, another succeeds it; a former leader's writes are refused."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.server import ApiServer
from tests.kubernetes.syncing import node, pod, small_cluster, synced
from tests.kubernetes.test_cluster_sync import metric
from tests.servers import served
from tests.waiting import until
from topospread.cli.commands.sync import ClientSink
from topospread.errors import Fenced
from topospread.kubernetes.objects import RESOURCES, DeletedObject, decode_object
from topospread.store.model import Key, Kind
from topospread_client import Client, InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path


def active(server: Any) -> bool:
    return metric(server, "topospread_sync_active") == 1


def test_one_of_two_servers_feeds_and_the_other_takes_over(tmp_path: Path) -> None:
    objects = small_cluster()
    # Far longer than a busy machine may keep the first from renewing it.
    shared = {"store": f"sqlite://{tmp_path}/state.db", "sync_lease_duration": "9s"}
    with ApiServer(objects) as api, ExitStack() as first, ExitStack() as second:
        _, one = first.enter_context(synced(tmp_path, api, **shared))
        until(lambda: one.ready()[0], "the first leads")
        other_state, two = second.enter_context(synced(tmp_path, api, **shared))
        until(lambda: two.ready()[0], "the second answers from what the first listed")
        assert active(one)
        assert not active(two)
        assert api.lists("pods") == 1
        objects.put(pod("web-2", "b1"))
        until(lambda: "web-2" in other_state.pods(), "a change by way of the first")
        # Something goes while the first is still there, and something when nobody is.
        first.close()
        objects.remove("Pod", "web-0", "default")
        until(lambda: active(two), "the second leads")
        until(lambda: set(other_state.pods()) == {"web-1", "web-2"}, "the deletion")


def test_a_feeder_that_lost_the_lease_without_noticing_is_refused(tmp_path: Path) -> None:
    resource = {one.kind: one for one in RESOURCES}[Kind.NODE]
    fact = decode_object(resource, {**node("late"), "metadata": {"name": "late"}})
    gone = DeletedObject(Key(Kind.NODE, "", "a1"), "99999")
    with served() as server, Client(server.address) as client:
        former, present = ClientSink(client, "former"), ClientSink(client, "present")
        old = former.acquire(60)
        assert old > 0
        assert present.acquire(60) == 0
        former.replace(Kind.NODE, [fact], "1", force=False, fence=old)
        former.release(old)
        new = present.acquire(60)
        assert new > old
        with pytest.raises(Fenced):
            former.write([fact], [], observed={}, fence=old)
        with pytest.raises(Fenced):
            former.write([], [gone], observed={}, fence=old)
        with pytest.raises(Fenced):
            former.replace(Kind.NODE, [], "2", force=False, fence=old)
        with pytest.raises(Fenced):
            former.write([], [], observed={Kind.NODE: "99999"}, fence=old)
        present.write([fact], [gone], observed={Kind.NODE: "7"}, fence=new)
        newest = {"fully_consistent": True}
        (observed,) = client.get_node_table(consistency=newest).meta.observed
        assert observed.resource_version == "7"
        assert [one.node.metadata.name for one in client.list_objects("NODE")] == ["late"]


def test_a_lease_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with served() as server, Client(server.address) as client:
        for holder, seconds in (("", 5.0), ("a/b", 5.0), ("one", 0.0), ("one", 7200.0)):
            with pytest.raises(InvalidRequest):
                client.acquire_lease(holder, seconds)
        first = client.acquire_lease("one", 60)
        assert (first.acquired, first.lease.holder_identity) == (True, "one")
        second = client.acquire_lease("two", 60)
        assert (second.acquired, second.lease.holder_identity) == (False, "one")
        assert 0 < second.lease.remaining.seconds <= 60
