"""Stored bytes to the index's changes, and reservations as they are stored."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.objects import changed, full_pod, made
from tests.reference import strategies
from topospread.cache import BUDGETS
from topospread.codec.demands import DemandReader
from topospread.codec.frames import framed
from topospread.codec.parsing import parse_request
from topospread.codec.pods import node_from_proto, pod_from_proto, workload_from_proto
from topospread.codec.rows import (
    ChangeDecoder,
    ReservationTemplate,
    decode_node,
    decode_pod,
    decode_workload,
    reservation_key,
    reservation_row,
)
from topospread.codec.stored import stored
from topospread.errors import CorruptValue, InvalidRequest
from topospread.generated.internal.v1.stored_pb2 import StoredReservation
from topospread.index.changes import (
    NodeChange,
    PodChange,
    PodRow,
    ReservationChange,
    ReservationRow,
    WorkloadChange,
)
from topospread.kube.demands import SCHEDULING_GATES
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HONOR,
    TERMINAL_PHASES,
    LabelSelector,
    OwnerReference,
    Pod,
    SpreadConstraint,
)
from topospread.spread.constraints import pod_constraints
from topospread.spread.settings import Rules
from topospread.store.model import Key, Kind
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject


def test_a_bound_pod_is_counted():
    payload = stored(full_pod()).payload
    row = decode_pod(payload)
    labels = (("", "odd"), ("app", "a"), ("rev", "1"))
    assert row == PodRow(labels, "n1", True, row.requests, row.template)


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod.spec.ClearField("node_name"),
        lambda pod: pod.metadata.deletion_timestamp.SetInParent(),
        lambda pod: setattr(pod.status, "phase", "Succeeded"),
        lambda pod: setattr(pod.status, "phase", "Failed"),
    ],
)
def test_pods_that_are_not_counted(change):
    row = decode_pod(stored(changed(change)).payload)
    assert not row.counted
    assert (row.template is None) == bool(row.node_name), (
        "one that waits is in a class all the same"
    )


def test_pods_of_one_class_have_one_shape_and_other_pods_another():
    """What a decision depends on is in the template, and what differs between replicas is not."""
    template = decode_pod(stored(full_pod()).payload).template
    assert template is not None

    def replica(pod):
        pod.metadata.name, pod.metadata.uid, pod.spec.node_name = "q", "u-9", "n2"
        pod.metadata.creation_timestamp.seconds += 60
        pod.status.Clear()

    assert decode_pod(stored(changed(replica)).payload).template == template
    for differs in (
        lambda pod: pod.metadata.labels.update({"app": "b"}),
        lambda pod: setattr(pod.metadata, "namespace", "other"),
        lambda pod: setattr(pod.metadata.owner_references[1], "name", "rs-2"),
        lambda pod: pod.spec.node_selector.update({"disk": "hdd"}),
        lambda pod: pod.spec.ClearField("affinity"),
        lambda pod: pod.spec.ClearField("tolerations"),
        lambda pod: setattr(pod.spec, "scheduler_name", "mine"),
        lambda pod: (
            pod.spec.containers[0].resources.requests["cpu"].MergeFrom(kube.Quantity(string="2"))
        ),
        lambda pod: setattr(pod.spec.topology_spread_constraints[0], "max_skew", 2),
    ):
        assert decode_pod(stored(changed(differs)).payload).template != template


def test_whether_gates_hold_a_pod_is_in_its_template_and_not_which():
    def waits(*gates):
        def change(pod):
            pod.spec.ClearField("node_name")
            pod.spec.ClearField("scheduling_gates")
            for gate in gates:
                pod.spec.scheduling_gates.add(name=gate)

        return decode_pod(stored(changed(change)).payload).template

    free, held = waits(), waits("queue")
    assert held is not None
    assert waits("quota", "queue") == held != free
    assert SCHEDULING_GATES in DemandReader().of(held)[0].not_modelled
    assert framed(held).key == framed(free).key


@given(cluster=strategies.clusters())
def test_a_template_reads_as_a_pod_of_its_class(cluster):
    for manifest in cluster["pods"]:
        message = made(manifest)
        payload = stored(message).payload
        template = decode_pod(payload).template
        if template is None:
            continue
        read = framed(template)
        assert (read.key, read.name, read.uid) == (framed(payload).key, "", "")
        of_pod, of_class = pod_from_proto(message.pod), read.parse(most_terms=10_000)
        assert of_class == replace(of_pod, name="", uid="", node_name="", phase="")
        assert of_class.owner == of_pod.owner


def test_a_pod_without_a_controller_has_no_owner():
    assert framed(b"").parse(most_terms=1).owner is None
    template = decode_pod(stored(full_pod()).payload).template
    assert template is not None
    assert framed(template).parse(most_terms=100).owner == OwnerReference(
        "apps/v1", "ReplicaSet", "rs", "u-2"
    )


@pytest.mark.parametrize("phase", ["", "Pending", "Unknown", "Anything"])
def test_any_other_phase_counts(phase):
    message = changed(lambda pod: setattr(pod.status, "phase", phase))
    assert decode_pod(stored(message).payload).counted


def test_a_pod_without_anything_is_a_row_without_anything():
    assert decode_pod(b"") == PodRow((), "", counted=False, template=b"\n\0\x12\0")


@given(cluster=strategies.clusters())
def test_rows_say_what_the_messages_say(cluster):
    decoder = ChangeDecoder()
    for manifest in cluster["pods"]:
        message = made(manifest)
        kept = stored(message)
        pod = pod_from_proto(message.pod)
        ended = pod.terminating or pod.phase in TERMINAL_PHASES
        counted = bool(pod.node_name) and not ended
        takes = () if pod.node_name and pod.phase not in TERMINAL_PHASES else None
        template = decode_pod(kept.payload).template
        assert (template is None) == ended
        row = PodRow(tuple(sorted(pod.labels.items())), pod.node_name, counted, takes, template)
        assert decoder.pod(kept.payload) == decode_pod(kept.payload) == row
        assert decoder.change(kept.key, kept) == PodChange(pod.namespace, pod.name, row)
    for manifest in cluster["nodes"]:
        kept = stored(made(manifest))
        node = node_from_proto(made(manifest).node)
        assert decode_node(kept.payload) == node
        assert decoder.change(kept.key, kept) == NodeChange(node.name, node)
    for manifest in cluster["services"] + cluster["statefulSets"]:
        message = made(manifest)
        kept = stored(message)
        workload = workload_from_proto(getattr(message, message.WhichOneof("content") or ""))
        assert decode_workload(kept.key.kind, kept.payload) == workload
        change = WorkloadChange(workload.kind, workload.namespace, workload.name, workload)
        assert decoder.change(kept.key, kept) == change


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (Key(Kind.POD, "team", "p"), PodChange("team", "p", None)),
        (Key(Kind.NODE, "", "n"), NodeChange("n", None)),
        (Key(Kind.SERVICE, "team", "s"), WorkloadChange("Service", "team", "s", None)),
        (Key(Kind.REPLICA_SET, "team", "r"), WorkloadChange("ReplicaSet", "team", "r", None)),
    ],
)
def test_deletions(key, change):
    assert ChangeDecoder().change(key, None) == change


def test_more_label_sets_than_are_remembered(monkeypatch):
    monkeypatch.setattr(BUDGETS["rows"], "most", 10_000)
    decoder = ChangeDecoder()
    for number in range(100):
        pod = kube.Pod()
        pod.metadata.labels["pod"] = str(number)
        row = decoder.pod(pod.SerializeToString(deterministic=True))
        assert row.labels == (("pod", str(number)),)
    assert len(decoder._shapes) < 100
    assert decoder._shapes.size <= 10_000


def test_label_sets_are_shared():
    decoder = ChangeDecoder()
    payload = stored(full_pod()).payload
    assert decoder.pod(payload).labels is decoder.pod(payload).labels


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b"\x0a\x03\x5a\x01\xff",  # a label that is no message
        b"\x0a\x05\x5a\x03\x0a\x01\xff",  # a label's key that is not UTF-8
        b"\x12\x03\x52\x01\xff",  # a node name that is not UTF-8
        b"\x12\x04\x9a\x01\x01\xff",  # a scheduler's name that is not UTF-8
    ],
)
def test_a_pod_that_cannot_be_read_is_corrupt(payload):
    with pytest.raises(CorruptValue):
        decode_pod(payload)


def test_kind_that_is_no_workload_is_corrupt():
    with pytest.raises(CorruptValue):
        decode_workload(Kind.RESERVATION, b"")


@given(data=st.data())
def test_mutated_bytes_are_read_or_refused_but_nothing_else(data):
    payload = bytearray(stored(full_pod()).payload)
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), min_size=1, max_size=4)):
        payload[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(payload)))
    broken = bytes(payload[:end])
    for decode in (decode_pod, decode_node, lambda p: decode_workload(Kind.REPLICA_SET, p)):
        try:
            decode(broken)
        except CorruptValue:
            continue
    try:
        message = parse_request(kube.Pod, broken)
    except InvalidRequest:
        return
    pod_from_proto(message)
    message.metadata.name, message.metadata.namespace = "p", "team"
    with suppress(InvalidRequest):  # its uid and version may be none that can be stored
        stored(ClusterObject(pod=message))


POD = Pod(
    "web-1",
    "prod",
    "u1",
    {"b": "2", "app": "web"},
    owner=OwnerReference("apps/v1", "ReplicaSet", "web", "u0"),
    constraints=(
        SpreadConstraint(
            1,
            "zone",
            DO_NOT_SCHEDULE,
            LabelSelector((("app", "web"),)),
            min_domains=3,
            node_taints_policy=HONOR,
        ),
        SpreadConstraint(2, "rack", DO_NOT_SCHEDULE, None, match_label_keys=("b",)),
    ),
)
CONSTRAINTS = pod_constraints(POD, Rules(), None).hard.constraints
KEY = reservation_key("prod", "web-1")


def held(node="n1", uid="u1", **changes):
    parts: dict[str, Any] = {
        "pod": POD,
        "requests": (("cpu", 250),),
        "constraints": CONSTRAINTS,
        **changes,
    }
    return ReservationTemplate(**parts).held(KEY, uid, node)


def test_reservation_is_counted_by_labels_and_node():
    stored = replace(held(), expires_at=5)
    labels = (("app", "web"), ("b", "2"))
    row = ReservationRow("u1", labels, "n1", 5, (("cpu", 250),))

    assert reservation_row(stored) == row
    assert stored.key == Key(Kind.RESERVATION, "prod", "web-1")
    assert ChangeDecoder().change(stored.key, stored) == ReservationChange("prod", "web-1", row)
    assert ChangeDecoder().change(stored.key, None) == ReservationChange("prod", "web-1", None)


def test_reservation_has_owner_and_constraints():
    message = StoredReservation.FromString(held().payload)

    assert (message.owner.kind, message.owner.name, message.owner.uid) == (
        "ReplicaSet",
        "web",
        "u0",
    )
    assert dict(message.requests) == {"cpu": 250}
    zone, rack = message.constraints
    assert (zone.max_skew, zone.topology_key, zone.min_domains) == (1, "zone", 3)
    assert zone.node_taints_policy == HONOR
    (expression,) = zone.label_selector.match_expressions
    assert (expression.key, expression.operator, list(expression.values)) == ("app", "In", ["web"])
    assert not rack.HasField("label_selector")


def test_equal_reservations_have_equal_bytes():
    other = replace(POD, labels={"app": "web", "b": "2"})
    assert held(pod=other) == held()


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({"node": "n2"}, True),
        ({"uid": "u2"}, True),
        ({"pod": replace(POD, owner=None)}, True),
        ({"pod": replace(POD, labels={})}, True),
        ({"requests": ()}, True),
        ({"constraints": ()}, False),
    ],
)
def test_digest_covers_fields_that_matter_to_others(change, matters):
    assert (held(**change).digest != held().digest) == matters
    assert held(**change).payload != held().payload or "uid" in change


def test_a_payload_that_cannot_be_read_is_corrupt():
    with pytest.raises(CorruptValue):
        reservation_row(replace(held(), payload=b"\xff"))
