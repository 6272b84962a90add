"""Stores as data: what a server left behind, taken from one and put into another.

In JSON; bytes are texts whose characters are their values.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"

Objects = dict[str, bytes]
"""Stored values by written name: kind/namespace/name."""

Log = list[list[tuple[str, bytes]]]
"""Transactions of (marked name, value)."""


def kept(name: str) -> dict[str, Any]:
    """The recorded content of a store: ``sqlite`` or ``redis``."""
    found: dict[str, Any] = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    return found


def keep(name: str, content: dict[str, Any]) -> None:
    """Record the content of a store."""
    RECORDED.mkdir(exist_ok=True)
    text = json.dumps(content, indent=1, sort_keys=True)
    (RECORDED / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


# ------------------------------ SQLite


def taken_from_file(path: Path) -> list[str]:
    """The statements that make a file anew."""
    with closing(sqlite3.connect(path)) as connection:
        pragmas = [
            f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        return [*connection.iterdump(), *pragmas]


def put_into_file(path: Path, statements: list[str]) -> None:
    """Make a file of them."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("\n".join(statements))


def file_content(path: Path, cluster: str) -> tuple[Objects, Log]:
    """What a file holds of a cluster."""
    with closing(sqlite3.connect(path)) as connection:
        (own,) = connection.execute("SELECT id FROM cluster WHERE name = ?", (cluster,)).fetchone()
        rows = connection.execute(
            "SELECT kind, namespace, name, value FROM object WHERE cluster = ?", (own,)
        )
        objects = {f"{kind}/{namespace}/{name}": value for kind, namespace, name, value in rows}
        log = connection.execute(
            "SELECT entries FROM log WHERE cluster = ? ORDER BY number", (own,)
        )
        return objects, [_entries(blob) for (blob,) in log]


def tables(path: Path) -> dict[str, object]:
    """The columns of each table, in order."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return {
            name: [row[1:4] for row in connection.execute(f"PRAGMA table_info({name})")]
            for (name,) in names
        }


def _entries(blob: bytes) -> list[tuple[str, bytes]]:
    """Two bytes with the length of the name, four with that of the value, and both; again."""
    found = []
    while blob:
        name, value = int.from_bytes(blob[:2], "big"), int.from_bytes(blob[2:6], "big")
        found.append((blob[6 : 6 + name].decode(), blob[6 + name : 6 + name + value]))
        blob = blob[6 + name + value :]
    return found


# ------------------------------ Redis


def taken_from_redis(client: Any) -> dict[str, Any]:
    """All keys by name, with kind and content."""
    taken: dict[str, Any] = {}
    for name in sorted(client.scan_iter()):
        kind = client.type(name).decode()
        if kind == "hash":
            content: Any = _texts(client.hgetall(name).items())
        elif kind == "zset":
            content = [
                [_text(member), score]
                for member, score in client.zrange(name, 0, -1, withscores=True)
            ]
        else:
            assert kind == "stream", kind
            content = [[_text(at), *_texts(fields.items())] for at, fields in client.xrange(name)]
        taken[_text(name)] = [kind, content]
    return taken


def put_into_redis(client: Any, taken: dict[str, Any]) -> None:
    """Make the keys."""
    for name, (kind, content) in taken.items():
        if kind == "hash":
            client.hset(name, mapping={raw(field): raw(value) for field, value in content})
        elif kind == "zset":
            client.zadd(name, {raw(member): score for member, score in content})
        else:
            for at, *fields in content:
                client.xadd(name, {raw(field): raw(value) for field, value in fields}, id=at)


def redis_content(client: Any, cluster: str) -> tuple[Objects, Log]:
    """What a Redis holds of a cluster."""
    objects: Objects = {}
    for part, prefix in (("node", "1//"), ("pod", "2/"), ("workload", ""), ("reservation", "7/")):
        found = client.hgetall(f"ts:{{{cluster}}}:{part}")
        objects |= {f"{prefix}{name.decode()}": value for name, value in found.items()}
    log = []
    for _, fields in client.xrange(f"ts:{{{cluster}}}:log"):
        assert list(fields)[:2] == [b"t", b"p"]
        log.append([(name.decode(), value) for name, value in list(fields.items())[2:]])
    return objects, log


def key_kinds(client: Any) -> dict[str, object]:
    """The kind of each key, and the fields of a cluster's meta."""
    found: dict[str, object] = {}
    for name in client.scan_iter():
        found[name.decode()] = client.type(name).decode()
        if name.endswith(b":meta"):
            found |= {f"{name.decode()} {field.decode()}": "field" for field in client.hkeys(name)}
    return found


def raw(text: str) -> bytes:
    """The bytes that a text stands for."""
    return text.encode("latin-1")


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _texts(pairs: Any) -> list[list[str]]:
    return [[_text(each) for each in pair] for pair in pairs]
