"""The volumes of nodes, followed from snapshot to snapshot, are those counted from scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.core import change_of
from tests.reference.volume_strategies import DRIVERS, volume_cases
from topospread.index.attached import AttachedVolumes
from topospread.index.builder import Builder
from topospread.index.changes import PodChange

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

    from tests.reference.objects import Json
    from topospread.index.snapshot import Snapshot


def check(snapshot: Snapshot) -> None:
    counted = AttachedVolumes().at(snapshot.nodes, snapshot.holdings, snapshot.objects)
    followed = snapshot.volumes
    assert list(followed.rows) == list(counted.rows)
    for driver in DRIVERS:
        assert followed.taken(driver).tolist() == counted.taken(driver).tolist()
        assert followed.limits(driver).tolist() == counted.limits(driver).tolist()
    assert followed.with_drivers().tolist() == counted.with_drivers().tolist()


def objects_of(cluster: Json) -> list[Json]:
    return [each for objects in cluster.values() for each in objects]


@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(volume_cases(), volume_cases(), st.data())
def test_volumes_are_followed_as_if_counted_anew(
    first: tuple[Json, Json], second: tuple[Json, Json], data: DataObject
) -> None:
    builder = Builder()
    builder.fold([change_of(each) for each in objects_of(first[0])])
    check(builder.snapshot)
    writes = [(each, False) for each in objects_of(second[0])]
    changes = writes + [(each, True) for each in objects_of(first[0])]
    for number, (changed, gone) in enumerate(data.draw(st.permutations(changes))):
        builder.fold([change_of(changed, gone=gone)])
        # Some snapshots are never asked for.
        if number % 3 == 0:
            check(builder.snapshot)
    check(builder.snapshot)


def test_a_hypothetical_pod_has_its_volumes() -> None:
    builder = Builder()
    cluster = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {
            "nodeName": "n",
            "volumes": [{"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}],
        },
    }
    builder.fold([change_of(each) for each in (cluster, node)])
    before = builder.snapshot
    placed = change_of(pod)
    assert isinstance(placed, PodChange)
    assert placed.row is not None
    beside = before.adjusted("default", [(placed.row, 1)], ())
    for snapshot, expected in ((before, 0), (beside, 1), (before, 0)):
        assert snapshot.volumes.taken("ebs.csi.aws.com")[before.slot("n")] == expected
