"""Kinds that a cluster is synced without: nobody may list them, or the API server has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.server import ApiServer, Fault
from tests.kubernetes.syncing import metric, node, pod, small_cluster, synced
from tests.waiting import until
from topospread.kubernetes import attempts, reflector
from topospread.kubernetes.objects import RESOURCES
from topospread_proto.v1.common_pb2 import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.apiserver.objects import Objects

VOLUME: dict[str, Any] = {
    "kind": "PersistentVolume",
    "metadata": {"name": "pv-1"},
    "spec": {"storageClassName": "fast", "capacity": {"storage": "1Gi"}},
    "status": {"phase": "Available"},
}
CLAIM: dict[str, Any] = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {}}


@pytest.fixture
def objects() -> Objects:
    made = small_cluster()
    made.put(VOLUME, CLAIM)
    return made


@pytest.fixture
def api(objects: Objects) -> Iterator[ApiServer]:
    with ApiServer(objects, bookmark_seconds=0.2) as serving:
        yield serving


@pytest.fixture
def _decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a minute has passed for each refusal."""
    monkeypatch.setattr(attempts, "REFUSED_SECONDS", 0.0)
    monkeypatch.setattr(reflector, "UNREAD_SECONDS", 0.5)


def unknown(state: Any) -> dict[str, str]:
    found = state.client.get_cluster().cluster.unknown_kinds
    return {Kind.Name(each.kind).removeprefix("KIND_"): each.reason for each in found}


def test_a_cluster_with_all_rights_has_no_unknown_kind(tmp_path: Path, api: ApiServer) -> None:
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        until(lambda: unknown(state) == {}, "all kinds known, also those without objects")
        (volume,) = state.client.list_objects("PERSISTENT_VOLUME")
        assert volume.persistent_volume.spec.storage_class_name == "fast"


@pytest.mark.usefixtures("_decided_at_once")
def test_a_forbidden_kind_is_done_without_until_it_may_be_listed(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    api.forbidden |= {"persistentvolumes", "csinodes"}
    reasons = {
        "PERSISTENT_VOLUME": "no right to list persistentvolumes",
        "CSI_NODE": "no right to list csinodes",
    }
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all other kinds listed")
        until(lambda: unknown(state) == reasons, "the reasons")
        objects.put(node("c1", "c"), pod("web-9", "c1"))
        until(lambda: "web-9" in state.pods(), "what else changes")
        assert len(list(state.client.list_objects("PERSISTENT_VOLUME_CLAIM"))) == 1
        read = {Kind.Name(each.kind) for each in state.client.get_cluster().cluster.observed}
        assert "KIND_POD" in read
        assert "KIND_PERSISTENT_VOLUME" not in read
        api.forbidden.clear()
        until(lambda: unknown(state) == {}, "all kinds, when the rights are there")
        assert len(list(state.client.list_objects("PERSISTENT_VOLUME"))) == 1


@pytest.mark.usefixtures("_decided_at_once")
def test_a_right_that_is_taken_away_makes_its_kind_unknown(tmp_path: Path, api: ApiServer) -> None:
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        until(lambda: unknown(state) == {}, "all kinds known")
        api.forbidden |= {"storageclasses"}
        api.hang_up()
        reasons = {"no right to watch storageclasses", "no right to list storageclasses"}
        until(lambda: set(unknown(state).values()) <= reasons and unknown(state), "the reason")


@pytest.mark.usefixtures("_decided_at_once")
def test_a_kind_that_the_api_server_lacks_is_done_without(tmp_path: Path, api: ApiServer) -> None:
    gone = {"csistoragecapacities"}
    for _ in range(20):
        api.faults.append(Fault(lambda asked: asked.path.rpartition("/")[2] in gone, status=404))
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all other kinds listed")
        lacks = {"CSI_STORAGE_CAPACITY": "the API server has no csistoragecapacities"}
        until(lambda: unknown(state) == lacks, "the reason")


def test_an_unread_kind_does_not_hold_up_readiness(tmp_path: Path, api: ApiServer) -> None:
    api.faults += [
        Fault(lambda asked: asked.path.endswith("/volumeattachments"), status=500)
        for _ in range(1000)
    ]
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all other kinds listed")
        assert unknown(state)["VOLUME_ATTACHMENT"] == "no VolumeAttachment in the state"


def test_an_excluded_namespace_keeps_no_capacity_back(
    tmp_path: Path, api: ApiServer, objects: Objects
) -> None:
    """They stand in the namespace of their driver, and are for the pods of all."""
    capacity = {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "c-1", "namespace": "kube-system"},
        "storageClassName": "fast",
        "capacity": "5Gi",
    }
    claim = {**CLAIM, "metadata": {"name": "own", "namespace": "kube-system"}}
    objects.put(capacity, claim)
    with synced(tmp_path, api, sync_excluded_namespaces=("kube-system",)) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        until(lambda: unknown(state) == {}, "all kinds known")
        (found,) = state.client.list_objects("CSI_STORAGE_CAPACITY")
        assert found.csi_storage_capacity.capacity.string == "5Gi"
        claims = state.client.list_objects("PERSISTENT_VOLUME_CLAIM")
        assert [each.persistent_volume_claim.metadata.name for each in claims] == ["data"]


ALL = [resource.plural for resource in RESOURCES]
OPTIONAL = [resource.plural for resource in RESOURCES if resource.is_optional]


def test_a_kind_that_is_refused_for_a_short_time_stays_as_it_is_known(
    tmp_path: Path, api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        api.forbidden |= set(OPTIONAL)
        api.hang_up()

        def refused() -> bool:
            names = [resource.name for resource in RESOURCES if resource.is_optional]
            failures = "topospread_sync_failures_total"
            return min(metric(server, failures, kind=each) for each in names) >= 4

        until(refused, "refusals of each kind")
        assert unknown(state) == {}
        assert metric(server, "topospread_sync_lag_seconds", kind="PersistentVolume") > 0
        assert len(list(state.client.list_objects("PERSISTENT_VOLUME"))) == 1
        api.forbidden.clear()
        lists = {"kind": "PersistentVolume", "reason": "lost"}
        until(lambda: metric(server, "topospread_sync_lists_total", **lists) == 1, "the list")
    assert "synced without" not in caplog.text


def test_a_server_that_starts_with_its_api_server_lacks_no_kind(
    tmp_path: Path, api: ApiServer
) -> None:
    """It refuses everything at first, as while its caches of RBAC are filled."""
    api.forbidden |= {resource.plural for resource in RESOURCES}
    with synced(tmp_path, api) as (state, server):
        # Each kind, some times.
        until(lambda: min(api.lists(each) for each in OPTIONAL) >= 4, "refusals of each kind")
        assert not server.ready()[0]
        api.forbidden.clear()
        until(lambda: server.ready()[0], "all kinds listed")
        assert unknown(state) == {}


@pytest.mark.parametrize("refused", [ALL, OPTIONAL], ids=["all", "optional"])
def test_a_new_leader_keeps_what_is_known_while_its_api_server_starts(
    tmp_path: Path, api: ApiServer, refused: Sequence[str]
) -> None:
    store = f"sqlite:{tmp_path / 'state.db'}"
    with synced(tmp_path, api, store=store) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
    before = {each: api.lists(each) for each in refused}
    api.forbidden |= set(refused)
    with synced(tmp_path, api, store=store) as (state, server):
        until(lambda: min(api.lists(each) - before[each] for each in refused) >= 4, "refusals")
        assert unknown(state) == {}


def test_a_missing_right_and_an_api_server_that_is_starting_have_reasons_of_their_own(
    tmp_path: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.forbidden.add("csinodes")
    with synced(tmp_path, api) as (state, server):
        until(lambda: server.ready()[0], "all other kinds listed")
        starting = (
            "the API server refuses to list csinodes so far: it is starting, or there is no right"
        )
        assert unknown(state) == {"CSI_NODE": starting}
        monkeypatch.setattr(attempts, "REFUSED_SECONDS", 0.0)
        right = {"CSI_NODE": "no right to list csinodes"}
        until(lambda: unknown(state) == right, "what it is taken for after a minute")
