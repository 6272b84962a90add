"""Scale-ups by a real cluster-autoscaler: where a workload's pods end, and on how many nodes."""

from __future__ import annotations

import ssl
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import httpx

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.kube_scheduler import (
    ADMIN,
    PATIENCE,
    SERVER,
    Cluster,
    binaries_option,
    node,
    start,
)
from bench.campaigns.node_pools import (
    NAMESPACE,
    SIZES,
    STEPS,
    WORKLOADS,
    ZONES,
    Pool,
    Seen,
    Trial,
)
from tests.expander.autoscaler import all_ends, skew
from tests.redis_server import free_port
from topospread.cli.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SERVED: Final = ("spread", "nodes")
"""The values of --expander-prefer."""

EXPANDERS: Final = (*SERVED, "least-waste")
"""topospread with each of these, and one of the autoscaler's own."""


@dataclass(frozen=True)
class Expander:
    """A topospread server with --expander-prefer, over TLS."""

    expander: str
    http: str
    trust: str

    @property
    def calls(self) -> int:
        """Calls that the autoscalers made and that were answered."""
        page = self.get("/metrics").text
        wanted = ("topospread_calls_total{", 'method="Expander/BestOptions"', 'code="OK"')
        lines = [line for line in page.splitlines() if all(part in line for part in wanted)]
        return sum(int(float(line.rpartition(" ")[2])) for line in lines)

    def get(self, path: str) -> httpx.Response:
        """A page of the server's."""
        context = ssl.create_default_context(cafile=self.trust)
        return httpx.get(f"https://{self.http}{path}", verify=context, trust_env=False)

    def await_ready(self) -> None:
        """See to it that it follows the cluster."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            with suppress(httpx.HTTPError):
                if self.get("/readyz").status_code == 200:
                    return
            time.sleep(0.1)
        raise Unreachable(f"topospread at {self.http} is not ready")


def serve(opened: ExitStack, cluster: Cluster, directory: Path, prefer: str) -> Expander:
    """A server that follows the cluster, and serves its expander with TLS."""
    listen, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    made = Expander(listen, http, cluster.trust)
    start(
        opened,
        directory,
        f"topospread-{prefer}",
        *(sys.executable, "-m", "topospread", "serve", "--store", "memory:"),
        *("--listen", "127.0.0.1:0", "--http", made.http, "--log-format", "text"),
        *("--sync", "--sync-kubeconfig", cluster.kubeconfig(SERVER, "topospread")),
        *("--expander-listen", made.expander, "--expander-prefer", prefer),
        *("--tls-cert", str(directory / "server.crt"), "--tls-key", str(directory / "server.key")),
    )
    made.await_ready()
    return made


def autoscaler(
    opened: ExitStack, cluster: Cluster, binaries: Path, trial: Trial, served: Expander | None
) -> None:
    """Start a cluster-autoscaler for one pool; its provider kwok makes nodes without machines."""
    config = cluster.kubeconfig(ADMIN, trial.pool)
    own = ["--expander=least-waste"]
    if served is not None:
        own = [
            "--expander=grpc,random",
            f"--grpc-expander-url={served.expander}",
            f"--grpc-expander-cert={cluster.trust}",
        ]
    start(
        opened,
        cluster.directory,
        trial.pool,
        *("env", "KWOK_PROVIDER_MODE=local", f"KUBECONFIG={config}", f"POD_NAMESPACE={NAMESPACE}"),
        f"KWOK_PROVIDER_CONFIGMAP={trial.pool}",
        *(str(binaries / "cluster-autoscaler"), "--cloud-provider=kwok", f"--kubeconfig={config}"),
        *("--scan-interval=1s", "--scale-down-enabled=false", "--leader-elect=false"),
        *("--write-status-configmap=false", f"--address=127.0.0.1:{free_port()}", "--v=4"),
        *own,
    )


def tried(
    cluster: Cluster, binaries: Path, servers: Mapping[str, Expander], trial: Trial
) -> Sequence[Seen]:
    """Grow a workload; returns what there is after each step."""
    pool = Pool(cluster, trial)
    pool.prepare()
    seen = []
    with ExitStack() as opened:
        autoscaler(opened, cluster, binaries, trial, servers.get(trial.expander))
        for step in STEPS:
            pool.grow(step)
            seen.append(pool.settled())
    note(f"{trial.pool}: {' '.join(each.text for each in seen)}, {seen[-1].nodes} nodes")
    return seen


def broken_by(trial: Trial, seen: Seen, wasteful: Seen | None) -> Iterator[str]:
    """What docs/cluster-autoscaler.md promises of an even spread, and did not come."""
    ends = all_ends(trial.begin, STEPS)
    waiting = min(end.waiting for end in ends)
    widest = min(skew(end) for end in ends if end.waiting == waiting)
    grows = [full is None for full in ZONES[trial.zones]]
    pods = [there for there, open_ in zip(seen.pods, grows, strict=True) if open_]
    wanted = max(widest, WORKLOADS[trial.workload].max_skew)
    if seen.waiting > waiting:
        yield f"{trial.pool}: {seen.waiting} pods wait, {waiting} have to"
    if max(pods) - min(pods) > wanted:
        yield f"{trial.pool}: ends {seen.text}, a skew of {wanted} could be reached"
    if wasteful and wasteful.waiting == seen.waiting and seen.nodes > wasteful.nodes:
        yield f"{trial.pool}: {seen.nodes} nodes, least-waste {wasteful.nodes}"


@campaign(
    "autoscaler",
    binaries_option,
    click.option("--sizes", multiple=True, type=click.Choice([*SIZES]), default=[*SIZES]),
    click.option(
        "--workload", multiple=True, type=click.Choice([*WORKLOADS]), default=[*WORKLOADS]
    ),
    click.option("--zones", multiple=True, type=click.Choice([*ZONES]), default=[*ZONES]),
    click.option("--expander", multiple=True, type=click.Choice(EXPANDERS), default=EXPANDERS),
    click.option("--parallel", type=click.IntRange(1), default=6, show_default=True),
)
def command(
    binaries: Path,
    sizes: Sequence[str],
    workload: Sequence[str],
    zones: Sequence[str],
    expander: Sequence[str],
    parallel: int,
) -> Outcome:
    """Grow a workload from 0 to 3, 6 and 9 pods of 3 CPUs, over three zones with a group each.

    The folder also has cluster-autoscaler, with its provider kwok. Sizes are the CPUs of a node of
    each group. docs/cluster-autoscaler.md promises that the pods end as evenly as the autoscaler's
    options allow, that none waits that other choices would place, and no more nodes than by
    least-waste.
    """
    trials = [Trial(*each) for each in product(sizes, workload or WORKLOADS, zones, expander)]
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        cluster = opened.enter_context(Cluster(binaries, directory))
        # The servers and the autoscalers begin with a node that no trial may use.
        cluster.call("POST", "/api/v1/nodes", node("other", "a"))
        cluster.scheduler(opened, None)
        servers = {
            prefer: serve(opened, cluster, directory, prefer)
            for prefer in expander
            if prefer in SERVED
        }
        with ThreadPoolExecutor(parallel) as several:
            ran = several.map(partial(tried, cluster, binaries, servers), trials)
            seen = dict(zip(trials, ran, strict=True))
        unasked = [prefer for prefer, server in servers.items() if not server.calls]
        if unasked:
            raise Unreachable(f"no autoscaler was answered by --expander-prefer={unasked[0]}")
    return Outcome(dict(_figures(seen)), [*_broken(seen)])


def _figures(seen: Mapping[Trial, Sequence[Seen]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for trial, steps in seen.items():
        name = f"{trial.sizes}, {trial.workload}, {trial.zones}, {trial.expander}"
        after = {f"step {number}": each.text for number, each in enumerate(steps, 1)}
        yield name, {**after, "nodes": steps[-1].nodes, "wait": steps[-1].waiting}


def _broken(seen: Mapping[Trial, Sequence[Seen]]) -> Iterator[str]:
    for trial, steps in seen.items():
        if trial.expander == "spread":
            beside = seen.get(replace(trial, expander="least-waste"))
            yield from broken_by(trial, steps[-1], beside[-1] if beside else None)


if __name__ == "__main__":
    sys.exit(run(command))
