"""What the calls of one server share: tracing, metrics, access, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.servicers.limits import MessageLimits
from topospread.threads.turns import Turns
from topospread.transports.grpc.authorization import AccessControl
from topospread.transports.grpc.pending_responses import PendingResponses
from topospread.transports.grpc.streams import OpenStreams

if TYPE_CHECKING:
    from topospread.telemetry.accumulators import Histogram
    from topospread.telemetry.metrics import CallMeter, Metrics
    from topospread.telemetry.tracing import CallSpan, Tracing
    from topospread.transports.grpc.transport import Context

LARGE_CALLS: Final = 4
"""Calls with large responses that are carried out at once."""

LARGE_QUEUE: Final = 48
"""Calls with large responses that wait: fewer than the threads that a pool lends, so that other
calls find one.
"""


class CallPipeline:
    """Makes gRPC's handlers of servicers' methods, for one server.

    Args:
        tracing: starts spans.
        metrics: counts calls.

    Attributes:
        access: authenticates and authorizes callers.
        message_limits: how large requests and responses may be.
        pending_responses: bounds the responses that clients do not take.
        large_calls: turns of the calls with large responses.
        stopping: open streams are to end.
        open_streams: the streams of authenticated callers.
    """

    def __init__(
        self,
        tracing: Tracing,
        metrics: Metrics,
        access: AccessControl | None = None,
        message_limits: MessageLimits | None = None,
        pending_responses: PendingResponses | None = None,
    ) -> None:
        self._tracing = tracing
        self._metrics = metrics
        self.access = access or AccessControl()
        self.message_limits = message_limits or MessageLimits()
        self.pending_responses = pending_responses or PendingResponses()
        self.large_calls = Turns(LARGE_CALLS, LARGE_QUEUE, "calls with large answers")
        self.stopping = False
        self.open_streams = OpenStreams()

    def start_span(self, method: str, context: Context, arrived: float) -> CallSpan:
        """Start a call's span, as of when it came in on the clock of time.perf_counter."""
        return self._tracing.start(method, context.invocation_metadata(), arrived)

    def meter(self, label: str) -> CallMeter:
        """The meter of a method."""
        return self._metrics.call(label)

    def queue_wait(self, pool: str) -> Histogram:
        """The series of the seconds that a pool's calls waited in its queue."""
        return self._metrics.queue_wait(pool)

    def count_rejection(self, pool: str) -> None:
        """Count a call that found a pool's queue full."""
        self._metrics.rejection(pool)
