"""A cluster's state follows its API server, whatever happens to the connection between them."""

from __future__ import annotations

import copy
import logging
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.objects import RESOURCES as REAL
from tests.apiserver.objects import Objects
from tests.apiserver.server import ApiServer, Asked, Fault
from tests.kubernetes.syncing import ZONE, metric, node, pod, small_cluster, synced
from tests.waiting import until
from topospread.kubernetes import contact
from topospread.kubernetes.objects import RESOURCES
from topospread_client import Client, NotFound, enum_name
from topospread_proto.v1 import common_pb2 as common

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kubernetes.syncing import State
    from tests.redis_server import RedisProcess


@pytest.fixture
def objects() -> Objects:
    return small_cluster()


@pytest.fixture
def api(objects: Objects) -> Iterator[ApiServer]:
    with ApiServer(objects) as server:
        yield server


@pytest.fixture
def state(tmp_path: Path, api: ApiServer) -> Iterator[State]:
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        yield state


def of(plural: str, *, watch: bool = True) -> Callable[[Asked], bool]:
    """Matches lists or watches of a kind."""
    return lambda asked: asked.watch is watch and asked.path.endswith(f"/{plural}")


def of_list(plural: str, page: int) -> Callable[[Asked], bool]:
    """Requests for the first page of a list, or for a later one."""
    wanted = of(plural, watch=False)
    return lambda asked: wanted(asked) and ("continue" in asked.query) == (page > 1)


BY_ZONE = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def beat(made: dict[str, Any]) -> None:
    """Change what changes every few seconds, and counts for nothing."""
    made["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"


def test_every_kind_is_listed_and_decisions_rest_on_it(state: State) -> None:
    assert state.names("NODE") == {"a1", "a2", "b1"}
    assert state.pods() == {"web-0": "a1", "web-1": "b1"}
    assert state.names("SERVICE") == {"web"}
    assert state.names("REPLICATION_CONTROLLER") == {"old"}
    assert state.names("REPLICA_SET") == {"web"}
    assert state.names("STATEFUL_SET") == {"db"}
    asked = pod("web-2", topologySpreadConstraints=[BY_ZONE])
    newest = {"fully_consistent": True}
    assert state.client.evaluate_pod(asked, consistency=newest).feasible_node_count == 3


def test_changes_are_followed(state: State, objects: Objects) -> None:
    objects.put(node("b2", "b"), pod("web-2", "b2"))
    until(lambda: state.pods().get("web-2") == "b2", "a new pod")
    until(lambda: "b2" in state.names("NODE"), "a new node")
    objects.change("Pod", "default", "web-2", lambda made: made["spec"].update(nodeName="a2"))
    until(lambda: state.pods()["web-2"] == "a2", "a changed pod")
    objects.remove("Pod", "web-2", "default")
    objects.remove("ReplicaSet", "web", "default")
    until(lambda: "web-2" not in state.pods(), "a deleted pod")
    until(lambda: not state.names("REPLICA_SET"), "a deleted owner")


def test_the_version_comes_with_the_list_and_an_upgrade_with_the_next_one(
    tmp_path: Path, api: ApiServer
) -> None:
    api.version = "v1.37.2"
    with synced(tmp_path, api) as (state, server):
        newest = {"fully_consistent": True}
        until(lambda: server.ready()[0], "all kinds listed")

        def known() -> str:
            return state.client.get_cluster(consistency=newest).cluster.kubernetes_version

        assert known() == "1.37"
        api.version = "v1.38.0"
        api.hang_up()
        until(lambda: known() == "1.38", "the upgrade")


def test_a_pod_that_ends_is_gone(state: State, objects: Objects) -> None:
    objects.change("Pod", "default", "web-0", lambda made: made["status"].update(phase="Succeeded"))
    until(lambda: set(state.pods()) == {"web-1"}, "the ended pod")


@pytest.mark.parametrize(("faults", "pages"), [(0, 3), (1, 2 + 3)], ids=["in time", "too late"])
def test_lists_come_in_pages(tmp_path: Path, faults: int, pages: int) -> None:
    """A page that is asked for too late begins the list anew."""
    objects = Objects()
    objects.put(*(node(f"n{number}") for number in range(25)))
    with ApiServer(objects, page=10) as api:
        api.faults += [Fault(of_list("nodes", 2), 410)] * faults
        with synced(tmp_path, api) as (state, server):
            until(lambda: server.ready()[0], "all pages")
            assert len(state.names("NODE")) == 25
            assert api.lists("nodes") == pages


NO_LISTS: dict[str, dict[str, Any]] = {
    "a short body": {"cut_after": 1000},
    "no body": {"cut_after": 0},
    "a status": {"body": b'{"kind":"Status","apiVersion":"v1","metadata":{"resourceVersion":"9"}}'},
    "no items": {"body": b'{"kind":"NodeList","metadata":{"resourceVersion":"9"}}'},
    "items of no list": {
        "body": b'{"kind":"NodeList","metadata":{"resourceVersion":"9"},"items":{}}'
    },
    "no version": {"body": b'{"kind":"NodeList","metadata":{},"items":[]}'},
    "no JSON": {"body": b""},
    "an error": {"status": 500},
}


def test_an_incomplete_list_removes_nothing(tmp_path: Path) -> None:
    objects = Objects()
    objects.put(*(node(f"n{number}") for number in range(25)))
    with ApiServer(objects, page=10) as api, synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "the first list")
        before = state.client.get_object("NODE", "n0").meta.revision
        marks: list[str] = []

        def mark() -> str:
            marks.append(f"mark-{len(marks)}")
            objects.put(node(marks[-1]))
            return marks[-1]

        later = ("a short body", "no items")
        for page, what in [(1, what) for what in NO_LISTS] + [(2, what) for what in later]:
            # What comes by a watch ends the pauses that the faults before have made longer.
            seen = mark()
            until(partial(lambda name: name in state.names("NODE"), seen), "a watch")
            lists = api.lists("nodes")
            api.faults.append(Fault(of_list("nodes", page), **NO_LISTS[what]))
            with objects.changed:
                # As if a compaction came while the connection was down.
                seen = mark()
                objects.forget()
                api.hang_up()
            until(partial(lambda name: name in state.names("NODE"), seen), f"a list after {what}")
            assert not api.faults, what
            assert api.lists("nodes") > lists + 3, what
        reported: list[tuple[str, bool]] = []
        for changes in state.client.watch_objects(revision=before, kinds=["NODE"]):
            reported += [
                (change.ref.name, change.HasField("object"))
                for change in changes.events
                if change.HasField("ref")
            ]
            if (marks[-1], True) in reported:
                break
        assert reported == [(mark, True) for mark in marks]


def test_a_watch_that_breaks_off_is_followed_by_a_list(
    state: State, objects: Objects, api: ApiServer
) -> None:
    until(lambda: api.watches("pods") == 1, "a watch")
    api.hang_up()
    objects.put(pod("web-2", "b1"))
    until(lambda: "web-2" in state.pods(), "a change across the break")
    until(lambda: api.watches("pods") >= 2 and api.lists("pods") == 2, "a list and a watch")


def test_half_an_object_is_not_taken_for_one(tmp_path: Path, api: ApiServer) -> None:
    # Within the second event, so that the first one counts and the second one comes again.
    api.faults.append(Fault(of("pods"), cut_after=1000))
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        until(lambda: api.watches("pods") == 1, "a watch")
        for number in range(20):
            api.objects.put(pod(f"late-{number}", "a1"))
        until(lambda: len(state.pods()) == 22, "all pods in spite of the cut")
        assert metric(server, "topospread_sync_failures_total", kind="Pod") >= 1


@pytest.mark.parametrize(
    "fault",
    [
        {"error": 410},
        {"status": 410},
        {"error": 504, "message": "Too large resource version: 99, current: 9"},
    ],
)
def test_a_place_that_is_not_known_is_listed_again(
    tmp_path: Path, api: ApiServer, fault: dict[str, Any], objects: Objects
) -> None:
    api.faults.append(Fault(of("pods"), **fault))
    with synced(tmp_path, api) as (state, server):
        until(lambda: api.lists("pods") == 2, "a second list")
        objects.put(pod("web-2", "b1"))
        until(lambda: "web-2" in state.pods(), "a change after it")
        assert metric(server, "topospread_sync_lists_total", kind="Pod", reason="expired") == 1


def test_deletions_during_an_outage_are_found(
    state: State, objects: Objects, api: ApiServer
) -> None:
    until(lambda: api.watches("pods") == 1, "a watch")
    with objects.changed:
        # As if a compaction came while the connection was down.
        objects.remove("Pod", "web-0", "default")
        objects.put(pod("web-9", "a2"))
        objects.forget()
        api.hang_up()
    until(lambda: set(state.pods()) == {"web-1", "web-9"}, "the list")


def test_other_errors_in_a_watch_are_tried_again(tmp_path: Path, api: ApiServer) -> None:
    api.faults += [
        Fault(of("pods", watch=False), status=500),
        Fault(of("pods"), error=500),
        Fault(of("pods"), status=429),
    ]
    with synced(tmp_path, api) as (state, server):
        until(lambda: api.watches("pods") == 3, "a watch that stays")
        api.objects.put(pod("web-2", "b1"))
        until(lambda: "web-2" in state.pods(), "a change after the errors")
        assert metric(server, "topospread_sync_failures_total", kind="Pod") == 3


def test_bookmarks_move_the_place_on(
    tmp_path: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a cluster whose lists take minutes: watches follow one another without any.
    monkeypatch.setattr(contact, "WATCH_SECONDS", 1.0)
    monkeypatch.setattr(contact, "REST", 1e9)
    with (
        ApiServer(objects, bookmark_seconds=0.05) as api,
        synced(tmp_path, api) as (state, server),
    ):
        until(lambda: server.ready()[0], "all kinds listed")
        # Only pods change: without bookmarks, services would be asked for from a forgotten place.
        objects.put(pod("web-2", "b1"))
        until(lambda: "web-2" in state.pods(), "the change")
        label = {"kind": "Service", "type": "bookmark"}
        seen = metric(server, "topospread_sync_events_total", **label)
        until(
            lambda: metric(server, "topospread_sync_events_total", **label) >= seen + 2, "bookmarks"
        )
        # Who waits for a version of a kind of which nothing changes is answered.
        version = str(objects.version)
        read = common.ResourceVersion(kind=common.KIND_SERVICE, resource_version=version)
        newest = {"not_older_than": {"versions": [read]}}
        assert state.client.get_node_table(consistency=newest).meta.observed
        objects.forget()
        before = api.watches("services")
        until(lambda: api.watches("services") > before, "the next watch")
        objects.put({"kind": "Service", "metadata": {"name": "new"}})
        until(lambda: "new" in state.names("SERVICE"), "a change after it")
        assert api.lists("services") == 1


def test_heartbeats_are_not_written(tmp_path: Path, api: ApiServer, objects: Objects) -> None:
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        before = state.client.get_node_table().meta.revision

        for name in ("a1", "a2", "b1"):
            objects.change("Node", "", name, beat)
        skipped = {"kind": "Node", "result": "skipped"}
        until(lambda: metric(server, "topospread_sync_changes_total", **skipped) == 3, "beats")
        objects.change("Node", "", "a1", lambda made: made.update(spec={"unschedulable": True}))
        changes = state.client.watch_objects(revision=before, kinds=["NODE"])
        reported = next(
            each for change in changes for each in change.events if each.HasField("object")
        )
        assert reported.object.node.spec.unschedulable, "the first change that matters"
        changes.close()


def job(name: str, controller: str = "") -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": controller, "uid": "u"}
    owners = [owner | {"controller": True}] if controller else []
    metadata = {"name": name, "namespace": "default", "ownerReferences": owners}
    return {"kind": "Job", "metadata": metadata, "spec": {}, "status": {}}


def test_a_job_says_whose_its_pods_are_and_nothing_else_of_it_is_written(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    made = pod("x", "a1", topologySpreadConstraints=[BY_ZONE])
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "u", "controller": True}
    ]
    objects.put(job("nightly", "backup"), made)
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        (row,) = [each for each in state.client.list_constraints() if not each.defaulted]
        assert (row.owner.kind, row.owner.name) == ("CronJob", "backup")
        before = state.client.get_node_table().meta.revision
        objects.change("Job", "default", "nightly", lambda made: made.update(status={"active": 1}))
        skipped = {"kind": "Job", "result": "skipped"}
        until(lambda: metric(server, "topospread_sync_changes_total", **skipped) == 1, "a status")
        objects.put(job("other"))
        changes = state.client.watch_objects(revision=before, kinds=["JOB"])
        reported = next(
            each for change in changes for each in change.events if each.HasField("object")
        )
        assert reported.object.job.metadata.name == "other", "the first change that matters"
        changes.close()


KINDS = [
    common.Kind.Name(number).removeprefix("KIND_")
    for number in common.Kind.values()
    if number not in (0, common.KIND_RESERVATION)
]


def read_up_to(state: State) -> dict[str, int]:
    """How far the sync reports that it has read."""
    observed = state.client.get_cluster().cluster.observed
    return {enum_name(each, "kind"): int(each.resource_version) for each in observed}


def test_a_binder_need_not_know_how_the_state_is_synced(state: State, objects: Objects) -> None:
    """It waits for the version that the API server told it, and the pod counts."""
    asked = pod("next", topologySpreadConstraints=[BY_ZONE])
    expected = {"a": 1, "b": 1}
    for number in range(10):
        zone, on = ("a", "a2") if number % 2 else ("b", "b1")
        objects.put(pod(f"bound-{number}", on))
        expected[zone] += 1
        seen = common.ResourceVersion(kind=common.KIND_POD, resource_version=str(objects.version))
        counted = state.client.pre_filter(
            asked, with_counts=True, consistency={"not_older_than": {"versions": [seen]}}
        )
        (constraint_state,) = counted.constraints
        assert {each.value: each.pod_count for each in constraint_state.domain_counts} == expected
        assert seen in counted.meta.observed


def test_a_list_says_how_far_it_has_read(state: State, objects: Objects) -> None:
    assert set(read_up_to(state)) == set(KINDS)
    assert max(read_up_to(state).values()) <= objects.version


def test_heartbeats_that_are_not_written_are_read(state: State, objects: Objects) -> None:
    """Who waits for a version that only a heartbeat reached would wait for a change to come."""
    objects.change("Node", "", "a1", beat)
    seen = common.ResourceVersion(kind=common.KIND_NODE, resource_version=str(objects.version))
    newest = {"not_older_than": {"versions": [seen]}}
    assert state.client.get_node_table(consistency=newest).meta.observed


def test_namespaces_can_be_excluded(tmp_path: Path, objects: Objects) -> None:
    objects.put(pod("system", "a1", namespace="kube-system"))
    with (
        ApiServer(objects) as api,
        synced(tmp_path, api, sync_excluded_namespaces="kube-system,other") as (state, server),
    ):
        until(lambda: server.ready()[0], "all kinds listed")
        objects.put(pod("more", "a1", namespace="kube-system"), pod("web-2", "a1"))
        until(lambda: "web-2" in state.pods(), "a pod of another namespace")
        assert set(state.pods()) == {"web-0", "web-1", "web-2"}
        listed = next(asked for asked in api.asked if of("pods", watch=False)(asked))
        assert "metadata.namespace!=kube-system" in listed.query["fieldSelector"]
        nodes = next(asked for asked in api.asked if of("nodes", watch=False)(asked))
        assert "fieldSelector" not in nodes.query


def test_an_object_that_cannot_be_read_is_left_out_and_counted(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    odd = pod("odd", "a1")
    odd["spec"]["priority"] = "very"
    huge = pod("huge", "a1")
    huge["metadata"]["labels"]["app"] = "x" * 1_600_000
    objects.put(odd, huge)
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        assert set(state.pods()) == {"web-0", "web-1"}
        assert metric(server, "topospread_sync_changes_total", kind="Pod", result="refused") == 2
        objects.put(pod("spaced name"), pod("web-2", "a1"))
        until(lambda: "web-2" in state.pods(), "what came with another that cannot be stored")
        assert metric(server, "topospread_sync_changes_total", kind="Pod", result="refused") == 3


def test_a_cluster_restored_from_a_backup_is_taken_as_it_is(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        until(lambda: api.watches("pods") == 1, "a watch")
        backup = [
            copy.deepcopy({"kind": kind, **stored.manifest})
            for kind, plural in (("Node", "nodes"), ("Pod", "pods"))
            for stored in objects.all(plural)
        ]
        backup[-1]["spec"]["nodeName"] = "a2"
        # Versions go on from long before, and what came after the backup never happened.
        objects.restore(10, backup)
        api.hang_up()
        api.faults += [Fault(of(plural), status=410) for plural in ("pods", "services")]
        until(lambda: state.pods() == {"web-0": "a1", "web-1": "a2"}, "the backup's pods")
        until(lambda: not state.names("SERVICE"), "the backup's services")

        def read_no_further() -> bool:
            read = read_up_to(state)
            return max(read["POD"], read["SERVICE"]) <= objects.version

        # Else who waits for what comes after the backup would not wait at all. The versions follow
        # the objects, in a change of their own.
        until(read_no_further, "the backup's versions")


def test_a_cluster_that_was_dropped_is_filled_again(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    with synced(tmp_path, api, sync_lease_duration="1s") as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        state.client.delete_cluster("default")
        objects.put(pod("web-2", "b1"))

        def whole() -> bool:
            try:
                return len(state.pods()) == 3 and len(state.names("NODE")) == 3
            except NotFound:
                return False

        until(whole, "all kinds again")


def test_a_store_that_was_emptied_is_filled_again(
    tmp_path: Path,
    api: ApiServer,
    objects: Objects,
    start_redis: Callable[..., RedisProcess],
) -> None:
    redis = start_redis()
    followed: dict[str, Any] = {"sync_lease_duration": "1s", "store": redis.url}
    with synced(tmp_path, api, **followed) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        assert state.client.get_node_table().node_names == ["a1", "a2", "b1"]
        with redis.client() as emptied:
            emptied.flushall()
        objects.put(pod("web-2", "b1"))

        def whole() -> bool:
            try:
                found = state.client.get_cluster().cluster
            except NotFound:
                return False
            # It never was taken for an empty cluster.
            assert found.node_count == 3
            assert found.pod_count >= 2
            return found.pod_count == 3 and not found.identity_changed

        until(whole, "all kinds again")
        assert set(state.pods()) == {"web-0", "web-1", "web-2"}


def test_nothing_is_stored_beside_the_clusters_of_callers(
    tmp_path: Path, api: ApiServer, start_redis: Callable[..., RedisProcess]
) -> None:
    """So that no name of the server's own is one that a caller could write."""
    redis = start_redis()
    with synced(tmp_path, api, store=redis.url) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        assert [each.name for each in state.client.list_clusters()] == ["default"]
        with redis.client() as stored:
            parts = {key.split(b":")[1] for key in stored.scan_iter()}
        assert parts == {b"{default}"}


def test_until_the_cluster_is_listed_the_server_is_not_ready(
    tmp_path: Path, api: ApiServer
) -> None:
    api.faults += [Fault(of("pods", watch=False), status=503) for _ in range(4)]
    with synced(tmp_path, api) as (_, server):
        # Before that it is loading.
        until(lambda: "Pod of the cluster not listed yet" in server.ready()[1], "the reason")
        assert not server.ready()[0]
        until(lambda: server.ready()[0], "readiness")
        assert api.lists("pods") == 5


def test_a_token_is_shown_and_a_wrong_one_is_said(
    tmp_path: Path, objects: Objects, caplog: pytest.LogCaptureFixture
) -> None:
    with ApiServer(objects, token="secret") as api:
        with synced(tmp_path, api, token="secret") as (_, server):
            until(lambda: server.ready()[0], "all kinds listed")
        with synced(tmp_path, api, token="guess") as (_, server):
            until(
                lambda: metric(server, "topospread_sync_failures_total", kind="Node") >= 1, "a no"
            )
    assert "401 Unauthorized" in caplog.text
    assert "check the kubeconfig" in caplog.text
    assert "guess" not in caplog.text


def test_lag_grows_while_the_api_server_is_away(tmp_path: Path, objects: Objects) -> None:
    with ApiServer(objects) as api:
        config = synced(tmp_path, api)
        state, server = config.__enter__()
        until(lambda: server.ready()[0], "all kinds listed")
        until(lambda: metric(server, "topospread_sync_watching", kind="Pod") == 1, "an open watch")
        assert metric(server, "topospread_sync_objects", kind="Pod") == 2
    try:
        until(lambda: metric(server, "topospread_sync_lag_seconds", kind="Pod") > 0, "a lag")
        assert metric(server, "topospread_sync_watching", kind="Pod") == 0
        assert isinstance(state.client, Client)
        assert len(state.pods()) == 2, "the state answers on"
    finally:
        config.__exit__(None, None, None)


def test_debug_has_a_line_for_each_batch_that_is_written(
    tmp_path: Path, objects: Objects, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "topospread.kubernetes")
    with ApiServer(objects) as api, synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        objects.put(pod("web-2", "b1"))
        until(lambda: "web-2" in state.pods(), "the change")
        until(lambda: "1 objects and 0 deletions written" in caplog.text, "its line")
    assert "web-2" not in caplog.text


def test_an_outage_of_the_api_server_is_one_line_and_its_end_another(
    tmp_path: Path, objects: Objects, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kinds = [resource.name for resource in RESOURCES]

    def failures(server: Any) -> list[float]:
        return [metric(server, "topospread_sync_failures_total", kind=kind) for kind in kinds]

    def said() -> list[str]:
        names = ("topospread.kubernetes", "urllib3")
        return [one.getMessage() for one in caplog.records if one.name.startswith(names)]

    with ExitStack() as first:
        api = first.enter_context(ApiServer(objects))
        with synced(tmp_path, api) as (state, server):
            until(lambda: server.ready()[0], "all kinds listed")
            until(lambda: all(api.watches(one.plural) for one in REAL), "all watches")
            port = int(api.url.rpartition(":")[2])
            caplog.clear()
            first.close()
            until(lambda: min(failures(server)) >= 4, "four attempts of each kind")
            (line,) = said()
            assert "is out of reach" in line
            assert api.url in line
            caplog.clear()
            with ApiServer(objects, port=port) as again:
                until(lambda: all(again.watches(one.plural) for one in REAL), "all watches again")
                objects.put(pod("web-2", "b1"))
                until(lambda: "web-2" in state.pods(), "a change after it")
                (line,) = said()
                assert "is reachable again after" in line


def test_a_refusal_that_lasts_is_one_line(
    tmp_path: Path, api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    api.faults += [Fault(of("services", watch=False), status=403) for _ in range(5)]
    with synced(tmp_path, api) as (_, server):
        until(lambda: server.ready()[0], "all kinds listed")
        assert metric(server, "topospread_sync_failures_total", kind="Service") == 5
    assert caplog.text.count("the API server answers 403") == 1
