"""One of several serving processes, as its supervisor starts it."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from topospread.app.links import Answer, Ended, Failed, Ready
from topospread.app.serving import Process
from topospread.errors import ConfigError, StoreUnavailable
from topospread.telemetry.logs import start_logging

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from topospread.app.links import Message, Question, Readiness
    from topospread.config.settings import ServerSettings


def work(link: Connection[Message, Question], settings: ServerSettings) -> None:
    """Serve until SIGTERM, or until the supervisor is gone."""
    # Ctrl-C reaches every process at the terminal; the supervisor ends its workers by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = start_logging(settings.log_level, settings.log_format)  # type: ignore[arg-type] # checked
    process = Process(settings, (signal.SIGTERM,), reuse_port=True)
    supervisor = _Supervisor(link, process)
    threading.Thread(target=supervisor.listen, name="supervisor", daemon=True).start()
    try:
        process.run(lambda _: supervisor.tell(Ready()))
    except ConfigError as error:
        supervisor.tell(Failed(str(error), out_of_reach=False))
    except StoreUnavailable as error:
        supervisor.tell(Failed(str(error), out_of_reach=True))
    else:
        if process.server is not None:
            supervisor.tell(Ended(process.server.metrics.expose()[0]))
    output.close()


class _Supervisor:
    """The other end of the link."""

    def __init__(self, link: Connection[Message, Question], process: Process) -> None:
        self._link = link
        self._process = process
        self._turn = threading.Lock()

    def tell(self, message: Message) -> None:
        """Say something; nobody may be there any more to hear it."""
        with self._turn, suppress(OSError):
            self._link.send(message)

    def listen(self) -> None:
        """Answer questions until the supervisor is gone, which ends this process, too."""
        with suppress(EOFError, OSError):
            while True:
                question = self._link.recv()
                self.tell(Answer(question.number, self._answer(question)))
        os.kill(os.getpid(), signal.SIGTERM)

    def _answer(self, question: Question) -> bytes | Readiness:
        server = self._process.server
        if question.topic == "metrics":
            return b"" if server is None else server.metrics.expose()[0]
        return (False, ("starting",)) if server is None else server.ready()
