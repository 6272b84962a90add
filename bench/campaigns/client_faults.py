"""The Python client under faults, with real servers: who calls must get an answer or an error.

Tasks and threads call through clients of both kinds while servers are stopped and killed, the
network falls silent, cuts and delays, the only server is away, and certificates and tokens are
exchanged.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import click
import trustme

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.load import balanced
from bench.campaigns.proxy import Proxy
from tests.access.callers import AccessFile
from tests.client.manifests import TWO_ZONES, incoming, pod
from tests.redis_server import free_port
from tests.servers import ServerProcess
from topospread_client import AsyncClient, Client, Connection, Tls, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

MARGIN: Final = 5.0
"""Seconds beyond its time-out after which a call is taken to hang, on a busy machine."""

CLIENTS: Final = 4
"""Of each kind; callers share them."""

REPEATED: Final = ("evaluate", "get", "place", "apply")


@dataclass
class Plan:
    """How much of it.

    Attributes:
        tasks, threads: that call.
        seconds: of each scenario but the outage.
        every: seconds between faults.
        outage: seconds without the only server.
        timeout: of each call.
        options: more of `Connection`.
    """

    tasks: int = 200
    threads: int = 20
    seconds: float = 60.0
    every: float = 5.0
    outage: float = 75.0
    timeout: float = 10.0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Figures:
    """What came of one scenario.

    Attributes:
        calls: that ended.
        answered: of these.
        hangs: calls that had not ended by their time-out and a margin.
        foreign: errors that are none of the client's, by name.
        failed: repeatable calls that failed, by name of call and error.
        unrepeated: other calls that failed, by name of the error.
        watches: how often a watch ended and was opened again.
        back: seconds from a fault's end (or, in silence, its beginning) until every client was
            answered again; the longest.
        faults: how many there were.
    """

    scenario: str
    calls: int = 0
    answered: int = 0
    hangs: int = 0
    foreign: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unrepeated: Counter[str] = field(default_factory=Counter)
    watches: int = 0
    back: float | None = None
    faults: int = 0


class Callers:
    """Tasks and threads that call from entering to leaving it."""

    def __init__(self, figures: Figures, connection: Connection, plan: Plan) -> None:
        self._figures = figures
        self._connection = connection
        self._plan = plan
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._under_way: dict[object, float] = {}
        self._answered_at: dict[str, float] = {}
        self._begun = threading.Event()
        self._clients = [self._client() for _ in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._run_tasks, daemon=True)] + [
            threading.Thread(target=self._call_on, args=[number], daemon=True)
            for number in range(plan.threads)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        # A client reads its files when it is made: whole ones, and not while a fault changes them.
        assert self._begun.wait(self._plan.timeout + MARGIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        ends = time.monotonic() + self._plan.timeout + 2 * MARGIN
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))
        for client in self._clients:
            client.close()
        with self._lock:
            self._figures.hangs += len(self._under_way)

    def until_all_answered(self, since: float, patience: float) -> float:
        """Seconds from a moment until each client has been answered a call begun after it."""
        with self._lock:
            self._answered_at.clear()
        while time.monotonic() < since + patience:
            with self._lock:
                if len(self._answered_at) == 2 * CLIENTS:
                    return max(self._answered_at.values()) - since
            time.sleep(0.02)
        return patience

    def _client(self) -> Client:
        return Client(self._connection, timeout=self._plan.timeout)

    # ------------------------------ threads

    def _call_on(self, number: int) -> None:
        client = self._clients[number % CLIENTS]
        chosen = random.Random(number)
        if number < 2:
            self._watch_on(client)
            return
        calls: dict[str, Callable[[], Any]] = {
            "evaluate": lambda: client.evaluate_pod(incoming()),
            "get": lambda: client.get_object("NODE", "a1"),
            "place": lambda: client.place_pod(_waiting(), reservation_ttl=5),
            "apply": lambda: client.apply_objects([_versioned(number)]),
            "unversioned": lambda: client.apply_objects([pod(f"u-{number}", "a1", app="other")]),
        }
        while not self._stop.is_set():
            name = chosen.choice((*calls, "evaluate", "evaluate"))
            key = self._begin()
            try:
                calls[name]()
            except Exception as error:  # noqa: BLE001 - what it is, is what is looked for
                self._end(key, name, error)
            else:
                self._end(key, name, None, f"sync {number % CLIENTS}")
            self._stop.wait(chosen.uniform(0, 0.2))

    def _watch_on(self, client: Client) -> None:
        while not self._stop.is_set():
            try:
                for _ in client.watch_objects(timeout=2.0):
                    if self._stop.is_set():
                        return
            except TopospreadClientError:
                self._figures.watches += 1
                self._stop.wait(0.05)
            except Exception as error:  # noqa: BLE001 - what it is, is looked for
                self._figures.foreign[f"watch: {type(error).__name__}"] += 1

    # ------------------------------ tasks

    def _run_tasks(self) -> None:
        asyncio.run(self._all_tasks())

    async def _all_tasks(self) -> None:
        clients = [
            AsyncClient(self._connection, timeout=self._plan.timeout) for _ in range(CLIENTS)
        ]
        self._begun.set()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._one_task(number, clients[number % CLIENTS]))
                for number in range(self._plan.tasks)
            ]
        with self._lock:
            self._figures.foreign["a task was cancelled"] += sum(t.cancelled() for t in tasks)
        for client in clients:
            await client.close()

    async def _one_task(self, number: int, client: AsyncClient) -> None:
        chosen = random.Random(number)
        own = number + self._plan.threads
        calls: dict[str, Callable[[], Any]] = {
            "evaluate": lambda: client.evaluate_pod(incoming()),
            "get": lambda: client.get_object("NODE", "a1"),
            "place": lambda: client.place_pod(_waiting(), reservation_ttl=5),
            "apply": lambda: client.apply_objects([_versioned(own)]),
            "unversioned": lambda: client.apply_objects([pod(f"u-{own}", "a1", app="other")]),
        }
        while not self._stop.is_set():
            name = chosen.choice((*calls, "evaluate", "evaluate", "get"))
            key = self._begin()
            try:
                await calls[name]()
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - what it is, is looked for
                self._end(key, name, error)
            else:
                self._end(key, name, None, f"aio {number % CLIENTS}")
            await asyncio.sleep(chosen.uniform(0.2, 1.0))

    # ------------------------------ what came of it

    def _begin(self) -> object:
        key = object()
        with self._lock:
            self._under_way[key] = time.monotonic()
        return key

    def _end(self, key: object, name: str, error: BaseException | None, client: str = "") -> None:
        now, figures = time.monotonic(), self._figures
        with self._lock:
            took = now - self._under_way.pop(key)
            figures.calls += 1
            if took > self._plan.timeout + MARGIN:
                figures.hangs += 1
            if error is None:
                figures.answered += 1
                self._answered_at.setdefault(client, now)
            elif not isinstance(error, TopospreadClientError):
                figures.foreign[f"{name}: {type(error).__name__}: {error}"] += 1
            elif name in REPEATED:
                figures.failed[f"{name}: {type(error).__name__}"] += 1
            else:
                figures.unrepeated[type(error).__name__] += 1


_PLACED: Final = itertools.count()


def _waiting() -> dict[str, Any]:
    """A pod that is not placed: the repeat of a renewal is refused, as a Conflict."""
    return pod(f"waiting-{next(_PLACED)}", topologySpreadConstraints=[])


_VERSIONS: Final[Counter[int]] = Counter()


def _versioned(number: int) -> dict[str, Any]:
    _VERSIONS[number] += 1
    made = pod(f"v-{number}", "a1", app="other")
    version = {"resourceVersion": str(_VERSIONS[number])}
    return made | {"metadata": made["metadata"] | version}


class Servers:
    """Servers on one store, each on an address that it keeps; more arguments are `serve`'s."""

    def __init__(self, folder: Path, many: int, *arguments: str) -> None:
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(many)]
        self._arguments = ("--store", f"sqlite://{folder}/state.db", *arguments)
        self._running = [self._start(number) for number in range(many)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._running:
            server.end(signal.SIGKILL)

    def end(self, number: int, how: signal.Signals) -> None:
        """End one of them."""
        self._running[number].end(how)

    def begin(self, number: int) -> None:
        """Have it back, ready to answer."""
        self._running[number] = self._start(number)

    def _start(self, number: int) -> ServerProcess:
        address = self.addresses[number]
        return ServerProcess("--listen", address, "--log-level", "error", *self._arguments)


def _rounds(plan: Plan) -> Iterator[int]:
    """Numbers, one each so many seconds."""
    ends, number = time.monotonic() + plan.seconds, 0
    while (now := time.monotonic()) < ends:
        yield number
        number += 1
        time.sleep(max(0.0, plan.every - (time.monotonic() - now)))


def _filled(address: str) -> None:
    with Client(address, timeout=60) as client:
        client.apply_objects(TWO_ZONES)


def _in_turn(how: signal.Signals, figures: Figures, folder: Path, plan: Plan) -> None:
    with Servers(folder, 2) as servers:
        _filled(servers.addresses[0])
        connection = Connection(balanced(servers.addresses), **plan.options)
        with Callers(figures, connection, plan):
            for number in _rounds(plan):
                servers.end(number % 2, how)
                servers.begin(number % 2)
                figures.faults += 1


def stopped(figures: Figures, folder: Path, plan: Plan) -> None:
    """Two servers, stopped (SIGTERM) and started in turn."""
    _in_turn(signal.SIGTERM, figures, folder, plan)


def killed(figures: Figures, folder: Path, plan: Plan) -> None:
    """Two servers, killed (SIGKILL) and started in turn."""
    _in_turn(signal.SIGKILL, figures, folder, plan)


def silent(figures: Figures, folder: Path, plan: Plan) -> None:
    """A proxy that stops forwarding on the connections there are; new ones work."""
    with Servers(folder, 1) as servers, Proxy(servers.addresses[0]) as proxy:
        _filled(servers.addresses[0])
        with Callers(figures, Connection(proxy.address, **plan.options), plan) as callers:
            time.sleep(plan.every / 2)
            ends = time.monotonic() + plan.seconds / 2
            while not figures.faults or time.monotonic() < ends:
                proxy.silence()
                time.sleep(0.2)  # what is on its way arrives
                figures.faults += 1
                back = 0.2 + callers.until_all_answered(time.monotonic(), 60)
                figures.back = round(max(figures.back or 0.0, back), 2)


def cut(figures: Figures, folder: Path, plan: Plan) -> None:
    """A proxy that resets all connections."""
    with Servers(folder, 1) as servers, Proxy(servers.addresses[0]) as proxy:
        _filled(servers.addresses[0])
        with Callers(figures, Connection(proxy.address, **plan.options), plan) as callers:
            for _ in _rounds(plan):
                time.sleep(plan.every / 4)
                proxy.cut()
                figures.faults += 1
                back = callers.until_all_answered(time.monotonic(), 60)
                figures.back = round(max(figures.back or 0.0, back), 2)


def delayed(figures: Figures, folder: Path, plan: Plan) -> None:
    """A proxy that delays each piece by up to 0.3 s."""
    with Servers(folder, 1) as servers, Proxy(servers.addresses[0]) as proxy:
        _filled(servers.addresses[0])
        proxy.delay = 0.3
        with Callers(figures, Connection(proxy.address, **plan.options), plan):
            figures.faults += 1
            time.sleep(plan.seconds / 2)


def away(figures: Figures, folder: Path, plan: Plan) -> None:
    """The only server is killed, and comes back after the outage."""
    with Servers(folder, 1) as servers:
        _filled(servers.addresses[0])
        with Callers(figures, Connection(servers.addresses[0], **plan.options), plan) as callers:
            time.sleep(plan.every / 2)
            servers.end(0, signal.SIGKILL)
            time.sleep(plan.outage)
            servers.begin(0)
            figures.faults += 1
            figures.back = round(callers.until_all_answered(time.monotonic(), 60), 2)


class Keys:
    """Certificates and tokens that are exchanged, in files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authorities = [trustme.CA()]
        self.access = AccessFile(folder / "access.yaml")
        self.paths = {
            name: folder / name
            for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key", "token")
        }
        self.believe()
        self.certify("server", "client")
        self._token(0)

    def serve(self) -> tuple[str, ...]:
        """Arguments of a server."""
        paths = self.paths
        return (
            "--tls-cert",
            str(paths["server.pem"]),
            "--tls-key",
            str(paths["server.key"]),
            "--client-ca",
            str(paths["ca.pem"]),
            "--access-file",
            str(self.access),
        )

    def exchange(self, number: int) -> None:
        """A new authority that all believe, certificates that it signed, and another token."""
        self._authorities.append(trustme.CA())
        self.believe()
        time.sleep(1.5)  # until both sides have read it: the server's is read with the next file
        self.certify("server", "client")
        self._token(number + 1)

    def believe(self) -> None:
        """Write the authorities."""
        pem = b"".join(each.cert_pem.bytes() for each in self._authorities[-2:])
        self.paths["ca.pem"].write_bytes(pem)

    def certify(self, *names: str) -> None:
        """Write certificates, the files in place and one after the other."""
        for name in names:
            identity = "127.0.0.1" if name == "server" else "caller@example.org"
            issued = self._authorities[-1].issue_cert(identity)
            chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
            with self.paths[f"{name}.pem"].open("wb") as file:
                file.write(chain[:100])
                file.flush()
                time.sleep(0.01)
                file.write(chain[100:])
            self.paths[f"{name}.key"].write_bytes(issued.private_key_pem.bytes())

    def _token(self, number: int) -> None:
        text = self.access.add(f"t{number}", "admin", "write", "decide")
        self.access.write()
        if number:
            time.sleep(1.0)  # the server looks twice a second
        with self.paths["token"].open("w") as file:
            time.sleep(0.05)  # empty for so long
            file.write(text)


def rotated(figures: Figures, folder: Path, plan: Plan) -> None:
    """Certificates, authorities and tokens are exchanged while two servers restart in turn."""
    keys = Keys(folder)
    paths = keys.paths
    tls = Tls(paths["ca.pem"], paths["client.pem"], paths["client.key"])
    with Servers(folder, 2, *keys.serve()) as servers:
        one = Connection(servers.addresses[0], tls, token_file=paths["token"])
        with Client(one, timeout=60) as client:
            client.apply_objects(TWO_ZONES)
        targets = balanced(servers.addresses)
        tls = Tls(tls.ca, tls.cert, tls.key, "127.0.0.1")
        connection = Connection(targets, tls, token_file=paths["token"], **plan.options)
        with Callers(figures, connection, plan):
            for number in _rounds(plan):
                keys.exchange(number)
                time.sleep(1.5)
                servers.end(number % 2, signal.SIGTERM)
                servers.begin(number % 2)
                figures.faults += 1


SCENARIOS: Final = (stopped, killed, silent, cut, delayed, away, rotated)

NEVER_ALONE: Final = {"stopped", "killed", "rotated"}
"""Where one of two servers is up at any time."""


LONGEST_BACK: Final = {"away": 5.0, "silent": 20.0}
"""Seconds until every client is answered again: see `Figures.back`."""


def scenarios_of(names: Sequence[str], plan: Plan) -> Iterator[Figures]:
    """The scenarios with these names, one after the other."""
    for scenario in SCENARIOS:
        if scenario.__name__ in names:
            figures = Figures(scenario.__name__)
            with tempfile.TemporaryDirectory() as folder:
                scenario(figures, Path(folder), plan)
            figures.foreign = +figures.foreign
            yield figures


def wrong(figures: Figures) -> list[str]:
    """What must not be."""
    name = figures.scenario
    found = [f"{name}: {figures.hangs} calls hung"] if figures.hangs else []
    found += [f"{name}: {many} times {what}" for what, many in figures.foreign.items()]
    if name in NEVER_ALONE:
        found += [f"{name}: {many} times {what}" for what, many in figures.failed.items()]
    return found


def slow(figures: Figures) -> list[str]:
    """What took longer than it should on a machine that has nothing else to do."""
    name, back = figures.scenario, figures.back or 0.0
    most = LONGEST_BACK.get(name, math.inf)
    return [f"{name}: {back} s until all were answered again"] if back > most else []


@campaign(
    "client_faults",
    click.option(
        "--scenario",
        "scenarios",
        multiple=True,
        type=click.Choice([scenario.__name__ for scenario in SCENARIOS]),
    ),
    click.option("--tasks", type=click.IntRange(1), default=200, show_default=True),
    click.option("--threads", type=click.IntRange(3), default=20, show_default=True),
    click.option("--seconds", type=float, default=60.0, show_default=True),
    click.option("--outage", type=float, default=75.0, show_default=True),
)
def command(
    scenarios: tuple[str, ...], tasks: int, threads: int, seconds: float, outage: float
) -> Outcome:
    """Call through clients of both kinds while servers, the network and keys fail and change.

    docs/python-client.md promises that no call hangs or raises what is no error of the client's,
    that calls which may be repeated are answered while one of two servers is up, and how soon all
    are answered again.
    """
    plan = Plan(tasks, threads, seconds, outage=outage)
    figures: dict[str, Any] = {}
    broken: list[str] = []
    for came in scenarios_of(scenarios or [each.__name__ for each in SCENARIOS], plan):
        note(f"client_faults: {came.scenario}")
        figures[came.scenario] = {
            name: dict(value) if isinstance(value, Counter) else value
            for name, value in vars(came).items()
            if name != "scenario"
        }
        broken += wrong(came) + slow(came)
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
