"""What is kept of an object, when its digest changes, and that it comes back."""

import pytest
from hypothesis import given

from tests.codec.objects import changed, full_pod, made
from tests.reference import strategies
from topospread.codec.demands import demand_of
from topospread.codec.pods import pod_from_proto
from topospread.codec.stored import object_from_stored, stored
from topospread.codec.tidying import LONGEST_MESSAGE
from topospread.errors import CorruptValue, InvalidRequest
from topospread.store.model import Key, Kind, StoredObject
from topospread_client import manifest_from_object
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

COST = "controller.kubernetes.io/pod-deletion-cost"


def test_a_pod_is_kept_as_far_as_it_matters():
    assert manifest_from_object(object_from_stored(stored(full_pod()))) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {COST: "-5"},
            "creationTimestamp": "2023-11-14T22:13:20Z",
            "labels": {"": "odd", "app": "a", "rev": "1"},
            "name": "p",
            "namespace": "team",
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "controller": True,
                    "kind": "ReplicaSet",
                    "name": "rs",
                    "uid": "u-2",
                }
            ],
            "resourceVersion": "12",
            "uid": "u-1",
        },
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "disk", "operator": "In", "values": ["ssd"]}
                                ]
                            }
                        ]
                    }
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"},
                        {"labelSelector": {}, "namespaces": ["team", "other"], "topologyKey": "h"},
                    ]
                },
            },
            "containers": [
                {
                    "name": "c",
                    "ports": [{"hostPort": 8080}],
                    "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}},
                }
            ],
            "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}],
            "nodeName": "n1",
            "nodeSelector": {"disk": "ssd"},
            "overhead": {"cpu": "10m"},
            "preemptionPolicy": "Never",
            "priority": 7,
            "schedulerName": "default-scheduler",
            "schedulingGates": [{"name": "wait"}],
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 30}],
            "topologySpreadConstraints": [
                {
                    "labelSelector": {},
                    "maxSkew": 1,
                    "minDomains": 2,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                }
            ],
            "volumes": [{"persistentVolumeClaim": {"claimName": "claim"}}],
        },
        "status": {
            "conditions": [
                {"lastTransitionTime": "2023-11-14T22:13:30Z", "status": "True", "type": "Ready"}
            ],
            "containerStatuses": [{"name": "c", "restartCount": 2}],
            "initContainerStatuses": [{"name": "sidecar", "restartCount": 1}],
            "phase": "Running",
        },
    }


def test_a_node_is_kept_as_far_as_it_matters():
    node = kube.Node()
    node.metadata.name, node.metadata.namespace, node.metadata.uid = "n", "not for nodes", "u-1"
    node.metadata.labels["zone"] = "a"
    node.metadata.annotations["csi"] = "x"
    node.spec.provider_id, node.spec.unschedulable = "aws:///x", True
    node.spec.taints.add(key="k", effect="NoSchedule").time_added.seconds = 5
    node.status.capacity["cpu"].string = "8"
    node.status.allocatable["cpu"].string = "7"
    node.status.node_info.kubelet_version = "v1.37.2"
    node.status.declared_features.append("GuaranteedQoSPodCPUResize")
    kept = stored(ClusterObject(node=node))
    assert kept.key == Key(Kind.NODE, "", "n")
    assert manifest_from_object(object_from_stored(kept)) == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"labels": {"zone": "a"}, "name": "n", "uid": "u-1"},
        "spec": {"taints": [{"effect": "NoSchedule", "key": "k"}], "unschedulable": True},
        "status": {
            "allocatable": {"cpu": "7"},
            "declaredFeatures": ["GuaranteedQoSPodCPUResize"],
            "nodeInfo": {"kubeletVersion": "v1.37.2"},
        },
    }


@pytest.mark.parametrize(
    ("kind", "version", "selector", "number"),
    [
        ("Service", "v1", {"app": "a"}, Kind.SERVICE),
        ("ReplicationController", "v1", {"app": "a"}, Kind.REPLICATION_CONTROLLER),
        ("ReplicaSet", "apps/v1", {"matchLabels": {"app": "a"}}, Kind.REPLICA_SET),
        ("StatefulSet", "apps/v1", {}, Kind.STATEFUL_SET),
    ],
)
def test_workloads_keep_their_selectors(kind, version, selector, number):
    manifest = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "w", "resourceVersion": "5", "uid": "u"},
        "spec": {"selector": selector},
    }
    kept = stored(made(manifest))
    assert kept.key == Key(number, "default", "w")
    assert (kept.resource_version, kept.uid) == ("5", "u")
    manifest["metadata"]["namespace"] = "default"
    assert manifest_from_object(object_from_stored(kept)) == manifest


def test_the_version_and_the_uid_are_not_part_of_the_payload():
    other = changed(lambda pod: pod.metadata.ClearField("resource_version"))
    assert stored(other).payload == stored(full_pod()).payload
    assert b"u-1" not in stored(full_pod()).payload


def descending(labels):
    return sorted(labels.items(), reverse=True)


def relabel(pod, labels):
    pod.metadata.labels.clear()
    for key, value in labels:
        pod.metadata.labels[key] = value


SAME_BYTES = {
    "heartbeat": lambda pod: setattr(pod.status.conditions[0].last_probe_time, "seconds", 99),
    "another condition": lambda pod: pod.status.conditions.add(type="Initialized"),
    "nanoseconds": lambda pod: setattr(pod.metadata.creation_timestamp, "nanos", 5),
    "annotation": lambda pod: pod.metadata.annotations.update({"note": "x"}),
    "container is ready": lambda pod: setattr(pod.status.container_statuses[0], "ready", False),
    "empty parts": lambda pod: pod.spec.affinity.pod_affinity.SetInParent(),
    "unknown fields": lambda pod: pod.spec.MergeFromString(b"\xb2\x3e\x03new"),
    "order of labels": lambda pod: relabel(pod, descending(pod.metadata.labels)),
}


@pytest.mark.parametrize("change", SAME_BYTES.values(), ids=SAME_BYTES.keys())
def test_irrelevant_fields_do_not_change_the_bytes(change):
    assert stored(changed(change)) == stored(full_pod())


def test_empty_fields_are_stored_as_absent():
    bare = ClusterObject(pod=kube.Pod(metadata=kube.ObjectMeta(name="p")))
    as_go_writes_it = ClusterObject(pod=bare.pod)
    for part in ("spec", "status"):
        getattr(as_go_writes_it.pod, part).SetInParent()
    as_go_writes_it.pod.metadata.creation_timestamp.SetInParent()
    as_go_writes_it.pod.spec.affinity.SetInParent()
    assert stored(as_go_writes_it) == stored(bare)


def _add_term(affinity: kube.PodAffinity) -> None:
    affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")


OWN_AFFAIRS = {
    "constraints": lambda pod: pod.spec.topology_spread_constraints.add(max_skew=5),
    "tolerations": lambda pod: pod.spec.tolerations.add(key="other"),
    "node selector": lambda pod: pod.spec.node_selector.update({"disk": "hdd"}),
    "readiness": lambda pod: setattr(pod.status.conditions[0], "status", "False"),
    "restarts": lambda pod: setattr(pod.status.container_statuses[0], "restart_count", 3),
    "starts": lambda pod: setattr(pod.status, "phase", "Pending"),
    "deletion cost": lambda pod: pod.metadata.annotations.update({COST: "1"}),
    "preemption": lambda pod: pod.spec.ClearField("preemption_policy"),
    "affinity": lambda pod: _add_term(pod.spec.affinity.pod_affinity),
    "scheduler": lambda pod: setattr(pod.spec, "scheduler_name", "mine"),
    "gates": lambda pod: pod.spec.ClearField("scheduling_gates"),
}


@pytest.mark.parametrize("change", OWN_AFFAIRS.values(), ids=OWN_AFFAIRS.keys())
def test_fields_that_matter_to_the_pod_alone_leave_the_digest(change):
    before, after = stored(full_pod()), stored(changed(change))
    assert after.payload != before.payload
    assert after.digest == before.digest


OTHERS_AFFAIRS = {
    "label": lambda pod: pod.metadata.labels.update({"app": "b"}),
    "new label": lambda pod: pod.metadata.labels.update({"x": "y"}),
    "node": lambda pod: setattr(pod.spec, "node_name", "n2"),
    "unbound": lambda pod: pod.spec.ClearField("node_name"),
    "terminating": lambda pod: pod.metadata.deletion_timestamp.SetInParent(),
    "succeeded": lambda pod: setattr(pod.status, "phase", "Succeeded"),
    "owner": lambda pod: setattr(pod.metadata.owner_references[1], "name", "other"),
    "no owner": lambda pod: setattr(pod.metadata.owner_references[1], "controller", False),
    "another pod of that name": lambda pod: setattr(pod.metadata, "uid", "u-9"),
    "requests": lambda pod: (
        pod.spec.containers[0].resources.requests["gpu"].MergeFromString(b"\n\x011")
    ),
    "sidecar": lambda pod: pod.spec.init_containers[0].ClearField("restart_policy"),
    "overhead": lambda pod: pod.spec.overhead["cpu"].MergeFromString(b"\n\x0220"),
    "priority": lambda pod: setattr(pod.spec, "priority", 1),
    "port": lambda pod: setattr(pod.spec.containers[0].ports[1], "host_ip", "10.0.0.1"),
    "port of the network": lambda pod: setattr(pod.spec, "host_network", True),
    "claim": lambda pod: setattr(
        pod.spec.volumes[1].volume_source.persistent_volume_claim, "claim_name", "other"
    ),
    "anti-affinity": lambda pod: _add_term(pod.spec.affinity.pod_anti_affinity),
    "resize": lambda pod: setattr(
        pod.status.container_statuses[0].allocated_resources["cpu"], "string", "2"
    ),
}


@pytest.mark.parametrize("change", OTHERS_AFFAIRS.values(), ids=OTHERS_AFFAIRS.keys())
def test_fields_that_matter_to_others_change_the_digest(change):
    assert stored(changed(change)).digest != stored(full_pod()).digest


def test_failing_and_succeeding_is_one_thing_to_others():
    succeeded = stored(changed(lambda pod: setattr(pod.status, "phase", "Succeeded")))
    failed = stored(changed(lambda pod: setattr(pod.status, "phase", "Failed")))
    assert succeeded.digest == failed.digest != stored(full_pod()).digest


def workload(**fields) -> ClusterObject:
    manifest = {
        "kind": "ReplicaSet",
        "metadata": {"name": "rs"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
    }
    return made(manifest | fields)


def test_only_the_selector_of_a_workload_matters():
    base = stored(workload())
    scaled = workload(spec={"replicas": 3, "selector": {"matchLabels": {"app": "a"}}})
    labelled = workload(metadata={"name": "rs", "labels": {"x": "y"}})
    assert stored(scaled).digest == stored(labelled).digest == base.digest
    specs: list[dict] = [{}, {"selector": {}}, {"selector": {"matchLabels": {"app": "b"}}}]
    digests = {stored(workload(spec=spec)).digest for spec in specs}
    assert len(digests | {base.digest}) == 4


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (ClusterObject(), ""),
        (ClusterObject(pod=kube.Pod()), "metadata.name"),
        (
            ClusterObject(node=kube.Node(metadata=kube.ObjectMeta(generate_name="n-"))),
            "metadata.name",
        ),
    ],
)
def test_object_that_cannot_be_stored_is_refused(message, field):
    with pytest.raises(InvalidRequest) as caught:
        stored(message)
    assert [v.field for v in caught.value.violations] == [field]


@pytest.mark.parametrize("payload", [b"\xff", b"\n", b"\x0a\x05\x0a\x03\xff\xfe\xfd"])
def test_a_payload_that_cannot_be_read_is_corrupt(payload):
    broken = StoredObject(Key(Kind.POD, "default", "p"), payload, b"12345678")
    with pytest.raises(CorruptValue):
        object_from_stored(broken)


def test_a_reservation_is_no_object():
    reservation = StoredObject(Key(Kind.RESERVATION, "default", "p"), b"", b"12345678")
    with pytest.raises(CorruptValue):
        object_from_stored(reservation)


@given(pod=strategies.incoming_pods())
def test_a_stored_pod_is_the_same_pod_to_spreading(pod):
    message = made(pod)
    assert pod_from_proto(object_from_stored(stored(message)).pod) == pod_from_proto(message.pod)


@given(cluster=strategies.clusters())
def test_storing_again_what_was_stored_changes_nothing(cluster):
    for kind in ("nodes", "pods", "services", "replicaSets"):
        for manifest in cluster[kind]:
            once = stored(made(manifest))
            assert stored(object_from_stored(once)) == once


def test_storing_the_full_pod_again_changes_nothing():
    once = stored(full_pod())
    assert stored(object_from_stored(once)) == once


def waiting(pod: kube.Pod) -> None:
    pod.spec.ClearField("node_name")
    pod.status.phase = "Pending"
    refused = pod.status.conditions[1]
    refused.status, refused.reason, refused.message = "False", "Unschedulable", "0/3 nodes " * 999
    refused.last_transition_time.seconds = 1_700_000_030


def test_of_a_pod_that_waits_the_schedulers_word_is_kept():
    kept = object_from_stored(stored(changed(waiting))).pod.status
    (refused,) = [each for each in kept.conditions if each.type == "PodScheduled"]
    assert (refused.status, refused.reason) == ("False", "Unschedulable")
    assert refused.message == ("0/3 nodes " * 999)[:LONGEST_MESSAGE]
    assert refused.last_transition_time.seconds == 1_700_000_030
    assert kept.nominated_node_name == "n9"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_of_a_pod_that_has_ended_it_is_not(phase):
    def ends(pod: kube.Pod) -> None:
        waiting(pod)
        pod.status.phase = phase

    kept = object_from_stored(stored(changed(ends))).pod.status
    assert [each.type for each in kept.conditions] == ["Ready"]
    assert not kept.nominated_node_name


def test_a_limit_of_the_whole_pod_is_its_request_where_no_container_has_one():
    def change(pod: kube.Pod) -> None:
        for name, amount in (("cpu", "9"), ("memory", "9Gi"), ("hugepages-2Mi", "4Mi")):
            pod.spec.resources.limits[name].string = amount
        pod.spec.containers[0].resources.limits.clear()

    message = changed(change)
    kept = object_from_stored(stored(message)).pod
    requests = {name: each.string for name, each in kept.spec.resources.requests.items()}
    assert requests == {"memory": "9Gi", "hugepages-2Mi": "4Mi"}
    expected = (("cpu", 260), ("hugepages-2Mi", 4 << 20), ("memory", 9 << 30))
    assert demand_of(message.pod).requests == demand_of(kept).requests == expected


def test_reservations_are_not_written_as_objects():
    message = ClusterObject()
    message.reservation.SetInParent()
    with pytest.raises(InvalidRequest, match="is only watched"):
        stored(message)
