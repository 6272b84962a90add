"""Decisions over gRPC: how fast, and how much CPU the server spends on each."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from bench import requests
from bench.collector import collector, tracing_environment
from bench.echo import COMPLETION_QUEUE, GRPCIO, echo_server
from bench.figures import Figures
from bench.load import (
    MAX_CONNECTIONS,
    CallsFailedError,
    LoadResult,
    numbered,
    run_calls,
)
from bench.processes import machine_cpu, server
from bench.requests import CLUSTER, SERVICE, RequestTemplate, request_template
from bench.stores import filled_store
from topospread_client import Client
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from google.protobuf.descriptor import FileDescriptor

    from bench.options import BenchOptions
    from bench.processes import Running
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s


CONCURRENCY: Final = (1, 10, 50)
USUAL: Final = 10
"""Calls under way of figures without a mark."""

RATIOS: Final = ("evaluate", "evaluate_memo", "unconstrained")
"""Cases that are compared with the echoes of as many calls under way."""

ECHOES: Final = ("echo", "queue_echo")
"""The empty call on grpcio's own threads, and by the transport of decisions."""

WARM_SECONDS: Final = 0.5

_SOFT: Final = "ScheduleAnyway"

METHOD = "topospread.v1.DecisionService/EvaluatePod"
SAMPLED: Final = {"_none": 0.0, "_1": 0.01, "_all": 1.0}


@dataclass(frozen=True, slots=True)
class LoadCase:
    """Something that is measured in every round.

    Attributes:
        name: what its figures begin with.
        server: who answers.
        run: asks for some seconds.
        mark: what its figures end with; nothing where ten calls are under way.
    """

    name: str
    server: Running
    run: Callable[[float], LoadResult]
    mark: str = ""

    def figure(self, what: str) -> str:
        """The name of one of its figures; of the case itself without `what`."""
        return f"{self.name}_{what}{self.mark}" if what else f"{self.name}{self.mark}"


def measure_decide(options: BenchOptions) -> Figures:
    """Echoes, EvaluatePod without and with a memo of results, the single stages, and plain pods."""
    figures = Figures()
    with ExitStack() as opened:
        options.progress("making the cluster")
        store = opened.enter_context(filled_store(options.size))
        sink = opened.enter_context(collector())
        echo = opened.enter_context(echo_server(store, GRPCIO))
        queue = opened.enter_context(echo_server(store, COMPLETION_QUEUE))
        traced = tracing_environment(sink, 0.01)
        forgetful = {**traced, "TOPOSPREAD_CACHE_RESULTS": "false"}
        bare = opened.enter_context(server(store, environ=forgetful))
        memo = opened.enter_context(server(store, environ=traced))
        every = _load_cases((echo, queue), bare, memo)
        cases = [c for c in every if not options.only or c.figure("") in options.only]
        for case in cases:
            case.run(WARM_SECONDS)
        for number in range(options.rounds):
            options.progress(f"decide: round {number + 1} of {options.rounds}")
            _run_round(cases, options.seconds, figures)
            if options.ghz:
                _ghz(options, echo, bare, figures)
    if not options.ghz:
        figures.lack(["ghz_echo_rps", "ghz_evaluate_rps"], "no ghz")
    return figures


def _load_cases(
    echoes: tuple[Running, Running], bare: Running, memo: Running
) -> Iterator[LoadCase]:
    pods = requests.incoming_pods()
    templates = requests.evaluate_pod_requests(pods)
    for concurrency in CONCURRENCY:
        for name, echo in zip(ECHOES, echoes, strict=True):
            yield _unary(name, echo, "EvaluatePod", templates, concurrency)
        yield _unary("evaluate", bare, "EvaluatePod", templates, concurrency)
        yield _unary("evaluate_memo", memo, "EvaluatePod", templates, concurrency)
    plain = requests.evaluate_pod_requests(requests.unconstrained_pods())
    yield _unary("unconstrained", bare, "EvaluatePod", plain)
    sources = [common_pb2.PodSource(object=pod) for pod in pods]
    batch = [request_template(pb.BatchEvaluatePodsRequest(cluster=CLUSTER, pods=sources))]
    stages = _stages(bare, pods)
    for concurrency in CONCURRENCY:
        yield _unary("batch", bare, "BatchEvaluatePods", batch, concurrency)
        for name, (method, about) in stages.items():
            yield _unary(name, bare, method, about, concurrency)


def _unary(
    name: str,
    server: Running,
    method: str,
    asked: Sequence[RequestTemplate],
    concurrency: int = USUAL,
) -> LoadCase:
    path, messages = f"{SERVICE}{method}", numbered(asked)

    def run(seconds: float) -> LoadResult:
        return run_calls(server.address, path, messages, concurrency, seconds)

    return LoadCase(name, server, run, "" if concurrency == USUAL else f"_c{concurrency}")


def _stages(
    bare: Running, pods: Sequence[k8s.Pod]
) -> dict[str, tuple[str, Sequence[RequestTemplate]]]:
    """PreFilter and Filter of pods with hard constraints, Score of pods with soft ones."""
    with Client(bare.address, cluster=CLUSTER) as client:
        table = client.get_node_table().node_table_id
    soft = [pod for pod in pods if _has(pod, _SOFT) or pod.metadata.owner_references]
    hard = [pod for pod in pods if _has(pod, "DoNotSchedule")]
    pre_filters = [
        pb.PreFilterRequest(cluster=CLUSTER, pod=common_pb2.PodSource(object=pod)) for pod in hard
    ]
    filters = [
        pb.FilterRequest(cluster=CLUSTER, pod=common_pb2.PodSource(object=pod), node_table_id=table)
        for pod in hard
    ]
    scores = [
        pb.ScoreRequest(cluster=CLUSTER, pod=common_pb2.PodSource(object=pod), node_table_id=table)
        for pod in soft
    ]
    return {
        "prefilter": ("PreFilter", [request_template(each) for each in pre_filters]),
        "filter": ("Filter", [request_template(each) for each in filters]),
        "score": ("Score", [request_template(each) for each in scores]),
    }


def _has(pod: k8s.Pod, when: str) -> bool:
    return any(c.when_unsatisfiable == when for c in pod.spec.topology_spread_constraints)


def _run_round(cases: Sequence[LoadCase], seconds: float, figures: Figures) -> None:
    rates: dict[str, float] = {}
    costs: dict[str, float] = {}
    medians: dict[str, float] = {}
    for case in cases:
        spent, everyone, own = case.server.cpu(), machine_cpu(), time.process_time()
        begun = time.monotonic()
        done = case.run(seconds)
        spent = case.server.cpu() - spent
        others = machine_cpu() - everyone - spent - (time.process_time() - own)
        figures.add("others_cores", others / (time.monotonic() - begun))
        rates[case.figure("")] = done.rate
        costs[case.figure("")] = spent / done.calls
        medians[case.figure("")] = done.latency(0.5)
        figures.add(case.figure("rps"), done.rate)
        figures.add(case.figure("cpu_us"), spent / done.calls * 1e6)
        figures.add(case.figure("p50_ms"), done.latency(0.5) * 1e3)
        figures.add(case.figure("p99_ms"), done.latency(0.99) * 1e3)
        if case.name == "batch":
            decided = done.calls * len(requests.incoming_pods())
            figures.add(case.figure("decisions_per_core_s"), decided / spent)
    for case in cases:
        echo_mark = f"{ECHOES[0]}{case.mark}"
        if case.name not in ECHOES and echo_mark in costs:
            named = case.figure("")
            figures.add(case.figure("cpu_ratio"), costs[named] / costs[echo_mark])
            figures.add(case.figure("p50_ratio"), medians[named] / medians[echo_mark])
        for name, ratio in zip(ECHOES, ("ratio", "queue_ratio"), strict=True):
            echo = rates.get(f"{name}{case.mark}")
            if case.name in RATIOS and echo is not None:
                figures.add(case.figure(ratio), rates[case.figure("")] / echo)


def _ghz(options: BenchOptions, echo: Running, bare: Running, figures: Figures) -> None:
    pods = requests.incoming_pods()
    for concurrency in CONCURRENCY[1:]:
        mark = "" if concurrency == USUAL else f"_c{concurrency}"
        rates = {
            name: ghz_rate(options.ghz, running.address, pods, concurrency, options.seconds)
            for name, running in (("echo", echo), ("evaluate", bare))
        }
        for name, rate in rates.items():
            figures.add(f"ghz_{name}_rps{mark}", rate)
        figures.add(f"ghz_evaluate_ratio{mark}", rates["evaluate"] / rates["echo"])


def ghz_rate(
    program: str, address: str, pods: Sequence[k8s.Pod], concurrency: int, seconds: float
) -> float:
    """Calls a second of EvaluatePod.

    Raises:
        CallsFailedError: ghz failed, or calls did.
    """
    with tempfile.TemporaryDirectory(prefix="topospread-ghz-") as directory:
        protoset, asked = Path(directory, "evaluate.protoset"), Path(directory, "asked.json")
        protoset.write_bytes(_descriptors())
        asked.write_text(json.dumps([_request(pod) for pod in pods]))
        completed = subprocess.run(
            [
                *(program, "--insecure", "--protoset", str(protoset), "--call", METHOD),
                *("-D", str(asked), "-z", f"{seconds}s", "-c", str(concurrency)),
                *("--connections", str(min(concurrency, MAX_CONNECTIONS)), "-O", "json", address),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    if completed.returncode:
        raise CallsFailedError(f"{program}: {completed.stderr.strip()[:500]}")
    found = json.loads(completed.stdout)
    # Calls that are under way when the time is up are cut off, and counted as failed.
    if found["statusCodeDistribution"].get("OK", 0) < found["count"] - concurrency:
        raise CallsFailedError(f"{program}: {found['statusCodeDistribution']}")
    rate: float = found["rps"]
    return rate


def _request(pod: k8s.Pod) -> dict[str, object]:
    asked = pb.EvaluatePodRequest(cluster=CLUSTER, pod=common_pb2.PodSource(object=pod))
    name, _, _ = pod.metadata.name.rpartition("-")
    asked.pod.object.metadata.name = f"{name}-{{{{.RequestNumber}}}}"
    request: dict[str, object] = json_format.MessageToDict(asked)
    return request


def _descriptors() -> bytes:
    """The API's files and all that they import, imports first."""
    found: dict[str, FileDescriptor] = {}

    def collect(file: FileDescriptor) -> None:
        for imported in file.dependencies:
            collect(imported)
        found.setdefault(file.name, file)

    collect(pb.DESCRIPTOR)
    files = FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(files.file.add())
    return files.SerializeToString()


def measure_tracing(options: BenchOptions) -> Figures:
    """Rate and CPU of EvaluatePod by the share of calls that is traced, and what the rate loses."""
    figures = Figures()
    with ExitStack() as opened:
        options.progress("tracing: making the cluster")
        store = opened.enter_context(filled_store(options.size))
        sink = opened.enter_context(collector())
        servers = {
            mark: opened.enter_context(server(store, environ=tracing_environment(sink, ratio)))
            for mark, ratio in SAMPLED.items()
        }
        messages = numbered(requests.evaluate_pod_requests(requests.incoming_pods()))
        for each in servers.values():
            run_calls(each.address, requests.EVALUATE_POD, messages, USUAL, options.seconds / 4)
        for number in range(options.rounds):
            options.progress(f"tracing: round {number + 1} of {options.rounds}")
            rates = {}
            for mark, each in servers.items():
                spent = each.cpu()
                done = run_calls(
                    each.address, requests.EVALUATE_POD, messages, USUAL, options.seconds
                )
                figures.add(f"traced_rps{mark}", done.rate)
                figures.add(f"traced_cpu_us{mark}", (each.cpu() - spent) / done.calls * 1e6)
                rates[mark] = done.rate
            for mark in ("_1", "_all"):
                figures.add(f"tracing_loss{mark}", 1 - rates[mark] / rates["_none"])
    return figures
