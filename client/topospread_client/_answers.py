"""What the server answers, as frozen values.

A class is named after the message that it is read from, and has its fields. What a message leaves
out is None, or empty; times are datetimes in UTC, durations are seconds, and long columns stay
arrays. Only objects are messages still.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread_client._enums import VerdictCode
from topospread_client._tracing import trace_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from topospread_client._arrays import IntArray
    from topospread_client._enums import Kind, ObjectOutcome, WatchEventType
    from topospread_client._errors import TopospreadClientError
    from topospread_client._references import ObjectReference, PodReference, ResourceVersion
    from topospread_proto.kubernetes.v1 import kubernetes_pb2
    from topospread_proto.v1 import cluster_state_service_pb2


@dataclass(frozen=True, slots=True)
class ResponseMeta:
    """What every answer says of the state behind it.

    Attributes:
        revision: opaque; of the state, or the one that contains the write; empty where no state
            was read.
        store_unreachable_for: seconds for which the store has not answered; None while it does.
        observed: how far the feed of that state had read the API server.
    """

    revision: str = ""
    store_unreachable_for: float | None = None
    observed: tuple[ResourceVersion, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What every answer has.

    Attributes:
        meta: of the state behind it.
        traceparent: W3C trace context of the call; None when the server did not send one.
    """

    meta: ResponseMeta
    traceparent: str | None = None

    @property
    def revision(self) -> str:
        """That of `meta`."""
        return self.meta.revision

    @property
    def trace_id(self) -> str | None:
        """The identity under which the call's trace is looked up."""
        return trace_id(self.traceparent)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one extension point, or about one node, with upstream's exact reasons."""

    code: VerdictCode
    reasons: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether the node, or the pod, passes."""
        return self.code is VerdictCode.SUCCESS


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A constraint as it is understood.

    Attributes:
        id: the same wherever, and for whichever pod, all other fields are the same.
        label_selector: a message; None counts no pods.
        selector_text: the same as kubectl writes selectors.
        min_domains: 1 when it has none.
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
    """Matching pods in one domain; the value "" is a real domain."""

    value: str
    pod_count: int


@dataclass(frozen=True, slots=True)
class ConstraintState:
    """What PreFilter knows of one hard constraint.

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
    """Success, Skip (no hard constraints) or Error, with the counts behind it.

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
    """One verdict for each node: ``node_names[i]`` has ``verdict_table[verdicts[i]]``.

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
        """Each node's verdict."""
        table = self.verdict_table
        pairs = zip(self.node_names, self.verdicts.tolist(), strict=True)
        return {name: table[at] for name, at in pairs}

    def feasible(self) -> list[str]:
        """The nodes that pass, in the order of `node_names`."""
        passing = {at for at, verdict in enumerate(self.verdict_table) if verdict.success}
        pairs = zip(self.node_names, self.verdicts.tolist(), strict=True)
        return [name for name, at in pairs if at in passing]

    def counts(self) -> dict[Verdict, int]:
        """Nodes for each distinct verdict."""
        counted = Counter(self.verdicts.tolist())
        return {self.verdict_table[at]: nodes for at, nodes in counted.most_common()}


@dataclass(frozen=True, kw_only=True)
class ScoreResponse(Answer):
    """Scores of nodes that passed: ``node_names[i]`` has ``raw[i]`` and ``normalized[i]``.

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
        """Each node's raw score."""
        return dict(zip(self.node_names, self.raw.tolist(), strict=True))

    def normalized_by_node(self) -> dict[str, int]:
        """Each node's score from 0 to 100."""
        return dict(zip(self.node_names, self.normalized.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """How many nodes got one verdict."""

    verdict: Verdict
    node_count: int


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A node that passed, with its scores."""

    node: str
    raw: int
    normalized: int


@dataclass(frozen=True, kw_only=True)
class EvaluatePodResponse(Answer):
    """The whole judgement of a pod.

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

    @property
    def best(self) -> str | None:
        """The best node; None when none fits."""
        return self.top_nodes[0].node if self.top_nodes else None


@dataclass(frozen=True, kw_only=True)
class BatchEvaluatePodsResponse(Answer):
    """One result for each pod, in order, all at one revision."""

    results: tuple[EvaluatePodResponse | TopospreadClientError, ...]


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """One object's outcome; ``warnings`` say what was odd about it."""

    kind: Kind
    namespace: str
    name: str
    outcome: ObjectOutcome
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _WriteResponse(Answer):
    """What became of each object of a write, in order; the revision contains them all."""

    results: tuple[ObjectResult, ...]

    def counts(self) -> dict[ObjectOutcome, int]:
        """Objects for each outcome."""
        return dict(Counter(result.outcome for result in self.results))


@dataclass(frozen=True, kw_only=True)
class ApplyObjectsResponse(_WriteResponse):
    """What became of each object, in order; the revision contains them all."""


@dataclass(frozen=True, kw_only=True)
class DeleteObjectsResponse(_WriteResponse):
    """What became of each object, in order; the revision is without them all."""


@dataclass(frozen=True, kw_only=True)
class ReplaceObjectsResponse(Answer):
    """How the stored content of one kind changed."""

    created_count: int
    updated_count: int
    unchanged_count: int
    ignored_stale_count: int
    deleted_count: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GetObjectResponse(Answer):
    """An object as it is stored: trimmed to the fields that matter."""

    object: cluster_state_service_pb2.ClusterObject


@dataclass(frozen=True, kw_only=True)
class ListObjectsResponse(Answer):
    """Some objects of one kind; ``next_page_token`` is empty on the last page."""

    objects: tuple[cluster_state_service_pb2.ClusterObject, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change, or a bookmark.

    Attributes:
        ref: of the object; None for a bookmark.
        object: None for a deletion and for a bookmark.
    """

    type: WatchEventType
    ref: ObjectReference | None
    object: cluster_state_service_pb2.ClusterObject | None


@dataclass(frozen=True, kw_only=True)
class WatchObjectsResponse(Answer):
    """The changes up to one revision, in order; a watch may go on from it."""

    events: tuple[WatchEvent, ...]


@dataclass(frozen=True, kw_only=True)
class GetNodeTableResponse(Answer):
    """The node names that answers are aligned with, sorted as bytes."""

    node_table_id: str
    node_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the server follows one cluster.

    Attributes:
        loaded: whether it is in the index of the process that answered.
        lag: log entries that are written but not yet in the snapshot.
        store_unreachable_for: seconds; None while the store answers.
        group_count: distinct (namespace, selector) pairs that are counted.
        corrupt_count: values that could not be read and were left out.
        label_set_count: different label sets of counted pods, over all namespaces.
        identity_changed: the store is another one than before; writes are refused.
        store_identity: of the store as it is now, for accept_store.
        observed: how far the feed had read the API server.
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
    """How the server follows one cluster."""

    cluster: Cluster


@dataclass(frozen=True, kw_only=True)
class ListClustersResponse(Answer):
    """Some clusters, by name; ``next_page_token`` is empty on the last page."""

    clusters: tuple[Cluster, ...]
    next_page_token: str


@dataclass(frozen=True, kw_only=True)
class DeleteClusterResponse(Answer):
    """How many objects went."""

    object_count: int


@dataclass(frozen=True, kw_only=True)
class AcceptStoreResponse(Answer):
    """The revision from which the store is followed again."""


@dataclass(frozen=True, kw_only=True)
class PlacePodResponse(Answer):
    """Where a pod's place is.

    Attributes:
        node: None when no node fits.
        verdict: Success, or why not.
        message: kube-scheduler's words for why no node fits.
        already_bound: the pod runs on that node; nothing is held for it.
        expire_time: until when the place is held; None when none is.
        not_modelled: what of the pod was not looked at.
        conflict_count: how often others' changes made a judgement void before this one held.
        reservation_id: of what is held, for release_reservation; a renewal has another one. Empty
            when nothing is held.
    """

    node: str | None
    verdict: Verdict
    message: str
    already_bound: bool
    expire_time: datetime | None
    not_modelled: tuple[str, ...]
    conflict_count: int
    reservation_id: str


@dataclass(frozen=True, kw_only=True)
class ReserveNodeResponse(Answer):
    """Whether a node is held for a pod; the fields are PlacePodResponse's.

    Attributes:
        node: that is held, or that the pod runs on already, which may be another; None when it was
            refused.
    """

    node: str | None
    verdict: Verdict
    already_bound: bool
    expire_time: datetime | None
    conflict_count: int
    reservation_id: str


@dataclass(frozen=True, kw_only=True)
class ReleaseReservationResponse(Answer):
    """Whether this call ended what was held.

    False, too, when a try of it did whose answer was lost. Either way it is not held any more.
    """

    released: bool


@dataclass(frozen=True, slots=True)
class Reservation:
    """A node held for a pod; `labels` are the pod's, by which it is counted."""

    pod: PodReference
    node: str
    labels: Mapping[str, str]
    expire_time: datetime | None
    reservation_id: str


@dataclass(frozen=True, kw_only=True)
class GetReservationResponse(Answer):
    """What is held for a pod."""

    reservation: Reservation


@dataclass(frozen=True, kw_only=True)
class ListReservationsResponse(Answer):
    """Some reservations; ``next_page_token`` is empty on the last page."""

    reservations: tuple[Reservation, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may feed a cluster, and until when.

    Attributes:
        fencing_token: grows with each new holder; the writes of its holder name it. None where it
            is another's.
        lease_duration: seconds, as they were asked for.
        expire_time: by the store's clock.
        remaining: seconds until then.
    """

    holder_identity: str
    fencing_token: int | None
    lease_duration: float
    expire_time: datetime | None
    remaining: float


@dataclass(frozen=True, kw_only=True)
class AcquireLeaseResponse(Answer):
    """The lease as it is now; with `acquired`, the caller has it."""

    acquired: bool
    lease: Lease


@dataclass(frozen=True, kw_only=True)
class RenewLeaseResponse(Answer):
    """The lease as it is now."""

    lease: Lease


@dataclass(frozen=True, kw_only=True)
class ReleaseLeaseResponse(Answer):
    """The lease is given back, or was another's by then."""


@dataclass(frozen=True, kw_only=True)
class GetLeaseResponse(Answer):
    """Who has the lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """How much a server takes in one request."""

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
    """What the server is.

    Attributes:
        version: its release.
        api_versions: API packages that it serves.
        features: what it does beside, by name.
        start_time: None when the server did not say.
        store: the store's address without secrets; empty for callers who may not read all clusters.
        config_generation: grows by one each time the configuration is read anew.
        config_error: why the newest configuration was refused; empty when it is in force.
        settings_digest: of all settings that answers depend on, the same on servers that have the
            same.
        differing_settings: those that another server of the store has otherwise.
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
    differing_settings: tuple[str, ...]
