"""Settings of where the state is, and of the processes, threads and queues that do the work."""

from dataclasses import dataclass, field
from typing import Annotated

from topospread.config import values
from topospread.config.spelling import About


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class WorkSettings:
    """A part of :class:`~topospread.config.settings.ServerSettings`, which makes its methods."""

    store: Annotated[
        str,
        About(
            values.text(),
            "",
            "Where the state is: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://,"
            " sqlite:///PATH or memory: (a flag with a password in it shows in `ps`: use the"
            " variable or the file).",
            "A SQLite file in the user's state directory: durable without a second process.",
        ),
    ] = field(default="", repr=False)
    wait_replicas: Annotated[
        int,
        About(
            values.whole(0, 16),
            "replicas",
            "Replicas of Redis that must have a write before it is answered; if fewer confirm it in"
            " time, the write stays and the call ends with UNAVAILABLE.",
            "Each write would wait for the farthest replica. It narrows what a failover may lose"
            " and does not close it.",
        ),
    ] = 0
    workers: Annotated[
        int,
        About(
            values.whole(1, 256),
            "processes",
            "Processes that serve on one port.",
            "Decisions use about one core a process; add one for each core they should have.",
        ),
    ] = 1
    decision_threads: Annotated[
        int,
        About(
            values.whole(1, 64),
            "threads a process",
            "Threads for PreFilter, Filter, Score, EvaluatePod.",
            "Decisions are pure CPU: a second thread only contends for the interpreter. While one"
            " takes long, others join by themselves.",
        ),
    ] = 1
    direct_calls: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Answer PreFilter, Filter, Score, EvaluatePod, BatchEvaluatePods on the threads that"
            " take them from gRPC.",
            "An empty call costs a third of what it costs on grpcio's own threads; off to serve"
            " decisions by those.",
        ),
    ] = True
    state_threads: Annotated[
        int,
        About(
            values.whole(1, 256),
            "threads a process",
            "Threads for calls of ClusterStateService, PlacementService and LeaseService, which"
            " wait for the store.",
            "They wait more than they compute, and must not hold up decisions.",
        ),
    ] = 4
    planner_threads: Annotated[
        int,
        About(
            values.whole(1, 64),
            "threads a process",
            "Threads for ExplainPod and the calls of PlannerService.",
            "Long computations: one at a time leaves the other core to decisions.",
        ),
    ] = 1
    stream_threads: Annotated[
        int,
        About(
            values.whole(1, 4096),
            "threads a process",
            "Open streams (StreamEvaluatePods, WatchObjects); each holds a thread.",
            "A few dozen schedulers and watchers; an idle thread costs memory only.",
        ),
    ] = 64
    max_waiting: Annotated[
        int,
        About(
            values.whole(0, 4096),
            "calls a process",
            "Decisions that may wait for a revision or a first load.",
            "Each lends its place to one more thread.",
        ),
    ] = 64
    decision_queue: Annotated[
        int,
        About(
            values.whole(1),
            "calls a process",
            "Decisions that may queue; past it RESOURCE_EXHAUSTED.",
            "A queue that is longer than schedulers' patience only makes answers nobody reads.",
        ),
    ] = 1024
    state_queue: Annotated[
        int,
        About(
            values.whole(1),
            "calls a process",
            "Calls of ClusterStateService, PlacementService and LeaseService that may queue; past"
            " it RESOURCE_EXHAUSTED.",
            "As for decisions; writes are fewer.",
        ),
    ] = 256
    planner_queue: Annotated[
        int,
        About(
            values.whole(1),
            "calls a process",
            "ExplainPod and calls of PlannerService that may queue; past it RESOURCE_EXHAUSTED.",
            "Each may take seconds.",
        ),
    ] = 16
