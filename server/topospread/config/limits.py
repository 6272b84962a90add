"""Settings of what one request, caller or connection may ask for."""

from dataclasses import dataclass
from typing import Annotated, Final

from topospread.config import values
from topospread.config.spelling import About

_MIB: Final = 1 << 20

# What codec.bounds lets pass; this room knows no other.
_PODS: Final = 10_000
_TERMS: Final = 5000


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LimitSettings:
    """A part of :class:`~topospread.config.settings.ServerSettings`, which makes its methods."""

    max_request_bytes: Annotated[
        int,
        About(
            values.size(1024),
            "bytes",
            "Largest gRPC request.",
            "Room for an ApplyObjects of 500 pods of 20 KiB with a margin.",
        ),
    ] = 16 * _MIB
    max_decision_bytes: Annotated[
        int,
        About(
            values.size(1024),
            "bytes",
            "Largest request of DecisionService, but of BatchEvaluatePods.",
            "One pod, of which no API server takes 1.5 MiB, and the pods of a node beside it.",
        ),
    ] = 4 * _MIB
    max_response_bytes: Annotated[
        int,
        About(
            values.size(1024),
            "bytes",
            "Largest gRPC answer.",
            "Room for a page of 5,000 objects of 10 KiB.",
        ),
    ] = 64 * _MIB
    http_max_body_bytes: Annotated[
        int,
        About(
            values.size(1024),
            "bytes",
            "Largest HTTP request body.",
            "A scheduler whose extender is not nodeCacheCapable sends it whole nodes.",
        ),
    ] = 64 * _MIB
    max_batch_objects: Annotated[
        int,
        About(
            values.whole(1, 500),
            "objects",
            "Objects in one ApplyObjects, DeleteObjects or batch of ReplaceObjects.",
            "Each is one transaction of the store, during which others wait.",
        ),
    ] = 500
    max_replace_objects: Annotated[
        int,
        About(
            values.whole(1),
            "objects",
            "Objects in one ReplaceObjects.",
            "Twice the pods of the largest clusters; all are in memory until the last has come.",
        ),
    ] = 500_000
    max_replace_bytes: Annotated[
        int,
        About(
            values.size(1 << 20),
            "bytes a process",
            "Memory for the objects that all lists under way have received, and that watches begin"
            " with; past it RESOURCE_EXHAUSTED.",
            "Room for 400,000 usual pods: each counts as it is stored, and a KiB more.",
        ),
    ] = 512 * _MIB
    max_clusters: Annotated[
        int,
        About(
            values.whole(1, 10_000),
            "clusters",
            "Clusters that a process follows, and past which no write makes another; fewer where"
            " its limit of open files allows no more.",
            "Each costs a thread, an index and, with Redis, three open files; far more than anybody"
            " has.",
        ),
    ] = 1024
    max_connections: Annotated[
        int,
        About(
            values.whole(1),
            "connections a process",
            "Open connections of each port; past it new ones are closed. Of the expander's own port"
            " there are at most 64.",
            "A few per scheduler. Idle ones take 70 KiB each with TLS, and need no credential.",
        ),
    ] = 1024
    max_calls_per_connection: Annotated[
        int,
        About(
            values.whole(1),
            "calls",
            "Calls at once on one gRPC connection; clients hold more back.",
            "As many as may queue: one connection cannot fill more than the queue.",
        ),
    ] = 1024
    rate_limit: Annotated[
        float,
        About(
            values.rate(),
            "calls a second",
            "Calls, and questions on streams, of one caller to one process; past it"
            " RESOURCE_EXHAUSTED with RetryInfo. 0 for no limit. A caller is a token, a"
            " certificate, or else an address.",
            "Queues are bounded already; a fair share is for those who share a server to agree on.",
        ),
    ] = 0.0
    rate_burst: Annotated[
        int,
        About(
            values.whole(1),
            "calls",
            "Calls that a caller may make at once within --rate-limit.",
            "A batch of a scheduler after a pause.",
        ),
    ] = 100
    max_batch_pods: Annotated[
        int,
        About(
            values.whole(1, _PODS),
            "pods",
            "Pods in one BatchEvaluatePods; fewer where they differ and nodes are many (Limits of a"
            " request in docs/api.md).",
            "A batch holds one thread until it is done.",
        ),
    ] = 1000
    max_what_ifs: Annotated[
        int,
        About(
            values.whole(1, _PODS),
            "pods",
            "Pods in add_pods and remove_pods of one request.",
            "Preemption looks at the pods of one node, of which there are at most some hundred.",
        ),
    ] = 1000
    max_simulated_pods: Annotated[
        int,
        About(
            values.whole(1),
            "pods",
            "Pods that one Simulate places.",
            "A thousand take a fraction of a second; a call holds its thread meanwhile.",
        ),
    ] = 10_000
    max_simulated_nodes: Annotated[
        int,
        About(
            values.whole(1),
            "nodes",
            "Nodes that may join in one Simulate.",
            "As many as a large cluster has.",
        ),
    ] = 5000
    max_constraints: Annotated[
        int,
        About(
            values.whole(1, 1000),
            "constraints a pod",
            "Spread constraints of one pod.",
            "Real pods have one to four; each costs as much as the first.",
        ),
    ] = 64
    max_selector_terms: Annotated[
        int,
        About(
            values.whole(1, _TERMS),
            "terms a pod",
            "Expressions and values in one pod's selectors and affinity.",
            "Generated affinities list nodes by name, a whole cluster's at most.",
        ),
    ] = 5000
