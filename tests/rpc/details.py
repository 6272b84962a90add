"""Details of a failed call: its reason, metadata and violations."""

from __future__ import annotations

from typing import Any

from google.rpc import error_details_pb2, status_pb2

KEY = "grpc-status-details-bin"


def details(error: Any) -> status_pb2.Status:
    """The status with its details."""
    return status_pb2.Status.FromString(dict(error.trailing_metadata()).get(KEY, b""))


def reason(error: Any) -> str:
    """Of the ErrorInfo; empty when there is none."""
    return _info(error).reason


def metadata(error: Any) -> dict[str, str]:
    """Of the ErrorInfo."""
    return dict(_info(error).metadata)


def _info(error: Any) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    for each in details(error).details:
        if each.Unpack(info):
            break
    return info


def violations(error: Any) -> list[str]:
    """The paths of the BadRequest."""
    found = error_details_pb2.BadRequest()
    for each in details(error).details:
        if each.Unpack(found):
            return [violation.field for violation in found.field_violations]
    return []
