"""Too many items of a field are detected in the bytes, before there are messages of them."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from topospread.codec.parsing import (
    FIELDS,
    NODES,
    PODS,
    SMALL,
    USUAL,
    check_repeats,
)
from topospread.errors import InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.service.decisions.pods import Limits
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.options.v1 import options_pb2
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    deletion_order_pb2,
    planner_service_pb2,
    scenario_pb2,
)
from topospread_proto.v1 import decision_service_pb2 as engine_pb

LABELS = 10_000
"""Of what an API server does not count; see options.proto."""

API = (
    cluster_state_service_pb2,
    common_pb2,
    deletion_order_pb2,
    engine_pb,
    planner_service_pb2,
    scenario_pb2,
)

if TYPE_CHECKING:
    from types import FrameType

    from google.protobuf.message import Message


TERMS = Limits().terms


def _pod(**counts: int) -> kubernetes_pb2.Pod:
    pod = kubernetes_pb2.Pod()
    for field, count in counts.items():
        for _ in range(count):
            getattr(pod.spec, field).add()
    return pod


@pytest.mark.parametrize("message", [kubernetes_pb2.Pod, frames_pb2.PodFrame])
def test_up_to_the_limit_and_no_further(message):
    check_repeats(message, _pod(tolerations=TERMS).SerializeToString())
    with pytest.raises(InvalidRequest) as refused:
        check_repeats(message, _pod(tolerations=TERMS + 1).SerializeToString())
    assert str(refused.value) == f"spec.tolerations: must have at most {TERMS} items"
    assert refused.value.violations[0].field == "spec.tolerations"


def test_only_fields_of_the_frame_are_counted():
    pod = _pod(volumes=USUAL + 1)
    check_repeats(kubernetes_pb2.Pod, pod.SerializeToString(), frames_pb2.PodFrame)
    with pytest.raises(InvalidRequest, match=r"^spec\.volumes: "):
        check_repeats(kubernetes_pb2.Pod, pod.SerializeToString(), frames_pb2.DemandFrame)
    constraint = pod.spec.topology_spread_constraints.add()
    constraint.match_label_keys.extend(["k"] * (TERMS + 1))
    with pytest.raises(InvalidRequest, match=r"\[0\]\.matchLabelKeys: "):
        check_repeats(kubernetes_pb2.Pod, pod.SerializeToString(), frames_pb2.PodFrame)


def test_paths_lead_to_the_item():
    request = engine_pb.EvaluatePodRequest()
    request.add_pods.add()
    request.add_pods.add().pod.object.CopyFrom(_pod(volumes=USUAL + 1))
    with pytest.raises(InvalidRequest, match=r"^addPods\[1\]\.pod\.object\.spec\.volumes: "):
        check_repeats(engine_pb.EvaluatePodRequest, request.SerializeToString())


def test_maps_and_text_and_packed_numbers():
    pod = kubernetes_pb2.Pod()
    for number in range(LABELS + 1):
        pod.metadata.labels[f"k{number}"] = "v"
    with pytest.raises(InvalidRequest, match=r"^metadata\.labels: "):
        check_repeats(kubernetes_pb2.Pod, pod.SerializeToString())
    for nodes in (
        common_pb2.NodeSelection(names=common_pb2.NodeNames(names=["n"] * (NODES + 1))),
        common_pb2.NodeSelection(indices=common_pb2.NodeIndices(indices=[1000] * (NODES + 1))),
        common_pb2.NodeSelection(indices=common_pb2.NodeIndices(indices=[1] * (NODES + 1))),
    ):
        request = engine_pb.EvaluatePodRequest(candidates=nodes)
        with pytest.raises(InvalidRequest, match=r"^candidates\.(names\.names|indices\.indices): "):
            check_repeats(engine_pb.EvaluatePodRequest, request.SerializeToString())


def test_a_part_that_is_sent_in_pieces_is_counted_as_fields():
    piece = _pod(tolerations=10).SerializeToString()
    with pytest.raises(InvalidRequest, match=f"at most {FIELDS} fields"):
        check_repeats(kubernetes_pb2.Pod, piece * FIELDS)


@pytest.mark.parametrize(
    "sent",
    [b"\x12\x00" * 8_000_000, b"\xf8\x07\x01" * 5_000_000, b"\x08" + b"\xff" * 4_000_000],
    ids=["empty parts", "unknown fields", "a number without end"],
)
def test_a_refusal_costs_what_its_limit_costs(sent):
    def seconds() -> float:
        before = time.thread_time()
        with suppress(InvalidRequest):
            check_repeats(kubernetes_pb2.Pod, sent)
        return time.thread_time() - before

    # What else the machine does only ever adds. To walk all parts takes several seconds.
    assert any(seconds() < 0.5 for _ in range(20))


def test_whole_requests_of_ordinary_size_pass():
    request = cluster_state_service_pb2.ApplyObjectsRequest()
    for number in range(500):
        pod = request.objects.add().pod
        pod.metadata.name = f"pod-{number}"
        for label in range(20):
            pod.metadata.labels[f"example.com/label-{label}"] = "value"
        for _ in range(4):
            container = pod.spec.containers.add()
            container.resources.requests["cpu"].string = "1"
            container.ports.add().container_port = 80
    check_repeats(cluster_state_service_pb2.ApplyObjectsRequest, request.SerializeToString())


def test_small_requests_are_not_walked():
    """They are the many: an EvaluatePod is to cost nothing more."""
    assert _ran(kubernetes_pb2.Pod, b"\x12\x00" * (SMALL // 2)) == ["check_repeats"]


def test_parts_that_are_too_short_for_any_limit_are_not_walked():
    """However many there are: what is in them would cost more than all else of the refusal."""
    request = planner_service_pb2.SimulateRequest()
    added = request.scenario.changes.add_pods
    added.add().pod.object.CopyFrom(_pod(volumes=3, containers=3))
    added.extend([added[0]] * (PODS - 1))
    ran = _ran(type(request), request.SerializeToString())
    assert ran.count("message") == len(["the request", "scenario", "changes"])
    added[7].pod.object.CopyFrom(_pod(volumes=USUAL + 1))
    with pytest.raises(InvalidRequest, match=r"addPods\[7\]\.pod\.object\.spec\.volumes: "):
        check_repeats(type(request), request.SerializeToString())


def _ran(message: type[Message], sent: bytes) -> list[str]:
    """The functions that a check calls, by name."""
    ran: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        check_repeats(message, sent)
    finally:
        sys.setprofile(None)
    return ran


def test_unparsable_bytes_are_left_to_the_parser():
    for sent in (b"\xff" * 4000, b"\x12\xff\xff\xff\x7f" * 1000, bytes(range(256)) * 16):
        check_repeats(kubernetes_pb2.Pod, sent)


def test_a_limit_is_one_of_a_repeated_field_and_above_the_usual_one():
    """Another would be passed over, or let more pass in a request that is too small to look at."""
    stated = [
        (field, limit)
        for file in (kubernetes_pb2, *API)
        for message in file.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if (limit := field.GetOptions().Extensions[options_pb2.max_items])
    ]
    assert len(stated) > 30
    assert [field.full_name for field, _ in stated if not field.is_repeated] == []
    assert [field.full_name for field, limit in stated if limit < USUAL] == []
