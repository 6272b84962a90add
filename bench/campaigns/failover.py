"""What is lost, and how long writes stop, when another Redis is made the master.

Three Redis, three Sentinels and two servers, or in place of the Sentinels a Redis Cluster of three
masters and two replicas. Each server has callers that write pods, callers that place pods, and
readers that ask the other server for what was acknowledged just before, with `fully_consistent`. In
each run the master changes in one of the ways of SCENARIOS; when all is well again, what was
acknowledged is compared with what is stored.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import click
import redis

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.load import CLUSTER, NEWEST, client_of, pod, zones
from tests.redis_server import RedisProcess, free_port
from tests.redis_topologies import (
    SERVICE,
    cluster_of,
    cluster_url,
    info,
    sentinel_url,
    sentinels_of,
)
from tests.servers import ServerProcess, incoming
from tests.waiting import until
from topospread_client import NotFound, ServerFault, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread_client import Client

REPLICAS: Final = 2
DOWN_AFTER_MS: Final = 1000
NODE_TIMEOUT_MS: Final = 3000
"""Of Redis Cluster."""
DURABLE: Final = {"appendonly": "yes", "repl-diskless-sync-delay": "0"}
FROZEN_SECONDS: Final = 3.0
"""How long a master stays frozen, or cut off, after its successor was named."""
BACK_SECONDS: Final = 2.0
"""How long after the naming of the new master every server may refuse writes."""
PEERS: Final = "peers"
"""User and password of Sentinels and replicas."""
SERVERS: Final = "servers"
"""User and password of the servers."""

SETTINGS: Final[dict[str, tuple[tuple[str, ...], dict[str, str]]]] = {
    "none": ((), {}),
    "min-replicas": ((), {"min-replicas-to-write": "1"}),
    "waits": (("--wait-replicas", "1"), {"min-replicas-to-write": "1"}),
}
"""By name: more arguments of `topospread serve`, more lines of redis.conf."""


class Topology(ABC):
    """A master and its replicas, of whom one is made the master by others; who is which changes.

    Args:
        directory: for their files.

    Attributes:
        servers: the master and its replicas.
        url: what `--store` takes.
    """

    servers: list[RedisProcess]
    url: str

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        self._directory = directory
        self._numbers = itertools.count()

    def close(self) -> None:
        """End them all."""
        self._stack.close()

    def master(self) -> RedisProcess:
        """Whom everybody names; waits until they agree and all replicas follow."""

        def agreed() -> RedisProcess | None:
            named = set(map(self._named, self._judges()))
            found = [server for server in self.servers if {server.port} == named]
            if not found or self._linked(found[0]) != len(self.servers) - 1:
                return None
            return found[0] if self._settled() else None

        return until(agreed, "all agree on the master, and all replicas follow")

    def watch(self, before: RedisProcess, stop: threading.Event) -> float:
        """When another master than before was first named, on the monotonic clock."""
        judges = self._judges(before)
        while not stop.is_set():
            for judge in judges:
                asked = time.monotonic()
                if self._named(judge) != before.port:
                    return asked
            stop.wait(0.002)
        raise AssertionError("no other master was named")

    @abstractmethod
    def change(self, master: RedisProcess) -> None:
        """Have another made the master, though nothing is broken."""

    @abstractmethod
    def _judges(self, broken: RedisProcess | None = None) -> Sequence[RedisProcess]:
        """Clients of the servers that name the master; none that is broken."""

    @abstractmethod
    def _named(self, judge: RedisProcess) -> int:
        """The port of the master that one of them names."""

    @abstractmethod
    def _settled(self) -> bool:
        """Whether all take each other for well."""

    def _linked(self, master: RedisProcess) -> int:
        with suppress(redis.RedisError):
            replicas = (each for each in info(master, "replication").values() if type(each) is dict)
            return sum(each["state"] == "online" for each in replicas)
        return 0

    def _start(self, **more: Any) -> RedisProcess:
        process = RedisProcess(self._directory / f"redis-{next(self._numbers)}", **more)
        return self._stack.enter_context(process)


class Sentinels(Topology):
    """A master, two replicas, and three Sentinels that decide."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        super().__init__(directory)
        login = {f"user {name}": f"on >{name} ~* &* +@all" for name in (PEERS, SERVERS)}
        login |= {"masteruser": PEERS, "masterauth": PEERS}
        common = DURABLE | login | options
        master = self._start(options=common)
        follow = {"replicaof": f"127.0.0.1 {master.port}"}
        self.servers = [master, *(self._start(options=common | follow) for _ in range(REPLICAS))]
        until(lambda: self._linked(master) == REPLICAS, "the replicas are there")
        self._sentinels = sentinels_of(
            master, self._start, down_after_ms=DOWN_AFTER_MS, replicas=REPLICAS, login=PEERS
        )
        self.url = sentinel_url(*self._sentinels, login=SERVERS)

    def change(self, master: RedisProcess) -> None:
        """SENTINEL FAILOVER."""
        del master
        with self._sentinels[0].client() as client:

            def begun() -> bool:
                try:
                    client.execute_command("SENTINEL FAILOVER", SERVICE)
                except redis.ResponseError as refused:
                    return "INPROG" in str(refused)
                return True

            until(begun, "the Sentinel begins")

    def _judges(self, broken: RedisProcess | None = None) -> Sequence[RedisProcess]:
        del broken
        return self._sentinels

    def _named(self, judge: RedisProcess) -> int:
        with judge.client() as client:
            return int(client.sentinel_get_master_addr_by_name(SERVICE)[1])

    def _settled(self) -> bool:
        for sentinel in self._sentinels:
            with sentinel.client() as client:
                try:
                    client.execute_command("SENTINEL CKQUORUM", SERVICE)
                except redis.ResponseError:
                    return False
                state = client.sentinel_master(SERVICE)
                replicas = client.sentinel_slaves(SERVICE)
            if state["flags"] != "master" or len(replicas) != REPLICAS:
                return False
            if any(each["flags"] != "slave" for each in replicas):
                return False
        return True


class Cluster(Topology):
    """A Redis Cluster of three masters, and two replicas of the one that has our keys."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        super().__init__(directory)
        self._elected = -math.inf
        # The other masters have no replicas, and must not be given one of ours.
        common = DURABLE | {"cluster-migration-barrier": "9"} | options
        common |= {"cluster-node-timeout": str(NODE_TIMEOUT_MS)}
        masters = cluster_of(self._start, options=common)
        for server in masters:
            with server.client() as client:
                client.config_set("cluster-node-timeout", NODE_TIMEOUT_MS)
        with masters[0].client() as client:
            self._slot = client.execute_command("CLUSTER KEYSLOT", CLUSTER)
        home = next(each for each in masters if each.port == self._named(masters[0]))
        self._others = [each for each in masters if each is not home]
        self.servers = [home, *(self._replica_of(home, common) for _ in range(REPLICAS))]
        self.url = cluster_url([*self.servers, *self._others])

    def change(self, master: RedisProcess) -> None:
        """CLUSTER FAILOVER, long enough after the last change."""
        # The masters vote on one master once in two timeouts; and for four, a replica of Redis 7.0
        # counts the votes that it was given before, and takes itself for elected.
        _wait_until(self._elected + 4.5 * NODE_TIMEOUT_MS / 1000)
        replica = next(server for server in self.servers if server is not master)
        with replica.client() as client:
            client.execute_command("CLUSTER FAILOVER")
        self._elected = time.monotonic()

    def watch(self, before: RedisProcess, stop: threading.Event) -> float:
        """See Topology."""
        named = super().watch(before, stop)
        self._elected = time.monotonic()
        return named

    def _replica_of(self, home: RedisProcess, options: dict[str, str]) -> RedisProcess:
        bus = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
        replica = self._start(options=options | bus)
        with home.client() as client:
            name = client.execute_command("CLUSTER MYID")
        with replica.client() as client:
            bus_port = int(home.options["cluster-port"])
            client.execute_command("CLUSTER MEET", "127.0.0.1", home.port, bus_port)

            def follows() -> bool:
                try:
                    client.execute_command("CLUSTER REPLICATE", name)
                except redis.ResponseError:
                    return False
                return True

            until(follows, "it knows its master")
        return replica

    def _judges(self, broken: RedisProcess | None = None) -> Sequence[RedisProcess]:
        return [each for each in (*self._others, *self.servers) if each is not broken]

    def _named(self, judge: RedisProcess) -> int:
        with judge.client() as client:
            for first, last, primary, *_ in client.execute_command("CLUSTER SLOTS"):
                if first <= self._slot <= last:
                    return int(primary[1])
        return 0

    def _settled(self) -> bool:
        """Whether all see the same masters, with the same replicas, and none as failing."""
        judges = self._judges()
        seen = set()
        for judge in judges:
            with judge.client() as client:
                state = client.execute_command("CLUSTER INFO")["cluster_state"]
                nodes = client.execute_command("CLUSTER NODES")
            if state != "ok" or not all(node["connected"] for node in nodes.values()):
                return False
            # A master does not hear a request of a replica that it does not take for its own yet.
            seen.add(
                frozenset(
                    (node["node_id"], node["flags"].removeprefix("myself,"), node["master_id"])
                    for node in nodes.values()
                )
            )
        (view, *others) = seen
        flags = Counter(each for _, each, _ in view)
        return not others and flags == {"master": len(judges) - REPLICAS, "slave": REPLICAS}


TOPOLOGIES: Final[dict[str, Callable[[Path, dict[str, str]], Topology]]] = {
    "sentinels": Sentinels,
    "cluster": Cluster,
}


# ------------------------------ what happens to the master


def planned(redises: Topology, master: RedisProcess, named: Callable[[], float]) -> None:
    """Nothing is broken."""
    del named
    redises.change(master)


def killed(redises: Topology, master: RedisProcess, named: Callable[[], float]) -> None:
    """SIGKILL; it comes back when it has a successor."""
    del redises
    master.kill()
    named()
    master.start()


def frozen(redises: Topology, master: RedisProcess, named: Callable[[], float]) -> None:
    """SIGSTOP until long after the failover; then it believes to be master still."""
    del redises
    master.pause()
    _wait_until(named() + FROZEN_SECONDS)
    master.resume()


def cut_off(redises: Topology, master: RedisProcess, named: Callable[[], float]) -> None:
    """Sentinels and replicas cannot speak to it; the servers can."""
    del redises
    with master.client() as client:
        # Whoever fails to log in is the default user, who has no password.
        for user in (PEERS, "default"):
            client.acl_setuser(user, enabled=False)
            client.execute_command("CLIENT KILL USER", user)
        _wait_until(named() + FROZEN_SECONDS)
        for user in (PEERS, "default"):
            client.acl_setuser(user, enabled=True)


SCENARIOS: Final = {
    "planned": planned,
    "killed": killed,
    "frozen": frozen,
    "cut-off": cut_off,
    "back": planned,
}
"""Of `back` each run begins with a planned failover that is not counted."""


def _wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


# ------------------------------ callers


@dataclass
class Callers:
    """Writers, placers and readers of several servers, from entering to leaving.

    Attributes:
        acknowledged: (kind, name) with the server and the moment, on the monotonic clock.
        refused: failures of writes by error.
        missed: (kind, name) that a read which began after the acknowledgement did not find.
        reads: how many were answered.
    """

    addresses: Sequence[str]
    prefix: str
    acknowledged: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    missed: list[tuple[str, str]] = field(default_factory=list)
    reads: int = 0

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._newest: list[tuple[str, str]] = [("", "")] * len(self.addresses)
        self._pool = ThreadPoolExecutor(4 * len(self.addresses))
        self._clients = [client_of(address) for address in self.addresses for _ in range(4)]
        self._running = []
        for number in range(len(self.addresses)):
            clients = self._clients[4 * number : 4 * number + 4]
            work = (self._write, self._write, self._place, self._read)
            for caller, (each, client) in enumerate(zip(work, clients, strict=True)):
                self._running.append(self._pool.submit(each, number, caller, client))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for running in self._running:
            running.result(60)
        self._pool.shutdown()
        for client in self._clients:
            client.close()

    def until_each_wrote_after(self, moment: float) -> None:
        """Wait until every server has acknowledged a write after a moment."""
        everyone = set(range(len(self.addresses)))
        until(lambda: self._wrote_after(moment) == everyone, "all servers take writes again")

    def first_after(self, moment: float) -> float:
        """Seconds until the last of the servers had acknowledged a write again."""
        first: dict[int, float] = {}
        for server, at in list(self.acknowledged.values()):
            if at > moment:
                first[server] = min(at, first.get(server, at))
        return max(first.values()) - moment

    def _wrote_after(self, moment: float) -> set[int]:
        return {server for server, at in list(self.acknowledged.values()) if at > moment}

    def _write(self, number: int, caller: int, client: Client) -> None:
        for count in itertools.count():
            name = f"{self.prefix}-w{number}-{caller}-{count}"
            self._try("pod", name, number, partial(client.apply_objects, [pod(name)]))
            if self._stop.is_set():
                return

    def _place(self, number: int, caller: int, client: Client) -> None:
        for count in itertools.count():
            name = f"{self.prefix}-p{number}-{caller}-{count}"
            wanted = incoming(maxSkew=1000)
            wanted["metadata"]["name"] = name
            self._try("place", name, number, partial(client.place_pod, wanted))
            if self._stop.is_set():
                return

    def _try(self, kind: str, name: str, number: int, call: Callable[[], object]) -> None:
        """Until it is acknowledged."""
        while not self._stop.is_set():
            try:
                call()
            except TopospreadClientError as refused:
                self.refused[_named(refused)] += 1
                self._stop.wait(0.02)
            else:
                self.acknowledged[kind, name] = number, time.monotonic()
                if kind == "pod":
                    self._newest[number] = kind, name
                return

    def _read(self, number: int, caller: int, client: Client) -> None:
        """Ask for what another server acknowledged last."""
        del caller
        for turn in itertools.count():
            if self._stop.is_set():
                return
            other = turn % len(self.addresses)
            _, name = self._newest[other]
            if other == number or not name:
                self._stop.wait(0.005)
                continue
            try:
                client.get_object("POD", name, consistency=NEWEST)
            except NotFound:
                self.missed.append(("pod", name))
            except TopospreadClientError:
                self._stop.wait(0.02)
                continue
            self.reads += 1


def _named(refused: TopospreadClientError) -> str:
    """The class of an error; of a fault of the server's, its text."""
    return repr(refused) if isinstance(refused, ServerFault) else type(refused).__name__


# ------------------------------ the campaign


@dataclass
class Run:
    """One change of the master.

    Attributes:
        acknowledged: writes, in all.
        lost: of those, how many are not stored afterwards.
        lost_after_naming: of those, acknowledged after the new master was first named.
        latest_lost: seconds from the naming to the last of the lost; negative when before it.
        missed: `fully_consistent` reads that did not find what is stored.
        reads: `fully_consistent` reads in all.
        back: seconds from the naming until every server had acknowledged a write again.
        refused: failed writes by error.
    """

    scenario: str
    setting: str
    acknowledged: int
    lost: int
    lost_after_naming: int
    latest_lost: float | None
    missed: int
    reads: int
    back: float
    refused: dict[str, int]


def runs(
    setting: str,
    scenarios: Sequence[str],
    count: int,
    directory: Path,
    topology: str = "sentinels",
) -> Iterator[Run]:
    """Change the master so many times in each way."""
    arguments, options = SETTINGS[setting]
    redises = TOPOLOGIES[topology](directory, options)
    with ExitStack() as stack:
        stack.callback(redises.close)
        servers = [
            stack.enter_context(
                ServerProcess("--store", redises.url, *arguments, stderr=f"{directory}/log")
            )
            for _ in range(2)
        ]
        addresses = [server.address for server in servers]
        for scenario in scenarios:
            for number in range(count):
                yield _run(redises, addresses, scenario, setting, number)


def _run(
    redises: Topology, addresses: Sequence[str], scenario: str, setting: str, number: int
) -> Run:
    if scenario == "back":
        first = redises.master()
        redises.change(first)
        until(lambda: redises.master() is not first, "another is the master")
    master = redises.master()
    with client_of(addresses[0]) as client:
        until(lambda: _applied(client), "the servers take writes")
    stop = threading.Event()
    callers = Callers(addresses, f"{scenario}-{number}")
    with ThreadPoolExecutor(1) as pool, callers:
        watching = pool.submit(redises.watch, master, stop)
        try:
            _wait_until(time.monotonic() + 1.0)
            SCENARIOS[scenario](redises, master, watching.result)
            named = watching.result(60)
        finally:
            stop.set()
        redises.master()
        callers.until_each_wrote_after(max(named, time.monotonic() - 0.5))
    with client_of(addresses[number % 2]) as client:
        until(lambda: _applied(client), "the servers take writes")
        stored = {("pod", each.pod.metadata.name) for each in client.list_objects("POD")}
        stored |= {("place", each.pod.name) for each in client.list_reservations()}
        with suppress(TopospreadClientError):
            client.delete_cluster(CLUSTER)
    acknowledged = callers.acknowledged
    lost = {each: at for each, (_, at) in acknowledged.items() if each not in stored}
    return Run(
        scenario,
        setting,
        len(acknowledged),
        len(lost),
        sum(at > named for at in lost.values()),
        round(max(lost.values()) - named, 3) if lost else None,
        sum(each in stored for each in callers.missed),
        callers.reads,
        round(callers.first_after(named), 3),
        dict(callers.refused),
    )


def _applied(client: Client) -> bool:
    try:
        client.apply_objects(zones())
    except TopospreadClientError:
        return False
    return True


def wrong(found: Sequence[Run]) -> list[str]:
    """What must not be."""
    named = [f"{run.scenario}, {run.setting}" for run in found]
    return [
        *(
            f"{name}: {run.lost_after_naming} acknowledged after the naming are lost"
            for name, run in zip(named, found, strict=True)
            if run.lost_after_naming
        ),
        *(
            f"{name}: {run.lost} are lost"
            for name, run in zip(named, found, strict=True)
            if run.lost and run.setting == "waits"
        ),
        *(
            f"{name}: {run.missed} reads missed what was acknowledged before"
            for name, run in zip(named, found, strict=True)
            if run.missed
        ),
    ]


@campaign(
    "failover",
    click.option("--runs", "count", type=click.IntRange(1), default=20, show_default=True),
    click.option("--topology", type=click.Choice([*TOPOLOGIES]), default="sentinels"),
    click.option("--scenario", "scenarios", multiple=True, type=click.Choice([*SCENARIOS])),
    click.option("--setting", "settings", multiple=True, type=click.Choice([*SETTINGS])),
)
def command(
    count: int, topology: str, scenarios: tuple[str, ...], settings: tuple[str, ...]
) -> Outcome:
    """Change the master of Redis under writes, places and reads; count what is lost.

    docs/operations.md promises that nothing is lost that was acknowledged after the new master was
    named, nothing at all with --wait-replicas, that no fully consistent read misses what was
    acknowledged, and that writes are back within two seconds.
    """
    chosen = [*(scenarios or SCENARIOS)]
    if topology == "cluster":
        # Its nodes speak over a port that knows no users.
        chosen = [each for each in chosen if SCENARIOS[each] is not cut_off]
    found: list[Run] = []
    for setting in settings or SETTINGS:
        with tempfile.TemporaryDirectory() as directory:
            for each in runs(setting, chosen, count, Path(directory), topology):
                found.append(each)
                note(f"failover: {each}")
    late = [
        f"{each.scenario}, {each.setting}: writes were back after {each.back} s"
        for each in found
        if each.back > BACK_SECONDS
    ]
    return Outcome(dict(map(_row, _groups(found))), [*wrong(found), *late])


def _groups(found: Sequence[Run]) -> Iterator[list[Run]]:
    for _, group in itertools.groupby(found, key=lambda run: (run.setting, run.scenario)):
        yield list(group)


def _row(group: Sequence[Run]) -> tuple[str, dict[str, object]]:
    back = sorted(run.back for run in group)
    return f"{group[0].scenario}, {group[0].setting}", {
        "runs": len(group),
        "acknowledged": sum(run.acknowledged for run in group),
        "lost": sum(run.lost for run in group),
        "lost after naming": sum(run.lost_after_naming for run in group),
        "missed": sum(run.missed for run in group),
        "reads": sum(run.reads for run in group),
        "back median": back[len(back) // 2],
        "back max": back[-1],
    }


if __name__ == "__main__":
    sys.exit(run(command))
