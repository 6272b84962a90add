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

from prometheus_client import CONTENT_TYPE_LATEST

from topospread.app.crew import Crew
from topospread.app.doors import Doors
from topospread.app.ports import held_port
from topospread.app.tally import exposition
from topospread.app.web import make_http
from topospread.config.values import Address
from topospread.errors import ConfigError, StoreUnavailable, Unavailable
from topospread.telemetry.merging import merge_expositions

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from topospread.app.crew import Member
    from topospread.app.links import Readiness
    from topospread.config.settings import ServerSettings
    from topospread.transports.http.server import HttpServer

LOG: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
"""Seconds before a worker is started again: doubling while it does not stay."""

STAYED: Final = 10.0
"""Seconds of service after which a worker's former deaths are forgotten."""

EXTRA_GRACE: Final = 5.0
"""Seconds beyond the grace time after which a worker that is to end is killed."""


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
        self._ended: Counter[tuple[str, ...]] = Counter()
        self._told = 0
        self._stopping = False
        self._read_bell, self._bell = os.pipe()
        os.set_blocking(self._read_bell, False)
        os.set_blocking(self._bell, False)

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
            announce: told when all workers are ready.

        Raises:
            ConfigError: something in the settings cannot be used.
            StoreUnavailable: the store is out of reach.
            Unavailable: a worker ended before it was ready, and did not say why.
        """
        for told in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(told, self._ring)
        with ExitStack() as closing:
            # Written to by whichever thread the system gives a signal to, which wakes the loop.
            signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
            closing.callback(signal.set_wakeup_fd, -1)
            self._address = closing.enter_context(held_port(self.settings.listen))
            extender = self.settings.extender_listen
            if extender is not None:
                extender = closing.enter_context(held_port(extender, "--extender-listen"))
                self._extender_address = extender
            expander = self.settings.expander_listen
            if expander is not None:
                expander = closing.enter_context(held_port(expander, "--expander-listen"))
                self._expander_address = expander
            workers_settings = replace(
                self.settings,
                listen=self._address,
                http=None,
                extender_listen=extender,
                expander_listen=expander,
                workers=1,
            )
            self._crew = Crew(workers_settings, self.settings.workers)
            self._doors = Doors(self.settings)
            closing.callback(self._doors.close)
            self._doors.start()
            self._http = make_http(
                *(self.settings, self.version, self._metrics, self._readiness, self._doors),
                self._count_ended,
            )
            if self._http is not None:
                closing.callback(self._http.stop)
                self._http.start()
            closing.callback(self._end_all)
            for number in range(1, self._crew.size + 1):
                self._crew.start(number)
            self._until_ready()
            if not self._told:
                announce(self)
                self._say_without_extender()
            while not self._told:
                for member in self._turn(self._start_due()):
                    self._plan_restart(member)
            LOG.info("stopping: running calls may take %g s", self.settings.grace)

    # ------------------------------ life

    def _until_ready(self) -> None:
        while not self._told and self._crew.ready < self._crew.size:
            for member in self._turn(None):
                raise _reason(member)

    def _say_without_extender(self) -> None:
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
                self._crew.restarts += 1
                self._crew.start(number)
        return max(0.0, min(self._due.values()) - now) if self._due else None

    def _turn(self, timeout: float | None) -> list[Member]:
        """Wait for something to happen and take it in; returns the workers that ended."""
        members = self._crew.members
        links = {member.link: member for member in members if not member.link.closed}
        ends = {member.process.sentinel: member for member in members}
        happened = wait([*links, *ends, self._read_bell], timeout)
        if self._read_bell in happened:
            self._answer_bell()
        for link, member in links.items():
            if link in happened:
                member.hear()
        ended = [member for sentinel, member in ends.items() if sentinel in happened]
        for member in ended:
            self._crew.lose(member)
        return ended

    def _plan_restart(self, member: Member) -> None:
        stayed = member.ready_at is not None and time.monotonic() - member.ready_at > STAYED
        pause = 0.0 if stayed else self._pauses.get(member.number, 0.0)
        self._pauses[member.number] = min(LONGEST_PAUSE, max(FIRST_PAUSE, pause * 2))
        self._due[member.number] = time.monotonic() + pause
        said = "" if member.failure is None else f": {member.failure.text}"
        LOG.error(
            "worker %d ended (exit code %s)%s; it is started again in %g s",
            *(member.number, member.exit_code, said, pause),
        )

    def _end_all(self) -> None:
        """End the workers politely; kill those that take longer than the grace time."""
        self._stopping = True
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + self.settings.grace + EXTRA_GRACE
        while self._crew.members and (left := deadline - time.monotonic()) > 0:
            self._turn(left)
        for member in self._crew.members:
            LOG.error("worker %d did not end in time and is killed", member.number)
            member.process.kill()
            self._crew.lose(member)

    # ------------------------------ signals

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """A signal: noted here, acted upon in the loop."""
        del frame
        if number != signal.SIGHUP:
            self._told += 1

    def _answer_bell(self) -> None:
        for number in os.read(self._read_bell, 64):
            if number == signal.SIGHUP:
                self._signal(signal.SIGHUP)
                self._doors.reload()
            elif self._stopping:
                # Told twice: the workers are, too, and end at once.
                self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for member in self._crew.members:
            if member.process.is_alive():
                assert member.process.pid is not None, "it was started"
                os.kill(member.process.pid, number)

    # ------------------------------ what others ask

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        del accept  # there is one format that can be merged
        live, ended = self._crew.expositions()
        own = exposition(self._crew.size, self._crew.ready, self._crew.restarts, self._ended.copy())
        return merge_expositions([*live, own], ended), CONTENT_TYPE_LATEST

    def _count_ended(self, why: str) -> None:
        """Called in the thread of HTTP, and in no other."""
        self._ended[why,] += 1

    def _readiness(self) -> Readiness:
        return (False, ("stopping",)) if self._told else self._crew.readiness()


def _reason(member: Member) -> Exception:
    """Why a worker could not start."""
    failure = member.failure
    if failure is None:
        return Unavailable(f"worker {member.number} ended before it was ready: see its log above")
    return (StoreUnavailable if failure.out_of_reach else ConfigError)(failure.text)
