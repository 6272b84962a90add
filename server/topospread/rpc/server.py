"""The gRPC server: pools, services, health, reflection, TLS."""

from __future__ import annotations

import errno
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import grpc

from topospread.calls.access import AccessControl
from topospread.calls.executor import Executor
from topospread.calls.pipeline import Pipeline
from topospread.calls.rules import rules_of
from topospread.calls.sizes import MessageLimits
from topospread.errors import ConfigError
from topospread.rpc import standard_services
from topospread.rpc.connections import ConnectionCounter
from topospread.rpc.standard_services import (
    HEALTH,
    Health,
    UnimplementedHandler,
    reflection_handler,
)
from topospread.rpc.threads import thread_handler
from topospread.telemetry.families import PoolGauges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topospread.calls.call import Method, ServedMethod
    from topospread.checkpoints import Turn
    from topospread.config.files import Pem
    from topospread.config.values import Address
    from topospread.rpc.completion_queue import CompletionQueue

HANDSHAKE_MS: Final = 3_000
"""For the handshakes of TLS and HTTP/2: far above the time that any network takes."""

IDLE_MS: Final = 30_000
"""After which a connection without a call is told to go; clients connect again for the next one."""

MAX_AGE_GRACE_MS: Final = 60_000
"""For the calls of a connection that has reached its maximum age, before they are cut."""

MAX_UNTAKEN_SECONDS: Final = 3600
"""After which gRPC's core drops a call that is not taken from it: no thread of ours is as late."""

MAX_UNTAKEN: Final = 8192
"""Calls of a method that wait in gRPC's core to be taken, some 12 KiB each: more than come while
others are refused, and no more than may be held for callers that are not known yet.
"""

MAX_CALLS_PER_CONNECTION: Final = 1024
"""At once; clients hold more back: one connection cannot fill more than the queue of decisions."""

QUIET_PERIOD: Final = 0.01
"""Seconds without a new call after which a server counts as quiet."""

MAX_QUIET_WAIT: Final = 0.25
"""Seconds that a server that stops waits for calls to cease."""

Credentials = grpc.ServerCredentials


@dataclass(frozen=True, slots=True)
class Pools:
    """What carries out calls: what one kind of call does never holds up another.

    Attributes:
        turn: of all long computations of the process: one goes on at a time, beside short ones.
        decisions: PreFilter, Filter, Score, EvaluatePod, BatchEvaluatePods.
        executors: of all other calls, by name: ``state`` (ClusterStateService and PlacementService,
            which wait for the store), ``lists`` (of these what grows with the cluster), ``planner``
            (ExplainPod and the calls of PlannerService and InspectorService, which compute for
            long), ``webhook``, ``extender``, ``expander``, ``streams``, ``watches`` (of health),
            ``other``.
    """

    turn: Turn
    decisions: CompletionQueue | Executor
    executors: Mapping[str, Executor]

    def by_name(self) -> Mapping[str, CompletionQueue | Executor]:
        """Return all of them by name."""
        return {"decisions": self.decisions, **self.executors}

    def gauges(self) -> list[PoolGauges]:
        """How busy they are."""
        return [
            PoolGauges(name, pool.depth, pool.busy, pool.blocked)
            for name, pool in self.by_name().items()
        ]

    def arrived(self) -> int:
        """The number of calls so far."""
        return sum(pool.arrived for pool in self.by_name().values())

    def shutdown(self) -> None:
        """End all threads."""
        for pool in self.by_name().values():
            pool.shutdown()


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of gRPC itself.

    Attributes:
        max_request_bytes: larger ones are refused with RESOURCE_EXHAUSTED.
        max_connection_age: seconds after which callers connect anew; 0 for never. Streams are cut
            a little later.
        reflection: whether the reflection service is served.
        reuse_port: share the port with other processes that ask for the same.
        max_connections: open at once.
    """

    max_request_bytes: int
    max_connection_age: float = 0.0
    reflection: bool = True
    reuse_port: bool = False
    max_connections: int = 1024


class GrpcServer:
    """A gRPC server of methods by their full names, which does not listen yet."""

    def __init__(
        self,
        pipeline: Pipeline,
        methods: Mapping[str, Method],
        pools: Pools,
        options: ServerOptions,
    ) -> None:
        self.pipeline: Final = pipeline
        self._pools = pools
        services: dict[str, dict[str, Method]] = {}
        for path, method in methods.items():
            service, _, name = path.partition("/")
            services.setdefault(service, {})[name] = method
        self._reuse_port = options.reuse_port
        self._max_connections = options.max_connections
        self._connections: ConnectionCounter | None = None
        self.health: Final = Health((*services,))
        self._server = grpc.server(
            pools.executors["other"],
            options=_channel_options(options),
        )
        self._queue: CompletionQueue | None = None
        for service, offered in services.items():
            self._serve(service, offered, pipeline)
        sizes = MessageLimits(request=standard_services.LIMIT, setting="")
        # Nobody is known to health, and nobody counts what it or reflection do.
        known = replace(pipeline.parts, tracing=None, metrics=None, sizes=sizes)
        anybody = replace(known, access=AccessControl())
        self._serve(HEALTH, self.health.methods(), Pipeline(anybody))
        standard = Pipeline(known)
        if options.reflection:
            described = (*services, HEALTH)
            reflection = reflection_handler(described, standard, pools.executors["streams"])
            self._server.add_generic_rpc_handlers((reflection,))
        unknown = UnimplementedHandler(standard, pools.executors["other"])
        self._server.add_generic_rpc_handlers((unknown,))

    def _serve(self, service: str, methods: Mapping[str, Method], pipeline: Pipeline) -> None:
        queued: list[ServedMethod] = []
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for name, method in methods.items():
            path, pool = f"/{service}/{name}", rules_of(service, name).executor
            executor = self._pools.by_name()[pool]
            if not isinstance(executor, Executor):
                queued.append(pipeline.method(path, method))
                self._queue = executor
                continue
            # What decides or plans for long shares one turn; short decisions go on beside it.
            turn = self._pools.turn if pool in ("decisions", "planner") else None
            served = pipeline.method(path, method, turn=turn, shares_turn=pool == "planner")
            handlers[name] = thread_handler(served, pipeline, executor)
        if queued and self._queue is not None:
            self._queue.register(self._server, queued, pipeline)
        generic = grpc.method_handlers_generic_handler(service, handlers)
        self._server.add_generic_rpc_handlers((generic,))

    def listen(
        self, address: Address, credentials: Credentials | None, flag: str = "--listen"
    ) -> int:
        """Bind an address, whose port 0 lets the system choose; returns the port.

        Args:
            address: where to listen.
            credentials: None serves plain text.
            flag: what the address was configured by, for errors.

        Raises:
            ConfigError: it cannot be bound.
        """
        try:
            _try_to_bind(address, reuse_port=self._reuse_port)
            if credentials is None:
                port = self._server.add_insecure_port(str(address))
            else:
                port = self._server.add_secure_port(str(address), credentials)
        except (OSError, RuntimeError) as cause:
            raise ConfigError(
                f"{flag}: cannot listen on {address}: it is taken, or not an address of this host"
            ) from cause
        counter = self._connections = ConnectionCounter(port, self._max_connections)
        self.pipeline.parts.sweeper.also.append(counter.look)
        return port

    @property
    def connections(self) -> int | None:
        """How many its port had lately; None: it has no port, or the system does not tell."""
        return None if self._connections is None else self._connections.count

    def start(self) -> None:
        """Accept calls; health reports NOT_SERVING until it is set to SERVING."""
        self._server.start()
        if self._queue is not None:
            self._queue.start(on_broken=self.health.set_not_serving)

    def stop(self, grace: float) -> None:
        """Refuse new calls, and let running ones end for at most ``grace`` seconds.

        gRPC drops calls that have come in and were not handed to a pool yet. So the pools pause for
        a moment: clients that wait for responses send nothing new, and what they sent is handed
        out.
        """
        self.health.set_not_serving()
        self.pipeline.stopping = True
        with ExitStack() as pausing:
            for pool in self._pools.by_name().values():
                pausing.enter_context(pool.paused())
            self._wait_until_quiet()
            self._stop_queue()
            stopped = self._server.stop(grace)
        # A stream whose client is idle would delay the stop for all of the grace period.
        self.pipeline.parts.sweeper.stopping = True
        self.health.close()
        stopped.wait()

    def cancel(self) -> None:
        """Cancel running calls, also those that a stop() in another thread waits for."""
        self._stop_queue()
        self._server.stop(None)

    def _stop_queue(self) -> None:
        if self._queue is not None:
            self._queue.stop()

    def _wait_until_quiet(self) -> None:
        deadline = time.monotonic() + MAX_QUIET_WAIT
        arrived = -1
        while arrived != self._pools.arrived() and time.monotonic() < deadline:
            arrived = self._pools.arrived()
            time.sleep(QUIET_PERIOD)


def _try_to_bind(address: Address, *, reuse_port: bool) -> None:
    """Bind an address and release it, or raise OSError.

    gRPC would write lines of its own about one that is taken, and where a name has several
    addresses, of which one is taken, listen on the others.
    """
    absent: OSError | None = None
    bound = False
    for family, kind, protocol, _, place in socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    ):
        try:
            with socket.socket(family, kind, protocol) as tried:
                # Connections of a former process that linger are no reason to refuse.
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(reuse_port))
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                tried.bind(place)
            bound = True
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            absent = error
    if absent is not None and not bound:
        raise absent


def _channel_options(options: ServerOptions) -> list[tuple[str, int]]:
    chosen = [
        ("grpc.max_receive_message_length", options.max_request_bytes),
        # Requests are decompressed when they are carried out: see sizes.py.
        ("grpc.per_message_decompression", 0),
        # What a call may send before its message is read: 64 KiB. Core's estimate of the network
        # would make it 4 MiB for each call of each client, known or not; a message that is read
        # gets room for all of it at once.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", int(options.reuse_port)),
        ("grpc.max_allowed_incoming_connections", options.max_connections),
        ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
        # Calls that nobody has taken from the core yet: it drops some when they are many, or old.
        # They are taken, counted and refused here long before.
        ("grpc.server.max_pending_requests", MAX_UNTAKEN),
        ("grpc.server.max_pending_requests_hard_limit", MAX_UNTAKEN),
        ("grpc.server_max_unrequested_time_in_server", MAX_UNTAKEN_SECONDS),
        # A connection that does not even finish its handshake is closed soon.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        # Clients ping idle connections to see whether they still are any; this client's every 10 s.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    if options.max_connection_age:
        chosen += [
            ("grpc.max_connection_age_ms", int(options.max_connection_age * 1000)),
            ("grpc.max_connection_age_grace_ms", MAX_AGE_GRACE_MS),
        ]
    return chosen


def credentials(current: Callable[[], Pem], *, ask_clients: bool = True) -> Credentials:
    """TLS credentials that use the current certificates for each new connection.

    Args:
        current: what the files hold; whether clients are asked for certificates stays as it is.
        ask_clients: off asks them for none, whatever the files hold.
    """
    used = current()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        newest = current()
        if newest is used:
            return None
        used = newest
        return _configuration(newest, ask_clients)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used, ask_clients),
        changed,  # type: ignore[arg-type] # None, for no change, is documented
        require_client_authentication=ask_clients and bool(used.client_ca),
    )


def _configuration(pem: Pem, ask_clients: bool) -> grpc.ServerCertificateConfiguration:
    roots = (pem.client_ca or None) if ask_clients else None
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.cert)], root_certificates=roots)
