"""Whether the state follows a real API server that is restored, or killed and started."""

from __future__ import annotations

import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.every_kind import create, delete
from bench.campaigns.kube_scheduler import SERVER, Cluster, binaries_option, start
from tests.redis_server import free_port
from topospread.codec.stored import stored
from topospread.kubernetes.objects import RESOURCES, ObservedObject, decode_object
from topospread_client import Client, TopospreadClientError
from topospread_proto.v1.common_pb2 import Kind

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

VARIANTS: Final = ("older", "past", "unseen")
"""The API server is at an older version than the state; changes go on until it is past the old one;
the same, while topospread is stopped and sees none of it.
"""

SILENT: Final = 5.0
"""Seconds for which the state may differ without saying so: changes are under way."""

State = dict[Any, int]


@dataclass
class Server:
    """A topospread that syncs, and what is read of it."""

    process: subprocess.Popen[bytes]
    url: str
    client: Client

    def await_ready(self) -> None:
        """Until calls should come here."""
        ends = time.monotonic() + 120.0
        while time.monotonic() < ends:
            try:
                if httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{self.url} is not ready")

    def state(self) -> dict[str, State]:
        """What it serves, by kind."""
        return {
            one.name: {
                made.key: made.content_hash
                for made in (
                    ObservedObject(each, stored(each))
                    for each in self.client.list_objects(one.kind.name)
                )
            }
            for one in RESOURCES
        }

    def unknown(self) -> set[str]:
        """Kinds that it does without."""
        try:
            found = self.client.get_cluster().cluster.unknown_kinds
        except TopospreadClientError:
            return set()
        return {f"{Kind.Name(each.kind)}: {each.reason}" for each in found}

    def lagging(self) -> set[str]:
        """Kinds of which it says that the state may not be the API server's."""
        page = httpx.get(f"{self.url}/metrics", trust_env=False).text
        return {
            sample.labels["kind"]
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == "topospread_sync_lag_seconds" and sample.value > 0
        }


@contextmanager
def serving(cluster: Cluster, directory: Path) -> Iterator[Server]:
    """A topospread with a store of its own."""
    with ExitStack() as opened:
        grpc, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        process = start(
            opened,
            directory,
            "topospread",
            *(sys.executable, "-m", "topospread", "serve", "--sync", "--log-format", "text"),
            *("--listen", grpc, "--http", http, "--store", f"sqlite:{directory / 'state.db'}"),
            *("--sync-kubeconfig", cluster.kubeconfig(SERVER, "topospread")),
        )
        client = opened.enter_context(Client(grpc, timeout=30.0))
        yield Server(process, f"http://{http}", client)


def at_api_server(cluster: Cluster) -> dict[str, State]:
    """What its lists say, by kind."""
    found = {}
    for one in RESOURCES:
        query = "&".join(f"{name}={value}" for name, value in one.query(()).items())
        items = cluster.call("GET", f"{one.path}?{query.replace('!=', '%21%3D')}")["items"]
        decoded = [decode_object(one, each) for each in items or ()]
        found[one.name] = {each.key: each.content_hash for each in decoded}
    return found


def await_equal(cluster: Cluster, server: Server, limit: float) -> tuple[float, float, list[str]]:
    """Wait until the state is the API server's.

    Returns:
        Seconds that it took; for how long at most it differed and did not say so; kinds that
        differ past the limit.
    """
    began = time.monotonic()
    silent_since, silent = began, 0.0
    while True:
        state, wanted = server.state(), at_api_server(cluster)
        differ = [kind for kind in wanted if state[kind] != wanted[kind]]
        now = time.monotonic()
        if not differ or now - began > limit:
            return now - began, silent, differ
        if server.lagging().issuperset(differ):
            silent_since = now
        silent = max(silent, now - silent_since)
        time.sleep(0.1)


def version(cluster: Cluster) -> int:
    """Where the API server is."""
    return int(cluster.call("GET", "/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])


def go_past(cluster: Cluster, old: int) -> None:
    """Change what is not synced until the API server is past a version."""
    path = "/api/v1/namespaces/default/configmaps"
    cluster.call("POST", path, {"metadata": {"name": "counter"}})
    while version(cluster) <= old:
        for number in range(20):
            cluster.patch(f"{path}/counter", {"data": {"n": f"{time.monotonic()}-{number}"}})


@dataclass
class Trials:
    """What came of trials of one sort."""

    seconds: list[float] = field(default_factory=list)
    different: int = 0
    silent: float = 0.0
    given_up: set[str] = field(default_factory=set)

    def add(self, waited: tuple[float, float, list[str]], what: str) -> None:
        """Note how long it took until the state was the API server's."""
        seconds, silent, differ = waited
        self.seconds.append(seconds)
        self.different += bool(differ)
        self.silent = max(self.silent, silent)
        rest = f", then {', '.join(differ)} differ" if differ else ""
        note(f"{what}: {seconds:.1f} s{rest}")

    @property
    def figures(self) -> dict[str, Any]:
        """Of the table."""
        return {
            "trials": len(self.seconds),
            "different": self.different,
            "median s": round(statistics.median(self.seconds), 1),
            "longest s": round(max(self.seconds), 1),
            "silent s": round(self.silent, 1),
            "given up": len(self.given_up),
        }


class Restores:
    """Restores of one backup, again and again, with different histories before and after."""

    def __init__(self, cluster: Cluster, server: Server, limit: float) -> None:
        self._cluster = cluster
        self._server = server
        self._limit = limit
        self._backup = cluster.directory / "backup"

    def back_up(self) -> None:
        """Make the backup, as one does that copies etcd's folder."""
        for number in range(3):
            create(self._cluster, f"base-{number}")
        self._cluster.stop()
        shutil.copytree(self._cluster.data, self._backup)
        self._cluster.run()

    def restore(self, number: int, variant: str, trials: Trials) -> None:
        """One restore; what differs or is served in silence is noted."""
        cluster, server, name = self._cluster, self._server, f"{variant}, restore {number}"
        create(cluster, f"before-{number}")
        create(cluster, f"again-{number}")
        delete(cluster, f"again-{number}")
        delete(cluster, "base-1")
        self._expect(f"{name}, before it")
        old = version(cluster)
        cluster.stop(kill=number % 2 == 0)
        if variant == "unseen":
            server.process.send_signal(signal.SIGSTOP)
        shutil.rmtree(cluster.data)
        shutil.copytree(self._backup, cluster.data)
        cluster.run()
        if variant != "older":
            create(cluster, f"early-{number}")
            delete(cluster, "base-2")
            go_past(cluster, old)
            create(cluster, f"late-{number}")
        if variant == "unseen":
            server.process.send_signal(signal.SIGCONT)
        trials.add(await_equal(cluster, server, self._limit), name)
        # Under names whose deletions the state remembers, at versions that may be below theirs.
        create(cluster, f"again-{number}")
        self._expect(f"{name}, what is made anew", trials)

    def _expect(self, what: str, trials: Trials | None = None) -> None:
        _, _, differ = await_equal(self._cluster, self._server, self._limit)
        if differ and trials is None:
            raise RuntimeError(f"{what}: {differ} differ")
        if differ and trials is not None:
            trials.different += 1


@contextmanager
def noting_unknown(server: Server, found: set[str]) -> Iterator[None]:
    """Collect what a server does without, all the time."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.1):
            found.update(server.unknown())

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join()


def restart(cluster: Cluster, server: Server, number: int, limit: float, trials: Trials) -> None:
    """Kill etcd and the API server, start them, and wait until all kinds are read again."""
    create(cluster, f"restart-{number}")
    with noting_unknown(server, trials.given_up):
        cluster.stop(kill=True)
        cluster.run()
        began = time.monotonic()
        _, silent, differ = await_equal(cluster, server, limit)
        while server.lagging() and time.monotonic() - began < limit:
            time.sleep(0.1)
    trials.add((time.monotonic() - began, silent, differ), f"restart {number}")


def start_together(cluster: Cluster, number: int, limit: float, trials: Trials) -> None:
    """Start a topospread that knows nothing, and the API server beside it."""
    directory = cluster.directory / f"started-{number}"
    directory.mkdir()
    cluster.stop(kill=True)
    with serving(cluster, directory) as server:
        cluster.run()
        server.await_ready()
        trials.given_up |= server.unknown()
        trials.add(await_equal(cluster, server, limit), f"start {number}")


@campaign(
    "restores",
    binaries_option,
    click.option("--restores", type=click.IntRange(0), default=24, show_default=True),
    click.option("--restarts", type=click.IntRange(0), default=20, show_default=True),
    click.option("--starts", type=click.IntRange(0), default=5, show_default=True),
    click.option("--limit", type=float, default=90.0, help="Seconds; later is too late."),
)
def command(binaries: Path, restores: int, restarts: int, starts: int, limit: float) -> Outcome:
    """Restore a real etcd from a backup, kill it and its API server, and look at the state.

    docs/kubernetes.md promises that the state follows the API server's lists, whatever its history
    does, and that kinds are given up only when their refusal lasts.
    """
    trials = {name: Trials() for name in (*VARIANTS, "restart", "start")}
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        cluster = opened.enter_context(Cluster(binaries, directory))
        server = opened.enter_context(serving(cluster, directory))
        server.await_ready()
        tried = Restores(cluster, server, limit)
        tried.back_up()
        for number in range(restores):
            variant = VARIANTS[number % len(VARIANTS)]
            tried.restore(number, variant, trials[variant])
        for number in range(restarts):
            restart(cluster, server, number, limit, trials["restart"])
        for number in range(starts):
            start_together(cluster, number, limit, trials["start"])
    figures = {name: each.figures for name, each in trials.items() if each.seconds}
    broken = []
    for name, each in trials.items():
        if each.different:
            broken.append(f"{name}: {each.different} times the state differed after {limit:g} s")
        if each.silent > SILENT:
            broken.append(f"{name}: the state differed for {each.silent:.1f} s and said so nowhere")
        broken += [f"{name}: {given_up}" for given_up in sorted(each.given_up)]
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
