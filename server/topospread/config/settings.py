"""Every setting of the server, in groups.

A setting has one name in three spellings: ``max_clusters`` is the flag ``--max-clusters``, the
variable ``TOPOSPREAD_MAX_CLUSTERS`` and the key ``maxClusters`` of a ``TopospreadConfiguration``.
Its type says how a value is read, and its unit; the string below it what it does and, in the last
paragraph, why its default is what it is. ``serve --help`` and docs/settings.md show these strings.

The file is long because it is one table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from topospread.cache import GROUP_BYTES, MIB
from topospread.config.values import Address, rate, seconds, size, whole

ALL_CLUSTERS: Final = "all"


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """Profiles and feature gates."""

    config: str = ""
    """YAML file with a TopospreadConfiguration, a KubeSchedulerConfiguration, or both.

    Without one, kube-scheduler's defaults hold.
    """

    feature_gates: dict[str, bool] = field(default_factory=dict)
    """Feature gates by upstream's names, `Name=true,OtherName=false`; they go before those in the
    configuration file.

    Upstream's defaults in the cluster's version.
    """

    kubernetes_version: str = ""
    """Kubernetes version of clusters that report none, such as `1.37`: what is not synced, and not
    pushed with one.

    The newest that is known.
    """


@dataclass(frozen=True, kw_only=True)
class ListenerSettings:
    """Where the server listens."""

    listen: Address = Address("127.0.0.1", 7946)  # noqa: RUF009 - it is immutable
    """Where gRPC is served. Port 0 lets the system choose, but not with --reuse-port.

    Loopback, because nothing is encrypted by default; below 32768, where ports for outgoing
    connections begin.
    """

    http: Address | None = Address("127.0.0.1", 7947)  # noqa: RUF009 - it is immutable
    """Where /metrics, /livez and /readyz are served, or `off`.

    Next to gRPC's port.
    """

    extender_listen: Address | None = None
    """Where the extender and the webhook are served by themselves; `off`: beside /metrics, on
    --http. Processes with --reuse-port share it.

    One port less to open.
    """

    expander_listen: Address | None = None
    """Where cluster-autoscaler's expander is served by itself, or `off`: with requests of up to 128
    MiB, two at a time, asking for neither token nor client certificate. The main address serves it
    as well, with its own limits.

    Served only where an address is given.
    """

    reuse_port: bool = False
    """Share --listen, --extender-listen and --expander-listen with other processes of the same user
    that say so, too: the system deals out connections. Each has its own --http.

    A second server on an address is a mistake unless it is meant. Decisions use about one core a
    process; run one for each core they should have (deploy/systemd).
    """

    max_connections: Annotated[int, whole("connections a process", 1)] = 1200
    """Open connections of the gRPC port; past it new ones are closed. Each HTTP port has at most
    512 of them, the expander's own port 64.

    Idle ones take 70 KiB each with TLS, and need no credential: 140 MiB in all.
    """

    max_connection_age: Annotated[float, seconds()] = 300.0
    """After which clients connect anew; streams are cut a minute later. 0 for never.

    Lets load move to new servers within minutes of a restart.
    """

    reflection: bool = True
    """Serve gRPC reflection.

    grpcurl and ghz need it; with an access file it takes the role read.
    """


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """Encryption, and certificates of clients."""

    tls_cert: str = ""
    """PEM file with the server's certificate chain.

    Plain text on loopback.
    """

    tls_key: str = ""
    """PEM file with its private key.

    As for the certificate.
    """

    client_ca: str = ""
    """PEM file with the CAs that client certificates must be signed by; asks for one.

    Clients need no certificate.
    """

    http_client_ca: str = ""
    """The same for HTTP; `none` asks for no certificate there. Empty: as --client-ca says.

    One setting protects both; kubelet's probes have no certificate and need `none`.
    """

    insecure: bool = False
    """Allow plain text on an address that others can reach.

    Must be spelled out.
    """

    @property
    def tls(self) -> bool:
        """Whether calls are encrypted."""
        return bool(self.tls_cert)

    @property
    def http_verifies_clients_by(self) -> str:
        """The CA file for HTTP's client certificates; empty when none is asked for."""
        chosen = self.http_client_ca or self.client_ca
        return "" if chosen == "none" else chosen


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Who may call, and how often."""

    access_file: str = ""
    """YAML file of kind TopospreadAccess: hashed tokens, names in client certificates, and the
    roles of each; read again when it changes (docs/security.md).

    Without one, every caller may do everything.
    """

    rate_limit: Annotated[float, rate("calls a second")] = 0.0
    """Calls of one caller to one process; past it RESOURCE_EXHAUSTED with RetryInfo. 0 for no
    limit. A caller is a token, a certificate, or else an address.

    Queues are bounded already; a fair share is for those who share a server to agree on.
    """

    rate_burst: Annotated[int, whole("calls", 1)] = 100
    """Calls that a caller may make at once within --rate-limit.

    A batch of a scheduler after a pause.
    """


@dataclass(frozen=True, kw_only=True)
class StateSettings:
    """The store, and what is kept of it in memory.

    ``repr`` shows no store address: it may hold a password.
    """

    store: str = field(default="", repr=False)
    """Where the state is: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://,
    sqlite:///PATH or memory: (a flag with a password in it shows in `ps`: use the variable or the
    file).

    A SQLite file in the user's state directory: durable without a second process.
    """

    wait_replicas: Annotated[int, whole("replicas", 0, 16)] = 0
    """Replicas of Redis that must have a write before it is answered; if fewer confirm it in time,
    the write stays and the call ends with UNAVAILABLE.

    Each write would wait for the farthest replica. It narrows what a failover may lose and does not
    close it.
    """

    preload: tuple[str, ...] = (ALL_CLUSTERS,)
    """Clusters to load before the server is ready, separated by commas; `all` for all, of which it
    waits for 16.

    A server that is ready answers at once.
    """

    max_group_idle: Annotated[float, seconds(1.0)] = 600.0
    """How long the counts of a selector are kept after the last decision that used them.

    Longer than pauses between two pods of an app; counting anew takes a millisecond.
    """

    max_group_bytes: Annotated[int, size(1 << 20, "bytes a cluster")] = GROUP_BYTES
    """Memory for the counts of selectors, about; the least recently used go first.

    Eight hundred selectors counted by hostname on 5,000 nodes; counting one anew takes a
    millisecond.
    """

    cache_results: bool = True
    """Answer EvaluatePod from the last result for pods of the same shape while nothing it rests on
    has changed.

    Exact, and free where nothing repeats; off to measure.
    """


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """What one request, caller or connection may ask for."""

    decision_queue: Annotated[int, whole("calls a process", 1)] = 1024
    """Decisions that may queue, and as many that take long; past it RESOURCE_EXHAUSTED.

    A queue longer than schedulers' patience only makes answers that come too late.
    """

    max_request_bytes: Annotated[int, size(1024)] = 16 * MIB
    """Largest gRPC request.

    Room for an ApplyObjects of 500 pods of 20 KiB with a margin.
    """

    max_decision_bytes: Annotated[int, size(1024)] = 4 * MIB
    """Largest request of DecisionService, but of BatchEvaluatePods.

    One pod, of which no API server takes 1.5 MiB, and the pods of a node beside it.
    """

    http_max_body_bytes: Annotated[int, size(1024)] = 64 * MIB
    """Largest HTTP request body.

    A scheduler whose extender is not nodeCacheCapable sends it whole nodes.
    """

    max_held_bytes: Annotated[int, size(1 << 20, "bytes a process")] = 1024 * MIB
    """Memory for what is kept for callers: the objects that lists under way have received and that
    watches begin with, HTTP bodies (six times what is past 64 KiB), requests of decisions and, four
    times, answers of 64 KiB and more until they are taken. One caller may have half of it, and so
    may all streams together; past that RESOURCE_EXHAUSTED.

    Half is room for a list of 400,000 usual pods: each counts as stored, and a KiB.
    """

    max_clusters: Annotated[int, whole("clusters", 1, 10_000)] = 1024
    """Clusters that a process follows, and past which no write makes another; fewer where its limit
    of open files allows no more.

    Each costs a thread, an index and, with Redis, three open files; far more than usual.
    """

    max_cluster_constraints: Annotated[int, whole("constraints a cluster", 1, 1_000_000)] = 20_000
    """Constraints in force of a cluster that reports, watches of constraints and their metrics look
    at; where there are more, none are, and calls end with RESOURCE_EXHAUSTED.

    With 4,000 nodes each of a workload takes 33 KiB, so these some 660 MiB.
    """


@dataclass(frozen=True, kw_only=True)
class ExtensionSettings:
    """What is served to kube-scheduler, the API server and cluster-autoscaler."""

    extender: Literal["filter", "place", "off"] = "filter"
    """What kube-scheduler's extender does: `filter` judges, `place` also reserves the node that it
    answers; a URL may say otherwise. `off` serves none.

    Judging writes nothing.
    """

    extender_reservation_ttl: Annotated[float, seconds(1.0)] = 60.0
    """How long `place` reserves a node for a pod that is not bound there yet.

    Several times what a scheduler needs to bind a pod, and the sync to see it.
    """

    extender_wake: Literal["auto", "on", "off"] = "auto"
    """Wake a pod that the extender refused when it fits: by a condition in the pod's status, which
    kube-scheduler takes for an event. Of the cluster --sync-cluster, at the API server of
    --sync-kubeconfig. `auto`: with --sync.

    A scheduler that tries too early does not try again for minutes; needs patch of pods/status, and
    does nothing without it.
    """

    webhook: bool = True
    """Serve a validating webhook at /validate, beside the extender: it lints what is applied, and
    answers with warnings.

    It does nothing until an API server is told of it.
    """

    webhook_refuse: tuple[str, ...] = ()
    """Codes of findings (docs/lint.md) for which the webhook refuses objects, and `error` for all
    errors; empty: it warns alone.

    A mistake in a constraint is no reason to keep a workload down.
    """

    expander_cluster: str = "default"
    """The cluster whose autoscaler asks: its protocol names none.

    As elsewhere.
    """

    expander_prefer: Literal["spread", "nodes"] = "spread"
    """What decides first between options that place as many pods: `spread`, how far these would be
    past maxSkew, over the domains that exist and those that node groups could open; or `nodes`, how
    few join.

    A constraint is written for an even spread; a node saved today opens no zone.
    """

    expander_veto: bool = False
    """Answer no option where none would place a pod, which stops the scale-up; off answers all of
    them.

    What is not modelled here may yet let a pod in.
    """


@dataclass(frozen=True, kw_only=True)
class SyncSettings:
    """The sync of a cluster from its API server."""

    sync: bool = False
    """Sync a cluster's state from its API server: list and watch nodes, pods, volumes and so on.

    Needs access to a cluster, and the extra `sync`.
    """

    sync_cluster: str = "default"
    """The name that the cluster has here.

    What callers leave out.
    """

    sync_kubeconfig: str = ""
    """kubeconfig file that names the API server.

    $KUBECONFIG or ~/.kube/config where there is one, else the pod's service account.
    """

    sync_context: str = ""
    """Context of the kubeconfig.

    Its current one.
    """

    sync_lease_duration: Annotated[float, seconds(1.0)] = 15.0
    """How long the lease of a syncing server that died lasts before another one syncs.

    As for Kubernetes' own controllers (leaseDuration).
    """

    sync_excluded_namespaces: tuple[str, ...] = ()
    """Namespaces whose objects are not synced, separated by commas.

    All count. What runs in one that is excluded takes no room on its nodes either.
    """


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """Metrics and logs."""

    scheduler_metrics: bool = True
    """Expose metrics under kube-scheduler's names.

    Its dashboards work; off where a kube-scheduler is summed with this server.
    """

    constraint_metrics: Literal["violated", "hard", "all", "none"] = "violated"
    """Constraints that have metrics of their own: `violated`, all that are not satisfied; `hard`,
    all with DoNotSchedule; or `all`. With `none` constraints are not counted for metrics at all.

    Alerts need no more, and a cluster in order has no such series.
    """

    max_constraint_series: Annotated[int, whole("constraints a process", 0, 100_000)] = 200
    """How many have metrics of their own: hard ones first, the worst first.
    topospread_constraints_omitted counts the others. 0: totals alone.

    Each takes seven series; who has more to mend begins with the worst.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important messages that are logged.

    No message is logged for each call at info.
    """

    log_format: Literal["auto", "json", "text"] = "auto"
    """How log lines look; auto is text on a terminal and JSON elsewhere.

    Each reader gets what it can read.
    """


@dataclass(frozen=True, kw_only=True)
class ShutdownSettings:
    """Readiness, and how the server stops."""

    unready_when_stale: bool = False
    """Answer 503 at /readyz while the store is out of reach.

    Off: all servers would leave the balancer together, although each can answer.
    """

    shutdown_grace_period: Annotated[float, seconds()] = 25.0
    """How long running calls may take after SIGTERM.

    Five seconds less than Kubernetes' terminationGracePeriodSeconds.
    """

    shutdown_delay: Annotated[float, seconds()] = 0.0
    """How long new calls are still taken after SIGTERM, while readiness already says no.

    Behind a balancer: longer than it takes to notice, so that no call fails.
    """


@dataclass(frozen=True, kw_only=True)
class ServerSettings(
    RuleSettings,
    ListenerSettings,
    TlsSettings,
    AccessSettings,
    StateSettings,
    LimitSettings,
    ExtensionSettings,
    SyncSettings,
    TelemetrySettings,
    ShutdownSettings,
):
    """All settings. Immutable: what may change while the server runs is in the scheduler's rules.

    Attributes:
        overriding: no setting: names of those that a flag or a variable gives, whatever the file
            has.
    """

    overriding: frozenset[str] = frozenset()
