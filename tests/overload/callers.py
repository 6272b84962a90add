"""Callers of a server in a process of its own, and what is seen of it from outside."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
from google.rpc import error_details_pb2, status_pb2

from bench.campaigns.heavy import ENGINE, EVALUATE, QUESTION
from bench.campaigns.measured import Measured
from tests.processes import suspended
from tests.servers import ServerProcess, two_zones
from tests.telemetry.expositions import samples
from tests.waiting import PATIENCE, until
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import decision_service_pb2 as engine_pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

BATCH: Final = f"{ENGINE}BatchEvaluatePods"

OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    # What the server does to a call is seen as it is.
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
)


class Caller:
    """A connection of its own, whose calls are made once and take and give bytes."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=OPTIONS)

    def __enter__(self) -> Self:
        grpc.channel_ready_future(self.channel).result(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def begin(self, method: str, request: bytes, timeout: float = PATIENCE) -> Any:
        """Begin a unary call."""
        unary: Any = self.channel.unary_unary(method)
        return unary.future(request, timeout=timeout)

    def evaluate(self) -> engine_pb.EvaluatePodResponse:
        """Ask one cheap question and wait for its answer."""
        return engine_pb.EvaluatePodResponse.FromString(self.begin(EVALUATE, QUESTION).result())

    def apply(self, objects: Sequence[state_pb.ClusterObject]) -> None:
        """Write objects, and wait until decisions see them."""
        revision = ""
        for first in range(0, len(objects), 500):
            sent = state_pb.ApplyObjectsRequest(objects=objects[first : first + 500])
            call = self._state("ApplyObjects", sent)
            revision = state_pb.ApplyObjectsResponse.FromString(call).meta.revision
        table = state_pb.GetNodeTableRequest()
        table.consistency.at_least_as_fresh = revision
        self._state("GetNodeTable", table)

    def _state(self, method: str, request: Any) -> bytes:
        path = f"/topospread.v1.ClusterStateService/{method}"
        answer: bytes = self.begin(path, request.SerializeToString()).result()
        return answer


@dataclass
class Outcomes:
    """How calls ended.

    Attributes:
        codes: how many with each status code.
        unadvised: refusals without a google.rpc.RetryInfo.
    """

    codes: Counter[str] = field(default_factory=Counter)
    unadvised: int = 0

    def note(self, call: Any) -> None:
        """Wait for a call's end and count it."""
        call.exception(PATIENCE)
        self.count(call.code(), call.trailing_metadata())

    def count(self, code: grpc.StatusCode, trailers: Iterable[tuple[str, Any]] | None) -> None:
        """Count a call that ended."""
        self.codes[code.name] += 1
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            packed = dict(trailers or ()).get("grpc-status-details-bin", b"")
            self.unadvised += not has_retry_info(status_pb2.Status.FromString(packed))


def has_retry_info(status: status_pb2.Status) -> bool:
    """Whether a status says when to try again."""
    return any(each.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for each in status.details)


def at_once(callers: Sequence[Caller], method: str, requests: Iterable[bytes]) -> list[Any]:
    """Begin calls on all connections in turn."""
    return [
        callers[number % len(callers)].begin(method, request)
        for number, request in enumerate(requests)
    ]


class Figures:
    """The samples of one scrape."""

    def __init__(self, page: str) -> None:
        self._samples = samples(page.encode())

    def total(self, name: str, **labels: str) -> float:
        """The sum of a name's samples with these labels among theirs."""
        wanted = set(labels.items())
        return sum(
            value
            for (each, own), value in self._samples.items()
            if each == name and own.issuperset(wanted)
        )

    def codes(self, method: str) -> Mapping[str, float]:
        """Calls of a method that the server counted, by status code."""
        label = ("method", f"DecisionService/{method}")
        return {
            dict(own)["code"]: value
            for (each, own), value in self._samples.items()
            if each == "topospread_calls_total" and label in own and value
        }


class Service:
    """A server in a process of its own.

    Attributes:
        address: host:port of gRPC.
    """

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self.address = process.address
        self._clock = Measured(process.process.pid, process.address)

    @property
    def cpu(self) -> float:
        """Seconds of processor time that the process has taken."""
        return self._clock.cpu

    def figures(self) -> Figures:
        """What /metrics shows now."""
        status, page = self._process.get("/metrics")
        assert status == 200
        return Figures(page)

    def rested(self) -> Figures:
        """What /metrics shows once no decision is under way."""

        def idle() -> Figures | None:
            seen = self.figures()
            names = ("topospread_queue_depth", "topospread_inflight_calls")
            under_way = sum(seen.total(name, pool="decisions") for name in names)
            return None if under_way else seen

        return until(idle, "no decision is under way")

    def suspended(self) -> AbstractContextManager[None]:
        """The server stands still meanwhile."""
        return suspended(self._process.process.pid)


@contextmanager
def serving(*flags: str) -> Iterator[Service]:
    """A server with a small cluster."""
    with ServerProcess("--store", "memory:", "--http", "127.0.0.1:0", *flags) as process:
        service = Service(process)
        assert service.figures().total("topospread_transport_info", used="grpcio") == 1
        with Caller(service.address) as caller:
            caller.apply(two_zones())
            caller.evaluate()
        yield service


class Scraper:
    """Reads /metrics again and again; a context manager.

    Attributes:
        depths: of the queue for decisions, at each scrape.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.depths: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            seen = self._service.figures()
            self.depths.append(seen.total("topospread_queue_depth", pool="decisions"))


def difference(before: Figures, after: Figures) -> Callable[..., float]:
    """By how much the sum of a name's samples grew; takes what :meth:`Figures.total` takes."""
    return lambda name, **labels: after.total(name, **labels) - before.total(name, **labels)
