"""What the server answers, as frozen values. Long columns stay arrays; nothing here is a message.

Every answer has the ``revision`` it was computed at, ``stale_for`` in seconds while the server
has lost its store, and the ``traceparent`` of the call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from topospread_client.tracing import trace_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from topospread_client.arrays import IntArray
    from topospread_client.errors import TopospreadClientError
    from topospread_proto.v1 import cluster_state_pb2


class Code(IntEnum):
    """The scheduler framework's status codes."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def label(self) -> str:
        """Upstream's spelling, for example ``UnschedulableAndUnresolvable``."""
        return "".join("And" if word == "AND" else word.title() for word in self.name.split("_"))


class Kind(IntEnum):
    """The kinds of object that a server keeps."""

    NODE = 1
    POD = 2
    SERVICE = 3
    REPLICATION_CONTROLLER = 4
    REPLICA_SET = 5
    STATEFUL_SET = 6

    @property
    def label(self) -> str:
        """Kubernetes' spelling, for example ``ReplicaSet``."""
        return self.name.title().replace("_", "")

    @property
    def field(self) -> str:
        """Its field in an Object message."""
        return self.name.lower()


class Outcome(IntEnum):
    """What became of one object of a write."""

    UNSPECIFIED = 0
    CREATED = 1
    UPDATED = 2
    UNCHANGED = 3
    IGNORED_STALE = 4
    DELETED = 5
    NOT_FOUND = 6

    @property
    def label(self) -> str:
        """As it is printed, for example ``ignored stale``."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Status:
    """The answer of one extension point, or about one node, with upstream's exact reasons."""

    code: Code
    reasons: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether the node, or the pod, passes."""
        return self.code is Code.SUCCESS


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What every answer has.

    Attributes:
        revision: opaque token of the state behind the answer.
        stale_for: seconds for which the server's store has been out of reach; None while it is not.
        traceparent: W3C trace context of the call; None when the server did not send one.
    """

    revision: str
    stale_for: float | None = None
    traceparent: str | None = None

    @property
    def trace_id(self) -> str | None:
        """The identity under which the call's trace is looked up."""
        return trace_id(self.traceparent)


@dataclass(frozen=True, slots=True)
class ConstraintState:
    """What PreFilter knows of one hard constraint.

    Attributes:
        topology_key: the node label whose values are the domains.
        max_skew: the constraint's.
        min_domains: the constraint's, 1 when it has none.
        self_match: whether the pod adds itself to the count.
        eligible_domains: domains with at least one eligible node.
        global_minimum: smallest count of an eligible domain; 0 with fewer than `min_domains`.
        pods: matching pods by domain; empty unless counts were asked for.
    """

    topology_key: str
    max_skew: int
    min_domains: int
    self_match: bool
    eligible_domains: int
    global_minimum: int
    pods: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class PreFiltered(Answer):
    """Success, Skip (no hard constraints) or Error, with the counts behind it.

    Attributes:
        cycle: lets filter and score answer from the same frozen counts.
        constraints: one for each hard constraint.
        extensions: one status for each of ``add_pods``, then ``remove_pods``.
    """

    status: Status
    cycle: str
    constraints: tuple[ConstraintState, ...]
    extensions: tuple[Status, ...]


@dataclass(frozen=True, kw_only=True)
class Verdicts(Answer):
    """One verdict for each node: node ``names[i]`` has ``table[positions[i]]``.

    Attributes:
        status: PreFilter's; Skip means that every node passes.
        cycle: the cycle that answered.
        cycle_remade: the cycle was unknown to that process and was made again at this revision.
        node_table: identity of the server's node table.
    """

    status: Status
    cycle: str
    cycle_remade: bool
    node_table: str
    names: Sequence[str]
    positions: IntArray
    table: tuple[Status, ...]

    def __len__(self) -> int:
        return len(self.positions)

    def by_node(self) -> dict[str, Status]:
        """Each node's verdict."""
        table = self.table
        return {
            name: table[at] for name, at in zip(self.names, self.positions.tolist(), strict=True)
        }

    def feasible(self) -> list[str]:
        """The nodes that pass, in the order of `names`."""
        passing = {at for at, status in enumerate(self.table) if status.success}
        positions = self.positions.tolist()
        return [name for name, at in zip(self.names, positions, strict=True) if at in passing]

    def counts(self) -> dict[Status, int]:
        """Nodes for each distinct verdict."""
        counted = Counter(self.positions.tolist())
        return {self.table[at]: nodes for at, nodes in counted.most_common()}


@dataclass(frozen=True, kw_only=True)
class Scores(Answer):
    """Scores of nodes that passed the filter: ``names[i]`` has ``raw[i]`` and ``normalized[i]``.

    Attributes:
        status: PreScore's; Skip (no soft constraints) and Error come without scores.
        raw: the plugin's score, the lower the better.
        normalized: 0 to 100, the higher the better.
    """

    status: Status
    cycle: str
    cycle_remade: bool
    node_table: str
    names: Sequence[str]
    raw: IntArray
    normalized: IntArray

    def __len__(self) -> int:
        return len(self.raw)

    def raw_by_node(self) -> dict[str, int]:
        """Each node's raw score."""
        return dict(zip(self.names, self.raw.tolist(), strict=True))

    def normalized_by_node(self) -> dict[str, int]:
        """Each node's score from 0 to 100."""
        return dict(zip(self.names, self.normalized.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """How many nodes got one verdict."""

    status: Status
    nodes: int


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A node that passed, with its scores."""

    node: str
    raw: int
    normalized: int


@dataclass(frozen=True, kw_only=True)
class Evaluation(Answer):
    """The whole judgement of a pod.

    Attributes:
        nodes: nodes that were judged.
        feasible: nodes that passed.
        verdicts: nodes for each verdict, most frequent first.
        top: the best nodes, best first.
        message: what kube-scheduler writes on a pod that fits nowhere; empty when one fits.
        reason: ``Unschedulable`` or ``SchedulerError``; empty when a node fits.
    """

    pre_filter: Status
    pre_score: Status
    nodes: int
    feasible: int
    verdicts: tuple[VerdictCount, ...]
    top: tuple[NodeScore, ...]
    message: str
    reason: str

    @property
    def best(self) -> str | None:
        """The best node; None when none fits."""
        return self.top[0].node if self.top else None


@dataclass(frozen=True, kw_only=True)
class BatchEvaluation(Answer):
    """One result for each pod, in order, all at one revision."""

    results: tuple[Evaluation | TopospreadClientError, ...]


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """One object's outcome; ``warnings`` say what was odd about it."""

    kind: Kind
    namespace: str
    name: str
    outcome: Outcome
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Written(Answer):
    """What became of each object of a write, in order; ``revision`` contains them all."""

    results: tuple[ObjectResult, ...]

    def counts(self) -> dict[Outcome, int]:
        """Objects for each outcome."""
        return dict(Counter(result.outcome for result in self.results))


@dataclass(frozen=True, kw_only=True)
class Replaced(Answer):
    """How the stored content of one kind changed."""

    created: int
    updated: int
    unchanged: int
    ignored_stale: int
    deleted: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Stored(Answer):
    """An object as it is stored: trimmed to the fields that matter."""

    object: cluster_state_pb2.Object


@dataclass(frozen=True, kw_only=True)
class Page(Answer):
    """Some objects of one kind; ``next_page_token`` is empty on the last page."""

    objects: Sequence[cluster_state_pb2.Object]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Event:
    """One change; ``object`` is None for a deletion."""

    kind: Kind
    namespace: str
    name: str
    object: cluster_state_pb2.Object | None


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes up to one revision, in order."""

    revision: str
    events: tuple[Event, ...]


@dataclass(frozen=True, kw_only=True)
class NodeTable(Answer):
    """The node names that answers are aligned with, sorted as bytes; ``id`` is their hash."""

    id: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """How the server follows one cluster.

    Attributes:
        loaded: whether it is in the index of the process that answered.
        lag: log entries that are written but not yet in the snapshot.
        groups: distinct (namespace, selector) pairs that are counted.
        corrupt: values that could not be read and were left out.
        identity_changed: the store is another one than before; writes are refused.
        label_sets: different label sets of counted pods, over all namespaces.
    """

    name: str
    loaded: bool
    revision: str
    lag: int
    stale_for: float | None
    nodes: int
    pods: int
    workloads: int
    reservations: int
    groups: int
    corrupt: int
    identity_changed: bool
    label_sets: int = 0


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The server and its clusters.

    Attributes:
        store: the store's address without secrets.
        started_at: None when the server did not say.
        config_generation: grows by one each time the configuration is read anew.
        config_error: why the newest configuration was refused; empty when it is in force.
        settings_digest: of all settings that answers depend on, the same on servers that have the
            same.
        differing_settings: those that another server of the store has otherwise.
    """

    clusters: tuple[ClusterStatus, ...]
    server_version: str
    store: str
    started_at: datetime | None
    config_generation: int
    config_error: str
    settings_digest: str = ""
    differing_settings: tuple[str, ...] = ()
    traceparent: str | None = field(default=None, compare=False)

    @property
    def trace_id(self) -> str | None:
        """The identity under which the call's trace is looked up."""
        return trace_id(self.traceparent)
