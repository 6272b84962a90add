"""The calls of story.jsonl, made by callers of one version.

A line is a call: its name, the requests in protobuf's JSON, whether it only `reads`, and how many
answers to `take` of a stream. `@first` and `@last` stand for the revisions of the first and the
last write, `@token` for the lease's and `@identity` for the store's, as of the answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import Message

STORY = Path(__file__).parent / "story.jsonl"
SERVED = {"expander_cluster": "prod"}
"""Settings of a server that answers the story."""

CHANGING = {
    "traceparent",
    "revision",
    "cycle",
    "expire_time",
    "reservation_id",
    "start_time",
    "fencing_token",
    "remaining",
    "store_unreachable_for",
    "version",
    "store",
    "store_identity",
    "settings_digest",
}
"""Fields of answers that no two servers, or no two moments, have in common."""


@dataclass(frozen=True)
class Step:
    """One call of the story."""

    call: str
    requests: Sequence[dict[str, Any]]
    reads: bool = False
    take: int = 1


def steps() -> list[Step]:
    """All of the story."""
    return [Step(**json.loads(line)) for line in STORY.read_text().splitlines()]


def steps_known_to(files: FileDescriptorSet) -> list[Step]:
    """The steps whose calls a version has."""
    calls = {
        f"{file.package}.{service.name}/{method.name}"
        for file in files.file
        for service in file.service
        for method in service.method
    }
    return [step for step in steps() if step.call in calls]


class Api:
    """Messages and calls as some version knows them.

    Args:
        files: its descriptors.
    """

    def __init__(self, files: FileDescriptorSet) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        known = {file.name: file for file in files.file}
        for name in known:
            self._add(name, known)

    def message(self, name: str) -> type[Message]:
        """The class of a message by its full name."""
        return GetMessageClass(self._pool.FindMessageTypeByName(name))

    def method(self, call: str) -> tuple[type[Message], type[Message]]:
        """The classes of a call's requests and answers."""
        found = self._pool.FindMethodByName(call.replace("/", "."))
        return GetMessageClass(found.input_type), GetMessageClass(found.output_type)

    def _add(self, name: str, known: dict[str, Any]) -> None:
        try:
            self._pool.FindFileByName(name)
        except KeyError:
            file = known.get(name)
            if file is None:
                # Of protobuf or gRPC, which have their own way to stay compatible.
                file = FileDescriptorProto()
                descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
            for needed in file.dependency:
                self._add(needed, known)
            self._pool.Add(file)


class StoryCaller:
    """Makes the story's calls as a caller of one version.

    Args:
        channel: to a server.
        api: what the caller knows.
        more: bytes behind each request, as a caller would send that knows more fields.
    """

    def __init__(self, channel: grpc.Channel, api: Api, more: bytes = b"") -> None:
        self._channel: Any = channel
        self._api = api
        self._more = more
        self.revisions: dict[str, str] = {}

    def make_calls(self, story: Iterable[Step]) -> list[list[dict[str, Any]]]:
        """Make the calls; their answers as the caller reads them, without what changes."""
        return [self._make_call(step) for step in story]

    def _make_call(self, step: Step) -> list[dict[str, Any]]:
        sent, answered = self._api.method(step.call)
        raws = [self._raw(sent, request) for request in step.requests]
        call = self._channel.stream_stream(f"/{step.call}")(iter(raws), timeout=PATIENCE)
        try:
            answers = [answered.FromString(next(call)) for _ in range(step.take)]
        except grpc.RpcError as error:
            return [{"failed": error.code().name}]
        call.cancel()
        last: Any = answers[-1]
        if step.call.endswith("/AcquireLease"):
            self.revisions["@token"] = str(last.lease.fencing_token)
        elif step.call.endswith("/GetCluster"):
            self.revisions["@identity"] = last.cluster.store_identity
        elif not step.reads and (revision := _revision(last)):
            self.revisions.setdefault("@first", revision)
            self.revisions["@last"] = revision
        return [lasting(answer) for answer in answers]

    def _raw(self, sent: type[Message], request: dict[str, Any]) -> bytes:
        text = json.dumps(request)
        for name, revision in self.revisions.items():
            text = text.replace(name, revision)
        message = ParseDict(json.loads(text), sent(), ignore_unknown_fields=True)
        return message.SerializeToString() + self._more


def _revision(answer: Any) -> str:
    meta = getattr(answer, "meta", None)
    return "" if meta is None else str(meta.revision)


def lasting(message: Message) -> dict[str, Any]:
    """All fields that a version knows of a message but those that change."""
    fields = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    found: dict[str, Any] = without_changing(fields)
    return found


def _is_reservation(value: dict[str, Any]) -> bool:
    """Whether this refers to a reservation, whose id stands for its version."""
    return value.get("kind") == "KIND_RESERVATION"


def without_changing(value: Any) -> Any:
    """An answer without the fields of CHANGING, at any depth."""
    if isinstance(value, dict):
        changing = {*CHANGING, "resource_version"} if _is_reservation(value) else CHANGING
        return {key: without_changing(each) for key, each in value.items() if key not in changing}
    return [without_changing(each) for each in value] if isinstance(value, list) else value
