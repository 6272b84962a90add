"""Pods that the extender refused are woken when they fit, by a write that kube-scheduler sees."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.objects import Objects
from tests.apiserver.server import ApiServer, Fault
from tests.http.extender_client import SAMPLES, Scheduler, spreading
from tests.http.extender_client import pod as spread_pod
from tests.kubernetes.syncing import kubeconfig, metric, node, synced
from tests.servers import served
from tests.waiting import until
from topospread.app import cluster_sync
from topospread.cache import BUDGETS
from topospread.service.extender import unschedulable_pods

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HTTP = {"http": "127.0.0.1:0"}
NODES = ["a1", "b1"]
CHANGES = ("label-change", "deletion", "taint-gone", "node-joined", "capacity-freed")
CONDITION = "topospread.io/FitsAgain"


@pytest.fixture
def objects() -> Objects:
    """Two zones with a pod each, and a third one whose node no pod may go to: it holds the minimum.

    As kube-scheduler leaves the node of the third zone out, a pod with maxSkew 1 fits nowhere.
    """
    objects = Objects()
    objects.put(node("a1", "a"), node("b1", "b"), node("c1", "c"))
    objects.put(spread_pod("web-a", "a1"), spread_pod("web-b", "b1"), spreading("late"))
    return objects


@pytest.fixture
def api(objects: Objects) -> Iterator[ApiServer]:
    with ApiServer(objects) as api:
        yield api


@contextmanager
def asked(tmp_path: Path, api: ApiServer, **flags: Any) -> Iterator[tuple[Scheduler, Any]]:
    """A scheduler's questions to a server that syncs."""
    with synced(tmp_path, api, **HTTP, **flags) as (_, server):
        until(lambda: server.ready()[0], "all kinds listed")
        with Scheduler(server) as scheduler:
            yield scheduler, server


def ask(scheduler: Scheduler, name: str = "late", nodes: Sequence[str] = NODES) -> list[str]:
    """The nodes that a waiting pod may go to."""
    found: list[str] = scheduler.ask("filter", spreading(name), nodes)["NodeNames"]
    return found


def conditions(objects: Objects, name: str = "late") -> list[dict[str, Any]]:
    found = objects.get("Pod", "default", name).get("status", {}).get("conditions") or []
    return [one for one in found if one["type"] == CONDITION]


def patches(api: ApiServer, name: str = "late") -> int:
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    return sum(one.method == "PATCH" and one.path == path for one in api.asked)


def relabel(objects: Objects) -> None:
    """The pod in zone a counts no more."""
    objects.change("Pod", "default", "web-a", lambda made: made["metadata"].update(labels={}))


@pytest.mark.parametrize("mode", ["filter", "place"])
def test_a_refused_pod_is_woken_once_it_fits(
    tmp_path: Path, api: ApiServer, objects: Objects, mode: str
) -> None:
    with asked(tmp_path, api, extender=mode) as (scheduler, server):
        # The second one is the retry that came too early.
        assert ask(scheduler) == ask(scheduler) == []
        assert metric(server, "topospread_extender_refused_pods") == 1
        relabel(objects)
        until(lambda: bool(conditions(objects)), "the write that wakes it")
        (condition,) = conditions(objects)
        assert condition["status"] == "True"
        assert condition["reason"] == "RoomAppeared"
        assert "1 of the nodes on which it was refused fit now" in condition["message"]
        assert ask(scheduler) == ["a1"]
        assert metric(server, "topospread_extender_wakes_total", result="woken") == 1
        until(lambda: metric(server, "topospread_extender_refused_pods") == 0, "it is forgotten")
        # What does not concern it wakes it no more.
        objects.put(node("d1", "d"))
        until(lambda: scheduler.ask("filter", spreading("x"), ["d1"])["NodeNames"] == ["d1"], "d1")
        assert patches(api) == 1


@pytest.mark.parametrize("mode", ["filter", "place"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_pod_that_a_real_scheduler_was_refused_is_woken(
    tmp_path: Path, change: str, mode: str
) -> None:
    recorded = json.loads((SAMPLES / f"refused-{change}.json").read_text())
    late = (recorded["namespace"], "late")
    objects = Objects()
    objects.put(*recorded["before"])
    with (
        ApiServer(objects) as api,
        asked(tmp_path, api, extender=mode) as (scheduler, _),
    ):

        def names(args: dict[str, Any]) -> list[str]:
            answer = scheduler.post("filter", json.dumps(args).encode())
            found: list[str] = answer.json()["NodeNames"]
            return found

        # The last of them came after the change, and before the state had it.
        for args in recorded["refused"]:
            assert names(args) == []
        objects.put(*recorded["changed"])
        for removed in recorded["removed"]:
            kind, _, name = removed.partition("/")
            objects.remove(kind, name, "" if kind == "Node" else recorded["namespace"])
        path = "/api/v1/namespaces/{}/pods/{}/status".format(*late)
        if recorded["refusedAfterTheChange"]:
            until(lambda: any(one.path == path for one in api.asked), "the write that wakes it")
        else:
            (last,) = recorded["accepted"]
            until(lambda: names(last["args"]) != [], "the state has the change")
        for accepted in recorded["accepted"]:
            found = names(accepted["args"])
            assert found == accepted["names"] or (mode == "place" and found[0] in accepted["names"])


def test_a_pod_that_fits_nowhere_is_left_alone(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    with asked(tmp_path, api) as (scheduler, server):
        assert ask(scheduler) == []
        # Room appears only where the scheduler does not want the pod to go.
        objects.put(node("c2", "c"))
        until(lambda: ask(scheduler, "other", ["c2"]) == ["c2"], "the state has it")
        # One that fits is judged after it, so that this one was judged again.
        assert ask(scheduler, "more", ["b1"]) == []
        objects.put(spreading("more"))
        objects.remove("Pod", "web-b", "default")
        until(lambda: patches(api, "more") == 1, "the other is woken")
        assert metric(server, "topospread_extender_wakes_total", result="woken") >= 1


@pytest.mark.parametrize("servers", ["feeder elsewhere", "two behind a balancer"])
def test_the_server_that_refused_wakes_also_on_standby(
    tmp_path: Path, api: ApiServer, objects: Objects, servers: str
) -> None:
    store = {"store": f"sqlite://{tmp_path}/state.db"}
    with ExitStack() as opened:
        first, _ = opened.enter_context(asked(tmp_path, api, **store))
        config = kubeconfig(tmp_path, api.url)
        second = opened.enter_context(
            served(extender_wake="on", sync_kubeconfig=config, **store, **HTTP)
        )
        scheduler = opened.enter_context(Scheduler(second))
        until(lambda: ask(scheduler) == [], "the second server has the state")
        if servers.startswith("two"):
            assert ask(first) == []
        relabel(objects)
        until(lambda: bool(conditions(objects)), "the write that wakes it")
        # Where the first server wakes it, the second may have the change a moment later.
        until(lambda: ask(scheduler) == ["a1"], "the node that it fits on")


def test_a_pod_that_came_by_itself_or_is_gone_is_not_written_to(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    objects.put(spreading("gone"), spreading("other"))
    with asked(tmp_path, api) as (scheduler, server):
        assert ask(scheduler, "gone") == ask(scheduler) == []
        # It was made anew by the same name.
        objects.remove("Pod", "gone", "default")
        objects.put(spreading("gone") | {"metadata": {**spreading("gone")["metadata"], "uid": "2"}})
        relabel(objects)
        gone = {"result": "gone"}
        until(lambda: metric(server, "topospread_extender_wakes_total", **gone) == 1, "a conflict")
        until(lambda: bool(conditions(objects)), "the one that is there")
        assert not conditions(objects, "gone")


def test_without_the_permission_it_is_said_once_and_tried_again(
    tmp_path: Path, api: ApiServer, objects: Objects, caplog: pytest.LogCaptureFixture
) -> None:
    api.faults += [Fault(lambda one: one.method == "PATCH", status=403) for _ in range(2)]
    with asked(tmp_path, api) as (scheduler, server):
        assert ask(scheduler) == []
        relabel(objects)
        until(lambda: bool(conditions(objects)), "the permission was given")
        assert metric(server, "topospread_extender_wakes_total", result="failed") == 2
    lines = [one.getMessage() for one in caplog.records if "cannot be woken" in one.getMessage()]
    assert len(lines) == 1
    assert "allow patch of pods/status" in lines[0]


def test_waking_can_be_turned_off(tmp_path: Path, api: ApiServer, objects: Objects) -> None:
    with asked(tmp_path, api, extender_wake="off") as (scheduler, server):
        assert ask(scheduler) == []
        relabel(objects)
        until(lambda: ask(scheduler) == ["a1"], "it fits")
        assert not conditions(objects)
        assert metric(server, "topospread_extender_refused_pods") == 0


def test_names_that_no_pod_has_are_not_remembered(tmp_path: Path, api: ApiServer) -> None:
    with asked(tmp_path, api) as (scheduler, server):
        assert ask(scheduler, "../../../nodes/a1") == []
        assert metric(server, "topospread_extender_refused_pods") == 0
        assert ask(scheduler) == []
        assert metric(server, "topospread_extender_refused_pods") == 1


def test_remembered_pods_are_bounded(
    tmp_path: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unschedulable_pods, "MOST_PODS", 3)
    with asked(tmp_path, api) as (scheduler, server):

        def remembered() -> float:
            return metric(server, "topospread_extender_refused_pods")

        for number in range(10):
            assert ask(scheduler, f"pod-{number}") == []
        assert remembered() == 3
        # Pods of one shape with the same candidates share them.
        names = [*NODES, *(f"{number:0100}" for number in range(100))]
        monkeypatch.setattr(BUDGETS["refused"], "most", 25_000)
        for number in range(10):
            assert ask(scheduler, f"pod-{number}", names) == []
        assert remembered() == 3
        # Those with others do not.
        for number in range(10):
            assert ask(scheduler, f"pod-{number}", [*names, str(number)]) == []
        assert remembered() == 2


class Clock:
    """Stands still until it is set forward.

    Attributes:
        readings: so far.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return self.now


def test_the_rate_of_writes_is_bounded(
    tmp_path: Path, api: ApiServer, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(
        cluster_sync,
        "UnschedulablePods",
        partial(unschedulable_pods.UnschedulablePods, clock=clock),
    )
    monkeypatch.setattr(unschedulable_pods, "RATE", 5.0)
    names = [f"late-{number}" for number in range(12)]
    objects.put(*(spreading(name) for name in names))

    def woken() -> int:
        return sum(patches(api, name) for name in names)

    def awaited(many: int) -> None:
        """So many are woken, and no more when it looks again, more than once, at that time."""
        until(lambda: woken() >= many, f"{many} are woken")
        seen = clock.readings
        until(lambda: clock.readings > seen + 20, "it looks again")
        assert woken() == many

    with asked(tmp_path, api) as (scheduler, _):
        for name in names:
            assert ask(scheduler, name) == []
        relabel(objects)
        # Nobody asks again, so that all still fit: five at once, the others as time passes.
        awaited(5)
        clock.now += 0.5
        awaited(7)
        clock.now += 60.0
        until(lambda: woken() >= 12, "all are woken in the end")
        assert [patches(api, name) for name in names] == [1] * 12
