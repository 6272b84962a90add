"""How fast pods that come at once are bound by a real kube-scheduler, and how they are spread."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.kube_scheduler import ZONE, Cluster, binaries_option, node, pod, spread
from bench.campaigns.retries import Bindings, pods, servers
from topospread.cli.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

IN_TREE: Final = "in-tree"
MODES: Final = (IN_TREE, "place", "filter")
MOST_SKEW: Final = {IN_TREE: 1, "place": 1, "filter": 10}
"""Of the zones in the end, as docs/kube-scheduler.md has it."""

SLOWEST: Final = 0.5
"""Of the pods that the scheduler's own plugin binds in a second, by mode place."""

PATIENCE: Final = 180.0


@dataclass(frozen=True)
class Burst:
    """What came of one burst.

    Attributes:
        rate: pods bound in a second.
        zones: the pods of each.
        spent: milliseconds of processor time a pod, by program.
    """

    rate: float
    zones: Counter[str]
    spent: dict[str, float]

    @property
    def skew(self) -> int:
        """Of the zones in the end."""
        counts = [self.zones[zone] for zone in "abc"]
        return max(counts) - min(counts)


def burst(binaries: Path, mode: str, wake: str, nodes: int, number: int) -> Burst:
    """One burst in a cluster of its own."""
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        cluster = opened.enter_context(Cluster(binaries, directory))
        for index in range(nodes):
            made = node(f"node-{index:04}", "abc"[index % 3], cpu="64")
            for amounts in ("capacity", "allocatable"):
                made["status"][amounts]["pods"] = "500"
            cluster.call("POST", "/api/v1/nodes", made)
        bindings = Bindings(opened, cluster)
        extender: dict[str, Any] | None = None
        if mode != IN_TREE:
            (url,) = opened.enter_context(servers(cluster, directory, mode, "same", wake))
            extender = {"urlPrefix": f"{url}/extender/v1", "filterVerb": "filter"}
        cluster.scheduler(opened, extender)
        before = _spent()
        names = [f"web-{index}" for index in range(number)]
        with ThreadPoolExecutor(8) as several:
            list(several.map(lambda name: _create(cluster, name), names))
        times = [bindings.wait("default", name, PATIENCE) for name in names]
        after = _spent()
        bound = sorted(at for at in times if at is not None)
        if len(bound) < number:
            raise Unreachable(f"only {len(bound)} of {number} pods were bound")
        spent = {name: (after[name] - before[name]) / number * 1e3 for name in sorted(after)}
        return Burst((number - 1) / (bound[-1] - bound[0]), _zones(cluster), spent)


def _create(cluster: Cluster, name: str) -> None:
    cluster.call("POST", pods("default"), pod(name, topologySpreadConstraints=spread()))


def _zones(cluster: Cluster) -> Counter[str]:
    zones = {
        one["metadata"]["name"]: one["metadata"]["labels"][ZONE]
        for one in cluster.call("GET", "/api/v1/nodes")["items"]
    }
    found = cluster.call("GET", pods("default"))["items"]
    return Counter(zones[one["spec"]["nodeName"]] for one in found)


def _spent() -> dict[str, float]:
    """Seconds of processor time of the programs that this one has started, by name."""
    spent: dict[str, float] = defaultdict(float)
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            command = (directory / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        if int(fields[1]) == os.getpid():
            name = "topospread" if "topospread" in command else Path(command[0]).name
            ticks = int(fields[11]) + int(fields[12])
            spent[name.partition(" ")[0]] += ticks / os.sysconf("SC_CLK_TCK")
    return spent


@campaign(
    "bursts",
    binaries_option,
    click.option("--nodes", type=click.IntRange(3), default=300, show_default=True),
    click.option("--pods", "number", type=click.IntRange(2), default=500, show_default=True),
    click.option("--runs", type=click.IntRange(1), default=3, show_default=True),
    click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), default=MODES),
    click.option("--wake", type=click.Choice(["on", "off"]), default="on"),
)
def command(
    binaries: Path, nodes: int, number: int, runs: int, modes: tuple[str, ...], wake: str
) -> Outcome:
    """Create pods at once, with a hard constraint over three zones; pods bound a second.

    Mode in-tree is the scheduler's own plugin. The modes take turns, so that each run compares
    them. docs/kube-scheduler.md promises how far they end from maxSkew 1, and how fast place is.
    """
    bursts: dict[str, list[Burst]] = {mode: [] for mode in modes}
    for number_of_run in range(1, runs + 1):
        for mode in modes:
            done = burst(binaries, mode, wake, nodes, number)
            note(f"run {number_of_run}, {mode}: {done.rate:.0f} pods/s, skew {done.skew}")
            bursts[mode].append(done)
    figures = {
        f"{mode}, run {index}": _row(done, bursts, index - 1)
        for index in range(1, runs + 1)
        for mode in modes
        for done in (bursts[mode][index - 1],)
    }
    return Outcome(figures, _broken(bursts))


def _ratio(done: Burst, bursts: dict[str, list[Burst]], index: int) -> float | None:
    """Pods a second ÷ those of the scheduler's own plugin in the same run."""
    own = bursts.get(IN_TREE)
    return None if own is None else done.rate / own[index].rate


def _row(done: Burst, bursts: dict[str, list[Burst]], index: int) -> dict[str, Any]:
    ratio = _ratio(done, bursts, index)
    return {
        "pods/s": round(done.rate),
        "÷ in-tree": None if ratio is None else round(ratio, 2),
        "skew": done.skew,
        **{f"zone {zone}": done.zones[zone] for zone in "abc"},
        **{f"{name} ms/pod": round(ms, 1) for name, ms in done.spent.items()},
    }


def _broken(bursts: dict[str, list[Burst]]) -> Sequence[str]:
    broken = [
        f"{mode}, run {index}: a skew of {done.skew}, not {MOST_SKEW[mode]} at most"
        for mode, done_ones in bursts.items()
        for index, done in enumerate(done_ones, 1)
        if done.skew > MOST_SKEW[mode]
    ]
    ratios = [
        ratio
        for index, done in enumerate(bursts.get("place", ()))
        if (ratio := _ratio(done, bursts, index)) is not None
    ]
    if ratios and statistics.median(ratios) < SLOWEST:
        broken.append(f"place: {statistics.median(ratios):.2f} of in-tree's pods/s, not {SLOWEST}")
    return broken


if __name__ == "__main__":
    sys.exit(run(command))
