"""Servers for tests, in this process and in their own, and what is asked of them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from tests.allocatable import ROOMY
from tests.forking import ForkedProcess
from tests.waiting import PATIENCE, until
from topospread.app import capacity
from topospread.app.server import Server
from topospread.config.loading import load_settings
from topospread_client import object_from_manifest, pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import cluster_state_service_pb2_grpc as state_grpc
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as engine_pb
from topospread_proto.v1 import decision_service_pb2_grpc as engine_grpc
from topospread_proto.v1 import inspector_service_pb2_grpc as inspector_grpc
from topospread_proto.v1 import placement_service_pb2_grpc as placement_grpc
from topospread_proto.v1 import planner_service_pb2_grpc as planner_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from topospread.config.settings import ServerSettings

ZONE = "topology.kubernetes.io/zone"


def settings(**flags: object) -> ServerSettings:
    """Settings of a server on loopback whose state is in memory, unless told otherwise."""
    defaults = {
        "listen": "127.0.0.1:0",
        "http": "off",
        "store": "memory:",
        "shutdown_grace_period": "5s",
    }
    return load_settings({**defaults, **flags}, {})


@contextmanager
def served(*, transport: object = "grpcio", **flags: object) -> Iterator[Server]:
    """A server in this process.

    Args:
        transport: how decisions come; ``grpcio-threads`` as where grpcio is not as expected.
        flags: its settings.
    """
    with pytest.MonkeyPatch.context() as patch:
        if transport != "grpcio":
            patch.setattr(capacity, "self_check", lambda: "a test asks for it")
        server = Server(settings(**flags))
    with server:
        yield server


class Peer:
    """A channel of its own to a server, with the stubs of services."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = (
            grpc.insecure_channel(address, options=options)
            if credentials is None
            else grpc.secure_channel(address, credentials, options=options)
        )
        self.engine: Any = engine_grpc.DecisionServiceStub(self.channel)
        self.state: Any = state_grpc.ClusterStateServiceStub(self.channel)
        self.planner: Any = planner_grpc.PlannerServiceStub(self.channel)
        self.inspector: Any = inspector_grpc.InspectorServiceStub(self.channel)
        self.placement: Any = placement_grpc.PlacementServiceStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close()

    def apply(self, *objects: state_pb.ClusterObject, cluster: str = "default") -> str:
        """Write objects; returns the revision."""
        request = state_pb.ApplyObjectsRequest(cluster=cluster, objects=objects)
        revision: str = self.state.ApplyObjects(request, timeout=PATIENCE).meta.revision
        return revision

    def await_revision(self, revision: str, cluster: str = "default") -> None:
        """See to it that the server's newest state has a revision."""
        request = state_pb.GetNodeTableRequest(cluster=cluster, consistency=at_least(revision))
        self.state.GetNodeTable(request, timeout=PATIENCE)

    def evaluate(self, **more: Any) -> engine_pb.EvaluatePodResponse:
        """Judge the incoming pod; the answer is without its trace, which is each call's own."""
        answer: engine_pb.EvaluatePodResponse = self.engine.EvaluatePod(
            evaluate_request(**more), timeout=PATIENCE
        )
        answer.meta.ClearField("traceparent")
        return answer

    def silent_call(self, method: str) -> grpc.Future:
        """Begin a call and send no message; it lasts until it is cancelled."""
        never = threading.Event()

        def nothing() -> Iterator[bytes]:
            never.wait()
            yield b""

        multi: Any = self.channel.stream_unary(method)
        call = multi.future(nothing(), timeout=PATIENCE)
        call.add_done_callback(lambda _: never.set())
        return call


def violations(refused: grpc.RpcError) -> list[error_details_pb2.BadRequest.FieldViolation]:
    """What a server says is wrong with a request, one thing each."""
    call: Any = refused
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT, call.details()
    packed = dict(call.trailing_metadata())["grpc-status-details-bin"]
    bad = error_details_pb2.BadRequest()
    assert any(each.Unpack(bad) for each in status_pb2.Status.FromString(packed).details)
    return list(bad.field_violations)


def evaluate_request(**more: Any) -> engine_pb.EvaluatePodRequest:
    """A question about a pod that spreads over zones."""
    return engine_pb.EvaluatePodRequest(
        pod=common_pb2.PodSource(object=pod_from_manifest(incoming())), **more
    )


def node(name: str, zone: str) -> state_pb.ClusterObject:
    """A node in a zone."""
    labels = {ZONE: zone, "kubernetes.io/hostname": name}
    metadata = {"name": name, "labels": labels}
    status = {"allocatable": ROOMY}
    return _object({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})


def pod(name: str, on: str, app: str = "web") -> state_pb.ClusterObject:
    """A pod on a node."""
    return _object(_pod(name, app, nodeName=on))


def replacement(
    *objects: state_pb.ClusterObject, **start: Any
) -> list[state_pb.ReplaceObjectsRequest]:
    """The messages of a ReplaceObjects: a start, batches of up to 500 objects, and a commit."""
    begin = state_pb.ReplaceObjectsRequest(start=state_pb.ReplaceStart(**start))
    batches = [
        state_pb.ReplaceObjectsRequest(batch=state_pb.ReplaceBatch(objects=objects[at : at + 500]))
        for at in range(0, len(objects), 500)
    ]
    commit = state_pb.ReplaceCommit(object_count=len(objects))
    return [begin, *batches, state_pb.ReplaceObjectsRequest(commit=commit)]


def incoming(**constraint: Any) -> dict[str, Any]:
    """The manifest of a pod that is to be placed, with a hard constraint over zones."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return _pod("incoming", "web", topologySpreadConstraints=[spread | constraint])


def two_zones() -> list[state_pb.ClusterObject]:
    """Zone a has two pods on two nodes, zone b one: with maxSkew 1 only b1 passes."""
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b")]
    return [*nodes, pod("web-0", "a1"), pod("web-1", "a2"), pod("web-2", "b1")]


def _pod(name: str, app: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _object(manifest: dict[str, Any]) -> state_pb.ClusterObject:
    made = object_from_manifest(manifest)
    assert made is not None, "its kind is known"
    return made


def at_least(revision: str) -> common_pb2.Consistency:
    """The demand to see a revision."""
    return common_pb2.Consistency(at_least_as_fresh=revision)


@contextmanager
def threads_end() -> Iterator[None]:
    """What is started inside ends by itself soon after."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread.name


def expired(begin: Callable[[float], Any], begun: Callable[[], bool]) -> Any:
    """A call whose deadline has passed, but not before the server had begun it.

    Args:
        begin: makes a call that would last, with so many seconds for it.
        begun: whether the server has begun it, also when that is over.
    """
    for seconds in (0.2, 1.0, 5.0, 25.0):
        call = begin(seconds)
        until(call.done, "its deadline passes")
        if begun():
            return call
    raise AssertionError("no call is begun in time")


class ServerProcess:
    """`topospread serve` as a process of its own, ready to answer.

    Attributes:
        address: host:port of gRPC.
        http: the URL of metrics and health; empty when off.
        extender: the extender's URL where it has an address of its own; else empty.
        expander: host:port of the expander where it has an address of its own; else empty.
        process: of the operating system.
    """

    process: subprocess.Popen[str] | ForkedProcess

    def __init__(self, *arguments: str, stderr: str = "", **variables: str) -> None:
        """Start it; `stderr` is the path of a file that takes its log, if not the terminal.

        With variables, which an interpreter may read as it starts, it has one of its own. So it has
        where forking is not known to be safe once NumPy and gRPC are imported.
        """
        made = start if variables or sys.platform != "linux" else forked
        with Path(stderr or os.devnull).open("ab") as file:
            self.process = made(arguments, variables, file.fileno() if stderr else None)
        assert self.process.stdout is not None
        self.http = self.extender = self.expander = ""
        said = re.search(r"listens on (\S+)", self.process.stdout.readline())
        if said is None:
            self.process.wait()
            raise AssertionError("the server ended without serving")
        self.address = said.group(1)
        while not (line := self.process.stdout.readline()).startswith("store "):
            if line.startswith("scheduler extender"):
                self.extender = line.split()[-1]
            elif line.startswith("cluster-autoscaler"):
                self.expander = line.split()[-1]
            else:
                self.http = line.split()[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            # It says where each of its threads is.
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            raise
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of one of its pages."""
        return http_get(f"{self.http}{path}")


@contextmanager
def shared_address() -> Iterator[str]:
    """An address that servers with --reuse-port can share; nobody else gets it meanwhile."""
    with socket.socket() as held:
        # Bound without listening, it gets no connections.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def http_get(url: str) -> tuple[int, str]:
    """Status and body of a page."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def start(
    arguments: Sequence[str], variables: Mapping[str, str], stderr: int | None = None
) -> subprocess.Popen[str]:
    """Start `topospread serve` on a port that the system chooses, unless told otherwise."""
    words, environment = _command_line(arguments, variables)
    return subprocess.Popen(
        [sys.executable, "-m", "topospread", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment,
    )


def forked(
    arguments: Sequence[str], variables: Mapping[str, str], stderr: int | None = None
) -> ForkedProcess:
    """Start the same, without an interpreter of its own."""
    return ForkedProcess(*_command_line(arguments, variables), stderr)


def _command_line(
    arguments: Sequence[str], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TOPOSPREAD_", "OTEL_"))
    }
    listen = () if "--listen" in arguments else ("--listen", "127.0.0.1:0")
    http = () if "--http" in arguments else ("--http", "off")
    return (
        ["serve", *listen, *http, *arguments],
        {**kept, "PYTHONFAULTHANDLER": "1", **variables},
    )
