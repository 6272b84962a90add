"""Settings of what is kept in memory, how changes are followed, and what feeds the state."""

from dataclasses import dataclass
from typing import Annotated, Final

from topospread.bounded import CLUSTER, MIB, PROCESS
from topospread.config import values
from topospread.config.spelling import About

ALL_CLUSTERS: Final = "all"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class FollowingSettings:
    """A part of :class:`~topospread.config.settings.ServerSettings`, which makes its methods."""

    cycle_ttl: Annotated[
        float,
        About(
            values.seconds(1.0),
            "seconds",
            "How long a cycle answers for Filter and Score after its PreFilter.",
            "A scheduling cycle takes milliseconds, with slow extenders some seconds.",
        ),
    ] = 60.0
    max_cycles: Annotated[
        int,
        About(
            values.whole(1),
            "cycles a process",
            "Cycles kept; the oldest go first.",
            "More than are begun within the default time; cycles of one snapshot share its arrays.",
        ),
    ] = 10_000
    max_groups: Annotated[
        int,
        About(
            values.whole(16),
            "selectors a cluster",
            "Selectors whose counts are kept; the least recently used go first.",
            "Several times the apps of a large cluster; each costs memory and work at each change.",
        ),
    ] = 4096
    max_group_idle: Annotated[
        float,
        About(
            values.seconds(1.0),
            "seconds",
            "How long the counts of a selector are kept that nobody asks about.",
            "Longer than pauses between two pods of an app; counting anew takes a millisecond.",
        ),
    ] = 600.0
    max_cache_bytes: Annotated[
        int,
        About(
            values.size(1 << 20),
            "bytes a process",
            "Memory for what is worked out once for pods of one template, cycles, and pods that the"
            " extender refused: about; those used least lately go first.",
            "A few thousand templates; each is read anew in a fraction of a millisecond.",
        ),
    ] = sum(PROCESS.values()) * MIB
    max_cluster_cache_bytes: Annotated[
        int,
        About(
            values.size(1 << 20),
            "bytes a cluster",
            "Memory for counts of selectors and for what is worked out once from a cluster's nodes:"
            " about; those used least lately go first.",
            "Eight hundred selectors counted by hostname on 5,000 nodes; counting one anew takes a"
            " millisecond.",
        ),
    ] = sum(CLUSTER.values()) * MIB
    remember_results: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Answer EvaluatePod from the last result for pods of the same shape while nothing it"
            " rests on has changed.",
            "Exact, and free where nothing repeats; off to measure.",
        ),
    ] = True
    coalesce: Annotated[
        float,
        About(
            values.seconds(),
            "seconds",
            "How long changes are gathered before they are applied while nobody waits for them.",
            "Folding changes one by one takes much of the throughput; nobody notices 15 ms.",
        ),
    ] = 0.015
    preload: Annotated[
        tuple[str, ...],
        About(
            values.names(),
            "",
            "Clusters to load before the server is ready, separated by commas; `all` for all.",
            "A server that is ready answers at once.",
        ),
    ] = (ALL_CLUSTERS,)
    max_preload: Annotated[
        int,
        About(
            values.whole(0),
            "clusters",
            "How many clusters `--preload all` loads; the others are loaded at first use.",
            "Loading takes time before readiness, and memory after it.",
        ),
    ] = 16
    sync: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Feed a cluster's state from its API server: list and watch nodes, pods and workloads.",
            "Needs access to a cluster, and the extra `sync`.",
        ),
    ] = False
    sync_cluster: Annotated[
        str,
        About(values.text(), "", "The name that the cluster has here.", "What callers leave out."),
    ] = "default"
    sync_kubeconfig: Annotated[
        str,
        About(
            values.text(),
            "",
            "kubeconfig file that names the API server.",
            "$KUBECONFIG or ~/.kube/config where there is one, else the pod's service account.",
        ),
    ] = ""
    sync_context: Annotated[
        str,
        About(values.text(), "", "Context of the kubeconfig.", "Its current one."),
    ] = ""
    sync_lease: Annotated[
        float,
        About(
            values.seconds(1.0),
            "seconds",
            "How long a feeder that died is waited for before another server feeds.",
            "As long as Kubernetes' own controllers wait for each other.",
        ),
    ] = 15.0
    sync_excluded_namespaces: Annotated[
        tuple[str, ...],
        About(
            values.names(),
            "",
            "Namespaces whose objects are not fed, separated by commas.",
            "All count. What runs in one that is excluded takes no room on its nodes either.",
        ),
    ] = ()
