"""Stored bytes to the index's changes, and reservations as they are stored."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.objects import changed, full_pod, made
from tests.index.changes import DISKS, PORTS, PRIORITIES, TERMS, some
from tests.reference import strategies
from topospread.cache import BUDGETS
from topospread.codec.demands import DemandReader
from topospread.codec.frames import framed
from topospread.codec.parsing import parse_request
from topospread.codec.pods import node_from_proto, pod_from_proto, workload_from_proto
from topospread.codec.reservations import ReservationTemplate, reservation_key, reservation_row
from topospread.codec.rows import (
    ChangeDecoder,
    decode_node,
    decode_pod,
    decode_workload,
)
from topospread.codec.stored import object_from_stored, stored
from topospread.codec.stored_pods import EvictionReader
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
from topospread.kube.demands import (
    RBD,
    Demand,
    Disk,
    Holds,
    HostPort,
    PodVolume,
    holds_of,
)
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HONOR,
    TERMINAL_PHASES,
    LabelSelector,
    OwnerReference,
    Pod,
    SpreadConstraint,
)
from topospread.kube.pod_affinity import AffinityTerm
from topospread.kube.selectors import EVERYTHING, IN, NOT_IN, Requirement, Selector
from topospread.spread.constraints import pod_constraints
from topospread.spread.settings import Rules
from topospread.store.model import Key, Kind
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject


def test_a_bound_pod_is_counted():
    payload = stored(full_pod()).payload
    row = decode_pod(payload)
    labels = (("", "odd"), ("app", "a"), ("rev", "1"))
    assert row == PodRow(labels, "n1", True, row.requests, row.template, row.holds)


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
        pod.status.phase = "Running"

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
    assert DemandReader().of(held)[0].gated
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
    assert decode_pod(b"") == PodRow((), "", counted=False, template=b"\n\0")


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
        labels = tuple(sorted(pod.labels.items()))
        there = message.pod.status.nominated_node_name
        nominated = None
        if there and not pod.node_name and pod.phase not in TERMINAL_PHASES:
            nominated = PodRow(labels, there, counted=True, requests=())
        row = PodRow(labels, pod.node_name, counted, takes, template, nominated=nominated)
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
        "demand": Demand((("cpu", 250),)),
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
        ({"demand": Demand()}, True),
        ({"demand": Demand((("cpu", 250),), priority=1)}, True),
        ({"constraints": ()}, False),
    ],
)
def test_digest_covers_fields_that_matter_to_others(change, matters):
    assert (held(**change).digest != held().digest) == matters
    assert held(**change).payload != held().payload or "uid" in change


def test_a_payload_that_cannot_be_read_is_corrupt():
    with pytest.raises(CorruptValue):
        reservation_row(replace(held(), payload=b"\xff"))


def test_a_pod_holds_ports_disks_claims_and_its_anti_affinity():
    def change(pod):
        pod.spec.volumes.add(name="scratch").volume_source.ephemeral.SetInParent()
        rbd = pod.spec.volumes.add(name="r").volume_source.rbd
        rbd.image, rbd.read_only = "image", True
        rbd.monitors.extend(["m2", "m1"])
        pod.spec.init_containers[0].ports.add(container_port=5, host_port=5, protocol="UDP")
        pod.spec.init_containers.add(name="step").ports.add(container_port=6, host_port=6)

    app = Selector((Requirement("app", IN, ("a",)),))
    held = Holds(
        (HostPort(8080), HostPort(5, "UDP")),
        (Disk(RBD, "rbd/image", read_only=True, monitors=("m1", "m2")),),
        ("team/claim", "team/p-scratch"),
        (
            AffinityTerm(app, ("team",), "zone"),
            AffinityTerm(EVERYTHING, ("other", "team"), "h"),
        ),
        priority=7,
    )
    kept = stored(changed(change))
    assert decode_pod(kept.payload).holds == held
    demand = DemandReader().of(object_from_stored(kept).pod.SerializeToString())[0]
    assert holds_of(demand, "team", "p") == held


def test_hosts_network_makes_each_port_one_of_the_node():
    pod = kube.Pod()
    pod.metadata.name, pod.spec.node_name, pod.spec.host_network = "p", "n1", True
    pod.spec.containers.add(name="c").ports.add(container_port=80, host_ip="10.0.0.1")
    held = (HostPort(80, ip="10.0.0.1"),)
    row = decode_pod(stored(ClusterObject(pod=pod)).payload)
    assert row.holds == Holds(held)
    assert DemandReader().of(pod.SerializeToString())[0].ports == held


@pytest.mark.parametrize(("uid", "merged"), [("", True), ("u-1", False)])
def test_label_keys_are_merged_where_no_api_server_has_done_so(uid, merged):
    pod = kube.Pod()
    pod.metadata.name, pod.metadata.uid, pod.spec.node_name = "p", uid, "n1"
    pod.status.phase = "Running"
    pod.metadata.labels.update({"rev": "1", "tier": "fe"})
    terms = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    term = terms.add(
        topology_key="zone", match_label_keys=["rev", "none"], mismatch_label_keys=["tier"]
    )
    term.label_selector.SetInParent()
    selector = EVERYTHING
    if merged:
        of_labels = (Requirement("rev", IN, ("1",)), Requirement("tier", NOT_IN, ("fe",)))
        selector = Selector(of_labels)
    expected = (AffinityTerm(selector, ("default",), "zone"),)
    assert DemandReader().of(pod.SerializeToString())[0].anti_affinity == expected
    row = decode_pod(stored(ClusterObject(pod=pod)).payload)
    assert row.holds == Holds(terms=expected)


def resized(allocated: str, runs_with: str, *, infeasible: bool = False) -> ClusterObject:
    def change(pod):
        pod.spec.ClearField("overhead")
        status = pod.status.container_statuses[0]
        status.ClearField("allocated_resources")
        status.ClearField("resources")
        if allocated:
            status.allocated_resources["cpu"].string = allocated
        if runs_with:
            status.resources.requests["cpu"].string = runs_with
        if infeasible:
            pod.status.conditions.add(type="PodResizePending", reason="Infeasible")

    return changed(change)


@pytest.mark.parametrize(
    ("allocated", "runs_with", "infeasible", "cpu"),
    [
        ("100m", "100m", False, 250),
        ("300m", "100m", False, 300),
        ("300m", "", False, 300),
        ("300m", "400m", False, 400),
        ("", "400m", False, 400),
        ("100m", "120m", True, 120),
        ("100m", "", True, 100),
        ("250m", "0.25", False, 250),
    ],
)
def test_a_pod_that_is_resized_takes_the_most_of_all(allocated, runs_with, infeasible, cpu):
    message = resized(allocated, runs_with, infeasible=infeasible)
    row = decode_pod(stored(message).payload)
    assert row.requests is not None
    assert dict(row.requests)["cpu"] == cpu
    facts = EvictionReader().facts(stored(message).payload)
    assert facts.takes == row.requests
    assert dict(facts.demand.requests)["cpu"] == 250
    assert DemandReader().of(message.pod.SerializeToString())[0].requests[0] == ("cpu", 250)


@pytest.mark.parametrize(
    ("own", "allocated", "runs_with", "infeasible", "cpu"),
    [
        # Requests of the whole pod, beside a container's of 250m; what its status says; the most.
        ("", "400m", "300m", False, 400),
        ("", "100m", "300m", True, 300),
        ("", "100m", "120m", False, 250),
        ("", "400m", None, False, 250),
        ("", "", "400m", False, 250),
        ("500m", "600m", "550m", False, 600),
        ("500m", "100m", "600m", False, 600),
        ("500m", "100m", "120m", True, 120),
        ("500m", "", "600m", False, 600),
        ("500m", "600m", "", False, 600),
        ("500m", "600m", None, False, 500),
        ("500m", "500m", "0.5", False, 500),
    ],
)
def test_a_whole_pod_that_is_resized_takes_the_most_of_all(
    own, allocated, runs_with, infeasible, cpu
):
    def change(pod):
        status = pod.status
        if own:
            pod.spec.resources.requests["cpu"].string = own
        if allocated:
            status.allocated_resources["cpu"].string = allocated
        if runs_with is not None:
            status.resources.SetInParent()
        if runs_with:
            status.resources.requests["cpu"].string = runs_with

    message = resized("", "", infeasible=infeasible)
    change(message.pod)
    row = decode_pod(stored(message).payload)
    assert row.requests is not None
    assert dict(row.requests)["cpu"] == cpu
    assert EvictionReader().facts(stored(message).payload).takes == row.requests
    # What decides nothing is not kept: the status of most pods says what their spec says.
    kept = kube.Pod.FromString(stored(message).payload).status.HasField("resources")
    assert kept == (infeasible or cpu != (500 if own else 250))


def test_a_pod_that_waits_is_nominated():
    def waits(pod):
        pod.spec.ClearField("node_name")

    row = decode_pod(stored(changed(waits)).payload)
    assert row.nominated is not None
    assert (row.holds, row.requests, row.nominated.node_name) == (None, None, "n9")
    assert row.nominated.holds == decode_pod(stored(full_pod()).payload).holds
    assert decode_pod(stored(full_pod()).payload).nominated is None


def test_claims_of_each_replica_make_no_class_for_each():
    def replica(number, claim):
        def change(pod):
            pod.metadata.name = f"web-{number}"
            pod.spec.volumes[1].volume_source.persistent_volume_claim.claim_name = claim

        return decode_pod(stored(changed(change)).payload)

    first, second, shared = replica(0, "d-web-0"), replica(1, "d-web-1"), replica(2, "common")
    assert first.template == second.template != shared.template
    assert (first.holds and first.holds.claims) == ("team/d-web-0",)
    assert shared.template is not None
    (volume,) = DemandReader().of(shared.template)[0].volumes
    assert volume.claim == "common"


demands = st.builds(
    Demand,
    ports=some(PORTS),
    volumes=st.lists(
        st.one_of(
            st.sampled_from(DISKS).map(lambda disk: PodVolume("", disk=disk)),
            st.sampled_from("ab").map(lambda name: PodVolume("", name)),
            st.sampled_from("ab").map(lambda name: PodVolume(name, ephemeral=True)),
        ),
        max_size=3,
    ).map(lambda volumes: tuple(sorted(volumes, key=lambda each: (each.ephemeral, each.claim)))),
    anti_affinity=some(TERMS),
    priority=st.sampled_from(PRIORITIES),
)


@given(demands)
def test_a_reservation_holds_as_its_pod_will(demand):
    row = reservation_row(held(demand=demand))
    expected = holds_of(demand, KEY.namespace, KEY.name)
    assert row.holds == expected
