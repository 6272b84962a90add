"""What the handlers of health, reflection and unknown methods share: calls that are not framed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from typing_extensions import override

from topospread.errors import (
    InvalidRequest,
    NotOffered,
    PermissionDenied,
    QueueFull,
    TopospreadError,
    Unauthenticated,
)
from topospread.transports.grpc.failures import end, failure_of
from topospread.transports.grpc.needs import address_of, caller_of
from topospread.transports.grpc.packing import Limit, plain
from topospread.transports.grpc.pool import away, overloaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.access.callers import Caller, Role
    from topospread.access.gate import Gate
    from topospread.access.refusals import Refusals
    from topospread.transports.grpc.pool import Pool

LARGEST: Final = Limit(16 << 10)
"""Of a request of health or reflection: names of services and symbols."""

_Request = TypeVar("_Request", bound=Message)


@dataclass(frozen=True, slots=True)
class Door:
    """In front of the calls that are not framed.

    Attributes:
        gate: tells who calls; without one anybody may.
        refusals: told of who was not let in.
    """

    gate: Gate | None
    refusals: Refusals

    def admit(self, label: str, role: Role | None, context: grpc.ServicerContext) -> None:
        """End the call unless its caller is known and has the role somewhere.

        Args:
            label: what the audit log calls it.
            role: None for anybody who is known.
            context: of the call.
        """
        caller: Caller | None = None
        try:
            caller = caller_of(self.gate, context)
            if role is not None:
                caller.clusters(role)
        except (Unauthenticated, PermissionDenied) as refused:
            self.refusals.tell(label, caller, address_of(context), refused)
            end(context, failure_of(refused))


class Unknown(grpc.GenericRpcHandler):
    """Behind all other handlers: says that there is no such method, to who may know that.

    Args:
        door: in front of them.
        pool: the calls are ended on.
    """

    def __init__(self, door: Door, pool: Pool) -> None:
        def refuse(raws: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            del raws
            door.admit("unknown", None, context)
            end(context, failure_of(NotOffered("this server does not have the method")))

        refuse.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        self._handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(
            refuse
        )

    @override
    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """The handler for any method."""
        del handler_call_details
        return self._handler


def first_message(
    kind: type[_Request], raws: Iterator[bytes], context: grpc.ServicerContext
) -> _Request:
    """The next message; the call ends when there is none, or it does not parse."""
    message = next_message(kind, raws, context)
    if message is None:
        end(context, failure_of(InvalidRequest("the call has no request message")))
    return message


def next_message(
    kind: type[_Request], raws: Iterator[bytes], context: grpc.ServicerContext
) -> _Request | None:
    """The next message, None after the last; the call ends when it does not parse."""
    if overloaded():
        end(context, failure_of(QueueFull("too many calls at once: try again later")))
    with away(context.cancel):
        raw = next(raws, None)
    if raw is None:
        return None
    try:
        return kind.FromString(plain(raw, LARGEST))
    except TopospreadError as refused:
        end(context, failure_of(refused))
    except DecodeError:
        name = kind.DESCRIPTOR.full_name
        end(context, failure_of(InvalidRequest(f"the request does not parse as {name}")))
