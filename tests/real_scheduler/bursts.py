"""How fast many pods that come at once are bound, and how they end up spread.

    python -m tests.real_scheduler.bursts --binaries DIR --pods 500 --runs 2

Three zones, a hard constraint, maxSkew 1. `in-tree` is the scheduler's own plugin.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.real_scheduler.cluster import ZONE, Cluster, node, pod, spread
from tests.real_scheduler.retries import Bindings, pods, servers

NODES = 6
PATIENCE = 180.0


def main() -> None:
    """Try what was asked for, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--binaries", type=Path, required=True)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--runs", type=int, default=2)
    modes = ("in-tree", "place", "filter")
    parser.add_argument("--modes", nargs="+", choices=modes, default=list(modes))
    parser.add_argument("--wake", nargs="+", choices=("on", "off"), default=["on"])
    options = parser.parse_args()
    print("| mode | wake | pods/s | pods by zone |", flush=True)
    print("|---|---|---|---|", flush=True)
    for _ in range(options.runs):
        for mode in options.modes:
            for wake in options.wake:
                speed, zones = burst(options.binaries, mode, wake, options.pods)
                print(f"| {mode} | {wake} | {speed:.0f} | {zones} |", flush=True)


def burst(binaries: Path, mode: str, wake: str, number: int) -> tuple[float, str]:
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
            raise SystemExit(f"only {len(bound)} of {number} pods were bound")
        return (number - 1) / (bound[-1] - bound[0]), _zones(cluster)


def _zones(cluster: Cluster) -> str:
    zones = {
        one["metadata"]["name"]: one["metadata"]["labels"][ZONE]
        for one in cluster.call("GET", "/api/v1/nodes")["items"]
    }
    found = cluster.call("GET", pods("default"))["items"]
    counts = Counter(zones[one["spec"]["nodeName"]] for one in found)
    return " / ".join(str(counts[zone]) for zone in "abc")


if __name__ == "__main__":
    main()
