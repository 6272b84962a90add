"""A process that feeds one cluster and does nothing else."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from topospread.app.told import Told
from topospread.config.values import Address
from topospread.telemetry.metrics import Metrics
from topospread.transports.http.routes import http_app
from topospread.transports.http.server import HttpServer
from topospread.transports.kubernetes.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import FrameType

    from topospread.transports.kubernetes.api_server import ApiServer
    from topospread.transports.kubernetes.sinks import Sink

_MAX_BODY: Final = 1024


class Syncing:
    """Runs a feed until it is told to stop, or until everything was listed once.

    Args:
        cluster: the name that it has in the state.
        api: where it is read.
        sink: where it goes.
        lease: seconds that the lease outlives a feeder that died.
        excluded_namespaces: namespaces whose objects are not fed.
        http: where metrics and health are served; None serves none.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(
        self,
        cluster: str,
        api: ApiServer,
        sink: Sink,
        lease: float,
        excluded_namespaces: Collection[str],
        http: Address | None,
    ) -> None:
        self.cluster = cluster
        self.api_address = api.address
        self._done = Told()
        self._listed = threading.Event()
        self._once = False
        self._stands_by = False
        self._feed = Feed(
            cluster,
            api,
            sink,
            lease=lease,
            excluded_namespaces=excluded_namespaces,
            listed=self._note_listed,
            stands_by=self._note_standby,
        )
        self._metrics = Metrics(version("topospread"), scheduler_metrics=False)
        self._metrics.watch_feeds(lambda: [self._feed.gauges()])
        self._host = "" if http is None else http.host
        self._http: HttpServer | None = None
        if http is not None:
            app = http_app(
                version=version("topospread"),
                metrics=self._metrics.expose,
                live=lambda: (True, ()),
                ready=self._ready,
                max_body_bytes=_MAX_BODY,
            )
            self._http = HttpServer(app, http.host, http.port)

    @property
    def http_address(self) -> str:
        """host:port of metrics and health; empty when that is off."""
        return "" if self._http is None else str(Address(self._host, self._http.port))

    def run(self, announce: Callable[[Syncing], None], *, once_within: float | None = None) -> bool:
        """Feed; to be called in the main thread.

        Args:
            announce: told when it has begun.
            once_within: seconds to end after, or sooner: when everything was listed once. None
                feeds until a signal comes.

        Returns:
            Whether everything was listed.
        """
        self._once = once_within is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        with ExitStack() as closing:
            if self._http is not None:
                self._http.start()
                closing.callback(self._http.stop)
            closing.callback(self._feed.stop)
            self._feed.start()
            announce(self)
            self._done.wait(once_within)
        return self._listed.is_set()

    def _note_listed(self) -> None:
        self._listed.set()
        if self._once:
            self._done.say()

    def _note_standby(self) -> None:
        self._stands_by = True

    def _ready(self) -> tuple[bool, Sequence[str]]:
        lacking = [f"{name} not listed yet" for name in self._feed.lacking]
        return self._listed.is_set() or (self._stands_by and not lacking), lacking

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._done.say()
