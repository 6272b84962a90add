"""How soon a pod that a real kube-scheduler refused is bound after room has appeared for it.

Each trial has a namespace of its own and is alone in the cluster while it lasts: any event wakes
all pods that an extender refused, so that trials side by side would wake one another's.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import httpx
from typing_extensions import override

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.kube_scheduler import (
    SERVER,
    Cluster,
    binaries_option,
    node,
    pod,
    spread,
    start,
)
from tests.redis_server import RedisProcess, free_port
from topospread.cli.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SETTLED = 1.0
"""Seconds without a call of the scheduler after which a pod is left waiting."""

PATIENCE = 30.0

MODES = ("place", "filter")
FOLDER = click.Path(file_okay=False, path_type=Path)


@dataclass(frozen=True)
class Trial:
    """One change that makes room for a pod that was refused.

    Attributes:
        prepare: makes what is there before, in a namespace; returns the waiting pod.
        change: makes room.
        restore: undoes it for the next trial.
    """

    prepare: Callable[[Cluster, str], dict[str, Any]]
    change: Callable[[Cluster, str], None]
    restore: Callable[[Cluster, str], None] = lambda cluster, namespace: None


def pods(namespace: str, name: str = "") -> str:
    """The path of a namespace's pods, or of one."""
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


TAINTED = {"spec": {"taints": [{"key": "trial", "effect": "NoSchedule"}]}}


def occupied(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """Zones a and b have a pod each; the node of zone c is tainted."""
    cluster.patch("/api/v1/nodes/node-c", TAINTED)
    for zone in "ab":
        cluster.call("POST", pods(namespace), pod(f"web-{zone}", f"node-{zone}"))
    return pod("late", topologySpreadConstraints=spread())


def short_of_a_zone(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """Zones a and b have a pod each, and a third zone is wanted that has no node."""
    cluster.call("DELETE", "/api/v1/nodes/node-c")
    for zone in "ab":
        cluster.call("POST", pods(namespace), pod(f"web-{zone}", f"node-{zone}"))
    return pod("late", topologySpreadConstraints=spread(min_domains=3))


def full(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """Zones a and b have a pod each; another pod takes all of the node of zone c."""
    for zone in "ab":
        cluster.call("POST", pods(namespace), pod(f"web-{zone}", f"node-{zone}"))
    cluster.call("POST", pods(namespace), pod("large", "node-c", app="other", cpu="8"))
    return pod("late", topologySpreadConstraints=spread())


def untaint(cluster: Cluster, namespace: str) -> None:
    """Zone c may be used."""
    del namespace
    cluster.patch("/api/v1/nodes/node-c", {"spec": {"taints": None}})


def relabel(cluster: Cluster, namespace: str) -> None:
    """The pod in zone a counts no more."""
    cluster.patch(pods(namespace, "web-a"), {"metadata": {"labels": {"app": "former"}}})


def join(cluster: Cluster, namespace: str) -> None:
    """Zone c gets a node."""
    del namespace
    cluster.call("POST", "/api/v1/nodes", node("node-c", "c"))


def deletion(name: str) -> Callable[[Cluster, str], None]:
    """A pod goes."""

    def delete(cluster: Cluster, namespace: str) -> None:
        cluster.call("DELETE", pods(namespace, name) + "?gracePeriodSeconds=0")

    return delete


TRIALS = {
    "label change": Trial(occupied, relabel, untaint),
    "deletion": Trial(occupied, deletion("web-a"), untaint),
    "taint gone": Trial(occupied, untaint),
    "node joined": Trial(short_of_a_zone, join),
    "capacity freed": Trial(full, deletion("large")),
}

SYNCED_BY = ("same", "other", "two")
"""The server that is asked syncs; another one does; two are asked in turn, and both may sync."""


class Bindings:
    """When pods were bound, as a watch of the API server tells."""

    def __init__(self, opened: ExitStack, cluster: Cluster) -> None:
        self._cluster = cluster
        self._bound: dict[tuple[str, str], float] = {}
        self._changed = threading.Condition()
        self._ended = threading.Event()
        opened.callback(self._ended.set)
        threading.Thread(target=self._watch, daemon=True).start()

    def wait(self, namespace: str, name: str, seconds: float) -> float | None:
        """When a pod was bound; None if it is not by then."""
        with self._changed:
            self._changed.wait_for(lambda: (namespace, name) in self._bound, seconds)
            return self._bound.get((namespace, name))

    def _watch(self) -> None:
        # A watch that names no version begins with what there is, so that nothing is missed.
        while not self._ended.wait(0.1):
            with suppress(httpx.HTTPError):
                self._read()

    def _read(self) -> None:
        path = "/api/v1/pods?watch=1"
        with (
            httpx.Client(base_url=self._cluster.url, verify=self._cluster.trust) as client,
            client.stream("GET", path, headers=self._cluster.authorized, timeout=None) as stream,
        ):
            for line in stream.iter_lines():
                found = json.loads(line)["object"]
                if found["spec"].get("nodeName"):
                    with self._changed:
                        meta = found["metadata"]
                        self._bound.setdefault((meta["namespace"], meta["name"]), time.monotonic())
                        self._changed.notify_all()


@dataclass(frozen=True)
class Call:
    """A call of filter.

    Attributes:
        at: on the monotonic clock.
        pod: its namespace and name.
        args: what was asked.
        names: the nodes that were answered.
    """

    at: float
    pod: str
    args: dict[str, Any]
    names: Sequence[str]


class Balancer:
    """Passes each request on to the next of some servers, and notes what it was asked.

    Attributes:
        calls: the last of them.
    """

    def __init__(self, opened: ExitStack, servers: Sequence[str]) -> None:
        self.calls: deque[Call] = deque(maxlen=1000)
        turns = cycle(servers)
        client = opened.enter_context(httpx.Client(timeout=10.0, trust_env=False))
        balancer = self

        class Handler(BaseHTTPRequestHandler):
            """Passes requests on."""

            protocol_version = "HTTP/1.1"
            wbufsize = -1

            @override
            def log_message(self, format: str, *args: Any) -> None:
                """Silence."""

            def do_POST(self) -> None:
                """Pass a request on."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                at = time.monotonic()
                answer = client.post(next(turns) + self.path, content=body)
                balancer.note(at, json.loads(body), answer.json())
                self.send_response(answer.status_code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        opened.callback(server.server_close)
        opened.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"

    def note(self, at: float, asked: dict[str, Any], answered: dict[str, Any]) -> None:
        """Keep a call."""
        meta = asked["Pod"]["metadata"]
        meta.pop("managedFields", None)
        name = f"{meta['namespace']}/{meta['name']}"
        self.calls.append(Call(at, name, asked, answered.get("NodeNames") or []))


@contextmanager
def servers(
    cluster: Cluster, directory: Path, mode: str, synced_by: str, wake: str
) -> Iterator[Sequence[str]]:
    """topospread, synced as one of SYNCED_BY says; yields the URLs that may be asked."""
    with ExitStack() as opened:
        redis = opened.enter_context(RedisProcess(directory))
        config = cluster.kubeconfig(SERVER, "topospread")
        urls = []
        for number in range(1 if synced_by == "same" else 2):
            http = f"127.0.0.1:{free_port()}"
            syncs = number == 0 or synced_by == "two"
            start(
                opened,
                directory,
                f"topospread-{number}",
                *(sys.executable, "-m", "topospread", "serve"),
                *("--listen", "127.0.0.1:0", "--http", http, "--store", redis.url),
                *("--extender", mode, "--extender-wake", wake, "--log-format", "text"),
                *(("--sync",) if syncs else ()),
                *("--sync-kubeconfig", config),
            )
            urls.append(f"http://{http}")
            await_ready(urls[-1])
        yield urls[1:] if synced_by == "other" else urls


def await_ready(url: str) -> None:
    """Wait until a server is ready."""
    ends = time.monotonic() + 90.0
    while time.monotonic() < ends:
        try:
            if httpx.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"{url} is not ready")


def woken(urls: Sequence[str]) -> int:
    """Pods that servers have woken, as their metrics tell."""
    name = 'topospread_extender_wakes_total{cluster="default",result="woken"} '
    pages = [httpx.get(f"{url}/metrics", trust_env=False).text for url in urls]
    lines = [line for page in pages for line in page.splitlines() if line.startswith(name)]
    return sum(int(float(line.removeprefix(name))) for line in lines)


class NotRefusedError(Exception):
    """The state had not what was there before: there is nothing to try."""


@dataclass(frozen=True)
class Plan:
    """What is tried, and how long is waited for it; `record` is a folder for what happened."""

    trials: int
    limit: float
    patience: float
    wake: str
    changes: Sequence[str]
    record: Path | None


def attempt(
    cluster: Cluster,
    bindings: Bindings,
    trial: Trial,
    name: str,
    plan: Plan,
    balancer: Balancer | None,
) -> float | None:
    """One trial; returns the seconds from the change to the binding, None past the limit."""
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    waiting = trial.prepare(cluster, name)
    time.sleep(0.3)  # the scheduler and the state have what is there before
    cluster.call("POST", pods(name), waiting)
    try:
        _await_refusal(cluster, name)
    except NotRefusedError:
        trial.change(cluster, name)
        trial.restore(cluster, name)
        cluster.call("DELETE", pods(name) + "?gracePeriodSeconds=0")
        raise
    time.sleep(SETTLED)
    before = objects(cluster, name) if plan.record else {}
    began = time.monotonic()
    trial.change(cluster, name)
    bound = bindings.wait(name, "late", plan.patience)
    if plan.record and balancer is not None and bound is not None:
        calls = [call for call in balancer.calls if call.pod == f"{name}/late"]
        record(plan.record, name, before, objects(cluster, name), calls, began)
    trial.restore(cluster, name)
    cluster.call("DELETE", pods(name) + "?gracePeriodSeconds=0")
    return None if bound is None else max(0.0, bound - began)


def objects(cluster: Cluster, namespace: str) -> dict[str, dict[str, Any]]:
    """The nodes and a namespace's pods, by kind and name."""
    found = {}
    for kind, path in (("Node", "/api/v1/nodes"), ("Pod", pods(namespace))):
        for one in cluster.call("GET", path)["items"]:
            one["metadata"].pop("managedFields", None)
            found[f"{kind}/{one['metadata']['name']}"] = {"kind": kind, **one}
    return found


def record(
    folder: Path,
    name: str,
    before: dict[str, dict[str, Any]],
    after: dict[str, dict[str, Any]],
    calls: Sequence[Call],
    began: float,
) -> None:
    """Keep what happened, for tests that have no kube-scheduler.

    A trial in which the scheduler tried again too early goes before one in which it did not.
    """
    path = folder / f"refused-{name.rpartition('-')[0]}.json"
    taken = {node for call in calls for node in call.names}
    late = [call for call in calls if call.at > began and not call.names]
    # Others were asked before the scheduler itself had the change.
    early = sum(not taken.isdisjoint(call.args["NodeNames"]) for call in late)
    if path.exists() and json.loads(path.read_text())["refusedAfterTheChange"] >= early:
        return
    content = {
        "namespace": name,
        "refusedAfterTheChange": early,
        "before": list(before.values()),
        "changed": [
            one
            for key, one in after.items()
            if key != "Pod/late" and before.get(key, {}).get("metadata") != one["metadata"]
        ],
        "removed": [key for key in before if key not in after],
        "refused": [call.args for call in calls if not call.names],
        "accepted": [{"args": call.args, "names": call.names} for call in calls if call.names],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _await_refusal(cluster: Cluster, name: str) -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = cluster.call("GET", pods(name, "late"))
        if found["spec"].get("nodeName"):
            raise NotRefusedError(f"the pod of {name} was bound at once")
        if any(one["type"] == "PodScheduled" for one in found["status"].get("conditions", ())):
            return
        time.sleep(0.02)
    raise RuntimeError(f"the scheduler did not look at the pod of {name}")


@campaign(
    "retries",
    binaries_option,
    click.option("--trials", type=click.IntRange(1), default=50, show_default=True),
    click.option("--limit", type=float, default=2.0, help="Seconds; later is too late."),
    click.option("--patience", type=float, default=10.0, help="Seconds; then it is stuck."),
    click.option("--change", "changes", multiple=True, type=click.Choice([*TRIALS])),
    click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), default=MODES),
    click.option("--synced-by", multiple=True, type=click.Choice(SYNCED_BY), default=SYNCED_BY),
    click.option("--wake", type=click.Choice(["on", "off"]), default="on"),
    click.option("--record", "folder", type=FOLDER, help="Where to write what happened."),
    click.option("--logs", type=FOLDER, help="Where to keep the logs."),
)
def command(
    binaries: Path,
    trials: int,
    limit: float,
    patience: float,
    changes: tuple[str, ...],
    modes: tuple[str, ...],
    synced_by: tuple[str, ...],
    wake: str,
    folder: Path | None,
    logs: Path | None,
) -> Outcome:
    """Make room for pods that a real kube-scheduler was refused, and see when they are bound.

    docs/kube-scheduler.md promises that each is woken, so that it is bound within --limit.
    """
    figures: dict[str, Any] = {}
    with ExitStack() as opened:
        directory = logs or Path(opened.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        cluster = opened.enter_context(Cluster(binaries, directory))
        for zone in "abc":
            cluster.call("POST", "/api/v1/nodes", node(f"node-{zone}", zone))
        plan = Plan(trials, limit, max(limit, patience), wake, changes or tuple(TRIALS), folder)
        bindings = Bindings(opened, cluster)
        for mode in modes:
            for way in synced_by:
                figures |= _try_all(cluster, bindings, directory, mode, way, plan)
    late = sum(each["late"] for each in figures.values())
    broken = [f"{late} pods were bound later than {limit:g} s, or not at all"] * bool(late)
    return Outcome(figures, broken)


def _try_all(
    cluster: Cluster, bindings: Bindings, directory: Path, mode: str, synced_by: str, plan: Plan
) -> dict[str, Any]:
    """All changes with one mode and way of syncing; the figures of each."""
    figures: dict[str, Any] = {}
    folder = directory / f"{mode}-{synced_by}"
    folder.mkdir(exist_ok=True)
    with ExitStack() as opened:
        urls = opened.enter_context(servers(cluster, folder, mode, synced_by, plan.wake))
        balancer = Balancer(opened, urls) if len(urls) > 1 or plan.record else None
        url = urls[0] if balancer is None else balancer.url
        cluster.scheduler(opened, {"urlPrefix": f"{url}/extender/v1", "filterVerb": "filter"})
        for change in plan.changes:
            before = woken(urls)
            seconds: list[float | None] = []
            for number in range(plan.trials):
                name = f"{mode}-{synced_by}-{change.replace(' ', '-')}-{number}"
                for again in ("", "-again", "-once-more"):
                    try:
                        took = attempt(
                            cluster, bindings, TRIALS[change], name + again, plan, balancer
                        )
                        break
                    except NotRefusedError as error:
                        note(f"{error}: tried again")
                else:
                    raise Unreachable("the state does not follow the cluster")
                seconds.append(took)
            known = [math.inf if each is None else each for each in seconds]
            figures[f"{mode}, {synced_by}, {change}"] = {
                "trials": len(known),
                "woken": woken(urls) - before,
                "late": sum(each > plan.limit for each in known),
                "median": round(statistics.median(known), 2),
                "longest": round(max(known), 2),
            }
    return figures


if __name__ == "__main__":
    sys.exit(run(command))
