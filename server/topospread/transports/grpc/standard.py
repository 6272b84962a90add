"""What the handlers of health and reflection share: these are not framed as our own calls are."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from topospread.transports.grpc.pool import away, overloaded

if TYPE_CHECKING:
    from collections.abc import Iterator

_Request = TypeVar("_Request", bound=Message)


def first_message(
    kind: type[_Request], raws: Iterator[bytes], context: grpc.ServicerContext
) -> _Request:
    """The next message; the call ends when there is none, or it does not parse."""
    message = next_message(kind, raws, context)
    if message is None:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request message")
    return message


def next_message(
    kind: type[_Request], raws: Iterator[bytes], context: grpc.ServicerContext
) -> _Request | None:
    """The next message, None after the last; the call ends when it does not parse."""
    if overloaded():
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls at once: try again later")
    with away(context.cancel):
        raw = next(raws, None)
    if raw is None:
        return None
    try:
        return kind.FromString(raw)
    except DecodeError:
        name = kind.DESCRIPTOR.full_name
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the request does not parse as {name}")
