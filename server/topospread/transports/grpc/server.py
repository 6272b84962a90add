"""The gRPC server: pools, services, health, reflection, credentials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from topospread.errors import ConfigError
from topospread.telemetry.families import PoolGauges
from topospread.transports.grpc.calls import Frame, Method, handlers
from topospread.transports.grpc.reflection import add_reflection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.transports.grpc.executor import BoundedExecutor

OTHER_THREADS: Final = 16
"""For health and reflection: streams of these hold a thread each."""

OTHER_QUEUE: Final = 256


@dataclass(frozen=True, slots=True)
class Pools:
    """The thread pools: what one kind of call does never holds up another.

    Attributes:
        decisions: PreFilter, Filter, Score, Evaluate, BatchEvaluate.
        state: ClusterState's calls, which wait for the store.
        streams: calls that hold a thread for as long as they live.
        other: health and reflection.
    """

    decisions: BoundedExecutor
    state: BoundedExecutor
    streams: BoundedExecutor
    other: BoundedExecutor

    def gauges(self) -> list[PoolGauges]:
        """Depths, for metrics."""
        named = {
            "decisions": self.decisions,
            "state": self.state,
            "streams": self.streams,
            "other": self.other,
        }
        return [PoolGauges(name, pool.depth, pool.waiting) for name, pool in named.items()]


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM files of a TLS listener; `client_ca` asks callers for certificates."""

    cert: str
    key: str
    client_ca: str = ""

    def load(self) -> grpc.ServerCredentials:
        """Read the files.

        Raises:
            ConfigError: one of them cannot be read.
        """
        pair = (_read("--tls-key", self.key), _read("--tls-cert", self.cert))
        roots = _read("--client-ca", self.client_ca) if self.client_ca else None
        return grpc.ssl_server_credentials(
            [pair], root_certificates=roots, require_client_auth=roots is not None
        )


def _read(flag: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as cause:
        reason = cause.strerror or type(cause).__name__
        raise ConfigError(f"{flag}: cannot read {path!r}: {reason}") from cause


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How gRPC itself behaves.

    Attributes:
        max_request_bytes, max_response_bytes: larger ones are refused with RESOURCE_EXHAUSTED.
        max_connection_age: seconds after which callers connect anew; 0 for never.
        reflection: whether to describe the services to whoever asks.
    """

    max_request_bytes: int
    max_response_bytes: int
    max_connection_age: float = 0.0
    reflection: bool = True


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
            services: by full name, the methods by name with the name of their pool.
            pools: the threads.
            options: of gRPC.
        """
        self._pools = pools
        self._health = health.HealthServicer(experimental_non_blocking=True)
        self._server = grpc.server(pools.other, options=_channel_options(options))
        by_name = {
            "decisions": pools.decisions,
            "state": pools.state,
            "streams": pools.streams,
        }
        for service, methods in services.items():
            framed = [(name, m, by_name[pool], pool) for name, (m, pool) in methods.items()]
            self._server.add_generic_rpc_handlers((handlers(frame, service, framed),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._services = [*services, health.SERVICE_NAME]
        if options.reflection:
            add_reflection(self._services, self._server)
        self._say(health_pb2.HealthCheckResponse.NOT_SERVING)

    def listen(self, address: str, credentials: Credentials | None) -> int:
        """Bind an address; returns the port.

        Raises:
            ConfigError: it cannot be bound, or a PEM file cannot be read.
        """
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials.load())
        except RuntimeError as cause:
            raise ConfigError(
                f"--listen: cannot listen on {address}: it is taken, or not an address of this host"
            ) from cause

    def start(self) -> None:
        """Begin to accept calls; health says NOT_SERVING until :meth:`ready`."""
        self._server.start()

    def ready(self) -> None:
        """Tell balancers that calls are welcome."""
        self._say(health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace: float) -> None:
        """Turn away new calls, let running ones end, at most for `grace` seconds."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace).wait()

    def _say(self, status: int) -> None:
        for service in ("", *self._services):
            self._health.set(service, status)


def _channel_options(options: ServerOptions) -> list[tuple[str, int]]:
    chosen = [
        ("grpc.max_receive_message_length", options.max_request_bytes),
        ("grpc.max_send_message_length", options.max_response_bytes),
        ("grpc.so_reuseport", 1),
        # Clients behind balancers ping idle connections; that is no abuse.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    if options.max_connection_age:
        chosen += [
            ("grpc.max_connection_age_ms", int(options.max_connection_age * 1000)),
            ("grpc.max_connection_age_grace_ms", 60_000),
        ]
    return chosen
