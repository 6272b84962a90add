"""The file of a backup: the same for every kind of store, so that it moves clusters between them.

gzip of lines of JSON::

    {"kind": "TopospreadBackup", "formatVersion": 1, "valueFormat": 1, "time": …, "version": …}
    {"cluster": "prod", "identity": …, "number": 12, "tag": …, "objectCount": 2}
    ["1//node-a", "…"]           a written name and the stored value in base64, see store/values.py
    ["2/shop/web-0", "…"]
    {"clusterCount": 1, "objectCount": 2, "sha256": …}    of all bytes before this line

The last line is what makes the file whole: one that was cut lacks it, one that was altered has
another digest.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from topospread.errors import ConfigError
from topospread.store import values
from topospread.store.model import MAX_OBJECT_BYTES, Revision, StoredObject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

KIND: Final = "TopospreadBackup"
FORMAT_VERSION: Final = 1

MAX_LINE: Final = 2 * MAX_OBJECT_BYTES
"""Bytes of a line: the largest object in base64, with its names and header."""

_NOT_AS_WRITTEN: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading a line raises that is JSON of another form, or none."""


@dataclass(frozen=True, slots=True)
class SavedCluster:
    """What a backup says of a cluster before its objects.

    Attributes:
        name: of the cluster.
        identity: of the history that was saved.
        revision: that all objects are of.
        object_count: objects that follow.
    """

    name: str
    identity: str
    revision: Revision
    object_count: int


class BackupWriter:
    """Writes a backup; without :meth:`finish` nobody will read it. Close it in any case.

    Args:
        file: opened for writing bytes.
        time: when the backup is made, RFC 3339.
        version: of the program that makes it.
    """

    def __init__(self, file: BinaryIO, *, time: str, version: str) -> None:
        self._zip = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0)
        self._digest = hashlib.sha256()
        self._clusters = self._objects = 0
        head = {"kind": KIND, "formatVersion": FORMAT_VERSION, "valueFormat": values.FORMAT}
        self._line({**head, "time": time, "version": version})

    def cluster(self, saved: SavedCluster, objects: Collection[StoredObject]) -> None:
        """Write a cluster; as many objects as were announced."""
        assert len(objects) == saved.object_count
        self._line(
            {
                "cluster": saved.name,
                "identity": saved.identity,
                "number": saved.revision.number,
                "tag": saved.revision.tag,
                "objectCount": saved.object_count,
            }
        )
        for each in objects:
            value = base64.b64encode(values.pack(each)).decode()
            self._line([values.name_of(each.key), value])
        self._clusters += 1
        self._objects += len(objects)

    def finish(self) -> None:
        """Write the end."""
        counts = {"clusterCount": self._clusters, "objectCount": self._objects}
        self._line({**counts, "sha256": self._digest.hexdigest()})

    def close(self) -> None:
        """Write no more; the file stays open."""
        self._zip.close()

    def _line(self, content: object) -> None:
        line = json.dumps(content, separators=(",", ":")).encode() + b"\n"
        self._digest.update(line)
        self._zip.write(line)


def read_backup(file: BinaryIO, name: str) -> Iterator[SavedCluster | StoredObject]:
    """Each cluster of a backup, and its objects behind it.

    What was yielded is sure to be what was written only when the end was reached: read it once in
    vain before anything follows from it.

    Args:
        file: opened for reading bytes.
        name: of the file, for error texts.

    Raises:
        ConfigError: it is no backup, of another format, cut or altered.
    """
    try:
        yield from _read(gzip.GzipFile(fileobj=file), name)
    except EOFError as cause:
        raise _cut(name) from cause
    except (gzip.BadGzipFile, zlib.error) as cause:
        raise ConfigError(f"{name}: this is no backup of topospread, or a damaged one") from cause
    except _NOT_AS_WRITTEN as cause:
        raise _altered(name) from cause


def _read(lines: gzip.GzipFile, name: str) -> Iterator[SavedCluster | StoredObject]:
    digest = hashlib.sha256()
    first = lines.readline(MAX_LINE)
    _check_header(first, name)
    digest.update(first)
    clusters = objects = awaited = 0
    while True:
        line = lines.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise _cut(name)
        content = json.loads(line)
        if isinstance(content, list):
            awaited -= 1
            objects += 1
            yield _object(content)
        elif awaited:
            raise _altered(name)
        elif "cluster" in content:
            saved = _cluster(content)
            awaited = saved.object_count
            clusters += 1
            yield saved
        else:
            break
        digest.update(line)
    found = (content["clusterCount"], content["objectCount"], content["sha256"])
    if found != (clusters, objects, digest.hexdigest()) or lines.read(1):
        raise _altered(name)


def _check_header(line: bytes, name: str) -> None:
    try:
        header: Any = json.loads(line)
        kind = header["kind"]
    except _NOT_AS_WRITTEN as cause:
        raise ConfigError(f"{name}: this is no backup of topospread") from cause
    if kind != KIND:
        raise ConfigError(f"{name}: this is no backup of topospread")
    found = (header.get("formatVersion"), header.get("valueFormat"))
    if found != (FORMAT_VERSION, values.FORMAT):
        raise ConfigError(
            f"{name}: the backup has format {found[0]!r:.20} with values of format "
            f"{found[1]!r:.20}, this version reads {FORMAT_VERSION} with {values.FORMAT}: use "
            f"version {header.get('version')!r:.40} of topospread, which wrote it"
        )


def _cluster(content: dict[str, Any]) -> SavedCluster:
    name, identity, tag = content["cluster"], content["identity"], content["tag"]
    number, count = content["number"], content["objectCount"]
    if not all(isinstance(each, str) for each in (name, identity, tag)):
        raise TypeError("texts are expected")
    return SavedCluster(name, identity, Revision(int(number), tag), int(count))


def _object(content: list[Any]) -> StoredObject:
    name, value = content
    key = values.key_of(name.encode())
    if key is None:
        raise ValueError("no name of an object")
    stored = values.unpack(key, base64.b64decode(value, validate=True))
    if not stored.digest:
        raise ValueError("a value without a header")
    return stored


def _cut(name: str) -> ConfigError:
    return ConfigError(f"{name}: the backup was cut: its end is missing")


def _altered(name: str) -> ConfigError:
    return ConfigError(f"{name}: the backup was altered or damaged after it was written")
