"""v1.Pod messages to pods."""

import pytest

from tests.codec.objects import full_pod
from topospread.codec.parsing import parse_request
from topospread.codec.pods import pod_from_proto
from topospread.codec.warnings import warnings_of
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
from topospread_client import object_from_manifest
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube


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
