"""What a store holds, damaged at random: values, log entries, and what it notes of itself."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final, Protocol

import redis
from google.protobuf.message import DecodeError
from typing_extensions import override

from bench.campaigns.mutation import mutated_bytes, mutated_message
from topospread.store import values
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from random import Random

_MESSAGES: Final = (kubernetes_pb2.Node, kubernetes_pb2.Pod, kubernetes_pb2.Service)
_WORDS: Final[tuple[Any, ...]] = (
    *("", "x", "-1", "0", "1", "2", "7", "1e9", "1.5", "9" * 30, "a b", "1:", "1:2 9:x", ":"),
    *(b"\xff\xfe", b"\0", 0, -1, 1, 2**53, 2**62),
)


class Damaged(Protocol):
    """A store whose content can be reached past its servers."""

    def damage(self, cluster: str, random: Random) -> str:
        """Change one thing; returns what."""

    def saved(self, cluster: str) -> Any:
        """All that is there of a cluster."""

    def put_right(self, cluster: str, saved: Any) -> None:
        """Bring that back."""


def damaged_value(value: bytes, others: list[bytes], random: Random) -> bytes:
    """A stored value that is not what it was: as bytes, or a message of its own or another kind."""
    kind = random.randrange(6)
    front = values.header(value)
    if kind == 0 and others:
        return random.choice(others)
    if kind in (1, 2) and front is not None:
        message = random.choice(_MESSAGES)()
        try:
            message.MergeFromString(value[front.end :])
        except DecodeError:
            return value[: front.end] + random.randbytes(9)
        mutated_message(message, random)
        return value[: front.end] + message.SerializeToString()
    if kind == 3 and front is not None:
        return value[: front.end] + mutated_bytes(value[front.end :], random)
    return mutated_bytes(value, random)


class RedisDamage(Damaged):
    """Damages a cluster in a Redis.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def close(self) -> None:
        """Close the connection to it."""
        self._client.close()

    @override
    def saved(self, cluster: str) -> dict[bytes, bytes]:
        return {name: self._client.dump(name) for name in self._keys(cluster)}  # type: ignore[misc]

    @override
    def put_right(self, cluster: str, saved: dict[bytes, bytes]) -> None:
        with self._client.pipeline(transaction=True) as all_of_it:
            for name in self._keys(cluster):
                all_of_it.delete(name)
            for name, value in saved.items():
                all_of_it.restore(name, 0, value)
            all_of_it.execute()

    @override
    def damage(self, cluster: str, random: Random) -> str:
        kind = random.random()
        try:
            if kind < 0.5:
                return self._value(cluster, random)
            if kind < 0.7:
                return self._log(cluster, random)
            if kind < 0.9:
                return self._note(cluster, random)
        except redis.ResponseError as refused:
            # It was damaged to another type before.
            return f"nothing: {refused}"
        name = random.choice(sorted(self._keys(cluster)))
        self._client.delete(name)
        if random.random() < 0.5:
            self._client.set(name, b"x")
        return f"{name!r} is gone or another type"

    def _keys(self, cluster: str) -> list[Any]:
        return list(self._client.scan_iter(f"ts:{{{cluster}}}:*"))

    def _value(self, cluster: str, random: Random) -> str:
        key = f"ts:{{{cluster}}}:object"
        held: dict[bytes, bytes] = self._client.hgetall(key)  # type: ignore[assignment]
        if not held or random.random() < 0.1:
            field = random.choice((b"", b"x", b"a/b/c", b"2/\xff/\xfe", b"9/a/b", b"3/default/"))
            self._client.hset(key, field, random.choice([*held.values(), b"", b"\x07x"]))
            return f"{key} {field!r} is new"
        field = random.choice(sorted(held))
        if random.random() < 0.1:
            self._client.hdel(key, field)
            return f"{key} {field!r} is gone"
        value = damaged_value(held[field], list(held.values()), random)
        self._client.hset(key, field, value)
        return f"{key} {field!r} = {value!r}"

    def _log(self, cluster: str, random: Random) -> str:
        key = f"ts:{{{cluster}}}:log"
        entries: Any = self._client.xrange(key)
        kind = random.randrange(4)
        if kind == 0 or not entries:
            newest = int(entries[-1][0].partition(b"-")[0]) if entries else 0
            number = newest + random.choice((1, 2, 1000, 2**62))
            fields = random.choice(({"t": "x", "p": "y"}, {"x": "y"}, {"t": b"\xff", "p": b"\xfe"}))
            self._client.xadd(key, fields, id=f"{number}-{random.choice((0, 0, 5))}")  # type: ignore[arg-type]
            return f"log entry {number} is new: {fields}"
        chosen, fields = random.choice(entries)
        if kind == 1:
            self._client.xdel(key, chosen)
            return f"log entry {chosen!r} is gone"
        # A stream only grows at its end: it is written anew.
        name = random.choice(sorted(fields))
        changed = dict(fields)
        if kind == 2:
            changed[name] = damaged_value(fields[name], [*fields.values()], random)
        else:
            field = random.choice((b"", b"=", b"=9/a/b", b"-2/default/web-0", b"\xff", b"=1//\xff"))
            changed[field] = changed.pop(name)
        with self._client.pipeline(transaction=True) as all_of_it:
            all_of_it.delete(key)
            for identifier, each in entries:
                all_of_it.xadd(key, changed if identifier == chosen else each, id=identifier)
            all_of_it.execute()
        return f"log entry {chosen!r} = {changed}"

    def _note(self, cluster: str, random: Random) -> str:
        """What the store notes beside objects and log."""
        part = random.choice(("meta", "meta", "touched", "tombstone", "expiry", "buried", "names"))
        key = f"ts:{{{cluster}}}:{part}"
        word = random.choice(_WORDS)
        if part in ("expiry", "buried", "names"):
            self._client.zadd(key, {word: random.choice((0, -1, 1e300, 5))})
            return f"{key} has {word!r}"
        held: Any = self._client.hkeys(key)
        field = random.choice([*held, b"x"])
        if random.random() < 0.2:
            self._client.hdel(key, field)
            return f"{key} {field!r} is gone"
        self._client.hset(key, field, word)
        return f"{key} {field!r} = {word!r}"


_COLUMNS: Final = {
    "object": ("value", "value", "value", "kind", "namespace", "name", "due"),
    "log": ("entries", "entries", "tag", "previous", "number"),
    "cluster": (
        *("identity", "number", "tag", "total", "marks", "tombstones"),
        *("listed", "feed", "replaced", "replaced_at"),
    ),
    "touched": ("scope", "number"),
    "tombstone": ("name", "version", "at"),
}
_TABLES: Final = (*["object"] * 5, *["log"] * 3, *["cluster"] * 2, "touched", "tombstone")


class SqliteDamage(Damaged):
    """Damages a cluster in a SQLite file.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._connection.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Close the connection to it."""
        self._connection.close()

    @override
    def saved(self, cluster: str) -> dict[str, list[Any]]:
        number = self._id(cluster)
        return {
            table: self._connection.execute(
                f"SELECT * FROM {table} WHERE {_owner(table)} = ?", (number,)
            ).fetchall()
            for table in _COLUMNS
        }

    @override
    def put_right(self, cluster: str, saved: dict[str, list[Any]]) -> None:
        (number, *_), *_ = saved["cluster"]
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for table, rows in saved.items():
                self._connection.execute(
                    f"DELETE FROM {table} WHERE {_owner(table)} = ?", (number,)
                )
                for row in rows:
                    marks = ",".join("?" * len(row))
                    self._connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)

    @override
    def damage(self, cluster: str, random: Random) -> str:
        table = random.choice(_TABLES)
        column = random.choice(_COLUMNS[table])
        keys = [
            name
            for _, name, _, _, _, part in self._connection.execute(f"PRAGMA table_info({table})")
            if part
        ]
        rows = self._connection.execute(
            f"SELECT {', '.join([*keys, column])} FROM {table} WHERE {_owner(table)} = ?",
            (self._id(cluster),),
        ).fetchall()
        if not rows:
            return "nothing"
        *place, value = random.choice(rows)
        where = " AND ".join(f"{key} = ?" for key in keys)
        if random.random() < 0.1:
            self._connection.execute(f"DELETE FROM {table} WHERE {where}", place)
            return f"{table} {place} is gone"
        if isinstance(value, bytes) and random.random() < 0.9:
            changed = damaged_value(value, [row[-1] for row in rows], random)
        else:
            changed = random.choice(_WORDS)
        try:
            self._connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE {where}", (changed, *place)
            )
        except (sqlite3.IntegrityError, sqlite3.OperationalError) as refused:
            return f"{table} {place} {column}: {refused}"
        return f"{table} {place} {column} = {changed!r}"

    def _id(self, cluster: str) -> int:
        row = self._connection.execute(
            "SELECT id FROM cluster WHERE name = ?", (cluster,)
        ).fetchone()
        return row[0] if row else 0


def _owner(table: str) -> str:
    """The column that says whose a row is."""
    return "id" if table == "cluster" else "cluster"
