"""The example feeder keeps a state as our own API server says, each kind of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client import Configuration

from examples import feeder as example
from examples.feeder import KINDS, Feeder
from tests.apiserver.objects import RESOURCES
from tests.apiserver.server import ApiServer, Fault
from tests.kubernetes.syncing import State, kubeconfig, node, pod, small_cluster
from tests.servers import served
from tests.waiting import until
from topospread.kubernetes.objects import RESOURCES as SYNCED
from topospread_client import Client, NotFound
from topospread_proto.v1.common_pb2 import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apiserver.objects import Objects

ROOT = Path(__file__).parents[2]
NEWEST = {"fully_consistent": True}


@pytest.fixture
def objects() -> Objects:
    """One object of each kind at least."""
    made = small_cluster()
    for kind in KINDS.keys() - {"Node", "Pod", *example.NEEDED}:
        made.put({"kind": kind, "metadata": {"name": "one"}, **NEEDS.get(kind, {})})
    return made


NEEDS: dict[str, dict[str, Any]] = {
    "CSIStorageCapacity": {"storageClassName": "fast"},
    "StorageClass": {"provisioner": "example.org/disk"},
}


@pytest.fixture
def api(objects: Objects) -> Iterator[ApiServer]:
    with ApiServer(objects, bookmark_seconds=0.2) as server:
        server.version = "v1.37.2"
        yield server


@pytest.fixture
def state() -> Iterator[State]:
    with served() as server, Client(server.address) as client:
        yield State(client)


@pytest.fixture
def feeder(api: ApiServer, state: State) -> Iterator[Feeder]:
    configuration = Configuration()
    configuration.host, configuration.connection_pool_maxsize = api.url, len(KINDS)
    made = Feeder(configuration, state.client, pause=0.05)
    yield made
    made.stop()
    assert made.failed.empty(), made.failed.get()


def whole(state: State) -> bool:
    """Whether each kind was read, up to a version of the API server's."""
    try:
        found = state.client.get_cluster(consistency=NEWEST).cluster
    except NotFound:
        return False
    return len(found.observed) == len(KINDS)


def unknown(state: State) -> dict[str, str]:
    found = state.client.get_cluster(consistency=NEWEST).cluster.unknown_kinds
    return {Kind.Name(each.kind).removeprefix("KIND_"): each.reason for each in found}


def test_feeder_knows_every_kind_and_where_it_is() -> None:
    """A kind that is added to the API is one more of the example's."""
    known = {each.name.removeprefix("KIND_") for each in Kind.DESCRIPTOR.values}
    assert {*KINDS.values()} == known - {"UNSPECIFIED", "RESERVATION"}
    assert {kind: example.path(kind) for kind in KINDS} == {each.name: each.path for each in SYNCED}
    assert {each.name for each in SYNCED if not each.is_optional} == example.NEEDED
    assert {each.kind for each in RESOURCES} == set(KINDS), "the API server of tests has all"


def test_every_kind_is_fed_and_followed(
    objects: Objects, api: ApiServer, state: State, feeder: Feeder
) -> None:
    feeder.start()
    until(lambda: whole(state), "each kind is listed")
    assert unknown(state) == {}
    for name in KINDS.values():
        assert len(list(state.client.list_objects(name))) >= 1, name
    assert state.client.get_cluster().cluster.reported_kubernetes_version == "1.37"
    until(lambda: all(api.watches(each.plural) for each in RESOURCES), "each kind is watched")
    objects.put(node("c1", "c"), pod("web-2", "c1"))
    objects.remove("Pod", "web-0", "default")
    for kind in KINDS.keys() - example.NEEDED:
        namespaced = next(each.namespaced for each in RESOURCES if each.kind == kind)
        objects.remove(kind, "one", "default" if namespaced else "")
    until(lambda: state.pods() == {"web-1": "b1", "web-2": "c1"}, "changes of pods")
    gone = [name for kind, name in KINDS.items() if kind not in example.NEEDED]
    until(lambda: not any(any(state.client.list_objects(name)) for name in gone), "the rest")


def test_a_refused_kind_is_reported_until_it_is_listed(
    api: ApiServer, state: State, feeder: Feeder
) -> None:
    api.forbidden |= {"persistentvolumes"}
    feeder.start()
    wanted = {"PERSISTENT_VOLUME": "403 for persistentvolumes"}
    until(lambda: bool([*state.client.list_clusters()]), "the cluster")
    until(lambda: unknown(state) == wanted, "the reason")
    api.forbidden.clear()
    until(lambda: unknown(state) == {}, "the list")


def test_feeder_lists_what_it_missed_while_away(
    objects: Objects, api: ApiServer, state: State, feeder: Feeder
) -> None:
    feeder.start()
    until(lambda: whole(state), "each kind is listed")
    with objects.changed:
        objects.remove("Pod", "web-0", "default")
        objects.forget()
        api.hang_up()
    until(lambda: set(state.pods()) == {"web-1"}, "the deletion")


def test_refusal_of_a_needed_kind_ends_it_with_an_error(tmp_path: Path, api: ApiServer) -> None:
    api.faults.append(Fault(lambda asked: asked.path.endswith("/pods"), status=403))
    with served() as server:
        environ = {**os.environ, "KUBECONFIG": kubeconfig(tmp_path, api.url)}
        command = [sys.executable, "-m", "examples.feeder", server.address, "prod"]
        ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "feeder: (403)" in ended.stderr
