"""A server with a cluster of some size, and what a call costs it: CPU of its process, memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tests.waiting import PATIENCE
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import cluster_state_service_pb2_grpc as state_grpc
from topospread_proto.v1 import decision_service_pb2 as engine_pb

AS_SHIPPED = {"MALLOC_ARENA_MAX": "2"}
"""Variables of the image and the systemd unit; glibc would keep more memory for each thread."""
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
WORKLOADS = 500
"""Of the pods of a large cluster: app-0, app-1 …"""
_BATCH = 500
_OF_ALL_THREADS = 2  # of a process's clock, as clock_getcpuclockid(3) makes it
_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True)
class Cost:
    """What one call cost the server.

    Attributes:
        cpu: seconds of all its threads.
        peak: bytes of memory above what it had before, at the most.
        code: what it was answered with.
        detail: the text of a refusal.
    """

    cpu: float
    peak: int
    code: grpc.StatusCode
    detail: str = ""

    @property
    def refused(self) -> bool:
        """Whether the call was refused for what it asked."""
        return self.code in (
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        )


class Measured:
    """A running server, and calls of it that are measured."""

    def __init__(self, pid: int, address: str) -> None:
        self.pid = pid
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
        self.channel = grpc.insecure_channel(address, options=options)

    def call(self, method: str, sent: bytes, *, timeout: float = PATIENCE) -> Cost:
        """Make a unary call with these bytes and see what it costs."""
        unary: Any = self.channel.unary_unary(method)
        batch = method.endswith("/BatchEvaluatePods")
        answer = engine_pb.BatchEvaluatePodsResponse if batch else None
        return self._measure(lambda: unary(sent, timeout=timeout), answer)

    def send(self, method: str, sent: bytes, *, timeout: float = PATIENCE) -> Cost:
        """The same of a call that takes a stream of messages, of which this is the only one."""
        many: Any = self.channel.stream_unary(method)
        return self._measure(lambda: many(iter([sent]), timeout=timeout))

    def watch(self, method: str, sent: bytes, *, timeout: float = 0.3) -> Cost:
        """The same of a call that answers with a stream, which is left after a moment."""
        one: Any = self.channel.unary_stream(method)
        return self._measure(lambda: list(one(sent, timeout=timeout)))

    def _measure(self, ask: Any, answer: Any = None) -> Cost:
        code, detail = grpc.StatusCode.OK, ""
        self.forget_peak()
        memory, cpu = self.rss, self.cpu
        try:
            answered = ask()
            if answer is not None:
                # Where one question fails alone, its error is in the answer.
                said = answer.FromString(answered).results[0].error
                code, detail = _CODES[said.code], said.message
        except grpc.RpcError as error:
            code, detail = error.code(), str(error.details())
        return Cost(self.cpu - cpu, max(0, self.peak - memory), code, detail)

    @property
    def cpu(self) -> float:
        """Seconds of processor time that the server has taken, with threads that have ended."""
        return time.clock_gettime(~self.pid << 3 | _OF_ALL_THREADS)

    @property
    def rss(self) -> int:
        """Bytes of memory that the server holds."""
        return self._status("VmRSS")

    @property
    def peak(self) -> int:
        """Bytes of memory that the server held at most, since the last `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Begin to look for the most memory anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
        raise AssertionError(name)


def load(measured: Measured, nodes: int, pods: int, workloads: int = WORKLOADS) -> None:
    """Fill the server's cluster: nodes in three zones, pods of some workloads spread over them."""
    objects = [_node(i) for i in range(nodes)]
    objects += [_pod(i, i % nodes, i % workloads) for i in range(pods)]
    stub: Any = state_grpc.ClusterStateServiceStub(measured.channel)
    revision = ""
    for first in range(0, len(objects), _BATCH):
        request = state_pb.ApplyObjectsRequest(objects=objects[first : first + _BATCH])
        revision = stub.ApplyObjects(request, timeout=PATIENCE).meta.revision
    table = state_pb.GetNodeTableRequest()
    table.consistency.at_least_as_fresh = revision
    stub.GetNodeTable(table, timeout=PATIENCE)


def _node(number: int) -> state_pb.ClusterObject:
    made = state_pb.ClusterObject()
    node = made.node
    node.metadata.name = f"node-{number}"
    node.metadata.labels[ZONE] = f"zone-{number % 3}"
    node.metadata.labels[HOSTNAME] = f"node-{number}"
    for key in range(10):
        node.metadata.labels[f"example.com/label-{key}"] = f"value-{number % (key + 2)}"
    node.status.allocatable["cpu"].string = "64"
    node.status.allocatable["memory"].string = "256Gi"
    node.status.allocatable["pods"].string = "110"
    return made


def _pod(number: int, node: int, workload: int) -> state_pb.ClusterObject:
    made = state_pb.ClusterObject()
    pod = made.pod
    pod.metadata.name = f"pod-{number}"
    pod.metadata.labels["app"] = f"app-{workload}"
    pod.metadata.labels["pod-template-hash"] = f"{workload:08x}"
    pod.spec.node_name = f"node-{node}"
    pod.spec.containers.add().resources.requests["cpu"].string = "100m"
    return made
