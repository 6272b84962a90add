"""What callers can make a server keep: attacks on its memory, each with the peak that it reached.

Unauthenticated attacks show no credential to a server with an access file; the others have the role
`decide`. A caller beside them asks all the while.
"""

from __future__ import annotations

import resource
import socket
import ssl
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Self

import click
import grpc
import trustme

from bench.campaigns import attacker
from bench.campaigns.attacker import Line
from bench.campaigns.campaign import MIB, Outcome, campaign, note, run, server_flag_option
from bench.campaigns.measured import AS_SHIPPED
from tests.access.callers import AccessFile
from tests.servers import Peer, ServerProcess, evaluate_request, node, pod, two_zones
from topospread.rpc.server import MAX_UNTAKEN
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
REFLECT: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
EVALUATE: Final = "/topospread.v1.DecisionService/EvaluatePod"
APPLY: Final = "/topospread.v1.ClusterStateService/ApplyObjects"
LIST: Final = "/topospread.v1.ClusterStateService/ListObjects"
STATE_WATCH: Final = "/topospread.v1.ClusterStateService/WatchObjects"
UNKNOWN: Final = "/nothing.Nothing/Nothing"
LONG: Final = 15 * MIB

UNAUTHENTICATED: Final = 200
"""MiB that attacks without a credential may add for a moment."""

CALLERS: Final = 450
"""The same for those of callers with a role."""


@dataclass
class Target:
    """A server under attack.

    Attributes:
        address: of gRPC.
        http: host:port of HTTP.
        pids: of its processes.
        bearer: header of a caller with a role.
        other: the same of the caller beside it.
        tls: to speak to it.
        revision: before most of its state was there.
    """

    address: str
    http: str
    pids: Sequence[int]
    bearer: tuple[bytes, bytes]
    other: tuple[bytes, bytes]
    tls: ssl.SSLContext | None = None
    revision: str = ""
    opened: ExitStack = field(default_factory=ExitStack)

    def line(self, takes: int = 2**31 - 1) -> Line:
        """One more connection, open until the attack is over."""
        line = Line(self.address, self.tls, takes)
        self.opened.callback(line.close)
        return line

    def raw(self) -> socket.socket:
        """One more connection of HTTP/1."""
        host, _, port = self.http.rpartition(":")
        raw = socket.create_connection((host, int(port)), 30.0)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            raw = self.tls.wrap_socket(raw, server_hostname=host)
        self.opened.callback(raw.close)
        return raw

    def resident(self) -> int:
        """Bytes of memory that its processes have."""
        return sum(_status(pid, "VmRSS") for pid in self.pids)

    def peak(self) -> int:
        """The most that they had since :meth:`forget`."""
        return sum(_status(pid, "VmHWM") for pid in self.pids)

    def forget(self) -> None:
        """Begin anew with the peak."""
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise AssertionError(f"{name} is not said of {pid}")


# ------------------------------ attacks without a credential


def packed_checks(target: Target, many: int) -> int:
    """Health/Checks of 15 kB that unpack to 15 MiB."""
    return _calls(target, CHECK, attacker.packed(LONG), many, 50)


def long_checks(target: Target, many: int) -> int:
    """Health/Checks with messages of 15 MiB, whose last byte does not come."""
    return _calls(target, CHECK, attacker.plain(LONG, 1), many, 50)


def long_calls(target: Target, many: int) -> int:
    """Calls of all kinds with such messages."""
    sent = 0
    for path in (EVALUATE, APPLY, LIST, REFLECT, UNKNOWN):
        sent += _calls(target, path, attacker.plain(LONG, 1), many // 5, 50)
    return sent


def watches(target: Target, many: int) -> int:
    """Health/Watches that stay."""
    return _calls(target, WATCH, attacker.short(), many, 1000, takes=0)


def untaken_checks(target: Target, many: int) -> int:
    """Health/Checks whose answers are not taken."""
    return _calls(target, CHECK, attacker.short(), many, 1000, takes=0)


def idle_lines(target: Target, many: int) -> int:
    """Connections of gRPC that say hello and nothing more."""
    for _ in range(many):
        with suppress(OSError):
            target.line()
    return 0


def idle_pages(target: Target, many: int) -> int:
    """Connections of HTTP that ask for a page and stay."""
    for _ in range(many):
        with suppress(OSError):
            target.raw().sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
    return 0


def reset_pages(target: Target, many: int) -> int:
    """Connections of HTTP that ask for a page and are reset."""
    for _ in range(many):
        with suppress(OSError):
            raw = target.raw()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            raw.recv(4096)
            raw.close()
    return 0


def long_heads(target: Target, many: int) -> int:
    """Heads of HTTP requests that do not end, of as many fields as there is room for."""
    head = b"GET /livez HTTP/1.1\r\n" + b"a:\r\n" * 15_000
    return _sent(target, head, many)


def refused_bodies(target: Target, many: int) -> int:
    """Bodies over HTTP of who shows nothing."""
    head = (
        b"POST /extender/v1/default/filter HTTP/1.1\r\nhost: x\r\ncontent-length: 66060288\r\n\r\n"
    )
    return _sent(target, head + bytes(8 * MIB), many)


# ------------------------------ attacks of callers with a role


def long_bodies(target: Target, many: int) -> int:
    """Bodies over HTTP of 63 MiB, whose last byte does not come."""
    name, value = target.bearer
    head = b"POST /extender/v1/default/filter HTTP/1.1\r\nhost: x\r\n" + name + b": " + value
    head += b"\r\ncontent-length: 66060289\r\n\r\n"
    return _sent(target, head, many, zeros=63 * MIB)


def long_evaluates(target: Target, many: int) -> int:
    """Calls of EvaluatePod with messages of 15 MiB, whose last byte does not come."""
    return _calls(target, EVALUATE, attacker.plain(LONG, 1), many, 50, credential=True)


def packed_evaluates(target: Target, many: int) -> int:
    """Calls of EvaluatePod of 15 kB that unpack to 15 MiB."""
    message = evaluate_request().SerializeToString()
    return _calls(target, EVALUATE, attacker.packed(LONG, message), many, 100, credential=True)


def untaken_lists(target: Target, many: int) -> int:
    """Lists of some 3 MiB that are not taken."""
    request = pb.ListObjectsRequest(kind=common_pb2.KIND_POD, page_size=5000).SerializeToString()
    body = attacker.short(request)
    lines = [target.line(0) for _ in range(6)]
    for number in range(many):
        lines[number % 6].call(LIST, body, (target.bearer,))
        # No more than the line of calls takes.
        if number % 60 == 59:
            attacker.pump(lines, 1.0)
            time.sleep(4.0)
    attacker.pump(lines, 1.0)
    return sum(line.sent for line in lines)


def untaken_watches(target: Target, many: int) -> int:
    """Watches from the beginning, which are not taken."""
    request = pb.WatchObjectsRequest(revision=target.revision).SerializeToString()
    body = attacker.short(request)
    return _calls(target, STATE_WATCH, body, many, 100, takes=0, credential=True)


def untaken_evaluates(target: Target, many: int) -> int:
    """Calls of EvaluatePod whose answers are not taken."""
    body = attacker.short(evaluate_request().SerializeToString())
    return _calls(target, EVALUATE, body, many, 1000, takes=0, credential=True)


def _calls(
    target: Target,
    path: str,
    body: attacker.Body,
    many: int,
    each: int,
    *,
    takes: int = 2**31 - 1,
    credential: bool = False,
    seconds: float = 20.0,
) -> int:
    """So many calls, `each` on one connection; returns the bytes of bodies that were sent."""
    lines = []
    for begun in range(0, many, each):
        with suppress(OSError):
            line = target.line(takes)
            for _ in range(min(each, many - begun)):
                line.call(path, body, (target.bearer,) * credential)
            lines.append(line)
    attacker.pump(lines, seconds)
    return sum(line.sent for line in lines)


def _sent(target: Target, head: bytes, many: int, zeros: int = 0) -> int:
    """The same bytes on so many connections, as far as they are taken."""
    sent = 0
    raws = []
    for _ in range(many):
        with suppress(OSError):
            raw = target.raw()
            raw.settimeout(0.2)
            raws.append((raw, [head]))
    if zeros:
        raws = [(raw, [*left, *[bytes(MIB)] * (zeros // MIB)]) for raw, left in raws]
    deadline = time.monotonic() + 25.0
    while raws and time.monotonic() < deadline:
        going = []
        for raw, left in raws:
            piece = left.pop(0)
            try:
                done = raw.send(piece)
            except TimeoutError:
                done = 0
            except OSError:
                continue
            sent += done
            if done < len(piece):
                left.insert(0, piece[done:])
            if left:
                going.append((raw, left))
        raws = going
    return sent


ATTACKS: Final[Sequence[tuple[Callable[[Target, int], int], int, bool]]] = (
    (packed_checks, 500, True),
    (long_checks, 300, True),
    (long_calls, 500, True),
    (watches, 20_000, True),
    (untaken_checks, 20_000, True),
    (idle_lines, 5000, True),
    (idle_pages, 5000, True),
    (reset_pages, 2000, True),
    (long_heads, 1000, True),
    (refused_bodies, 200, True),
    (long_bodies, 57, False),
    (long_evaluates, 300, False),
    (packed_evaluates, 1000, False),
    (untaken_lists, 600, False),
    (untaken_watches, 100, False),
    (untaken_evaluates, 20_000, False),
)
"""Each with how much of it is tried, and whether it is made without a credential."""


class Witness:
    """A caller with a role that asks one question after the other.

    Attributes:
        answered: questions.
        failures: how others ended, and after how long.
        dropped: those of them that gRPC dropped: more than MAX_UNTAKEN came at once.
        slowest: seconds of the one that took longest.
    """

    def __init__(self, target: Target, channel: grpc.Channel) -> None:
        self.answered = self.dropped = 0
        self.failures: list[str] = []
        self.slowest = 0.0
        self._over = threading.Event()
        name, value = target.other
        self._metadata = ((name.decode(), value.decode()),)
        self._ask: Any = channel.unary_unary(EVALUATE)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        request = evaluate_request().SerializeToString()
        while not self._over.wait(0.1):
            began = time.monotonic()
            try:
                self._ask(request, timeout=60.0, metadata=self._metadata)
                self.answered += 1
            except grpc.RpcError as error:
                took = time.monotonic() - began
                self.dropped += error.code() is grpc.StatusCode.CANCELLED
                self.failures.append(f"{error.code().name} in {took:.2f} s: {error.details()}")
            self.slowest = max(self.slowest, time.monotonic() - began)


def unauthenticated_at_once(target: Target, many: int) -> int:
    """All attacks without a credential beside each other; `many` is a percentage of each."""
    return _beside(target, many, [each for each in ATTACKS if each[2]])


def at_once(target: Target, many: int) -> int:
    """All attacks beside each other; `many` is a percentage of each."""
    return _beside(target, many, ATTACKS)


AT_ONCE: Final = ((unauthenticated_at_once, 100, True), (at_once, 100, False))


def _beside(
    target: Target, many: int, attacks: Sequence[tuple[Callable[[Target, int], int], int, bool]]
) -> int:
    with ThreadPoolExecutor(len(attacks)) as attackers:
        return sum(
            attackers.map(lambda each: each[0](target, max(1, each[1] * many // 100)), attacks)
        )


def loaded(peer: Peer, bearer: Any, pods: int = 5000) -> None:
    """Pods with long labels, so that a page of them is large."""
    labels = {f"label-{number}": "x" * 60 for number in range(9)}
    objects = [node(f"n{number}", "a") for number in range(50)]
    for number in range(pods):
        one = pod(f"pod-{number}", f"n{number % 50}", app="other")
        one.pod.metadata.labels.update(labels)
        objects.append(one)
    for at in range(0, len(objects), 500):
        request = pb.ApplyObjectsRequest(objects=objects[at : at + 500])
        peer.state.ApplyObjects(request, timeout=60.0, metadata=bearer)


def attacked(
    attack: Callable[[Target, int], int],
    many: int,
    *,
    flags: Sequence[str] = (),
    tls: bool = False,
    settle: float = 30.0,
) -> dict[str, float]:
    """One attack on a server of its own; what it came to, in MiB and seconds."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "access.yaml"
        access = AccessFile(path, caller=["write", "decide"], other=["decide"])
        ((_, bearer),) = access.bearer("caller")
        ((_, other),) = access.bearer("other")
        arguments = [
            "--store",
            f"sqlite:///{folder}/state.db",
            "--http",
            "127.0.0.1:0",
            "--extender",
            "filter",
        ]
        arguments += ["--access-file", str(access), "--log-level", "error", *flags]
        context = credentials = None
        if tls:
            authority = trustme.CA()
            pem = Path(folder) / "server.pem"
            authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
            arguments += ["--tls-cert", str(pem), "--tls-key", str(pem)]
            context = ssl.create_default_context()
            authority.configure_trust(context)
            context.set_alpn_protocols(["h2"])
            credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        server = stack.enter_context(ServerProcess(*arguments, **AS_SHIPPED))
        pids = [server.process.pid]
        http = server.http.rpartition("/")[2]
        own, others = ((b"authorization", each.encode()) for each in (bearer, other))
        target = Target(server.address, http, pids, own, others, context)
        peer = stack.enter_context(Peer(server.address, credentials))
        metadata = (("authorization", bearer),)
        request = pb.ApplyObjectsRequest(objects=two_zones())
        target.revision = peer.state.ApplyObjects(
            request, timeout=60.0, metadata=metadata
        ).meta.revision
        if attack in (untaken_lists, untaken_watches, at_once):
            loaded(peer, metadata)
        for _ in range(50):
            peer.engine.EvaluatePod(evaluate_request(), timeout=60.0, metadata=metadata)
        target.forget()
        before = target.resident()
        with Witness(target, peer.channel) as witness:
            began = time.monotonic()
            with target.opened:
                sent = attack(target, many)
                time.sleep(min(settle, 2.0))
                took = time.monotonic() - began
                held = target.resident()
                time.sleep(settle)
                later = target.resident()
            time.sleep(settle)
        for failure in witness.failures:
            sys.stderr.write(f"the witness's call: {failure}\n")
        return {
            "sent": sent / MIB,
            "before": before / MIB,
            "peak": target.peak() / MIB,
            "held": held / MIB,
            "later": later / MIB,
            "after": target.resident() / MIB,
            "seconds": took,
            "answered": witness.answered,
            "failed": len(witness.failures) - witness.dropped,
            "dropped": witness.dropped,
            "slowest": witness.slowest,
        }


def open_files() -> None:
    """Have as many as this process may."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@campaign(
    "memory",
    click.option(
        "--only", multiple=True, metavar="NAME", help="This attack alone; may be repeated."
    ),
    click.option("--scale", type=float, default=1.0, show_default=True, help="Of each attack."),
    click.option("--settle", type=float, default=30.0, show_default=True, help="Seconds."),
    click.option("--tls/--no-tls", default=None, help="[default: both, one after the other]"),
    click.option("--at-once", is_flag=True, help="All attacks beside each other."),
    server_flag_option,
)
def command(
    only: tuple[str, ...],
    scale: float,
    settle: float,
    tls: bool | None,
    at_once: bool,
    server_flags: tuple[str, ...],
) -> Outcome:
    """Make a server hold memory, in each way that a hostile caller has; figures are MiB.

    Of an attack alone docs/security.md promises that it adds at most 200 MiB without a credential
    and 450 with a role, that little stays, and that another caller is answered meanwhile.
    """
    open_files()
    figures, broken = {}, []
    for attack, many, unauthenticated in AT_ONCE if at_once else ATTACKS:
        if only and attack.__name__ not in only:
            continue
        for encrypted in (False, True) if tls is None else (tls,):
            name = f"{attack.__name__}{', TLS' * encrypted}"
            note(f"memory: {name}")
            calls = max(1, int(many * scale))
            came = attacked(attack, calls, flags=server_flags, tls=encrypted, settle=settle)
            figures[name] = {key: round(value, 1) for key, value in came.items()}
            grown = came["peak"] - came["before"]
            if not at_once and grown > (UNAUTHENTICATED if unauthenticated else CALLERS):
                broken.append(f"{name}: {grown:.0f} MiB more at its peak")
            if (left := came["after"]) > 1.5 * came["before"] + 50:
                broken.append(f"{name}: {left:.0f} MiB are left, {came['before']:.0f} were before")
            # More calls at once than gRPC keeps are dropped before the server knows of them.
            if failed := came["failed"] + (came["dropped"] if many < MAX_UNTAKEN else 0):
                broken.append(f"{name}: {failed:.0f} calls of another caller failed")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
