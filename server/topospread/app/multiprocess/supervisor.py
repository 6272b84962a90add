"""Runs several serving processes on one port: starts them, restarts them, ends them.

It serves no calls itself, and neither it nor what it imports knows gRPC, so that it starts its
workers at once. /metrics, /livez and /readyz are answered here, for all workers together.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from topospread.app.credentials import CredentialWatcher
from topospread.app.http_servers import make_http
from topospread.app.multiprocess.worker_pool import WorkerPool
from topospread.app.ports import reserve_port
from topospread.config.values import Address
from topospread.errors import ConfigError, StoreUnavailable, Unavailable
from topospread.telemetry.families import dropped_family
from topospread.telemetry.merging import merge_expositions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import FrameType

    from prometheus_client.core import Metric

    from topospread.app.multiprocess.messages import Readiness
    from topospread.app.multiprocess.worker_pool import WorkerProcess
    from topospread.config.settings import ServerSettings
    from topospread.transports.http.server import HttpServer


LOG: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
"""Seconds before a worker is started again: doubling while it does not stay up."""

STABLE_AFTER: Final = 10.0
"""Seconds of service after which a worker's former exits are forgotten."""

EXTRA_GRACE: Final = 5.0
"""Seconds beyond the grace period after which a worker that should exit is killed."""


class Supervisor:
    """Runs the workers; see :meth:`run`.

    Args:
        settings: what was configured, with more than one worker.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.version = version("topospread")
        self._address = settings.listen
        self._extender_address: Address | None = None
        self._expander_address: Address | None = None
        self._http: HttpServer | None = None
        self._pauses: dict[int, float] = {}
        self._due: dict[int, float] = {}
        self._dropped: Counter[tuple[str, ...]] = Counter()
        self._stop_signals = 0
        self._stopping = False
        self._wakeup_reader, self._wakeup_writer = os.pipe()
        os.set_blocking(self._wakeup_reader, False)
        os.set_blocking(self._wakeup_writer, False)

    @property
    def address(self) -> str:
        """host:port of gRPC, with the port that it has now."""
        return str(self._address)

    @property
    def http_address(self) -> str:
        """host:port of metrics and health; empty when that is off."""
        http = self.settings.http
        if self._http is None or http is None:
            return ""
        return str(Address(http.host, self._http.port))

    @property
    def extender_address(self) -> str:
        """host:port of the extender, which the workers serve; empty when it has none of its own."""
        return str(self._extender_address or "")

    @property
    def expander_address(self) -> str:
        """host:port of the expander, which the workers serve; empty when it has none of its own."""
        return str(self._expander_address or "")

    def run(self, announce: Callable[[Supervisor], None]) -> None:
        """Serve until SIGTERM or SIGINT; to be called in the main thread.

        Args:
            announce: called when all workers are ready.

        Raises:
            ConfigError: something in the settings cannot be used.
            StoreUnavailable: the store is out of reach.
            Unavailable: a worker exited before it was ready, without a reason.
        """
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, self._on_signal)
        with ExitStack() as closing:
            # The signal handler of whichever thread writes to it, which wakes the loop.
            signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
            closing.callback(signal.set_wakeup_fd, -1)
            self._address = closing.enter_context(reserve_port(self.settings.listen))
            extender = self.settings.extender_listen
            if extender is not None:
                extender = closing.enter_context(reserve_port(extender, "--extender-listen"))
                self._extender_address = extender
            expander = self.settings.expander_listen
            if expander is not None:
                expander = closing.enter_context(reserve_port(expander, "--expander-listen"))
                self._expander_address = expander
            worker_settings = replace(
                self.settings,
                listen=self._address,
                http=None,
                extender_listen=extender,
                expander_listen=expander,
                workers=1,
            )
            self._workers = WorkerPool(worker_settings, self.settings.workers)
            self._watcher = CredentialWatcher(self.settings)
            closing.callback(self._watcher.close)
            self._watcher.start()
            self._http = make_http(
                self.settings,
                self.version,
                metrics=self._metrics,
                ready=self._readiness,
                watcher=self._watcher,
                on_dropped=self._count_dropped,
            )
            if self._http is not None:
                closing.callback(self._http.stop)
                self._http.start()
            closing.callback(self._stop_all)
            for number in range(1, self._workers.size + 1):
                self._workers.start(number)
            self._wait_until_ready()
            if not self._stop_signals:
                announce(self)
                self._warn_without_extender()
            while not self._stop_signals:
                for worker in self._poll(self._start_due()):
                    self._plan_restart(worker)
            LOG.info("stopping: running calls may take %g s", self.settings.shutdown_grace_period)

    # ------------------------------ life

    def _wait_until_ready(self) -> None:
        while not self._stop_signals and self._workers.ready < self._workers.size:
            for worker in self._poll(None):
                raise _reason(worker)

    def _warn_without_extender(self) -> None:
        """Warn where one process would serve the extender, beside /metrics, and these do not."""
        settings = self.settings
        if settings.extender != "off" and settings.http and not settings.extender_listen:
            LOG.warning(
                "no extender is served: several workers serve it on --extender-listen alone "
                "(--extender off if none is meant to be)"
            )

    def _start_due(self) -> float | None:
        """Start the workers whose pause is over; returns the seconds until the next one's is."""
        now = time.monotonic()
        for number, due in list(self._due.items()):
            if due <= now:
                del self._due[number]
                self._workers.restarts += 1
                self._workers.start(number)
        return max(0.0, min(self._due.values()) - now) if self._due else None

    def _poll(self, timeout: float | None) -> list[WorkerProcess]:
        """Wait for messages, exits and signals, and handle them; returns the exited workers."""
        workers = self._workers.workers
        pipes = {worker.pipe: worker for worker in workers if not worker.pipe.closed}
        exits = {worker.process.sentinel: worker for worker in workers}
        happened = wait([*pipes, *exits, self._wakeup_reader], timeout)
        if self._wakeup_reader in happened:
            self._handle_wakeup()
        for pipe, worker in pipes.items():
            if pipe in happened:
                worker.receive()
        ended = [worker for sentinel, worker in exits.items() if sentinel in happened]
        for worker in ended:
            self._workers.remove(worker)
        return ended

    def _plan_restart(self, worker: WorkerProcess) -> None:
        stable = worker.ready_at is not None and time.monotonic() - worker.ready_at > STABLE_AFTER
        pause = 0.0 if stable else self._pauses.get(worker.number, 0.0)
        self._pauses[worker.number] = min(LONGEST_PAUSE, max(FIRST_PAUSE, pause * 2))
        self._due[worker.number] = time.monotonic() + pause
        cause = "" if worker.failure is None else f": {worker.failure.text}"
        LOG.error(
            "worker %d ended (exit code %s)%s; it is started again in %g s",
            worker.number,
            worker.exit_code,
            cause,
            pause,
        )

    def _stop_all(self) -> None:
        """Stop the workers with SIGTERM; kill those that take longer than the grace period."""
        self._stopping = True
        self._signal(signal.SIGTERM)
        settings = self.settings
        allowed = settings.shutdown_delay + settings.shutdown_grace_period + EXTRA_GRACE
        deadline = time.monotonic() + allowed
        while self._workers.workers and (left := deadline - time.monotonic()) > 0:
            self._poll(left)
        for worker in self._workers.workers:
            LOG.error("worker %d did not end in time and is killed", worker.number)
            worker.process.kill()
            self._workers.remove(worker)

    # ------------------------------ signals

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; the loop acts upon it."""
        del frame
        if number != signal.SIGHUP:
            self._stop_signals += 1

    def _handle_wakeup(self) -> None:
        for number in os.read(self._wakeup_reader, 64):
            if number == signal.SIGHUP:
                self._signal(signal.SIGHUP)
                self._watcher.reload()
            elif self._stopping:
                # Signalled twice: the workers are, too, and end at once.
                self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers.workers:
            if worker.process.is_alive():
                assert worker.process.pid is not None, "it was started"
                os.kill(worker.process.pid, number)

    # ------------------------------ metrics and readiness

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        del accept  # there is one format that can be merged
        live, ended = self._workers.expositions()
        own = exposition(
            self._workers.size, self._workers.ready, self._workers.restarts, self._dropped.copy()
        )
        return merge_expositions([*live, own], ended), CONTENT_TYPE_LATEST

    def _count_dropped(self, reason: str) -> None:
        """Called in the thread of HTTP, and in no other."""
        self._dropped[reason,] += 1

    def _readiness(self) -> Readiness:
        return (False, ("stopping",)) if self._stop_signals else self._workers.readiness()


def _reason(worker: WorkerProcess) -> Exception:
    """The reason why a worker could not start."""
    failure = worker.failure
    if failure is None:
        return Unavailable(f"worker {worker.number} ended before it was ready: see its log above")
    return (StoreUnavailable if failure.store_unavailable else ConfigError)(failure.text)


def exposition(
    configured: int, ready: int, restarts: int, dropped: Mapping[tuple[str, ...], float]
) -> bytes:
    """The supervisor's own metrics, in Prometheus' text format.

    Args:
        configured: workers that should serve.
        ready: workers that do.
        restarts: workers that were started to replace one that ended.
        dropped: HTTP connections by the reason why they were dropped.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(
        _SupervisorFamilies((*families(configured, ready, restarts), dropped_family(dropped)))
    )
    return generate_latest(registry)


def families(configured: int, ready: int, restarts: int) -> Iterator[Metric]:
    """The same as :func:`exposition`, before it is written."""
    workers = GaugeMetricFamily(
        "topospread_workers",
        "With several processes: how many should serve, and how many do.",
        labels=("state",),
    )
    workers.add_metric(("configured",), configured)
    workers.add_metric(("ready",), ready)
    yield workers
    yield CounterMetricFamily(
        "topospread_worker_restarts",
        "With several processes: those that were started to replace one that ended.",
        restarts,
    )


class _SupervisorFamilies(Collector):
    def __init__(self, read: Iterable[Metric]) -> None:
        self._read = read

    @override
    def collect(self) -> Iterable[Metric]:
        return self._read
