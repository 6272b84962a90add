"""The example of a caller in Go does what it says, and its calls outlast a server's restart."""

from __future__ import annotations

import signal
import subprocess
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import pytest

from tests.deploy.balanced import Balanced
from tests.redis_server import free_port
from tests.servers import Peer, ServerProcess, served, two_zones
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

MISMATCH = "node(s) didn't match pod topology spread constraints"


def test_the_example_writes_asks_places_and_watches(go_programs):
    with served() as server:
        ran = subprocess.run(
            [go_programs / "caller", server.address], capture_output=True, text=True
        )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "apply: node-a OBJECT_OUTCOME_CREATED",
        "apply: node-b OBJECT_OUTCOME_CREATED",
        "apply: web-0 OBJECT_OUTCOME_CREATED",
        "evaluate: 1 of 2 nodes",
        "evaluate: 1 VERDICT_CODE_SUCCESS []",
        f"evaluate: 1 VERDICT_CODE_UNSCHEDULABLE [{MISMATCH}]",
        "place: VERDICT_CODE_SUCCESS node-b",
        "watch: WATCH_EVENT_TYPE_APPLIED web-0",
        "watch: WATCH_EVENT_TYPE_APPLIED web-1",
        "watch: WATCH_EVENT_TYPE_BOOKMARK ",
    ]


class Asking:
    """The program `ask`, which asks one question after the other, from entering to leaving it.

    Attributes:
        answered: calls.
        failed: what calls failed with.
    """

    def __init__(self, program: Path, address: str) -> None:
        self.answered = 0
        self.failed: list[str] = []
        self._process = subprocess.Popen(
            [program, address, f"{PATIENCE:g}s"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reading = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._reading.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._reading.join()
        self._process.stdout.close()
        assert self._process.wait() == 0

    def until_answered(self, more: int = 100) -> None:
        """Let so many more calls be answered."""
        goal = self.answered + more
        until(lambda: self.answered >= goal or bool(self.failed), f"{more} more answers")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "<nil>\n":
                self.answered += 1
            else:
                self.failed.append(line)


def test_calls_outlast_a_server_that_is_killed_and_started_again(go_programs, start_redis):
    where = ("--store", start_redis().url, "--listen", f"127.0.0.1:{free_port()}")
    with ExitStack() as ending:
        server = ending.enter_context(ServerProcess(*where))
        with Peer(server.address) as peer:
            peer.apply(*two_zones())
        with Asking(go_programs / "ask", server.address) as asking:
            for _ in range(2):
                asking.until_answered()
                server.end(signal.SIGKILL)
                server = ending.enter_context(ServerProcess(*where))
            asking.until_answered()
    assert asking.failed == []


@pytest.mark.long
def test_servers_restarted_or_killed_behind_the_balancer_fail_no_call(
    go_programs, start_redis, tmp_path
):
    with (
        Balanced(start_redis().url, tmp_path) as servers,
        Asking(go_programs / "ask", servers.address) as asking,
    ):
        for by in (signal.SIGTERM, signal.SIGKILL):
            for number in range(2):
                asking.until_answered()
                servers.restart(number, by)
        asking.until_answered()
    assert asking.failed == []
