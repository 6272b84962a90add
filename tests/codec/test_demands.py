"""Resource requests and allocatable resources in messages of pods and nodes."""

from __future__ import annotations

import pytest

from tests.codec.objects import changed, full_pod
from topospread.codec.demands import DemandReader, demand_of
from topospread.codec.pods import node_from_proto
from topospread.codec.rows import decode_pod
from topospread.codec.stored import stored
from topospread.errors import InvalidRequest
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube

FULL = (("cpu", 260), ("memory", 1 << 30))


def test_a_limit_without_a_request_is_a_request():
    assert demand_of(full_pod().pod.spec).requests == FULL


def test_constraints_that_are_not_modelled_are_named():
    assert demand_of(full_pod().pod.spec).not_modelled == (
        "ports",
        "volumes",
        "inter-pod affinity",
        "scheduling gates",
    )
    assert demand_of(kube.PodSpec(containers=[kube.Container(name="c")])).not_modelled == ()


def test_a_stored_pod_takes_what_it_asked_for():
    assert decode_pod(stored(full_pod()).payload).requests == FULL


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod.spec.ClearField("node_name"),
        lambda pod: setattr(pod.status, "phase", "Failed"),
    ],
)
def test_pods_that_wait_or_have_ended_take_nothing(change):
    assert decode_pod(stored(changed(change)).payload).requests is None


def test_a_terminating_pod_still_takes_its_part():
    message = changed(lambda pod: pod.metadata.deletion_timestamp.SetInParent())
    assert decode_pod(stored(message).payload).requests == FULL


def test_a_quantity_that_is_none_is_refused_with_its_path():
    pod = full_pod().pod
    pod.spec.containers[0].resources.requests["cpu"].string = "a lot"
    with pytest.raises(InvalidRequest) as refused:
        demand_of(pod.spec)
    (violation,) = refused.value.violations
    assert violation.field == "spec.containers[0].resources.requests[cpu]"
    assert violation.bad_value == "a lot"


def test_invalid_quantity_in_the_cluster_counts_as_nothing():
    message = changed(
        lambda pod: (
            pod.spec.containers[0]
            .resources.requests["cpu"]
            .MergeFrom(kube.Quantity(string="a lot"))
        )
    )
    assert decode_pod(stored(message).payload).requests == (("cpu", 10), ("memory", 1 << 30))
    node = kube.Node()
    node.status.allocatable["cpu"].string = "?"
    node.status.allocatable["pods"].string = "110"
    node.status.allocatable["memory"].string = "1Ki"
    assert node_from_proto(node).allocatable == (("memory", 1024), ("pods", 110))


def test_pods_of_one_template_are_read_once():
    demands = DemandReader()
    first, second = full_pod().pod, full_pod().pod
    second.metadata.name, second.spec.node_name = "other", ""
    second.spec.topology_spread_constraints.add(max_skew=9)

    demand, node = demands.of(first.SerializeToString())
    again, nowhere = demands.of(second.SerializeToString())

    assert again is demand
    assert (node, nowhere) == ("n1", "")
    second.spec.containers[0].resources.requests["cpu"].string = "1"
    assert demands.of(second.SerializeToString())[0].requests == (
        ("cpu", 1010),
        ("memory", 1 << 30),
    )
