"""Responses of decisions and of reads, as frozen values; those of other calls are beside them.

A class has the name and the fields of the message that it is read from. Absent fields are None, or
empty; times are datetimes in UTC, durations are seconds, and long columns are arrays. Kubernetes
objects stay messages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from topospread_client._enums import VerdictCode
from topospread_client._tracing import trace_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from topospread_client._enums import WatchEventType
    from topospread_client._errors import TopospreadClientError
    from topospread_client._references import ObjectReference, ResourceVersion
    from topospread_proto.kubernetes.v1 import kubernetes_pb2
    from topospread_proto.v1 import cluster_state_service_pb2, decision_service_pb2


class IntArray(Protocol):
    """Common methods of NumPy's and the standard library's arrays of integers."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def tolist(self) -> list[int]:
        """Elements as Python's own integers."""


@dataclass(frozen=True, slots=True)
class ResponseMeta:
    """State that a response was made from.

    Attributes:
        revision: opaque; of the state, or the one that contains the write; empty where no state
            was read.
        store_unreachable_for: seconds for which the store has not answered; None while it does.
        observed: how far the sync of that state had read the API server.
    """

    revision: str = ""
    store_unreachable_for: float | None = None
    observed: tuple[ResourceVersion, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Base of all responses.

    Attributes:
        meta: the state that it was made from.
        traceparent: W3C trace context of the call; None when the server did not send one.
    """

    meta: ResponseMeta
    traceparent: str | None = None

    @property
    def revision(self) -> str:
        """Revision of `meta`."""
        return self.meta.revision

    @property
    def trace_id(self) -> str | None:
        """Trace id of the call."""
        return trace_id(self.traceparent)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status of one extension point, or of one node, with upstream's exact reasons."""

    code: VerdictCode
    reasons: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether the code is SUCCESS."""
        return self.code is VerdictCode.SUCCESS


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint with its defaults filled in.

    Attributes:
        id: equal for constraints whose other fields are equal, also of other pods.
        label_selector: a message; None counts no pods.
        selector_text: the selector as kubectl writes it.
        min_domains: 1 where it is absent.
    """

    id: str
    namespace: str
    topology_key: str
    when_unsatisfiable: str
    label_selector: kubernetes_pb2.LabelSelector | None
    selector_text: str
    max_skew: int
    min_domains: int
    node_affinity_policy: str
    node_taints_policy: str


@dataclass(frozen=True, slots=True)
class DomainCount:
    """Number of matching pods in one domain; the value "" is a domain, too."""

    value: str
    pod_count: int


@dataclass(frozen=True, slots=True)
class ConstraintState:
    """Counts of PreFilter for one hard constraint.

    Attributes:
        self_match: whether the pod adds itself to the count.
        eligible_domain_count: domains with at least one eligible node.
        global_minimum: smallest count of an eligible domain; 0 with fewer than minDomains.
        domain_counts: only when counts were asked for.
    """

    constraint: SpreadConstraint
    self_match: bool
    eligible_domain_count: int
    global_minimum: int
    domain_counts: tuple[DomainCount, ...]


@dataclass(frozen=True, kw_only=True)
class PreFilterResponse(Answer):
    """Verdict of PreFilter (Skip without hard constraints), with the counts of its constraints.

    Attributes:
        cycle: lets filter and score answer from the same frozen counts.
        constraints: one for each hard constraint.
        extension_verdicts: one for each of ``add_pods``, then ``remove_pods``.
    """

    verdict: Verdict
    cycle: str
    constraints: tuple[ConstraintState, ...]
    extension_verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, kw_only=True)
class FilterResponse(Answer):
    """Verdicts of Filter by node: ``node_names[i]`` has ``verdict_table[verdicts[i]]``.

    Attributes:
        verdict: PreFilter's; Skip means that every node passes.
        cycle: the cycle that answered.
        cycle_remade: the cycle was unknown to that process and was made again at this revision.
        node_table_id: of the server's node table.
    """

    verdict: Verdict
    cycle: str
    cycle_remade: bool
    node_table_id: str
    node_names: Sequence[str]
    verdicts: IntArray
    verdict_table: tuple[Verdict, ...]

    def __len__(self) -> int:
        return len(self.verdicts)

    def by_node(self) -> dict[str, Verdict]:
        """Verdict of each node."""
        table = self.verdict_table
        pairs = zip(self.node_names, self.verdicts.tolist(), strict=True)
        return {name: table[at] for name, at in pairs}

    def feasible(self) -> list[str]:
        """Names of the nodes that pass, in the order of `node_names`."""
        passing = {at for at, verdict in enumerate(self.verdict_table) if verdict.success}
        pairs = zip(self.node_names, self.verdicts.tolist(), strict=True)
        return [name for name, at in pairs if at in passing]

    def counts(self) -> dict[Verdict, int]:
        """Number of nodes for each distinct verdict."""
        counted = Counter(self.verdicts.tolist())
        return {self.verdict_table[at]: nodes for at, nodes in counted.most_common()}


@dataclass(frozen=True, kw_only=True)
class ScoreResponse(Answer):
    """Scores of feasible nodes: ``node_names[i]`` has ``raw[i]`` and ``normalized[i]``.

    Attributes:
        verdict: PreScore's; Skip (no soft constraints) and Error come without scores.
        raw: the plugin's score, the lower the better.
        normalized: 0 to 100, the higher the better.
    """

    verdict: Verdict
    cycle: str
    cycle_remade: bool
    node_table_id: str
    node_names: Sequence[str]
    raw: IntArray
    normalized: IntArray

    def __len__(self) -> int:
        return len(self.raw)

    def raw_by_node(self) -> dict[str, int]:
        """Raw score of each node."""
        return dict(zip(self.node_names, self.raw.tolist(), strict=True))

    def normalized_by_node(self) -> dict[str, int]:
        """Normalized score of each node, from 0 to 100."""
        return dict(zip(self.node_names, self.normalized.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """Number of nodes with one verdict."""

    verdict: Verdict
    node_count: int


@dataclass(frozen=True, slots=True)
class NodeScore:
    """Scores of one feasible node."""

    node: str
    raw: int
    normalized: int


@dataclass(frozen=True, kw_only=True)
class EvaluatePodResponse(Answer):
    """Result of PreFilter, Filter and Score for a pod.

    Attributes:
        node_count: nodes that were judged.
        feasible_node_count: nodes that passed.
        verdict_counts: nodes for each verdict, most frequent first.
        top_nodes: the best nodes, best first.
        message: what kube-scheduler writes on a pod that fits nowhere; empty when one fits.
        reason: ``Unschedulable`` or ``SchedulerError``; empty when a node fits.
        top_k: how many nodes would have been named at most.
    """

    pre_filter_verdict: Verdict
    pre_score_verdict: Verdict
    node_count: int
    feasible_node_count: int
    verdict_counts: tuple[VerdictCount, ...]
    top_nodes: tuple[NodeScore, ...]
    message: str
    reason: str
    top_k: int

    @classmethod
    def from_message(
        cls,
        message: decision_service_pb2.EvaluatePodResponse,
        field_reader: Callable[[Any, Any, str], Callable[[Any], Any]],
        **read: Any,
    ) -> EvaluatePodResponse:
        """Response whose fields are converted when they are first read.

        Args:
            message: with the fields.
            field_reader: gives for this class, the message's descriptor and a name what reads it.
            read: fields that have been converted already.
        """
        made = object.__new__(cls)
        made.__dict__.update(read, _message=message, _field_reader=field_reader)
        return made

    if not TYPE_CHECKING:  # every name would be taken for that of a field

        def __getattr__(self, name: str) -> Any:
            """Convert a field; it is an ordinary attribute then."""
            message = self.__dict__.get("_message")
            if message is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            read = self.__dict__["_field_reader"](type(self), message.DESCRIPTOR, name)
            value = self.__dict__[name] = read(message)
            return value

        def __getstate__(self) -> dict[str, Any]:
            """Fields, for copies and for pickle, which cannot take the message."""
            return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def best(self) -> str | None:
        """Name of the best node; None when none fits."""
        return self.top_nodes[0].node if self.top_nodes else None


@dataclass(frozen=True, kw_only=True)
class BatchEvaluatePodsResponse(Answer):
    """Results of several pods, in order, all at one revision."""

    results: tuple[EvaluatePodResponse | TopospreadClientError, ...]


@dataclass(frozen=True, kw_only=True)
class GetObjectResponse(Answer):
    """An object as it is stored: trimmed to the fields that spreading uses."""

    object: cluster_state_service_pb2.ClusterObject


@dataclass(frozen=True, kw_only=True)
class ListObjectsResponse(Answer):
    """Page of objects of one kind; ``next_page_token`` is empty on the last one."""

    objects: tuple[cluster_state_service_pb2.ClusterObject, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Change of an object, or a bookmark.

    Attributes:
        ref: of the object; None for a bookmark.
        object: None for a deletion and for a bookmark.
    """

    type: WatchEventType
    ref: ObjectReference | None
    object: cluster_state_service_pb2.ClusterObject | None


@dataclass(frozen=True, kw_only=True)
class WatchObjectsResponse(Answer):
    """Changes up to one revision, in order; a watch can continue from it."""

    events: tuple[WatchEvent, ...]


@dataclass(frozen=True, kw_only=True)
class GetNodeTableResponse(Answer):
    """Node names with which verdicts and scores are aligned, sorted as bytes."""

    node_table_id: str
    node_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """State of one cluster in the server.

    Attributes:
        loaded: whether it is in the index of the process that answered.
        lag: log entries that are written but not yet in the snapshot.
        store_unreachable_for: seconds; None while the store answers.
        group_count: distinct (namespace, selector) pairs that are counted.
        corrupt_count: values that could not be read and were left out.
        label_set_count: different label sets of counted pods, over all namespaces.
        identity_changed: the store is another one than before; writes are refused.
        store_identity: of the store as it is now, for accept_store.
        observed: how far the sync had read the API server.
    """

    name: str
    loaded: bool
    revision: str
    lag: int
    store_unreachable_for: float | None
    node_count: int
    pod_count: int
    workload_count: int
    reservation_count: int
    group_count: int
    corrupt_count: int
    label_set_count: int
    identity_changed: bool
    store_identity: str
    observed: tuple[ResourceVersion, ...]


@dataclass(frozen=True, kw_only=True)
class GetClusterResponse(Answer):
    """State of one cluster in the server."""

    cluster: Cluster


@dataclass(frozen=True, kw_only=True)
class ListClustersResponse(Answer):
    """Page of clusters, by name; ``next_page_token`` is empty on the last one."""

    clusters: tuple[Cluster, ...]
    next_page_token: str


@dataclass(frozen=True, kw_only=True)
class DeleteClusterResponse(Answer):
    """Number of objects that were deleted with a cluster."""

    object_count: int


@dataclass(frozen=True, kw_only=True)
class AcceptStoreResponse(Answer):
    """Revision from which the store is followed again."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server for one request."""

    max_batch_objects: int
    max_batch_pods: int
    max_what_if_pods: int
    max_request_bytes: int
    max_clusters: int
    max_simulated_pods: int
    max_simulated_nodes: int
    max_decision_bytes: int
    max_replace_objects: int
    max_constraints: int
    max_selector_terms: int
    max_named_nodes: int


@dataclass(frozen=True, kw_only=True)
class GetServerInfoResponse(Answer):
    """Version, features, limits and configuration of a server.

    Attributes:
        version: its release.
        api_versions: API packages that it serves.
        features: optional features, by name.
        start_time: None where the server does not send it.
        store: the store's address without secrets; empty for callers who may not read all clusters.
        config_generation: grows by one each time the configuration is read anew.
        config_error: why the newest configuration was refused; empty when it is in force.
        settings_digest: of all settings that answers depend on, the same on servers that have the
            same.
    """

    version: str
    api_versions: tuple[str, ...]
    features: tuple[str, ...]
    limits: ServerLimits
    start_time: datetime | None
    store: str
    config_generation: int
    config_error: str
    settings_digest: str
