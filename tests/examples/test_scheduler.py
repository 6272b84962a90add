"""The example scheduler on an API server of our own: several copies, and bindings that fail."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client import Configuration

from examples.scheduler import scheduler as example
from examples.scheduler.scheduler import Cluster, Scheduler
from tests.apiserver.objects import Objects
from tests.apiserver.server import ApiServer, Asked, Fault
from tests.kubernetes.syncing import ZONE, kubeconfig, node, pod, synced
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kubernetes.syncing import State

ROOT = Path(__file__).parents[2]
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def waiting(name: str, **spec: Any) -> dict[str, Any]:
    spread = {"schedulerName": "topospread", "topologySpreadConstraints": [SPREAD]}
    return pod(name, **{**spread, **spec})


def binding(asked: Asked) -> bool:
    return asked.path.endswith("/binding")


@pytest.fixture
def objects() -> Objects:
    objects = Objects()
    objects.put(*(node(f"{zone}{number}", zone) for zone in "abc" for number in (1, 2)))
    return objects


@pytest.fixture
def api(objects: Objects) -> Iterator[ApiServer]:
    with ApiServer(objects) as server:
        yield server


@pytest.fixture
def state(tmp_path: Path, api: ApiServer) -> Iterator[State]:
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "the cluster")
        yield state


@contextmanager
def scheduling(
    api: ApiServer, state: State, *, pause: float = 0.05, tries: list[str] | None = None
) -> Iterator[Scheduler]:
    """One copy at work; the names of the pods that it asks for are added to ``tries``."""
    configuration = Configuration()
    configuration.host = api.url
    copy = Scheduler(Cluster(configuration), state.client, "topospread", pause=pause)
    if tries is not None:
        noted(copy, tries)
    watch = threading.Thread(target=copy.watch, daemon=True)
    run = threading.Thread(target=copy.run, daemon=True)
    watch.start()
    run.start()
    try:
        yield copy
    finally:
        copy.stop()
        run.join(20)
        assert not run.is_alive()


def noted(copy: Scheduler, tries: list[str]) -> None:
    """Have a copy add to ``tries`` the name of each pod that it is about to ask for."""
    place = copy.schedule

    def schedule(manifest: dict[str, Any]) -> bool:
        tries.append(manifest["metadata"]["name"])
        return place(manifest)

    copy.schedule = schedule  # type: ignore[method-assign,assignment] # to be counted


def nodes_of(objects: Objects) -> dict[str, str]:
    """Where the API server has each pod."""
    pods = [stored.manifest for stored in objects.all("pods")]
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}


def zones(objects: Objects) -> Counter[str]:
    return Counter(name[0] for name in nodes_of(objects).values() if name)


def test_scheduler_has_no_more_lines_than_its_readme_states() -> None:
    assert len(Path(example.__file__).read_text().splitlines()) <= 150


def test_several_copies_at_once_keep_max_skew(
    objects: Objects, api: ApiServer, state: State
) -> None:
    with ExitStack() as copies:
        both = [copies.enter_context(scheduling(api, state)) for _ in range(2)]
        # As a burst, which a scheduler that only watches would spread by what it saw before.
        objects.put(*(waiting(f"web-{number}") for number in range(31)))
        until(lambda: all(nodes_of(objects).values()), "every pod is bound")
        assert sorted(zones(objects).values()) == [10, 10, 11]
        until(lambda: sum(len(copy.bound) for copy in both) == 31, "both know")
        assert not both[0].bound.keys() & both[1].bound.keys(), "each was bound by one of them"
    until(lambda: state.pods() == nodes_of(objects), "the bindings are seen")
    until(lambda: not list(state.client.list_reservations()), "nothing is held any more")


def test_two_programs_schedule_together(tmp_path: Path, objects: Objects, api: ApiServer) -> None:
    command = [sys.executable, "-m", "examples.scheduler", "--address"]
    with synced(tmp_path, api) as (_, server), ExitStack() as running:
        until(lambda: server.ready()[0], "the cluster")
        environ = {**os.environ, "KUBECONFIG": kubeconfig(tmp_path, api.url)}
        for _ in range(2):
            program = subprocess.Popen(
                [*command, server.address], cwd=ROOT, env=environ, stderr=subprocess.DEVNULL
            )
            running.enter_context(program)
            running.callback(program.kill)
        objects.put(*(waiting(f"web-{number}") for number in range(9)))
        until(lambda: all(nodes_of(objects).values()), "every pod is bound")
        assert sorted(zones(objects).values()) == [3, 3, 3]


def test_pods_of_other_schedulers_are_left_alone(
    objects: Objects, api: ApiServer, state: State
) -> None:
    with scheduling(api, state) as copy:
        objects.put(waiting("theirs", schedulerName="default-scheduler"), waiting("ours"))
        until(lambda: bool(nodes_of(objects)["ours"]), "our pod")
        until(lambda: set(copy.bound) == {"ours"}, "it knows")
        assert nodes_of(objects)["theirs"] == ""


def test_reservation_of_a_pod_that_cannot_be_bound_is_released(
    objects: Objects, api: ApiServer, state: State
) -> None:
    api.faults.append(Fault(binding, status=422))
    api.faults.append(Fault(binding, status=403))
    held: list[int] = []
    with scheduling(api, state) as copy:
        refused = copy.schedule

        def schedule(manifest: dict[str, Any]) -> bool:
            done = refused(manifest)
            now = {"fully_consistent": True}
            held.append(len(list(state.client.list_reservations(consistency=now))))
            return done

        copy.schedule = schedule  # type: ignore[method-assign,assignment] # to look right after each try
        objects.put(waiting("web-0"))
        until(lambda: bool(nodes_of(objects)["web-0"]), "the third try")
    assert held[:2] == [0, 0]


def test_reservation_counts_until_the_binding_is_known_to_have_failed(
    objects: Objects, api: ApiServer, state: State
) -> None:
    api.faults.append(Fault(binding, status=504))
    configuration = Configuration()
    configuration.host = api.url
    copy = Scheduler(Cluster(configuration), state.client, "topospread")
    objects.put(waiting("web-0"))
    manifest = objects.get("Pod", "default", "web-0")
    assert not copy.schedule(manifest)
    (held,) = state.client.list_reservations()
    # Tried again, it is given the same node.
    assert copy.schedule(manifest)
    assert nodes_of(objects)["web-0"] == held.node


def test_a_pod_that_fits_nowhere_waits_until_it_fits(
    objects: Objects, api: ApiServer, state: State
) -> None:
    with scheduling(api, state):
        objects.put(waiting("picky", nodeSelector={"disk": "ssd"}))
        until(lambda: api.watches("pods") >= 2, "both watches")
        objects.put(
            {**node("d1", "a"), "metadata": {"name": "d1", "labels": {ZONE: "a", "disk": "ssd"}}}
        )
        until(lambda: nodes_of(objects)["picky"] == "d1", "the node it waits for")


def test_pending_pod_is_tried_once_a_pause_however_often_it_is_seen(
    objects: Objects, api: ApiServer, state: State
) -> None:
    tries: list[str] = []
    picky = waiting("picky", nodeSelector={"disk": "ssd"})
    # The pause lasts longer than the test, so that there is one try.
    with scheduling(api, state, pause=3600.0, tries=tries) as copy:
        objects.put(picky)
        until(lambda: tries == ["picky"], "the try")
        for number in range(3):
            picky["metadata"]["labels"]["seen"] = str(number)
            objects.put(picky)
        # A second thread lists it and its events anew.
        watches = api.watches("pods")
        threading.Thread(target=copy.watch, daemon=True).start()
        until(lambda: api.watches("pods") > watches, "it is listed again")
        objects.put(waiting("last"))
        until(lambda: bool(nodes_of(objects)["last"]), "what was lined up before is done")
    assert tries.count("picky") == 1


def test_deleted_pod_is_tried_no_more(objects: Objects, api: ApiServer, state: State) -> None:
    tries: list[str] = []
    with scheduling(api, state, tries=tries):
        objects.put(*(waiting(name, nodeSelector={"disk": "ssd"}) for name in ("gone", "stays")))
        until(lambda: tries.count("gone") > 1, "it is tried again and again")
        objects.remove("Pod", "gone", "default")
        objects.put(waiting("last"))
        until(lambda: "last" in tries, "the deletion was seen before this one")
        seen = len(tries)
        # Their pauses are equally long: while one is over several times the other would be, too.
        until(lambda: tries[seen:].count("stays") > 3, "several pauses")
        assert "gone" not in tries[seen:]


def test_list_ends_the_wait_of_pods_it_lacks(objects: Objects, api: ApiServer) -> None:
    configuration = Configuration()
    configuration.host = api.url
    objects.put(waiting("new"))
    new = objects.get("Pod", "default", "new")
    changes = Cluster(configuration).pending("topospread", ["deleted", new["metadata"]["uid"]])
    assert [next(changes), next(changes)] == [("deleted", None), (new["metadata"]["uid"], new)]
