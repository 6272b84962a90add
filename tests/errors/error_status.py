"""The status and details of an error, and those that each reason must have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.json_format import MessageToJson
from google.rpc import error_details_pb2, status_pb2

from topospread_proto.v1.error_reason_pb2 import ErrorReason

if TYPE_CHECKING:
    from google.protobuf.message import Message

CODE = grpc.StatusCode
RETRY, BAD, QUOTA, RESOURCE = "RetryInfo", "BadRequest", "QuotaFailure", "ResourceInfo"


@dataclass(frozen=True)
class Expected:
    """With what a reason is told.

    Attributes:
        details: beside the ErrorInfo.
        metadata: keys that it may have.
    """

    code: grpc.StatusCode
    details: frozenset[str] = frozenset()
    metadata: frozenset[str] = frozenset()


def _expected(code: grpc.StatusCode, *details: str, metadata: tuple[str, ...] = ()) -> Expected:
    return Expected(code, frozenset(details), frozenset(metadata))


REASONS = {
    "INVALID_FIELDS": _expected(CODE.INVALID_ARGUMENT, BAD),
    "PAGE_TOKEN_MISMATCH": _expected(CODE.INVALID_ARGUMENT, BAD),
    "CLUSTER_NOT_FOUND": _expected(CODE.NOT_FOUND, RESOURCE),
    "POD_NOT_FOUND": _expected(CODE.NOT_FOUND, RESOURCE),
    "OBJECT_NOT_FOUND": _expected(CODE.NOT_FOUND, RESOURCE),
    "CYCLE_EXPIRED": _expected(CODE.FAILED_PRECONDITION),
    "NODE_TABLE_CHANGED": _expected(CODE.FAILED_PRECONDITION, metadata=("nodeTableId",)),
    "STORE_IDENTITY_CHANGED": _expected(CODE.FAILED_PRECONDITION),
    "NO_FEED_PROGRESS": _expected(CODE.FAILED_PRECONDITION, metadata=("kind",)),
    "REVISION_COMPACTED": _expected(CODE.OUT_OF_RANGE, metadata=("oldestRevision",)),
    "REVISION_OF_OTHER_HISTORY": _expected(CODE.OUT_OF_RANGE),
    "RATE_LIMITED": _expected(CODE.RESOURCE_EXHAUSTED, RETRY),
    "QUEUE_FULL": _expected(CODE.RESOURCE_EXHAUSTED, RETRY),
    "STREAMS_FULL": _expected(CODE.RESOURCE_EXHAUSTED, RETRY),
    "REQUEST_TOO_LARGE": _expected(CODE.RESOURCE_EXHAUSTED, QUOTA),
    "TOO_MANY_CLUSTERS": _expected(CODE.RESOURCE_EXHAUSTED, QUOTA),
    "STORE_UNREACHABLE": _expected(CODE.UNAVAILABLE, RETRY),
    "CLUSTER_LOADING": _expected(CODE.UNAVAILABLE, RETRY),
    "STATE_TOO_STALE": _expected(CODE.UNAVAILABLE, RETRY),
    "SHUTTING_DOWN": _expected(CODE.UNAVAILABLE, RETRY),
    "PLACEMENT_CONFLICT": _expected(CODE.ABORTED, RETRY),
    "PLACEMENT_SUPERSEDED": _expected(CODE.ABORTED),
    "REPLACE_INCOMPLETE": _expected(CODE.ABORTED, RETRY),
    "ROLE_MISSING": _expected(CODE.PERMISSION_DENIED, metadata=("role", "cluster")),
    "CREDENTIALS_MISSING": _expected(CODE.UNAUTHENTICATED),
    "DEADLINE_EXCEEDED": _expected(CODE.DEADLINE_EXCEEDED),
    "CALLER_GONE": _expected(CODE.CANCELLED),
    "VALUE_CORRUPT": _expected(CODE.DATA_LOSS),
    "METHOD_NOT_SERVED": _expected(CODE.UNIMPLEMENTED),
    "INTERNAL": _expected(CODE.INTERNAL, metadata=("traceId",)),
}


class ErrorStatus:
    """A google.rpc.Status, whichever way it came.

    Attributes:
        details: by the name of their message.
        path: of the method that was called, where that is known.
    """

    path = ""

    def __init__(self, status: status_pb2.Status) -> None:
        self.status = status
        self.details: dict[str, Any] = {}
        for packed in status.details:
            name = packed.type_url.removeprefix("type.googleapis.com/google.rpc.")
            detail: Message = getattr(error_details_pb2, name)()
            assert packed.Unpack(detail)
            self.details[name] = detail

    @property
    def reason(self) -> str:
        reason: str = self.details["ErrorInfo"].reason
        return reason

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.details["ErrorInfo"].metadata)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Path and reason of what is wrong."""
        return [(v.field, v.reason) for v in self.details[BAD].field_violations]

    @property
    def paths(self) -> list[str]:
        """Of what is wrong; none for what is no mistake in the request."""
        return [field for field, _ in self.fields] if BAD in self.details else []

    def check(self, reason: str) -> None:
        """See that it is told as this reason must be."""
        assert self.reason == reason, f"{self.path}: {self.status}"
        assert self.details["ErrorInfo"].domain == "topospread.io"
        assert ErrorReason.Value(f"ERROR_REASON_{reason}")
        expected = REASONS[reason]
        assert self.status.code == expected.code.value[0]
        assert self.status.message
        assert self.details.keys() == {"ErrorInfo"} | expected.details
        assert self.metadata.keys() <= expected.metadata
        assert all(self.metadata.values())
        if RETRY in self.details:
            delay = self.details[RETRY].retry_delay
            assert delay.seconds + delay.nanos > 0
        if QUOTA in self.details:
            assert all(v.subject and v.quota_value for v in self.details[QUOTA].violations)
        if RESOURCE in self.details:
            assert self.details[RESOURCE].resource_type
        if BAD in self.details:
            assert all(violation.description for violation in self.details[BAD].field_violations)
            known = [r for _, r in self.fields if r]
            assert all(r.startswith("FIELD_VALUE_") for r in known)
        assert reason in MessageToJson(self.status)


def error_status(error: grpc.RpcError) -> ErrorStatus:
    """What a call's error tells; its details agree with the status that gRPC shows."""
    call: Any = error
    trailers = dict(call.trailing_metadata())
    assert "grpc-status-details-bin" in trailers, f"{call.code()} {call.details()}"
    found = ErrorStatus(status_pb2.Status.FromString(trailers["grpc-status-details-bin"]))
    assert found.status.code == call.code().value[0]
    assert found.status.message == call.details()
    return found
