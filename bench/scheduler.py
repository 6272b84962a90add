"""An EvaluatePod over gRPC beside kube-scheduler's own plugin, in process, on the same cluster.

`bench/kube_scheduler/` is a program in Go around the plugin of an unchanged kube-scheduler. It
judges the same twenty pods on all nodes, without a network, without other plugins and without the
scheduler's queue and cache.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import json_format

from bench import requests
from bench.cluster import cluster_objects
from bench.figures import Figures
from bench.load import numbered, run_calls
from bench.processes import server
from bench.stores import filled_store
from topospread.cli.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster import Size
    from bench.options import BenchOptions

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "bench" / "kube_scheduler"
BUILT: Final = ROOT / ".tools" / "bench" / "kube-scheduler-plugin"

API_VERSIONS: Final = {
    "node": ("v1", "Node"),
    "pod": ("v1", "Pod"),
    "service": ("v1", "Service"),
    "replica_set": ("apps/v1", "ReplicaSet"),
}

FIGURES: Final = ("plugin_p50_ms", "plugin_cpu_ms", "evaluate_p50_ms", "faster", "cpu_ratio")


class Plugin:
    """The program, with a cluster loaded."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def judge(self, seconds: float) -> dict[str, float]:
        """Judge the pods by turns for so long.

        Returns:
            `pods` judged, `cpuSeconds` of the process, `medianSeconds` of one pod.

        Raises:
            Unreachable: the program ended; its reason is on stderr.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._line())
        return found

    def await_ready(self) -> None:
        """Wait until the cluster is loaded; raises as :meth:`judge` does."""
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unreachable("the program around kube-scheduler's plugin ended early")
        return line


def measure_scheduler(options: BenchOptions) -> Figures:
    """Milliseconds of a pod on all nodes by the plugin, and of an EvaluatePod of one caller."""
    figures = Figures()
    if not options.go:
        figures.lack(FIGURES, "no Go")
        return figures
    options.progress("scheduler: building kube-scheduler's plugin (some minutes, once)")
    refused = _build()
    if refused:
        figures.lack(FIGURES, refused)
        return figures
    messages = numbered(requests.evaluate_pod_requests(requests.incoming_pods()))
    with ExitStack() as opened:
        options.progress("scheduler: making the cluster")
        plugin = opened.enter_context(_plugin(options.size))
        store = opened.enter_context(filled_store(options.size))
        ours = opened.enter_context(server(store, environ={"TOPOSPREAD_CACHE_RESULTS": "false"}))

        def evaluate(seconds: float) -> Any:
            return run_calls(ours.address, requests.EVALUATE_POD, messages, 1, seconds)

        plugin.judge(0.5)
        evaluate(0.5)
        for number in range(options.rounds):
            options.progress(f"scheduler: round {number + 1} of {options.rounds}")
            theirs = plugin.judge(options.seconds)
            spent = ours.cpu()
            done = evaluate(options.seconds)
            spent = (ours.cpu() - spent) / done.calls
            plugin_cpu = theirs["cpuSeconds"] / theirs["pods"]
            figures.add("plugin_p50_ms", theirs["medianSeconds"] * 1e3)
            figures.add("plugin_cpu_ms", plugin_cpu * 1e3)
            figures.add("evaluate_p50_ms", done.latency(0.5) * 1e3)
            figures.add("evaluate_cpu_ms", spent * 1e3)
            figures.add("faster", theirs["medianSeconds"] / done.latency(0.5))
            figures.add("cpu_ratio", plugin_cpu / spent)
    return figures


def _build() -> str:
    """Build the program; returns why that is not possible here, or nothing."""
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    go = (str(ROOT / "tools" / "go"), "-C", str(SOURCE), "build", "-o", str(BUILT), ".")
    ended = subprocess.run(go, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stderr.strip().partition("\n")[0][:200]


@contextmanager
def _plugin(size: Size) -> Iterator[Plugin]:
    with tempfile.TemporaryDirectory(prefix="topospread-bench-") as directory:
        path = Path(directory, "cluster.json")
        path.write_text(json.dumps(_as_kubernetes_json(size)), "utf-8")
        with subprocess.Popen(
            [BUILT, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            plugin = Plugin(process)
            plugin.await_ready()
            yield plugin
            process.terminate()


def _as_kubernetes_json(size: Size) -> dict[str, Any]:
    objects = []
    for each in cluster_objects(size):
        kind = each.WhichOneof("content")
        assert kind is not None, "an object has a kind"
        api_version, name = API_VERSIONS[kind]
        manifest = json_format.MessageToDict(getattr(each, kind))
        objects.append({"apiVersion": api_version, "kind": name, **manifest})
    incoming = [json_format.MessageToDict(pod) for pod in requests.incoming_pods()]
    return {"objects": objects, "incoming": incoming}
