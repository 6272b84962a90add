"""How much a process takes at once: the threads and queues of calls, and what its files allow."""

from __future__ import annotations

import logging
import resource
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import grpc

from topospread.calls.executor import Executor
from topospread.checkpoints import Turn
from topospread.rpc.self_check import self_check
from topospread.rpc.server import Pools
from topospread.store.urls import SqliteURL

if TYPE_CHECKING:
    from topospread.calls.memory import Sweeper
    from topospread.config.settings import ServerSettings
    from topospread.rpc.completion_queue import CompletionQueue
    from topospread.store.urls import StoreURL
    from topospread.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

COMPLETION_QUEUE: Final = "grpcio"
THREADS: Final = "grpcio-threads"
"""How decisions come, in topospread_transport_info."""

STATE_THREADS: Final = 32
"""They wait for the store more than they compute; a thread that waits takes some 50 KiB."""

STATE_QUEUE: Final = 256

LIST_THREADS: Final = 4
LIST_QUEUE: Final = 48
"""Calls whose answers grow with the cluster: each takes several times the answer's size."""

DECISION_THREADS: Final = 64
"""Decisions that may wait for a revision, a first load or the store at once."""

PLANNER_THREADS: Final = 8
PLANNER_QUEUE: Final = 16
"""Of these one computes at a time; they take turns of 20 ms. The others wait for the store.
A caller has half of the threads: what is long must not keep another's call from its turn.
"""

MAX_STREAMS: Final = 64
"""Open streams (WatchObjects, WatchConstraints), each with a thread."""

MAX_WATCHES: Final = 64
"""Open watches of health, which anybody may open; a client with health checks has one."""

OTHER_THREADS: Final = 2
OTHER_QUEUE: Final = 256
"""For health and for unknown methods: answered in microseconds. gRPC's core takes in a message of
the largest size for each thread that waits for one.
"""

EXPANDER_THREADS: Final = 2
EXPANDER_QUEUE: Final = 2
"""Calls of autoscalers at once: each has one under way, with a message of up to 128 MiB."""

HTTP_CONNECTIONS: Final = 512
"""Of each address: schedulers, the API server and Prometheus have a few each."""

OWN_FILES: Final = 320
"""Open files of a process without clusters and connections: libraries, its store's connections for
reads and writes, files that are read again, syncs.
"""

REDIS_CLUSTER_FILES: Final = 3
"""Of each cluster that is followed in Redis: a connection that waits, and a socket pair to end it.
"""


def make_pools(settings: ServerSettings, metrics: Metrics, sweeper: Sweeper) -> Pools:
    """What carries out calls; decisions come from gRPC's completion queue where that works."""
    queue = settings.decision_queue
    turn = Turn()
    decisions: CompletionQueue | Executor
    unlike = self_check()
    if unlike:
        LOG.warning(
            "grpcio %s is not as expected (%s): decisions come by its threads, which costs more "
            "processor time: use a version of grpcio that topospread is tested with",
            grpc.__version__,
            unlike,
        )
        decisions = Executor("decisions", DECISION_THREADS, queue)
    else:
        # Not before: it imports names of grpcio that may be missing.
        from topospread.rpc.completion_queue import CompletionQueue

        slow = Executor("decide-slowly", DECISION_THREADS, queue, turn)
        decisions = CompletionQueue(queue, slow, sweeper)
    metrics.transport(THREADS if unlike else COMPLETION_QUEUE, unlike)
    executors = (
        Executor("extender", PLANNER_THREADS, queue),
        Executor("state", STATE_THREADS, STATE_QUEUE),
        Executor("lists", LIST_THREADS, LIST_QUEUE),
        Executor("planner", PLANNER_THREADS, PLANNER_QUEUE, share=PLANNER_THREADS // 2),
        Executor("webhook", PLANNER_THREADS, PLANNER_QUEUE),
        Executor("expander", EXPANDER_THREADS, EXPANDER_QUEUE),
        Executor("streams", MAX_STREAMS, 0),
        Executor("watches", MAX_WATCHES, 0),
        Executor("other", OTHER_THREADS, OTHER_QUEUE),
    )
    return Pools(turn, decisions, {each.name: each for each in executors})


def within_open_files(settings: ServerSettings, url: StoreURL) -> ServerSettings:
    """The settings with as many clusters and connections as files may be open.

    Where that is fewer than was configured, it is logged what would be needed.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    each = 0 if isinstance(url, SqliteURL) else REDIS_CLUSTER_FILES
    listeners = (settings.http, settings.extender_listen, settings.expander_listen)
    ports = 1 + len([address for address in listeners if address is not None])
    clusters, connections = settings.max_clusters, settings.max_connections
    others = (ports - 1) * min(HTTP_CONNECTIONS, connections)
    needed = OWN_FILES + clusters * each + connections + others
    if limit == resource.RLIM_INFINITY or needed <= limit:
        return settings
    left = max(0, limit - OWN_FILES)
    if each:
        clusters = max(1, min(clusters, left // 2 // each))
    connections = max(1, min(connections, (left - clusters * each) // ports))
    LOG.warning(
        "%d files may be open here (ulimit -n), and --max-clusters and --max-connections need %d:"
        " until that is raised, or they are lowered, %d clusters are followed at most, and each"
        " port has %d connections",
        limit,
        needed,
        clusters,
        connections,
    )
    return replace(settings, max_clusters=clusters, max_connections=connections)
