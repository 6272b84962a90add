"""Every setting of the server: its default, its unit, what it does and the reason for the default.

A setting has one name in three spellings: ``max_batch_pods`` is the flag
``--max-batch-pods``, the variable ``TOPOSPREAD_MAX_BATCH_PODS`` and the key ``maxBatchPods`` of a
``TopospreadConfiguration``.

The file is long because it is one table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from topospread.cache import GROUP_BYTES, MIB
from topospread.config import values
from topospread.config.values import Address, without_password

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.config.values import ValueParser

_T = TypeVar("_T")

ALL_CLUSTERS: Final = "all"

# The largest that codec's bounds allow; this package may not import them.
_MAX_PODS: Final = 10_000
_MAX_TERMS: Final = 5000


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of a setting: all but its value.

    Attributes:
        name: the field of :class:`ServerSettings`.
        parser: reads and checks values.
        unit: of the value; empty for texts and switches.
        help: what it does, in a line.
        reason: why the default is what it is.
    """

    name: str
    parser: ValueParser[Any]
    unit: str
    help: str
    reason: str

    @property
    def flag(self) -> str:
        """``--decision-queue``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """``TOPOSPREAD_DECISION_QUEUE``."""
        return "TOPOSPREAD_" + self.name.upper()

    @property
    def key(self) -> str:
        """``maxWaitingCalls``."""
        first, *rest = self.name.split("_")
        return first + "".join(word.capitalize() for word in rest)


def setting(
    default: _T,
    parser: ValueParser[_T],
    *,
    unit: str = "",
    help: str,
    reason: str,
    repr: bool = True,
) -> _T:
    """A field of :class:`ServerSettings`; see :class:`Setting`."""
    about = {"parser": parser, "unit": unit, "help": help, "reason": reason}
    if isinstance(default, dict):
        return cast("_T", field(default_factory=default.copy, repr=repr, metadata=about))
    return field(default=default, repr=repr, metadata=about)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """All settings. Immutable: what may change while the server runs is in the scheduler's rules.

    ``repr`` shows no store address: it may hold a password.
    """

    # ------------------------------ where the server listens, and what it serves beside gRPC
    config: str = setting(
        "",
        values.text(),
        help="YAML file with a TopospreadConfiguration, a KubeSchedulerConfiguration, or both.",
        reason="Without one, kube-scheduler's defaults hold.",
    )
    listen: Address = setting(  # noqa: RUF009 - it makes a field
        Address("127.0.0.1", 7946),
        values.address(),
        help="Where gRPC is served. Port 0 lets the system choose, but not with --reuse-port.",
        reason=(
            "Loopback, because nothing is encrypted by default; below 32768, where ports for "
            "outgoing connections begin."
        ),
    )
    http: Address | None = setting(  # noqa: RUF009 - it makes a field
        Address("127.0.0.1", 7947),
        values.address_or_off(),
        help="Where /metrics, /livez and /readyz are served, or `off`.",
        reason="Next to gRPC's port.",
    )
    extender: str = setting(
        "filter",
        values.choice("filter", "place", "off"),
        help=(
            "What kube-scheduler's extender does: `filter` judges, `place` also reserves the "
            "node that it answers; a URL may say otherwise. `off` serves none."
        ),
        reason="Judging writes nothing.",
    )
    webhook: bool = setting(
        True,
        values.switch(),
        help=(
            "Serve a validating webhook at /validate, beside the extender: it lints what is "
            "applied, and answers with warnings."
        ),
        reason="It does nothing until an API server is told of it.",
    )
    webhook_refuse: tuple[str, ...] = setting(
        (),
        values.names(),
        help=(
            "Codes of findings (docs/lint.md) for which the webhook refuses objects, and `error` "
            "for all errors; empty: it warns alone."
        ),
        reason="A mistake in a constraint is no reason to keep a workload down.",
    )
    extender_listen: Address | None = setting(  # noqa: RUF009 - it makes a field
        None,
        values.address_or_off(),
        help=(
            "Where the extender and the webhook are served by themselves; `off`: beside /metrics, "
            "on --http. Processes with --reuse-port share it."
        ),
        reason="One port less to open.",
    )
    extender_reservation_ttl: float = setting(
        60.0,
        values.seconds(1.0),
        unit="seconds",
        help="How long `place` reserves a node for a pod that is not bound there yet.",
        reason="Several times what a scheduler needs to bind a pod, and the sync to see it.",
    )
    extender_wake: str = setting(
        "auto",
        values.choice("auto", "on", "off"),
        help=(
            "Wake a pod that the extender refused when it fits: by a condition in the pod's "
            "status, which kube-scheduler takes for an event. Of the cluster --sync-cluster, at "
            "the API server of --sync-kubeconfig. `auto`: with --sync."
        ),
        reason=(
            "A scheduler that tries too early does not try again for minutes; needs patch of "
            "pods/status, and does nothing without it."
        ),
    )
    expander_listen: Address | None = setting(  # noqa: RUF009 - it makes a field
        None,
        values.address_or_off(),
        help=(
            "Where cluster-autoscaler's expander is served by itself, or `off`: with requests of "
            "up to 128 MiB, two at a time, asking for neither token nor client certificate. The "
            "main address serves it as well, with its own limits."
        ),
        reason="Served only where an address is given.",
    )
    expander_cluster: str = setting(
        "default",
        values.text(),
        help="The cluster whose autoscaler asks: its protocol names none.",
        reason="As elsewhere.",
    )
    expander_veto: bool = setting(
        False,
        values.switch(),
        help=(
            "Answer no option where none would place a pod, which stops the scale-up; off answers "
            "all of them."
        ),
        reason="What is not modelled here may yet let a pod in.",
    )

    # ------------------------------ the store; processes, threads and queues
    store: str = setting(
        "",
        values.text(),
        help=(
            "Where the state is: redis://, rediss://, unix://, redis+sentinel://, "
            "redis+cluster://, sqlite:///PATH or memory: (a flag with a password in it shows in "
            "`ps`: use the variable or the file)."
        ),
        reason="A SQLite file in the user's state directory: durable without a second process.",
        repr=False,
    )
    wait_replicas: int = setting(
        0,
        values.whole(0, 16),
        unit="replicas",
        help=(
            "Replicas of Redis that must have a write before it is answered; if fewer confirm it "
            "in time, the write stays and the call ends with UNAVAILABLE."
        ),
        reason=(
            "Each write would wait for the farthest replica. It narrows what a failover may lose "
            "and does not close it."
        ),
    )
    reuse_port: bool = setting(
        False,
        values.switch(),
        help=(
            "Share --listen, --extender-listen and --expander-listen with other processes of the "
            "same user that say so, too: the system deals out connections. Each has its own --http."
        ),
        reason=(
            "A second server on an address is a mistake unless it is meant. Decisions use about "
            "one core a process; run one for each core they should have (deploy/systemd)."
        ),
    )
    decision_queue: int = setting(
        1024,
        values.whole(1),
        unit="calls a process",
        help="Decisions that may queue, and as many that take long; past it RESOURCE_EXHAUSTED.",
        reason="A queue longer than schedulers' patience only makes answers that come too late.",
    )

    # ------------------------------ what one request, caller or connection may ask for
    max_request_bytes: int = setting(
        16 * MIB,
        values.size(1024),
        unit="bytes",
        help="Largest gRPC request.",
        reason="Room for an ApplyObjects of 500 pods of 20 KiB with a margin.",
    )
    max_decision_bytes: int = setting(
        4 * MIB,
        values.size(1024),
        unit="bytes",
        help="Largest request of DecisionService, but of BatchEvaluatePods.",
        reason="One pod, of which no API server takes 1.5 MiB, and the pods of a node beside it.",
    )
    max_response_bytes: int = setting(
        64 * MIB,
        values.size(1024),
        unit="bytes",
        help="Largest gRPC answer.",
        reason="Room for a page of 5,000 objects of 10 KiB.",
    )
    http_max_body_bytes: int = setting(
        64 * MIB,
        values.size(1024),
        unit="bytes",
        help="Largest HTTP request body.",
        reason="A scheduler whose extender is not nodeCacheCapable sends it whole nodes.",
    )
    max_batch_objects: int = setting(
        500,
        values.whole(1, 500),
        unit="objects",
        help="Objects in one ApplyObjects, DeleteObjects or batch of ReplaceObjects.",
        reason="Each is one transaction of the store, during which others wait.",
    )
    max_replace_objects: int = setting(
        500_000,
        values.whole(1),
        unit="objects",
        help="Objects in one ReplaceObjects.",
        reason="Twice the pods of the largest clusters; all are in memory until the last has come.",
    )
    max_held_bytes: int = setting(
        1024 * MIB,
        values.size(1 << 20),
        unit="bytes a process",
        help=(
            "Memory for what is kept for callers: the objects that lists under way have received "
            "and that watches begin with, HTTP bodies (six times what is past 64 KiB), requests of "
            "decisions and, four times, answers of 64 KiB and more until they are taken. One "
            "caller may have half of it, and so may all streams together; past that "
            "RESOURCE_EXHAUSTED."
        ),
        reason="Half is room for a list of 400,000 usual pods: each counts as stored, and a KiB.",
    )
    max_clusters: int = setting(
        1024,
        values.whole(1, 10_000),
        unit="clusters",
        help=(
            "Clusters that a process follows, and past which no write makes another and no lease "
            "is for a new one; fewer where its limit of open files allows no more."
        ),
        reason=(
            "Each costs a thread, an index and, with Redis, three open files; far more than usual."
        ),
    )
    max_connections: int = setting(
        1200,
        values.whole(1),
        unit="connections a process",
        help=(
            "Open connections of the gRPC port; past it new ones are closed. Each HTTP port has at "
            "most 512 of them, the expander's own port 64."
        ),
        reason="Idle ones take 70 KiB each with TLS, and need no credential: 140 MiB in all.",
    )
    max_calls_per_connection: int = setting(
        1024,
        values.whole(1),
        unit="calls",
        help="Calls at once on one gRPC connection; clients hold more back.",
        reason="As many as may queue: one connection cannot fill more than the queue.",
    )
    rate_limit: float = setting(
        0.0,
        values.rate(),
        unit="calls a second",
        help=(
            "Calls of one caller to one process; past it RESOURCE_EXHAUSTED with RetryInfo. 0 for "
            "no limit. A caller is a token, a certificate, or else an address."
        ),
        reason=(
            "Queues are bounded already; a fair share is for those who share a server to agree on."
        ),
    )
    rate_burst: int = setting(
        100,
        values.whole(1),
        unit="calls",
        help="Calls that a caller may make at once within --rate-limit.",
        reason="A batch of a scheduler after a pause.",
    )
    max_batch_pods: int = setting(
        1000,
        values.whole(1, _MAX_PODS),
        unit="pods",
        help=(
            "Pods in one BatchEvaluatePods; fewer where they differ and nodes are many (Limits of "
            "a request in docs/api.md)."
        ),
        reason="A batch holds one thread until it is done.",
    )
    max_what_if_pods: int = setting(
        1000,
        values.whole(1, _MAX_PODS),
        unit="pods",
        help="Pods in add_pods and remove_pods of one request.",
        reason="Preemption looks at the pods of one node, of which there are at most some hundred.",
    )
    max_simulated_pods: int = setting(
        10_000,
        values.whole(1),
        unit="pods",
        help="Pods that one Simulate places.",
        reason="A thousand take a fraction of a second; a call holds its thread meanwhile.",
    )
    max_simulated_nodes: int = setting(
        5000,
        values.whole(1),
        unit="nodes",
        help="Nodes that may join in one Simulate.",
        reason="As many as a large cluster has.",
    )
    max_constraints: int = setting(
        64,
        values.whole(1, 1000),
        unit="constraints a pod",
        help="Spread constraints of one pod.",
        reason="Real pods have one to four; each costs as much as the first.",
    )
    max_selector_terms: int = setting(
        5000,
        values.whole(1, _MAX_TERMS),
        unit="terms a pod",
        help="Expressions and values in one pod's selectors and affinity.",
        reason="Generated affinities list nodes by name, a whole cluster's at most.",
    )

    # ------------------------------ what is kept in memory, how changes are followed, the sync
    max_groups: int = setting(
        4096,
        values.whole(16),
        unit="selectors a cluster",
        help="Selectors whose counts are kept; the least recently used go first.",
        reason=(
            "Several times the apps of a large cluster; each costs memory and work at each change."
        ),
    )
    max_group_idle: float = setting(
        600.0,
        values.seconds(1.0),
        unit="seconds",
        help="How long the counts of a selector are kept after the last decision that used them.",
        reason="Longer than pauses between two pods of an app; counting anew takes a millisecond.",
    )
    max_group_bytes: int = setting(
        GROUP_BYTES,
        values.size(1 << 20),
        unit="bytes a cluster",
        help="Memory for the counts of selectors, about; the least recently used go first.",
        reason=(
            "Eight hundred selectors counted by hostname on 5,000 nodes; counting one anew takes "
            "a millisecond."
        ),
    )
    cache_results: bool = setting(
        True,
        values.switch(),
        help=(
            "Answer EvaluatePod from the last result for pods of the same shape while nothing it "
            "rests on has changed."
        ),
        reason="Exact, and free where nothing repeats; off to measure.",
    )
    coalesce_interval: float = setting(
        0.02,
        values.seconds(),
        unit="seconds",
        help="How long changes are gathered before they are applied together, unless a call waits.",
        reason=(
            "Each time costs decisions what they remember of the selectors concerned; a write is "
            "seen elsewhere within 30 ms."
        ),
    )
    preload: tuple[str, ...] = setting(
        (ALL_CLUSTERS,),
        values.names(),
        help="Clusters to load before the server is ready, separated by commas; `all` for all.",
        reason="A server that is ready answers at once.",
    )
    max_preload: int = setting(
        16,
        values.whole(0),
        unit="clusters",
        help="How many clusters `--preload all` loads before the server is ready; the others are "
        "loaded at first use, or for `--constraint-metrics`.",
        reason="Loading takes time before readiness, and memory after it.",
    )
    sync: bool = setting(
        False,
        values.switch(),
        help=(
            "Sync a cluster's state from its API server: list and watch nodes, pods and workloads."
        ),
        reason="Needs access to a cluster, and the extra `sync`.",
    )
    sync_cluster: str = setting(
        "default",
        values.text(),
        help="The name that the cluster has here.",
        reason="What callers leave out.",
    )
    sync_kubeconfig: str = setting(
        "",
        values.text(),
        help="kubeconfig file that names the API server.",
        reason="$KUBECONFIG or ~/.kube/config where there is one, else the pod's service account.",
    )
    sync_context: str = setting(
        "",
        values.text(),
        help="Context of the kubeconfig.",
        reason="Its current one.",
    )
    sync_lease_duration: float = setting(
        15.0,
        values.seconds(1.0),
        unit="seconds",
        help="How long the lease of a syncing server that died lasts before another one syncs.",
        reason="As for Kubernetes' own controllers (leaseDuration).",
    )
    sync_excluded_namespaces: tuple[str, ...] = setting(
        (),
        values.names(),
        help="Namespaces whose objects are not synced, separated by commas.",
        reason="All count. What runs in one that is excluded takes no room on its nodes either.",
    )

    # ------------------------------ operation and access
    unready_when_stale: bool = setting(
        False,
        values.switch(),
        help="Answer 503 at /readyz while the store is out of reach.",
        reason="Off: all servers would leave the balancer together, although each can answer.",
    )
    shutdown_grace_period: float = setting(
        25.0,
        values.seconds(),
        unit="seconds",
        help="How long running calls may take after SIGTERM.",
        reason="Five seconds less than Kubernetes' terminationGracePeriodSeconds.",
    )
    shutdown_delay: float = setting(
        0.0,
        values.seconds(),
        unit="seconds",
        help="How long new calls are still taken after SIGTERM, while readiness already says no.",
        reason="Behind a balancer: longer than it takes to notice, so that no call fails.",
    )
    max_connection_age: float = setting(
        300.0,
        values.seconds(),
        unit="seconds",
        help="After which clients connect anew; streams are cut a minute later. 0 for never.",
        reason="Lets load move to new servers within minutes of a restart.",
    )
    reflection: bool = setting(
        True,
        values.switch(),
        help="Serve gRPC reflection.",
        reason="grpcurl and ghz need it; with an access file it takes the role read.",
    )
    scheduler_metrics: bool = setting(
        True,
        values.switch(),
        help="Expose metrics under kube-scheduler's names.",
        reason="Its dashboards work; off where a kube-scheduler is summed with this server.",
    )
    constraint_metrics: str = setting(
        "violated",
        values.choice("violated", "hard", "all", "none"),
        help=(
            "Constraints that have metrics of their own: `violated`, all that are not satisfied; "
            "`hard`, all with DoNotSchedule; or `all`. With `none` constraints are not counted for "
            "metrics at all."
        ),
        reason="Alerts need no more, and a cluster in order has no such series.",
    )
    max_constraint_series: int = setting(
        200,
        values.whole(0, 100_000),
        unit="constraints a process",
        help=(
            "How many have metrics of their own: hard ones first, the worst first. "
            "topospread_constraints_omitted counts the others. 0: totals alone."
        ),
        reason="Each takes seven series; who has more to mend begins with the worst.",
    )
    max_cluster_constraints: int = setting(
        20_000,
        values.whole(1, 1_000_000),
        unit="constraints a cluster",
        help=(
            "Constraints in force of a cluster that reports, watches of constraints and their "
            "metrics look at; where there are more, none are, and calls end with "
            "RESOURCE_EXHAUSTED."
        ),
        reason="With 4,000 nodes each of a workload takes 33 KiB, so these some 660 MiB.",
    )
    feature_gates: Mapping[str, bool] = setting(
        {},
        values.switches(),
        help=(
            "Feature gates by upstream's names, `Name=true,OtherName=false`; they go before those "
            "in the configuration file."
        ),
        reason="Upstream's defaults.",
    )
    log_level: str = setting(
        "info",
        values.choice("debug", "info", "warning", "error"),
        help="The least important messages that are logged.",
        reason="No message is logged for each call at info.",
    )
    log_format: str = setting(
        "auto",
        values.choice("auto", "json", "text"),
        help="How log lines look; auto is text on a terminal and JSON elsewhere.",
        reason="Each reader gets what it can read.",
    )
    tls_cert: str = setting(
        "",
        values.text(),
        help="PEM file with the server's certificate chain.",
        reason="Plain text on loopback.",
    )
    tls_key: str = setting(
        "",
        values.text(),
        help="PEM file with its private key.",
        reason="As for the certificate.",
    )
    client_ca: str = setting(
        "",
        values.text(),
        help="PEM file with the CAs that client certificates must be signed by; asks for one.",
        reason="Clients need no certificate.",
    )
    http_client_ca: str = setting(
        "",
        values.text(),
        help="The same for HTTP; `none` asks for no certificate there. Empty: as --client-ca says.",
        reason="One setting protects both; kubelet's probes have no certificate and need `none`.",
    )
    access_file: str = setting(
        "",
        values.text(),
        help=(
            "YAML file of kind TopospreadAccess: hashed tokens, names in client certificates, and "
            "the roles of each; read again when it changes (docs/security.md)."
        ),
        reason="Without one, every caller may do everything.",
    )
    insecure: bool = setting(
        False,
        values.switch(),
        help="Allow plain text on an address that others can reach.",
        reason="Must be spelled out.",
    )
    # No setting: the names of those that a flag or a variable gives, whatever the file has.
    overriding: frozenset[str] = frozenset()

    @property
    def tls(self) -> bool:
        """Whether calls are encrypted."""
        return bool(self.tls_cert)

    @property
    def http_verifies_clients_by(self) -> str:
        """The CA file for HTTP's client certificates; empty when none is asked for."""
        chosen = self.http_client_ca or self.client_ca
        return "" if chosen == "none" else chosen

    def redacted(self) -> Mapping[str, object]:
        """All settings by key, fit for a terminal or a log: without passwords."""
        shown = {
            setting.key: getattr(self, name)
            for name, setting in SETTINGS.items()
            if name != "store"
        }
        return {**shown, "store": without_password(self.store)}


SETTINGS: Final[Mapping[str, Setting]] = {
    one.name: Setting(one.name, **one.metadata) for one in fields(ServerSettings) if one.metadata
}
"""By field name, in the order of the class."""
