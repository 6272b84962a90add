"""One call of every method of the API or more, in an order in which all succeed.

A line of all_calls.jsonl is a call: its name, the requests in protobuf's JSON, whether it only
`reads`, and how many answers to `take` of a stream. `@first` and `@last` stand for the revisions of
the first and the last write, as of the answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass

from tests.waiting import PATIENCE
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    decision_service_pb2,
    inspector_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    server_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

API = (
    decision_service_pb2,
    inspector_service_pb2,
    cluster_state_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    server_service_pb2,
)
"""The files of all services."""

SERVED = {"expander_cluster": "prod"}
"""Settings of a server that answers all of them."""

CHANGING = {
    "traceparent",
    "revision",
    "cycle",
    "expire_time",
    "reservation_id",
    "start_time",
    "store_unreachable_for",
    "version",
    "store",
    "store_identity",
    "settings_digest",
}
"""Fields of answers that no two servers, or no two moments, have in common."""


@dataclass(frozen=True)
class Call:
    """One call."""

    call: str
    requests: Sequence[dict[str, Any]]
    reads: bool = False
    take: int = 1


def all_calls() -> list[Call]:
    """All calls."""
    lines = Path(__file__).with_suffix(".jsonl").read_text().splitlines()
    return [Call(**json.loads(line)) for line in lines]


def methods_of_the_api() -> list[str]:
    """The names of all methods of topospread.v1, by service."""
    return [
        f"{name}/{method.name}"
        for file in API
        for name, service in file.DESCRIPTOR.services_by_name.items()
        for method in service.methods
    ]


def messages(call: str) -> tuple[type[Message], type[Message]]:
    """The classes of a call's requests and answers."""
    import_module("topospread.app.server")  # its process knows all of them
    found = descriptor_pool.Default().FindMethodByName(call.replace("/", "."))
    return GetMessageClass(found.input_type), GetMessageClass(found.output_type)


def make_calls(channel: grpc.Channel, more: bytes = b"") -> list[list[dict[str, Any]]]:
    """Make all calls; their answers, without what changes from one server to another.

    Args:
        channel: to a server with an empty store.
        more: bytes behind each request, as a caller would send that knows more fields.
    """
    values: dict[str, str] = {}
    return [_made(channel, each, values, more) for each in all_calls()]


def _made(channel: Any, asked: Call, values: dict[str, str], more: bytes) -> list[dict[str, Any]]:
    sent, answered = messages(asked.call)
    raws = []
    for request in asked.requests:
        text = json.dumps(request)
        for name, value in values.items():
            text = text.replace(name, value)
        raws.append(ParseDict(json.loads(text), sent()).SerializeToString() + more)
    call = channel.stream_stream(f"/{asked.call}")(iter(raws), timeout=PATIENCE)
    try:
        answers = [answered.FromString(next(call)) for _ in range(asked.take)]
    except grpc.RpcError as error:
        return [{"failed": error.code().name}]
    call.cancel()
    last: Any = answers[-1]
    if not asked.reads and (revision := str(getattr(getattr(last, "meta", None), "revision", ""))):
        values.setdefault("@first", revision)
        values["@last"] = revision
    return [_lasting(answer) for answer in answers]


def _lasting(message: Message) -> dict[str, Any]:
    fields = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    found: dict[str, Any] = _without_changing(fields)
    return found


def _without_changing(value: Any) -> Any:
    """An answer without the fields of CHANGING, at any depth."""
    if isinstance(value, dict):
        # The id of a reservation stands for its version.
        reservation = value.get("kind") == "KIND_RESERVATION"
        changing = {*CHANGING, "resource_version"} if reservation else CHANGING
        return {key: _without_changing(each) for key, each in value.items() if key not in changing}
    return [_without_changing(each) for each in value] if isinstance(value, list) else value
