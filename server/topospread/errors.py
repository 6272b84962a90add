"""Every error that topospread raises on purpose.

Each has a ``code``, gRPC's name of its status, and a ``reason``, a value of the API's ErrorReason
without its prefix.

Texts are for the person who calls: they say what to do, and never show a driver's own message or a
secret. The cause is kept in ``__cause__`` for the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RETRY_SOON: Final = 0.1
"""Seconds after which a full queue may have room again."""

RETRY_LATER: Final = 1.0
"""Seconds after which a stream may have ended, a store be back or a cluster be loaded."""

_NOTHING: Final[Mapping[str, str]] = {}

_Other = TypeVar("_Other", bound="InvalidRequest")


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One thing that is wrong with a request.

    Attributes:
        field: path as kubectl prints it, for example ``spec.topologySpreadConstraints[0].maxSkew``;
            empty for the request as a whole.
        description: the API server's text (its ``detail``).
        type: the API server's error type, for example ``Invalid value``.
        bad_value: the offending value, as JSON would show it; only for error texts.
    """

    field: str
    description: str
    type: str = "Invalid value"
    bad_value: object = None

    def below(self, path: str) -> FieldViolation:
        """The same, where what it is about stands at a path of the request."""
        separator = "." if self.field and not self.field.startswith("[") else ""
        return replace(self, field=f"{path}{separator}{self.field}")


class TopospreadError(Exception):
    """Base of all errors here.

    Attributes:
        code: gRPC's name of the status.
        reason: for programs, as callers see it.
        metadata: more for programs, by names in lower camel case.
        retry_after: seconds after which trying again may help; None where it does not.
        http_status: over HTTP, where it is wrong as HTTP; 0: what its code stands for.
    """

    code: ClassVar[str] = "INTERNAL"
    reason: ClassVar[str] = "INTERNAL"
    metadata: Mapping[str, str] = _NOTHING
    retry_after: float | None = None
    http_status: int = 0

    @override
    def __init_subclass__(cls, code: str = "", reason: str = "") -> None:
        cls.code = code or cls.code
        cls.reason = reason or cls.reason

    def details(self) -> Mapping[str, Mapping[str, Any]]:
        """More for programs: the names of google.rpc's messages, and their fields."""
        return {}

    def again(self) -> Self:
        """The same, for another to raise: an error keeps the frames of all who have raised it."""
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__)
        copy.__cause__ = self.__cause__
        return copy


def code_of(error: Exception) -> str:
    """The name of an error's code in gRPC; INTERNAL for one that is not of this module."""
    return error.code if isinstance(error, TopospreadError) else TopospreadError.code


class InvalidRequest(TopospreadError, code="INVALID_ARGUMENT", reason="INVALID_FIELDS"):
    """Bad input. Nothing of the request was applied. Do not retry.

    Args:
        message: for people.
        violations: everything that is wrong; without any it is the request as a whole.
    """

    def __init__(self, message: str, violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations) or (FieldViolation("", message),)

    @classmethod
    def of(cls, violations: Sequence[FieldViolation]) -> Self:
        """Build the error from what is wrong, at least one violation."""
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        what = first.description or first.type
        text = f"{first.field}: {what}{more}" if first.field else f"{what}{more}"
        return cls(text, violations)

    @classmethod
    def at(
        cls, field: str, description: str, type: str = "Invalid value", bad_value: object = None
    ) -> Self:
        """Build the error from one thing that is wrong; see :class:`FieldViolation`."""
        return cls.of([FieldViolation(field, description, type, bad_value)])

    def below(self, path: str) -> list[FieldViolation]:
        """The violations, with paths below that of their object in the request."""
        return [each.below(path) for each in self.violations]

    def under(self, path: str) -> InvalidRequest:
        """The same error, with paths below that of its object in the request."""
        text = str(self) if self.violations[0].field else f"{path}: {self}"
        return self._instead(InvalidRequest(text, self.below(path)))

    def named(self, path: str) -> InvalidRequest:
        """The same error, about what the request only names at a path: texts have its fields."""
        named = [
            replace(
                each,
                field=path,
                description=f"{each.field}: {each.description or each.type}"
                if each.field
                else each.description,
            )
            for each in self.violations
        ]
        return self._instead(InvalidRequest(str(self), named))

    def noting(self, where: str) -> InvalidRequest:
        """The same error, whose texts name the position in a stream of messages."""
        noted = [
            replace(each, description=f"{each.description or each.type} ({where})")
            for each in self.violations
        ]
        return InvalidRequest.of(noted)

    def of_pod(self) -> InvalidPod:
        """The same error, whose paths begin at a pod that stands somewhere in the request."""
        return self._instead(InvalidPod(str(self), self.violations))

    def _instead(self, other: _Other) -> _Other:
        """Another error that takes the place of this one, with its cause."""
        other.__cause__ = self.__cause__
        return other


class InvalidPod(InvalidRequest):
    """Bad input in a pod: paths begin at the pod.

    A caller that has the pod's path in the request adds it with :meth:`under`.
    """


class PageTokenMismatch(InvalidRequest, reason="PAGE_TOKEN_MISMATCH"):
    """A page token of a call with other arguments. Begin with the first page."""


class NotFound(TopospreadError, code="NOT_FOUND", reason="OBJECT_NOT_FOUND"):
    """Something named in the request does not exist.

    Args:
        message: for people.
        kind: of what is missing, for example ``Pod``.
        name: of it, with its namespace where it has one.
        cluster: where it was looked for.
    """

    def __init__(self, message: str, kind: str = "", name: str = "", cluster: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name
        self.cluster = cluster

    @override
    def details(self) -> Mapping[str, Mapping[str, Any]]:
        fields = {"resource_type": self.kind, "resource_name": self.name, "owner": self.cluster}
        return {"ResourceInfo": fields}


class ClusterNotFound(NotFound, reason="CLUSTER_NOT_FOUND"):
    """There is no such cluster; the first write makes one."""

    def __init__(self, cluster: str, text: str = "") -> None:
        text = text or "is not known: apply objects to it first"
        super().__init__(f"cluster {cluster!r} {text}", "Cluster", cluster)

    @classmethod
    def unknown(cls, cluster: str) -> Self:
        """Build the error without the advice to apply objects, which does not help the call."""
        return cls(cluster, "is not known")


class PodNotFound(NotFound, reason="POD_NOT_FOUND"):
    """The pod that a question is about is not in the state."""


class ObjectNotFound(NotFound):
    """There is no such object or reservation."""


class PreconditionFailed(TopospreadError, code="FAILED_PRECONDITION"):
    """The caller's view is out of date.

    Args:
        message: for people.
        named: what programs are told beside the reason: ``names`` has its name in the metadata.
    """

    names: ClassVar[str] = ""

    def __init__(self, message: str, named: str = "") -> None:
        super().__init__(message)
        if named:
            self.metadata = {self.names: named}


class CycleExpired(PreconditionFailed, reason="CYCLE_EXPIRED"):
    """The cycle is unknown here and the request carries no pod to make it again."""


class NodeTableChanged(PreconditionFailed, reason="NODE_TABLE_CHANGED"):
    """Indices refer to a node table that is not the current one; fetch it again."""

    names = "nodeTableId"


class IdentityChanged(PreconditionFailed, reason="STORE_IDENTITY_CHANGED"):
    """The store is not the one the index was built from; accept it or replace all kinds."""


class Fenced(TopospreadError):
    """A sync's fencing token is not that of the lease: another server syncs the cluster now.

    No caller gets it.
    """


class NoFeedProgress(PreconditionFailed, reason="NO_FEED_PROGRESS"):
    """No sync stores how far it has read the objects of a kind."""

    names = "kind"


class RevisionUnavailable(TopospreadError, code="OUT_OF_RANGE", reason="REVISION_OF_OTHER_HISTORY"):
    """A revision cannot be read from. List again."""


class RevisionCompacted(RevisionUnavailable, reason="REVISION_COMPACTED"):
    """The log does not reach back to a revision.

    Args:
        message: for people.
        oldest: number and tag of the oldest revision that it reaches, where that is known.
        revision: the same as callers carry it.
    """

    def __init__(
        self, message: str, oldest: tuple[int, str] | None = None, revision: str = ""
    ) -> None:
        super().__init__(message)
        self.oldest = oldest
        if revision:
            self.metadata = {"oldestRevision": revision}


class RevisionOfOtherHistory(RevisionUnavailable):
    """A revision is of another store, or of the time before it was emptied."""


class LimitExceeded(TopospreadError, code="RESOURCE_EXHAUSTED"):
    """A limit is reached; the text names it."""


class RateExceeded(LimitExceeded, reason="RATE_LIMITED"):
    """The caller calls more often than it may. Retry after ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFull(LimitExceeded, reason="QUEUE_FULL"):
    """A queue is full; the call may be tried again."""

    retry_after = RETRY_SOON

    @classmethod
    def of(cls, pool: str) -> Self:
        """The error of a pool whose queue is full."""
        return cls(f"too many calls at once ({pool}): try again later")


class StreamsFull(LimitExceeded, reason="STREAMS_FULL"):
    """As many streams are open as may be."""

    retry_after = RETRY_LATER

    def __init__(self, message: str = "too many open streams: try again later") -> None:
        super().__init__(message)


class QuotaExceeded(LimitExceeded):
    """More than a limit with a number.

    Args:
        message: for people.
        subject: what is limited: a field, or the setting that says how much.
        limit: the most that there may be.
    """

    def __init__(self, message: str, subject: str, limit: int) -> None:
        super().__init__(message)
        self.subject = subject
        self.limit = limit

    @override
    def details(self) -> Mapping[str, Mapping[str, Any]]:
        violation = {
            "subject": self.subject,
            "description": str(self),
            "quota_value": self.limit,
        }
        return {"QuotaFailure": {"violations": [violation]}}


class TooLarge(QuotaExceeded, reason="REQUEST_TOO_LARGE"):
    """A request, or its answer, is larger than a limit. Ask for less."""


class TooManyClusters(QuotaExceeded, reason="TOO_MANY_CLUSTERS"):
    """The server follows as many clusters as it may: delete one, or raise the limit."""

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(message, "--max-clusters", limit)


class DeadlineExceeded(TopospreadError, code="DEADLINE_EXCEEDED", reason="DEADLINE_EXCEEDED"):
    """The caller's deadline passed."""


class CallerGone(TopospreadError, code="CANCELLED", reason="CALLER_GONE"):
    """The caller cancelled the call or its connection broke."""


class Unauthenticated(TopospreadError, code="UNAUTHENTICATED", reason="CREDENTIALS_MISSING"):
    """The caller has no known credential; the error has no details."""

    def __init__(self) -> None:
        super().__init__("a valid token or client certificate is needed")


class PermissionDenied(TopospreadError, code="PERMISSION_DENIED", reason="ROLE_MISSING"):
    """The caller is known and lacks a role. The text names the role. Do not retry."""

    def __init__(self, role: str, cluster: str = "", where: str = "") -> None:
        where = where or (f" for cluster {cluster!r}" if cluster else "")
        super().__init__(f"the role {role} is missing{where}")
        self.metadata = {"role": role, "cluster": cluster} if cluster else {"role": role}


class MethodNotServed(TopospreadError, code="UNIMPLEMENTED", reason="METHOD_NOT_SERVED"):
    """This version does not have the call."""


class Conflict(TopospreadError, code="ABORTED", reason="PLACEMENT_CONFLICT"):
    """Others changed what the decision rests on. Retry after ``retry_after`` seconds.

    Attributes:
        revision: number of the change that the store found; None where it is not known.
    """

    def __init__(
        self, message: str, retry_after: float | None = 0.05, revision: int | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.revision = revision


class Superseded(Conflict, reason="PLACEMENT_SUPERSEDED"):
    """A call is a repeat, and another one holds a node for its pod by now. Do not retry."""

    def __init__(self, message: str) -> None:
        super().__init__(message, None)


class ReplaceIncomplete(Conflict, reason="REPLACE_INCOMPLETE"):
    """A ReplaceObjects ended without its commit. Nothing was changed. Send the whole list again."""


class Unavailable(TopospreadError, code="UNAVAILABLE", reason="CLUSTER_LOADING"):
    """Cannot answer now. Retry after ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float = RETRY_LATER) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreUnavailable(Unavailable, reason="STORE_UNREACHABLE"):
    """The store is out of reach, read-only or full; nothing was written."""


class ClusterLoading(Unavailable):
    """The cluster's state is not loaded yet, or is being loaded anew."""


class StateTooStale(Unavailable, reason="STATE_TOO_STALE"):
    """The state is older than the caller accepts."""


class ShuttingDown(Unavailable, reason="SHUTTING_DOWN"):
    """This server is about to end: call another one."""

    def __init__(self, message: str = "the server is going away: try another one") -> None:
        super().__init__(message)


class ClusterUnavailable(Unavailable):
    """The API server of a synced cluster is out of reach, or refused a request."""


class CorruptValue(TopospreadError, code="DATA_LOSS", reason="VALUE_CORRUPT"):
    """A stored value cannot be read; it is skipped, counted and logged with its key."""


class ConfigError(TopospreadError):
    """Settings that cannot be used. The text names the setting and what to write instead."""
