"""Floods of peers that cost a server more than they pay: idle, giving up, or never done."""

from __future__ import annotations

import resource
import socket
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import click
import grpc

from bench import http2
from bench.campaigns.campaign import Outcome, campaign, run
from bench.campaigns.findings import Findings
from tests.servers import Peer, ServerProcess, evaluate_request, two_zones
from tests.telemetry.expositions import samples
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EVALUATE: Final = "/topospread.v1.DecisionService/EvaluatePod"
PAGE: Final = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
BATCH: Final = 200


class Flood:
    """Peers of one server, beside a caller that must be answered all the while.

    Args:
        server: with metrics, a limit of connections and no load of its own.
        limit: its --max-connections.
    """

    def __init__(self, server: ServerProcess, limit: int) -> None:
        self._server = server
        self._limit = limit
        self.found = Findings()

    def run(self, many: int) -> Findings:
        """So many idle connections of each kind, as many resets, and a tenth as many slow calls."""
        with Peer(self._server.address) as caller:
            caller.apply(*two_zones())
            begun = self._resident()
            self._idle(caller, "gRPC", self._server.address, many, _greeted)
            self._idle(caller, "HTTP", self._server.http.rpartition("/")[2], many, _asked)
            self._resets(caller, many)
            self._slow(caller, many // 10)
            self._answers(caller)
            until(self._at_rest, "all calls have ended")
            self.found.codes["MiB that stay"] += (self._resident() - begun) >> 20
        return self.found

    def _idle(
        self,
        caller: Peer,
        kind: str,
        address: str,
        many: int,
        begin: Callable[[str], socket.socket],
    ) -> None:
        """Connections that say hello and nothing more; those past the limit are closed."""
        before = self._resident()
        with ExitStack() as held:
            idle = []
            for number in range(many):
                with suppress(ConnectionError):
                    idle.append(held.enter_context(begin(address)))
                if number % 1000 == 0:
                    self._answers(caller)
            past = len(idle) - self._limit
            until(lambda: _gone(idle) >= past, "those past the limit are closed")
            self._answers(caller)
            self.found.sent += many
            open_ones = len(idle) - _gone(idle)
            self.found.codes[f"idle {kind} connections"] += open_ones
            if open_ones > self._limit:
                self.found.faults.append(f"{open_ones} {kind} connections, past the limit")
            grown = self._resident() - before
            self.found.codes[f"MiB for idle {kind} connections"] += grown >> 20
        until(lambda: _reached(self._server), "there is room again")

    def _resets(self, caller: Peer, many: int) -> None:
        """Calls that are reset as soon as they are begun, some with their message."""
        message = evaluate_request().SerializeToString()
        left = many
        while left > 0:
            with suppress(OSError), http2.Http2Connection(self._server.address, EVALUATE) as flood:
                self.found.codes["connections of resets"] += 1
                while left > 0:
                    flood._socket.sendall(_begun_and_reset(flood, message, min(BATCH, left)))
                    left -= BATCH
                    _drain(flood._socket)
            left -= BATCH
            self._answers(caller)
        self.found.sent += many
        self.found.codes["resets"] += many

    def _slow(self, caller: Peer, many: int) -> None:
        """Calls whose message begins and never ends."""
        with ExitStack() as held:
            for _ in range(many):
                with suppress(OSError):
                    slow = held.enter_context(http2.Http2Connection(self._server.address, EVALUATE))
                    stream = slow.open_stream()
                    slow._socket.sendall(http2._frame(http2._DATA, 0, stream, b"\0\0\0\1\0x"))
            self._answers(caller)
            self.found.sent += many
            self.found.codes["calls without end"] += many

    def _answers(self, caller: Peer) -> None:
        """Others are served."""
        try:
            answer = caller.engine.EvaluatePod(evaluate_request(), timeout=PATIENCE)
        except grpc.RpcError as error:
            self.found.faults.append(f"a caller beside them: {error.code()} {error.details()}")
        else:
            self.found.codes["answers to others"] += 1
            feasible = answer.feasible_node_count
            if feasible != 1:
                self.found.faults.append(f"a caller beside them: {feasible} nodes")

    def _at_rest(self) -> bool:
        status, page = self._server.get("/metrics")
        gauges = {"topospread_queue_depth", "topospread_inflight_calls"}
        return status == 200 and not any(
            value for (name, _), value in samples(page.encode()).items() if name in gauges
        )

    def _resident(self) -> int:
        with open(f"/proc/{self._server.process.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096


def _greeted(address: str) -> socket.socket:
    """A connection of HTTP/2 that is set up."""
    return http2.Http2Connection(address, EVALUATE)._socket


def _asked(address: str) -> socket.socket:
    """A connection of HTTP that asked once."""
    host, _, port = address.rpartition(":")
    raw = socket.create_connection((host, int(port)), timeout=PATIENCE)
    try:
        raw.sendall(PAGE)
    except ConnectionError:
        raw.close()
        raise
    return raw


def _gone(connections: Sequence[socket.socket]) -> int:
    """How many of them the server has closed."""
    return sum(map(_drain, connections))


def _drain(raw: socket.socket) -> bool:
    """Read what there is; whether the other side has closed the connection."""
    raw.setblocking(False)
    try:
        while raw.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        raw.settimeout(PATIENCE)
    return True


def _begun_and_reset(flood: http2.Http2Connection, message: bytes, many: int) -> bytes:
    frames = []
    for number in range(many):
        stream, block = flood._begin()
        frames.append(http2._frame(http2._HEADERS, http2._END_HEADERS, stream, block))
        if number % 2:
            frames.append(http2._data(stream, message, http2._END_STREAM))
        frames.append(http2._frame(http2._RST, 0, stream, b"\0\0\0\x08"))
    return b"".join(frames)


def _reached(server: ServerProcess) -> bool:
    """Whether a newcomer of each kind is served."""
    try:
        with Peer(server.address) as late:
            late.engine.EvaluatePod(evaluate_request(), timeout=PATIENCE)
        return server.get("/livez")[0] == 200
    except (grpc.RpcError, OSError):
        return False


def flooded(many: int) -> Findings:
    """A campaign against a server of its own, which lets nine tenths of them in."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = many - many // 10
    arguments = ("--store", "memory:", "--http", "127.0.0.1:0", "--max-connections", str(limit))
    try:
        with ServerProcess(*arguments) as server:
            return Flood(server, limit).run(many)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@campaign(
    "floods",
    click.option("--peers", type=click.IntRange(10), default=10_000, show_default=True),
)
def command(peers: int) -> Outcome:
    """Open idle connections, reset calls and send calls without end, so many of each kind.

    A caller beside them must be answered, and --max-connections kept.
    """
    return flooded(peers).outcome()


if __name__ == "__main__":
    sys.exit(run(command))
