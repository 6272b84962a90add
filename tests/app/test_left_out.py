"""Pods that the index does not keep: the server starts, judges the others, and tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.servers import Peer, at_least, evaluate_request, http_get, pod, served, two_zones
from tests.waiting import PATIENCE
from topospread.cli.main import run
from topospread.codec.pod_parts import MAX_INDEXED_PARTS
from topospread.codec.rows import ChangeDecoder
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as engine_pb

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from topospread.app.server import Server
    from topospread.index.changes import IndexChange
    from topospread.store.model import Key, StoredObject


def huge(name: str = "huge") -> state_pb.ClusterObject:
    """A pod of more host ports than are kept of one."""
    made = pod(name, "b1")
    container = made.pod.spec.containers.add()
    for number in range(1, MAX_INDEXED_PARTS + 1):
        container.ports.add(host_port=number, container_port=number)
    return made


def explained(peer: Peer) -> list[str]:
    """What an answer about a pod that is to be placed says that it does not look at."""
    asked = evaluate_request()
    answer = peer.engine.ExplainPod(engine_pb.ExplainPodRequest(pod=asked.pod), timeout=PATIENCE)
    return [each for each in answer.explanation.not_modelled if "read" in each]


def cluster(peer: Peer, revision: str = "") -> state_pb.Cluster:
    request = state_pb.GetClusterRequest()
    if revision:
        request.consistency.CopyFrom(at_least(revision))
    else:
        request.consistency.fully_consistent = True
    answer = peer.state.GetCluster(request, timeout=PATIENCE)
    return state_pb.Cluster.FromString(answer.cluster.SerializeToString())


def assert_left_out(server: Server, peer: Peer, capsys: Any) -> None:
    """That the huge pod is told everywhere, and that the others count."""
    seen = cluster(peer)
    assert (seen.pod_count, seen.corrupt_count) == (3, 1)
    assert [(e.kind, e.namespace, e.name) for e in seen.corrupt_objects] == [
        ("Pod", "default", "huge")
    ]
    assert explained(peer) == ["what cannot be read: Pod default/huge"]
    assert [each.node for each in peer.evaluate(top_k=3).top_nodes] == ["b1"]
    _, text = http_get(f"http://{server.http_address}/metrics")
    assert 'topospread_corrupt_values{cluster="default"} 1.0' in text
    assert run(["status", "--address", server.address]) == 0
    assert (
        "left out of default: Pod default/huge: a server's log says why" in capsys.readouterr().out
    )


def test_a_pod_of_more_than_is_kept_stops_neither_the_start_nor_the_others(
    tmp_path: Path, capsys: Any
) -> None:
    flags = {"store": f"sqlite:///{tmp_path}/state.db", "http": "127.0.0.1:0"}
    for first in (True, False):
        with served(**flags) as server, Peer(server.address) as peer:
            if first:
                request = state_pb.ApplyObjectsRequest(objects=[*two_zones(), huge()])
                applied = peer.state.ApplyObjects(request, timeout=PATIENCE)
                (warning,) = applied.results[-1].warnings
                assert warning.startswith("the pod is left out: it has 10001 labels, ports")
                peer.await_revision(applied.meta.revision)
            assert_left_out(server, peer, capsys)
            if not first:
                assert cluster(peer, peer.apply(pod("huge", "b1"))).pod_count == 4
                assert explained(peer) == []
                assert cluster(peer, peer.apply(huge())).corrupt_count == 1
                gone = state_pb.ObjectReference(
                    kind=common_pb2.KIND_POD, namespace="default", name="huge"
                )
                deleted = peer.state.DeleteObjects(
                    state_pb.DeleteObjectsRequest(objects=[gone]), timeout=PATIENCE
                )
                revision = deleted.meta.revision
                assert cluster(peer, revision).corrupt_count == 0
                assert explained(peer) == []


def test_a_pod_that_cannot_be_taken_in_stops_neither_the_start_nor_the_others(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with it: following ended, and each start began again and again."""
    flags = {"store": f"sqlite:///{tmp_path}/state.db", "http": "127.0.0.1:0"}
    with served(**flags) as server, Peer(server.address) as peer:
        peer.await_revision(peer.apply(*two_zones(), pod("huge", "b1")))
    read = ChangeDecoder.change

    def failing(of: ChangeDecoder, key: Key, stored: StoredObject | None) -> IndexChange:
        if key.name == "huge" and stored is not None:
            raise RecursionError("a fault of this server")
        return read(of, key, stored)

    monkeypatch.setattr(ChangeDecoder, "change", failing)
    with served(**flags) as server, Peer(server.address) as peer:
        assert_left_out(server, peer, capsys)


def test_many_that_are_left_out_are_counted(tmp_path: Path) -> None:
    with served(store=f"sqlite:///{tmp_path}/state.db") as server, Peer(server.address) as peer:
        revision = peer.apply(*two_zones(), *[huge(f"huge-{number:02}") for number in range(12)])
        seen = cluster(peer, revision)
        assert seen.corrupt_count == 12
        assert [each.name for each in seen.corrupt_objects] == [f"huge-{n:02}" for n in range(10)]
        assert explained(peer) == ["what cannot be read: Pod default/huge-00 and 11 other objects"]
