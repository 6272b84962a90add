"""Scale-ins and rebalance plans, carried out by real controllers, beside their predictions."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.kube_scheduler import (
    PATIENCE,
    SERVER,
    ZONE,
    Cluster,
    binaries_option,
    node,
    pod,
    spread,
    start,
)
from bench.campaigns.kubelets import Kubelets
from bench.campaigns.retries import await_ready, pods
from tests.redis_server import free_port
from topospread.cli.errors import Unreachable
from topospread_client import Client
from topospread_proto.v1.common_pb2 import OPTIMALITY_PROVEN
from topospread_proto.v1.deletion_order_pb2 import RANK_STRATEGY_REPLICA_SET

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]

BEFORE, AFTER = 12, 5
"""Replicas of a scale-in."""

REBALANCED = ((1, 6), (2, 6), (1, 8), (2, 8), (1, 9), (2, 9))
"""(maxSkew, replicas) of the plans, in turn."""


@dataclass(frozen=True)
class Trials:
    """A cluster with controllers, and what follows it."""

    cluster: Cluster
    client: Client

    def nodes(self, namespace: str, zones: str) -> None:
        """Two nodes of each zone that are for a namespace's pods alone."""
        for zone in zones:
            for number in range(2):
                made = node(f"{namespace}-{zone}{number}", zone)
                made["metadata"]["labels"]["trial"] = namespace
                self.cluster.call("POST", "/api/v1/nodes", made)

    def deploy(self, namespace: str, replicas: int, max_skew: int) -> None:
        """A namespace with a Deployment that has all its pods ready."""
        self.cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        template = pod("", nodeSelector={"trial": namespace})
        del template["metadata"]["name"]
        template["spec"]["topologySpreadConstraints"] = spread(max_skew)
        labels = {"matchLabels": {"app": "web"}}
        spec = {"replicas": replicas, "selector": labels, "template": template}
        made = {"metadata": {"name": "web"}, "spec": spec}
        self.cluster.call("POST", deployments(namespace), made)
        self.settled(namespace)

    def change(self, namespace: str, **spec: Any) -> None:
        """Change the Deployment, and wait until that is done."""
        self.cluster.patch(deployments(namespace, "web"), {"spec": spec})
        self.settled(namespace)

    def settled(self, namespace: str) -> list[Json]:
        """The pods, once there are as many as are wanted, all new, ready and none on its way."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            found = self.cluster.call("GET", deployments(namespace, "web"))
            wanted, status = found["spec"]["replicas"], found.get("status", {})
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            there: list[Json] = self.cluster.call("GET", pods(namespace))["items"]
            numbers = [
                status.get(each) for each in ("replicas", "updatedReplicas", "readyReplicas")
            ]
            if current and numbers == [wanted] * 3 and len(there) == wanted:
                return there
            time.sleep(0.05)
        raise Unreachable(f"the Deployment of {namespace} does not settle")

    def fresh(self) -> Json:
        """No older than what the API server has now: a pod that nobody schedules is its newest."""
        marker = pod("", app="marker", schedulerName="nobody")
        marker["metadata"]["generateName"] = "marker-"
        made = self.cluster.call("POST", pods("default"), marker)
        nodes = self.cluster.call("GET", "/api/v1/nodes")["items"]
        newest = {
            "KIND_POD": made["metadata"]["resourceVersion"],
            "KIND_NODE": str(max(int(each["metadata"]["resourceVersion"]) for each in nodes)),
        }
        versions = [{"kind": kind, "resource_version": of} for kind, of in newest.items()]
        return {"not_older_than": {"versions": versions}}

    def zones(self, there: Sequence[Json]) -> dict[str, int]:
        """Pods by zone."""
        of_node = {
            each["metadata"]["name"]: each["metadata"]["labels"][ZONE]
            for each in self.cluster.call("GET", "/api/v1/nodes")["items"]
        }
        found = Counter(of_node[each["spec"]["nodeName"]] for each in there)
        return {zone: found[zone] for zone in "abc"}


def deployments(namespace: str, name: str = "") -> str:
    """The path of a namespace's Deployments, or of one."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments" + (f"/{name}" if name else "")


def scale_in(trials: Trials, namespace: str, what: str) -> tuple[Json, list[str]]:
    """One scale-in; returns its figures, and which promises it broke."""
    said = trials.client.rank_deletions(
        {"app": "web"},
        namespace=namespace,
        delete_count=BEFORE - AFTER,
        strategy=RANK_STRATEGY_REPLICA_SET,
        consistency=trials.fresh(),
    )
    before = {each["metadata"]["name"] for each in trials.settled(namespace)}
    trials.change(namespace, replicas=AFTER)
    there = trials.settled(namespace)
    gone = before - {each["metadata"]["name"] for each in there}
    certain = {each.pod.name for each in said.pods if each.certain}
    possible = {each.pod.name for each in (*said.pods, *said.alternatives)}
    zones = trials.zones(there)
    skew = max(zones.values()) - min(zones.values())
    (only,) = said.constraints
    broken = []
    if not certain <= gone:
        broken.append(f"{what} of {namespace}: {sorted(certain - gone)} stayed, told to go")
    if not gone <= possible:
        broken.append(f"{what} of {namespace}: {sorted(gone - possible)} went, told to stay")
    if not only.lowest_skew_after <= skew <= only.highest_skew_after:
        predicted = f"{only.lowest_skew_after} to {only.highest_skew_after}"
        broken.append(f"{what} of {namespace}: a skew of {skew}, told {predicted}")
    exact = gone == {each.pod.name for each in said.pods}
    figures = {
        "certain": len(certain),
        "possible": len(possible),
        "exact order": exact,
        "skew": skew,
        "lowest": only.lowest_skew_after,
        "highest": only.highest_skew_after,
    }
    return figures, broken


def rebalance(
    trials: Trials, namespace: str, max_skew: int, replicas: int
) -> tuple[Json, list[str]]:
    """One plan carried out: pods of one zone, when the nodes of two more came."""
    trials.nodes(namespace, "a")
    trials.deploy(namespace, replicas, max_skew)
    trials.nodes(namespace, "bc")
    plan = trials.client.plan_rebalance(namespace=namespace, consistency=trials.fresh())
    for step in plan.evictions:
        name = step.pod.name
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": step.pod.uid}},
        }
        trials.cluster.call("POST", f"{pods(namespace, name)}/eviction", body)
        _await_gone(trials, namespace, step.pod.uid)
        trials.settled(namespace)
    zones = trials.zones(trials.settled(namespace))
    skew = max(zones.values()) - min(zones.values())
    (group,) = plan.groups
    (only,) = group.constraints
    proven = group.optimality == OPTIMALITY_PROVEN
    broken = []
    if skew > only.highest_skew_after or (proven and skew > max_skew):
        predicted = f"at most {only.highest_skew_after}{', proven' * proven}"
        broken.append(f"plan of {namespace}: a skew of {skew}, told {predicted}")
    figures = {
        "evictions": len(plan.evictions),
        "proven": proven,
        "planned": only.skew_after,
        "highest": only.highest_skew_after,
        "zones": "/".join(str(zones[zone]) for zone in "abc"),
    }
    return figures, broken


def _await_gone(trials: Trials, namespace: str, uid: str) -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        there = trials.cluster.call("GET", pods(namespace))["items"]
        if uid not in {each["metadata"]["uid"] for each in there}:
            return
        time.sleep(0.05)
    raise Unreachable(f"an evicted pod of {namespace} stays")


def serve(opened: ExitStack, cluster: Cluster, directory: Path) -> Client:
    """A server that follows the cluster."""
    address, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    start(
        opened,
        directory,
        "topospread",
        *(sys.executable, "-m", "topospread", "serve", "--listen", address, "--http", http),
        *("--store", "memory:", "--log-format", "text", "--sync"),
        *("--sync-kubeconfig", cluster.kubeconfig(SERVER, "topospread")),
    )
    await_ready(f"http://{http}")
    return opened.enter_context(Client(address))


@campaign(
    "predictions",
    binaries_option,
    click.option("--scale-ins", type=click.IntRange(0), default=28, show_default=True),
    click.option("--rebalances", type=click.IntRange(0), default=12, show_default=True),
    click.option("--seed", type=int, default=0, help="Of how long pods need until ready."),
)
def command(binaries: Path, scale_ins: int, rebalances: int, seed: int) -> Outcome:
    """Have real controllers scale Deployments in and evict by plans, and compare predictions.

    docs/scale-down.md promises that pods that are certain go, no others than those that may, and
    that the skew is within what is told; docs/rebalance.md that no plan ends further off.
    """
    figures: dict[str, Any] = {}
    broken: list[str] = []
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        cluster = opened.enter_context(Cluster(binaries, directory))
        cluster.controllers(opened)
        cluster.scheduler(opened, None)
        Kubelets(opened, cluster, seed=seed)
        trials = Trials(cluster, serve(opened, cluster, directory))
        for number in range(scale_ins):
            namespace, rolled = f"scaled-{number // 2}", number % 2 == 1
            if rolled:
                trials.change(namespace, replicas=BEFORE)
                again = {"metadata": {"annotations": {"round": str(number)}}}
                trials.change(namespace, template=again)
            else:
                trials.nodes(namespace, "abc")
                trials.deploy(namespace, BEFORE, 1)
            what = "after a rollout" if rolled else "after the first deployment"
            name = f"scale-in {number}, {what}"
            figures[name], wrong = scale_in(trials, namespace, what)
            note(f"{name}: {figures[name]}")
            broken += wrong
        for number in range(rebalances):
            max_skew, replicas = REBALANCED[number % len(REBALANCED)]
            name = f"plan {number}, maxSkew {max_skew}, {replicas} pods"
            figures[name], wrong = rebalance(trials, f"uneven-{number}", max_skew, replicas)
            note(f"{name}: {figures[name]}")
            broken += wrong
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
