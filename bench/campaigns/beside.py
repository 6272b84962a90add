"""Decisions of a caller beside others who list, write and plan, compared to when it is alone."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench.campaigns.campaign import (
    Outcome,
    campaign,
    nodes_option,
    note,
    pods_option,
    run,
    server_flag_option,
)
from bench.campaigns.crowd import ENGINE, PLANNER, simulated
from bench.campaigns.grown import pod
from bench.campaigns.heavy import HeavyCaller
from bench.campaigns.measured import Measured, load
from tests.servers import ServerProcess
from tests.waiting import PATIENCE
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AIM: Final = 20.0
"""How many times its p99 alone a decision's p99 beside others may be."""

STATE: Final = "/topospread.v1.ClusterStateService/"
CALLERS: Final = 64
"""Of ListObjects, and of ApplyObjects."""

BATCH: Final = 100
MANAGED: Final = 20 << 10
"""Bytes of managedFields, as a Go client's pod has them."""

WRITTEN: Final = 10
"""Pods of an ApplyObjects."""


def _questions() -> Mapping[str, tuple[str, bytes]]:
    """What the caller asks: the method, and what is sent."""
    asked = pod()
    batch = pb.BatchEvaluatePodsRequest()
    for number in range(BATCH):
        one = batch.pods.add().object
        one.CopyFrom(asked)
        one.metadata.name = f"batch-{number}"
    # As Go's Marshal() writes it: managedFields (17) come with the metadata (field 1 of a Pod).
    managed = _field(17, _field(1, b"kubectl") + _field(7, _field(1, b"x" * MANAGED)))
    raw = asked.SerializeToString() + _field(1, managed)
    large = pb.EvaluatePodRequest(pod=common_pb2.PodSource(object_proto=raw))
    single = pb.EvaluatePodRequest(pod=common_pb2.PodSource(object=asked))
    return {
        "EvaluatePod": (f"{ENGINE}EvaluatePod", single.SerializeToString()),
        "BatchEvaluatePods": (f"{ENGINE}BatchEvaluatePods", batch.SerializeToString()),
        "EvaluatePod of 20 KiB": (f"{ENGINE}EvaluatePod", large.SerializeToString()),
    }


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*written, number))


def _writes() -> list[bytes]:
    """Two writes of the same pods with other labels, so that each changes all of them."""
    written = []
    for value in "ab":
        request = state_pb.ApplyObjectsRequest(force=True)
        for number in range(WRITTEN):
            made = request.objects.add().pod
            made.CopyFrom(pod())
            made.metadata.name = f"written-{number}"
            made.metadata.labels["turn"] = value
            made.spec.node_name = f"node-{number}"
        written.append(request.SerializeToString())
    return written


def _ask(address: str, question: tuple[str, bytes], seconds: float) -> tuple[list[float], int]:
    """Ask one after the other; returns the seconds of each, and how many failed."""
    method, request = question
    took, failed = [], 0
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(address, options) as channel:
        call: Any = channel.unary_unary(method)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                call(request, timeout=PATIENCE)
            except grpc.RpcError:
                failed += 1
            took.append(time.monotonic() - began)
    return took, failed


def _p99(took: Sequence[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


@campaign(
    "beside",
    nodes_option,
    pods_option,
    click.option("--seconds", type=float, default=8.0, show_default=True, help="Of each question."),
    server_flag_option,
)
def command(nodes: int, pods: int, seconds: float, server_flags: tuple[str, ...]) -> Outcome:
    """Compare a caller's decisions alone and beside others who list, write and plan.

    Its p99 of EvaluatePod, of a batch of 100 and of a pod of 20 KiB may be at most 20 times as long
    beside 64 callers of ListObjects and 64 of ApplyObjects, and beside the worst Simulate that is
    accepted; and none may fail.
    """
    quiet = ("--log-level", "error")
    figures: dict[str, Any] = {}
    broken = []
    with ServerProcess("--store", "memory:", *quiet, *server_flags) as server:
        measured = Measured(server.process.pid, server.address)
        load(measured, nodes, pods)
        listed = state_pb.ListObjectsRequest(kind=common_pb2.KIND_POD, page_size=500)
        others = {
            "lists and writes": (
                (f"{STATE}ListObjects", [listed.SerializeToString()], CALLERS),
                (f"{STATE}ApplyObjects", _writes(), CALLERS),
            ),
            "Simulate": ((f"{PLANNER}Simulate", [simulated(1).SerializeToString()], 1),),
        }
        questions = _questions()
        for question in questions.values():
            _ask(server.address, question, seconds / 4)
        alone = {name: _p99(_ask(server.address, q, seconds)[0]) for name, q in questions.items()}
        for what, heavy in others.items():
            for name, question in questions.items():
                note(f"beside: {name} beside {what}")
                callers = [HeavyCaller(server.address, many, m, r) for m, r, many in heavy]
                try:
                    for caller in callers:
                        caller.__enter__()
                    time.sleep(seconds / 4)
                    took, failed = _ask(server.address, question, seconds)
                    refused = sum(caller.failed for caller in callers)
                    answered = sum(caller.answered for caller in callers)
                finally:
                    for caller in callers:
                        caller.__exit__()
                ratio = _p99(took) / alone[name]
                figures[f"{name} beside {what}"] = {
                    "alone_p99_ms": round(alone[name] * 1e3, 2),
                    "beside_p99_ms": round(_p99(took) * 1e3, 2),
                    "ratio": round(ratio, 1),
                    "asked": len(took),
                    "failed": failed,
                    "others_answered": answered,
                    "others_refused": refused,
                }
                if ratio > AIM:
                    broken.append(f"{name} beside {what}: its p99 is {ratio:.1f} times as long")
                if failed:
                    broken.append(f"{name} beside {what}: {failed} calls failed")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
