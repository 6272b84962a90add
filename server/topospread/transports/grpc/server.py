"""The gRPC server: pools, services, health, reflection."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc

from topospread.errors import ConfigError
from topospread.telemetry.families import PoolGauges
from topospread.transports.grpc import health
from topospread.transports.grpc.calls import Method, Unary, UnaryBytes, Unoffered
from topospread.transports.grpc.direct import DirectCalls
from topospread.transports.grpc.frame import Frame, handlers
from topospread.transports.grpc.health import Health
from topospread.transports.grpc.pool import end_silent
from topospread.transports.grpc.reflection import reflection_handlers
from topospread.transports.grpc.standard import Door, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.transports.grpc.credentials import Credentials
    from topospread.transports.grpc.direct_call import Answers
    from topospread.transports.grpc.executor import BoundedExecutor, StreamExecutor
    from topospread.transports.grpc.pool import Pool

OTHER_THREADS: Final = 2
"""For health and for calls that are not offered: answered in microseconds."""

OTHER_QUEUE: Final = 256

OTHER_AWAY: Final = 2
"""Threads more while callers of health keep their messages back. Strangers call it, and gRPC's core
takes in a message of the largest size for each thread that waits for one.
"""

HANDSHAKE_MS: Final = 10_000
"""For TLS and the greetings of HTTP/2: far above the time that any network takes."""

AGED_MS: Final = 60_000
"""For the calls of a connection that has reached its age; then they are cut."""

QUIET: Final = 0.01
"""Seconds without a new call that make a server quiet."""

LONGEST_UNQUIET: Final = 0.25
"""Seconds after which a server stops although calls go on coming."""


@dataclass(frozen=True, slots=True)
class Pools:
    """The thread pools: what one kind of call does never holds up another.

    Attributes:
        decisions: PreFilter, Filter, Score, EvaluatePod, BatchEvaluatePods.
        extender: the same over HTTP.
        state: ClusterStateService, PlacementService and LeaseService, which wait for the store.
        planner: ExplainPod and the calls of PlannerService, which compute for long.
        expander: cluster-autoscaler's calls, whose messages are large.
        streams: calls that hold a thread for as long as they live.
        other: health, and calls that are not offered.
    """

    decisions: BoundedExecutor | DirectCalls
    extender: BoundedExecutor
    state: BoundedExecutor
    planner: BoundedExecutor
    expander: BoundedExecutor
    streams: StreamExecutor
    other: BoundedExecutor

    def named(self) -> Mapping[str, Pool]:
        """All by name."""
        return {
            "decisions": self.decisions,
            "extender": self.extender,
            "state": self.state,
            "planner": self.planner,
            "expander": self.expander,
            "streams": self.streams,
            "other": self.other,
        }

    def unary(self) -> tuple[BoundedExecutor | DirectCalls, ...]:
        """Those of gRPC's calls with one message and one answer."""
        return self.decisions, self.state, self.planner, self.expander, self.other

    def gauges(self) -> list[PoolGauges]:
        """How busy they are, for metrics."""
        return [
            PoolGauges(name, pool.depth, pool.busy, pool.waiting)
            for name, pool in self.named().items()
        ]

    def arrived(self) -> int:
        """Unary calls so far."""
        return sum(pool.arrived for pool in self.unary())

    def shutdown(self) -> None:
        """End all threads after what stands in line."""
        for pool in self.named().values():
            pool.shutdown()


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How gRPC itself behaves.

    Attributes:
        max_request_bytes, max_response_bytes: larger ones are refused with RESOURCE_EXHAUSTED.
        max_connection_age: seconds after which callers connect anew; 0 for never. Streams are cut
            a little later.
        reflection: whether to describe the services to whoever asks.
        reuse_port: share the port with other processes that ask for the same.
        max_calls: calls at once; past it RESOURCE_EXHAUSTED. 0: as many as the pools take. Direct
            calls are not among them: their line is bounded.
        max_connections: open at once.
        max_calls_per_connection: clients hold more back.
    """

    max_request_bytes: int
    max_response_bytes: int
    max_connection_age: float = 0.0
    reflection: bool = True
    reuse_port: bool = False
    max_calls: int = 0
    max_connections: int = 1024
    max_calls_per_connection: int = 1024


class GrpcServer:
    """Serves; see :meth:`listen`, :meth:`start` and :meth:`stop`."""

    def __init__(
        self,
        frame: Frame,
        services: Mapping[str, Mapping[str, tuple[Method, str]]],
        pools: Pools,
        options: ServerOptions,
    ) -> None:
        """Make a server that does not listen yet.

        Args:
            frame: around each call.
            services: by full name, the methods by name with the name of their pool. A service
                of which nothing is offered is not shown to callers.
            pools: the threads.
            options: of gRPC.
        """
        self._frame = frame
        self._pools = pools
        offered = {
            service: methods
            for service, methods in services.items()
            if not all(isinstance(method, Unoffered) for method, _ in methods.values())
        }
        self._health = Health((*offered,))
        self._server = grpc.server(
            pools.other,
            options=_channel_options(options),
            maximum_concurrent_rpcs=options.max_calls or None,
        )
        by_name = pools.named()
        direct: dict[str, Answers] = {}
        for service, methods in services.items():
            framed: list[tuple[str, Method, Pool, str]] = []
            for name, (method, pool) in methods.items():
                if isinstance(by_name[pool], DirectCalls) and isinstance(
                    method, Unary | UnaryBytes
                ):
                    direct[f"/{service}/{name}"] = frame.direct(service, name, method, pool)
                else:
                    framed.append((name, method, by_name[pool], pool))
            self._server.add_generic_rpc_handlers((handlers(frame, service, framed),))
        self._direct = pools.decisions if direct else None
        if isinstance(self._direct, DirectCalls):
            self._direct.attach(self._server, direct)
        door = Door(frame.gate, frame.refusals)
        standard: list[grpc.GenericRpcHandler] = [self._health.handlers(pools.other)]
        if options.reflection:
            described = (*offered, health.SERVICE)
            standard.append(reflection_handlers(described, pools.streams, door))
        standard.append(Unknown(door, pools.other))
        self._server.add_generic_rpc_handlers(standard)

    def listen(self, address: str, credentials: Credentials | None, flag: str = "--listen") -> int:
        """Bind an address; returns the port.

        Args:
            address: host:port.
            credentials: None serves plain text.
            flag: what the address was configured by, for errors.

        Raises:
            ConfigError: it cannot be bound.
        """
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as cause:
            raise ConfigError(
                f"{flag}: cannot listen on {address}: it is taken, or not an address of this host"
            ) from cause

    def start(self) -> None:
        """Begin to accept calls; health says NOT_SERVING until :meth:`ready`."""
        self._server.start()
        self._frame.untaken.start()
        self._health.untaken.start()
        if isinstance(self._direct, DirectCalls):
            self._direct.begin()

    def ready(self) -> None:
        """Tell balancers that calls are welcome."""
        self._health.serving()

    def stop(self, grace: float) -> None:
        """Turn away new calls, let running ones end, at most for `grace` seconds.

        gRPC drops calls that have come in and were not handed out yet. So the pools pause for a
        moment: callers that wait for answers send nothing new, and what they sent is handed out.
        """
        self._health.leaving()
        self._frame.stopping = True
        with ExitStack() as pausing:
            for pool in self._pools.unary():
                pausing.enter_context(pool.paused())
            self._wait_until_quiet()
            stopped = self._server.stop(grace)
        # A stream whose caller says nothing at the moment would hold us up for all of the grace.
        for worker in self._pools.streams.silent(time.monotonic(), patient=True):
            end_silent(worker)
        self._health.close()
        stopped.wait()
        self._frame.untaken.close()

    def cancel(self) -> None:
        """Cancel running calls, also those that a stop() in another thread waits for."""
        self._server.stop(None)

    def _wait_until_quiet(self) -> None:
        deadline = time.monotonic() + LONGEST_UNQUIET
        arrived = -1
        while arrived != self._pools.arrived() and time.monotonic() < deadline:
            arrived = self._pools.arrived()
            time.sleep(QUIET)


def _channel_options(options: ServerOptions) -> list[tuple[str, int]]:
    chosen = [
        ("grpc.max_receive_message_length", options.max_request_bytes),
        ("grpc.max_send_message_length", options.max_response_bytes),
        # Requests are unpacked when they are carried out: see packing.py.
        ("grpc.per_message_decompression", 0),
        # What a call may send before anybody has asked for its message: 64 KiB. Core's estimate
        # of the network would make it 4 MiB for each call of each caller, strangers included; a
        # message that was asked for gets room for all of it at once.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", int(options.reuse_port)),
        ("grpc.max_allowed_incoming_connections", options.max_connections),
        ("grpc.max_concurrent_streams", options.max_calls_per_connection),
        # Who opens a connection and does not even greet gives the place back soon.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        # Clients ping idle connections to see whether they still are any; this client's every 10 s.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    if options.max_connection_age:
        chosen += [
            ("grpc.max_connection_age_ms", int(options.max_connection_age * 1000)),
            ("grpc.max_connection_age_grace_ms", AGED_MS),
        ]
    return chosen
