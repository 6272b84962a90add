"""The state follows what the lists say, whatever the history of the API server's objects does."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.objects import RESOURCES, Objects
from tests.apiserver.server import ApiServer
from tests.kubernetes.syncing import State, metric, node, synced
from tests.waiting import until
from topospread.kubernetes import contact
from topospread.kubernetes.objects import RESOURCES as SYNCED
from topospread_client import DeadlineExceeded
from topospread_proto.v1 import common_pb2 as common

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.apiserver.objects import Resource

Manifest = dict[str, Any]


def one(resource: Resource, name: str) -> Manifest:
    """An object of a kind."""
    metadata = {"name": name, **({"namespace": "default"} if resource.namespaced else {})}
    return {"kind": resource.kind, "metadata": metadata, "spec": {}}


def of_all_kinds(*names: str) -> list[Manifest]:
    return [one(resource, name) for resource in RESOURCES for name in names]


def remove(objects: Objects, name: str) -> None:
    for resource in RESOURCES:
        objects.remove(resource.kind, name, "default" if resource.namespaced else "")


def backup_of(objects: Objects) -> list[Manifest]:
    """All objects as they are, with their uids."""
    return [
        copy.deepcopy({"kind": resource.kind, **stored.manifest})
        for resource in RESOURCES
        for stored in objects.all(resource.plural)
    ]


def older(objects: Objects, backup: list[Manifest]) -> None:
    objects.restore(10, backup)


def past_the_old_version(objects: Objects, backup: list[Manifest]) -> None:
    """What is made anew before the old version is reached, no watch from there tells."""
    before = objects.version
    objects.restore(10, backup)
    objects.put(*of_all_kinds("early"))
    remove(objects, "kept")
    objects.version = before + 100
    objects.put(*of_all_kinds("late"))


def emptied(objects: Objects, backup: list[Manifest]) -> None:
    del backup
    objects.restore(10, [])


def another_cluster(objects: Objects, backup: list[Manifest]) -> None:
    del backup
    objects.restore(10, of_all_kinds("kept", "foreign"))


def another_cluster_further_on(objects: Objects, backup: list[Manifest]) -> None:
    del backup
    objects.restore(500_000, of_all_kinds("kept", "foreign"))


HISTORIES = (older, past_the_old_version, emptied, another_cluster, another_cluster_further_on)
STORED = {resource.name: resource.kind.name for resource in SYNCED}


def in_state(state: State, resource: Resource) -> dict[str, str]:
    """The uid of each object of a kind."""
    kind = STORED[resource.kind]
    found = (getattr(each, kind.lower()).metadata for each in state.client.list_objects(kind))
    return {each.name: each.uid for each in found}


def at_api_server(objects: Objects, resource: Resource) -> dict[str, str]:
    metadata = (stored.manifest["metadata"] for stored in objects.all(resource.plural))
    return {each["name"]: each["uid"] for each in metadata}


def same(state: State, objects: Objects) -> bool:
    return all(in_state(state, each) == at_api_server(objects, each) for each in RESOURCES)


@pytest.fixture
def objects() -> Objects:
    made = Objects()
    made.put(*of_all_kinds("kept", "gone"))
    return made


@pytest.fixture
def api(objects: Objects) -> Iterator[ApiServer]:
    with ApiServer(objects, bookmark_seconds=0.1) as serving:
        yield serving


def all_watched(api: ApiServer) -> bool:
    return all(api.watches(each.plural) for each in RESOURCES)


def cut(api: ApiServer) -> None:
    api.hang_up()


def ended(api: ApiServer) -> None:
    api.end_watches()


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("end", [cut, ended])
def test_lost_contact_is_followed_by_a_list(
    tmp_path: Path,
    api: ApiServer,
    objects: Objects,
    history: Callable[[Objects, list[Manifest]], None],
    end: Callable[[ApiServer], None],
) -> None:
    backup = backup_of(objects)
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0] and all_watched(api), "all kinds watched")
        objects.put(*of_all_kinds("after"))
        until(lambda: same(state, objects), "what came after the backup")
        remove(objects, "after")
        until(lambda: same(state, objects), "deletions, at versions that will be in the future")
        with objects.changed:
            history(objects, backup)
            end(api)
        until(lambda: same(state, objects), "what the lists say")
        objects.put(*of_all_kinds("after", "new"))
        until(lambda: same(state, objects), "what is made anew, under names that were there before")


@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_that_changes_unnoticed_is_listed_when_it_is_time(
    tmp_path: Path,
    api: ApiServer,
    objects: Objects,
    history: Callable[[Objects, list[Manifest]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of another API server behind the same address, or of one that is silent."""
    monkeypatch.setattr(contact, "WATCH_SECONDS", 0.5)
    backup = backup_of(objects)
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0] and all_watched(api), "all kinds watched")
        objects.put(*of_all_kinds("after"))
        until(lambda: same(state, objects), "what came after the backup")
        history(objects, backup)
        until(lambda: same(state, objects), "what the lists say")
        renewed = {"kind": "Node", "reason": "renewed"}
        assert metric(server, "topospread_sync_lists_total", **renewed) >= 1
        assert metric(server, "topospread_sync_lists_total", kind="Node", reason="lost") == 0


@pytest.mark.parametrize("resource", RESOURCES, ids=[each.kind for each in RESOURCES])
def test_a_kind_by_itself_is_listed_when_its_watch_breaks(
    tmp_path: Path, api: ApiServer, objects: Objects, resource: Resource
) -> None:
    """Whatever the others do: they lost nothing, and are not listed."""
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0] and all_watched(api), "all kinds watched")
        lists = {each.plural: api.lists(each.plural) for each in RESOURCES}
        with objects.changed:
            kept = [each for each in backup_of(objects) if each["kind"] != resource.kind]
            objects.restore(10, [*kept, one(resource, "kept"), one(resource, "new")])
            api.end_watches(resource.plural)
        until(lambda: set(in_state(state, resource)) == {"kept", "new"}, "what its list says")
        until(lambda: same(state, objects), "the others are as they were")
        more = [each for each in lists if api.lists(each) > lists[each]]
        assert more == [resource.plural]


def test_a_list_of_what_is_known_writes_nothing(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0] and all_watched(api), "all kinds watched")
        before = state.client.get_node_table().meta.revision
        for resource in RESOURCES:
            # A heartbeat: another version of the same.
            objects.change(
                resource.kind,
                "default" if resource.namespaced else "",
                "kept",
                lambda made: made["metadata"].update(generation=2),
            )
        cut(api)

        def listed() -> bool:
            return all(
                metric(server, "topospread_sync_lists_total", kind=each.kind, reason="lost") == 1
                for each in RESOURCES
            )

        until(listed, "lists")
        objects.put(node("mark"))
        for changes in state.client.watch_objects(revision=before):
            reported = [each.ref.name or each.object.node.metadata.name for each in changes.events]
            if any(reported):
                assert reported == ["mark"]
                break


def test_versions_of_another_history_are_waited_for(tmp_path: Path, objects: Objects) -> None:
    """What the old history had at a version says nothing of the new one's."""
    with ExitStack() as first:
        api = first.enter_context(ApiServer(objects, bookmark_seconds=0.1))
        port = int(api.url.rpartition(":")[2])
        backup = backup_of(objects)
        with synced(tmp_path, api) as (state, server):
            until(lambda: server.ready()[0] and all_watched(api), "all kinds watched")
            objects.put(*(node(f"old-{number}") for number in range(30)))
            seen = str(objects.version)
            assert state.client.get_node_table(consistency=since(seen)).node_names
            first.close()
            # Its last answers may be under way.
            until(lambda: failures(server) >= 4 and observed(state) == "0", "no contact")
            with pytest.raises(DeadlineExceeded):
                state.client.get_node_table(consistency=since("20"), timeout=0.5)
            assert metric(server, "topospread_sync_lag_seconds", kind="Node") > 0
            objects.restore(10, backup)
            objects.put(node("new"))
            with ApiServer(objects, port=port, bookmark_seconds=0.1):
                version = objects.get("Node", "", "new")["metadata"]["resourceVersion"]
                table = state.client.get_node_table(consistency=since(version))
                assert set(table.node_names) == {"kept", "gone", "new"}


def failures(server: Any) -> float:
    """Attempts to read nodes that failed."""
    return metric(server, "topospread_sync_failures_total", kind="Node")


def since(version: str) -> dict[str, Any]:
    """To ask for a state that has what the API server had of nodes at a version."""
    wanted = common.ResourceVersion(kind=common.KIND_NODE, resource_version=version)
    return {"not_older_than": {"versions": [wanted]}}


def observed(state: State) -> str:
    """How far nodes were read."""
    newest = state.client.get_node_table().meta.observed
    return next(each.resource_version for each in newest if each.kind == common.KIND_NODE)
