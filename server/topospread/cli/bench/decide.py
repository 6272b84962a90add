"""Decisions over gRPC: how fast, and how much CPU the server spends on each."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from topospread.cli.bench import questions
from topospread.cli.bench.collector import collector, tracing
from topospread.cli.bench.echo import DIRECT, GRPCIO, echo_server
from topospread.cli.bench.figures import Figures
from topospread.cli.bench.ghz import ghz_rate
from topospread.cli.bench.load import Round, ask, converse, numbered
from topospread.cli.bench.processes import machine_cpu, server
from topospread.cli.bench.questions import CLUSTER, SERVICE, Question, question
from topospread.cli.bench.stores import filled_store
from topospread_client import Client
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.cli.bench.plan import Plan
    from topospread.cli.bench.processes import Running
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

CONCURRENCY: Final = (1, 10, 50)
USUAL: Final = 10
"""Calls under way where a figure says nothing else."""

RATIOS: Final = ("evaluate", "evaluate_memo", "unconstrained")
"""Cases that are compared with the echoes of as many calls under way."""

ECHOES: Final = ("echo", "direct_echo")
"""The empty call on grpcio's own threads, and on the way that decisions take."""

WARM_SECONDS: Final = 0.5

_SOFT: Final = "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class Case:
    """Something that is measured in every round.

    Attributes:
        name: what its figures begin with.
        server: who answers.
        run: asks for some seconds.
        mark: what its figures end with; nothing where ten calls are under way.
    """

    name: str
    server: Running
    run: Callable[[float], Round]
    mark: str = ""

    def figure(self, what: str) -> str:
        """The name of one of its figures; of the case itself without `what`."""
        return f"{self.name}_{what}{self.mark}" if what else f"{self.name}{self.mark}"


def measure(plan: Plan) -> Figures:
    """Echoes, EvaluatePod without and with a memo of results, the single stages, and plain pods."""
    figures = Figures()
    with ExitStack() as opened:
        plan.say("making the cluster")
        store = opened.enter_context(filled_store(plan.size))
        sink = opened.enter_context(collector())
        echo = opened.enter_context(echo_server(store, GRPCIO))
        direct = opened.enter_context(echo_server(store, DIRECT))
        traced = tracing(sink, 0.01)
        forgetful = {**traced, "TOPOSPREAD_REMEMBER_RESULTS": "false"}
        bare = opened.enter_context(server(store, environ=forgetful))
        memo = opened.enter_context(server(store, environ=traced))
        every = _cases((echo, direct), bare, memo)
        cases = [c for c in every if not plan.only or c.figure("") in plan.only]
        for case in cases:
            case.run(WARM_SECONDS)
        for number in range(plan.rounds):
            plan.say(f"decide: round {number + 1} of {plan.rounds}")
            _round(cases, plan.seconds, figures)
            if plan.ghz:
                _ghz(plan, echo, bare, figures)
    if not plan.ghz:
        figures.lack(["ghz_echo_rps", "ghz_evaluate_rps"], "no ghz")
    return figures


def _cases(echoes: tuple[Running, Running], bare: Running, memo: Running) -> Iterator[Case]:
    pods = questions.incoming()
    evaluates = questions.evaluates(pods)
    for concurrency in CONCURRENCY:
        for name, echo in zip(ECHOES, echoes, strict=True):
            yield _unary(name, echo, "EvaluatePod", evaluates, concurrency)
        yield _unary("evaluate", bare, "EvaluatePod", evaluates, concurrency)
        yield _unary("evaluate_memo", memo, "EvaluatePod", evaluates, concurrency)
    for name, asked in (("stream", bare), ("stream_memo", memo)):
        run = partial(
            converse, asked.address, f"{SERVICE}StreamEvaluatePods", numbered(_framed(pods))
        )
        yield Case(name, asked, run, "_c1")
    plain = questions.evaluates(questions.unconstrained())
    yield _unary("unconstrained", bare, "EvaluatePod", plain)
    sources = [common_pb2.PodSource(object=pod) for pod in pods]
    batch = [question(pb.BatchEvaluatePodsRequest(cluster=CLUSTER, pods=sources))]
    stages = _stages(bare, pods)
    for concurrency in CONCURRENCY:
        yield _unary("batch", bare, "BatchEvaluatePods", batch, concurrency)
        for name, (method, about) in stages.items():
            yield _unary(name, bare, method, about, concurrency)


def _framed(pods: Sequence[k8s.Pod]) -> list[Question]:
    asked = [
        pb.EvaluatePodRequest(cluster=CLUSTER, pod=common_pb2.PodSource(object=pod)) for pod in pods
    ]
    return [question(pb.StreamEvaluatePodsRequest(id=1, evaluate=each)) for each in asked]


def _unary(
    name: str, server: Running, method: str, asked: Sequence[Question], concurrency: int = USUAL
) -> Case:
    path, messages = f"{SERVICE}{method}", numbered(asked)

    def run(seconds: float) -> Round:
        return ask(server.address, path, messages, concurrency, seconds)

    return Case(name, server, run, "" if concurrency == USUAL else f"_c{concurrency}")


def _stages(bare: Running, pods: Sequence[k8s.Pod]) -> dict[str, tuple[str, Sequence[Question]]]:
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
        "prefilter": ("PreFilter", [question(each) for each in pre_filters]),
        "filter": ("Filter", [question(each) for each in filters]),
        "score": ("Score", [question(each) for each in scores]),
    }


def _has(pod: k8s.Pod, when: str) -> bool:
    return any(c.when_unsatisfiable == when for c in pod.spec.topology_spread_constraints)


def _round(cases: Sequence[Case], seconds: float, figures: Figures) -> None:
    rates: dict[str, float] = {}
    for case in cases:
        spent, everyone, own = case.server.cpu(), machine_cpu(), time.process_time()
        begun = time.monotonic()
        done = case.run(seconds)
        spent = case.server.cpu() - spent
        others = machine_cpu() - everyone - spent - (time.process_time() - own)
        figures.add("others_cores", others / (time.monotonic() - begun))
        rates[case.figure("")] = done.rate
        figures.add(case.figure("rps"), done.rate)
        figures.add(case.figure("cpu_us"), spent / done.calls * 1e6)
        figures.add(case.figure("p50_ms"), done.latency(0.5) * 1e3)
        figures.add(case.figure("p99_ms"), done.latency(0.99) * 1e3)
    for case in cases:
        for name, ratio in zip(ECHOES, ("ratio", "direct_ratio"), strict=True):
            echo = rates.get(f"{name}{case.mark}")
            if case.name in RATIOS and echo is not None:
                figures.add(case.figure(ratio), rates[case.figure("")] / echo)


def _ghz(plan: Plan, echo: Running, bare: Running, figures: Figures) -> None:
    pods = questions.incoming()
    for concurrency in CONCURRENCY[1:]:
        mark = "" if concurrency == USUAL else f"_c{concurrency}"
        rates = {
            name: ghz_rate(plan.ghz, running.address, pods, concurrency, plan.seconds)
            for name, running in (("echo", echo), ("evaluate", bare))
        }
        for name, rate in rates.items():
            figures.add(f"ghz_{name}_rps{mark}", rate)
        figures.add(f"ghz_evaluate_ratio{mark}", rates["evaluate"] / rates["echo"])
