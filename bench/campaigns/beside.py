"""Calls of a caller beside others who list, write, plan and apply, compared to when it is alone."""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
import grpc
import httpx

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
from topospread_proto.v1 import inspector_service_pb2 as inspector_pb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.synchronize import Event

AIM: Final = 20.0
"""How many times its p99 alone a decision's p99 beside others may be."""

MOST_LATE: Final = 0.1
"""Seconds that p99 may have beside manifests of megabytes: their JSON is parsed in one piece."""

MOST: Final = 2.0
"""Seconds for an answer of the planner's, and of the webhook, beside a Simulate."""

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


def _planned() -> Mapping[str, tuple[str, bytes]]:
    """What is answered by the threads that also carry out a Simulate."""
    explained = pb.ExplainPodRequest(pod=common_pb2.PodSource(object=pod()))
    listed = inspector_pb.ListConstraintsRequest()
    return {
        "ExplainPod": (f"{ENGINE}ExplainPod", explained.SerializeToString()),
        "ListConstraints": (
            "/topospread.v1.InspectorService/ListConstraints",
            listed.SerializeToString(),
        ),
    }


def review(labels: int = 1, containers: int = 1, label: int = 1) -> bytes:
    """A review of a Deployment with so many labels, containers, and characters of a label."""
    meant = {"app": "app-1", **{f"label-{number}": "x" for number in range(labels)}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "app-1"}},
    }
    template = {
        "metadata": {"labels": {**meant, "long": "a-" * (label // 2)}},
        "spec": {
            "containers": [{"name": f"c-{number}", "image": "i"} for number in range(containers)],
            "topologySpreadConstraints": [spread],
        },
    }
    spec = {
        "replicas": 4,
        "selector": {"matchLabels": {"app": "app-1"}},
        "template": template,
    }
    applied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    }
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u", "namespace": "default", "object": applied},
        }
    ).encode()


def _heavy_reviews() -> Mapping[str, bytes]:
    """Manifests of some megabytes, as many as API servers pass on."""
    return {
        "150,000 labels": review(labels=150_000),
        "60,000 containers": review(containers=60_000),
        "a label of 2 MB": review(label=2_000_000),
    }


def validate(url: str, review: bytes, seconds: float) -> tuple[list[float], int]:
    """Send a review again and again; returns the seconds of each, and how many failed."""
    took, failed = [], 0
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as http:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            answer = http.post("/validate?timeout=2s", content=review)
            took.append(time.monotonic() - began)
            failed += answer.status_code != httpx.codes.OK
    return took, failed


def _apply(url: str, review: bytes, begun: Event) -> None:
    _, failed = validate(url, review, MOST_LATE)
    if not failed:
        begun.set()
        validate(url, review, math.inf)


@contextmanager
def _applied(url: str, review: bytes) -> Iterator[None]:
    """Have a review sent all the time, by a process of its own."""
    spawning = multiprocessing.get_context("spawn")
    begun = spawning.Event()
    applying = spawning.Process(target=_apply, args=(url, review, begun), daemon=True)
    applying.start()
    try:
        assert begun.wait(PATIENCE), "no review was answered"
        yield
    finally:
        applying.kill()
        applying.join()


def _beside_simulate(server: ServerProcess, seconds: float) -> Iterator[tuple[str, float, int]]:
    """What is asked beside a Simulate, the seconds of its slowest answer, and how many failed."""
    planned = [simulated(1).SerializeToString()]
    with HeavyCaller(server.address, 1, f"{PLANNER}Simulate", planned) as heavy:
        time.sleep(seconds / 4)
        for name, question in _planned().items():
            took, failed = ask(server.address, question, seconds)
            yield name, max(took), failed
        took, failed = validate(server.http, review(), seconds)
        # One that is refused holds nobody up.
        yield "the webhook", max(took), failed + heavy.failed


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


def ask(address: str, question: tuple[str, bytes], seconds: float) -> tuple[list[float], int]:
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


def p99(took: Sequence[float]) -> float:
    """Return the 99th percentile of what was measured."""
    return sorted(took)[int(len(took) * 0.99)]


@campaign(
    "beside",
    nodes_option,
    pods_option,
    click.option("--seconds", type=float, default=8.0, show_default=True, help="Of each question."),
    server_flag_option,
)
def command(nodes: int, pods: int, seconds: float, server_flags: tuple[str, ...]) -> Outcome:
    """Compare a caller's decisions alone and beside others who list, write, plan and apply.

    Its p99 of EvaluatePod, of a batch of 100 and of a pod of 20 KiB may be at most 20 times as long
    beside 64 callers of ListObjects and 64 of ApplyObjects, and beside the worst Simulate that is
    accepted. That of EvaluatePod may be 100 ms beside manifests of megabytes that are applied.
    Beside that Simulate ExplainPod, ListConstraints and the webhook may take 2 s. None may fail.
    """
    quiet = ("--log-level", "error")
    figures: dict[str, Any] = {}
    broken = []

    def compared(
        name: str, took: Sequence[float], failed: int, alone: float, most: float = 0.0
    ) -> None:
        """Keep what was measured, and what of it breaks a promise."""
        ratio = p99(took) / alone
        figures[name] = {
            "alone_p99_ms": round(alone * 1e3, 2),
            "beside_p99_ms": round(p99(took) * 1e3, 2),
            "ratio": round(ratio, 1),
            "asked": len(took),
            "failed": failed,
        }
        if ratio > AIM and p99(took) > most:
            broken.append(f"{name}: its p99 is {ratio:.1f} times as long")
        if failed:
            broken.append(f"{name}: {failed} calls failed")

    http = ("--http", "127.0.0.1:0")
    with ServerProcess("--store", "memory:", *http, *quiet, *server_flags) as server:
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
            ask(server.address, question, seconds / 4)
        alone = {name: p99(ask(server.address, q, seconds)[0]) for name, q in questions.items()}
        for what, heavy in others.items():
            for name, question in questions.items():
                note(f"beside: {name} beside {what}")
                callers = [HeavyCaller(server.address, many, m, r) for m, r, many in heavy]
                try:
                    for caller in callers:
                        caller.__enter__()
                    time.sleep(seconds / 4)
                    took, failed = ask(server.address, question, seconds)
                    refused = sum(caller.failed for caller in callers)
                    answered = sum(caller.answered for caller in callers)
                finally:
                    for caller in callers:
                        caller.__exit__()
                compared(f"{name} beside {what}", took, failed, alone[name])
                figures[f"{name} beside {what}"] |= {
                    "others_answered": answered,
                    "others_refused": refused,
                }
        evaluate = questions["EvaluatePod"]
        for what, review in _heavy_reviews().items():
            note(f"beside: EvaluatePod beside manifests with {what}")
            with _applied(server.http, review):
                took, failed = ask(server.address, evaluate, seconds)
            name = f"EvaluatePod beside {what}"
            compared(name, took, failed, alone["EvaluatePod"], MOST_LATE)
        for name, slowest, failed in _beside_simulate(server, seconds):
            figures[f"{name} beside Simulate"] = {"slowest_s": round(slowest, 2), "failed": failed}
            if slowest > MOST:
                broken.append(f"{name} beside Simulate: an answer took {slowest:.1f} s")
            if failed:
                broken.append(f"{name} beside Simulate: {failed} calls failed")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
