"""Makes the scheduler extender out of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.errors import QueueFull
from topospread.transports.grpc.pool import decided, overloaded
from topospread.transports.http.extender import Answer, Extender, Submit, Workplaces
from topospread.transports.http.extender_verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from topospread.config.settings import ServerSettings
    from topospread.service.engine import Engine
    from topospread.service.holding import Holding
    from topospread.service.refused import RefusedPods
    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.tracing import Tracing
    from topospread.transports.grpc.executor import BoundedExecutor
    from topospread.transports.grpc.server import Pools


def make_extender(
    settings: ServerSettings,
    judging: tuple[Engine, Holding],
    refused: RefusedPods | None,
    telemetry: tuple[Tracing, Metrics],
    pools: Pools,
) -> Extender | None:
    """The extender; None when that is off.

    Args:
        settings: what was configured.
        judging: what judges pods and holds places.
        refused: remembers what is refused.
        telemetry: what counts and traces.
        pools: do the work.
    """
    if settings.extender == "off":
        return None
    engine, holding = judging
    tracing, metrics = telemetry
    return Extender(
        Verbs(engine, holding, metrics, round(settings.extender_hold * 1000), refused),
        tracing,
        metrics,
        Workplaces(
            decide=_submit(pools.extender, "extender", metrics),
            wait=_submit(pools.state, "state", metrics),
            decided=decided,
        ),
        places=settings.extender == "place",
        max_body_bytes=settings.http_max_body_bytes,
    )


def _submit(pool: BoundedExecutor, name: str, metrics: Metrics) -> Submit:
    """The gRPC server's pool does HTTP's work as well, so that one bound holds for both."""

    def submit(work: Callable[[], Answer], /) -> Future[Answer]:
        def done() -> Answer:
            if overloaded():
                metrics.rejection(name)
                raise QueueFull.of(name)
            return work()

        return pool.submit(done)

    return submit
