"""Enums of the API: names and values are those of the messages without their prefix."""

from __future__ import annotations

from enum import StrEnum


class VerdictCode(StrEnum):
    """Status of a pod at one extension point, or on one node."""

    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    UNSCHEDULABLE = "UNSCHEDULABLE"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UNSCHEDULABLE_AND_UNRESOLVABLE"
    SKIP = "SKIP"

    @property
    def label(self) -> str:
        """Upstream's spelling, for example ``UnschedulableAndUnresolvable``."""
        return self.title().replace("_", "")


class Kind(StrEnum):
    """Kinds of objects that a server stores; reservations are only watched."""

    NODE = "NODE"
    POD = "POD"
    SERVICE = "SERVICE"
    REPLICATION_CONTROLLER = "REPLICATION_CONTROLLER"
    REPLICA_SET = "REPLICA_SET"
    STATEFUL_SET = "STATEFUL_SET"
    RESERVATION = "RESERVATION"

    @property
    def label(self) -> str:
        """Kubernetes' spelling, for example ``ReplicaSet``."""
        return self.title().replace("_", "")

    @property
    def field(self) -> str:
        """Name of the field in a ClusterObject."""
        return self.lower()


class ConstraintValidation(StrEnum):
    """How strictly a pod's constraints are validated."""

    IGNORE = "IGNORE"
    STRICT = "STRICT"


class Fit(StrEnum):
    """Filters of kube-scheduler that are applied beside spreading."""

    SPREAD_ONLY = "SPREAD_ONLY"
    NODE = "NODE"
    NODE_AND_RESOURCES = "NODE_AND_RESOURCES"


class Optimality(StrEnum):
    """Whether a smallest number is proven."""

    PROVEN = "PROVEN"
    BEST_FOUND = "BEST_FOUND"


class ObjectOutcome(StrEnum):
    """Outcome of writing one object."""

    CREATED = "CREATED"
    UPDATED = "UPDATED"
    UNCHANGED = "UNCHANGED"
    IGNORED_STALE = "IGNORED_STALE"
    DELETED = "DELETED"
    NOT_FOUND = "NOT_FOUND"


class WatchEventType(StrEnum):
    """Type of an event of a watch."""

    APPLIED = "APPLIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class MinimumReason(StrEnum):
    """Reason for the value of a global minimum."""

    LOWEST = "LOWEST"
    FEW_DOMAINS = "FEW_DOMAINS"
    NO_DOMAINS = "NO_DOMAINS"


class FindingCode(StrEnum):
    """Reason why a constraint may not do what its author meant."""

    SELF_MISMATCH = "SELF_MISMATCH"
    NIL_SELECTOR = "NIL_SELECTOR"
    EMPTY_SELECTOR = "EMPTY_SELECTOR"
    KEY_ON_NO_NODE = "KEY_ON_NO_NODE"
    KEY_ON_SOME_NODES = "KEY_ON_SOME_NODES"
    MIN_DOMAINS_OUT_OF_REACH = "MIN_DOMAINS_OUT_OF_REACH"
    MIN_DOMAINS_IGNORED = "MIN_DOMAINS_IGNORED"
    LABEL_KEY_MISSING = "LABEL_KEY_MISSING"
    DEFAULTS_WITHOUT_ZONE = "DEFAULTS_WITHOUT_ZONE"
    DEFAULTS_WITHOUT_SELECTOR = "DEFAULTS_WITHOUT_SELECTOR"
    NOT_PARSED = "NOT_PARSED"
    ALREADY_BOUND = "ALREADY_BOUND"
    INVALID_CONSTRAINT = "INVALID_CONSTRAINT"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    ROLLOUT_SKEW = "ROLLOUT_SKEW"
    ROLLOUT_DEADLOCK = "ROLLOUT_DEADLOCK"
    TOO_FEW_DOMAINS = "TOO_FEW_DOMAINS"
    UNUSABLE_NODES_COUNTED = "UNUSABLE_NODES_COUNTED"
    SINGLE_DOMAIN = "SINGLE_DOMAIN"
    MAX_SKEW_TOO_LARGE = "MAX_SKEW_TOO_LARGE"
    WIDER_SELECTOR = "WIDER_SELECTOR"
    DEPRECATED_KEY = "DEPRECATED_KEY"
    MISSPELT_KEY = "MISSPELT_KEY"
    DEFAULTS_REPLACED = "DEFAULTS_REPLACED"
    NO_CONSTRAINTS = "NO_CONSTRAINTS"
    VOLUMES_PIN_PODS = "VOLUMES_PIN_PODS"

    @property
    def label(self) -> str:
        """The code as lint and reports print it, for example ``SelfMismatch``."""
        return self.title().replace("_", "")


class DrainMode(StrEnum):
    """State of a drained node: gone, or still there with a taint."""

    GONE = "GONE"
    TAINTED = "TAINTED"


class RankStrategy(StrEnum):
    """Strategy for ranking pods; docs/scale-down.md describes each."""

    EVEN = "EVEN"
    PROPORTIONAL = "PROPORTIONAL"
    REPLICA_SET = "REPLICA_SET"


class RebalanceOutcome(StrEnum):
    """Outcome of planning for constraints that depend on one another."""

    PLANNED = "PLANNED"
    OVER_LIMIT = "OVER_LIMIT"
    IMPOSSIBLE = "IMPOSSIBLE"
    NOT_FOUND = "NOT_FOUND"


class SpreadState(StrEnum):
    """State of a constraint: the worst that holds. The order is from good to bad."""

    SATISFIED = "SATISFIED"
    INEFFECTIVE = "INEFFECTIVE"
    VIOLATED = "VIOLATED"
    BLOCKED = "BLOCKED"

    @property
    def label(self) -> str:
        """Kubernetes' spelling of a constant, for example ``Violated``."""
        return self.title()


class ConstraintOrder(StrEnum):
    """Order of a list of constraints."""

    SEVERITY = "SEVERITY"
    NAME = "NAME"


class ErrorReason(StrEnum):
    """Reason of a failed call; newer servers may have others."""

    INVALID_FIELDS = "INVALID_FIELDS"
    PAGE_TOKEN_MISMATCH = "PAGE_TOKEN_MISMATCH"
    CLUSTER_NOT_FOUND = "CLUSTER_NOT_FOUND"
    POD_NOT_FOUND = "POD_NOT_FOUND"
    OBJECT_NOT_FOUND = "OBJECT_NOT_FOUND"
    CYCLE_EXPIRED = "CYCLE_EXPIRED"
    NODE_TABLE_CHANGED = "NODE_TABLE_CHANGED"
    STORE_IDENTITY_CHANGED = "STORE_IDENTITY_CHANGED"
    FENCED = "FENCED"
    LEASE_LOST = "LEASE_LOST"
    NO_FEED_PROGRESS = "NO_FEED_PROGRESS"
    REVISION_COMPACTED = "REVISION_COMPACTED"
    REVISION_OF_OTHER_HISTORY = "REVISION_OF_OTHER_HISTORY"
    RATE_LIMITED = "RATE_LIMITED"
    QUEUE_FULL = "QUEUE_FULL"
    STREAMS_FULL = "STREAMS_FULL"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    TOO_MANY_CLUSTERS = "TOO_MANY_CLUSTERS"
    STORE_UNREACHABLE = "STORE_UNREACHABLE"
    CLUSTER_LOADING = "CLUSTER_LOADING"
    STATE_TOO_STALE = "STATE_TOO_STALE"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    PLACEMENT_CONFLICT = "PLACEMENT_CONFLICT"
    PLACEMENT_SUPERSEDED = "PLACEMENT_SUPERSEDED"
    REPLACE_INCOMPLETE = "REPLACE_INCOMPLETE"
    ROLE_MISSING = "ROLE_MISSING"
    CREDENTIALS_MISSING = "CREDENTIALS_MISSING"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CALLER_GONE = "CALLER_GONE"
    VALUE_CORRUPT = "VALUE_CORRUPT"
    METHOD_NOT_SERVED = "METHOD_NOT_SERVED"
    INTERNAL = "INTERNAL"
