"""Makes cluster-autoscaler's expander out of the settings: for the main port, and its own."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from topospread.access.callers import Role
from topospread.app import parts
from topospread.errors import PermissionDenied
from topospread.generated.cluster_autoscaler import expander_pb2 as pb
from topospread.transports.expander.best_options import METHOD, SERVICE, BestOptions
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread.transports.grpc.credentials import Credentials, credentials
from topospread.transports.grpc.frame import Frame
from topospread.transports.grpc.packing import RequestBytes
from topospread.transports.grpc.server import GrpcServer, ServerOptions

if TYPE_CHECKING:
    from topospread.app.doors import Doors
    from topospread.config.settings import ServerSettings
    from topospread.service.engine import Engine
    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.tracing import Tracing
    from topospread.transports.grpc.server import Pools

MAX_REQUEST_BYTES: Final = 128 << 20
"""What cluster-autoscaler itself takes; a pod comes with every option that would help it."""

MAX_CONNECTIONS: Final = 64
"""Each autoscaler has one or two; nobody shows a credential for them."""

FLAG: Final = "--expander-listen"

LOG: Final = logging.getLogger(__name__)


def expander_methods(settings: ServerSettings, engine: Engine) -> dict[str, tuple[Method, str]]:
    """The method by its name, with the pool that it runs on."""
    best = BestOptions(engine, settings.expander_cluster, refuses=settings.expander_refuses)

    def serve(request: pb.BestOptionsRequest, call: Call) -> pb.BestOptionsResponse:
        # The request does not say whose state it is about.
        try:
            call.caller.check(Role.DECIDE, best.cluster)
        except PermissionDenied as refused:
            call.tell_refused(refused)
            raise
        return best.serve(request, time.monotonic() + call.left(), call.span)

    return {METHOD: (Unary(pb.BestOptionsRequest, serve), "expander")}


def expander_server(
    settings: ServerSettings,
    engine: Engine,
    telemetry: tuple[Tracing, Metrics],
    pools: Pools,
    *,
    reuse_port: bool,
) -> GrpcServer:
    """A gRPC server of the expander alone, for callers that show neither token nor certificate."""
    own = settings.expander_listen
    if settings.access_file and own is not None and not own.loopback:
        LOG.warning(
            "%s: whoever reaches %s may ask about cluster %s, without a token: let nobody but "
            "cluster-autoscaler reach it",
            *(FLAG, own, settings.expander_cluster),
        )
    options = ServerOptions(
        max_request_bytes=MAX_REQUEST_BYTES,
        max_response_bytes=settings.max_response_bytes,
        max_connection_age=settings.max_connection_age,
        reflection=False,
        reuse_port=reuse_port,
        max_calls=parts.EXPANDER_THREADS,
        max_connections=min(MAX_CONNECTIONS, settings.max_connections),
    )
    return GrpcServer(
        Frame(*telemetry, largest=RequestBytes(MAX_REQUEST_BYTES, setting="")),
        {SERVICE: expander_methods(settings, engine)},
        pools,
        options,
    )


def expander_credentials(settings: ServerSettings, doors: Doors) -> Credentials | None:
    """TLS without client certificates; None serves plain text."""
    return credentials(doors.current_pem, ask_clients=False) if settings.tls else None
