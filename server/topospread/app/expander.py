"""Factories of cluster-autoscaler's expander: for the main port, and for its own."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.access.callers import Role
from topospread.api.expander import METHOD, SERVICE, BestOptions
from topospread.calls.access import AccessControl
from topospread.calls.call import Call, Method, Unary
from topospread.calls.pipeline import Pipeline
from topospread.calls.sizes import MessageLimits
from topospread.generated.cluster_autoscaler import expander_pb2 as pb
from topospread.rpc.server import Credentials, GrpcServer, ServerOptions, credentials

if TYPE_CHECKING:
    from topospread.app.credentials import CredentialWatcher
    from topospread.calls.pipeline import Parts
    from topospread.config.settings import ServerSettings
    from topospread.rpc.server import Pools
    from topospread.service.decisions.engine import Engine

MAX_REQUEST_BYTES: Final = 128 << 20
"""What cluster-autoscaler itself takes; a pod comes with every option that would help it."""

MAX_CONNECTIONS: Final = 64
"""Each autoscaler has one or two; they need no credential."""

EXPANDER_FLAG: Final = "--expander-listen"

LOG: Final = logging.getLogger(__name__)


def expander_methods(settings: ServerSettings, engine: Engine) -> dict[str, Method]:
    """The method by its full name."""
    best = BestOptions(engine, settings.expander_cluster, veto=settings.expander_veto)

    def serve(request: pb.BestOptionsRequest, call: Call) -> pb.BestOptionsResponse:
        # The request does not say whose state it is about.
        call.caller.check(Role.DECIDE, best.cluster)
        return best.serve(request, time.monotonic() + call.time_left(), call.span)

    return {f"{SERVICE}/{METHOD}": Unary(pb.BestOptionsRequest, serve)}


def expander_server(
    settings: ServerSettings,
    engine: Engine,
    parts: Parts,
    pools: Pools,
) -> GrpcServer:
    """A gRPC server of the expander alone, for callers without token or certificate."""
    own = settings.expander_listen
    if settings.access_file and own is not None and not own.loopback:
        LOG.warning(
            "%s: %s answers about cluster %s without a token: let only cluster-autoscaler reach it",
            EXPANDER_FLAG,
            own,
            settings.expander_cluster,
        )
    options = ServerOptions(
        max_request_bytes=MAX_REQUEST_BYTES,
        max_response_bytes=settings.max_response_bytes,
        max_connection_age=settings.max_connection_age,
        reflection=False,
        reuse_port=settings.reuse_port,
        max_connections=min(MAX_CONNECTIONS, settings.max_connections),
    )
    return GrpcServer(
        Pipeline(
            replace(
                parts,
                access=AccessControl(),
                sizes=MessageLimits(request=MAX_REQUEST_BYTES, setting=""),
            )
        ),
        expander_methods(settings, engine),
        pools,
        options,
    )


def expander_credentials(
    settings: ServerSettings, watcher: CredentialWatcher
) -> Credentials | None:
    """TLS without client certificates; None serves plain text."""
    return credentials(watcher.current_pem, ask_clients=False) if settings.tls else None
