"""What one stored pod makes the index keep is bounded, and grows with the pod's bytes at most."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from topospread.codec.pod_parts import MAX_INDEXED_PARTS
from topospread.codec.rows import ChangeDecoder
from topospread.codec.stored import stored
from topospread.errors import CorruptValue
from topospread.index.builder import Builder
from topospread.index.changes import PodChange
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod

BESIDE = 20
"""Parts that each of these pods has beside those that are many."""

MOST = 24 << 20
"""Bytes that the index keeps of one pod, with all that was read of it."""


def with_labels(pod: Pod, count: int) -> None:
    for number in range(count):
        pod.metadata.labels[f"label-{number}"] = str(number)


def with_ports(pod: Pod, count: int) -> None:
    container = pod.spec.containers.add()
    for number in range(1, count + 1):
        container.ports.add(host_port=number)


def with_claims(pod: Pod, count: int) -> None:
    for number in range(count):
        source = pod.spec.volumes.add(name=f"v{number}").volume_source
        source.persistent_volume_claim.claim_name = f"claim-{number}"


def with_disks(pod: Pod, count: int) -> None:
    for number in range(count):
        source = pod.spec.volumes.add(name=f"v{number}").volume_source
        source.gce_persistent_disk.pd_name = f"disk-{number}"


def with_monitors(pod: Pod, count: int) -> None:
    rbd = pod.spec.volumes.add(name="v").volume_source.rbd
    rbd.image = "image"
    rbd.monitors.extend(f"monitor-{number}" for number in range(count))


def with_resources(pod: Pod, count: int) -> None:
    for first in range(0, count, 2):
        limits = pod.spec.containers.add().resources.requests
        limits[f"example.com/r-{first}"].string = "1"
        limits[f"example.com/r-{first + 1}"].string = "1"


def with_terms(pod: Pod, count: int) -> None:
    """Each is another; a term with one expression of one value is three parts."""
    for number in range(count // 3):
        anti = pod.spec.affinity.pod_anti_affinity
        term = anti.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
        term.label_selector.match_expressions.add(key="app", operator="In", values=[str(number)])


def with_one_term(pod: Pod, count: int) -> None:
    anti = pod.spec.affinity.pod_anti_affinity
    term = anti.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    term.namespaces.extend(f"team-{number}" for number in range(count // 2))
    values = [f"app-{number}" for number in range(count // 2)]
    term.label_selector.match_expressions.add(key="app", operator="In", values=values)


KINDS = (
    with_labels,
    with_ports,
    with_claims,
    with_disks,
    with_monitors,
    with_resources,
    with_terms,
    with_one_term,
)


def payload(grow: Callable[[Pod, int], None], count: int) -> bytes:
    made = pb.ClusterObject()
    made.pod.metadata.name = made.pod.metadata.namespace = "p"
    made.pod.spec.node_name = "n"
    grow(made.pod, count)
    return stored(made).payload


def kept(encoded: bytes) -> int:
    """Bytes that stay when a pod is taken in."""
    builder, decoder = Builder(), ChangeDecoder()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        builder.fold([PodChange("p", "p", decoder.pod(encoded))])
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("grow", KINDS, ids=lambda grow: grow.__name__)
def test_a_pod_that_is_kept_takes_no_more_than_this(grow: Callable[[Pod, int], None]) -> None:
    some = kept(payload(grow, MAX_INDEXED_PARTS // 4))
    most = kept(payload(grow, MAX_INDEXED_PARTS - BESIDE))
    assert most < 4 * 1.3 * some
    assert most < MOST


@pytest.mark.parametrize("grow", KINDS, ids=lambda grow: grow.__name__)
def test_a_pod_of_more_is_left_out(grow: Callable[[Pod, int], None]) -> None:
    with pytest.raises(CorruptValue, match=f"at most {MAX_INDEXED_PARTS}"):
        ChangeDecoder().pod(payload(grow, MAX_INDEXED_PARTS + BESIDE))
