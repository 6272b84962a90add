"""What a server listens with: gRPC, the expander's own port, and HTTP."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.access.callers import Role
from topospread.api.expander import METHOD, SERVICE, BestOptions
from topospread.app.capacity import HTTP_CONNECTIONS
from topospread.calls.access import AccessControl
from topospread.calls.call import Call, Method, Unary
from topospread.calls.pipeline import Pipeline
from topospread.calls.sizes import MessageLimits
from topospread.config.values import Address
from topospread.errors import ConfigError
from topospread.generated.cluster_autoscaler import expander_pb2 as pb
from topospread.http import extender, webhook
from topospread.http.app import EXTENDER, NO_CALLS, WEBHOOK, Access, make_app
from topospread.http.calls import HttpCalls
from topospread.http.server import HttpServer
from topospread.rpc.server import GrpcServer, ServerOptions, credentials
from topospread.spread.linting.engine import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from starlette.types import ASGIApp

    from topospread.app.parts import ServerParts
    from topospread.calls.pipeline import Parts
    from topospread.config.settings import ServerSettings
    from topospread.http.app import Endpoint, Health
    from topospread.service.decisions.engine import Engine

LOG: Final = logging.getLogger(__name__)

EXPANDER_FLAG: Final = "--expander-listen"

EXPANDER_BYTES: Final = 128 << 20
"""What cluster-autoscaler itself takes; a pod comes with every option that would help it."""

EXPANDER_CONNECTIONS: Final = 64
"""Each autoscaler has one or two; they need no credential."""


def grpc_server(parts: ServerParts) -> GrpcServer:
    """The gRPC server of all methods, which does not listen yet."""
    methods = {**parts.api, **_expander_methods(parts.settings, parts.engine)}
    return GrpcServer(Pipeline(parts.calls), methods, parts.pools, grpc_options(parts.settings))


def grpc_options(settings: ServerSettings) -> ServerOptions:
    """The options of the gRPC server."""
    return ServerOptions(
        max_request_bytes=settings.max_request_bytes,
        max_connection_age=settings.max_connection_age,
        reflection=settings.reflection,
        reuse_port=settings.reuse_port,
        max_connections=settings.max_connections,
    )


def listen(parts: ServerParts, server: GrpcServer) -> str:
    """Bind gRPC's address; returns it, with the port that 0 became."""
    address = parts.settings.listen
    tls = credentials(parts.files.current_pem) if parts.settings.tls else None
    return str(Address(address.host, server.listen(address, tls)))


def expander_server(parts: ServerParts, address: Address) -> tuple[GrpcServer, str]:
    """A gRPC server of the expander alone, for callers without token or certificate.

    Also returns its address, with the port that 0 became.
    """
    settings = parts.settings
    if settings.access_file and not address.loopback:
        LOG.warning(
            "%s: %s answers about cluster %s without a token: let only cluster-autoscaler reach it",
            EXPANDER_FLAG,
            address,
            settings.expander_cluster,
        )
    options = ServerOptions(
        max_request_bytes=EXPANDER_BYTES,
        max_connection_age=settings.max_connection_age,
        reflection=False,
        reuse_port=settings.reuse_port,
        max_connections=min(EXPANDER_CONNECTIONS, settings.max_connections),
    )
    sizes = MessageLimits(request=EXPANDER_BYTES, setting="")
    pipeline = Pipeline(replace(parts.calls, access=AccessControl(), sizes=sizes))
    methods = _expander_methods(settings, parts.engine)
    server = GrpcServer(pipeline, methods, parts.pools, options)
    tls = credentials(parts.files.current_pem, ask_clients=False) if settings.tls else None
    return server, str(Address(address.host, server.listen(address, tls, EXPANDER_FLAG)))


def _expander_methods(settings: ServerSettings, engine: Engine) -> dict[str, Method]:
    best = BestOptions(
        engine,
        settings.expander_cluster,
        prefer=settings.expander_prefer,
        veto=settings.expander_veto,
    )

    def serve(request: pb.BestOptionsRequest, call: Call) -> pb.BestOptionsResponse:
        # The request does not say whose state it is about.
        call.caller.check(Role.DECIDE, best.cluster)
        return best.serve(request, time.monotonic() + call.time_left(), call.span)

    return {f"{SERVICE}/{METHOD}": Unary(pb.BestOptionsRequest, serve)}


def http_servers(parts: ServerParts, ready: Health, made: ExitStack) -> dict[str, HttpServer]:
    """The HTTP servers by name: ``http`` and ``extender``; `made` stops them.

    Calls (the extender, the webhook) are served beside the pages of metrics and health where they
    have no address of their own.

    Raises:
        ConfigError: one cannot listen, or a TLS file cannot be used.
    """
    settings, files = parts.settings, parts.files
    calls = _http_calls(parts)
    own = settings.extender_listen
    servers: dict[str, HttpServer] = {}

    def serve(
        name: str,
        flag: str,
        address: Address,
        pages: ASGIApp | None,
        calls: Mapping[str, Endpoint],
        *,
        reuse_port: bool,
    ) -> None:
        app = Access(pages, calls, files.authenticator, files.rate_limiter, files.denials)
        server = servers[name] = HttpServer(
            app,
            address.host,
            address.port,
            tls=files.http_files if settings.tls else None,
            reuse_port=reuse_port,
            flag=flag,
            max_connections=min(HTTP_CONNECTIONS, settings.max_connections),
            on_dropped=parts.metrics.http_dropped,
        )
        made.callback(server.stop)
        files.on_new_certificates(server.reload_certificates)

    if settings.http is not None:
        pages = make_app(
            version=parts.version,
            metrics=parts.metrics.expose,
            live=lambda: (True, ()),
            ready=ready,
            max_body_bytes=settings.http_max_body_bytes,
        )
        beside = NO_CALLS if own else calls
        serve("http", "--http", settings.http, pages, beside, reuse_port=False)
    if own is not None and calls:
        serve("extender", "--extender-listen", own, None, calls, reuse_port=settings.reuse_port)
    return servers


def http_pipeline(calls: Parts) -> Pipeline:
    """The pipeline of calls over HTTP, whose callers are known and counted for all pages."""
    return Pipeline(replace(calls, access=AccessControl(denials=calls.access.denials)))


def _http_calls(parts: ServerParts) -> dict[str, Endpoint]:
    """The endpoints of calls by the beginning of their paths.

    Raises:
        ConfigError: the webhook is to refuse for a code that there is not.
    """
    settings, pools = parts.settings, parts.pools
    most = settings.http_max_body_bytes
    calls: dict[str, Endpoint] = {}
    if settings.extender != "off":
        served = extender.Extender(
            parts.engine,
            parts.placement,
            parts.metrics,
            extender.Executors(pools.executors["extender"], pools.executors["state"], pools.turn),
            lifetime=round(settings.extender_reservation_ttl * 1000),
            unschedulable=parts.unschedulable,
            places=settings.extender == "place",
        )
        calls[EXTENDER] = HttpCalls(
            served.method, extender.OTHER, http_pipeline(parts.calls), max_body_bytes=most
        )
    if settings.webhook:
        refused = frozenset(settings.webhook_refuse)
        if unknown := sorted(refused - {"error", *(each.code for each in RULES.values())}):
            raise ConfigError(
                f"--webhook-refuse: there is no code {unknown[0]!r}: write error, or codes of "
                "docs/lint.md"
            )
        linter = webhook.Webhook(parts.engine, pools.executors["webhook"], pools.turn, refused)
        calls[WEBHOOK] = HttpCalls(
            linter.method,
            webhook.LABEL,
            http_pipeline(parts.calls),
            max_body_bytes=min(most, webhook.MAX_BYTES),
        )
    return calls
