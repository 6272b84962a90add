"""Every setting of the server: its unit, its default and the reason for it.

A setting has one name in three spellings: ``max_waiting`` is the flag ``--max-waiting``, the
variable ``TOPOSPREAD_MAX_WAITING`` and the key ``maxWaiting`` of a ``TopospreadConfiguration``.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - get_type_hints() looks it up
from dataclasses import dataclass, field, fields
from typing import Annotated, Final, get_type_hints

from topospread.config import values
from topospread.config.spelling import About, Setting
from topospread.config.values import Address, without_password

ALL_CLUSTERS: Final = "all"

_MIB: Final = 1 << 20


DEFAULT_LISTEN: Final = Address("127.0.0.1", 7946)
DEFAULT_HTTP: Final = Address("127.0.0.1", 7947)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """All settings. Immutable: what may change while the server runs is in the scheduler's rules.

    ``repr`` shows no store address: it may hold a password.
    """

    config: Annotated[
        str,
        About(
            values.text(),
            "",
            "YAML file with a TopospreadConfiguration, a KubeSchedulerConfiguration, or both.",
            "Without one, kube-scheduler's defaults hold.",
        ),
    ] = ""
    listen: Annotated[
        Address,
        About(
            values.address(),
            "",
            "Where gRPC is served. Port 0 lets the system choose.",
            "Loopback, because nothing is encrypted by default; below 32768, where ports for"
            " outgoing connections begin.",
        ),
    ] = DEFAULT_LISTEN
    http: Annotated[
        Address | None,
        About(
            values.address_or_off(),
            "",
            "Where /metrics, /livez and /readyz are served, or `off`.",
            "Next to gRPC's port.",
        ),
    ] = DEFAULT_HTTP
    extender: Annotated[
        str,
        About(
            values.choice("filter", "place", "off"),
            "",
            "What kube-scheduler's extender does: `filter` judges, `place` also holds the node that"
            " it answers; a URL may say otherwise. `off` serves none.",
            "Judging writes nothing.",
        ),
    ] = "filter"
    extender_listen: Annotated[
        Address | None,
        About(
            values.address_or_off(),
            "",
            "Where the extender is served by itself; `off`: beside /metrics, on --http. Several"
            " --workers need it, because there a supervisor serves --http.",
            "One port less to open.",
        ),
    ] = None
    extender_hold: Annotated[
        float,
        About(
            values.seconds(1.0),
            "seconds",
            "How long `place` holds a node for a pod that is not seen there.",
            "Some times what a scheduler needs to bind a pod, and a feed to tell of it.",
        ),
    ] = 60.0
    expander_listen: Annotated[
        Address | None,
        About(
            values.address_or_off(),
            "",
            "Where cluster-autoscaler's expander is served by itself, or `off`: with requests of up"
            " to 128 MiB, two at a time, asking for neither token nor client certificate. The main"
            " address serves it as well, with its own limits.",
            "Who needs it names an address.",
        ),
    ] = None
    expander_cluster: Annotated[
        str,
        About(
            values.text(),
            "",
            "The cluster whose autoscaler asks: its protocol names none.",
            "As elsewhere.",
        ),
    ] = "default"
    expander_refuses: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Answer no option where none would place a pod, which stops the scale-up; off answers"
            " all of them.",
            "What is not modelled here may yet let a pod in.",
        ),
    ] = False
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
            "Threads for PreFilter, Filter, Score, Evaluate.",
            "Decisions are pure CPU: a third thread only contends for the interpreter.",
        ),
    ] = 2
    state_threads: Annotated[
        int,
        About(
            values.whole(1, 256),
            "threads a process",
            "Threads for ClusterState's unary calls and Replace, which wait for the store.",
            "They wait more than they compute, and must not hold up decisions.",
        ),
    ] = 4
    planner_threads: Annotated[
        int,
        About(
            values.whole(1, 64),
            "threads a process",
            "Threads for Explain and the Planner's calls.",
            "Long computations: one at a time leaves the other core to decisions.",
        ),
    ] = 1
    stream_threads: Annotated[
        int,
        About(
            values.whole(1, 4096),
            "threads a process",
            "Open streams (EvaluateStream, Watch); each holds a thread.",
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
            "ClusterState calls that may queue; past it RESOURCE_EXHAUSTED.",
            "As for decisions; writes are fewer.",
        ),
    ] = 256
    planner_queue: Annotated[
        int,
        About(
            values.whole(1),
            "calls a process",
            "Explain and Planner calls that may queue; past it RESOURCE_EXHAUSTED.",
            "Each may take seconds.",
        ),
    ] = 16
    max_request_bytes: Annotated[
        int,
        About(
            values.size(1024),
            "bytes",
            "Largest gRPC request.",
            "Room for an Apply of 500 pods of 20 KiB with a margin.",
        ),
    ] = 16 * _MIB
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
            "Objects in one Apply or Delete; more may be sent by Replace.",
            "Each is one transaction of the store, during which others wait.",
        ),
    ] = 500
    max_replace_objects: Annotated[
        int,
        About(
            values.whole(1),
            "objects",
            "Objects in one Replace.",
            "Twice the pods of the largest clusters; all are in memory until the last has come.",
        ),
    ] = 500_000
    max_clusters: Annotated[
        int,
        About(
            values.whole(1, 10_000),
            "clusters",
            "Clusters that a process follows, and past which no write makes another one.",
            "Each costs a thread and an index; far more than anybody has.",
        ),
    ] = 1024
    max_connections: Annotated[
        int,
        About(
            values.whole(1),
            "connections a process",
            "Open connections of gRPC, and as many of HTTP; past it new ones are closed.",
            "A few per scheduler; leaves room below common limits on open files.",
        ),
    ] = 4096
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
            values.whole(1),
            "pods",
            "Pods in one BatchEvaluate.",
            "A batch holds one thread until it is done.",
        ),
    ] = 1000
    max_what_ifs: Annotated[
        int,
        About(
            values.whole(1),
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
            values.whole(1),
            "constraints a pod",
            "Spread constraints of one pod.",
            "Real pods have one to four; each costs as much as the first.",
        ),
    ] = 64
    max_selector_terms: Annotated[
        int,
        About(
            values.whole(1),
            "terms a pod",
            "Expressions and values in one pod's selectors and affinity.",
            "Generated affinities list nodes by name, a whole cluster's at most.",
        ),
    ] = 5000
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
    remember_results: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Answer Evaluate from the last result for pods of the same shape while nothing it rests"
            " on has changed.",
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
    sync_leave_out: Annotated[
        tuple[str, ...],
        About(
            values.names(),
            "",
            "Namespaces whose objects are not fed, separated by commas.",
            "All count. What runs in one that is left out takes no room on its nodes either.",
        ),
    ] = ()
    unready_when_stale: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Answer 503 at /readyz while the store is out of reach.",
            "Off: all servers would leave the balancer together, although each can answer.",
        ),
    ] = False
    grace: Annotated[
        float,
        About(
            values.seconds(),
            "seconds",
            "How long running calls may take after SIGTERM.",
            "Five seconds less than Kubernetes' terminationGracePeriodSeconds.",
        ),
    ] = 25.0
    max_connection_age: Annotated[
        float,
        About(
            values.seconds(),
            "seconds",
            "After which a client is asked to connect anew; 0 for never.",
            "Lets load move to new servers within minutes of a restart.",
        ),
    ] = 300.0
    reflection: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Serve gRPC reflection.",
            "grpcurl and ghz need it; with an access file it takes the role read.",
        ),
    ] = True
    scheduler_metrics: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Expose metrics under kube-scheduler's names.",
            "Its dashboards work; off where a kube-scheduler is summed with this server.",
        ),
    ] = True
    feature_gates: Annotated[
        Mapping[str, bool],
        About(
            values.switches(),
            "",
            "Feature gates by upstream's names, `Name=true,OtherName=false`; they go before those"
            " in the configuration file.",
            "Upstream's defaults.",
        ),
    ] = field(default_factory=dict)
    log_level: Annotated[
        str,
        About(
            values.choice("debug", "info", "warning", "error"),
            "",
            "The least important messages that are logged.",
            "No message is logged for each call at info.",
        ),
    ] = "info"
    log_format: Annotated[
        str,
        About(
            values.choice("auto", "json", "text"),
            "",
            "How log lines look; auto is text on a terminal and JSON elsewhere.",
            "Each reader gets what it can read.",
        ),
    ] = "auto"
    tls_cert: Annotated[
        str,
        About(
            values.text(),
            "",
            "PEM file with the server's certificate chain.",
            "Plain text on loopback.",
        ),
    ] = ""
    tls_key: Annotated[
        str, About(values.text(), "", "PEM file with its private key.", "As for the certificate.")
    ] = ""
    client_ca: Annotated[
        str,
        About(
            values.text(),
            "",
            "PEM file with the CAs that client certificates must be signed by; asks for one.",
            "Clients need no certificate.",
        ),
    ] = ""
    http_client_ca: Annotated[
        str,
        About(
            values.text(),
            "",
            "The same for HTTP; `none` asks for no certificate there. Empty: as --client-ca says.",
            "One word closes both doors; kubelet's probes have no certificate and need `none`.",
        ),
    ] = ""
    access_file: Annotated[
        str,
        About(
            values.text(),
            "",
            "YAML file of kind TopospreadAccess: hashed tokens, names in client certificates, and"
            " the roles of each; read again when it changes (docs/security.md).",
            "Without one, whoever reaches the server may do everything.",
        ),
    ] = ""
    insecure: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Allow plain text on an address that others can reach.",
            "Must be spelled out.",
        ),
    ] = False

    @property
    def tls(self) -> bool:
        """Whether calls are encrypted."""
        return bool(self.tls_cert)

    @property
    def http_verifies_clients_by(self) -> str:
        """The CA file for HTTP's client certificates; empty when none is asked for."""
        chosen = self.http_client_ca or self.client_ca
        return "" if chosen == "none" else chosen

    def shown(self) -> Mapping[str, object]:
        """All settings by key, fit for a terminal or a log: without passwords."""
        shown = {
            setting.key: getattr(self, name)
            for name, setting in SETTINGS.items()
            if name != "store"
        }
        return {**shown, "store": without_password(self.store)}


_HINTS = get_type_hints(ServerSettings, include_extras=True)
SETTINGS: Final[Mapping[str, Setting]] = {
    one.name: Setting(one.name, _HINTS[one.name].__metadata__[0]) for one in fields(ServerSettings)
}
"""By field name, in the order of the class."""
