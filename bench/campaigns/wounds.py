"""Nine requests and events that once stopped a server, filled it, or made it lose or forge."""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Self

import click
import grpc
import trustme

from bench.campaigns import abandoned, memory
from bench.campaigns.campaign import (
    MIB,
    Outcome,
    campaign,
    nodes_option,
    note,
    pods_option,
    run,
    seed_option,
)
from bench.campaigns.cuts import BEGUN, Cuts
from bench.campaigns.findings import Findings
from bench.campaigns.grown import pod
from bench.campaigns.heavy import EVALUATE, QUESTION
from bench.campaigns.measured import AS_SHIPPED, Measured, load
from bench.cluster import Size
from bench.processes import server
from bench.stores import filled_store
from tests.app.handshakes import FORGED, hello
from tests.servers import Peer, ServerProcess, node, two_zones
from tests.waiting import PATIENCE
from topospread.telemetry.logs import MAX_QUEUED
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.decision_service_pb2 import EvaluatePodRequest, ExplainPodRequest
from topospread_proto.v1.placement_service_pb2 import PlacePodRequest, ReleaseReservationRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LONG_NAME: Final = "a-" * 20_480
"""40 KiB."""

RESOURCES: Final = 3000
TIMES: Final = 25
WRITES: Final = 12
HANDSHAKES: Final = 100
CHECKS: Final = 500
STOP_SECONDS: Final = 5.0
PIPE: Final = 4096
"""Bytes of the smallest that there is."""

SEVERAL: Final = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}


@dataclass(frozen=True, slots=True)
class Wound:
    """What one of them came to.

    Attributes:
        measured: what it is.
        value: of it.
        most: that it may be.
        tried: requests, cuts, or handshakes.
        fault: what else is wrong, or why the value says nothing; empty: nothing is.
    """

    measured: str
    value: float
    most: float
    tried: int
    fault: str = ""


class Another:
    """Asks EvaluatePod and /livez one after the other; a context manager.

    Attributes:
        longest: seconds that one of its requests took.
        failed: requests that were not answered.
    """

    def __init__(self, served: ServerProcess) -> None:
        self.longest, self.failed = 0.0, 0
        self._served = served
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with Peer(self._served.address) as peer:
            ask: Any = peer.channel.unary_unary(EVALUATE)
            ask(QUESTION, timeout=PATIENCE)
            while not self._over.is_set():
                for request in (
                    lambda: ask(QUESTION, timeout=PATIENCE),
                    lambda: self._served.get("/livez"),
                ):
                    began = time.monotonic()
                    try:
                        request()
                    except (grpc.RpcError, OSError):
                        self.failed += 1
                    self.longest = max(self.longest, time.monotonic() - began)


@contextmanager
def loaded(nodes: int, pods: int) -> Iterator[tuple[ServerProcess, Measured, Path]]:
    """A server of its own with a cluster, and its log."""
    arguments = ("--store", "memory:", "--http", "127.0.0.1:0")
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with ServerProcess(*arguments, stderr=str(log), **AS_SHIPPED) as served:
            measured = Measured(served.process.pid, served.address)
            load(measured, nodes, pods)
            measured.call(EVALUATE, QUESTION)
            yield served, measured, log


def long_name(nodes: int, pods: int, _: int) -> Wound:
    """Names of 40 KiB in calls that are refused, and whose refusal goes to the audit log."""
    release = ReleaseReservationRequest(pod=common_pb2.PodReference(name=LONG_NAME))
    method = "/topospread.v1.PlacementService/ReleaseReservation"
    with loaded(nodes, pods) as (served, measured, log):
        with Another(served) as another:
            for _ in range(TIMES):
                measured.call(method, release.SerializeToString())
        served.end()
        refused = log.read_text().count("ReleaseReservation INVALID_ARGUMENT")
    recorded = refused >= TIMES and not another.failed
    fault = "" if recorded else f"{refused} refusals in the log, {another.failed} failed"
    return Wound("longest wait of another, s", another.longest, 0.5, TIMES, fault)


def cut_replace(_nodes: int, _pods: int, seed: int) -> Wound:
    """Lists of objects whose sender goes or half-closes before it commits."""
    found = Findings()
    with TemporaryDirectory() as folder:
        cuts = Cuts(f"sqlite://{folder}/state.db", chance=random.Random(seed), found=found)
        try:
            for kind in BEGUN * 4:
                cuts.cut_begun(kind)
        finally:
            cuts.close()
    lost = found.codes["objects lost"] + len(found.faults)
    seen = found.codes["changed nothing"] + len(found.faults) == found.sent
    fault = "" if seen else f"not all were cut: {dict(found.codes)}"
    return Wound("objects lost", lost, 0, found.sent, fault)


def removed_file(_nodes: int, _pods: int, _seed: int) -> Wound:
    """A SQLite file that is removed under a server, to which others go on writing."""
    acknowledged = 0
    with ExitStack() as opened:
        folder = opened.enter_context(TemporaryDirectory())
        flags = ("--store", f"sqlite://{folder}/s.db", "--log-level", "error")
        one = opened.enter_context(ServerProcess(*flags, stderr=f"{folder}/log"))
        with Peer(one.address) as peer:
            peer.apply(*two_zones())
        for file in Path(folder).glob("s.db*"):
            file.unlink()
        for number in range(WRITES):
            with Peer(one.address) as peer, suppress(grpc.RpcError):
                peer.apply(node(f"lost-{number}", "a"))
                acknowledged += 1
    return Wound("writes acknowledged", acknowledged, 0, WRITES)


def many_resources(nodes: int, pods: int, _seed: int) -> Wound:
    """Pods that ask for 3,000 resources: another's wait."""
    made = pod()
    for number in range(RESOURCES):
        made.spec.containers[0].resources.requests[f"example.com/r-{number}"].string = "1"
    source = common_pb2.PodSource(object=made)
    requests = {
        "DecisionService/ExplainPod": ExplainPodRequest(pod=source),
        "PlacementService/PlacePod": PlacePodRequest(pod=source),
        "DecisionService/EvaluatePod": EvaluatePodRequest(pod=source),
    }
    codes = set()
    with loaded(nodes, pods) as (served, measured, _), Another(served) as another:
        before = measured.rss
        for method, request in requests.items():
            sent = request.SerializeToString()
            for _ in range(TIMES):
                cost = measured.call(f"/topospread.v1.{method}", sent)
                codes.add(cost.code)
                another.longest = max(another.longest, cost.cpu)
        kept = (measured.rss - before) / MIB
    fault = "" if codes <= SEVERAL and not another.failed else f"{codes}, {another.failed} failed"
    if kept > memory.UNAUTHENTICATED:
        fault = f"{kept:.0f} MiB are kept"
    figure = "longest wait of another or CPU of one, s"
    return Wound(figure, another.longest, 0.5, TIMES * len(requests), fault)


def packed_checks(_nodes: int, _pods: int, _seed: int) -> Wound:
    """Health checks of callers without a credential, of 15 kB that unpack to 15 MiB."""
    memory.open_files()
    came = memory.attacked(memory.packed_checks, CHECKS, settle=2.0)
    fault = f"{came['failed']:.0f} of another failed" if came["failed"] else ""
    above = came["peak"] - came["before"]
    return Wound("RSS above before, MiB", above, memory.UNAUTHENTICATED, CHECKS, fault)


def cancelled_batches(nodes: int, pods: int, _: int) -> Wound:
    """Batches that are cancelled, and their connection closed: another's wait afterwards."""
    with filled_store(Size(nodes, pods)) as store, server(store) as running:
        spent = abandoned.abandoned(running, "DecisionService/BatchEvaluatePods", abandoned.CALLS)
    fault = "" if "CANCELLED" in spent.codes else f"none was cancelled: {spent.codes}"
    figure = "longest wait of another, s"
    return Wound(figure, spent.slowest / 1e3, 0.05, abandoned.CALLS, fault)


def hostile_sni(_nodes: int, _pods: int, _seed: int) -> Wound:
    """Handshakes that ask for a server whose name is a line of the log, with line breaks."""
    names = [FORGED + b"\x1b[31m", b"\r\n" + FORGED + b"\r\n", b"\xff" * 200]
    with TemporaryDirectory() as folder, ExitStack() as opened:
        pem, log = Path(folder, "server.pem"), Path(folder, "log")
        trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
        arguments = ("--tls-cert", str(pem), "--tls-key", str(pem), "--http", "127.0.0.1:0")
        served = opened.enter_context(
            ServerProcess("--store", "memory:", *arguments, stderr=str(log))
        )
        tried = 0
        for address in (served.address, served.http.rpartition("/")[2]):
            for number in range(HANDSHAKES):
                tried += greeted(address, hello(names[number % len(names)], ["h2"]))
        served.end()
        lines = log.read_bytes().splitlines()
    forged = [each for each in lines if FORGED in each or b"\x1b" in each or b"\xff" in each]
    fault = "" if tried else "no handshake was answered"
    return Wound("lines of the caller in the log", len(forged), 0, tried, fault)


def greeted(address: str, first: bytes) -> bool:
    """Whether a server answers a handshake that begins so."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall(first)
        with suppress(ConnectionError):
            return bool(connection.recv(1))
    return False


@contextmanager
def unread() -> Iterator[tuple[ServerProcess, Peer, str]]:
    """A server whose log is a pipe that nobody reads, and that is full; with what is wrong."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
    flags = ("--store", "memory:", "--http", "127.0.0.1:0")
    refused = ReleaseReservationRequest(pod=common_pb2.PodReference(name="a-"))
    with ExitStack() as opened:
        opened.callback(os.close, reading)
        opened.callback(os.close, writing)
        served = ServerProcess(*flags, stderr=f"/proc/self/fd/{writing}", **AS_SHIPPED)
        opened.callback(served.end, signal.SIGKILL)
        peer = opened.enter_context(Peer(served.address))
        peer.apply(*two_zones())
        for _ in range(2 * MAX_QUEUED):
            with suppress(grpc.RpcError):
                peer.placement.ReleaseReservation(refused, timeout=PATIENCE)
        lost = re.search(r"log_lines_lost_total (\d\S*)", served.get("/metrics")[1])
        full = lost is not None and float(lost[1]) > 0
        yield served, peer, "" if full else "no line was lost"


def unread_log(_nodes: int, _pods: int, _seed: int) -> Wound:
    """Reads and writes, some of which are logged, beside a log that is full."""
    longest, answered, failed = 0.0, 0, 0
    with unread() as (_, peer, fault):
        for number in range(CHECKS):
            began = time.monotonic()
            try:
                peer.await_revision(peer.apply(node(f"more-{number}", "a")))
                peer.evaluate()
                answered += 3
            except grpc.RpcError:
                failed += 1
            longest = max(longest, time.monotonic() - began)
    fault = f"{failed} failed" if failed else fault
    return Wound("longest wait for a write and two reads, s", longest, 0.5, answered, fault)


def unread_log_end(_nodes: int, _pods: int, _seed: int) -> Wound:
    """SIGTERM beside the same."""
    with unread() as (served, _, fault):
        began = time.monotonic()
        try:
            code = served.end()
        except subprocess.TimeoutExpired:
            code = -signal.SIGABRT
        took = time.monotonic() - began
    fault = f"it ended with {code}" if code else fault
    return Wound("end after SIGTERM, s", took, STOP_SECONDS, 1, fault)


WOUNDS: Final[Mapping[str, Callable[[int, int, int], Wound]]] = {
    "40 KiB name": long_name,
    "cut replace": cut_replace,
    "removed file": removed_file,
    "3,000 resources": many_resources,
    "packed health checks": packed_checks,
    "cancelled batches": cancelled_batches,
    "hostile SNI": hostile_sni,
    "unread log": unread_log,
    "SIGTERM, unread log": unread_log_end,
}


@campaign(
    "wounds",
    nodes_option,
    pods_option,
    seed_option,
    click.option("--only", multiple=True, type=click.Choice([*WOUNDS]), help="Only these."),
)
def command(nodes: int, pods: int, seed: int, only: tuple[str, ...]) -> Outcome:
    """Try nine requests and events that once stopped a server, filled it, or made it lose.

    Each on a server of its own: names of 40 KiB in refused calls, lists that are cut before they
    are committed, a SQLite file that is removed, pods with 3,000 resources, compressed health
    checks, cancelled batches, TLS handshakes with lines of a log, and a log that nobody reads,
    beside which calls and SIGTERM go on.
    """
    figures, broken = {}, []
    for name in only or WOUNDS:
        note(f"wounds: {name}")
        found = WOUNDS[name](nodes, pods, seed)
        figures[name] = asdict(found)
        if found.value > found.most:
            broken.append(f"{name}: {found.measured}: {found.value:.3g}, at most {found.most:g}")
        if found.fault:
            broken.append(f"{name}: {found.fault}")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
