"""One of several serving processes, as its supervisor starts it."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from topospread.app.multiprocess.messages import Exited, Ready, Response, StartFailed
from topospread.app.runner import ServerRunner
from topospread.errors import ConfigError, StoreUnavailable
from topospread.telemetry.logs import start_logging

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from topospread.app.multiprocess.messages import Message, Readiness, Request
    from topospread.config.settings import ServerSettings


def work(pipe: Connection[Message, Request], settings: ServerSettings) -> None:
    """Serve until SIGTERM, or until the supervisor is gone."""
    # Ctrl-C reaches every process at the terminal; the supervisor ends its workers by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = start_logging(settings.log_level, settings.log_format)  # type: ignore[arg-type] # checked
    process = ServerRunner(settings, (signal.SIGTERM,), reuse_port=True)
    supervisor = _SupervisorPipe(pipe, process)
    threading.Thread(target=supervisor.receive, name="supervisor", daemon=True).start()
    try:
        process.run(lambda _: supervisor.send(Ready()))
    except ConfigError as error:
        supervisor.send(StartFailed(str(error), store_unavailable=False))
    except StoreUnavailable as error:
        supervisor.send(StartFailed(str(error), store_unavailable=True))
    else:
        if process.server is not None:
            supervisor.send(Exited(process.server.metrics.expose()[0]))
    output.close()


class _SupervisorPipe:
    """The other end of the pipe."""

    def __init__(self, pipe: Connection[Message, Request], process: ServerRunner) -> None:
        self._pipe = pipe
        self._process = process
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message, unless the supervisor is gone."""
        with self._lock, suppress(OSError):
            self._pipe.send(message)

    def receive(self) -> None:
        """Answer requests until the supervisor is gone, which ends this process, too."""
        with suppress(EOFError, OSError):
            while True:
                request = self._pipe.recv()
                self.send(Response(request.number, self._content_for(request)))
        os.kill(os.getpid(), signal.SIGTERM)

    def _content_for(self, request: Request) -> bytes | Readiness:
        server = self._process.server
        if request.topic == "metrics":
            return b"" if server is None else server.metrics.expose()[0]
        return (False, ("starting",)) if server is None else server.ready()
