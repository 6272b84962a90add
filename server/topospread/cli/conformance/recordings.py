"""Files of recorded cases: one JSON object a line, or one large object; gzip or plain.

What a record is shows in its members, so files of all kinds may be given together.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import orjson

from topospread.cli.complaints import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GZIP: Final = b"\x1f\x8b"


class Shape(Enum):
    """What is recorded, by the members that tell."""

    CLUSTER = ("cluster", "incoming")
    DECISION = ("cluster", "pod", "expect")
    VALIDATION = ("pod", "expect")
    ARGS = ("args", "expect")
    FIT_ERROR = ("case", "reason", "message")
    FIT_COUNTS = ("statuses", "message")


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded object.

    Attributes:
        shape: what it is.
        content: the object.
        source: where it stood, for example ``decisions.jsonl.gz:17``.
    """

    shape: Shape
    content: dict[str, Any]
    source: str


def records(path: Path) -> Iterator[Record]:
    """All records of a file.

    Raises:
        BadInput: the file cannot be read, or something in it is no recorded case.
    """
    content = _content(path)
    try:
        yield _record(orjson.loads(content), str(path))
        return
    except orjson.JSONDecodeError:
        pass  # several objects, one a line
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        source = f"{path}:{number}"
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise BadInput(f"{path}:{number}: not JSON: {error.msg}") from error
        yield _record(value, source)


def _record(value: Any, source: str) -> Record:
    if isinstance(value, dict):
        for shape in Shape:
            if all(member in value for member in shape.value):
                return Record(shape, value, source)
    kinds = "; ".join(f"{shape.name.lower()}: {', '.join(shape.value)}" for shape in Shape)
    raise BadInput(f"{source}: no recorded case: a case has one of these sets of members: {kinds}")


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file: check the path") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error
