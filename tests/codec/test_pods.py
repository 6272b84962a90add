"""Messages to values: pods, what they demand, warnings about objects, and scheduler arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.codec.objects import changed, full_pod
from tests.conformance.cases import ArgsValidation, args_validations
from topospread.codec.demands import DemandReader, demand_of, lenient_demand
from topospread.codec.parsing import parse_request
from topospread.codec.pods import node_from_proto, pod_from_proto
from topospread.codec.rows import decode_pod
from topospread.codec.scheduler_config import profile_from_proto
from topospread.codec.stored import stored, warnings_of
from topospread.codec.stored_pods import EvictionReader
from topospread.errors import InvalidRequest
from topospread.kube.objects import (
    LabelSelector,
    NodeExpression,
    NodeRequirements,
    NodeTerm,
    OwnerReference,
    Pod,
    SpreadConstraint,
    Toleration,
)
from topospread.spread.settings import LIST, SYSTEM, SYSTEM_DEFAULTS, Profile
from topospread_client import args_from_manifest, object_from_manifest, pod_from_manifest
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube

if TYPE_CHECKING:
    from collections.abc import Callable


def test_every_field():
    assert pod_from_proto(full_pod().pod) == Pod(
        name="p",
        namespace="team",
        uid="u-1",
        labels={"app": "a", "rev": "1", "": "odd"},
        owner=OwnerReference("apps/v1", "ReplicaSet", "rs", "u-2"),
        terminating=False,
        node_name="n1",
        phase="Running",
        scheduler_name="default-scheduler",
        requirements=NodeRequirements(
            node_selector=(("disk", "ssd"),),
            terms=(NodeTerm((NodeExpression("disk", "In", ("ssd",)),)),),
        ),
        tolerations=(Toleration("k", "Exists"),),
        constraints=(SpreadConstraint(1, "zone", "DoNotSchedule", LabelSelector(), 2),),
    )


def test_an_empty_pod():
    assert pod_from_proto(kube.Pod()) == Pod(name="", namespace="default")


def test_no_terms_and_no_affinity_differ():
    pod = kube.Pod()
    node_affinity = pod.spec.affinity.node_affinity
    assert pod_from_proto(pod).requirements.terms is None
    node_affinity.required_during_scheduling_ignored_during_execution.SetInParent()
    assert pod_from_proto(pod).requirements.terms == ()


def test_bytes_with_fields_that_are_not_declared():
    sent = kube.Pod(metadata=kube.ObjectMeta(name="p")).SerializeToString()
    sent += b"\x12\x04\x1a\x02No"  # spec.restartPolicy
    assert pod_from_proto(parse_request(kube.Pod, sent)).name == "p"


@pytest.mark.parametrize(
    "sent", [b"\xff", b"\x0a", b"\x0a\x05ab", b"\x0a\x03\x0a\x01\xff", b"k8s\x00\x0a\x00"]
)
def test_bytes_that_are_no_pod(sent):
    with pytest.raises(InvalidRequest, match=r"topospread\.kubernetes\.v1\.Pod"):
        parse_request(kube.Pod, sent)


CONSTRAINT = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "a"}},
}
TERM = {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}
TERMS = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
)


def pod_with(**spec) -> dict:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "fields"),
    [
        (pod_with(topologySpreadConstraints=[CONSTRAINT]), []),
        (
            pod_with(
                topologySpreadConstraints=[
                    CONSTRAINT | {"whenUnsatisfiable": "Sometimes", "nodeTaintsPolicy": "Maybe"}
                ]
            ),
            [
                "spec.topologySpreadConstraints[0].whenUnsatisfiable",
                "spec.topologySpreadConstraints[0].nodeTaintsPolicy",
            ],
        ),
        (
            pod_with(
                topologySpreadConstraints=[
                    CONSTRAINT,
                    CONSTRAINT | {"labelSelector": {"matchExpressions": [{"key": "a"}]}},
                ]
            ),
            ["spec.topologySpreadConstraints[1].labelSelector"],
        ),
        (
            pod_with(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [TERM, {}]
                        }
                    }
                }
            ),
            [f"{TERMS}[0]", f"{TERMS}[1]"],
        ),
        (pod_with() | {"status": {"phase": "Sleeping"}}, ["status.phase"]),
        (
            {
                "kind": "Pod",
                "metadata": {"name": "p", "ownerReferences": [{"controller": True}] * 2},
            },
            ["metadata.ownerReferences"],
        ),
        (
            {"kind": "Node", "spec": {"taints": [{"key": "k", "effect": "Nope"}]}},
            ["spec.taints[0].effect"],
        ),
        (
            {"kind": "ReplicaSet", "spec": {"selector": {"matchLabels": {"a b": ""}}}},
            ["spec.selector"],
        ),
        ({"kind": "StatefulSet", "spec": {"selector": {"matchLabels": {"a": "b"}}}}, []),
        ({"kind": "Service", "spec": {"selector": {"a b": "c d"}}}, []),
    ],
)
def test_warnings_name_the_field(manifest, fields):
    message = object_from_manifest(manifest)
    assert message is not None
    assert [text.split(": ")[0] for text in warnings_of(message)] == fields


def profile(manifest) -> Profile:
    return profile_from_proto(args_from_manifest(manifest), "mine")


@pytest.mark.parametrize("manifest", [{}, {"defaultingType": ""}, {"defaultingType": "System"}])
def test_system_is_the_default(manifest):
    made = profile(manifest)
    assert (made.name, made.defaulting, made.defaults) == ("mine", SYSTEM, SYSTEM_DEFAULTS)


def test_a_list_may_be_empty():
    made = profile({"defaultingType": "List", "defaultConstraints": []})
    assert (made.defaulting, made.defaults) == (LIST, ())


@pytest.mark.parametrize("case", list(args_validations()), ids=lambda case: case.name)
def test_arguments_are_refused_where_the_plugin_refuses_them(case: ArgsValidation):
    args = args_from_manifest(case.args)
    if not case.expect:
        made = profile_from_proto(args)
        assert len(made.default_constraints) == len(args.default_constraints)
        return
    with pytest.raises(InvalidRequest) as caught:
        profile_from_proto(args)
    assert len(caught.value.violations) == len(case.expect)


FULL = (("cpu", 260), ("memory", 1 << 30))


def test_a_limit_without_a_request_is_a_request():
    assert demand_of(full_pod().pod).requests == FULL


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
        demand_of(pod)
    (violation,) = refused.value.violations
    assert violation.field == "spec.containers[0].resources.requests[cpu]"
    assert violation.bad_value == "a lot"


def test_invalid_quantity_in_the_cluster_counts_as_nothing():
    def change(pod: kube.Pod) -> None:
        pod.spec.containers[0].resources.requests["cpu"].string = "a lot"
        pod.status.ClearField("container_statuses")

    message = changed(change)
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

    assert again == replace(demand, node_name="")
    assert demands.of(second.SerializeToString())[0] is again
    assert (node, nowhere) == ("n1", "")
    second.spec.containers[0].resources.requests["cpu"].string = "1"
    assert demands.of(second.SerializeToString())[0].requests == (
        ("cpu", 1010),
        ("memory", 1 << 30),
    )


CRITICAL = "system-cluster-critical"


@pytest.mark.parametrize(
    ("spec", "uid", "priority", "unknown"),
    [
        ({}, "", 0, ""),
        ({"priorityClassName": CRITICAL}, "", 2_000_000_000, ""),
        ({"priorityClassName": "system-node-critical"}, "", 2_000_001_000, ""),
        ({"priorityClassName": CRITICAL, "priority": 0}, "", 0, ""),
        ({"priorityClassName": "gold"}, "", 0, "gold"),
        ({"priorityClassName": "gold", "priority": 7}, "", 7, ""),
        # One that an API server has stored has its priority.
        ({"priorityClassName": "gold"}, "u", 0, ""),
        ({"priorityClassName": CRITICAL}, "u", 0, ""),
    ],
)
def test_a_new_pod_has_the_priority_of_its_class(
    spec: dict[str, object], uid: str, priority: int, unknown: str
) -> None:
    reader = DemandReader()
    # Read before: pods that differ in nothing else.
    reader.of(kube.Pod().SerializeToString())
    reader.of(kube.Pod(spec=kube.PodSpec(priority_class_name="other")).SerializeToString())
    manifest = {"kind": "Pod", "metadata": {"name": "p", "uid": uid}, "spec": spec}
    pod = pod_from_manifest({**manifest, "status": {"phase": "Pending"}})
    demand, _ = reader.of(pod.SerializeToString())
    assert (demand.priority, demand.priority_class) == (priority, unknown)


def _cpu(container: kube.Container) -> None:
    container.resources.requests["cpu"].string = "3"


PARTS_OF_A_DEMAND: dict[str, Callable[[kube.PodSpec], object]] = {
    "containers": lambda spec: _cpu(spec.containers.add(name="more")),
    "init containers": lambda spec: _cpu(spec.init_containers.add(name="more")),
    "overhead": lambda spec: setattr(spec.overhead["cpu"], "string", "7"),
    "resources of the pod": lambda spec: setattr(spec.resources.requests["cpu"], "string", "9"),
    "host ports": lambda spec: spec.containers[0].ports.add(host_port=80),
    "claims": lambda spec: spec.volumes.add().volume_source.persistent_volume_claim.SetInParent(),
    "pod affinity": lambda spec: (
        spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(
            topology_key="zone"
        )
    ),
    "gates": lambda spec: spec.scheduling_gates.add(name="wait"),
}


@pytest.mark.parametrize("part", PARTS_OF_A_DEMAND)
def test_evictions_know_each_part_of_what_a_pod_demands(part: str):
    reader = EvictionReader()
    first, second = (
        kube.Pod(spec=kube.PodSpec(containers=[kube.Container(name="c")])) for _ in range(2)
    )
    PARTS_OF_A_DEMAND[part](second.spec)

    before, after = (reader.facts(each.SerializeToString()).demand for each in (first, second))

    assert before == lenient_demand(first)
    assert after == lenient_demand(second)
    assert after != before
