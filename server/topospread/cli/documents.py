"""Documents of ``-o json`` and ``-o yaml``: answers under the API's names, in Kubernetes' style.

Every document has ``apiVersion`` and ``kind``. Names are camel case, constants CamelCase,
times RFC 3339 in UTC, and durations seconds with their unit (``2.5s``). Absent values have no key;
a count of 0 and an empty list are there, except where they mean that the value is unknown.
docs/output.schema.json describes all documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from topospread.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator


API_VERSION: Final = "topospread.io/v1"

DURATIONS: Final = frozenset({"store_unreachable_for", "lease_duration", "remaining"})
"""Names of the fields of answers that hold seconds."""

MEANT_EMPTY: Final = frozenset({"value", "domain"})
"""Names of fields in which "" is a value: the values of labels may be empty."""

UNKNOWN_EMPTY: Final = frozenset({"observed"})
"""Names of fields that are empty where their value is unknown."""


def show(kind: str, form: str, **content: object) -> None:
    """Print a document as JSON or YAML; `content` has values that :func:`plain` takes."""
    output.dump(document(kind, **content), form)


def document(kind: str, **content: object) -> dict[str, Any]:
    """Document of a kind; the fields of an ``answer`` in its content become its own."""
    made: dict[str, Any] = {"apiVersion": API_VERSION, "kind": kind}
    for name, value in content.items():
        if name == "answer":
            made |= plain(value)
        elif not _absent(name, value):
            made[camel(name)] = plain(value)
    return made


def plain(value: Any) -> Any:
    """Answer, or a part of one, in JSON's types."""
    if is_dataclass(value) and not isinstance(value, type):
        return dict(_members(value))
    if isinstance(value, Enum):
        return constant(str(value.value))
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, Message):
        return MessageToDict(value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    for each in fields(value):
        content = getattr(value, each.name)
        if each.name == "meta":
            yield from _members(content)
        elif each.name == "traceparent":
            if content:
                yield "traceId", value.trace_id
        elif _absent(each.name, content):
            continue
        elif each.name in DURATIONS:
            yield camel(each.name), seconds(content)
        else:
            yield camel(each.name), plain(content)


def _absent(name: str, value: object) -> bool:
    if name in UNKNOWN_EMPTY:
        return not value
    return value is None or (value == "" and name not in MEANT_EMPTY)


def camel(name: str) -> str:
    """Name in camel case: ``top_nodes`` becomes ``topNodes``."""
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def constant(name: str) -> str:
    """Constant as Kubernetes writes it: ``IGNORED_STALE`` becomes ``IgnoredStale``."""
    return name.title().replace("_", "")


def words(name: str) -> str:
    """Constant for people: ``IGNORED_STALE`` becomes ``ignored stale``."""
    return name.lower().replace("_", " ")


def moment(time: datetime) -> str:
    """Time as RFC 3339 in UTC."""
    text = time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text.replace(".000Z", "Z")


def seconds(duration: float, digits: int = 3) -> str:
    """Duration with its unit: ``2.5s``."""
    return f"{duration:.{digits}f}".rstrip("0").rstrip(".") + "s"
