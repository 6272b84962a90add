"""How fast pods that come at once are bound by a real kube-scheduler, and how they are spread."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from bench.campaigns.campaign import Outcome, campaign, run
from bench.campaigns.kube_scheduler import ZONE, Cluster, binaries_option, node, pod, spread
from bench.campaigns.retries import Bindings, pods, servers
from topospread.cli.errors import Unreachable

NODES = 6
MODES = ("in-tree", "place", "filter")
PATIENCE = 180.0


def burst(binaries: Path, mode: str, wake: str, number: int) -> tuple[float, Counter[str]]:
    """One burst in a cluster of its own; returns pods bound in a second, and the zones' shares."""
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        cluster = opened.enter_context(Cluster(binaries, directory))
        for index in range(NODES):
            made = node(f"node-{index}", "abc"[index % 3], cpu="64")
            for amounts in ("capacity", "allocatable"):
                made["status"][amounts]["pods"] = "500"
            cluster.call("POST", "/api/v1/nodes", made)
        bindings = Bindings(opened, cluster)
        extender: dict[str, Any] | None = None
        if mode != "in-tree":
            (url,) = opened.enter_context(servers(cluster, directory, mode, "same", wake))
            extender = {"urlPrefix": f"{url}/extender/v1", "filterVerb": "filter"}
        cluster.scheduler(opened, extender)
        names = [f"web-{index}" for index in range(number)]
        with ThreadPoolExecutor(8) as several:
            list(
                several.map(
                    lambda name: cluster.call(
                        "POST",
                        pods("default"),
                        pod(name, topologySpreadConstraints=spread()),
                    ),
                    names,
                )
            )
        times = [bindings.wait("default", name, PATIENCE) for name in names]
        bound = sorted(at for at in times if at is not None)
        if len(bound) < number:
            raise Unreachable(f"only {len(bound)} of {number} pods were bound")
        return (number - 1) / (bound[-1] - bound[0]), _zones(cluster)


def _zones(cluster: Cluster) -> Counter[str]:
    zones = {
        one["metadata"]["name"]: one["metadata"]["labels"][ZONE]
        for one in cluster.call("GET", "/api/v1/nodes")["items"]
    }
    found = cluster.call("GET", pods("default"))["items"]
    return Counter(zones[one["spec"]["nodeName"]] for one in found)


@campaign(
    "bursts",
    binaries_option,
    click.option("--pods", "number", type=click.IntRange(1), default=500, show_default=True),
    click.option("--runs", type=click.IntRange(1), default=2, show_default=True),
    click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), default=MODES),
    click.option("--wake", multiple=True, type=click.Choice(["on", "off"]), default=["on"]),
)
def command(
    binaries: Path, number: int, runs: int, modes: tuple[str, ...], wake: tuple[str, ...]
) -> Outcome:
    """Create pods at once, with a hard constraint over three zones; pods bound a second.

    Mode in-tree is the scheduler's own plugin. docs/kube-scheduler.md promises that maxSkew 1 holds
    in mode place.
    """
    figures: dict[str, Any] = {}
    broken = []
    for run_number in range(1, runs + 1):
        for mode in modes:
            for each in wake:
                name = f"{mode}, wake {each}, run {run_number}"
                speed, zones = burst(binaries, mode, each, number)
                figures[name] = {"pods/s": round(speed), **{f"zone {z}": zones[z] for z in "abc"}}
                skew = max(zones[z] for z in "abc") - min(zones[z] for z in "abc")
                if mode == "place" and skew > 1:
                    broken.append(f"{name}: a skew of {skew}")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
