"""Two servers on one store, behind the balancer of the compose file as it is shipped."""

from __future__ import annotations

import re
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from tests.deploy.files import FOLDER, services
from tests.redis_server import free_port
from tests.requirements import need
from tests.servers import Peer, ServerProcess, http_get, two_zones
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType


class Balanced:
    """The servers, with nodes of two zones in them, and the balancer; from entering to leaving it.

    Args:
        store: URL of a Redis.
        folder: takes the balancer's configuration.

    Attributes:
        address: of the balancer.
    """

    def __init__(self, store: str, folder: Path) -> None:
        self._haproxy = need("haproxy")
        flags = services()["topospread-1"]["command"]
        (self._delay,) = [flag for flag in flags if flag.startswith("--shutdown-delay")]
        self._store = store
        self._ports = [(free_port(), free_port()) for _ in range(2)]
        front, self._stats = free_port(), free_port()
        self.address = f"127.0.0.1:{front}"
        self._file = folder / "haproxy.cfg"
        self._file.write_text(configured(self._ports, front, self._stats))
        self._servers: list[ServerProcess] = []
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as ending:
            # Before they are started: the second may fail to.
            ending.callback(lambda: [server.end() for server in self._servers])
            self._servers.extend(self._run(number) for number in range(2))
            with Peer(self._servers[0].address) as peer:
                peer.apply(*two_zones())
            command = [self._haproxy, "-db", "-f", str(self._file)]
            balancer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            ending.callback(balancer.wait)
            ending.callback(balancer.kill)
            until(lambda: reached(self._in_turn) == 2, "both servers are in turn")
            self._ending = ending.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.close()

    def restart(self, number: int, by: signal.Signals = signal.SIGTERM) -> None:
        """End a server and start it again; until the balancer gives it calls."""
        ended = self._servers[number].end(by)
        assert ended == (0 if by is signal.SIGTERM else -by)
        self._servers[number] = self._run(number)
        until(lambda: self._in_turn() == 2, "it is in turn again")

    def _run(self, number: int) -> ServerProcess:
        port, http = self._ports[number]
        listen = ("--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http}")
        return ServerProcess("--store", self._store, self._delay, *listen)

    def _in_turn(self) -> int:
        """How many servers the balancer gives calls to."""
        rows = http_get(f"http://127.0.0.1:{self._stats}/;csv")[1].splitlines()
        servers = [row.split(",") for row in rows if row.startswith("topospread,topospread-")]
        return sum(row[17] == "UP" for row in servers)


def configured(ports: list[tuple[int, int]], front: int, stats: int) -> str:
    """The balancer's file, with addresses of this machine in place of compose's names."""
    text = (FOLDER / "haproxy.cfg").read_text()
    text = re.sub(r"(?m)^resolvers docker\n(  .*\n)+", "", text)
    changes = [
        (" resolvers docker init-addr last,libc,none resolve-prefer ipv4", " init-addr none"),
        ("bind :7946", f"bind 127.0.0.1:{front}"),
        ("bind :8404", f"bind 127.0.0.1:{stats}"),
    ]
    for number, (port, http) in enumerate(ports, 1):
        line = f"server topospread-{number} topospread-{number}:7946"
        changes.append((line, f"server topospread-{number} 127.0.0.1:{port} port {http}"))
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def reached(ask: Callable[[], int]) -> int:
    """What is answered; -1 while there is no answer yet."""
    try:
        return ask()
    except OSError:
        return -1
