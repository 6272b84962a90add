"""Lists that are cut while they are sent: whoever cuts, and when, nothing that was stored is lost.

Each try sends a ReplaceObjects of other nodes than those that are stored, and cuts it at a random
message and moment. Half of the tries never send their commit; the others go on while they are cut,
so that the commit may still arrive. What is stored afterwards must be what was stored before, or
the whole list if its commit was sent.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click
import grpc
from typing_extensions import override

from bench.campaigns.campaign import Outcome, campaign, run, seed_option
from bench.campaigns.findings import Findings
from tests.redis_server import ROOT, RedisProcess, default_redis_binary
from tests.relays import Relay
from tests.servers import Peer, ServerProcess, node
from tests.telemetry.expositions import samples, value
from tests.waiting import PATIENCE, until
from topospread_client import Client
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NODES: Final = 50
PADDING: Final = "x" * 1000
"""Of each node, in an annotation, which is sent and not stored: a list is some 60 KB."""

SLOW: Final = 400_000
"""Bytes a second of a slow link: a list takes a sixth of a second."""

LONGEST: Final = {"plain": 0.03, "slow": 0.2}
"""Seconds after the chosen message within which the cut comes."""

KINDS: Final = {
    "cancelled call": 24,
    "deadline": 22,
    "closed channel": 23,
    "error of the sender": 18,
    "killed client": 5,
    "stopped server": 4,
    "killed server": 4,
}
"""Kinds of cut, and how many of a hundred tries have each; where a process ends, another starts."""

BEGUN: Final = ("cancelled call", "closed channel", "half-closed")
"""Kinds of cut that are tried once the server has begun the call."""

SETTLED: Final = 2.0
"""Seconds in which a call that was cut is known to the server; one that takes longer never came."""

SETTLED_WHOLE: Final = 20.0
"""The same of a call whose commit was sent: if it came later, the next try would be blamed."""


KILLED: Final = "--to-be-killed"
"""The first argument of the process of a client that is killed."""


class BrokenListError(Exception):
    """What a sender raises in the middle of its list."""


class Sender:
    """The messages of a list, up to the one at which it is cut.

    Args:
        messages: of a whole ReplaceObjects.
        at: which of them is not sent before `there` is set.
        waits: whether it stays there until `over` is set, and sends no more.
        breaks: seconds after which it fails there; None: it does not.

    Attributes:
        whole: the last message is on its way.
    """

    def __init__(
        self,
        messages: Sequence[pb.ReplaceObjectsRequest],
        at: int,
        *,
        waits: bool,
        breaks: float | None = None,
    ) -> None:
        self.there = threading.Event()
        self.over = threading.Event()
        self.whole = False
        self._messages = messages
        self._at = at
        self._waits = waits
        self._breaks = breaks

    def __iter__(self) -> Iterator[pb.ReplaceObjectsRequest]:
        for number, message in enumerate(self._messages):
            if number == self._at:
                self.send_word("there")
                self.there.set()
                if self._breaks is not None:
                    time.sleep(self._breaks)
                    raise BrokenListError
                if self._waits:
                    self.over.wait(PATIENCE)
                    return
            if number == len(self._messages) - 1:
                self.whole = True
                self.send_word("whole")
            yield message

    def send_word(self, word: str) -> None:
        """Called at the chosen message with "there", and before the last one with "whole"."""


class Link(Relay):
    """A way to a server that carries so many bytes a second towards it, all that it was given."""

    def __init__(self, target: str, rate: int) -> None:
        self._rate = rate
        super().__init__(target)

    def _there(self, caller: socket.socket, server: socket.socket) -> None:
        self._carry(caller, server, 1024)

    def _back(self, server: socket.socket, caller: socket.socket) -> None:
        self._carry(server, caller, 0)

    def _carry(self, source: socket.socket, target: socket.socket, at_once: int) -> None:
        """Carry bytes one way, `at_once` at a time; 0: as they come."""
        with suppress(OSError):
            while content := source.recv(at_once or 1 << 16):
                target.sendall(content)
                if at_once:
                    time.sleep(len(content) / self._rate)
        # The other direction ends as well: neither side waits for one that has gone.
        for end in (target, source):
            with suppress(OSError):
                end.shutdown(socket.SHUT_WR)


class Cuts:
    """Tries on one server, which is started anew where it ends.

    Args:
        store: of the server.
        chance: everything random.
        found: what it comes to.
    """

    def __init__(self, store: str, *, chance: random.Random, found: Findings) -> None:
        self._store = store
        self._chance = chance
        self._found = found
        self._number = 0
        self._running = ExitStack()
        self._serve()
        self._peer.apply(*(node(f"base-{n}", "a") for n in range(NODES)))
        self._held = self._names()

    def close(self) -> None:
        """End the server."""
        self._running.close()

    def _serve(self) -> None:
        options = (
            "--http",
            "127.0.0.1:0",
            "--shutdown-grace-period",
            "0.2",
            "--log-level",
            "error",
        )
        self._server = self._running.enter_context(ServerProcess("--store", self._store, *options))
        self._peer = self._running.enter_context(Peer(self._server.address))
        self._client = self._running.enter_context(Client(self._server.address))

    def cut_begun(self, kind: str) -> None:
        """Make one try that the server surely sees, however slow it is.

        Its sender waits at a message, and the cut comes after the server has begun the call.
        """
        until(lambda: not self._busy(), "the server is done with what came before")
        before = self._ended()
        names = self._next_names()
        messages = messages_of(names, self._chance)
        at = self._chance.randrange(1, len(messages))
        moment = self._chance.uniform(0, LONGEST["plain"])
        whole, ended = self._cut_here(
            kind, self._server.address, messages, at, moment, waits=True, begun=self._busy
        )
        until(lambda: self._ended() > before, "the server is done with the call")
        self._found.codes["seen by the server"] += 1
        self._judge(f"{kind}, begun, waits at message {at}", set(names), whole=whole, ended=ended)

    def cut(self, kind: str, link: str) -> None:
        """Make one try, and judge what it left."""
        chance = self._chance
        names = self._next_names()
        messages = messages_of(names, chance)
        at, waits = chance.randrange(len(messages)), chance.random() < 0.5
        moment = chance.uniform(0, LONGEST[link])
        before = self._ended()
        with ExitStack() as around:
            address = self._server.address
            if link == "slow":
                address = around.enter_context(Link(address, SLOW)).address
            if kind == "killed client":
                whole, ended = killed_client(address, names, at, moment, waits=waits)
            else:
                whole, ended = self._cut_here(kind, address, messages, at, moment, waits=waits)
        if not kind.endswith("server"):
            self._settle(before, SETTLED_WHOLE if whole else SETTLED)
        what = f"{kind}, {link} link, {'waits' if waits else 'goes on'} at message {at}"
        self._judge(what, set(names), whole=whole, ended=ended)

    def _cut_here(
        self,
        kind: str,
        address: str,
        messages: Sequence[pb.ReplaceObjectsRequest],
        at: int,
        moment: float,
        *,
        waits: bool,
        begun: Callable[[], bool] = lambda: True,
    ) -> tuple[bool, str]:
        """Whether the commit was sent, and how the call ended for its caller."""
        breaks = moment if kind == "error of the sender" else None
        sender = Sender(messages, at, waits=waits, breaks=breaks)
        with Peer(address) as peer:
            # A deadline begins before the message is reached, which takes some milliseconds.
            timeout = moment + 0.01 if kind == "deadline" else PATIENCE
            call = peer.state.ReplaceObjects.future(iter(sender), timeout=timeout)
            sender.there.wait(timeout)
            until(begun, "the server has begun the call")
            if kind not in {"deadline", "error of the sender"}:
                time.sleep(moment)
            if kind == "cancelled call":
                call.cancel()
            elif kind == "closed channel":
                peer.channel.close()
            elif kind == "half-closed":
                sender.over.set()
            elif kind == "stopped server":
                self._end(signal.SIGTERM)
            elif kind == "killed server":
                self._end(signal.SIGKILL)
            ended = code_of(call)
            sender.over.set()
        return sender.whole, ended

    def _end(self, number: signal.Signals) -> None:
        """End the server by a signal, and start another one on its store."""
        self._server.end(number)
        self._running.close()
        self._serve()

    def _judge(self, what: str, listed: set[str], *, whole: bool, ended: str) -> None:
        found, there = self._found, self._names()
        found.sent += 1
        lost = self._held - there
        if ended != "OK":
            found.codes["cut before the commit was sent" if not whole else "cut after it"] += 1
        if there == self._held and ended != "OK":
            found.codes["changed nothing"] += 1
        elif there == listed and whole:
            found.codes["replaced as a whole"] += 1
        else:
            found.codes["tries that lost or changed something"] += 1
            found.codes["objects lost"] += len(lost)
            more = len(there - self._held)
            found.faults.append(f"{what}: {ended}: {len(lost)} objects lost, {more} others there")
        self._held = there
        if not there:
            self._peer.apply(*(node(f"base-{n}", "a") for n in range(NODES)))
            self._held = self._names()

    def _next_names(self) -> list[str]:
        """Of the nodes of one more try."""
        self._number += 1
        return [f"t{self._number}-{n}" for n in range(NODES)]

    def _names(self) -> set[str]:
        newest = {"fully_consistent": True}
        return {
            each.node.metadata.name
            for each in self._client.list_objects("NODE", consistency=newest)
        }

    def _metrics(self) -> bytes:
        status, page = self._server.get("/metrics")
        assert status == 200
        return page.encode()

    def _busy(self) -> bool:
        """Whether the server works on a call that reads or writes objects."""
        return bool(value(self._metrics(), "topospread_inflight_calls", pool="state"))

    def _ended(self) -> float:
        """Calls of ReplaceObjects that have ended on the server, in whatever way."""
        return sum(
            many
            for (name, labels), many in samples(self._metrics()).items()
            if name == "topospread_calls_total"
            and ("method", "ClusterStateService/ReplaceObjects") in labels
        )

    def _settle(self, before: float, seconds: float) -> None:
        """Wait until the server is done with the call, if it has seen it at all."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if self._ended() > before:
                self._found.codes["seen by the server"] += 1
                return
            time.sleep(0.005)


def messages_of(names: Sequence[str], chance: random.Random) -> list[pb.ReplaceObjectsRequest]:
    """A ReplaceObjects of nodes with these names, in batches of one to ten."""
    nodes = []
    for name in names:
        made = node(name, "a")
        made.node.metadata.annotations["padding"] = PADDING
        nodes.append(made)
    messages = [pb.ReplaceObjectsRequest(start=pb.ReplaceStart(kind=common_pb2.KIND_NODE))]
    while nodes:
        size = chance.randint(1, 10)
        messages.append(pb.ReplaceObjectsRequest(batch=pb.ReplaceBatch(objects=nodes[:size])))
        del nodes[:size]
    commit = pb.ReplaceCommit(object_count=len(names))
    return [*messages, pb.ReplaceObjectsRequest(commit=commit)]


def code_of(call: Any) -> str:
    """How a call ended for its caller."""
    try:
        call.result(PATIENCE)
    except grpc.FutureCancelledError:
        return "CANCELLED"
    except (grpc.RpcError, ValueError) as error:
        code = getattr(error, "code", None)
        return code().name if code is not None else type(error).__name__
    return "OK"


def killed_client(
    address: str, names: Sequence[str], at: int, moment: float, *, waits: bool
) -> tuple[bool, str]:
    """A client that is killed: whether it has sent its commit, and how its call ended."""
    given = [address, str(at), str(int(waits)), *names]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.campaigns.cuts", KILLED, *given],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "there\n"
        time.sleep(moment)
        client.kill()
        said = client.stdout.read().split()
    return "whole" in said, "OK" if "OK" in said else "killed"


class Speaking(Sender):
    """Says on stdout where it is, for the process that kills it."""

    @override
    def send_word(self, word: str) -> None:
        sys.stdout.write(f"{word}\n")
        sys.stdout.flush()


def client_to_be_killed(address: str, at: str, waits: str, *names: str) -> None:
    """Send a list; say when the chosen message is reached."""
    messages = messages_of(names, random.Random(at))
    sender = Speaking(messages, min(int(at), len(messages) - 1), waits=waits == "1")
    with Peer(address) as peer:
        call = peer.state.ReplaceObjects.future(iter(sender), timeout=PATIENCE)
        sender.send_word(code_of(call))


def cut(many: int, seed: int) -> Findings:
    """So many tries, half of them on each of two stores.

    A half begins with one more try for each kind of BEGUN, which the server surely sees.
    """
    found = Findings()
    chance = random.Random(seed)
    kinds = [kind for kind, share in KINDS.items() for _ in range(share)]
    chance.shuffle(kinds)
    # Few tries have all kinds, too.
    kinds = [*KINDS, *kinds]
    with TemporaryDirectory() as folder:
        durable = {"appendonly": "yes", "appendfsync": "always"}
        redis = RedisProcess(Path(folder) / "redis", options=durable, binary=default_redis_binary())
        with redis:
            stores = (f"sqlite://{folder}/state.db", redis.url)
            for number, store in enumerate(stores):
                cuts = Cuts(store, chance=chance, found=found)
                try:
                    for kind in BEGUN:
                        cuts.cut_begun(kind)
                    for each in range(many * number // 2, many * (number + 1) // 2):
                        link = "slow" if chance.random() < 0.5 else "plain"
                        cuts.cut(kinds[each % len(kinds)], link)
                finally:
                    cuts.close()
    return found


@campaign(
    "cuts",
    click.option("--tries", type=click.IntRange(1), default=1000, show_default=True),
    seed_option,
)
def command(tries: int, seed: int) -> Outcome:
    """Cut lists of ReplaceObjects while they are sent, on both stores; nothing stored may be lost.

    The call is cancelled, runs out of time, loses its channel or sender, or its client or server
    is killed.
    """
    return cut(tries, seed).outcome()


if __name__ == "__main__":
    if sys.argv[1:2] == [KILLED]:
        client_to_be_killed(*sys.argv[2:])
    else:
        sys.exit(run(command))
