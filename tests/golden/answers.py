"""Answers in a form that two servers can be compared by: without meta, times and ids."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.json_format import MessageToDict
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    import grpc
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

HIDDEN: Final = "…"
"""Stands for an id or a time that was set."""

DROPPED: Final = frozenset(
    {"meta", "lag", "store_unreachable_for", "conflict_count", "cycle_remade"} | {"group_count"}
)
"""Fields that depend on the moment."""

IDS: Final = frozenset(
    {"cycle", "reservation_id", "request_id", "store_identity", "revision"}
    | {"next_page_token", "settings_digest", "version", "traceparent"}
    | {"expire_time", "start_time"}
)
"""Fields whose value is one server's own; that they are set is compared."""

_OWN: Final = "topospread.v1."
"""Only messages of the API have such fields: a label of the same name is compared."""

_STATUS: Final = "google.rpc.Status"
_REFERENCE: Final = "topospread.v1.ObjectReference"
_RESERVATION: Final = 7
_ALSO: Final = frozenset({_STATUS, _REFERENCE})
"""Messages of which a part is hidden."""

_ID_KEYS: Final = frozenset({"traceId", "oldestRevision"})
_IDS_IN_TEXT: Final = re.compile(r"\b[0-9a-f]{16,}\b|(?<![\w-])[\w-]{60,}")

_plans: dict[Any, list[tuple[FieldDescriptor, bool]]] = {}


def plain(message: Message) -> dict[str, Any]:
    """Return a message as JSON has it, without what differs from server to server."""
    hide(message)
    found: dict[str, Any] = MessageToDict(message)
    return found


def failure(error: grpc.RpcError) -> dict[str, Any]:
    """Return the code, message and details of a refused call."""
    call: Any = error
    trailers = dict(call.trailing_metadata() or ())
    if (packed := trailers.get("grpc-status-details-bin")) is None:
        return {"code": call.code().name, "message": hide_text(call.details() or "")}
    return {"code": call.code().name, **status_form(status_pb2.Status.FromString(packed))}


def status_form(status: status_pb2.Status) -> dict[str, Any]:
    """Return the message and details of a refused call."""
    hide(status)
    found: dict[str, Any] = MessageToDict(status)
    details = [{**each} for each in found.get("details", ())]
    for each in details:
        each["@type"] = each["@type"].rpartition(".")[2]
    return {"message": status.message, "details": sorted(details, key=lambda each: each["@type"])}


def hide(message: Any) -> None:
    """Clear meta and times of a message and all below it; ids become one sign."""
    descriptor: Any = message.DESCRIPTOR
    if descriptor.full_name == _STATUS:
        _hide_in_status(message)
        return
    if descriptor.full_name == _REFERENCE and message.kind == _RESERVATION:
        # Its version is its id.
        message.resource_version = HIDDEN
    for field, below in _plan(descriptor):
        value: Any = getattr(message, field.name)
        if below:
            if not field.is_repeated:
                if message.HasField(field.name):
                    hide(value)
            elif _value_type(field) is not field.message_type:
                for each in value.values():
                    hide(each)
            else:
                for each in value:
                    hide(each)
        elif field.name in DROPPED:
            message.ClearField(field.name)
        elif field.message_type is not None:
            if message.HasField(field.name):
                value.Clear()
                value.SetInParent()
        elif value:
            setattr(message, field.name, HIDDEN if isinstance(value, str) else 1)


def hide_text(text: str) -> str:
    """Return a message for people without the ids in it."""
    return _IDS_IN_TEXT.sub(HIDDEN, text)


def _hide_in_status(status: Any) -> None:
    status.message = hide_text(status.message)
    for packed in status.details:
        name = packed.type_url.rpartition(".")[2]
        detail: Any = getattr(error_details_pb2, name)()
        packed.Unpack(detail)
        if name == "ErrorInfo":
            for key in _ID_KEYS & detail.metadata.keys():
                detail.metadata[key] = HIDDEN
        elif name == "RetryInfo":
            detail.Clear()
        elif name == "BadRequest":
            for violation in detail.field_violations:
                violation.description = hide_text(violation.description)
        packed.Pack(detail)


def _plan(descriptor: Any) -> list[tuple[FieldDescriptor, bool]]:
    """Return the fields to hide, and (true) those below which there are some."""
    found = _plans.get(descriptor)
    if found is None:
        # Empty while it is made: a message that contains itself ends here.
        found = _plans.setdefault(descriptor, [])
        own = descriptor.full_name.startswith(_OWN)
        for field in descriptor.fields:
            if own and (field.name in DROPPED or field.name in IDS):
                found.append((field, False))
            elif (below := _value_type(field)) and (below.full_name in _ALSO or _plan(below)):
                found.append((field, True))
    return found


def _value_type(field: Any) -> Any:
    """Return the message of a field, of its items, or of its values; None of a number or text."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return message.fields_by_name["value"].message_type
    return message
